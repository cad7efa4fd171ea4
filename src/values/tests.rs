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
