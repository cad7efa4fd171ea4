//! Validation cost: an upper bound on the work to check a value against a schema, known before any value arrives.
//! References can make a schema double its work with every level of the value, while schema and value look harmless.
//! Therefore the work per value at each depth is computed once, and a body is weighed before it is checked.

use super::graph::Graph;
use crate::unit::json::DEEPEST;
use serde_json::Value;

/// Longest chain of subschemas in one check: each takes stack.
const LONGEST_WAY: u64 = 1_000;
/// Maximum number of subschemas that apply to the top-level value.
const MOST_AT_ONCE: u64 = 100_000;
/// Maximum number of evaluations in one check.
const MOST_WORK: u64 = 10_000_000;
/// Evaluations up to which every violation is collected: each one takes memory.
const MOST_EXPLAINED: u64 = 100_000;
/// Subschemas per value below which no body of bounded size is too expensive.
const HARMLESS: u64 = 16;

/// Bounds within which values can be checked against one schema.
#[derive(Debug)]
pub(super) struct Cost {
    /// Evaluations per value, by its depth; none beyond the end.
    spread: Box<[u64]>,
    /// Deepest value that can be checked, if that is less than the deepest body.
    deepest: Option<usize>,
    /// Whether every body must be weighed.
    weighed: bool,
    choice: bool,
}

/// How many violations of an invalid value are collected.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Search {
    /// Every violation.
    All,
    /// Only the first one.
    First,
    /// None: only that the value is invalid.
    None,
}

impl Cost {
    /// Computes the cost of a schema.
    ///
    /// # Errors
    /// A schema that refers to itself for the same value, or applies too many subschemas to one value.
    pub(super) fn of(graph: &Graph) -> Result<Self, String> {
        let order = in_place_order(graph)?;
        let (mut spread, mut deepest) = (Vec::new(), None);
        let mut before: Vec<(u64, u64)> = Vec::new();
        for depth in 0..=usize::from(DEEPEST) {
            let now = level(graph, &order, &before, depth == 0);
            let (work, way) = now.first().copied().unwrap_or_default();
            if depth == 0 && work > MOST_AT_ONCE {
                return Err("the schema applies too many subschemas to one value".to_owned());
            }
            if way > LONGEST_WAY {
                deepest = depth.checked_sub(1);
                if deepest.is_none() {
                    return Err("the schema's chain of references is too long".to_owned());
                }
                break;
            }
            spread.push(work);
            if now.iter().all(|(work, _)| *work == 0) {
                break;
            }
            before = now;
        }
        let weighed = spread.iter().any(|work| *work > HARMLESS);
        Ok(Self { spread: spread.into(), deepest, weighed, choice: graph.choice })
    }

    /// Returns why `value` cannot be checked within bounds, if it cannot.
    pub(super) fn refuses(&self, value: &Value) -> Option<String> {
        if !self.weighed && self.deepest.is_none() {
            return None;
        }
        let weight = self.weigh(value);
        match self.deepest {
            Some(deepest) if weight.depth > deepest => {
                Some(format!("is nested too deeply to be checked against its schema (at most {deepest} levels)"))
            }
            _ if weight.work > MOST_WORK => {
                Some("is too large and too deeply nested to be checked against its schema".to_owned())
            }
            _ => None,
        }
    }

    /// Returns how many violations of `value` may be collected.
    pub(super) fn search(&self, value: &Value) -> Search {
        match (self.weigh(value).work <= MOST_EXPLAINED, self.choice) {
            (true, _) => Search::All,
            (false, false) => Search::First,
            // The first violation of alternatives carries the violations of each.
            (false, true) => Search::None,
        }
    }

    fn weigh(&self, value: &Value) -> Weight {
        let mut weight = Weight::default();
        weight.add(value, 0, &self.spread);
        weight
    }
}

#[derive(Default)]
struct Weight {
    work: u64,
    depth: usize,
}

impl Weight {
    /// Adds the cost of `value`. The recursion is bounded by the depth at which bodies are parsed.
    fn add(&mut self, value: &Value, depth: usize, spread: &[u64]) {
        let times = spread.get(depth).copied().unwrap_or_default();
        let size = value.as_str().map_or(1, |text| 1 + text.len() as u64 / 64);
        self.work = self.work.saturating_add(times.saturating_mul(size));
        self.depth = self.depth.max(depth);
        match value {
            Value::Array(items) => items.iter().for_each(|item| self.add(item, depth + 1, spread)),
            Value::Object(members) => members.values().for_each(|member| self.add(member, depth + 1, spread)),
            _ => {}
        }
    }
}

/// Returns for every subschema the evaluations exactly this depth below its value, and the longest chain to there.
fn level(graph: &Graph, order: &[usize], before: &[(u64, u64)], top: bool) -> Vec<(u64, u64)> {
    let mut now = vec![(0, 0); graph.parts.len()];
    for &at in order {
        let Some(part) = graph.parts.get(at) else {
            continue;
        };
        let (mut work, mut way) = if top { (part.weight, 0) } else { (0, 0) };
        for &same in &part.same {
            let (more, longer) = now.get(same).copied().unwrap_or_default();
            (work, way) = (u64::saturating_add(work, more), u64::max(way, longer));
        }
        for group in &part.below {
            let of = |one: &usize| before.get(*one).copied().unwrap_or_default();
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
fn in_place_order(graph: &Graph) -> Result<Vec<usize>, String> {
    #[derive(Clone, Copy, PartialEq)]
    enum Seen {
        Not,
        Open,
        Done,
    }
    let mut seen = vec![Seen::Not; graph.parts.len()];
    let mut order = Vec::with_capacity(graph.parts.len());
    for start in 0..graph.parts.len() {
        let mut stack = vec![(start, 0)];
        while let Some((at, next)) = stack.pop() {
            let (Some(part), Some(state)) = (graph.parts.get(at), seen.get_mut(at)) else {
                continue;
            };
            match (next, *state) {
                (0, Seen::Done) => continue,
                (0, Seen::Open) => {
                    return Err("the schema refers to itself for the same value: validation would never end".to_owned());
                }
                _ => *state = Seen::Open,
            }
            match part.same.get(next) {
                Some(&same) => stack.extend([(at, next + 1), (same, 0)]),
                None => {
                    *state = Seen::Done;
                    order.push(at);
                }
            }
        }
    }
    Ok(order)
}
