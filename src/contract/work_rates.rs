//! Work rates: upper bounds of the time that a check needs, by what it depends on.

use serde_json::Value;

/// Time of one evaluation of a subschema.
pub(super) const EVALUATION_NANOS: u64 = 200;
/// Time to look up one name, or to compare two values that are no arrays or objects.
pub(super) const COMPARISON_NANOS: u64 = 20;

/// Nanoseconds of one core per unit of a value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct WorkRates {
    /// For each value.
    pub(super) value: u64,
    /// For each byte of a string.
    pub(super) byte: u64,
    /// For each object.
    pub(super) object: u64,
    /// For each name in an object.
    pub(super) name: u64,
    /// For each byte of a name.
    pub(super) name_byte: u64,
    /// For each value within the value, itself included.
    pub(super) node: u64,
}

impl WorkRates {
    pub(super) fn plus(self, other: Self) -> Self {
        self.combine(other, u64::saturating_add)
    }

    pub(super) fn max(self, other: Self) -> Self {
        self.combine(other, u64::max)
    }

    pub(super) fn is_zero(self) -> bool {
        self == Self::default()
    }

    fn combine(self, other: Self, combine: impl Fn(u64, u64) -> u64) -> Self {
        Self {
            value: combine(self.value, other.value),
            byte: combine(self.byte, other.byte),
            object: combine(self.object, other.object),
            name: combine(self.name, other.name),
            name_byte: combine(self.name_byte, other.name_byte),
            node: combine(self.node, other.node),
        }
    }

    /// Returns the work for a name, which is checked as a string.
    pub(super) fn of_names(self) -> Self {
        Self { name: self.value.saturating_add(self.node), name_byte: self.byte, ..Self::default() }
    }

    /// Returns an upper bound of the work for each byte of a body, whatever it contains. A value takes at least two
    /// bytes with its separator, an object three, a name four.
    pub(super) fn per_body_byte(self) -> u64 {
        let sums = [self.value / 2, self.object / 3, self.name / 4, self.name_byte, self.byte, self.node / 2, 1];
        sums.into_iter().fold(0, u64::saturating_add)
    }
}

/// The work for one value: the sum over all values within it, by their depth.
#[derive(Debug, Default)]
pub(super) struct ValueWork {
    pub(super) nanos: u64,
    pub(super) depth: usize,
}

impl ValueWork {
    /// Adds the work for `value`, and returns how many values it contains. The recursion is bounded by the maximum depth
    /// of a body.
    pub(super) fn add(&mut self, value: &Value, depth: usize, rates_by_depth: &[WorkRates]) -> u64 {
        let rates = rates_by_depth.get(depth).copied().unwrap_or_default();
        self.depth = self.depth.max(depth);
        let (mut nodes, mut nanos) = (1, rates.value);
        match value {
            Value::String(text) => {
                nodes += text.len() as u64 / 64;
                nanos = nanos.saturating_add(rates.byte.saturating_mul(text.len() as u64));
            }
            Value::Array(items) => {
                nodes += items.iter().map(|item| self.add(item, depth + 1, rates_by_depth)).sum::<u64>()
            }
            Value::Object(members) => {
                nanos = nanos.saturating_add(rates.object);
                for (name, member) in members {
                    let name_nanos = rates.name.saturating_add(rates.name_byte.saturating_mul(name.len() as u64));
                    nanos = nanos.saturating_add(name_nanos);
                    nodes += 1 + self.add(member, depth + 1, rates_by_depth);
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
        self.nanos = self.nanos.saturating_add(nanos).saturating_add(rates.node.saturating_mul(nodes));
        nodes
    }
}
