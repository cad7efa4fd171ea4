//! Rates of calls: `100/s`, `600/min`, `5000/h`, optionally with a burst: `100/s burst 20`.

use std::{fmt, num::NonZeroU32, str::FromStr, time::Duration};

/// A number of calls per period, and how many of them may arrive at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Rate {
    /// Calls per period, 1 to 4,294,967,295.
    pub count: NonZeroU32,
    /// The period: one second, minute, hour or day.
    pub period: Duration,
    /// Calls that may arrive at once after a pause; defaults to `count`.
    pub burst: NonZeroU32,
}

impl Rate {
    /// Creates a rate whose burst equals its count.
    pub const fn new(count: NonZeroU32, period: Duration) -> Self {
        Self { count, period, burst: count }
    }
}

impl FromStr for Rate {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let invalid = || {
            format!(
                "'{text}' is not a rate (write calls per period: 10/s, 600/min, 5000/h, 10000/d, or '10/s burst 50')"
            )
        };
        let mut parts = text.split_ascii_whitespace();
        let (count, period) = parts.next().and_then(|rate| rate.split_once('/')).ok_or_else(invalid)?;
        let positive = |count: &str| {
            let is_zero = count.bytes().all(|digit| digit == b'0') && !count.is_empty();
            let zero =
                || format!("'{text}' is not a rate, which is at least 1 (write a rate such as 1/s, 1/min or 1/d)");
            count.parse::<NonZeroU32>().map_err(|_| if is_zero { zero() } else { invalid() })
        };
        let count = positive(count)?;
        let seconds = match period {
            "s" => 1,
            "m" | "min" => 60,
            "h" => 3_600,
            "d" => 86_400,
            _ => return Err(invalid()),
        };
        let burst = match (parts.next(), parts.next(), parts.next()) {
            (None, ..) => count,
            (Some("burst"), Some(burst), None) => positive(burst)?,
            _ => return Err(invalid()),
        };
        Ok(Self { count, period: Duration::from_secs(seconds), burst })
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let period = match self.period.as_secs() {
            1 => "s",
            60 => "min",
            3_600 => "h",
            _ => "d",
        };
        write!(formatter, "{}/{period}", self.count)?;
        if self.burst != self.count {
            write!(formatter, " burst {}", self.burst)?;
        }
        Ok(())
    }
}

impl serde::Serialize for Rate {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

super::impl_string_deserialize_and_schema!(
    Rate,
    "Calls per period, such as 10/s, 600/min, 5000/h, 10000/d or '10/s burst 50'.",
    r"^\d+/(s|m|min|h|d)( burst \d+)?$"
);
