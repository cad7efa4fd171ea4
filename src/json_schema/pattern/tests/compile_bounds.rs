//! What compiling may cost, and what a compiled pattern may hold.

use crate::fuel::Fuel;
use crate::pattern::budget::MAX_COMPILE_UNITS;
use crate::pattern::{MAX_MATCH_MEMORY, OutOfMemory, Pattern, PatternError};

use super::{PLENTY, compile, match_in_slices};

fn hostile_patterns() -> Vec<String> {
    let distinct: String = (0..20_000u32).filter_map(|index| char::from_u32(0x4E00 + index)).collect();
    let negated: String =
        (0..10_000u32).filter_map(|index| char::from_u32(0x4E00 + index)).map(|c| format!("[^{c}]")).collect();
    vec![
        "((a{0,100}){0,100}){0,100}".into(),
        "((ab{0,100}){0,100}){0,100}".into(),
        "((){0,65535}){0,65535}".into(),
        r"((\b){0,4294967295}){4294967295}".into(),
        "(a{99999}){99999}b".into(),
        "((?:a|b){1,1000}){1,1000}".into(),
        "(a*)*".repeat(10_000),
        "a?".repeat(30_000),
        r"[\p{L}a]".repeat(8_000),
        r"\p{L}".repeat(13_000),
        "[a-c]{50,100}".repeat(5_000),
        "(?=a)".repeat(10_000),
        "(?:(?=a)b){64}".repeat(2),
        format!("{}{}", "(a)".repeat(4000), r"\1".repeat(20_000)),
        format!("({}){{1000}}\\1", "(a)".repeat(1000)),
        "(a|b)*a(a|b){12}".into(),
        ".*a.{300}$".into(),
        r"\p{L}{1,3000}x\p{L}{1,1000}y".into(),
        "|".repeat(60_000),
        "(".repeat(60_000),
        "[".repeat(60_000),
        "\\".repeat(60_001),
        r"(?<a>)".repeat(9_000),
        distinct.chars().take(20_000).collect(),
        negated.chars().take(16_000).collect(),
    ]
}

#[test]
fn hostile_patterns_compile_within_fuel_and_memory_or_are_refused() {
    for source in hostile_patterns() {
        for max_memory in [1 << 14, 1 << 18, 1 << 22] {
            let mut fuel = Fuel::new(PLENTY);
            let result = Pattern::compile(&source, &mut fuel, max_memory);
            let start: String = source.chars().take(20).collect();
            assert!(fuel.used() <= MAX_COMPILE_UNITS + 500_000, "{start}: {}", fuel.used());
            if let Ok(pattern) = result {
                assert!(pattern.memory() <= max_memory, "{start}: {} of {max_memory}", pattern.memory());
                let (verdict, _) = match_in_slices(&pattern, "ab", 1000);
                assert!(verdict.is_ok(), "{start}");
            }
        }
    }
}

#[test]
fn a_pattern_needs_memory_for_its_classes_and_states() {
    for source in [r"^\p{L}+$", "(a|b)*a(a|b){12}", "abcdefgh"] {
        let needed = compile(source).memory();
        let error = Pattern::compile(source, &mut Fuel::new(PLENTY), needed / 4).unwrap_err();
        assert!(matches!(error, PatternError::Unsupported(_)), "{source}: {error}");
    }
}

#[test]
fn at_most_64_look_arounds_have_tables() {
    let looks = |count: usize| (0..count).map(|index| format!("(?:x|(?<=a{{{index}}})b)")).collect::<String>();
    assert!(super::try_compile(&looks(64)).is_ok());
    assert!(matches!(super::try_compile(&looks(65)), Err(PatternError::Unsupported(_))));
    // A repeat has its look-around once.
    assert!(super::try_compile("^(?:a(?<!b)){1,500}c").is_ok());
}

#[test]
fn tables_of_look_arounds_are_bounded() {
    let looks: String = (0..64).map(|index| format!("(?:x|(?<=a{{{index}}})b)")).collect();
    let pattern = compile(&looks);
    let text = "a".repeat(MAX_MATCH_MEMORY / 64 * 8);
    assert_eq!(match_in_slices(&pattern, &text, PLENTY).0, Err(OutOfMemory));
}

#[test]
fn entries_of_counted_repeats_are_bounded() {
    let pattern = compile("b[abc]{4000000}|b[abcd]{4000000}");
    assert_eq!(match_in_slices(&pattern, &"bac".repeat(400_000), PLENTY).0, Err(OutOfMemory));
    assert_eq!(match_in_slices(&pattern, &"bac".repeat(1000), PLENTY).0, Ok(false));
}

#[test]
fn errors_say_what_is_wrong() {
    let message = |source: &str| super::try_compile(source).unwrap_err().to_string();
    assert_eq!(message("a(b"), "not a pattern of ECMA-262: position 3: a group has no ')'");
    assert_eq!(message("(?<a>)\\k<b>"), "not a pattern of ECMA-262: position 9: no group has the name 'b'");
    assert_eq!(message(&"(".repeat(300)), "unsupported pattern: groups are nested more than 250 deep");
    assert_eq!(OutOfMemory.to_string(), "matching the pattern needs too much memory");
}
