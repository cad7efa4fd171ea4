//! Numbers, durations and times as people read them.

use std::time::{Duration, SystemTime};
use time::{OffsetDateTime, macros::format_description};

/// Returns a count with its digits in groups of three.
pub fn count_text(count: u64) -> String {
    let digits = count.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push('\u{202f}');
        }
        text.push(digit);
    }
    text
}

/// Returns a number per second.
pub fn rate_text(per_second: f64) -> String {
    match per_second {
        rate if rate <= 0.0 => "0/s".to_owned(),
        rate if rate < 0.1 => format!("{rate:.2}/s"),
        rate if rate < 100.0 => format!("{rate:.1}/s"),
        rate => format!("{rate:.0}/s"),
    }
}

/// Returns a duration with its best unit, to three digits: `1.23 ms`, `45 s`, `3 h 5 min`.
pub fn duration_text(duration: Duration) -> String {
    let (seconds, exact) = (duration.as_secs(), duration.as_secs_f64());
    match seconds {
        0 if exact < 1e-3 => format!("{} µs", duration.as_micros()),
        0 if exact < 1e-2 => format!("{:.2} ms", exact * 1e3),
        0 if exact < 0.1 => format!("{:.1} ms", exact * 1e3),
        0 => format!("{:.0} ms", exact * 1e3),
        1..10 => format!("{exact:.2} s"),
        10..60 => format!("{seconds} s"),
        60..3_600 => two_units([seconds / 60, seconds % 60], ["min", "s"]),
        3_600..86_400 => two_units([seconds / 3_600, seconds / 60 % 60], ["h", "min"]),
        _ => two_units([seconds / 86_400, seconds / 3_600 % 24], ["d", "h"]),
    }
}

fn two_units([large, small]: [u64; 2], [large_unit, small_unit]: [&str; 2]) -> String {
    match small {
        0 => format!("{large} {large_unit}"),
        _ => format!("{large} {large_unit} {small} {small_unit}"),
    }
}

/// Returns how long ago `time` was.
pub fn time_ago(time: SystemTime) -> String {
    match time.elapsed().unwrap_or_default() {
        age if age < Duration::from_secs(1) => "now".to_owned(),
        // Whole seconds: the age is older by the time it is read.
        age => format!("{} ago", duration_text(Duration::from_secs(age.as_secs()))),
    }
}

/// Returns a time as `2026-11-22 10:15:30 UTC`.
pub fn time_text(time: SystemTime) -> String {
    let format = format_description!("[year]-[month]-[day] [hour]:[minute]:[second] UTC");
    OffsetDateTime::from(time).format(format).unwrap_or_default()
}

/// Returns a number of bytes with its best unit, as multiples of 1024.
pub fn bytes_text(bytes: u64) -> String {
    const UNITS: [&str; 4] = ["KiB", "MiB", "GiB", "TiB"];
    let (mut value, mut unit) = (bytes as f64, "B");
    for larger in UNITS {
        if value < 1024.0 {
            break;
        }
        (value, unit) = (value / 1024.0, larger);
    }
    if unit == "B" || value >= 100.0 { format!("{value:.0} {unit}") } else { format!("{value:.1} {unit}") }
}
