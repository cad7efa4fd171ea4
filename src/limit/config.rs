//! What an operator may say about how much: rates, quotas, concurrency, and the memory that they may take.

use crate::unit::{FilePath, Rate, Span};
use std::{
    collections::BTreeMap,
    num::{NonZeroU32, NonZeroU64},
    time::Duration,
};

/// How much callers and agents may be asked for. A call must fit every bucket that it falls into, so the
/// strictest of configuration, tier and agent's document decides.
#[derive(Clone, Debug, PartialEq, serde::Deserialize, serde::Serialize, schemars::JsonSchema)]
#[schemars(rename = "Limits")]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Requests of one peer address, before any credential is looked at; IPv6 addresses count by their /64.
    /// `2000/s burst 5000` unless written; `null` for none, as behind a balancer that hides its callers' addresses.
    pub per_address: Option<Rate>,
    /// Calls of one caller, over all agents.
    pub per_caller: Option<Rate>,
    /// Calls of one caller at one agent.
    pub per_caller_agent: Option<Rate>,
    /// Searches and resolutions of one caller in the directory, which cost more than a call (R5); they count as calls
    /// besides. `10/s burst 50` unless written; `null` for none.
    pub per_caller_search: Option<Rate>,
    /// Calls at one agent by all callers together. The rates in the agent's own document (`rate_limits`) hold
    /// besides.
    pub per_agent: Option<Rate>,
    /// Calls of one caller in a day and in a month.
    pub quota: Quota,
    /// Other bounds for the callers of a tier. What a tier names replaces the bound above; what it leaves out
    /// stays. A tier that is not named here has the bounds above.
    pub tiers: BTreeMap<String, Tier>,
    /// How many calls an agent may have at once.
    pub concurrency: Concurrency,
    /// How long the gateway's own work may wait for a core: while it waits longer, calls are refused before they cost
    /// much (503 `Overloaded`), those of tiers with a low `priority` first. 2ms to 10s; 50ms unless written; `null` for
    /// never.
    pub shed_above: Option<Span>,
    /// Callers, addresses and pairs of caller and agent that each kind of bucket remembers at once; further ones
    /// share one bucket until others fall idle. 1 to 100000000; 1000000 unless written (about 40 MB a kind).
    #[schemars(range(min = 1, max = 100_000_000))]
    pub most_keys: usize,
    /// The file that keeps the counts of quotas over a restart; without it they begin anew. Read only at start.
    pub state: Option<FilePath>,
}

impl Default for Config {
    fn default() -> Self {
        let a_second = |count: u32, burst: u32| Rate {
            count: NonZeroU32::new(count).unwrap_or(NonZeroU32::MIN),
            period: Duration::from_secs(1),
            burst: NonZeroU32::new(burst).unwrap_or(NonZeroU32::MIN),
        };
        Self {
            per_address: Some(a_second(2_000, 5_000)),
            per_caller_search: Some(a_second(10, 50)),
            per_caller: None,
            per_caller_agent: None,
            per_agent: None,
            quota: Quota::default(),
            tiers: BTreeMap::new(),
            concurrency: Concurrency::default(),
            shed_above: Some(Span::millis(50)),
            most_keys: 1_000_000,
            state: None,
        }
    }
}

/// Calls in a period of the calendar (UTC).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize, serde::Serialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Quota {
    /// Calls from midnight to midnight, UTC; none unless written.
    pub per_day: Option<NonZeroU64>,
    /// Calls in a calendar month, UTC; none unless written.
    pub per_month: Option<NonZeroU64>,
}

/// The bounds of one tier of callers.
#[derive(Clone, Debug, Default, PartialEq, serde::Deserialize, serde::Serialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Tier {
    /// Calls of one caller, over all agents.
    pub per_caller: Option<Rate>,
    /// Calls of one caller at one agent.
    pub per_caller_agent: Option<Rate>,
    /// Calls of one caller in a day and in a month; replaces both.
    pub quota: Option<Quota>,
    /// Whose calls are refused last when the gateway itself has too much to do: those of the highest. 0 to 9; 5 unless
    /// written, as for callers of no tier.
    #[schemars(range(min = 0, max = 9))]
    pub priority: Option<u8>,
}

/// How many calls an agent may have at once, and who may wait.
#[derive(Clone, Debug, PartialEq, serde::Deserialize, serde::Serialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Concurrency {
    /// Calls that one agent may have at once; 1000 unless written, `null` for no bound, which nothing is learnt under
    /// either.
    pub per_agent: Option<NonZeroU32>,
    /// Whether each agent's own bound is learnt from how fast it answers, between `least` and the bound above, which it
    /// begins with: how many calls may wait for the first byte of an answer. true unless written.
    pub adaptive: bool,
    /// No agent's bound is learnt to be less. 1 to 1000; 4 unless written.
    #[schemars(range(min = 1, max = 1_000))]
    pub least: u32,
    /// Calls that may wait for an agent that has its most; further ones are refused at once. 64 unless written.
    pub queue: u32,
    /// How long a call waits there; 1s unless written. Where the bound is learnt and calls have waited for so long
    /// already without a break, later ones wait for an answer's usual time only.
    pub queue_wait: Span,
}

impl Default for Concurrency {
    fn default() -> Self {
        Self {
            per_agent: Some(NonZeroU32::MIN.saturating_add(999)),
            adaptive: true,
            least: 4,
            queue: 64,
            queue_wait: Span::secs(1),
        }
    }
}

impl Config {
    /// What cannot be put in force, each with its path.
    pub fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        if !(1..=100_000_000).contains(&self.most_keys) {
            problems.push(format!("most_keys: {} is out of bounds (1 to 100000000)", self.most_keys));
        }
        if self.concurrency.per_agent.is_some_and(|most| most.get() > 1_000_000) {
            problems.push("concurrency.per_agent: at most 1000000 (null for no bound)".to_owned());
        }
        if !(1..=1_000).contains(&self.concurrency.least) {
            problems.push(format!("concurrency.least: {} is out of bounds (1 to 1000)", self.concurrency.least));
        }
        let shed = Duration::from_millis(2)..=Duration::from_secs(10);
        if self.shed_above.is_some_and(|above| !shed.contains(&above.get())) {
            problems.push("shed_above: must be 2ms to 10s (null for never)".to_owned());
        }
        for (name, tier) in &self.tiers {
            if tier.priority.is_some_and(|priority| priority > 9) {
                problems.push(format!("tiers.{}.priority: must be 0 to 9", name.escape_default()));
            }
            if name.is_empty() || name.len() > 64 || name.chars().any(char::is_control) {
                problems
                    .push(format!("tiers.{}: a tier's name has 1 to 64 printable characters", name.escape_default()));
            }
        }
        problems
    }
}
