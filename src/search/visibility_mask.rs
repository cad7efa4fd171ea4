//! The indexed agents that a caller may see, with the statistics of ranking over these agents only. A score that counted
//! hidden agents would tell a caller which words they have.

use super::{
    bitset::Bitset,
    index_snapshot::IndexSnapshot,
    inverted_index::{Postings, REMOVED_SLOT},
};
use crate::agent::Agent;

/// The agents of one snapshot of the index that a caller may see.
///
/// Computing it evaluates the visibility of every agent. For the next snapshot only the new and the changed agents are
/// evaluated, so that a mask is worth keeping. It costs one bit for each agent.
#[derive(Debug)]
pub struct VisibilityMask {
    /// Number of the snapshot.
    generation: u64,
    slots: Bitset,
    /// Number of visible agents.
    agent_count: usize,
    /// Mean length of their texts.
    mean_length: f32,
}

impl VisibilityMask {
    /// Computes the mask of `snapshot`; `previous` is a mask of the same callers for an earlier snapshot.
    pub(super) fn new(snapshot: &IndexSnapshot, previous: Option<&Self>, is_visible: &dyn Fn(&Agent) -> bool) -> Self {
        let previous = previous.filter(|previous| previous.generation + 1 == snapshot.generation);
        let mut slots = Bitset::with_capacity(snapshot.agents.len());
        let (mut agent_count, mut total_length) = (0, 0.0f32);
        for (slot, agent) in (0u32..).zip(&snapshot.agents) {
            let previous_slot =
                snapshot.previous_slots.get(slot as usize).copied().filter(|slot| *slot != REMOVED_SLOT);
            let visible = match (previous, previous_slot) {
                (Some(previous), Some(previous_slot)) => previous.slots.contains(previous_slot),
                _ => is_visible(agent),
            };
            if visible {
                slots.insert(slot);
                agent_count += 1;
                // In the order of ids, so that hidden agents do not change the rounding.
                total_length += snapshot.lengths.get(slot as usize).copied().unwrap_or_default();
            }
        }
        let mean_length = total_length / (agent_count as f32).max(1.0);
        Self { generation: snapshot.generation, slots, agent_count, mean_length }
    }

    /// Returns whether the mask belongs to `snapshot`.
    pub(super) fn is_current(&self, snapshot: &IndexSnapshot) -> bool {
        self.generation == snapshot.generation
    }

    /// Returns the slots of the visible agents.
    pub(super) fn slots(&self) -> &Bitset {
        &self.slots
    }

    /// Returns the number of visible agents.
    pub(super) fn agent_count(&self) -> usize {
        self.agent_count
    }

    /// Returns the mean length of the texts of visible agents.
    pub(super) fn mean_length(&self) -> f32 {
        self.mean_length
    }

    /// Returns the number of visible agents that have a term.
    pub(super) fn document_frequency(&self, postings: Postings<'_>) -> usize {
        postings.slots().filter(|slot| self.slots.contains(*slot)).count()
    }

    /// Returns whether a visible agent has a term.
    pub(super) fn has_term(&self, postings: Postings<'_>) -> bool {
        postings.slots().any(|slot| self.slots.contains(slot))
    }
}
