//! Which texts are patterns, by the grammar with `u` and by Annex B.

use crate::fuel::Fuel;
use crate::pattern::{MAX_PATTERN_BYTES, Pattern, PatternError};

use super::{PLENTY, check_matches, try_compile};

#[test]
fn patterns_of_the_grammar_with_the_unicode_flag_compile() {
    for source in [
        "",
        "|",
        "a|",
        "|a||b",
        "()",
        "(?:)",
        "(?=)",
        "(?!)",
        "(?<=)",
        "(?<!)",
        "(?<n>)",
        "[]",
        "[^]",
        "^$",
        "$^",
        r"\b\B",
        "a*?",
        "a+?",
        "a??",
        "a{1}",
        "a{1}?",
        "a{1,}",
        "a{1,}?",
        "a{1,2}",
        "a{0}",
        r"\cA\cz",
        r"\0",
        r"\x41",
        r"\u0041",
        r"\u{41}",
        r"\u{10FFFF}",
        r"\u{00000041}",
        r"\uD83D\uDE00",
        r"\uD83D",
        r"\f\n\r\t\v",
        r"\^\$\\\.\*\+\?\(\)\[\]\{\}\|\/",
        r"[\-]",
        r"[\b]",
        "[-a]",
        "[a-]",
        "[a-b-]",
        "[--/]",
        r"(a)\1",
        r"\1(a)",
        r"\k<n>(?<n>a)",
        r"(?<n>a)\k<n>",
        "(?<a>x)|(?<a>y)",
        "(?<\u{e9}>x)",
        r"(?<\u0061>x)\k<a>",
        r"(?<$_a1>x)",
        "[[a&&b]",
        "[^^]",
        r"\p{L}\P{Lu}[\p{Nd}\P{Zs}]",
        r"\p{Any}\p{ASCII}\p{Assigned}\p{Cs}",
        r"\p{Script_Extensions=Greek}",
        r"\p{scx=Grek}\p{sc=Zyyy}\p{Script=Old_Italic}\p{gc=punct}\p{General_Category=Decimal_Number}",
    ] {
        assert!(try_compile(source).is_ok(), "{source}");
        assert!(Pattern::is_syntactically_valid(source), "{source}");
    }
}

#[test]
fn texts_that_no_grammar_has_are_syntax_errors() {
    for source in [
        "(",
        ")",
        "a)",
        "(a",
        "[",
        "[a",
        "[^",
        r"[\]",
        "*",
        "+",
        "?",
        "|*",
        "(*)",
        "^*",
        "$+",
        r"\b?",
        r"\B{2}",
        "{1}",
        "{1,}",
        "{1,2}",
        "a{2,1}",
        "a**",
        "a+*",
        "a{1}{2}",
        "(?",
        "(?a)",
        "(?i)",
        "(?i:a)",
        "(?P<n>a)",
        "(?>a)",
        "(?#a)",
        "(?<>a)",
        "(?<1>a)",
        "(?<a",
        "(?<a>",
        "(?<a>x)(?<a>y)",
        "((?<a>x)|y)(?<a>z)",
        r"(?<a>x)\k",
        r"(?<a>x)\k<b>",
        r"(?<a>x)\k<a",
        "(?<a-b>x)",
        r"(?<\x61>x)",
        r"(?<\u{110000}>x)",
        "(?<=a)*",
        "(?<!a)+",
        "[b-a]",
        r"[\u0062-a]",
        "\\",
    ] {
        let error = try_compile(source).unwrap_err();
        assert!(matches!(error, PatternError::Syntax(_)), "{source}: {error}");
        assert!(error.to_string().contains("position"), "{error}");
        assert!(!Pattern::is_syntactically_valid(source), "{source}");
    }
}

#[test]
fn annex_b_serves_what_the_unicode_flag_refuses() {
    check_matches(&[
        (r"^[\w-.]$", &["a", "-", "."], &["+"]),
        (r"^[a-\d]$", &["a", "-", "7"], &["b"]),
        ("^{$", &["{"], &[""]),
        ("^}]$", &["}]"], &["}"]),
        ("^a{$", &["a{"], &["a"]),
        ("^a{1$", &["a{1"], &["a"]),
        ("^a{,2}$", &["a{,2}"], &["aa"]),
        ("^x{a}$", &["x{a}"], &[]),
        (r"^\-\_\@\é$", &["-_@é"], &[]),
        (r"^\8\9$", &["89"], &[]),
        (r"^\101\60$", &["A0"], &[]),
        (r"^\400$", &["\u{20}0"], &[]),
        (r"^(a)\2$", &["a\u{2}"], &["aa"]),
        (r"^[\1]\07$", &["\u{1}\u{7}"], &[]),
        (r"^\c$", &["\\c"], &["c"]),
        (r"^\c1$", &["\\c1"], &[]),
        (r"^[\c1]$", &["\u{11}"], &["1"]),
        (r"^[\c_]$", &["\u{1f}"], &["_"]),
        (r"^[\c]$", &["\\", "c"], &[]),
        (r"^\x4\u004\u{g}$", &["x4u004u{g}"], &[]),
        (r"^\p{l}\-$", &["p{l}-"], &["a-"]),
        (r"^\k<a>$", &["k<a>"], &[]),
        ("^(?=a)*b$", &["b"], &[]),
        ("^(?!a){2}b", &["b"], &["a"]),
        (r"^\Z\A$", &["ZA"], &[]),
        (r"^\-😀.$", &["-😀😀"], &[]),
    ]);
}

#[test]
fn properties_and_code_points_in_braces_keep_their_meaning_where_annex_b_is_needed() {
    check_matches(&[
        (r"^[\w-.\p{L}]+$", &["é-.a"], &["{", "+"]),
        (r"^\p{Lu}\-\P{Lu}$", &["É-é"], &["é-É", "p{Lu}-a"]),
        (r"^[\w-\u{1F600}]$", &["😀", "-", "a"], &["{", "F😀"]),
        (r"^\-\u{61}$", &["-a"], &["-u", "-u{61}"]),
        (r"^\-\u{1FFFFF}$", &["-u{1FFFFF}"], &["-u"]),
        (r"^\-\p{Foo}$", &["-p{Foo}"], &["-a"]),
    ]);
}

#[test]
fn the_format_regex_refuses_letters_that_have_no_escape() {
    for source in [r"^\S(|(.|\n)*\S)\Z", r"\a", r"\A", r"\h", r"\p{Foo}", r"\-\Q", r"[\w-.\e]", r"\c"] {
        assert!(!Pattern::is_syntactically_valid(source), "{source}");
    }
    for source in [r"[\w-.]", "{", r"\-", r"\@", r"a{,2}", r"\07"] {
        assert!(Pattern::is_syntactically_valid(source), "{source}");
    }
}

#[test]
fn names_of_properties_are_exact() {
    for name in [
        "l",
        "letter",
        "LETTER",
        "lu",
        "gc=lu",
        "Gc=Lu",
        "sc=greek",
        "Script=olditalic",
        "sc=Olditalic",
        "Greek",
        "Block=Foo",
        "",
        "=",
        "sc=",
        "IsL",
        "L=Lu",
        "^L",
        " L",
        "White Space",
        "InGreek",
    ] {
        // By Annex B the escape is the letter.
        assert!(!Pattern::is_syntactically_valid(&format!(r"\p{{{name}}}")), "{name}");
    }
    let error = try_compile(r"\p{Changes_When_NFKC_Casefolded}").unwrap_err();
    assert!(matches!(error, PatternError::Unsupported(_)), "{error}");
}

#[test]
fn groups_are_nested_250_deep_at_most() {
    for (depth, is_served) in [(250, true), (251, false), (30_000, false)] {
        for open in ["(", "(?:", "(?=", "(?<!"] {
            let source = format!("{}{}", open.repeat(depth), ")".repeat(depth));
            if source.len() > MAX_PATTERN_BYTES {
                continue;
            }
            match try_compile(&source) {
                Ok(_) => assert!(is_served, "{open} {depth}"),
                Err(error) => {
                    assert!(matches!(error, PatternError::Unsupported(_)), "{error}");
                    assert!(!is_served || open != "(", "{open} {depth}: {error}");
                }
            }
        }
    }
}

#[test]
fn a_pattern_has_a_largest_length_and_number_of_names() {
    let longest = "a".repeat(MAX_PATTERN_BYTES);
    assert!(try_compile(&longest).is_ok());
    assert!(matches!(try_compile(&format!("{longest}a")), Err(PatternError::Unsupported(_))));
    assert!(!Pattern::is_syntactically_valid(&format!("{longest}a")));
    let names = |count: usize| (0..count).map(|index| format!("(?<n{index}>)")).collect::<String>();
    assert!(try_compile(&names(1000)).is_ok());
    assert!(matches!(try_compile(&names(1001)), Err(PatternError::Unsupported(_))));
}

#[test]
fn compiling_ends_when_the_fuel_is_spent() {
    for source in ["^[a-z]{1,20}$", r"\p{L}", "((a{0,50}){0,50}){0,50}b"] {
        let mut plenty = Fuel::new(PLENTY);
        Pattern::compile(source, &mut plenty, 1 << 22).unwrap();
        let mut fuel = Fuel::new(plenty.used() / 2);
        let error = Pattern::compile(source, &mut fuel, 1 << 22).unwrap_err();
        assert_eq!(error, PatternError::Unsupported("compiling the pattern takes too long".into()));
    }
}
