//! One search of a pattern in a text.

use std::task::Poll;

use crate::fuel::Fuel;

use super::backtrack_program::BacktrackProgram;
use super::backtracker::{BacktrackInput, Backtracker};
use super::dense_dfa::DfaPosition;
use super::plan::{PartEngine, SimulationPrograms};
use super::position_bits::PositionBits;
use super::sequence::{CharacterSequence, SequencePosition};
use super::simulation::{NfaSimulation, SimulationInput, SimulationOutput};
use super::{MAX_MATCH_MEMORY, OutOfMemory, Pattern};

/// Bytes of the longest text that is matched without a [`Match`].
const MAX_QUICK_BYTES: usize = 4096;

/// States for whose memory a unit of fuel pays, and bytes of tables.
const STATES_PER_UNIT: u64 = 16;
const BYTES_PER_UNIT: u64 = 64;

/// The state of one search of a pattern in a text.
#[derive(Debug)]
pub struct Match {
    /// The part of the pattern that is being matched.
    part: usize,
    state: PartState,
    verdict: Option<bool>,
}

#[derive(Debug)]
enum PartState {
    Waiting,
    Sequence(SequencePosition),
    Dense(DfaPosition),
    Simulation(Box<LookSearch>),
    Backtrack(Box<Backtracker>),
}

/// The state of matching with look-arounds: their tables one after the other, and then the automaton that reads them.
#[derive(Debug)]
struct LookSearch {
    tables: Vec<PositionBits>,
    simulation: NfaSimulation,
}

impl Pattern {
    /// Matches a short text if no memory is needed for that, and returns nothing otherwise.
    ///
    /// Whether it returns a verdict depends on the pattern and on the length of the text only. It takes the same fuel as
    /// a [`Match`].
    #[inline]
    pub fn quick_match(&self, text: &str, fuel: &mut Fuel) -> Option<bool> {
        if text.len() > MAX_QUICK_BYTES || !self.is_quick {
            return None;
        }
        for part in &self.parts {
            let is_match = match &part.engine {
                PartEngine::Sequence(sequence) => sequence.compare(text, &self.classes, fuel),
                PartEngine::Dense(dfa) => dfa.run(text, fuel),
                _ => return None,
            };
            if is_match == part.is_negative {
                return Some(false);
            }
        }
        Some(true)
    }
}

impl Match {
    /// Starts a search.
    pub fn start(_pattern: &Pattern) -> Self {
        Self { part: 0, state: PartState::Waiting, verdict: None }
    }

    /// Goes on with the search until the verdict is known or the fuel is spent.
    ///
    /// `pattern` and `text` must be the same at each call.
    pub fn resume(&mut self, pattern: &Pattern, text: &str, fuel: &mut Fuel) -> Poll<Result<bool, OutOfMemory>> {
        if let Some(verdict) = self.verdict {
            return Poll::Ready(Ok(verdict));
        }
        while let Some(part) = pattern.parts.get(self.part) {
            if fuel.is_spent() {
                return Poll::Pending;
            }
            let is_match = match self.resume_part(&part.engine, pattern, text, fuel) {
                Poll::Ready(Ok(is_match)) => is_match,
                other => return other,
            };
            if is_match == part.is_negative {
                self.verdict = Some(false);
                return Poll::Ready(Ok(false));
            }
            self.part += 1;
            self.state = PartState::Waiting;
        }
        self.verdict = Some(true);
        Poll::Ready(Ok(true))
    }

    fn resume_part(
        &mut self,
        engine: &PartEngine,
        pattern: &Pattern,
        text: &str,
        fuel: &mut Fuel,
    ) -> Poll<Result<bool, OutOfMemory>> {
        if matches!(self.state, PartState::Waiting) {
            match PartState::start(engine, text, fuel) {
                Ok(state) => self.state = state,
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
        match (&mut self.state, engine) {
            (PartState::Sequence(at), PartEngine::Sequence(sequence)) => {
                sequence.resume(at, text, &pattern.classes, fuel).map(Ok)
            }
            (PartState::Dense(at), PartEngine::Dense(dfa)) => dfa.resume(at, text, fuel).map(Ok),
            (PartState::Simulation(search), PartEngine::Simulation(programs)) => {
                search.resume(programs, pattern, text, fuel)
            }
            (PartState::Backtrack(backtracker), PartEngine::Backtrack(program)) => {
                backtracker.resume(BacktrackInput { program, classes: &pattern.classes, text }, fuel)
            }
            // The caller changed the pattern: there is no verdict.
            _ => Poll::Ready(Err(OutOfMemory)),
        }
    }
}

impl PartState {
    fn start(engine: &PartEngine, text: &str, fuel: &mut Fuel) -> Result<Self, OutOfMemory> {
        Ok(match engine {
            PartEngine::Sequence(_) => Self::Sequence(CharacterSequence::start()),
            PartEngine::Dense(dfa) => Self::Dense(dfa.start()),
            PartEngine::Backtrack(program) => Self::start_backtracker(program, text, fuel)?,
            PartEngine::Simulation(programs) => Self::Simulation(Box::new(LookSearch::start(programs, text, fuel)?)),
        })
    }

    fn start_backtracker(program: &BacktrackProgram, text: &str, fuel: &mut Fuel) -> Result<Self, OutOfMemory> {
        fuel.charge(4 + u64::from(program.register_count) / STATES_PER_UNIT);
        Ok(Self::Backtrack(Box::new(Backtracker::new(program, text)?)))
    }
}

/// Starts the simulation of the look-around with this index, or behind the last look-around that of the main automaton.
fn start_simulation(programs: &SimulationPrograms, index: usize, text: &str, fuel: &mut Fuel) -> NfaSimulation {
    let look = programs.looks.get(index);
    let program = look.unwrap_or(&programs.main);
    fuel.charge(4 + program.len() as u64 / STATES_PER_UNIT);
    let output = match look {
        Some(_) => {
            fuel.charge_bytes(PositionBits::memory_for(text.len()), BYTES_PER_UNIT);
            SimulationOutput::Ends(PositionBits::new(text.len()))
        }
        None => SimulationOutput::Verdict,
    };
    NfaSimulation::new(program, text.len(), output)
}

impl LookSearch {
    fn start(programs: &SimulationPrograms, text: &str, fuel: &mut Fuel) -> Result<Self, OutOfMemory> {
        let tables = PositionBits::memory_for(text.len()) * programs.looks.len();
        if tables + programs.largest_simulation() > MAX_MATCH_MEMORY {
            return Err(OutOfMemory);
        }
        let simulation = start_simulation(programs, 0, text, fuel);
        Ok(Self { tables: Vec::with_capacity(programs.looks.len()), simulation })
    }

    fn resume(
        &mut self,
        programs: &SimulationPrograms,
        pattern: &Pattern,
        text: &str,
        fuel: &mut Fuel,
    ) -> Poll<Result<bool, OutOfMemory>> {
        loop {
            let look = programs.looks.get(self.tables.len());
            let input = SimulationInput {
                program: look.unwrap_or(&programs.main),
                classes: &pattern.classes,
                text,
                looks: &self.tables,
                max_memory: MAX_MATCH_MEMORY / 2,
            };
            match self.simulation.resume(input, fuel) {
                Poll::Ready(Ok(_)) if look.is_some() => {
                    let ends = self.simulation.take_ends();
                    self.tables.push(ends);
                    self.simulation = start_simulation(programs, self.tables.len(), text, fuel);
                }
                other => return other,
            }
        }
    }
}
