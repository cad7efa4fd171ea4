//! Configuration of limits: rates, quotas, concurrency, load shedding, and the memory that their state may use.

use crate::values::{ConfigDuration, ConfigPath, Rate};
use std::{
    collections::BTreeMap,
    num::{NonZeroU32, NonZeroU64},
    time::Duration,
};

/// Limits on the calls of callers and to agents. A call must fit every limit that applies to it, so the strictest of
/// configuration, tier and agent document decides.
#[derive(Clone, Debug, PartialEq, serde::Deserialize, serde::Serialize, schemars::JsonSchema)]
#[schemars(rename = "Limits")]
#[serde(deny_unknown_fields, default)]
pub struct LimitConfig {
    /// Requests from one peer address, checked before authentication; IPv6 addresses count by their /64.
    /// Default: `2000/s burst 5000`; `null` disables the limit, for example behind a proxy that hides client addresses.
    pub per_address: Option<Rate>,
    /// Calls by one caller to all agents; unlimited by default.
    pub per_caller: Option<Rate>,
    /// Calls by one caller to one agent; unlimited by default.
    pub per_caller_agent: Option<Rate>,
    /// Searches and resolutions by one caller in the directory, which cost more than a call (R5); each also counts as a
    /// call. Default: `10/s burst 50`; `null` disables the limit.
    pub per_caller_search: Option<Rate>,
    /// Calls to one agent by all callers together; unlimited by default. The rates in the agent's document
    /// (`rate_limits`) apply as well.
    pub per_agent: Option<Rate>,
    /// Calls by one caller per day and per month.
    pub quota: QuotaConfig,
    /// Limits for the callers of a tier. A limit set here replaces the one above; a limit left out keeps it. A tier
    /// that is not listed has the limits above.
    pub tiers: BTreeMap<String, TierConfig>,
    /// Concurrent calls per agent.
    pub concurrency: ConcurrencyConfig,
    /// Load shedding threshold: how long the gateway's own work may wait for a CPU core. While the wait is longer, the
    /// gateway refuses calls early (503 `Overloaded`), those of tiers with a low `priority` first. 2ms to 10s; default
    /// 50ms; `null` disables load shedding.
    pub load_shedding_threshold: Option<ConfigDuration>,
    /// Callers, addresses and caller-agent pairs that each kind of limit tracks at once; further ones share one bucket
    /// until others are idle. 1 to 100000000; default 1000000 (about 40 MB per kind).
    #[schemars(range(min = 1, max = 100_000_000))]
    pub max_tracked_keys: usize,
    /// File that persists quota counts across restarts; without it they start from zero. Read only at startup.
    pub quota_state_file: Option<ConfigPath>,
}

impl Default for LimitConfig {
    fn default() -> Self {
        let per_second = |count: u32, burst: u32| Rate {
            count: NonZeroU32::new(count).unwrap_or(NonZeroU32::MIN),
            period: Duration::from_secs(1),
            burst: NonZeroU32::new(burst).unwrap_or(NonZeroU32::MIN),
        };
        Self {
            per_address: Some(per_second(2_000, 5_000)),
            per_caller_search: Some(per_second(10, 50)),
            per_caller: None,
            per_caller_agent: None,
            per_agent: None,
            quota: QuotaConfig::default(),
            tiers: BTreeMap::new(),
            concurrency: ConcurrencyConfig::default(),
            load_shedding_threshold: Some(ConfigDuration::from_millis(50)),
            max_tracked_keys: 1_000_000,
            quota_state_file: None,
        }
    }
}

/// Calls per calendar period (UTC).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize, serde::Serialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct QuotaConfig {
    /// Calls per day, from midnight to midnight UTC; unlimited by default.
    pub per_day: Option<NonZeroU64>,
    /// Calls per calendar month, UTC; unlimited by default.
    pub per_month: Option<NonZeroU64>,
}

/// Limits for the callers of one tier.
#[derive(Clone, Debug, Default, PartialEq, serde::Deserialize, serde::Serialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct TierConfig {
    /// Calls by one caller to all agents.
    pub per_caller: Option<Rate>,
    /// Calls by one caller to one agent.
    pub per_caller_agent: Option<Rate>,
    /// Calls by one caller per day and per month; replaces both quotas.
    pub quota: Option<QuotaConfig>,
    /// Priority of the tier's calls while the gateway sheds load: calls of the highest priority are refused last. 0 to
    /// 9; default 5, as for callers without a tier.
    #[schemars(range(min = 0, max = 9))]
    pub priority: Option<u8>,
}

/// Concurrent calls per agent, and the queue of calls that wait.
#[derive(Clone, Debug, PartialEq, serde::Deserialize, serde::Serialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ConcurrencyConfig {
    /// Maximum concurrent calls to one agent; default 1000. `null` means unlimited and also disables the adaptive
    /// limit.
    pub max_per_agent: Option<NonZeroU32>,
    /// Whether the gateway adapts each agent's concurrency limit to its latency, between `least` and `per_agent`, where
    /// it starts. The adaptive limit counts calls that wait for the first byte of a response. Default: true.
    pub adaptive: bool,
    /// Lower bound of the adaptive limit. 1 to 1000; default 4.
    #[schemars(range(min = 1, max = 1_000))]
    pub min_concurrency: u32,
    /// Calls that may wait for an agent at its concurrency limit; further calls are refused at once. Default: 64.
    pub max_queued: u32,
    /// Maximum time a call waits in the queue; default 1s. With the adaptive limit, once the queue has been occupied
    /// for this long without a break, later calls wait only for the agent's usual latency.
    pub queue_timeout: ConfigDuration,
}

impl Default for ConcurrencyConfig {
    fn default() -> Self {
        Self {
            max_per_agent: Some(NonZeroU32::MIN.saturating_add(999)),
            adaptive: true,
            min_concurrency: 4,
            max_queued: 64,
            queue_timeout: ConfigDuration::from_secs(1),
        }
    }
}

impl LimitConfig {
    /// Returns every problem of the configuration, each with its key.
    pub fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        if !(1..=100_000_000).contains(&self.max_tracked_keys) {
            problems.push(format!("max_tracked_keys: {} is out of bounds (1 to 100000000)", self.max_tracked_keys));
        }
        if self.concurrency.max_per_agent.is_some_and(|most| most.get() > 1_000_000) {
            problems
                .push("concurrency.max_per_agent: is out of bounds (at most 1000000; null for unlimited)".to_owned());
        }
        if !(1..=1_000).contains(&self.concurrency.min_concurrency) {
            problems.push(format!(
                "concurrency.min_concurrency: {} is out of bounds (1 to 1000)",
                self.concurrency.min_concurrency
            ));
        }
        let shed = Duration::from_millis(2)..=Duration::from_secs(10);
        if self.load_shedding_threshold.is_some_and(|above| !shed.contains(&above.get())) {
            problems
                .push("load_shedding_threshold: is out of bounds (2ms to 10s; null disables load shedding)".to_owned());
        }
        for (name, tier) in &self.tiers {
            if tier.priority.is_some_and(|priority| priority > 9) {
                problems.push(format!("tiers.{}.priority: is out of bounds (0 to 9)", name.escape_default()));
            }
            if name.is_empty() || name.len() > 64 || name.chars().any(char::is_control) {
                problems.push(format!("tiers.{}: invalid name (1 to 64 printable characters)", name.escape_default()));
            }
        }
        problems
    }
}
