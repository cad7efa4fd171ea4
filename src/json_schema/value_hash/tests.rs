//! Tests of equality by hash.

use super::*;
use crate::{fuel::Fuel, tape::TapeBounds};
use proptest::prelude::*;
use serde_json::json;
use std::task::Poll;

fn parse(text: impl Into<String>) -> Tape {
    Tape::parse(text.into().into(), &TapeBounds::default()).unwrap()
}

/// Hashes in slices; returns the hash and the fuel.
fn hash_in_slices(tape: &Tape, units: u64) -> (u128, u64) {
    let (mut hasher, mut used) = (NodeHasher::start(Tape::ROOT), 0);
    loop {
        let mut fuel = Fuel::new(units);
        let result = hasher.resume(tape, &mut fuel);
        used += fuel.used();
        if let Poll::Ready(hash) = result {
            assert!(hasher.memory() <= 128 * 128, "{}", hasher.memory());
            return (hash, used);
        }
    }
}

fn hash(text: &str) -> u128 {
    let tape = parse(text);
    let (hash, used) = hash_in_slices(&tape, u64::MAX);
    for units in [1, 7, 1_000] {
        assert_eq!(hash_in_slices(&tape, units), (hash, used), "{units}");
    }
    if let Some(direct) = hash_scalar(&tape, Tape::ROOT) {
        assert_eq!(direct, hash);
    }
    hash
}

/// Checks in slices; returns the verdict, the fuel, and the largest memory.
fn check_in_slices(tape: &Tape, units: u64, max_memory: usize) -> (Result<bool, OutOfMemory>, u64, usize) {
    let (mut check, mut used, mut memory) = (UniquenessCheck::start(Tape::ROOT, max_memory), 0, 0);
    loop {
        let mut fuel = Fuel::new(units);
        let result = check.resume(tape, &mut fuel);
        used += fuel.used();
        memory = memory.max(check.memory());
        if let Poll::Ready(verdict) = result {
            return (verdict, used, memory);
        }
    }
}

fn is_unique(text: &str) -> bool {
    let tape = parse(text);
    let (verdict, used, _) = check_in_slices(&tape, u64::MAX, 1 << 30);
    for units in [1, 7, 1_000] {
        let (in_slices, used_in_slices, _) = check_in_slices(&tape, units, 1 << 30);
        assert_eq!((in_slices, used_in_slices), (verdict, used), "{units}");
    }
    verdict.unwrap()
}

#[test]
fn only_equal_values_have_equal_hashes() {
    let long = "x".repeat(5_000);
    let groups: Vec<Vec<String>> = [
        &["null"][..],
        &["false"],
        &["true"],
        &["0", "-0", "0.0", "0e10"],
        &["1", "1.0", "10e-1", "0.1e1", "1E0"],
        &["-1", "-1.0"],
        &["10", "1e1", "100e-1"],
        &["0.1", "1e-1"],
        &["18446744073709551616", "1.8446744073709551616e19"],
        &["18446744073709551617"],
        &["1e-400"],
        &["\"\""],
        &["\"1\"", "\"\\u0031\""],
        &["\"null\"", "\"\\u006eull\""],
        &["\"é\"", "\"\\u00e9\"", "\"\\u00E9\""],
        &["\"e\u{301}\""],
        &["\"😀\"", "\"\\ud83d\\ude00\""],
        &["[]", "[ ]"],
        &["{}", "{ }"],
        &["[[]]"],
        &["[{}]"],
        &["[null]"],
        &["[0]", "[0.0]"],
        &["[false]"],
        &["[1,2]", "[1.0,\n2e0]"],
        &["[2,1]"],
        &["[[1],2]"],
        &["[1,[2]]"],
        &["[[1,2]]"],
        &["[1,2,[]]"],
        &["{\"a\":1}", "{\"\\u0061\":1.0}"],
        &["{\"a\":2}"],
        &["{\"1\":\"a\"}"],
        &["{\"a\":\"1\"}"],
        &["{\"a\":1,\"b\":2}", "{\"b\":2,\"a\":1}"],
        &["{\"a\":2,\"b\":1}"],
        &["{\"a\":{\"b\":1}}"],
        &["{\"b\":{\"a\":1}}"],
        &["{\"a\":[1,{\"b\":null,\"c\":[]}]}", "{\"a\":[1,{\"c\":[],\"b\":null}]}"],
    ]
    .iter()
    .map(|group| group.iter().map(|text| (*text).to_owned()).collect())
    .chain([
        vec![
            format!("\"{long}\""),
            format!("\"\\u0078{}\"", "x".repeat(4_999)),
            format!("\"{}\"", "\\u0078".repeat(5_000)),
        ],
        vec![format!("\"{long}x\"")],
        vec!["1".repeat(300), format!("{}.0", "1".repeat(300)), format!("1.{}e299", "1".repeat(299))],
        vec![
            format!("0.{}1", "3".repeat(9_000)),
            format!("0.{}10000", "3".repeat(9_000)),
            format!("3.{}1e-1", "3".repeat(8_999)),
        ],
        vec![format!("1{}", "0".repeat(2_000)).get(..300).unwrap().to_owned(), format!("1.{}e299", "0".repeat(3_000))],
        vec!["123456789012345678".to_owned(), format!("123456789012345678.{}", "0".repeat(3_000))],
        vec!["1234567890123456789".to_owned(), format!("1234567890123456789.{}", "0".repeat(3_000))],
        vec![format!("0.{}2", "3".repeat(9_000))],
        vec![format!("0.{}", "3".repeat(9_000))],
    ])
    .collect();
    let mut seen = std::collections::HashMap::new();
    for (index, group) in groups.iter().enumerate() {
        for text in group {
            let earlier = *seen.entry(hash(text)).or_insert(index);
            assert_eq!(earlier, index, "{text:.60}");
        }
    }
    assert_eq!(seen.len(), groups.len());
}

#[test]
fn a_schema_and_a_tape_have_the_same_hashes() {
    for text in [
        "null",
        "true",
        "false",
        "0",
        "-0.0",
        "1.5",
        "1e300",
        "5e-324",
        "18446744073709551615",
        "\"a\\n\"",
        "[]",
        "{}",
        "[1,[2,{\"a\":[]}]]",
        "{\"b\":[true,false,null],\"a\":{\"\":\"\"}}",
        "1.0",
        "100",
    ] {
        assert_eq!(hash(text), hash_value(&serde_json::from_str(text).unwrap()), "{text}");
        assert_eq!(hash(text), hash_node(&parse(text), Tape::ROOT));
    }
    assert_ne!(hash("0"), hash_value(&json!(false)));
    let deep = format!("{}1{}", "[".repeat(120), "]".repeat(120));
    assert_eq!(hash(&deep), hash_value(&serde_json::from_str(&deep).unwrap()));
}

#[test]
fn items_that_are_equal_are_found() {
    let many = |item: fn(usize) -> String, count: usize| -> Vec<String> { (0..count).map(item).collect() };
    for text in [
        "[1,1]",
        "[1,1.0]",
        "[0,-0]",
        "[\"a\",\"\\u0061\"]",
        "[null,null]",
        "[true,1,true]",
        "[[],[]]",
        "[{},{}]",
        "[[1],[1.0]]",
        "[{\"a\":1,\"b\":2},{\"b\":2,\"a\":1}]",
        "[1,2,3,4,5,6,7,1]",
        "[1,2,3,4,5,6,7,8,9,10,1]",
        "[[[[1]]],[[[1]]]]",
        "[\"a\\n\",\"a\\n\"]",
        "[1e2,100]",
    ] {
        assert!(!is_unique(text), "{text}");
    }
    for text in [
        "[]",
        "[1]",
        "[1,2]",
        "[false,0]",
        "[true,1]",
        "[\"1\",1]",
        "[null,false,0,\"\"]",
        "[[],{}]",
        "[[1],[2]]",
        "1",
        "{}",
        "{\"a\":1,\"b\":1}",
        "\"aa\"",
        "[[0],[false]]",
        "[[1,2],[2,1]]",
        "[1,2,3,4,5,6,7,8]",
        "[1,2,3,4,5,6,7,8,9]",
        "[{\"a\":1},{\"a\":2},{\"b\":1}]",
        "[\"a\",\"A\"]",
        "[1,1.0000000000000000000000001]",
    ] {
        assert!(is_unique(text), "{text}");
    }
    for count in [9, 47, 48, 49, 191, 192, 193, 5_000] {
        for item in
            [|index: usize| index.to_string(), |index| format!("[{index}]"), |index| format!("{{\"a\":\"{index}\"}}")]
        {
            let items = many(item, count);
            assert!(is_unique(&format!("[{}]", items.join(","))), "{count}");
            for twice in [0, count / 2, count - 1] {
                assert!(!is_unique(&format!("[{},{}]", items.join(","), item(twice))), "{count} {twice}");
            }
        }
    }
}

#[test]
fn the_check_stops_at_the_first_equal_pair() {
    let tape = parse(format!("[1,2,3,4,5,6,7,8,9,1,{}]", vec!["1"; 100_000].join(",")));
    let (verdict, used, _) = check_in_slices(&tape, u64::MAX, 1 << 20);
    assert!(verdict == Ok(false) && used < 300, "{used}");
}

#[test]
fn memory_is_bounded() {
    let items: Vec<String> = (0..100_000).map(|index| index.to_string()).collect();
    let tape = parse(format!("[{}]", items.join(",")));
    let (verdict, used, memory) = check_in_slices(&tape, 1, 4 << 20);
    assert!(verdict == Ok(true) && (800_000..=4 << 20).contains(&memory), "{memory}");
    for max_memory in [0, 511, 512, 2_560, 100_000] {
        let (verdict, less_used, memory) = check_in_slices(&tape, 1, max_memory);
        assert_eq!(verdict, Err(OutOfMemory));
        assert!(memory <= max_memory && less_used < used, "{memory}");
    }
    let (verdict, _, memory) = check_in_slices(&parse("[1,2,3,4,5,\"a\",null,false]"), 1, 0);
    assert_eq!((verdict, memory), (Ok(true), 0), "few scalars need no memory");
}

fn small_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (-2..3).prop_map(Value::from),
        (-2..3).prop_map(|number| Value::from(f64::from(number) / 2.0)),
        "[ab\n]{0,2}".prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 10, 3, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
            proptest::collection::btree_map("[ab\n]{0,1}", inner, 0..3)
                .prop_map(|members| members.into_iter().collect()),
        ]
    })
}

/// Compares by the definition of JSON Schema: numbers by value.
fn is_equal(first: &Value, second: &Value) -> bool {
    match (first, second) {
        (Value::Number(first), Value::Number(second)) => first.as_f64() == second.as_f64(),
        (Value::Array(first), Value::Array(second)) => {
            first.len() == second.len() && first.iter().zip(second).all(|(first, second)| is_equal(first, second))
        }
        (Value::Object(first), Value::Object(second)) => {
            first.len() == second.len()
                && first.iter().all(|(name, value)| second.get(name).is_some_and(|other| is_equal(value, other)))
        }
        _ => first == second,
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn hashes_are_equal_as_values_are(first in small_value(), second in small_value()) {
        let (tape, other) = (parse(first.to_string()), parse(second.to_string()));
        let expected = is_equal(&first, &second);
        prop_assert_eq!(hash_node(&tape, Tape::ROOT) == hash_node(&other, Tape::ROOT), expected);
        prop_assert_eq!(hash_value(&first) == hash_node(&other, Tape::ROOT), expected);
    }

    #[test]
    fn uniqueness_is_that_of_all_pairs(items in proptest::collection::vec(small_value(), 0..14)) {
        let expected = items.iter().enumerate().all(|(at, item)| !items[..at].iter().any(|other| is_equal(item, other)));
        prop_assert_eq!(is_unique(&Value::from(items).to_string()), expected);
    }
}
