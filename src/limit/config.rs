//! Configuration of limits: rates, quotas, concurrency, load shedding, and the number of tracked keys.

use super::on_error::OnErrorConfig;
use crate::values::{ByteSize, ConfigDuration, ConfigPath, MaxShare, Rate};
use std::{
    collections::BTreeMap,
    num::{NonZeroU32, NonZeroU64},
    time::Duration,
};

/// Rate limits, quotas and concurrency. A call must pass each limit that applies to it; the strictest of configuration,
/// tier and agent's document decides.
#[derive(Clone, Debug, PartialEq, serde::Deserialize, serde::Serialize, schemars::JsonSchema)]
#[schemars(rename = "Limits")]
#[serde(deny_unknown_fields, default)]
pub struct LimitConfig {
    /// Requests from one peer address, checked before authentication; IPv6 addresses count by their /64. Null for none,
    /// for example behind a proxy that hides client addresses. Default: 2000/s burst 5000.
    pub per_address: Option<Rate>,
    /// Calls of one caller to all agents. Default: null, unlimited.
    pub per_caller: Option<Rate>,
    /// Calls of one caller to one agent. Default: null, unlimited.
    pub per_caller_agent: Option<Rate>,
    /// Searches and resolutions of one caller in the directory, which cost more than a call (R5); each also counts as a
    /// call. Null for no limit. Default: 10/s burst 50.
    pub per_caller_search: Option<Rate>,
    /// Calls to one agent, of all callers together. The rates in the agent's document (`rate_limits`) apply as well.
    /// Default: null, unlimited.
    pub per_agent: Option<Rate>,
    /// Calls of one caller per day and per month.
    pub quota: QuotaConfig,
    /// Limits of tiers. A limit of a tier replaces the general one; limits that are left out, and tiers that are not
    /// listed, have the general limits. Default: none.
    pub tiers: BTreeMap<String, TierConfig>,
    /// Concurrent calls to each agent.
    pub concurrency: ConcurrencyConfig,
    /// The share of each shared maximum that one caller may take, and one address of callers without a credential; at
    /// least one of each. Users of an OAuth client count as one caller. It applies to an agent's concurrency and wait
    /// queue, buffered bodies, unread answers, tasks, resumable streams, idempotency keys, WebSockets, and to the connections of an
    /// address. 1 lets one caller take everything. Default: 0.5.
    pub max_share: MaxShare,
    /// Maximum memory of callers' bodies that are read before they pass, in all. 1MiB to 64GiB. Default: 256MiB.
    pub max_buffered_bodies: ByteSize,
    /// Maximum memory of complete answers longer than 16 KiB that callers have not read yet, in all: replies of agents
    /// that are checked or rewritten, documents, lists and pages; and of shorter ones that are not read at once, with their
    /// requests. 16MiB to 64GiB. Default: 128MiB.
    pub max_buffered_answers: ByteSize,
    /// Scheduling delay above which the gateway sheds load: how long its own work waits for a CPU core. While the delay
    /// is longer, the gateway refuses calls (503 `Overloaded`), first those of tiers with a low `priority`. 2ms to 10s;
    /// null disables load shedding. Default: 50ms.
    pub max_scheduling_delay: Option<ConfigDuration>,
    /// Maximum number of callers, addresses and caller-agent pairs that each kind of limit tracks; further keys share
    /// one bucket until others are idle. 1 to 100000000. Default: 1000000, about 40 MB for each kind.
    #[schemars(range(min = 1, max = 100_000_000))]
    pub max_tracked_keys: usize,
    /// What the limits do while the shared state (`state`) cannot be reached. Without `state` it has no effect.
    pub on_error: OnErrorConfig,
    /// Limits in shadow mode, beside those in force: a call that one of them would have refused passes, and is reported in
    /// the access log and in `gatepost_shadow_denials_total`. Default: none.
    pub shadow: Option<ShadowLimitConfig>,
    /// File that keeps the quota counts over a restart: written about once a second while they change, so that a
    /// killed gateway loses the counts of a second; read at startup only. Default: null, the counts restart from
    /// zero.
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
            max_share: MaxShare::default(),
            max_buffered_bodies: ByteSize::from_kib(256 << 10),
            max_buffered_answers: ByteSize::from_kib(128 << 10),
            max_scheduling_delay: Some(ConfigDuration::from_millis(50)),
            max_tracked_keys: 1_000_000,
            on_error: OnErrorConfig::default(),
            shadow: None,
            quota_state_file: None,
        }
    }
}

/// Calls of one caller per calendar period (UTC).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize, serde::Serialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct QuotaConfig {
    /// Calls per day, from midnight to midnight UTC; at least 1. Default: null, unlimited.
    pub per_day: Option<NonZeroU64>,
    /// Calls per calendar month, UTC; at least 1. Default: null, unlimited.
    pub per_month: Option<NonZeroU64>,
}

/// Limits of the callers of one tier.
#[derive(Clone, Debug, Default, PartialEq, serde::Deserialize, serde::Serialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct TierConfig {
    /// Calls of one caller to all agents. Default: the general limit.
    pub per_caller: Option<Rate>,
    /// Calls of one caller to one agent. Default: the general limit.
    pub per_caller_agent: Option<Rate>,
    /// Calls of one caller per day and per month; replaces both quotas. Default: the general quotas.
    pub quota: Option<QuotaConfig>,
    /// Priority of the tier's calls while the gateway sheds load, which refuses the lowest priority first; 0 to 9.
    /// Default: 5, as for callers without a tier.
    #[schemars(range(min = 0, max = 9))]
    pub priority: Option<u8>,
}

/// Limits in shadow mode. They count the calls that the limits in force allow, with tokens of their own, for callers of
/// every tier alike.
#[derive(Clone, Debug, Default, PartialEq, serde::Deserialize, serde::Serialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ShadowLimitConfig {
    /// Calls of one caller to all agents. Default: none.
    pub per_caller: Option<Rate>,
    /// Calls of one caller to one agent. Default: none.
    pub per_caller_agent: Option<Rate>,
    /// Calls to one agent, of all callers together. Default: none.
    pub per_agent: Option<Rate>,
    /// Calls of one caller per day and per month, counted from the start of the gateway.
    pub quota: QuotaConfig,
    /// Concurrent calls.
    pub concurrency: ShadowConcurrencyConfig,
}

/// Limits of concurrent calls in shadow mode. No call waits for them.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Deserialize, serde::Serialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ShadowConcurrencyConfig {
    /// Maximum number of concurrent calls to one agent. Default: none.
    pub max_per_agent: Option<NonZeroU32>,
    /// Maximum number of concurrent calls of one caller to all agents. Default: none.
    pub max_per_caller: Option<NonZeroU32>,
}

/// Concurrent calls to each agent, and the queue of calls that wait.
#[derive(Clone, Debug, PartialEq, serde::Deserialize, serde::Serialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ConcurrencyConfig {
    /// Maximum number of concurrent calls to one agent, 1 to 1000000; null for no limit, which also disables the
    /// adaptive limit. Default: 1000.
    pub max_per_agent: Option<NonZeroU32>,
    /// Maximum number of concurrent calls to one agent of all gateways that share `state`, 1 to 1000000; besides
    /// `max_per_agent`, which each gateway counts for itself. Requires `state`. Default: null, no such limit.
    pub shared_max_per_agent: Option<NonZeroU32>,
    /// Maximum number of concurrent calls of one caller to all agents, beyond it 429; null for no limit besides its
    /// share of each agent. Default: null.
    pub max_per_caller: Option<NonZeroU32>,
    /// Whether the gateway learns a lower limit for each agent from its latency, between `min_concurrency` and
    /// `max_per_agent`. The adaptive limit counts calls that wait for the first byte of a response. Default: true.
    pub adaptive: bool,
    /// The least that the adaptive limit falls to; 1 to 1000. Default: 4.
    #[schemars(range(min = 1, max = 1_000))]
    pub min_concurrency: u32,
    /// Maximum number of calls that wait for an agent at its concurrency limit; further calls get 503 at once.
    /// Default: 64.
    pub max_queued: u32,
    /// Maximum time that a call waits in the queue. With the adaptive limit, calls wait only for the agent's baseline
    /// latency after the queue has been occupied for this time without a break. Default: 1s.
    pub queue_timeout: ConfigDuration,
}

impl Default for ConcurrencyConfig {
    fn default() -> Self {
        Self {
            max_per_agent: Some(NonZeroU32::MIN.saturating_add(999)),
            shared_max_per_agent: None,
            max_per_caller: None,
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
        if self.concurrency.max_per_agent.is_some_and(|max| max.get() > 1_000_000) {
            problems
                .push("concurrency.max_per_agent: is out of bounds (at most 1000000; null for unlimited)".to_owned());
        }
        if self.concurrency.shared_max_per_agent.is_some_and(|max| max.get() > 1_000_000) {
            let problem =
                "concurrency.shared_max_per_agent: is out of bounds (at most 1000000; null for no such limit)";
            problems.push(problem.to_owned());
        }
        if !(1..=1_000).contains(&self.concurrency.min_concurrency) {
            problems.push(format!(
                "concurrency.min_concurrency: {} is out of bounds (1 to 1000)",
                self.concurrency.min_concurrency
            ));
        }
        if !self.max_share.is_valid() {
            problems.push("max_share: is out of bounds (more than 0, at most 1)".to_owned());
        }
        if !(ByteSize::from_kib(1 << 10)..=ByteSize::from_kib(64 << 20)).contains(&self.max_buffered_bodies) {
            problems.push(format!("max_buffered_bodies: must be 1MiB to 64GiB, not {}", self.max_buffered_bodies));
        }
        if !(ByteSize::from_kib(16 << 10)..=ByteSize::from_kib(64 << 20)).contains(&self.max_buffered_answers) {
            problems.push(format!("max_buffered_answers: must be 16MiB to 64GiB, not {}", self.max_buffered_answers));
        }
        let bounds = Duration::from_millis(2)..=Duration::from_secs(10);
        if self.max_scheduling_delay.is_some_and(|threshold| !bounds.contains(&threshold.get())) {
            problems
                .push("max_scheduling_delay: is out of bounds (2ms to 10s; null disables load shedding)".to_owned());
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
