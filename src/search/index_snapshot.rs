//! Immutable snapshot of the indexed agents. Slots are in the order of ids, so that the slot breaks ties. Unchanged
//! agents are copied from the previous snapshot, without tokenizing or embedding them again.

use super::{
    agent_indexer::AgentIndexer,
    bitset::Bitset,
    embedding::EmbeddingModel,
    embedding_table::{EmbeddingTable, slot_map},
    inverted_index::{InvertedIndex, PostingsBuilder, REMOVED_SLOT},
};
use crate::agent::{Agent, AgentStatus};
use std::sync::Arc;

/// Snapshot of the indexed agents.
#[derive(Debug, Default)]
pub(super) struct IndexSnapshot {
    /// Number of the snapshot; each update makes the next one.
    pub(super) generation: u64,
    /// For each slot the slot that the unchanged agent had in the previous snapshot, or [`REMOVED_SLOT`].
    pub(super) previous_slots: Vec<u32>,
    /// Agents by slot.
    pub(super) agents: Vec<Arc<Agent>>,
    /// Terms of their texts, and facets.
    pub(super) terms: InvertedIndex,
    /// Length of each agent's text by slot, in the weight of its terms.
    pub(super) lengths: Vec<f32>,
    /// Embeddings by slot; without rows if there is no model.
    pub(super) embeddings: EmbeddingTable,
    /// Slots of each status.
    pub(super) active: Bitset,
    pub(super) inactive: Bitset,
    pub(super) deprecated: Bitset,
}

impl IndexSnapshot {
    /// Builds the snapshot of `agents` from this one. Of two agents with the same id the first one is kept.
    pub(super) fn rebuild(&self, mut agents: Vec<Arc<Agent>>, model: Option<&EmbeddingModel>) -> Self {
        agents.sort_by(|one, other| one.id.cmp(&other.id));
        agents.dedup_by(|later, first| later.id == first.id);
        agents.shrink_to_fit();
        let previous_slots = self.previous_slots(&agents);
        let mut next = Self {
            embeddings: EmbeddingTable::new(model.map_or(0, EmbeddingModel::dimensions), agents.len()),
            ..Self::default()
        };
        (next.active, next.inactive, next.deprecated) = slots_by_status(&agents);
        next.lengths.reserve_exact(agents.len());
        let (mut postings, mut indexer) = (PostingsBuilder::default(), AgentIndexer::default());
        for ((slot, agent), previous_slot) in (0..).zip(&agents).zip(&previous_slots) {
            match previous_slot.map(|previous_slot| previous_slot as usize) {
                Some(previous_slot) => {
                    next.lengths.push(self.lengths.get(previous_slot).copied().unwrap_or_default());
                    next.embeddings.push_copy(&self.embeddings, previous_slot);
                }
                None => {
                    next.lengths.push(indexer.index_agent(agent, slot, &mut postings));
                    let embedding = model.and_then(|model| model.embed(indexer.indexed_text()));
                    next.embeddings.push(embedding.map(|embedding| embedding.components).as_deref());
                }
            }
        }
        next.terms = self.terms.merge(&slot_map(&previous_slots, self.agents.len()), postings);
        next.generation = self.generation + 1;
        next.previous_slots = previous_slots.into_iter().map(|slot| slot.unwrap_or(REMOVED_SLOT)).collect();
        next.agents = agents;
        next
    }

    /// Returns for each of `agents` its slot in this snapshot, if its document is unchanged.
    fn previous_slots(&self, agents: &[Arc<Agent>]) -> Vec<Option<u32>> {
        let mut old = (0..).zip(&self.agents).peekable();
        let mut previous_slot = |agent: &Arc<Agent>| {
            while old.next_if(|(_, previous)| previous.id < agent.id).is_some() {}
            let (slot, previous) = old.next_if(|(_, previous)| previous.id == agent.id)?;
            (previous.digest == agent.digest).then_some(slot)
        };
        agents.iter().map(&mut previous_slot).collect()
    }
}

/// Returns the slots of active, inactive and deprecated agents.
fn slots_by_status(agents: &[Arc<Agent>]) -> (Bitset, Bitset, Bitset) {
    let empty = || Bitset::with_capacity(agents.len());
    let (mut active, mut inactive, mut deprecated) = (empty(), empty(), empty());
    for (slot, agent) in (0..).zip(agents) {
        match agent.status {
            AgentStatus::Active => active.insert(slot),
            AgentStatus::Inactive => inactive.insert(slot),
            AgentStatus::Deprecated(_) => deprecated.insert(slot),
        }
    }
    (active, inactive, deprecated)
}
