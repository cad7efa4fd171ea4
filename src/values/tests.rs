//! Tests of the parsers and formats of configuration values.

use super::*;

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
