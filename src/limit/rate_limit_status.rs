//! Rate limit status: the state of a limit, and the `RateLimit` and `RateLimit-Policy` header fields that report it
//! (draft-ietf-httpapi-ratelimit-headers).

use crate::telemetry::LimitKind;
use std::time::Duration;

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
