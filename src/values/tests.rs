//! Tests of the parsers and formats of configuration values.

use super::*;
use std::sync::Arc;

#[test]
fn durations_parse_and_format_as_written() {
    for text in ["250ms", "5s", "2m", "1h", "30d", "0s"] {
        assert_eq!(text.parse::<ConfigDuration>().unwrap().to_string(), text);
    }
}

#[test]
fn durations_without_a_unit_or_beyond_ten_years_are_refused() {
    for text in ["", "5", "s", "5 s", "-5s", "1.5s", "5w", "99999999999999999999s", "20000d"] {
        assert!(text.parse::<ConfigDuration>().is_err(), "{text}");
    }
}

#[test]
fn sizes_parse_and_overflow_is_refused() {
    assert_eq!("64KiB".parse::<ByteSize>().unwrap().get(), 65_536);
    for text in ["", "64", "64kb", "18446744073709551615GiB", "-1B"] {
        assert!(text.parse::<ByteSize>().is_err(), "{text}");
    }
}

#[test]
fn rates_parse_with_and_without_a_burst() {
    let rate: Rate = "600/min burst 50".parse().unwrap();
    assert_eq!((rate.count.get(), rate.period.as_secs(), rate.burst.get()), (600, 60, 50));
    assert_eq!("10/s".parse::<Rate>().unwrap().burst.get(), 10);
    for text in ["0/s", "10", "10/y", "10/s burst", "10/s burst 0", "10/s burst 5 x", "-1/s"] {
        assert!(text.parse::<Rate>().is_err(), "{text}");
    }
}

#[test]
fn r130_a_secret_must_be_a_reference_and_is_never_printed() {
    assert!("hunter2".parse::<SecretRef>().unwrap_err().contains("env:NAME"));
    assert!(!"hunter2".parse::<SecretRef>().unwrap_err().contains("hunter2"));
    assert_eq!(format!("{:?}", Secret::new("hunter2")), "[redacted]");
}

#[test]
fn globs_match_whole_names() {
    let matches = |glob: &str, name: &str| glob.parse::<Glob>().unwrap().matches(name);
    assert!(
        matches("*", "anything")
            && matches("a*", "a")
            && matches("a*c", "abc")
            && matches("*b*", "abc")
            && matches("a*b*c", "a-b-b-c")
    );
    assert!(!matches("a*", "ba") && !matches("a", "ab") && !matches("a*a", "a") && !matches("a*b*c", "acb"));
}

#[test]
fn a_share_is_at_least_one_and_at_most_everything() {
    let share = |text: &str| serde_json::from_str::<MaxShare>(text).unwrap();
    let half = MaxShare::default();
    assert_eq!([0, 1, 2, 3, 5, 1_000].map(|max| half.of(max)), [0, 1, 1, 1, 2, 500]);
    assert_eq!((share("1").of(7), share("0.001").of(7), share("0.9").of_count(10)), (7, 1, 9));
    assert!(["0", "-1", "1.5"].iter().all(|text| !share(text).is_valid()));
    assert!(half.is_valid() && share("1").is_unlimited() && !half.is_unlimited());
}

#[test]
fn rates_of_bytes_parse_and_format_as_written() {
    for (text, bytes) in [("1KiB/s", 1_024), ("512B/s", 512), ("0B/s", 0)] {
        let rate: ByteRate = text.parse().unwrap();
        assert_eq!((rate.get(), rate.to_string()), (bytes, text.to_owned()));
    }
    assert!(["1KiB", "1/s", "KiB/s", "1KiB/min"].iter().all(|text| text.parse::<ByteRate>().is_err()));
}

#[test]
fn keys_hold_at_most_their_maximum_and_take_memory_only_while_they_hold_something() {
    let counts: Arc<KeyedCounts<u64>> = Arc::default();
    let mut one = counts.try_hold(1, 2, 3).unwrap();
    assert!(counts.try_hold(1, 2, 3).is_none() && one.try_grow(1, 3) && !one.try_grow(1, 3));
    assert!(counts.try_hold(1, usize::MAX, usize::MAX).is_none(), "a sum does not overflow");
    let others: Vec<_> = (2..1_000).map(|key| counts.try_hold(key, 1, 1).unwrap()).collect();
    assert_eq!(counts.key_count(), 999);
    drop((one, others));
    assert_eq!(counts.key_count(), 0);
    assert!(counts.try_hold(1, 3, 3).is_some());
}

/// A secret with characters that JSON, URLs and HTML escape.
const HELD_SECRET: &str = "s3cr\u{e9}t/\"&+key=42";

fn known_secrets() -> known_secrets::KnownSecrets {
    let secrets = known_secrets::KnownSecrets::default();
    secrets.register(HELD_SECRET);
    secrets.register("postgres://gatepost:hunter2%2Fhunter2@db.internal/gatepost");
    secrets.register("-----BEGIN PRIVATE KEY-----\nMIGHAgEAMBMGByqGSM49AgEG\n-----END PRIVATE KEY-----\n");
    secrets
}

#[test]
fn r131_a_secret_that_the_gateway_holds_is_redacted_in_every_form() {
    use base64::{Engine as _, engine::general_purpose};
    let secrets = known_secrets();
    let json = serde_json::to_string(HELD_SECRET).unwrap();
    let ascii_json: String = HELD_SECRET.encode_utf16().map(|unit| format!("\\u{unit:04x}")).collect();
    let percent: String = HELD_SECRET.bytes().map(|byte| format!("%{byte:02X}")).collect();
    let html: String = HELD_SECRET.chars().map(|c| format!("&#x{:x};", u32::from(c))).collect();
    let mut forms = vec![
        HELD_SECRET.to_owned(),
        percent_encode(HELD_SECRET).to_string(),
        percent.to_ascii_lowercase(),
        percent,
        html,
        HELD_SECRET.replace('&', "&amp;").replace('"', "&quot;"),
        encode_hex(HELD_SECRET.as_bytes()),
        serde_json::to_string(&json).unwrap(),
        json,
        ascii_json,
        "hunter2%2Fhunter2".to_owned(),
        "hunter2/hunter2".to_owned(),
        "MIGHAgEAMBMGByqGSM49AgEG".to_owned(),
    ];
    for before in ["", "u", "u:", "use"] {
        let text = format!("{before}{HELD_SECRET}:x");
        forms.extend([general_purpose::STANDARD.encode(&text), general_purpose::URL_SAFE_NO_PAD.encode(&text)]);
    }
    for form in &forms {
        let text = format!("refused: {form} is wrong");
        let redacted = secrets.redact(&text);
        assert!(redacted.contains("[redacted]"), "{text}");
        for part in ["s3cr", "key=42", "hunter2", "MIGH"] {
            assert!(!redacted.contains(part), "{text} -> {redacted}");
        }
        assert!(redacted.starts_with("refused: ") && redacted.ends_with(" is wrong"), "{redacted}");
    }
}

#[test]
fn r131_decimal_bytes_and_halves_of_a_secret_are_redacted() {
    let secrets = known_secrets();
    let long = "key-8f3a77c1d2e4-9b0a61f2c3d4";
    secrets.register(long);
    let bytes: Vec<u8> = format!("x{long}y").into_bytes();
    let compact: Vec<String> = bytes.iter().map(u8::to_string).collect();
    for decimals in
        [format!("{bytes:?}"), format!("{bytes:#?}"), compact.join(","), format!("[7, 300, 1], {bytes:?}, [9]")]
    {
        let redacted = secrets.redact(&decimals);
        assert!(redacted.contains("120") && redacted.contains("[redacted]") && redacted.contains("121"), "{redacted}");
        let rest: Vec<String> = long.bytes().map(|byte| byte.to_string()).collect();
        assert!(!redacted.replace(['\n', ' '], "").contains(&rest[..4].join(",")), "{redacted}");
    }
    secrets.register("redis://gateway:word@cache1.internal.example:6379");
    let message = "no connection to redis://cache1.internal.example:6379";
    assert_eq!(secrets.redact(message), message, "the halves of a URL are no secrets");
    for half in [&long[..14], &long[14..], &long[..20]] {
        let redacted = secrets.redact(&format!("cut: {half}")).into_owned();
        assert!(redacted.starts_with("cut: [redacted]") && redacted.len() < 28, "{redacted}");
    }
    for other in ["[1, 2, 3, 4, 5, 6, 7, 8, 9]", "1,2,3", "[115, 51, 99]", "key-8f3a"] {
        assert_eq!(secrets.redact(other), other);
    }
}

#[test]
fn r131_text_without_a_known_secret_is_borrowed_and_short_secrets_are_not_searched() {
    let secrets = known_secrets();
    secrets.register("short");
    for text in ["", "short", "100 % of \\ and &", "%zz%4", "&#xffffffff;", "\\u12", "s3cr%", "The agent failed"] {
        assert!(matches!(secrets.redact(text), std::borrow::Cow::Borrowed(_)), "{text}");
    }
    assert!(matches!(known_secrets::KnownSecrets::default().redact("x"), std::borrow::Cow::Borrowed("x")));
}

#[test]
fn r131_secrets_that_overlap_leave_no_part_of_each_other() {
    let secrets = known_secrets::KnownSecrets::default();
    for secret in ["prefix-of-a-key", "prefix-of-a-key-and-the-rest", "the-rest-and-more"] {
        secrets.register(secret);
    }
    assert_eq!(secrets.redact("a prefix-of-a-key b"), "a [redacted] b");
    assert_eq!(secrets.redact("a prefix-of-a-key-and-the-rest b"), "a [redacted] b");
    assert_eq!(secrets.redact("a prefix-of-a-key-and-the-rest-and-more b"), "a [redacted] b");
    assert_eq!(secrets.redact("a prefix%2Dof-a-key%2Dand-the-rest b"), "a [redacted] b");
}

#[test]
fn r131_tokens_are_remembered_until_later_ones_replace_them() {
    let secrets = known_secrets();
    for at in 0..20 {
        secrets.register_token(&format!("issued-token-{at:02}"));
    }
    assert_eq!(secrets.redact("issued-token-19 refused"), "[redacted] refused");
    assert_eq!(secrets.redact("issued-token-00 refused"), "issued-token-00 refused");
    assert_eq!(secrets.redact(&format!("a {HELD_SECRET}")), "a [redacted]");
}

proptest::proptest! {
    #[test]
    fn r131_redaction_of_known_secrets_never_panics_and_removes_the_secret(before in ".{0,30}", after in ".{0,30}") {
        let secrets = known_secrets();
        let text = format!("{before}{HELD_SECRET}{after}");
        proptest::prop_assert!(!secrets.redact(&text).contains(HELD_SECRET));
        let _ = secrets.redact(&before);
    }
}
