//! serde_json as a second opinion.

use super::*;
use proptest::prelude::*;
use serde_json::Value;

/// Returns whether serde_json reads the text and no object has a name twice, by writing the value again: a duplicate
/// makes it smaller.
fn count_members(text: &str) -> usize {
    // Colons outside strings, in text that serde_json accepts.
    let (mut colons, mut in_string, mut is_escape) = (0, false, false);
    for character in text.chars() {
        match character {
            _ if is_escape => is_escape = false,
            '\\' if in_string => is_escape = true,
            '"' => in_string = !in_string,
            ':' if !in_string => colons += 1,
            _ => {}
        }
    }
    colons
}

fn members_of(value: &Value) -> usize {
    match value {
        Value::Array(items) => items.iter().map(members_of).sum(),
        Value::Object(members) => members.len() + members.values().map(members_of).sum::<usize>(),
        _ => 0,
    }
}

fn compare(text: &str) -> Result<(), TestCaseError> {
    let ours = parse(text);
    match serde_json::from_str::<Value>(text) {
        Ok(value) if count_members(text) == members_of(&value) => match ours {
            Ok(tape) => prop_assert_eq!(tape.to_value(Tape::ROOT), value, "{:?}", text),
            Err(why) => prop_assert!(false, "{text:?}: {why}"),
        },
        Ok(_) => prop_assert!(ours.unwrap_err().reason.contains("appears twice"), "{text:?}"),
        Err(why) => {
            let error = ours.err();
            prop_assert!(error.is_some(), "{text:?} was accepted; serde_json: {why}");
            let reason = error.map(|error| error.reason).unwrap_or_default();
            // serde_json stops within an exponent that is too long.
            let is_special =
                ["is empty", "appears twice", "number out of range"].iter().any(|words| reason.contains(words));
            prop_assert!(is_special || reason == why.to_string(), "{text:?}: {reason}; serde_json: {why}");
        }
    }
    Ok(())
}

fn json_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        (-1000.0..1000.0).prop_map(Value::from),
        any::<String>().prop_map(Value::from),
        "[\\\\\"\n\u{1}a-c/😀]{0,20}".prop_map(Value::from),
    ];
    leaf.prop_recursive(6, 60, 8, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..8).prop_map(Value::from),
            proptest::collection::btree_map("[a-c\"é]{0,10}", inner, 0..20)
                .prop_map(|members| members.into_iter().collect()),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn text_of_json_characters_is_judged_as_by_serde_json(text in "[\\[\\]{}\",:0-9a-c\\\\ .eE+\n-]{0,40}") {
        compare(&text)?;
    }

    #[test]
    fn tokens_are_judged_as_by_serde_json(tokens in proptest::collection::vec(prop_oneof![
        Just("["), Just("]"), Just("{"), Just("}"), Just(","), Just(":"), Just("\"a\""), Just("\"b\""), Just("1"),
        Just("-0.5e1"), Just("null"), Just("true"), Just("[]"), Just("{}"), Just(" "), Just("\n"), Just("\"\\u0061\""),
        Just("[1,2"), Just("{\"c\":"), Just("\"\\ud83d\\ude00\""), Just("1e308"),
    ], 0..25)) {
        compare(&tokens.concat())?;
    }

    #[test]
    fn strings_are_judged_as_by_serde_json(text in "\"[\\\\udDcC80-9abnt\"\u{1}é ]{0,30}\"") {
        compare(&text)?;
    }

    #[test]
    fn numbers_are_judged_as_by_serde_json(text in "-?(0|[1-9][0-9]{0,25})(\\.[0-9]{1,25})?([eE][+-]?[0-9]{1,3})?") {
        compare(&text)?;
    }

    #[test]
    fn values_are_read_as_they_were_written(value in json_value(), pretty: bool) {
        let text = if pretty { serde_json::to_string_pretty(&value) } else { serde_json::to_string(&value) }.unwrap();
        let read: Value = serde_json::from_str(&text).unwrap();
        let tape = parse(&text).unwrap();
        prop_assert_eq!(tape.to_value(Tape::ROOT), read);
        prop_assert!(tape.memory() <= 8 * tape.entry_count() && tape.memory() <= 4 * text.len() + 4);
    }

    #[test]
    fn no_bytes_make_the_parser_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = parse(&bytes);
    }

    #[test]
    fn a_valid_text_with_one_byte_changed_is_judged_as_by_serde_json(value in json_value(), at: prop::sample::Index, byte in 0_u8..128) {
        let mut text = serde_json::to_vec(&value).unwrap();
        let at = at.index(text.len());
        text[at] = byte;
        if let Ok(text) = String::from_utf8(text) {
            compare(&text)?;
        }
    }
}
