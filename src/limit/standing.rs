//! How a caller stands with the limit that is nearest to refusing it, and the two header fields that say so
//! (draft-ietf-httpapi-ratelimit-headers).

use super::bucket::Empty;
use crate::{
    fault::{Code, Fault},
    telemetry::Limit,
};
use std::time::Duration;

/// How one limit stands after a call was counted. Copied around; written out only for a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing {
    /// Which limit.
    pub limit: Limit,
    /// Calls that it lets through in its window.
    pub quota: u64,
    /// Calls that it would still let through at once.
    pub remaining: u64,
    /// When all of the quota is there again.
    pub reset: Duration,
    /// The window.
    pub window: Duration,
}

impl Standing {
    /// The values of `RateLimit` and `RateLimit-Policy`.
    pub fn fields(&self) -> (String, String) {
        let now = self.member((";r=", self.remaining), (";t=", whole(self.reset)));
        (now, self.member((";q=", self.quota), (";w=", whole(self.window).max(1))))
    }

    /// `"name";first=1;second=2`.
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

    /// The one that will refuse first.
    pub(super) fn tighter(self, other: Option<Self>) -> Self {
        other.filter(|other| other.remaining < self.remaining).unwrap_or(self)
    }
}

/// Seconds, rounded up: a caller that waits so long does not come too early.
fn whole(span: Duration) -> u64 {
    span.as_secs() + u64::from(span.subsec_nanos() > 0)
}

impl Empty {
    /// The refusal that the caller reads (R5).
    pub(super) fn fault(self) -> Fault {
        let limit = self.standing.limit;
        let text = match (self.wait, limit) {
            (None, _) => "So many calls at once never fit the limit; send smaller batches.",
            (_, Limit::Address) => "Too many requests from this address.",
            (_, Limit::Caller) => "Too many calls by this caller.",
            (_, Limit::CallerAgent) => "Too many calls by this caller to this agent.",
            (_, Limit::Search) => "Too many searches by this caller.",
            (_, Limit::Agent | Limit::Concurrency) => "Too many calls to this agent.",
            (_, Limit::Day) => "The quota of the day is used up.",
            (_, Limit::Month) => "The quota of the month is used up.",
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
