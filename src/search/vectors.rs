//! Embeddings of agents, quantized to one byte for each component, and their cosine similarity to a query.

use super::lexicon::GONE;

/// Maximum magnitude of a quantized query component: a sum of a thousand of them times 127 fits in 32 bits.
const FINEST: f32 = 8192.0;

/// Embeddings of agents, by slot.
#[derive(Debug, Default)]
pub(super) struct Vectors {
    dimensions: usize,
    cells: Vec<i8>,
    /// Scale of each row's integers; 0 for an agent without an embedding.
    steps: Vec<f32>,
}

/// Quantized embedding of a query.
pub(super) struct Probe {
    cells: Vec<i16>,
    step: f32,
}

impl Probe {
    pub(super) fn new(direction: &[f32]) -> Self {
        let step = largest(direction) / FINEST;
        Self { cells: direction.iter().map(|x| (x / step).round() as i16).collect(), step }
    }
}

impl Vectors {
    pub(super) fn new(dimensions: usize, room: usize) -> Self {
        let (cells, steps) = (Vec::with_capacity(dimensions * room), Vec::with_capacity(room));
        Self { dimensions, cells, steps }
    }

    /// Appends an embedding, or none, for the next slot.
    pub(super) fn push(&mut self, direction: Option<&[f32]>) {
        let direction = direction.unwrap_or_default();
        let step = largest(direction) / 127.0;
        let cells = direction.iter().map(|x| (x / step).round() as i8);
        self.cells.extend(cells.chain(std::iter::repeat(0)).take(self.dimensions));
        self.steps.push(if step.is_normal() { step } else { 0.0 });
    }

    /// Appends the embedding of a slot of `other` for the next slot.
    pub(super) fn push_from(&mut self, other: &Self, slot: usize) {
        match (other.row(slot), other.steps.get(slot)) {
            (Some(row), Some(step)) if row.len() == self.dimensions => {
                self.cells.extend_from_slice(row);
                self.steps.push(*step);
            }
            _ => self.push(None),
        }
    }

    /// Returns the cosine similarity of the embedding in `slot` and the query.
    pub(super) fn likeness(&self, slot: u32, probe: &Probe) -> f32 {
        let (Some(row), Some(step)) = (self.row(slot as usize), self.steps.get(slot as usize)) else { return 0.0 };
        let sum: i32 = row.iter().zip(&probe.cells).map(|(x, y)| i32::from(*x) * i32::from(*y)).sum();
        sum as f32 * step * probe.step
    }

    fn row(&self, slot: usize) -> Option<&[i8]> {
        let from = slot * self.dimensions;
        self.cells.get(from..from + self.dimensions)
    }
}

fn largest(direction: &[f32]) -> f32 {
    direction.iter().fold(0.0, |most, x| x.abs().max(most))
}

/// Returns the new slot of each old slot, given the old slot of each new one.
pub(super) fn moves(origins: &[Option<u32>], before: usize) -> Vec<u32> {
    let mut moved = vec![GONE; before];
    for (slot, origin) in (0u32..).zip(origins) {
        if let Some(place) = origin.and_then(|origin| moved.get_mut(origin as usize)) {
            *place = slot;
        }
    }
    moved
}
