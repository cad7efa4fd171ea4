//! Patterns of ECMA-262, as the keywords `pattern` and `patternProperties` have them, matched with fuel.
//!
//! A pattern is parsed by ECMA-262's grammar with the flag `u`, and where that fails by the grammar of Annex B, in
//! which `\p{…}` and `\u{…}` keep their meaning. Both match code points. Whether a text has a match takes time that is linear in the text, unless the pattern has
//! back-references. A pattern is served by the first of these that can serve it:
//!
//! - a comparison of classes in a row, of which one may be repeated
//! - a deterministic automaton of at most 64 KiB, also for look-aheads
//! - a simulation of the automaton with all its states, in which repeats of one class are counted and look-arounds are
//!   tables with one bit for each position (Barrière and Pit-Claudel, PLDI 2024)
//! - for back-references only, a search with backtracking
//!
//! Fuel is charged for each block of text, and a search can stop between two blocks.

mod alphabet;
mod backtrack_program;
mod backtracker;
mod budget;
mod code_points;
mod dense_dfa;
mod escape;
mod nfa;
mod parser;
mod plan;
mod position_bits;
mod property;
mod search;
mod sequence;
mod simulation;
mod syntax;
#[cfg(test)]
mod tests;
mod threads;
mod transition_table;

use std::fmt;

use crate::fuel::Fuel;

use budget::{CompileBudget, MAX_COMPILE_UNITS};
use code_points::ClassTable;
use parser::{Grammar, parse};
use plan::{PatternPart, compile_parts};
pub use search::Match;

/// Bytes of the longest pattern.
pub const MAX_PATTERN_BYTES: usize = 64 * 1024;

/// Bytes that one [`Match`] may hold.
pub const MAX_MATCH_MEMORY: usize = 4 * 1024 * 1024;

/// Why a pattern cannot be served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PatternError {
    /// The text is no pattern of ECMA-262.
    Syntax(String),
    /// The pattern is valid, but too large, or names a property without a table.
    Unsupported(String),
}

impl fmt::Display for PatternError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Syntax(message) => write!(f, "not a pattern of ECMA-262: {message}"),
            Self::Unsupported(message) => write!(f, "unsupported pattern: {message}"),
        }
    }
}

impl std::error::Error for PatternError {}

/// A match needs more memory than [`MAX_MATCH_MEMORY`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutOfMemory;

impl fmt::Display for OutOfMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("matching the pattern needs too much memory")
    }
}

impl std::error::Error for OutOfMemory {}

/// A compiled pattern.
#[derive(Debug)]
pub struct Pattern {
    parts: Box<[PatternPart]>,
    classes: ClassTable,
    memory: usize,
    /// Whether every part can be matched without memory.
    is_quick: bool,
}

impl Pattern {
    /// Compiles a pattern.
    ///
    /// `max_memory` bounds what the compiled pattern holds, and the automata that its compilation makes. The syntax tree
    /// adds some fifty bytes for each byte of the source while the pattern is compiled. Compiling cannot be suspended: it fails
    /// with [`PatternError::Unsupported`] when the fuel is spent, and after 4,000,000 units whatever fuel there is.
    pub fn compile(source: &str, fuel: &mut Fuel, max_memory: usize) -> Result<Self, PatternError> {
        if source.len() > MAX_PATTERN_BYTES {
            return Err(PatternError::Unsupported(format!("longer than {MAX_PATTERN_BYTES} bytes")));
        }
        let mut budget = CompileBudget::new(fuel, max_memory);
        let tree = match parse(source, Grammar::Unicode, &mut budget) {
            Err(PatternError::Syntax(_)) => {
                budget.release(max_memory.saturating_sub(budget.memory_left()));
                parse(source, Grammar::AnnexB, &mut budget)?
            }
            result => result?,
        };
        let (parts, classes) = compile_parts(tree, &mut budget)?;
        let memory = size_of::<Self>() + parts.iter().map(PatternPart::memory).sum::<usize>() + classes.memory();
        if memory > max_memory {
            return Err(PatternError::Unsupported("the pattern is too large".into()));
        }
        // What is left is for the tables of look-arounds, which grow with the text.
        if parts.iter().any(|part| part.simulation_memory() > MAX_MATCH_MEMORY * 3 / 4) {
            return Err(PatternError::Unsupported("matching the pattern needs too much memory".into()));
        }
        let is_quick = parts.iter().all(PatternPart::is_quick);
        Ok(Self { parts: parts.into(), classes, memory, is_quick })
    }

    /// Returns whether a text is a pattern of ECMA-262, as `format: regex` asks.
    ///
    /// Beside the grammar with the flag `u` this accepts that of Annex B, except for a backslash before an ASCII letter
    /// that has no meaning: JSON Schema's test suite refuses `\Z` and `\a`.
    pub fn is_syntactically_valid(source: &str) -> bool {
        if source.len() > MAX_PATTERN_BYTES {
            return false;
        }
        [Grammar::Unicode, Grammar::AnnexBStrictEscapes].into_iter().any(|grammar| {
            let mut fuel = Fuel::new(MAX_COMPILE_UNITS);
            let mut budget = CompileBudget::new(&mut fuel, usize::MAX);
            !matches!(parse(source, grammar, &mut budget), Err(PatternError::Syntax(_)))
        })
    }

    /// Bytes that the compiled pattern holds.
    pub fn memory(&self) -> usize {
        self.memory
    }
}
