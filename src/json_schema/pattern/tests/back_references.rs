//! Back-references.

use std::task::Poll;

use crate::fuel::Fuel;
use crate::pattern::{Match, OutOfMemory};

use super::{check_matches, compile, match_in_slices};

#[test]
fn references_match_what_their_group_captured() {
    check_matches(&[
        (r"(a|b)\1", &["aa", "bb", "xbb"], &["ab", "a", ""]),
        (r"^(?<q>['\x22]).*\k<q>$", &["'a'", "\"b\""], &["'a\"", "'"]),
        (r"^(\w+) \1$", &["foo foo", "a a"], &["foo bar", "foo fo", "fo foo"]),
        (r"^(.*)\1$", &["", "abab", "éé"], &["aba", "é"]),
        (r"^(a)(b)\2\1$", &["abba"], &["abab"]),
        (r"^(?:(?<y>a)|(?<y>b))\k<y>$", &["aa", "bb"], &["ab", "ba"]),
        (r"^(😀|漢)-\1$", &["😀-😀"], &["😀-漢"]),
        (r"^(\d{1,300})x\1$", &["12x12"], &["12x1", "1x12"]),
        (r"^(a+?)\1+$", &["aa", "aaaaa"], &["a"]),
        (r"^(a{2,})\1$", &["aaaa"], &["aa", "aaaaa"]),
    ]);
}

#[test]
fn groups_without_a_capture_match_the_empty_text() {
    check_matches(&[
        (r"^\1(a)$", &["a"], &["aa"]),
        (r"^(?:(a)|b)\1$", &["aa", "b"], &["ba", "a"]),
        (r"^(a\1)$", &["a"], &["aa"]),
        (r"^\k<n>(?<n>x)$", &["x"], &["xx"]),
        // Each round clears the groups within (RepeatMatcher, step 4).
        (r"^(?:(a)|b)*\1$", &["ab", "aa", "b"], &["aba"]),
        (r"^(?:(a)|(b)|c){3}\1\2$", &["aabb", "abc", "ccbb"], &["abcb"]),
    ]);
}

#[test]
fn look_arounds_capture_and_do_not_try_again() {
    check_matches(&[
        (r"^(?=(a+))\1b", &["aab"], &["aac"]),
        (r"^(?=(a+))a*b\1$", &["aabaa"], &["aaba", "aab"]),
        (r"^(?=(a+?))\1b", &["ab"], &["aab"]),
        (r"^(?!(a)b)\1a", &["ac", "a"], &["ab"]),
        (r"(?<=(a|bc)\1)x", &["aax", "ax"], &["a", "", "x"]),
        (r"(?<=\1(a|b))c", &["aac", "bbc"], &["abc", "c", "ac"]),
        (r"(?<=(\d+)(\d+))x\1y$", &["123x1y"], &["123x12y"]),
        (r"(?<!(a)\1)b\1", &["b", "cb"], &["a", "aab"]),
        (r"^(?:(?=(a|b))\1)+$", &["abab"], &["abc", ""]),
        (r"^(?:(?!(?:(x)|y)\1)[xy])+$", &["x"], &["z", "", "yx"]),
    ]);
}

#[test]
fn empty_rounds_end_a_repeat() {
    check_matches(&[
        (r"^(a*)*\1$", &["", "aa"], &["b"]),
        (r"^(a?)*?b\1$", &["b", "aba"], &["a", "ab"]),
        (r"^(?:(a?)){3}b\1$", &["b", "aaaba", "ab"], &["aaaab"]),
        (r"^(\2?)(a*)\1$", &["aa", ""], &["b"]),
        (r"^(?:a?(b??)){2,4}\1$", &["", "aaaa", "ababb"], &["aaaaa", "abab"]),
    ]);
}

#[test]
fn a_search_that_takes_long_can_stop() {
    let pattern = compile(r"^(a+)+\1b$");
    let text = "a".repeat(64);
    let mut search = Match::start(&pattern);
    for _ in 0..100 {
        let mut fuel = Fuel::new(1000);
        assert!(matches!(search.resume(&pattern, &text, &mut fuel), Poll::Pending));
        assert!(fuel.used() < 1100, "{}", fuel.used());
    }
}

#[test]
fn what_can_be_taken_back_is_bounded() {
    let text = "ab".repeat(1 << 18);
    for (source, expected) in [
        (r"^(?:a|b)*\1()$", Err(OutOfMemory)),
        (r"^(?:(a)|b)*\1$", Err(OutOfMemory)),
        (r"^([ab]*)\1$", Ok(true)),
        (r"^([ab]*)(x)\2\1$", Ok(false)),
    ] {
        assert_eq!(match_in_slices(&compile(source), &text, 1_000_000).0, expected, "{source}");
    }
}
