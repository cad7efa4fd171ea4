//! Fuel: a search takes the same however it is cut into slices.

use crate::fuel::Fuel;

use super::{PLENTY, compile, match_in_slices};

/// Patterns for each way of matching, with a text that takes more than one slice.
fn cases() -> Vec<(&'static str, String)> {
    vec![
        ("^[a-z0-9-]{1,64}$", "abc-def".into()),
        ("^[a-z]*$", "a".repeat(5000)),
        (r"^[\s\S]{0,10000}$", "é".repeat(5000)),
        (r"^[\p{L} ]{1,9999}$", "aß ".repeat(1500)),
        ("(x+x+)+y", "x".repeat(5000)),
        (r"\p{L}\p{Nd}$", "ä1 ".repeat(1500) + "b2"),
        (r"^(?=.*[a-z])(?=.*\d).{8,}$", "A".repeat(3000) + "a1"),
        ("^((?!foo).)*$", "fo".repeat(1000)),
        (r"(?<=\bfoo )bar(?= baz\b)", "foo bar ".repeat(200) + "baz"),
        ("^(?:(?<=^|o)f|(?<!^)o)*$", "fo".repeat(1000)),
        ("(.*a.{20})x", "ab".repeat(500)),
        ("[ab]{1000,2000}c", "ab".repeat(900) + "c"),
        (r"(.*)\1\1x", "ab".repeat(20)),
        (r"^(?:(a)|b|(?=b)(b))*\1$", "ab".repeat(300)),
        (r"^(.{0,700}?)-\1$", "ab".repeat(300) + "-" + &"ab".repeat(300)),
        ("^(.*)x\\1$", "a".repeat(9000) + "x" + &"a".repeat(9000)),
    ]
}

#[test]
fn verdict_and_fuel_do_not_depend_on_the_slices() {
    for (source, text) in cases() {
        let pattern = compile(source);
        for text in [text.as_str(), "", "a", "é"] {
            let whole = match_in_slices(&pattern, text, PLENTY);
            for units in [1, 2, 7, 1000] {
                assert_eq!(match_in_slices(&pattern, text, units), whole, "{source} in slices of {units}");
            }
            assert_eq!(match_in_slices(&pattern, text, PLENTY), whole, "{source} again");
        }
    }
}

#[test]
fn a_search_without_fuel_does_nothing() {
    for (source, text) in cases() {
        let pattern = compile(source);
        let mut search = crate::pattern::Match::start(&pattern);
        let mut fuel = Fuel::new(0);
        assert!(search.resume(&pattern, &text, &mut fuel).is_pending(), "{source}");
        assert_eq!(fuel.used(), 0, "{source}");
    }
}

#[test]
fn a_slice_ends_soon_after_its_fuel() {
    for (source, text) in cases() {
        let pattern = compile(source);
        let mut search = crate::pattern::Match::start(&pattern);
        loop {
            let mut fuel = Fuel::new(100);
            let poll = search.resume(&pattern, &text, &mut fuel);
            assert!(fuel.used() < 5000, "{source}: {}", fuel.used());
            if poll.is_ready() {
                break;
            }
        }
    }
}

#[test]
fn patterns_and_searches_move_between_threads() {
    fn check_send<T: Send>() {}
    fn check_sync<T: Sync>() {}
    check_send::<crate::pattern::Pattern>();
    check_sync::<crate::pattern::Pattern>();
    check_send::<crate::pattern::Match>();
}

#[test]
fn a_finished_search_keeps_its_verdict() {
    let pattern = compile("^a+$");
    let mut search = crate::pattern::Match::start(&pattern);
    for _ in 0..3 {
        assert_eq!(search.resume(&pattern, "aaa", &mut Fuel::new(PLENTY)), std::task::Poll::Ready(Ok(true)));
    }
}

#[test]
fn quick_matches_leave_long_texts_and_costly_patterns_alone() {
    let mut fuel = Fuel::new(PLENTY);
    assert_eq!(compile("^a+$").quick_match(&"a".repeat(4096), &mut fuel), Some(true));
    assert_eq!(compile("^a+$").quick_match(&"a".repeat(4097), &mut fuel), None);
    assert_eq!(compile(r"(a)\1").quick_match("aa", &mut fuel), None);
    assert_eq!(compile("(.*a.{20})x").quick_match("aa", &mut fuel), None);
}

#[test]
fn a_linear_pattern_takes_fuel_in_proportion_to_the_text() {
    for source in ["(a*)*b", "^(a|a)*$", "(a+a+)+b", "^((?!foo).)*$", "(.*a.{20})x", "[a-z]{1,100}@[a-z]{1,100}x"] {
        let pattern = compile(source);
        let (_, short) = match_in_slices(&pattern, &"a".repeat(10_000), PLENTY);
        let (_, long) = match_in_slices(&pattern, &"a".repeat(100_000), PLENTY);
        assert!(long < short * 11, "{source}: {short} and {long}");
    }
}
