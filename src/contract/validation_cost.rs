//! Validation cost: an upper bound on the work to validate a value against a schema. References can double the work
//! with every level of the value, although schema and value are small. Therefore the work per value at each depth is
//! computed when the schema is compiled, and a body is weighed before it is validated.

use super::subschema_graph::SchemaGraph;
use crate::values::json::MAX_DEPTH;
use serde_json::Value;

/// Maximum length of a chain of subschemas in one validation, because each subschema needs stack.
const MAX_CHAIN_LENGTH: u64 = 1_000;
/// Maximum number of subschemas that apply to the top-level value.
const MAX_WORK_PER_VALUE: u64 = 100_000;
/// Maximum number of evaluations in one validation.
const MAX_WORK: u64 = 10_000_000;
/// Maximum number of evaluations for which every violation is collected, because each violation needs memory.
const MAX_WORK_ALL_VIOLATIONS: u64 = 100_000;
/// Subschemas per value below which no body of bounded size is too expensive.
const HARMLESS_WORK: u64 = 16;

/// Bounds of the values that can be validated against one schema.
#[derive(Debug)]
pub(super) struct ValidationCost {
    /// Evaluations per value, by the depth of the value; 0 beyond the end.
    work_by_depth: Box<[u64]>,
    /// Maximum depth of a value, if it is less than the maximum depth of a body.
    max_depth: Option<usize>,
    /// Whether a body must be weighed before it is validated.
    needs_weighing: bool,
    has_alternatives: bool,
}

/// How many violations of an invalid value are collected.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ViolationSearch {
    /// Every violation.
    All,
    /// The first violation.
    First,
    /// No violation.
    None,
}

impl ValidationCost {
    /// Computes the cost of a schema.
    ///
    /// # Errors
    /// A schema that refers to itself for the same value, or applies too many subschemas to one value.
    pub(super) fn from_graph(graph: &SchemaGraph) -> Result<Self, String> {
        let order = topological_order(graph)?;
        let (mut work_by_depth, mut max_depth) = (Vec::new(), None);
        let mut cost_below: Vec<(u64, u64)> = Vec::new();
        for depth in 0..=usize::from(MAX_DEPTH) {
            let cost = cost_at_depth(graph, &order, &cost_below, depth == 0);
            let (work, chain_length) = cost.first().copied().unwrap_or_default();
            if depth == 0 && work > MAX_WORK_PER_VALUE {
                return Err("the schema applies too many subschemas to one value".to_owned());
            }
            if chain_length > MAX_CHAIN_LENGTH {
                max_depth = depth.checked_sub(1);
                if max_depth.is_none() {
                    return Err("the schema's chain of references is too long".to_owned());
                }
                break;
            }
            work_by_depth.push(work);
            if cost.iter().all(|(work, _)| *work == 0) {
                break;
            }
            cost_below = cost;
        }
        let needs_weighing = work_by_depth.iter().any(|work| *work > HARMLESS_WORK);
        Ok(Self {
            work_by_depth: work_by_depth.into(),
            max_depth,
            needs_weighing,
            has_alternatives: graph.has_alternatives,
        })
    }

    /// Returns why `value` exceeds the bounds, if it does.
    pub(super) fn exceeded_bound(&self, value: &Value) -> Option<String> {
        if !self.needs_weighing && self.max_depth.is_none() {
            return None;
        }
        let weight = self.weigh(value);
        match self.max_depth {
            Some(max_depth) if weight.depth > max_depth => {
                Some(format!("is nested too deeply to be checked against its schema (at most {max_depth} levels)"))
            }
            _ if weight.work > MAX_WORK => {
                Some("is too large and too deeply nested to be checked against its schema".to_owned())
            }
            _ => None,
        }
    }

    /// Returns how many violations of `value` may be collected.
    pub(super) fn violation_search(&self, value: &Value) -> ViolationSearch {
        match (self.weigh(value).work <= MAX_WORK_ALL_VIOLATIONS, self.has_alternatives) {
            (true, _) => ViolationSearch::All,
            (false, false) => ViolationSearch::First,
            // The first violation of alternatives holds the violations of every alternative.
            (false, true) => ViolationSearch::None,
        }
    }

    fn weigh(&self, value: &Value) -> ValueWeight {
        let mut weight = ValueWeight::default();
        weight.add(value, 0, &self.work_by_depth);
        weight
    }
}

#[derive(Default)]
struct ValueWeight {
    work: u64,
    depth: usize,
}

impl ValueWeight {
    /// Adds the cost of `value`. The recursion is bounded by the maximum depth of a body.
    fn add(&mut self, value: &Value, depth: usize, work_by_depth: &[u64]) {
        let work_per_value = work_by_depth.get(depth).copied().unwrap_or_default();
        let size = value.as_str().map_or(1, |text| 1 + text.len() as u64 / 64);
        self.work = self.work.saturating_add(work_per_value.saturating_mul(size));
        self.depth = self.depth.max(depth);
        match value {
            Value::Array(items) => items.iter().for_each(|item| self.add(item, depth + 1, work_by_depth)),
            Value::Object(members) => members.values().for_each(|member| self.add(member, depth + 1, work_by_depth)),
            _ => {}
        }
    }
}

/// Returns for every subschema the number of evaluations at one depth below its value, and the longest chain of
/// subschemas up to that depth.
fn cost_at_depth(graph: &SchemaGraph, order: &[usize], cost_below: &[(u64, u64)], is_root: bool) -> Vec<(u64, u64)> {
    let mut cost = vec![(0, 0); graph.subschemas.len()];
    for &at in order {
        let Some(subschema) = graph.subschemas.get(at) else {
            continue;
        };
        let (mut work, mut chain_length) = if is_root { (subschema.weight, 0) } else { (0, 0) };
        for &in_place_index in &subschema.in_place {
            let (added_work, added_length) = cost.get(in_place_index).copied().unwrap_or_default();
            (work, chain_length) = (u64::saturating_add(work, added_work), u64::max(chain_length, added_length));
        }
        for group in &subschema.children {
            let cost_of = |index: &usize| cost_below.get(*index).copied().unwrap_or_default();
            work = work.saturating_add(group.iter().map(|index| cost_of(index).0).max().unwrap_or_default());
            chain_length = chain_length.max(group.iter().map(|index| cost_of(index).1).max().unwrap_or_default());
        }
        let chain_length = if work > 0 { chain_length + 1 } else { 0 };
        if let Some(subschema_cost) = cost.get_mut(at) {
            *subschema_cost = (work, chain_length);
        }
    }
    cost
}

/// Sorts the subschemas so that each follows its in-place subschemas.
fn topological_order(graph: &SchemaGraph) -> Result<Vec<usize>, String> {
    #[derive(Clone, Copy, PartialEq)]
    enum VisitState {
        Unvisited,
        InProgress,
        Done,
    }
    let mut states = vec![VisitState::Unvisited; graph.subschemas.len()];
    let mut order = Vec::with_capacity(graph.subschemas.len());
    for start in 0..graph.subschemas.len() {
        let mut stack = vec![(start, 0)];
        while let Some((at, next)) = stack.pop() {
            let (Some(subschema), Some(state)) = (graph.subschemas.get(at), states.get_mut(at)) else {
                continue;
            };
            match (next, *state) {
                (0, VisitState::Done) => continue,
                (0, VisitState::InProgress) => {
                    return Err("the schema refers to itself for the same value: validation would never end".to_owned());
                }
                _ => *state = VisitState::InProgress,
            }
            match subschema.in_place.get(next) {
                Some(&in_place_index) => stack.extend([(at, next + 1), (in_place_index, 0)]),
                None => {
                    *state = VisitState::Done;
                    order.push(at);
                }
            }
        }
    }
    Ok(order)
}
