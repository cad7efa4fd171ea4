//! Clock of the limits: monotonic time for rates, and the UTC calendar for quotas. Tests advance both.

use crate::values::unix_time;
use governor::nanos::Nanos;
use std::time::{Duration, Instant};
use time::OffsetDateTime;

/// Source of monotonic and calendar time.
#[derive(Clone, Debug)]
pub(super) struct LimitClock {
    started_at: Instant,
    #[cfg(test)]
    offset: std::sync::Arc<std::sync::atomic::AtomicU64>,
}

impl LimitClock {
    pub(super) fn new() -> Self {
        Self {
            started_at: Instant::now(),
            #[cfg(test)]
            offset: std::sync::Arc::default(),
        }
    }

    /// Returns the time since the clock was created.
    pub(super) fn elapsed(&self) -> Duration {
        let elapsed = self.started_at.elapsed();
        #[cfg(test)]
        let elapsed = elapsed + self.offset();
        elapsed
    }

    /// Returns the current day and month in UTC.
    pub(super) fn calendar_now(&self) -> CalendarTime {
        let unix_time = unix_time();
        #[cfg(test)]
        let unix_time = unix_time + self.offset();
        CalendarTime::from_unix(i64::try_from(unix_time.as_secs()).unwrap_or_default())
    }

    #[cfg(test)]
    pub(super) fn advance(&self, duration: Duration) {
        let duration = u64::try_from(duration.as_nanos()).unwrap();
        self.offset.fetch_add(duration, std::sync::atomic::Ordering::Relaxed);
    }

    #[cfg(test)]
    fn offset(&self) -> Duration {
        Duration::from_nanos(self.offset.load(std::sync::atomic::Ordering::Relaxed))
    }
}

impl governor::clock::Clock for LimitClock {
    type Instant = Nanos;

    fn now(&self) -> Nanos {
        self.elapsed().into()
    }
}

/// Returns a duration in whole microseconds.
pub(super) fn as_micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

/// A day and month in UTC, and the time until they end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CalendarTime {
    /// Days since 1970.
    pub(super) day: u32,
    /// Months since the year 0.
    pub(super) month: u32,
    /// Time until the day ends.
    pub(super) until_day_end: Duration,
    /// Time until the month ends.
    pub(super) until_month_end: Duration,
    /// Length of the whole month.
    pub(super) month_length: Duration,
}

impl CalendarTime {
    pub(super) fn from_unix(unix_seconds: i64) -> Self {
        const DAY: u64 = 86_400;
        let date = OffsetDateTime::from_unix_timestamp(unix_seconds).unwrap_or(OffsetDateTime::UNIX_EPOCH).date();
        let second = u64::try_from(unix_seconds.rem_euclid(86_400)).unwrap_or_default();
        let days = u64::from(date.month().length(date.year()));
        Self {
            day: u32::try_from(unix_seconds.div_euclid(86_400)).unwrap_or_default(),
            month: u32::try_from(date.year()).unwrap_or_default() * 12 + u32::from(u8::from(date.month())),
            until_day_end: Duration::from_secs(DAY - second),
            until_month_end: Duration::from_secs((days - u64::from(date.day()) + 1) * DAY - second),
            month_length: Duration::from_secs(days * DAY),
        }
    }
}
