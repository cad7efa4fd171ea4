//! Rule of a rate limit, in the terms of the generic cell rate algorithm (GCRA), and the status of a limit, which the
//! `RateLimit` and `RateLimit-Policy` header fields report (draft-ietf-httpapi-ratelimit-headers).

use super::bucket_key;
use crate::{telemetry::LimitKind, values::Rate};
use std::{num::NonZeroU32, time::Duration};

/// Maximum time to fill a bucket; beyond it the arithmetic in nanoseconds would overflow.
const MAX_FILL_TIME: Duration = Duration::from_secs(100 * 366 * 86_400);

/// A rate, and the limit that it belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateRule {
    /// The limit.
    pub limit: LimitKind,
    /// The rate as configured.
    pub rate: Rate,
    /// Tokens of a full bucket: the configured burst, or less if the bucket took more than 100 years to fill.
    pub burst: NonZeroU32,
    /// Time in which a bucket gains one token; at least a nanosecond.
    pub refill_interval: Duration,
    /// Stable hash of the rule. A changed rate is another rule, whose buckets start full.
    pub id: u64,
}

impl RateRule {
    /// Derives the rule of a rate.
    pub fn new(limit: LimitKind, rate: Rate) -> Self {
        let refill_interval = (rate.period / rate.count.get()).max(Duration::from_nanos(1));
        let max_burst = u32::try_from(MAX_FILL_TIME.as_nanos() / refill_interval.as_nanos()).unwrap_or(u32::MAX);
        let burst = rate.burst.min(NonZeroU32::new(max_burst).unwrap_or(NonZeroU32::MIN));
        let mut parts = Vec::from(rate.count.get().to_le_bytes());
        parts.extend(u64::try_from(rate.period.as_nanos()).unwrap_or(u64::MAX).to_le_bytes());
        parts.extend(rate.burst.get().to_le_bytes());
        parts.extend(limit.name().as_bytes());
        Self { limit, rate, burst, refill_interval, id: bucket_key::hash(*b"rule\0\0\0\0", &parts) }
    }

    /// Returns the status of a bucket with `remaining` tokens. `reset` is the time until the limit allows the refused
    /// call; without it, the time until the bucket is full.
    pub fn status(&self, remaining: u32, reset: Option<Duration>) -> RateLimitStatus {
        let missing = self.burst.get().saturating_sub(remaining);
        RateLimitStatus {
            limit: self.limit,
            quota: u64::from(self.burst.get()),
            remaining: u64::from(remaining),
            reset: reset.unwrap_or(self.refill_interval.saturating_mul(missing)),
            window: self.refill_interval.saturating_mul(self.burst.get()),
        }
    }
}

/// State of one limit after a call was counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateLimitStatus {
    /// The limit.
    pub limit: LimitKind,
    /// Calls that the limit allows per window.
    pub quota: u64,
    /// Calls that the limit still allows at once.
    pub remaining: u64,
    /// Time until the whole quota is available again.
    pub reset: Duration,
    /// Length of the window.
    pub window: Duration,
}

impl RateLimitStatus {
    /// Returns the values of `RateLimit` and `RateLimit-Policy`.
    pub fn header_values(&self) -> (String, String) {
        let limit = self.format_item(&[(";r=", self.remaining), (";t=", whole_seconds(self.reset))]);
        (limit, self.format_item(&[(";q=", self.quota), (";w=", whole_seconds(self.window).max(1))]))
    }

    /// Formats `"name";first=1;second=2`.
    fn format_item(&self, parameters: &[(&str, u64)]) -> String {
        let mut text = String::with_capacity(48);
        text.push('"');
        text.push_str(self.limit.name());
        text.push('"');
        for (name, value) in parameters {
            text.push_str(name);
            text.push_str(itoa::Buffer::new().format(*value));
        }
        text
    }

    /// Returns the status of the limit that refuses first.
    pub fn more_restrictive(self, other: Option<Self>) -> Self {
        other.filter(|other| other.remaining < self.remaining).unwrap_or(self)
    }
}

/// Returns whole seconds, rounded up, so that a caller does not retry too early.
fn whole_seconds(duration: Duration) -> u64 {
    duration.as_secs() + u64::from(duration.subsec_nanos() > 0)
}
