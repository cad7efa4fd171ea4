//! Durations: a whole number and a unit, such as `250ms`, `5s`, `2m`, `1h`, `30d`.

use std::{fmt, str::FromStr, time::Duration};

/// A duration, written with a unit; at most ten years.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ConfigDuration(Duration);

const MAX_DURATION: Duration = Duration::from_secs(10 * 366 * 86_400);

impl ConfigDuration {
    /// Creates a duration of `millis` milliseconds.
    pub const fn from_millis(millis: u64) -> Self {
        Self(Duration::from_millis(millis))
    }

    /// Creates a duration of `secs` seconds.
    pub const fn from_secs(secs: u64) -> Self {
        Self(Duration::from_secs(secs))
    }

    /// Returns the duration as the standard library's type.
    pub const fn get(self) -> Duration {
        self.0
    }
}

impl FromStr for ConfigDuration {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let invalid = || format!("'{text}' is not a duration (write a number and a unit: 250ms, 5s, 2m, 1h, 30d)");
        let digits = text.bytes().take_while(u8::is_ascii_digit).count();
        let (number, unit) = text.split_at(digits);
        let number: u64 = number.parse().map_err(|_| invalid())?;
        let millis = match unit {
            "ms" => 1,
            "s" => 1_000,
            "m" => 60_000,
            "h" => 3_600_000,
            "d" => 86_400_000,
            _ => return Err(invalid()),
        };
        let duration = number.checked_mul(millis).map(Duration::from_millis);
        duration
            .filter(|duration| *duration <= MAX_DURATION)
            .map(Self)
            .ok_or_else(|| format!("'{text}' is too long (at most ten years)"))
    }
}

impl fmt::Display for ConfigDuration {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let millis = self.0.as_millis();
        match millis {
            0 => write!(formatter, "0s"),
            m if m % 86_400_000 == 0 => write!(formatter, "{}d", m / 86_400_000),
            m if m % 3_600_000 == 0 => write!(formatter, "{}h", m / 3_600_000),
            m if m % 60_000 == 0 => write!(formatter, "{}m", m / 60_000),
            m if m % 1_000 == 0 => write!(formatter, "{}s", m / 1_000),
            m => write!(formatter, "{m}ms"),
        }
    }
}

impl serde::Serialize for ConfigDuration {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

super::impl_string_deserialize_and_schema!(
    ConfigDuration,
    "A duration: a number and a unit, such as 250ms, 5s, 2m, 1h or 30d.",
    r"^\d+(ms|s|m|h|d)$"
);
