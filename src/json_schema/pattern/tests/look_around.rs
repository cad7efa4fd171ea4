//! Look-ahead and look-behind.

use super::{check_matches, compile, is_match};

#[test]
fn look_aheads_at_the_start_are_conditions_on_the_text() {
    let email = r"^(?!\.)(?!.*\.\.)([A-Za-z0-9_'+\-\.]*)[A-Za-z0-9_+-]@([A-Za-z0-9][A-Za-z0-9\-]*\.)+[A-Za-z]{2,}$";
    check_matches(&[
        (r"^(?=.*[a-z])(?=.*\d).{8,}$", &["abcdefg1", "1234567z"], &["abc1", "abcdefgh", "12345678", ""]),
        (email, &["a.b@example.com", "x@y.zz"], &[".a@example.com", "a..b@example.com", "a@b", "a.@example.com", ""]),
        (r"^(?!^[-+.]*$)[+-]?0*\d*\.?\d*$", &["1", "-1.5", "+.5", "007"], &["", "-", ".", "+.", "1.2.3"]),
        ("^(?!foo$|bar$).*$", &["foobar", "", "ba"], &["foo", "bar"]),
        ("^(?!)a", &[], &["a"]),
        ("^(?=)a", &["a"], &["b"]),
        ("^(?=a)(?!ab)", &["a", "ac"], &["ab", "b", ""]),
        ("^(?=(?!b).*c)a", &["ac"], &["a", "bc"]),
        ("^[a-z0-9-]+(?<!-)$", &["a-b", "a"], &["a-", "-", ""]),
        ("^[a-z-]+(?<!--)(?<=[a-z])$", &["a"], &["a-", "a--"]),
    ]);
}

#[test]
fn look_arounds_hold_at_their_positions() {
    check_matches(&[
        ("a(?=b)", &["ab", "xxab"], &["a", "ac", "b"]),
        ("a(?!b)", &["a", "ac", "aba"], &["ab", "b"]),
        ("(?<=a)b", &["ab", "cab"], &["b", "cb"]),
        ("(?<!a)b", &["b", "cb", "abb"], &["ab", "a"]),
        ("^((?!foo).)*$", &["", "fo", "bar"], &["foo", "xfooy"]),
        (r"(?<=\bfoo )bar(?= baz\b)", &["foo bar baz", "a foo bar baz."], &["foo bar bazz", "xfoo bar baz", "foo bar"]),
        (r"(?<=^|,)x(?=,|$)", &["x", "a,x", "x,a", "a,x,b"], &["ax", "xa", "a,xb"]),
        ("(?=a|b)(?=b|c)x|(?=b)b", &["b"], &["a", "c"]),
        ("^(?:a(?=b)|b(?=a|$))+$", &["abab", "b"], &["aab", "aba", "a"]),
        ("(?<=a{2,3})b", &["aab", "aaaab"], &["ab", "b"]),
        ("(?<!^)a", &["ba", "aa"], &["a", "b"]),
        ("(?!$)", &["a"], &[""]),
        ("x(?!.*x)y$", &["xy", "xxy"], &["xyx"]),
        ("(?<=é)😀(?=漢)", &["é😀漢"], &["e😀漢", "é😀字"]),
    ]);
}

#[test]
fn look_arounds_are_nested() {
    check_matches(&[
        ("(?=a(?=b(?=c)))", &["abc", "xabc"], &["ab", "abd"]),
        ("(?!a(?!b))a", &["ab"], &["a", "ac"]),
        ("(?<=(?<!x)a)b", &["ab", "yab"], &["xab", "b"]),
        ("(?<=a(?=bc))b", &["abc"], &["abd", "bc"]),
        ("(?=(?<=a)b)b", &["ab"], &["b"]),
        ("^(?=(?:(?!b).)*c)[a-c]+$", &["ac", "acb"], &["abc", "a"]),
        (r"(?=\b(?<=\W)a)a", &[" a"], &["a", "ba"]),
    ]);
}

#[test]
fn durations_of_zod_are_served() {
    let duration = r"^P(?:(\d+W)|(?!.*W)(?=\d|T\d)(\d+Y)?(\d+M)?(\d+D)?(T(?=\d)(\d+H)?(\d+M)?(\d+([.,]\d+)?S)?)?)$";
    let valid = ["P3Y6M4DT12H30M5S", "P2W", "PT0.5S", "P1D", "PT1H"];
    check_matches(&[(duration, &valid, &["P", "PT", "P1", "P1W1D", "P1YT", "PT1", "1D", "P1DT"])]);
}

#[test]
fn common_look_aheads_need_no_tables() {
    for source in [
        r"^(?=.*[a-z])(?=.*\d).{8,}$",
        r"^(?!\.)(?!.*\.\.)([A-Za-z0-9_'+\-\.]*)[A-Za-z0-9_+-]@([A-Za-z0-9][A-Za-z0-9\-]*\.)+[A-Za-z]{2,}$",
        r"^(?!^[-+.]*$)[+-]?0*\d*\.?\d*$",
        r"^P(?:(\d+W)|(?!.*W)(?=\d|T\d)(\d+Y)?(\d+M)?(\d+D)?(T(?=\d)(\d+H)?(\d+M)?(\d+([.,]\d+)?S)?)?)$",
        "^((?!foo).)*$",
        "^[a-z0-9-]{1,63}(?<!-)$",
    ] {
        let mut fuel = crate::fuel::Fuel::new(1000);
        assert!(compile(source).quick_match("P1D", &mut fuel).is_some(), "{source}");
        assert!(fuel.used() < 10, "{source}: {}", fuel.used());
    }
}

#[test]
fn look_aheads_are_decided_behind_the_match() {
    check_matches(&[
        ("a(?=.*z)", &["abcz"], &["abc", "z"]),
        ("a(?!.*z)", &["abc", "za"], &["abcz"]),
        ("(?:a(?=.*y)|b(?!.*y))c", &["acy", "bc"], &["ac", "bcy"]),
        (r"a(?=\bx|\By)", &["ay"], &["ax"]),
        (r"-(?=\ba$)", &["-a"], &["-ab", "-", "a"]),
        ("(?=^a)|(?=b$)", &["ax", "xb"], &["xa", "bx"]),
        ("^(?:(?=a|b).(?!c))*$", &["ab", ""], &["ac", "abc", "c"]),
        ("x(?!(?=a)ab)", &["xaa", "x"], &["xab"]),
    ]);
}

#[test]
fn look_arounds_in_a_loop_are_linear() {
    let pattern = compile(r"^(?:(?=a*b)(?<=^a*)a)*b$");
    let text = "a".repeat(50_000);
    assert!(is_match(&pattern, &format!("{text}b")));
    assert!(!is_match(&pattern, &text));
}
