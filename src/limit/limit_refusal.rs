//! Refusals of a draw, and the faults that callers get.

use super::rate_rule::RateLimitStatus;
use crate::{
    fault::{Fault, FaultCode},
    telemetry::LimitKind,
};
use std::time::Duration;

/// Reason why a draw took nothing.
#[derive(Debug)]
pub enum LimitRefusal {
    /// A limit is exceeded.
    Exceeded(LimitExceeded),
    /// The store cannot tell whether the limit is exceeded, and the limit is configured to refuse calls then.
    StoreUnavailable(LimitKind),
}

/// A limit that a draw exceeds.
#[derive(Debug)]
pub struct LimitExceeded {
    /// State of the limit that refused.
    pub status: RateLimitStatus,
    /// Time until enough tokens are available; `None` if the limit never allows so many at once.
    pub retry_after: Option<Duration>,
}

impl LimitRefusal {
    /// Returns the limit that refused.
    pub fn limit(&self) -> LimitKind {
        match self {
            Self::Exceeded(exceeded) => exceeded.status.limit,
            Self::StoreUnavailable(limit) => *limit,
        }
    }

    /// Returns the state of the limit that refused, if it is known.
    pub(super) fn status(&self) -> Option<RateLimitStatus> {
        match self {
            Self::Exceeded(exceeded) => Some(exceeded.status),
            Self::StoreUnavailable(_) => None,
        }
    }

    /// Builds the fault for the caller: 429 (R5), or 503 if the store is unavailable.
    pub(super) fn into_fault(self) -> Fault {
        match self {
            Self::Exceeded(exceeded) => exceeded.into_fault(),
            Self::StoreUnavailable(limit) => {
                Fault::new(FaultCode::Overloaded, "The limits of this call cannot be checked now")
                    .with_detail(format_args!("limit {}: store unavailable", limit.name()))
                    .with_retry_after(Duration::from_secs(1))
                    .with_setting(setting_of(limit))
            }
        }
    }
}

impl LimitExceeded {
    fn into_fault(self) -> Fault {
        let limit = self.status.limit;
        let text = match (self.retry_after, limit) {
            (None, _) => "The batch has more calls than the limit allows at once (send smaller batches)",
            (_, LimitKind::Address) => "Too many requests from this address",
            (_, LimitKind::Caller) => "Too many calls by this caller",
            (_, LimitKind::CallerAgent) => "Too many calls by this caller to this agent",
            (_, LimitKind::Search) => "Too many searches by this caller",
            (_, LimitKind::DailyQuota) => "The daily quota is used up",
            (_, LimitKind::MonthlyQuota) => "The monthly quota is used up",
            // Of these kinds only the rate of an agent is a bucket.
            _ => "Too many calls to this agent",
        };
        let (limit_header, policy_header) = self.status.header_values();
        let fault = Fault::new(FaultCode::RateLimited, text)
            .with_detail(format_args!("limit {}: {policy_header}", limit.name()))
            .with_header("RateLimit", limit_header)
            .with_header("RateLimit-Policy", policy_header)
            .with_setting(setting_of(limit));
        match self.retry_after {
            Some(delay) => fault.with_retry_after(delay),
            None => fault,
        }
    }
}

/// Returns the setting of a limit, as it is without tiers and rules.
pub(super) const fn setting_of(limit: LimitKind) -> &'static str {
    match limit {
        LimitKind::Address => "limits.per_address",
        LimitKind::Caller => "limits.per_caller",
        LimitKind::CallerAgent => "limits.per_caller_agent",
        LimitKind::Agent => "limits.per_agent",
        LimitKind::Search => "limits.per_caller_search",
        LimitKind::DailyQuota => "limits.quota.per_day",
        LimitKind::MonthlyQuota => "limits.quota.per_month",
        LimitKind::Concurrency => "limits.concurrency.max_per_agent",
        LimitKind::SharedConcurrency => "limits.concurrency.shared_max_per_agent",
        LimitKind::CallerConcurrency => "limits.concurrency.max_per_caller",
        LimitKind::AdaptiveConcurrency => "limits.concurrency.adaptive",
        LimitKind::LoadShedding => "limits.max_scheduling_delay",
        LimitKind::BufferedBodies => "limits.max_buffered_bodies",
        LimitKind::BufferedAnswers => "limits.max_buffered_answers",
        LimitKind::WebSockets => "websocket.max_connections",
        LimitKind::Tasks => "tasks.max_tasks",
        LimitKind::ConcurrencyShare | LimitKind::IdempotencyKeys | LimitKind::AnswerWork => "limits.max_share",
    }
}

impl From<LimitExceeded> for LimitRefusal {
    fn from(exceeded: LimitExceeded) -> Self {
        Self::Exceeded(exceeded)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r5_a_refusal_names_the_limit_that_refused() {
        let message = |limit: LimitKind, retry_after: Option<Duration>| {
            let hour = Duration::from_secs(3_600);
            let status = RateLimitStatus { limit, quota: 1, remaining: 0, reset: hour, window: hour };
            LimitExceeded { status, retry_after }.into_fault().message().to_owned()
        };
        let soon = Some(Duration::from_secs(1));
        for (limit, named) in [
            (LimitKind::Address, "this address"),
            (LimitKind::Caller, "by this caller"),
            (LimitKind::CallerAgent, "by this caller to this agent"),
            (LimitKind::Search, "searches"),
            (LimitKind::DailyQuota, "daily quota"),
            (LimitKind::MonthlyQuota, "monthly quota"),
            (LimitKind::Agent, "to this agent"),
        ] {
            assert!(message(limit, soon).contains(named), "{limit:?}");
            assert!(message(limit, None).contains("smaller batches"), "{limit:?}");
        }
    }
}
