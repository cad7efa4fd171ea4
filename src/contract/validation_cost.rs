//! Validation cost: an upper bound on the work to check a value against a schema, known before any value arrives.
//! References can make a schema double its work with every level of the value, while schema and value look harmless.
//! Therefore the work per value at each depth is computed once, and a body is weighed before it is checked.

use super::schema_graph::SchemaGraph;
use crate::values::json::MAX_DEPTH;
use serde_json::Value;

/// Longest chain of subschemas in one check: each takes stack.
const MAX_CHAIN_LENGTH: u64 = 1_000;
/// Maximum number of subschemas that apply to the top-level value.
const MAX_WORK_PER_VALUE: u64 = 100_000;
/// Maximum number of evaluations in one check.
const MAX_WORK: u64 = 10_000_000;
/// Evaluations up to which every violation is collected: each one takes memory.
const MAX_WORK_ALL_VIOLATIONS: u64 = 100_000;
/// Subschemas per value below which no body of bounded size is too expensive.
const HARMLESS_WORK: u64 = 16;

/// Bounds within which values can be checked against one schema.
#[derive(Debug)]
pub(super) struct ValidationCost {
    /// Evaluations per value, by its depth; none beyond the end.
    work_by_depth: Box<[u64]>,
    /// Deepest value that can be checked, if that is less than the deepest body.
    max_depth: Option<usize>,
    /// Whether every body must be weighed.
    needs_weighing: bool,
    has_alternatives: bool,
}

/// How many violations of an invalid value are collected.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ViolationSearch {
    /// Every violation.
    All,
    /// Only the first one.
    First,
    /// None: only that the value is invalid.
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
        let mut below: Vec<(u64, u64)> = Vec::new();
        for depth in 0..=usize::from(MAX_DEPTH) {
            let now = cost_at_depth(graph, &order, &below, depth == 0);
            let (work, way) = now.first().copied().unwrap_or_default();
            if depth == 0 && work > MAX_WORK_PER_VALUE {
                return Err("the schema applies too many subschemas to one value".to_owned());
            }
            if way > MAX_CHAIN_LENGTH {
                max_depth = depth.checked_sub(1);
                if max_depth.is_none() {
                    return Err("the schema's chain of references is too long".to_owned());
                }
                break;
            }
            work_by_depth.push(work);
            if now.iter().all(|(work, _)| *work == 0) {
                break;
            }
            below = now;
        }
        let needs_weighing = work_by_depth.iter().any(|work| *work > HARMLESS_WORK);
        Ok(Self {
            work_by_depth: work_by_depth.into(),
            max_depth,
            needs_weighing,
            has_alternatives: graph.has_alternatives,
        })
    }

    /// Returns why `value` cannot be checked within bounds, if it cannot.
    pub(super) fn exceeded_bound(&self, value: &Value) -> Option<String> {
        if !self.needs_weighing && self.max_depth.is_none() {
            return None;
        }
        let weight = self.weigh(value);
        match self.max_depth {
            Some(deepest) if weight.depth > deepest => {
                Some(format!("is nested too deeply to be checked against its schema (at most {deepest} levels)"))
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
            // The first violation of alternatives carries the violations of each.
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
    /// Adds the cost of `value`. The recursion is bounded by the depth at which bodies are parsed.
    fn add(&mut self, value: &Value, depth: usize, work_by_depth: &[u64]) {
        let times = work_by_depth.get(depth).copied().unwrap_or_default();
        let size = value.as_str().map_or(1, |text| 1 + text.len() as u64 / 64);
        self.work = self.work.saturating_add(times.saturating_mul(size));
        self.depth = self.depth.max(depth);
        match value {
            Value::Array(items) => items.iter().for_each(|item| self.add(item, depth + 1, work_by_depth)),
            Value::Object(members) => members.values().for_each(|member| self.add(member, depth + 1, work_by_depth)),
            _ => {}
        }
    }
}

/// Returns for every subschema the evaluations exactly this depth below its value, and the longest chain to there.
fn cost_at_depth(graph: &SchemaGraph, order: &[usize], below: &[(u64, u64)], is_root: bool) -> Vec<(u64, u64)> {
    let mut now = vec![(0, 0); graph.subschemas.len()];
    for &at in order {
        let Some(part) = graph.subschemas.get(at) else {
            continue;
        };
        let (mut work, mut way) = if is_root { (part.weight, 0) } else { (0, 0) };
        for &same in &part.in_place {
            let (more, longer) = now.get(same).copied().unwrap_or_default();
            (work, way) = (u64::saturating_add(work, more), u64::max(way, longer));
        }
        for group in &part.children {
            let of = |one: &usize| below.get(*one).copied().unwrap_or_default();
            work = work.saturating_add(group.iter().map(|one| of(one).0).max().unwrap_or_default());
            way = way.max(group.iter().map(|one| of(one).1).max().unwrap_or_default());
        }
        let way = if work > 0 { way + 1 } else { 0 };
        if let Some(slot) = now.get_mut(at) {
            *slot = (work, way);
        }
    }
    now
}

/// Sorts the subschemas so that each follows all that apply to the same value.
fn topological_order(graph: &SchemaGraph) -> Result<Vec<usize>, String> {
    #[derive(Clone, Copy, PartialEq)]
    enum VisitState {
        Unvisited,
        InProgress,
        Done,
    }
    let mut seen = vec![VisitState::Unvisited; graph.subschemas.len()];
    let mut order = Vec::with_capacity(graph.subschemas.len());
    for start in 0..graph.subschemas.len() {
        let mut stack = vec![(start, 0)];
        while let Some((at, next)) = stack.pop() {
            let (Some(part), Some(state)) = (graph.subschemas.get(at), seen.get_mut(at)) else {
                continue;
            };
            match (next, *state) {
                (0, VisitState::Done) => continue,
                (0, VisitState::InProgress) => {
                    return Err("the schema refers to itself for the same value: validation would never end".to_owned());
                }
                _ => *state = VisitState::InProgress,
            }
            match part.in_place.get(next) {
                Some(&same) => stack.extend([(at, next + 1), (same, 0)]),
                None => {
                    *state = VisitState::Done;
                    order.push(at);
                }
            }
        }
    }
    Ok(order)
}
