//! Which traces are recorded: a share of all, and those that trusted callers record, up to a bound.

use super::{config::TracingConfig, trace_context::TraceId};
use crate::values::Glob;
use std::{
    collections::hash_map::RandomState,
    hash::BuildHasher,
    num::NonZeroU32,
    sync::{
        LazyLock,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

/// The key with which trace ids are hashed. Callers choose the ids of the traces that they start, and must not choose
/// one that is always recorded; the calls of one trace to this gateway get one answer, also after a reload.
static TRACE_ID_HASHER: LazyLock<RandomState> = LazyLock::new(RandomState::new);

/// Decides which traces are recorded.
#[derive(Debug)]
pub(super) struct Sampler {
    /// The hashes below this number are recorded; `None` records all.
    threshold: Option<u64>,
    trusts_proxies: bool,
    trusted_callers: Vec<Glob>,
    budget: TrustedBudget,
}

impl Sampler {
    pub(super) fn new(config: &TracingConfig) -> Self {
        let ratio = config.sample_ratio.clamp(0.0, 1.0);
        // 2^64 times the ratio; the conversion saturates, and the ratio 1 has its own value.
        let threshold = (ratio * 18_446_744_073_709_551_616.0) as u64;
        Self {
            threshold: (ratio < 1.0).then_some(threshold),
            trusts_proxies: config.trust.proxies,
            trusted_callers: config.trust.callers.clone(),
            budget: TrustedBudget::new(config.max_trusted_per_second),
        }
    }

    /// Whether the trace belongs to the share that is recorded.
    pub(super) fn is_in_ratio(&self, trace_id: TraceId) -> bool {
        self.threshold.is_none_or(|threshold| TRACE_ID_HASHER.hash_one(trace_id) < threshold)
    }

    /// Whether the sampled flag of a request counts that a trusted proxy forwards.
    pub(super) fn trusts_proxies(&self) -> bool {
        self.trusts_proxies
    }

    /// Whether the sampled flag of any caller counts.
    pub(super) fn trusts_some_callers(&self) -> bool {
        !self.trusted_callers.is_empty()
    }

    /// Whether the sampled flag of this caller counts.
    pub(super) fn trusts_caller(&self, caller: &str) -> bool {
        self.trusted_callers.iter().any(|pattern| pattern.matches(caller))
    }

    /// Takes one of the traces that are recorded in this second because a trusted caller records them.
    pub(super) fn acquire_trusted(&self, unix_seconds: u64) -> bool {
        self.budget.acquire(unix_seconds)
    }
}

/// A number of traces for each second.
#[derive(Debug)]
struct TrustedBudget {
    max_per_second: u32,
    /// The second in the upper half, and how many traces it had in the lower half.
    used: AtomicU64,
}

impl TrustedBudget {
    fn new(max_per_second: NonZeroU32) -> Self {
        Self { max_per_second: max_per_second.get(), used: AtomicU64::new(0) }
    }

    fn acquire(&self, unix_seconds: u64) -> bool {
        let second = (unix_seconds & u64::from(u32::MAX)) << 32;
        let taken = self.used.fetch_update(Relaxed, Relaxed, |used| {
            let count = if used >> 32 << 32 == second { used & u64::from(u32::MAX) } else { 0 };
            (count < u64::from(self.max_per_second)).then_some(second | (count + 1))
        });
        taken.is_ok()
    }
}
