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
        let scale = max_magnitude(embedding) / QUERY_SCALE;
        Self { components: embedding.iter().map(|x| (x / scale).round() as i16).collect(), scale }
    }
}

impl EmbeddingTable {
    pub(super) fn new(dimensions: usize, capacity: usize) -> Self {
        let (components, scales) = (Vec::with_capacity(dimensions * capacity), Vec::with_capacity(capacity));
        Self { dimensions, components, scales }
    }

    /// Appends an embedding, or none, for the next slot.
    pub(super) fn push(&mut self, embedding: Option<&[f32]>) {
        let components = embedding.unwrap_or_default();
        let scale = max_magnitude(components) / 127.0;
        let quantized = components.iter().map(|x| (x / scale).round() as i8);
        self.components.extend(quantized.chain(std::iter::repeat(0)).take(self.dimensions));
        self.scales.push(if scale.is_normal() { scale } else { 0.0 });
    }

    /// Appends the embedding of a slot of `other` for the next slot.
    pub(super) fn push_copy(&mut self, other: &Self, slot: usize) {
        match (other.row(slot), other.scales.get(slot)) {
            (Some(row), Some(scale)) if row.len() == self.dimensions => {
                self.components.extend_from_slice(row);
                self.scales.push(*scale);
            }
            _ => self.push(None),
        }
    }

    /// Returns the cosine similarity of the embedding in `slot` and the query.
    pub(super) fn cosine_similarity(&self, slot: u32, query: &QueryVector) -> f32 {
        let (Some(row), Some(scale)) = (self.row(slot as usize), self.scales.get(slot as usize)) else { return 0.0 };
        let sum: i32 = row.iter().zip(&query.components).map(|(x, y)| i32::from(*x) * i32::from(*y)).sum();
        sum as f32 * scale * query.scale
    }

    fn row(&self, slot: usize) -> Option<&[i8]> {
        let start = slot * self.dimensions;
        self.components.get(start..start + self.dimensions)
    }
}

fn max_magnitude(vector: &[f32]) -> f32 {
    vector.iter().fold(0.0, |max, x| x.abs().max(max))
}

/// Returns the new slot of each old slot, given the old slot of each new one.
pub(super) fn slot_map(previous_slots: &[Option<u32>], previous_count: usize) -> Vec<u32> {
    let mut slot_map = vec![REMOVED_SLOT; previous_count];
    for (slot, previous_slot) in (0u32..).zip(previous_slots) {
        if let Some(new_slot) = previous_slot.and_then(|previous_slot| slot_map.get_mut(previous_slot as usize)) {
            *new_slot = slot;
        }
    }
    slot_map
}
