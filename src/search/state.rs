//! Immutable snapshot of the indexed agents. Slots are in the order of ids, so that the slot breaks ties. Unchanged
//! agents are copied from the previous snapshot, without tokenizing or embedding them again.

use super::{
    bits::Bits,
    lexicon::{Fresh, Lexicon},
    model::Model,
    read::Reader,
    vectors::{Vectors, moves},
};
use crate::agent::{Agent, Status};
use std::sync::Arc;

/// Snapshot of the indexed agents.
#[derive(Debug, Default)]
pub(super) struct State {
    /// Agents by slot.
    pub(super) agents: Vec<Arc<Agent>>,
    /// Terms of their texts, and facets.
    pub(super) lexicon: Lexicon,
    /// Length of each agent's text by slot, in the weight of its terms.
    pub(super) lengths: Vec<f32>,
    /// Embeddings by slot; without rows if there is no model.
    pub(super) vectors: Vectors,
    /// Slots of each status.
    pub(super) active: Bits,
    pub(super) inactive: Bits,
    pub(super) deprecated: Bits,
}

impl State {
    /// Builds the snapshot of these agents. Of two agents with the same id the first one is kept.
    pub(super) fn next(&self, mut agents: Vec<Arc<Agent>>, model: Option<&Model>) -> Self {
        agents.sort_by(|one, other| one.id.cmp(&other.id));
        agents.dedup_by(|later, first| later.id == first.id);
        agents.shrink_to_fit();
        let origins = self.origins(&agents);
        let mut next =
            Self { vectors: Vectors::new(model.map_or(0, Model::dimensions), agents.len()), ..Self::default() };
        (next.active, next.inactive, next.deprecated) = by_status(&agents);
        next.lengths.reserve_exact(agents.len());
        let (mut fresh, mut reader) = (Fresh::default(), Reader::default());
        for ((slot, agent), origin) in (0..).zip(&agents).zip(&origins) {
            match origin.map(|origin| origin as usize) {
                Some(origin) => {
                    next.lengths.push(self.lengths.get(origin).copied().unwrap_or_default());
                    next.vectors.push_from(&self.vectors, origin);
                }
                None => {
                    next.lengths.push(reader.read(agent, slot, &mut fresh));
                    let direction = model.and_then(|model| model.direction(reader.text()));
                    next.vectors.push(direction.map(|direction| direction.cells).as_deref());
                }
            }
        }
        next.lexicon = self.lexicon.merge(&moves(&origins, self.agents.len()), fresh);
        next.agents = agents;
        next
    }

    /// Returns for each of `agents` its slot in this snapshot, if its document is unchanged.
    fn origins(&self, agents: &[Arc<Agent>]) -> Vec<Option<u32>> {
        let mut old = (0..).zip(&self.agents).peekable();
        let mut origin = |agent: &Arc<Agent>| {
            while old.next_if(|(_, held)| held.id < agent.id).is_some() {}
            let (slot, held) = old.next_if(|(_, held)| held.id == agent.id)?;
            (held.digest == agent.digest).then_some(slot)
        };
        agents.iter().map(&mut origin).collect()
    }
}

/// Returns the slots of active, inactive and deprecated agents.
fn by_status(agents: &[Arc<Agent>]) -> (Bits, Bits, Bits) {
    let empty = || Bits::empty(agents.len());
    let (mut active, mut inactive, mut deprecated) = (empty(), empty(), empty());
    for (slot, agent) in (0..).zip(agents) {
        match agent.status {
            Status::Active => active.insert(slot),
            Status::Inactive => inactive.insert(slot),
            Status::Deprecated(_) => deprecated.insert(slot),
        }
    }
    (active, inactive, deprecated)
}
