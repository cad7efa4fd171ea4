//! What a pattern costs: the memory of its compiled form, and the time to match a text.

use crate::values::json::truncate;
use jsonschema_regex::{PatternAnalysis, analyze_pattern, to_rust_regex};
use regex_automata::{
    dfa::{StartKind, dense},
    nfa::thompson,
    util::{primitives::StateID, syntax},
};

/// Maximum size of one automaton of a pattern, in bytes. A compiled pattern has two: one for each direction.
pub(super) const MAX_AUTOMATON_BYTES: usize = 1 << 20;
/// Maximum size of the states that a pattern's engine remembers while it matches, in bytes, for each thread.
pub(super) const MAX_STATE_CACHE_BYTES: usize = 512 << 10;
/// Maximum length of a pattern.
const MAX_PATTERN_LENGTH: usize = 32 << 10;
/// A pattern whose deterministic automaton is smaller than this is matched in a time that depends on the text alone.
const MAX_DETERMINISTIC_BYTES: usize = 192 << 10;
/// Size of an automaton above which no deterministic automaton is tried, because the attempt takes long.
const MAX_DETERMINIZED_BYTES: usize = 128 << 10;
/// Time per byte of text where the automaton is deterministic, in nanoseconds.
const DETERMINISTIC_NANOS: u64 = 4;
/// Time per byte of text and state of an automaton that is simulated, in nanoseconds.
const SIMULATED_NANOS: u64 = 12;
/// Memory of the parts of an engine whose size does not depend on the pattern.
const ENGINE_BYTES: u64 = 4 << 10;

/// Upper bounds of what one pattern costs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PatternCost {
    /// Memory of the compiled pattern, and of the states that one thread remembers.
    pub(super) compiled_bytes: u64,
    /// Time to match, in nanoseconds per byte of the text.
    pub(super) nanos_per_byte: u64,
    /// Time to match that does not depend on the text, in nanoseconds.
    pub(super) nanos_per_text: u64,
}

impl PatternCost {
    /// Estimates the cost of `pattern`, an ECMA-262 expression, without keeping a compiled form of it.
    ///
    /// # Errors
    /// The pattern is invalid, has look-around or back-references, or is too large.
    pub(super) fn estimate(pattern: &str) -> Result<Self, String> {
        let quoted = || truncate(&serde_json::Value::from(truncate(pattern, 60)).to_string(), 100);
        let unsupported =
            || format!("{} is not a supported pattern (no look-around, no back-references, bounded size)", quoted());
        if pattern.len() > MAX_PATTERN_LENGTH {
            return Err(format!("the pattern {} is longer than {MAX_PATTERN_LENGTH} bytes", quoted()));
        }
        if let Some(analysis) = analyze_pattern(pattern) {
            return Ok(Self::of_literals(pattern, &analysis));
        }
        let translated = to_rust_regex(pattern).map_err(|()| unsupported())?;
        let expression = syntax::parse(&translated).map_err(|_| unsupported())?;
        let config = thompson::Config::new().nfa_size_limit(Some(MAX_AUTOMATON_BYTES));
        let automaton =
            thompson::Compiler::new().configure(config).build_from_hir(&expression).map_err(|_| unsupported())?;
        let automaton_bytes = automaton.memory_usage() as u64;
        let states = automaton.states().len() as u64;
        let deterministic_bytes = deterministic_size(&automaton);
        let cache_bytes = deterministic_bytes.unwrap_or(MAX_STATE_CACHE_BYTES) as u64;
        Ok(Self {
            // One automaton for each direction, sparse sets of their states, and what the parser keeps.
            compiled_bytes: ENGINE_BYTES
                + 3 * automaton_bytes
                + states * 4 * StateID::SIZE as u64
                + cache_bytes
                + 2 * translated.len() as u64,
            nanos_per_byte: match deterministic_bytes {
                Some(_) => DETERMINISTIC_NANOS,
                None => states.saturating_mul(SIMULATED_NANOS),
            },
            // The states of a deterministic automaton are computed when a text first needs them.
            nanos_per_text: 100 + deterministic_bytes.map_or(0, |bytes| bytes as u64 / 16),
        })
    }

    /// A prefix, an exact text, one of several texts: compared without an automaton.
    fn of_literals(pattern: &str, analysis: &PatternAnalysis<'_>) -> Self {
        let literals = match analysis {
            PatternAnalysis::Alternation(alternatives) => alternatives.len() as u64,
            _ => 1,
        };
        let compiled_bytes = 3 * pattern.len() as u64 + 64 * literals;
        Self { compiled_bytes, nanos_per_byte: 4, nanos_per_text: 20 + 10 * literals }
    }
}

/// Returns the size of the deterministic automaton, if it is small. The engine builds such an automaton lazily, and
/// simulates the pattern's own automaton where it becomes too large.
fn deterministic_size(automaton: &thompson::NFA) -> Option<usize> {
    if automaton.memory_usage() > MAX_DETERMINIZED_BYTES {
        return None;
    }
    let config = dense::Config::new()
        .start_kind(StartKind::Unanchored)
        .accelerate(false)
        .dfa_size_limit(Some(MAX_DETERMINISTIC_BYTES))
        .determinize_size_limit(Some(MAX_DETERMINISTIC_BYTES));
    let deterministic = dense::Builder::new().configure(config).build_from_nfa(automaton).ok()?;
    Some(2 * deterministic.memory_usage())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r127_an_estimate_counts_the_automata_and_the_sets_of_their_states() {
        let pattern = "^(?:[ab]c|d.){40}$";
        let cost = PatternCost::estimate(pattern).unwrap();
        let expression = syntax::parse(&to_rust_regex(pattern).unwrap()).unwrap();
        let automaton = thompson::Compiler::new().build_from_hir(&expression).unwrap();
        let (states, bytes) = (automaton.states().len() as u64, automaton.memory_usage() as u64);
        let cache = deterministic_size(&automaton).unwrap() as u64;
        let translated = to_rust_regex(pattern).unwrap().len() as u64;
        // A sparse set of states has two arrays of their ids, of four bytes each, and an engine has two sets.
        assert_eq!(cost.compiled_bytes, ENGINE_BYTES + 3 * bytes + 16 * states + cache + 2 * translated, "{cost:?}");
    }

    #[test]
    fn r127_texts_and_memory_cost_more_with_more_alternatives() {
        let [one, three] = ["^alpha$", "^(alpha|beta|gamma)$"].map(|pattern| PatternCost::estimate(pattern).unwrap());
        assert!(
            three.compiled_bytes > one.compiled_bytes && three.nanos_per_text > one.nanos_per_text,
            "{one:?} {three:?}"
        );
        assert!((20..1_000).contains(&three.nanos_per_text), "{three:?}");
    }
}
