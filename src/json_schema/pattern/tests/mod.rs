//! Tests of patterns.

mod back_references;
mod classes;
mod compile_bounds;
mod fuel_slices;
mod grammar;
mod look_around;
mod repeats;

use std::task::Poll;

use crate::fuel::Fuel;

use super::{Match, OutOfMemory, Pattern, PatternError};

/// Fuel that no test uses up.
const PLENTY: u64 = 1 << 40;

/// Memory that all patterns of the tests may hold unless a test says otherwise.
const MAX_MEMORY: usize = 1 << 20;

/// Compiles a pattern that must be valid.
fn compile(source: &str) -> Pattern {
    try_compile(source).unwrap_or_else(|error| panic!("{source}: {error}"))
}

/// Compiles a pattern.
fn try_compile(source: &str) -> Result<Pattern, PatternError> {
    Pattern::compile(source, &mut Fuel::new(PLENTY), MAX_MEMORY)
}

/// Matches in slices of `units`, and returns the verdict with the fuel that was used.
fn match_in_slices(pattern: &Pattern, text: &str, units: u64) -> (Result<bool, OutOfMemory>, u64) {
    let mut search = Match::start(pattern);
    let mut used = 0;
    loop {
        let mut fuel = Fuel::new(units);
        let poll = search.resume(pattern, text, &mut fuel);
        used += fuel.used();
        if let Poll::Ready(verdict) = poll {
            return (verdict, used);
        }
    }
}

/// Matches without a bound of fuel, in both ways if both are possible.
fn is_match(pattern: &Pattern, text: &str) -> bool {
    let (verdict, used) = match_in_slices(pattern, text, PLENTY);
    let verdict = verdict.unwrap();
    let mut fuel = Fuel::new(PLENTY);
    if let Some(quick) = pattern.quick_match(text, &mut fuel) {
        assert_eq!((quick, fuel.used()), (verdict, used), "the quick match differs: {text:?}");
    }
    verdict
}

/// A pattern with texts that it matches and texts that it does not match.
type MatchCase<'c> = (&'c str, &'c [&'c str], &'c [&'c str]);

/// Checks patterns with their texts.
fn check_matches(cases: &[MatchCase<'_>]) {
    for (source, matching, other) in cases {
        let pattern = compile(source);
        for text in *matching {
            assert!(is_match(&pattern, text), "{source} does not match {text:?}");
        }
        for text in *other {
            assert!(!is_match(&pattern, text), "{source} matches {text:?}");
        }
    }
}
