//! Loss guard: withholds a poll result that would remove most of a source's agents, until consecutive polls over some
//! time agree, or an operator confirms the loss.

use std::time::{Duration, SystemTime};

/// Number of consecutive polls that must agree before a loss is accepted.
const CONFIRMING_POLLS: u32 = 3;
/// Minimum number of agents for the threshold, which is a share, to apply.
const MIN_AGENTS_FOR_SHARE: usize = 10;

/// Settings of the loss guard of one source.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LossGuardPolicy {
    /// The share of the agents that one poll may remove; 1 turns the guard off.
    pub threshold: f64,
    /// How long a greater loss must last before it is accepted.
    pub confirm_after: Duration,
}

impl LossGuardPolicy {
    /// Returns whether the guard withholds the loss of `lost_agents` of `agents`.
    pub(super) fn withholds(&self, lost_agents: usize, agents: usize) -> bool {
        let exceeds_share = agents >= MIN_AGENTS_FOR_SHARE && lost_agents as f64 > self.threshold * agents as f64;
        self.threshold < 1.0 && (exceeds_share || (agents > 1 && lost_agents == agents))
    }
}

/// A loss that the guard withholds, and the polls that agree on it.
pub(super) struct WithheldLoss {
    lost_agents: usize,
    polls: u32,
    since: SystemTime,
}

impl WithheldLoss {
    /// Creates a loss that no poll has reported yet.
    pub(super) fn new() -> Self {
        Self { lost_agents: 0, polls: 0, since: SystemTime::UNIX_EPOCH }
    }

    /// Records an update that would lose `lost_agents`; `is_poll` tells whether the whole poll succeeded.
    pub(super) fn record_update(&mut self, lost_agents: usize, is_poll: bool) {
        if self.polls == 0 {
            self.since = SystemTime::now();
        }
        self.lost_agents = lost_agents;
        self.polls += u32::from(is_poll);
    }

    /// Starts counting polls again, because one failed.
    pub(super) fn reset_polls(&mut self) {
        self.polls = 0;
    }

    /// Returns whether enough polls over enough time agree.
    pub(super) fn is_confirmed(&self, policy: &LossGuardPolicy) -> bool {
        let withheld_for = SystemTime::now().duration_since(self.since).unwrap_or_default();
        self.polls >= CONFIRMING_POLLS && withheld_for >= policy.confirm_after
    }

    /// Returns the number of agents that would be removed.
    pub(super) fn lost_agents(&self) -> usize {
        self.lost_agents
    }
}
