//! Rate limit status: the state of the limit that is closest to refusing a caller, and the `RateLimit` and
//! `RateLimit-Policy` header fields that report it (draft-ietf-httpapi-ratelimit-headers).

use super::bucket::Empty;
use crate::{
    fault::{Code, Fault},
    telemetry::Limit,
};
use std::time::Duration;

/// State of one limit after a call was counted. Cheap to copy; formatted only for a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing {
    /// The limit.
    pub limit: Limit,
    /// Calls that the limit allows per window.
    pub quota: u64,
    /// Calls that the limit still allows at once.
    pub remaining: u64,
    /// Time until the whole quota is available again.
    pub reset: Duration,
    /// Length of the window.
    pub window: Duration,
}

impl Standing {
    /// Returns the values of `RateLimit` and `RateLimit-Policy`.
    pub fn fields(&self) -> (String, String) {
        let now = self.member((";r=", self.remaining), (";t=", whole(self.reset)));
        (now, self.member((";q=", self.quota), (";w=", whole(self.window).max(1))))
    }

    /// Formats `"name";first=1;second=2`.
    fn member(&self, first: (&str, u64), second: (&str, u64)) -> String {
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

    /// Returns the status that refuses first.
    pub(super) fn tighter(self, other: Option<Self>) -> Self {
        other.filter(|other| other.remaining < self.remaining).unwrap_or(self)
    }
}

/// Returns whole seconds, rounded up, so that a caller that waits this long does not retry too early.
fn whole(span: Duration) -> u64 {
    span.as_secs() + u64::from(span.subsec_nanos() > 0)
}

impl Empty {
    /// Builds the fault for the caller (R5).
    pub(super) fn fault(self) -> Fault {
        let limit = self.standing.limit;
        let text = match (self.wait, limit) {
            (None, _) => "The batch has more calls than the limit allows at once; send smaller batches",
            (_, Limit::Address) => "Too many requests from this address",
            (_, Limit::Caller) => "Too many calls by this caller",
            (_, Limit::CallerAgent) => "Too many calls by this caller to this agent",
            (_, Limit::Search) => "Too many searches by this caller",
            (_, Limit::Agent | Limit::Concurrency | Limit::Learnt | Limit::Gateway) => "Too many calls to this agent",
            (_, Limit::Day) => "The daily quota is used up",
            (_, Limit::Month) => "The monthly quota is used up",
        };
        let (now, policy) = self.standing.fields();
        let fault = Fault::new(Code::RateLimited, text)
            .detail(format_args!("limit {}: {policy}", limit.name()))
            .header("RateLimit", now)
            .header("RateLimit-Policy", policy);
        match self.wait {
            Some(wait) => fault.retry_after(wait),
            None => fault,
        }
    }
}
