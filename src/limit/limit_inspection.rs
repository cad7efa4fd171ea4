//! What the limits would decide of a call now, for a dry run: nothing is charged, and nothing is counted.

use super::{limit_refusal::setting_of, limit_store::InspectionResult, rate_rule::RateLimitStatus};
use crate::{fault::Fault, telemetry::LimitKind};

/// What one rate or quota would decide.
#[derive(Clone, Debug)]
pub struct LimitState {
    /// The state after the call, as the `RateLimit` header says it.
    pub status: RateLimitStatus,
    /// Whether the limit refuses the call.
    pub refuses: bool,
}

/// What all rates and quotas of a call would decide.
#[derive(Debug)]
pub struct LimitInspection {
    /// Every limit that applies, in the order in which they refuse.
    pub limits: Vec<LimitState>,
    /// The status of the tightest limit, or the refusal of the first limit that refuses.
    pub result: Result<Option<RateLimitStatus>, Fault>,
}

impl LimitState {
    /// Returns the setting of the limit, as it is without tiers and rules.
    pub fn setting(&self) -> &'static str {
        setting_of(self.status.limit)
    }

    /// Returns the limit.
    pub fn limit(&self) -> LimitKind {
        self.status.limit
    }
}

impl LimitInspection {
    /// Builds the inspection from what each limit decides.
    pub(super) fn new(results: Vec<InspectionResult>) -> Self {
        let mut limits = Vec::with_capacity(results.len());
        let mut verdict: Result<Option<RateLimitStatus>, Fault> = Ok(None);
        for result in results {
            match result {
                Ok(status) => {
                    limits.push(LimitState { status, refuses: false });
                    verdict = verdict.map(|tightest| Some(status.more_restrictive(tightest)));
                }
                Err(refusal) => {
                    limits.extend(refusal.status().map(|status| LimitState { status, refuses: true }));
                    verdict = verdict.and_then(|_| Err(refusal.into_fault()));
                }
            }
        }
        Self { limits, result: verdict }
    }
}
