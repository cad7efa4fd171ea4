//! Tests of the formats that the official suite does not have, and of suspended checks.

use super::*;

fn assert_valid(format: Format, texts: &[&str]) {
    for text in texts {
        assert!(format.is_valid(text), "{format:?} {text:?}");
    }
}

fn assert_invalid(format: Format, texts: &[&str]) {
    for text in texts {
        assert!(!format.is_valid(text), "{format:?} {text:?}");
    }
}

#[test]
fn a_name_of_a_format_has_a_meaning_from_its_draft_on() {
    assert_eq!(Format::named("uuid", Draft::Draft7), None);
    assert_eq!(Format::named("uuid", Draft::Draft201909), Some(Format::Uuid));
    assert_eq!(Format::named("hostname", Draft::Draft6), Some(Format::AsciiHostname));
    assert_eq!(Format::named("hostname", Draft::Draft7), Some(Format::Hostname));
    assert_eq!(Format::named("int64", Draft::Draft202012), None);
    for format in Format::ALL.into_iter().filter(|format| *format != Format::AsciiHostname) {
        assert_eq!(Format::named(format.name(), Draft::Draft202012), Some(format));
    }
}

#[test]
fn timestamps_follow_rfc_3339() {
    assert_valid(Format::Date, &["2024-02-29", "2000-02-29", "0000-01-31"]);
    assert_invalid(
        Format::Date,
        &["2023-02-29", "1900-02-29", "2023-00-01", "2023-04-31", "2023-01-00", "2023-1-1", ""],
    );
    assert_valid(Format::Time, &["00:00:00.1z", "23:59:60-00:00"]);
    assert_invalid(Format::Time, &["00:00:00.Z", "00:00:00", "00:00:00+01", "00:00:00+01:0", "00:00:00ZZ", ""]);
    assert_invalid(Format::DateTime, &["2024-02-30T00:00:00Z", "2024-02-29 00:00:00Z", "2024-02-29T", "2024-02-29"]);
    assert_valid(Format::Duration, &["P1Y2M3DT4H5M6S", "PT00001S", "P3W"]);
    assert_invalid(Format::Duration, &["P1Y3D", "PT1H6S", "P3WT1H", "P1DT", "P1Y1Y", "P1.5D", "PTT1S", "p1d", ""]);
}

#[test]
fn mailboxes_follow_rfc_5321() {
    let longest = format!("{}@a.b", "l".repeat(64));
    assert_valid(
        Format::Email,
        &["\"\"@a.b", r#""a\"b"@a.b"#, "a@localhost", "a@[ipv6:::1]", "!#$%&'*+-/=?^_`{|}~@a", &longest],
    );
    let too_long = format!("{}@a.b", "l".repeat(65));
    assert_invalid(
        Format::Email,
        &["@a", "a@", "a b@a", "\"a@a", "\"a\"b\"@a", "A <a@a.b>", "a@[::1]", "a@a_b", "\u{e9}@a.b", &too_long],
    );
    assert_valid(Format::IdnEmail, &["\u{e9}@\u{e9}.b", "\"\u{e9} \"@a.b"]);
    assert_invalid(Format::IdnEmail, &["\u{e9}@\u{2764}.b", "\u{e9}"]);
}

#[test]
fn host_names_follow_rfc_1123_and_rfc_5892() {
    let longest = format!("{0}.{0}.{0}.{1}", "a".repeat(63), "a".repeat(61));
    assert_valid(Format::AsciiHostname, &["a", "a--b", "ab--c", "xn--x", &longest]);
    assert_valid(Format::Hostname, &["a--b", "XN--4GBWDL.xn--wgbh1c", "xn--nxasmm1c", &longest]);
    let too_long = format!("{longest}a");
    assert_invalid(Format::AsciiHostname, &["a.", "a..b", ".a", "a_b", "\u{e9}", "-a", "a-", &too_long]);
    assert_invalid(Format::Hostname, &["ab--c", "xn--x", "xn--a-", "xn--", "xn--07jceefgh4c", "xn--vek", &too_long]);
    assert_valid(
        Format::IdnHostname,
        &["\u{e9}.example", "EXAMPLE.com", &longest, "\u{e9}.".repeat(25).trim_end_matches('.')],
    );
    assert_invalid(Format::IdnHostname, &["\u{2764}", "a b", "a_b", "", "a.", "ab--c", &"\u{e9}".repeat(254)]);
}

#[test]
fn addresses_and_identifiers_have_one_spelling_each() {
    assert_invalid(Format::Ipv4, &["1.2.3", "1.2.3.04", "1.2.3.256", "0x1.2.3.4", "1.2.3.4 ", "1.2.3.4/8"]);
    assert_invalid(Format::Ipv6, &["::1%eth0", "1::2::3", "12345::", ":::", "1.2.3.4", "::1/64"]);
    assert_valid(Format::Ipv6, &["::", "0000:0000:0000:0000:0000:0000:255.255.255.255", "::ffff:1.2.3.4"]);
    assert_valid(Format::Uuid, &["2EB8AA08-aa98-11ea-B4AA-73B441D16380", "00000000-0000-0000-0000-000000000000"]);
    assert_invalid(
        Format::Uuid,
        &["2eb8aa08aa98-11ea-b4aa-73b441d16380-", "{2eb8aa08-aa98-11ea-b4aa-73b441d1638}", ""],
    );
}

#[test]
fn uris_follow_rfc_3986() {
    let uris = [
        "a:",
        "a:?#",
        "a:/",
        "a:b:c",
        "a://",
        "a://:",
        "a://:80",
        "a://u:p@h:80/p",
        "a://[::1]:80",
        "a://[v1f.a:b]",
        "a://u@[::]",
    ];
    assert_valid(Format::Uri, &uris);
    assert_valid(Format::UriReference, &uris);
    assert_valid(
        Format::UriReference,
        &["", "a", "/", "//h", "?q", "#f", "./a:b", "a/b:c", "a%20b", "+a", "a@b", "a.b+c-d", "%41"],
    );
    assert_invalid(Format::Uri, &["", "a", "1a:", "a+", "#f", "a%20b:", "://h"]);
    let neither = [
        "a://h:p",
        "a://h:8:0",
        "a://u@h@h",
        "a://u@h:p",
        "a://[::1",
        "a://[::1]a",
        "a://[1]",
        "a://[v.a]",
        "a://[v1.]",
        "a://a[::]",
        "a:[",
        "a:%",
        "a:%4",
        "a:%4g",
        "a:#a#b",
        "a: ",
        "a:\u{e9}",
        "a:\\",
        "a:^",
        "a:|",
        "a:\"",
        "a:<",
        "+a:b",
        "//h:p",
    ];
    assert_invalid(Format::Uri, &neither);
    assert_invalid(Format::UriReference, &neither);
    assert_valid(Format::Iri, &["a:\u{e9}", "a://\u{e9}@\u{e9}:8/\u{e9}?\u{e000}#\u{1F600}"]);
    assert_invalid(
        Format::Iri,
        &["a:\u{e000}", "a:?#\u{e000}", "a:\u{80}", "a:\u{fffe}", "a:\u{e0001}", "\u{e9}:", "\u{e9}"],
    );
    assert_valid(Format::IriReference, &["\u{e9}", "//\u{e9}", "?\u{e000}"]);
}

#[test]
fn templates_and_pointers_follow_their_rfcs() {
    assert_valid(Format::UriTemplate, &["", "{a}", "{+a,b:9999,c*}", "{/a.b%20c}", "'", "\u{e9}", "%41", "{=a}"]);
    assert_invalid(
        Format::UriTemplate,
        &[
            "{",
            "}",
            "{}",
            "{+}",
            "{a:0}",
            "{a:}",
            "{a:10000}",
            "{a:1*}",
            "{a**}",
            "{a,}",
            "{.}",
            "{a..b}",
            "{a-b}",
            "{ a}",
            "%4",
            "{%4}",
            "`",
            " ",
            "<",
            "{a{b}}",
        ],
    );
    assert_valid(Format::JsonPointer, &["", "/", "/~0~1", "//", "/\u{e9} "]);
    assert_invalid(Format::JsonPointer, &["a", "#/a", "/~", "/~2", "/~/"]);
    assert_valid(Format::RelativeJsonPointer, &["0", "10", "0#", "1/", "1/~0"]);
    assert_invalid(Format::RelativeJsonPointer, &["", "#", "01", "0##", "0a", "1/~", "-1", "1#/"]);
}

#[test]
fn a_check_costs_the_same_however_it_is_cut_into_slices() {
    let path = "a/".repeat(5000);
    let texts = [
        (Format::Uri, format!("http://example.com/{path}?{path}#f")),
        (Format::Iri, format!("http://example.com/{}", "\u{e9}\u{4e2d}".repeat(3000))),
        (Format::UriReference, format!("{path}\\{path}")),
        (Format::UriTemplate, "{a}b".repeat(4000)),
        (Format::JsonPointer, format!("/{path}~")),
        (Format::RelativeJsonPointer, format!("{}/a", "1".repeat(9000))),
        (Format::DateTime, format!("2024-02-29T23:59:60.{}Z", "9".repeat(9000))),
        (Format::Duration, format!("P{}D", "9".repeat(9000))),
        (Format::Hostname, "a.".repeat(90)),
        (Format::Email, "a".repeat(5000)),
    ];
    for (format, text) in texts {
        let mut whole = Fuel::new(u64::MAX);
        let verdict = FormatCheck::new(format).resume(&text, &mut whole);
        assert!(verdict.is_ready(), "{format:?}");
        for slice in [1, 7, 1000] {
            let (mut check, mut used) = (FormatCheck::new(format), 0);
            let sliced = loop {
                let mut fuel = Fuel::new(slice);
                let poll = check.resume(&text, &mut fuel);
                used += fuel.used();
                if poll.is_ready() {
                    break poll;
                }
            };
            assert_eq!((verdict, whole.used()), (sliced, used), "{format:?} in slices of {slice}");
        }
    }
}

#[test]
fn a_format_with_a_maximum_length_takes_no_longer_text() {
    for format in Format::ALL {
        let Some(length) = format.max_length() else { continue };
        let mut fuel = Fuel::new(u64::MAX);
        let text = "a".repeat(1 << 20);
        assert_eq!(FormatCheck::new(format).resume(&text, &mut fuel), Poll::Ready(false), "{format:?} {length}");
        assert_eq!(fuel.used(), 1, "{format:?}");
    }
}

#[test]
fn a_pattern_has_few_character_properties() {
    assert_valid(
        Format::Regex,
        &["", "^(a|b)+$", r"\p{L}", &r"\p{L}".repeat(MAX_PROPERTY_ESCAPES), &"[a-z]".repeat(3000)],
    );
    assert_invalid(Format::Regex, &["(", "[", r"\p{X", &r"\p{L}".repeat(MAX_PROPERTY_ESCAPES + 1)]);
}
