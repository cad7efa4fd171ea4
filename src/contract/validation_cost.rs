//! Validation cost: an upper bound on the work to validate a value against a schema. References can double the work
//! with every level of the value, and a pattern multiplies it by the length of a text, although schema and value are
//! small. Therefore the work at each depth is computed when the schema is compiled, and a body is weighed before it is
//! validated, unless it is so short that no body of its length is expensive.

use super::{
    subschema_graph::{SchemaGraph, Subschema},
    work_rates::{EVALUATION_NANOS, ValueWork, WorkRates},
};
use crate::values::json::MAX_DEPTH;
use serde_json::Value;

/// Maximum length of a chain of subschemas in one validation, because each subschema needs stack.
const MAX_CHAIN_LENGTH: u64 = 1_000;
/// Maximum work for the top-level value alone, in nanoseconds.
const MAX_NANOS_PER_VALUE: u64 = 100_000 * EVALUATION_NANOS;
/// Maximum work of one validation, in nanoseconds.
const MAX_NANOS: u64 = 2_000_000_000;
/// Maximum work for which every violation is collected, because each violation needs memory.
const MAX_NANOS_ALL_VIOLATIONS: u64 = 20_000_000;
/// Work up to which a validation may run on a thread that serves other calls.
pub(super) const LIGHT_NANOS: u64 = 10_000_000;

/// Bounds of the values that can be validated against one schema.
#[derive(Debug)]
pub(super) struct ValidationCost {
    /// Work by the depth of the value; none beyond the end.
    rates_by_depth: Box<[WorkRates]>,
    /// Maximum depth of a value, if it is less than the maximum depth of a body.
    max_depth: Option<usize>,
    /// Length up to which every body is light, in bytes.
    light_bytes: usize,
    has_alternatives: bool,
}

/// Why a value cannot be validated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ExceededBound {
    /// It is nested too deeply for the chains of references of its schema.
    Depth(usize),
    /// The validation would take too long.
    Work,
}

impl ExceededBound {
    pub(super) fn message(&self) -> String {
        match self {
            Self::Depth(max_depth) => {
                format!("is nested too deeply to be checked against its schema (at most {max_depth} levels)")
            }
            Self::Work => "is too large and too deeply nested to be checked against its schema".to_owned(),
        }
    }
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
        let (mut rates_by_depth, mut max_depth) = (Vec::new(), None);
        let mut cost_below: Vec<SubschemaCost> = Vec::new();
        for depth in 0..=usize::from(MAX_DEPTH) {
            let cost = cost_at_depth(graph, &order, &cost_below, depth == 0);
            let root = cost.first().copied().unwrap_or_default();
            if depth == 0 && root.work.value > MAX_NANOS_PER_VALUE {
                return Err("the schema applies too many subschemas to one value".to_owned());
            }
            if root.chain_length > MAX_CHAIN_LENGTH {
                max_depth = depth.checked_sub(1);
                if max_depth.is_none() {
                    return Err("the schema's chain of references is too long".to_owned());
                }
                break;
            }
            rates_by_depth.push(root.work);
            if cost.iter().all(|cost| cost.work.is_zero()) {
                break;
            }
            cost_below = cost;
        }
        Ok(Self {
            light_bytes: if max_depth.is_none() { light_bytes(&rates_by_depth) } else { 0 },
            rates_by_depth: rates_by_depth.into(),
            max_depth,
            has_alternatives: graph.has_alternatives,
        })
    }

    /// Returns whether every body of this length is light.
    pub(super) fn is_light(&self, body_bytes: usize) -> bool {
        body_bytes <= self.light_bytes
    }

    /// Returns the work to validate `value`, in nanoseconds.
    ///
    /// # Errors
    /// The bound that `value` exceeds.
    pub(super) fn weigh(&self, value: &Value) -> Result<u64, ExceededBound> {
        let mut work = ValueWork::default();
        work.add(value, 0, &self.rates_by_depth);
        match self.max_depth {
            Some(max_depth) if work.depth > max_depth => Err(ExceededBound::Depth(max_depth)),
            _ if work.nanos > MAX_NANOS => Err(ExceededBound::Work),
            _ => Ok(work.nanos),
        }
    }

    /// Returns how many violations of a value that needs this much work may be collected.
    pub(super) fn violation_search(&self, nanos: u64) -> ViolationSearch {
        match (nanos <= MAX_NANOS_ALL_VIOLATIONS, self.has_alternatives) {
            (true, _) => ViolationSearch::All,
            (false, false) => ViolationSearch::First,
            // The first violation of alternatives holds the violations of every alternative.
            (false, true) => ViolationSearch::None,
        }
    }
}

/// Returns the length up to which no body needs more than [`LIGHT_NANOS`].
fn light_bytes(rates_by_depth: &[WorkRates]) -> usize {
    // A value is compared once for each level above it.
    let nodes = rates_by_depth.iter().fold(0, |sum: u64, rates| sum.saturating_add(rates.node));
    let rates = rates_by_depth.iter().copied().fold(WorkRates::default(), WorkRates::max);
    let per_byte = WorkRates { node: nodes, ..rates }.per_body_byte().max(1);
    usize::try_from(LIGHT_NANOS / per_byte).unwrap_or(usize::MAX)
}

/// What one subschema costs at one depth below its value.
#[derive(Clone, Copy, Default)]
struct SubschemaCost {
    work: WorkRates,
    /// The longest chain of subschemas up to that depth.
    chain_length: u64,
}

/// Returns the cost of every subschema at one depth below its value.
fn cost_at_depth(
    graph: &SchemaGraph,
    order: &[usize],
    cost_below: &[SubschemaCost],
    is_root: bool,
) -> Vec<SubschemaCost> {
    if !is_root {
        return sum_in_order(graph, order, cost_below, |_| SubschemaCost::default());
    }
    let own_cost = |subschema: &Subschema| SubschemaCost { work: subschema.work, chain_length: 0 };
    let without_names = sum_in_order(graph, order, cost_below, own_cost);
    if graph.subschemas.iter().all(|subschema| subschema.names.is_empty()) {
        return without_names;
    }
    // A name is a string: the cost of its subschemas is known before the names themselves are counted.
    sum_in_order(graph, order, cost_below, |subschema| {
        let names = subschema.names.iter().filter_map(|index| without_names.get(*index));
        names.fold(own_cost(subschema), |sum, name| SubschemaCost {
            work: sum.work.plus(name.work.of_names()),
            chain_length: sum.chain_length.max(name.chain_length),
        })
    })
}

fn sum_in_order(
    graph: &SchemaGraph,
    order: &[usize],
    cost_below: &[SubschemaCost],
    own_cost: impl Fn(&Subschema) -> SubschemaCost,
) -> Vec<SubschemaCost> {
    let mut cost = vec![SubschemaCost::default(); graph.subschemas.len()];
    for &at in order {
        let Some(subschema) = graph.subschemas.get(at) else {
            continue;
        };
        let mut sum = own_cost(subschema);
        for &in_place_index in &subschema.in_place {
            let added = cost.get(in_place_index).copied().unwrap_or_default();
            sum.work = sum.work.plus(added.work);
            sum.chain_length = sum.chain_length.max(added.chain_length);
        }
        for group in &subschema.children {
            let costs = group.iter().filter_map(|index| cost_below.get(*index));
            let highest = costs.fold(SubschemaCost::default(), |highest, cost| SubschemaCost {
                work: highest.work.max(cost.work),
                chain_length: highest.chain_length.max(cost.chain_length),
            });
            sum.work = sum.work.plus(highest.work);
            sum.chain_length = sum.chain_length.max(highest.chain_length);
        }
        sum.chain_length = if sum.work.is_zero() { 0 } else { sum.chain_length + 1 };
        if let Some(subschema_cost) = cost.get_mut(at) {
            *subschema_cost = sum;
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
