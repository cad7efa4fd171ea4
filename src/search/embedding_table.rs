//! Embeddings of agents, quantized to one byte for each component, and their cosine similarity to a query.

use super::inverted_index::REMOVED_SLOT;

/// Maximum magnitude of a quantized query component: a sum of a thousand of them times 127 fits in 32 bits.
const QUERY_SCALE: f32 = 8192.0;

/// Embeddings of agents, by slot.
#[derive(Debug, Default)]
pub(super) struct EmbeddingTable {
    dimensions: usize,
    components: Vec<i8>,
    /// Scale of each row's integers; 0 for an agent without an embedding.
    scales: Vec<f32>,
}

/// Quantized embedding of a query.
pub(super) struct QueryVector {
    components: Vec<i16>,
    scale: f32,
}

impl QueryVector {
    pub(super) fn new(embedding: &[f32]) -> Self {
        let step = max_magnitude(embedding) / QUERY_SCALE;
        Self { components: embedding.iter().map(|x| (x / step).round() as i16).collect(), scale: step }
    }
}

impl EmbeddingTable {
    pub(super) fn new(dimensions: usize, capacity: usize) -> Self {
        let (cells, steps) = (Vec::with_capacity(dimensions * capacity), Vec::with_capacity(capacity));
        Self { dimensions, components: cells, scales: steps }
    }

    /// Appends an embedding, or none, for the next slot.
    pub(super) fn push(&mut self, embedding: Option<&[f32]>) {
        let direction = embedding.unwrap_or_default();
        let step = max_magnitude(direction) / 127.0;
        let cells = direction.iter().map(|x| (x / step).round() as i8);
        self.components.extend(cells.chain(std::iter::repeat(0)).take(self.dimensions));
        self.scales.push(if step.is_normal() { step } else { 0.0 });
    }

    /// Appends the embedding of a slot of `other` for the next slot.
    pub(super) fn push_copy(&mut self, other: &Self, slot: usize) {
        match (other.row(slot), other.scales.get(slot)) {
            (Some(row), Some(step)) if row.len() == self.dimensions => {
                self.components.extend_from_slice(row);
                self.scales.push(*step);
            }
            _ => self.push(None),
        }
    }

    /// Returns the cosine similarity of the embedding in `slot` and the query.
    pub(super) fn cosine_similarity(&self, slot: u32, query: &QueryVector) -> f32 {
        let (Some(row), Some(step)) = (self.row(slot as usize), self.scales.get(slot as usize)) else { return 0.0 };
        let sum: i32 = row.iter().zip(&query.components).map(|(x, y)| i32::from(*x) * i32::from(*y)).sum();
        sum as f32 * step * query.scale
    }

    fn row(&self, slot: usize) -> Option<&[i8]> {
        let from = slot * self.dimensions;
        self.components.get(from..from + self.dimensions)
    }
}

fn max_magnitude(vector: &[f32]) -> f32 {
    vector.iter().fold(0.0, |most, x| x.abs().max(most))
}

/// Returns the new slot of each old slot, given the old slot of each new one.
pub(super) fn slot_map(previous_slots: &[Option<u32>], before: usize) -> Vec<u32> {
    let mut slot_map = vec![REMOVED_SLOT; before];
    for (slot, origin) in (0u32..).zip(previous_slots) {
        if let Some(place) = origin.and_then(|origin| slot_map.get_mut(origin as usize)) {
            *place = slot;
        }
    }
    slot_map
}
