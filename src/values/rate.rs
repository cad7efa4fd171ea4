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
        let refuse = || {
            format!(
                "'{text}' is not a rate (write calls per period: 10/s, 600/min, 5000/h, 10000/d, or '10/s burst 50')"
            )
        };
        let mut words = text.split_ascii_whitespace();
        let (count, period) = words.next().and_then(|rate| rate.split_once('/')).ok_or_else(refuse)?;
        let count: NonZeroU32 = count.parse().map_err(|_| refuse())?;
        let seconds = match period {
            "s" => 1,
            "m" | "min" => 60,
            "h" => 3_600,
            "d" => 86_400,
            _ => return Err(refuse()),
        };
        let burst = match (words.next(), words.next(), words.next()) {
            (None, ..) => count,
            (Some("burst"), Some(burst), None) => burst.parse().map_err(|_| refuse())?,
            _ => return Err(refuse()),
        };
        Ok(Self { count, period: Duration::from_secs(seconds), burst })
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let period = match self.period.as_secs() {
            1 => "s",
            60 => "min",
            3_600 => "h",
            _ => "d",
        };
        write!(to, "{}/{period}", self.count)?;
        if self.burst != self.count {
            write!(to, " burst {}", self.burst)?;
        }
        Ok(())
    }
}

impl serde::Serialize for Rate {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

super::impl_string_deserialize_and_schema!(
    Rate,
    "Calls per period, such as 10/s, 600/min, 5000/h, 10000/d or '10/s burst 50'.",
    r"^\d+/(s|m|min|h|d)( burst \d+)?$"
);
