//! Alternatives, groups and quantifiers.

use super::{check_matches, compile, is_match};

#[test]
fn quantifiers_have_their_bounds() {
    check_matches(&[
        ("^a*$", &["", "a", "aaaa"], &["b", "ab"]),
        ("^a+$", &["a", "aaa"], &["", "ba"]),
        ("^a?$", &["", "a"], &["aa"]),
        ("^a{3}$", &["aaa"], &["aa", "aaaa"]),
        ("^a{2,}$", &["aa", "aaaaa"], &["a", ""]),
        ("^a{2,3}$", &["aa", "aaa"], &["a", "aaaa"]),
        ("^a{0}$", &[""], &["a"]),
        ("^a*?b+?c??$", &["b", "aabbc"], &["c", "a"]),
        ("^(ab){2,3}$", &["abab", "ababab"], &["ab", "abababab"]),
        ("^(a|bc){2}$", &["aa", "abc", "bcbc"], &["a", "bc", "aaa"]),
        ("^(?:a{2}){2,}$", &["aaaa", "aaaaaa"], &["aa", "aaaaa", "aaa"]),
        ("^(?:a{3,4}){1,2}$", &["aaa", "aaaa", "aaaaaa", "aaaaaaaa"], &["aa", "aaaaa", "aaaaaaaaa"]),
        ("^(?:a{2,}){0,3}$", &["", "aa", "aaaaaaa"], &["a"]),
        ("^(?:a{0}){5,}$", &[""], &["a"]),
        ("^(?:){9}a$", &["a"], &[""]),
        ("^(()){99999999999}(|){0,9}(){1,}a$", &["a"], &["", "aa"]),
        ("^(?:a|()){0,3}$", &["", "aaa"], &["aaaa"]),
        ("foo|bar|", &["", "x"], &[]),
        ("^(?:|a)+$", &["", "aaa"], &["b"]),
        ("^(a*)*b?$", &["", "aaab", "b"], &["ba"]),
    ]);
}

#[test]
fn large_repeats_of_a_class_are_counted() {
    for (source, class, other, min, max) in [
        ("^[^<>]{0,1000}$", "é", "<", 0, 1000),
        ("^.{1,1024}$", "😀", "\n", 1, 1024),
        (r"^[\p{L}\p{N} ]{1,255}$", "ß", "-", 1, 255),
        (r"^[\s\S]{0,10000}$", "\n", "", 0, 10000),
        ("^a{50,60}$", "a", "b", 50, 60),
        ("^(?:[a-z]{0,100}){0,100}$", "q", "1", 0, 10000),
        ("^x*a{300,400}$|^$", "a", "b", 300, 400),
        ("^(?:y|a{300,4000})$", "a", "b", 300, 4000),
    ] {
        let pattern = compile(source);
        assert!(pattern.memory() < 64 * 1024, "{source}: {} bytes", pattern.memory());
        for count in [0, 1, 2, min.max(1) - 1, min, min + 1, max - 1, max, max + 1, max * 4 + 1] {
            let text = class.repeat(count);
            let is_expected = (min..=max).contains(&count) || (source.ends_with("|^$") && count == 0);
            assert_eq!(is_match(&pattern, &text), is_expected, "{source} with {count}");
            if !other.is_empty() {
                assert!(!is_match(&pattern, &format!("{text}{other}")), "{source} with {count} and {other:?}");
            }
        }
    }
}

#[test]
fn counted_repeats_start_anywhere() {
    check_matches(&[
        (
            "x[ab]{5000,6000}y",
            &[&format!("bb{}y", "x".to_owned() + &"ab".repeat(2500))],
            &[&format!("x{}y", "ab".repeat(2499))],
        ),
        (
            "[ab]{2000}c",
            &[&format!("{}c", "a".repeat(2001))],
            &[&format!("{}xc", "a".repeat(2001)), &format!("{}c", "a".repeat(1999))],
        ),
        (
            "b[ab]{1500,1501}c",
            &[&format!("{}c", "b".repeat(3000)), &format!("b{}c", "a".repeat(1500))],
            &[&format!("b{}c", "a".repeat(1502))],
        ),
        (
            "^(?:a{1,3000}b){2}a{1000,}$",
            &[&format!("abab{}", "a".repeat(1000))],
            &[&format!("abab{}", "a".repeat(999)), "ab"],
        ),
        (
            "^(?:a?b?){9}[ab]{4000}$",
            &[&"ab".repeat(2000), &"ab".repeat(2009)],
            &[&"ab".repeat(2010), &"ab".repeat(1999)],
        ),
    ]);
}

#[test]
fn sequences_compare_both_ends() {
    check_matches(&[
        ("^[a-z][a-z0-9]{0,4}$", &["a", "a1234"], &["", "1", "a12345", "a-"]),
        (r"^\d{4}-\d{2}-\d{2}$", &["2026-11-28"], &["2026-11-2", "2026-1-128", "x2026-11-28", "2026-11-281"]),
        ("^ab.*ba$", &["abba", "abxéba"], &["aba", "ab", "abb", "ab\nba"]),
        ("^é+é$", &["éé", "ééé"], &["é", ""]),
        ("^(a)(b)$", &["ab"], &["a", "abc"]),
        ("^[^é]{2}$", &["aa", "a😀"], &["aé", "a"]),
        ("^$", &[""], &["a"]),
        ("^a$", &["a"], &["", "aa"]),
    ]);
}

#[test]
fn repeats_that_explode_elsewhere_are_linear() {
    let long = "a".repeat(200_000);
    check_matches(&[
        ("(a*)*b", &[&format!("{long}b")], &[&long]),
        ("^(a|a)*$", &[&long], &[&format!("{long}b")]),
        ("(a+a+)+b", &[&format!("{long}b")], &[&long]),
        ("^(?:a?){50}a{50}$", &[&"a".repeat(50), &"a".repeat(100)], &[&"a".repeat(49), &"a".repeat(101)]),
        ("((a{0,100}){0,100}){0,100}$", &[&long, ""], &[]),
        (r"^(\w+\s?)*$", &["a b c"], &[&format!("{long}!")]),
        ("(?:.*a.{15})x", &[&format!("{}x", "a".repeat(16))], &[&long, &format!("{}x", "a".repeat(15))]),
    ]);
}
