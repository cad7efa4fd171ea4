//! Limits: rates per address, caller, caller-agent pair and agent; quotas per day and month; concurrency per agent;
//! load shedding; and the shares of clients in what all of them use: concurrency, memory for bodies, WebSockets. Rates
//! and quotas are counted in a [`LimitStore`], which may be in this process or shared; concurrency and load shedding
//! concern this process only. A refusal is a fault: other modules identify the caller and write the response.

mod adaptive_concurrency;
mod agent_limit_metrics;
mod agent_limits;
mod answer_limits;
mod answer_work;
mod applicable_rates;
mod bucket_key;
mod call_limiter;
mod client_shares;
mod clock;
mod concurrency_limiter;
mod concurrency_range;
mod concurrency_refusal;
mod config;
mod in_process;
mod latency_baseline;
mod limit_draw;
mod limit_inspection;
mod limit_policy;
mod limit_refusal;
mod limit_store;
mod load_shedding;
mod memory_budget;
mod on_error;
mod rate_buckets;
mod rate_rule;
mod shadow_limits;
mod shared;
mod shared_concurrency;
mod slot_request;
mod trip_size;
mod websocket_counts;

pub use agent_limits::{AgentLimitSettings, AgentLimits, LatencySample, Permit, SampleOutcome};
pub use answer_limits::AnswerLimits;
pub use answer_work::AnswerTurn;
pub use applicable_rates::ApplicableRates;
pub use bucket_key::{BucketKey, RateLimitKey};
pub use call_limiter::CallLimiter;
pub use config::{ConcurrencyConfig, LimitConfig, QuotaConfig, ShadowConcurrencyConfig, ShadowLimitConfig, TierConfig};
pub use limit_draw::{AgentDraw, BucketDraw, LimitDraw, QuotaDraw};
pub use limit_inspection::{LimitInspection, LimitState};
pub use limit_refusal::{LimitExceeded, LimitRefusal};
pub use limit_store::{BucketScope, DrawResult, InspectionResult, LimitStore, SaveReason};
pub use memory_budget::MemoryReservation;
pub use on_error::{OnError, OnErrorConfig};
pub use rate_buckets::{InProcessBuckets, RateBuckets};
pub use rate_rule::{RateLimitStatus, RateRule};
pub use shadow_limits::{ShadowHolds, ShadowLimits};
pub use websocket_counts::CountedWebSocket;

#[cfg(test)]
mod tests;
