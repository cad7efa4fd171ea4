//! What is JSON, what is not, and how it is said.

use super::*;
use serde_json::json;

#[test]
fn every_form_of_a_valid_text_is_accepted() {
    for text in [
        "0",
        "-0",
        "1",
        "-1",
        "10",
        "1.0",
        "1.50",
        "0.1",
        "-0.1",
        "1e1",
        "1E1",
        "1e+1",
        "1e-1",
        "1.5e-10",
        "0e999",
        "0.0e+999",
        "1e-999",
        "123456789012345678901234567890",
        "1.7976931348623157e308",
        "0.00000000000000000001e300",
        "true",
        "false",
        "null",
        "\"\"",
        "\"a\"",
        " \"a\" ",
        "\n\t\r 1 \r\n\t",
        "[]",
        "[ ]",
        "{}",
        "{ }",
        "[1]",
        "[1,2]",
        "[ 1 , 2 ]",
        "[[]]",
        "[[],[]]",
        "[[[]],{}]",
        "{\"\":0}",
        "{\"a\":{\"a\":{\"a\":1}}}",
        "{\"a\":1,\"b\":1}",
        "{ \"a\" : 1 , \"b\" : [ ] }",
        "\"\\\"\\\\\\/\\b\\f\\n\\r\\t\"",
        "\"\\u0000\"",
        "\"\\u00e9\\u00E9\"",
        "\"\\ud83d\\ude00\"",
        "\"\\uD83D\\uDE00\"",
        "\"\\uffff\\ufffe\"",
        "\"\u{7f}\"",
        "\"\u{2028}\u{2029}\"",
        "\"\u{10ffff}\"",
        "\"é😀\"",
        "\"\\\\\"",
        "\"\\\\\\\"\"",
        "\"/\"",
        "\"//\"",
        "[\"\",\"\"]",
        "[null,1,\"1\",{}]",
        "[1e00]",
        "[-1.0e-00]",
    ] {
        let tape = parse(text).unwrap_or_else(|why| panic!("{text}: {why}"));
        let expected: serde_json::Value = serde_json::from_str(text).unwrap();
        assert_eq!(tape.to_value(Tape::ROOT), expected, "{text}");
    }
}

#[test]
fn every_error_has_a_position_a_pointer_and_the_words_of_serde_json() {
    for (text, pointer, reason) in [
        ("", "", "the text is empty (a JSON value is required)"),
        (" \n\t\r", "", "the text is empty (a JSON value is required)"),
        ("\u{feff}{}", "", "the text begins with a byte order mark (forbidden in JSON, RFC 8259 §8.1)"),
        ("{} {}", "", "trailing characters at line 1 column 4"),
        ("{}x", "", "trailing characters at line 1 column 3"),
        ("{}\0", "", "trailing characters at line 1 column 3"),
        ("1 2", "", "trailing characters at line 1 column 3"),
        ("]", "", "expected value at line 1 column 1"),
        ("}", "", "expected value at line 1 column 1"),
        (",", "", "expected value at line 1 column 1"),
        (":", "", "expected value at line 1 column 1"),
        ("[", "/0", "EOF while parsing a list at line 1 column 1"),
        ("[1", "/1", "EOF while parsing a list at line 1 column 2"),
        ("[1,", "/1", "EOF while parsing a value at line 1 column 3"),
        ("[1,]", "/1", "trailing comma at line 1 column 4"),
        ("[,]", "/0", "expected value at line 1 column 2"),
        ("[,1]", "/0", "expected value at line 1 column 2"),
        ("[1,,2]", "/1", "expected value at line 1 column 4"),
        ("[1 2]", "/1", "expected `,` or `]` at line 1 column 4"),
        ("[1}", "/1", "expected `,` or `]` at line 1 column 3"),
        ("[1:2]", "/1", "expected `,` or `]` at line 1 column 3"),
        ("[[1]", "/1", "EOF while parsing a list at line 1 column 4"),
        ("{", "", "EOF while parsing an object at line 1 column 1"),
        ("{]", "", "key must be a string at line 1 column 2"),
        ("{,}", "", "key must be a string at line 1 column 2"),
        ("{a:1}", "", "key must be a string at line 1 column 2"),
        ("{'a':1}", "", "key must be a string at line 1 column 2"),
        ("{1:1}", "", "key must be a string at line 1 column 2"),
        ("{\"a\"", "/a", "EOF while parsing an object at line 1 column 4"),
        ("{\"a\"}", "/a", "expected `:` at line 1 column 5"),
        ("{\"a\" 1}", "/a", "expected `:` at line 1 column 6"),
        ("{\"a\":", "/a", "EOF while parsing a value at line 1 column 5"),
        ("{\"a\":}", "/a", "expected value at line 1 column 6"),
        ("{\"a\":1", "", "EOF while parsing an object at line 1 column 6"),
        ("{\"a\":1,", "", "EOF while parsing a value at line 1 column 7"),
        ("{\"a\":1,}", "", "trailing comma at line 1 column 8"),
        ("{\"a\":1 \"b\":2}", "", "expected `,` or `}` at line 1 column 8"),
        ("{\"a\":1]", "", "expected `,` or `}` at line 1 column 7"),
        ("nul", "", "EOF while parsing a value at line 1 column 3"),
        ("nulL", "", "expected ident at line 1 column 4"),
        ("True", "", "expected value at line 1 column 1"),
        ("tru}", "", "expected ident at line 1 column 4"),
        ("falsy", "", "expected ident at line 1 column 5"),
        ("NaN", "", "expected value at line 1 column 1"),
        ("[Infinity]", "/0", "expected value at line 1 column 2"),
        ("-", "", "EOF while parsing a value at line 1 column 1"),
        ("[-]", "/0", "invalid number at line 1 column 3"),
        ("[-a]", "/0", "invalid number at line 1 column 3"),
        ("[01]", "/0", "invalid number at line 1 column 3"),
        ("[-01]", "/0", "invalid number at line 1 column 4"),
        ("[1.]", "/0", "invalid number at line 1 column 4"),
        ("1.", "", "EOF while parsing a value at line 1 column 2"),
        ("[1.e1]", "/0", "invalid number at line 1 column 4"),
        ("[.5]", "/0", "expected value at line 1 column 2"),
        ("[+1]", "/0", "expected value at line 1 column 2"),
        ("[1e]", "/0", "invalid number at line 1 column 4"),
        ("[1e+]", "/0", "invalid number at line 1 column 5"),
        ("1e", "", "EOF while parsing a value at line 1 column 2"),
        ("1e-", "", "EOF while parsing a value at line 1 column 3"),
        ("[1e1.5]", "/1", "expected `,` or `]` at line 1 column 5"),
        ("[0x1]", "/1", "expected `,` or `]` at line 1 column 3"),
        ("[1e999]", "/0", "number out of range at line 1 column 6"),
        ("-1e309", "", "number out of range at line 1 column 6"),
        ("1.7976931348623160e308", "", "number out of range at line 1 column 22"),
        ("\"", "", "EOF while parsing a string at line 1 column 1"),
        ("\"a", "", "EOF while parsing a string at line 1 column 2"),
        ("\"a\\\"", "", "EOF while parsing a string at line 1 column 4"),
        ("\"\\", "", "EOF while parsing a string at line 1 column 2"),
        ("\"\\u12", "", "EOF while parsing a string at line 1 column 5"),
        ("\"\\x\"", "", "invalid escape at line 1 column 3"),
        ("\"\\u12g4\"", "", "invalid escape at line 1 column 7"),
        ("\"\\U0041\"", "", "invalid escape at line 1 column 3"),
        ("\"a\nb\"", "", "control character (\\u0000-\\u001F) found while parsing a string at line 2 column 0"),
        ("\"\t\"", "", "control character (\\u0000-\\u001F) found while parsing a string at line 1 column 2"),
        (
            "\"12345678\u{1f}\"",
            "",
            "control character (\\u0000-\\u001F) found while parsing a string at line 1 column 10",
        ),
        ("\"\\ud800\"", "", "unexpected end of hex escape at line 1 column 8"),
        ("\"\\ud800\\n\"", "", "unexpected end of hex escape at line 1 column 9"),
        ("\"\\ud800\\ud800\"", "", "lone leading surrogate in hex escape at line 1 column 13"),
        ("\"\\udc00\"", "", "lone leading surrogate in hex escape at line 1 column 7"),
        ("// c\n{}", "", "expected value at line 1 column 1"),
        ("[1/**/]", "/1", "expected `,` or `]` at line 1 column 3"),
        ("\u{a0}1", "", "expected value at line 1 column 1"),
        ("\u{c}1", "", "expected value at line 1 column 1"),
        ("{\"a\": [1,\n {\"b~/c\": tru}]}", "/a/1/b~0~1c", "expected ident at line 2 column 14"),
        ("{\"a\":1,\"a\":2}", "", "the name 'a' appears twice in one object at line 1 column 10"),
        ("{\"a\":1,\"\\u0061\":2}", "", "the name 'a' appears twice in one object at line 1 column 15"),
        ("{\"\\u0061\":1,\"a\":2}", "", "the name 'a' appears twice in one object at line 1 column 15"),
        ("{\"\":1,\"\":2}", "", "the name '' appears twice in one object at line 1 column 8"),
        ("[{\"x\":{\"k\":1,\"k\":1}}]", "/0/x", "the name 'k' appears twice in one object at line 1 column 16"),
    ] {
        let why = parse_error(text);
        assert_eq!((&*why.pointer, &*why.reason), (pointer, reason), "{text:?}");
        assert!(parse(format!("{text} ")).is_err(), "{text:?} followed by a space");
    }
}

#[test]
fn bytes_that_are_not_utf8_are_named() {
    for (bytes, at) in [
        (&b"{\"a\":\"\xff\"}"[..], 6),
        (b"\"\xc0\x80\"", 1),
        (b"\xff\xfe{\0}\0", 0),
        (b"\"\xe2\x82\"", 1),
        (b"\"\xed\xa0\x80\"", 1),
        (b"\"\xf4\x90\x80\x80\"", 1),
        (b"\"abc\xc3", 4),
        (b"[1] \x80", 4),
    ] {
        assert_eq!(parse_error(bytes).reason, format!("byte {at} is not UTF-8"), "{bytes:?}");
    }
    // A character across the border of two blocks, and an error just behind it.
    for padding in 16_380..16_390 {
        let mut text = format!("\"{}é€😀\"", "x".repeat(padding)).into_bytes();
        assert!(parse(&text).is_ok(), "{padding}");
        text.push(0xff);
        assert_eq!(parse_error(&text).reason, format!("byte {} is not UTF-8", text.len() - 1));
    }
}

#[test]
fn nesting_is_bounded() {
    let nested = |count: usize| [vec![b'['; count], vec![b']'; count]].concat();
    let at_most = |max_depth, text: Vec<u8>| Tape::parse(text.into(), &TapeBounds { max_depth });
    assert!(at_most(64, nested(64)).is_ok());
    for (max_depth, text) in [
        (64, nested(65)),
        (64, nested(1_000_000)),
        (64, vec![b'['; 1_000_000]),
        (64, b"{\"a\":".repeat(100_000)),
        (u16::MAX, nested(121)),
        (0, b"[]".to_vec()),
        (0, b"{}".to_vec()),
        (1, b"[{}]".to_vec()),
    ] {
        let why = at_most(max_depth, text).unwrap_err();
        assert!(why.reason.starts_with("arrays and objects are nested too deeply at line 1 column "), "{why}");
        assert!(why.pointer.len() < 300, "{why}");
    }
    assert!(at_most(u16::MAX, nested(120)).is_ok());
    assert!(at_most(0, b"1".to_vec()).is_ok());
    let wide = format!("[{}]", vec!["[[]]"; 1000].join(","));
    assert!(at_most(3, wide.into_bytes()).is_ok(), "siblings do not add up");
}

#[test]
fn errors_repeat_little_of_the_text() {
    for name in ["x".repeat(100_000), "é".repeat(100_000), "\\u00e9".repeat(100_000), "\\n".repeat(61)] {
        let why = parse_error(format!("{{\"{name}\":1,\"{name}\":2}}"));
        assert!(why.reason.contains("…' appears twice") && why.reason.chars().count() < 130, "{}", why.reason);
        let why = parse_error(format!("{{\"{name}\":[tru]}}"));
        assert!(why.pointer.ends_with("…/0") && why.pointer.chars().count() == 64, "{}", why.pointer);
    }
    let name = "y".repeat(60);
    let why = parse_error(format!("{{\"{name}\":1,\"{name}\":2}}"));
    assert!(why.reason.contains(&format!("'{name}' appears twice")), "{why}");
}

#[test]
fn names_are_unique_in_objects_of_any_size() {
    for count in [1, 15, 16, 17, 18, 47, 48, 49, 1_000, 100_000] {
        for name in [
            |index: usize| format!("{index:x}"),
            |index: usize| format!("a longer name {index}"),
            |index: usize| format!("\\u0041{index}"),
        ] {
            let members: Vec<String> = (0..count).map(|index| format!("\"{}\":{index}", name(index))).collect();
            let text = format!("{{{}}}", members.join(","));
            let tape = parse(&text).unwrap();
            assert_eq!(tape.members(Tape::ROOT).count(), count);
            for twice in [0, count / 2, count - 1] {
                let text = format!("{{{},\"{}\":0}}", members.join(","), name(twice));
                assert!(parse_error(&text).reason.contains("appears twice"), "{count} {twice}");
            }
        }
    }
    for text in [
        "[{\"a\":1},{\"a\":1}]",
        "{\"a\":{\"a\":1},\"b\":{\"a\":1}}",
        "{\"a\":1,\"A\":1}",
        "{\"\":1,\"\\u0000\":1}",
        "{\"a\":1,\"a\\u0000\":1}",
        "{\"é\":1,\"e\u{301}\":1}",
        "{\"1234567\":1,\"12345678\":1}",
    ] {
        assert!(parse(text).is_ok(), "{text}");
    }
}

#[test]
fn long_names_are_compared_after_decoding() {
    let plain = "n".repeat(5_000);
    let escaped = format!("\\u006e{}", "n".repeat(4_999));
    let all_escaped = "\\u006e".repeat(5_000);
    let short = "n".repeat(500);
    let short_escaped = "\\u006e".repeat(500);
    for (first, second) in [(&plain, &escaped), (&escaped, &plain), (&all_escaped, &plain), (&short, &short_escaped)] {
        let text = format!("{{\"{first}\":1,\"{second}\":2}}");
        assert!(parse_error(&text).reason.contains("appears twice"));
        let text = format!("{{\"{first}\":1,\"{second}x\":2}}");
        assert!(parse(&text).is_ok());
    }
}

#[test]
fn a_tape_gives_access_to_its_values() {
    let text = r#" {"a": [1, -2.50, "x\ty", {}], "b\u0062": null, "c": {"d": true, "e": [[], false]}} "#;
    let tape = parse(text).unwrap();
    let member = |name| tape.find_member(Tape::ROOT, name);
    let a = member("a").unwrap();
    assert_eq!(tape.raw(Tape::ROOT), text.trim());
    assert_eq!(tape.raw(a), r#"[1, -2.50, "x\ty", {}]"#);
    let items: Vec<Node> = tape.items(a).collect();
    let kinds: Vec<NodeKind> = items.iter().map(|item| tape.kind(*item)).collect();
    assert_eq!(kinds, [NodeKind::Integer, NodeKind::Number, NodeKind::EscapedString, NodeKind::Object]);
    assert_eq!((tape.raw(items[1]), tape.raw(items[2]), &*tape.text(items[2])), ("-2.50", "x\\ty", "x\ty"));
    assert_eq!(tape.kind(member("bb").unwrap()), NodeKind::Null);
    assert!(member("b\\u0062").is_none() && member("").is_none() && member("d").is_none());
    let c = member("c").unwrap();
    assert_eq!(tape.to_value(c), json!({"d": true, "e": [[], false]}));
    assert_eq!(tape.end(c), tape.end(Tape::ROOT));
    assert_eq!(tape.end(Tape::ROOT).index() as usize, tape.entry_count());
    assert_eq!(
        tape.members(Tape::ROOT).map(|(name, _)| tape.text(name).into_owned()).collect::<Vec<_>>(),
        ["a", "bb", "c"]
    );
    assert_eq!((tape.items(c).count(), tape.members(a).count()), (0, 0));
    let beyond = Node::from_index(1_000);
    assert_eq!((tape.kind(beyond), tape.raw(beyond), tape.next_sibling(beyond).index()), (NodeKind::Null, "", 1_001));
    assert_eq!(tape.kind(Node::from_index(u32::MAX)), NodeKind::Null);
    assert_eq!(Tape::from_value(&json!({"a": ["é\n"]})).unwrap().to_value(Tape::ROOT), json!({"a": ["é\n"]}));
    let deep = (0..121).fold(json!(1), |inner, _| json!([inner]));
    assert!(Tape::from_value(&deep).is_err());
}
