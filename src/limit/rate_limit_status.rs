//! Rate limit status: the state of a limit, and the `RateLimit` and `RateLimit-Policy` header fields that report it
//! (draft-ietf-httpapi-ratelimit-headers).

use super::token_bucket::LimitExceeded;
use crate::{
    fault::{Fault, FaultCode},
    telemetry::LimitKind,
};
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
        let limit = self.format_item((";r=", self.remaining), (";t=", whole_seconds(self.reset)));
        (limit, self.format_item((";q=", self.quota), (";w=", whole_seconds(self.window).max(1))))
    }

    /// Formats `"name";first=1;second=2`.
    fn format_item(&self, first: (&str, u64), second: (&str, u64)) -> String {
        let mut text = String::with_capacity(48);
        text.push('"');
        text.push_str(self.limit.name());
        text.push('"');
        for (parameter, number) in [first, second] {
            text.push_str(parameter);
            text.push_str(itoa::Buffer::new().format(number));
        }
        text
    }

    /// Returns the status of the limit that refuses first.
    pub(super) fn more_restrictive(self, other: Option<Self>) -> Self {
        other.filter(|other| other.remaining < self.remaining).unwrap_or(self)
    }
}

/// Returns whole seconds, rounded up, so that a caller does not retry too early.
fn whole_seconds(duration: Duration) -> u64 {
    duration.as_secs() + u64::from(duration.subsec_nanos() > 0)
}

impl LimitExceeded {
    /// Builds the fault for the caller (R5).
    pub(super) fn into_fault(self) -> Fault {
        let limit = self.status.limit;
        let text = match (self.retry_after, limit) {
            (None, _) => "The batch has more calls than the limit allows at once (send smaller batches)",
            (_, LimitKind::Address) => "Too many requests from this address",
            (_, LimitKind::Caller) => "Too many calls by this caller",
            (_, LimitKind::CallerAgent) => "Too many calls by this caller to this agent",
            (_, LimitKind::Search) => "Too many searches by this caller",
            (
                _,
                LimitKind::Agent | LimitKind::Concurrency | LimitKind::AdaptiveConcurrency | LimitKind::LoadShedding,
            ) => "Too many calls to this agent",
            (_, LimitKind::DailyQuota) => "The daily quota is used up",
            (_, LimitKind::MonthlyQuota) => "The monthly quota is used up",
        };
        let (limit_header, policy_header) = self.status.header_values();
        let fault = Fault::new(FaultCode::RateLimited, text)
            .with_detail(format_args!("limit {}: {policy_header}", limit.name()))
            .with_header("RateLimit", limit_header)
            .with_header("RateLimit-Policy", policy_header);
        match self.retry_after {
            Some(delay) => fault.with_retry_after(delay),
            None => fault,
        }
    }
}
