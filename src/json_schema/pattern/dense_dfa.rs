//! A deterministic automaton that is built when the pattern is compiled.

use std::task::Poll;

use crate::fuel::Fuel;

use super::PatternError;
use super::alphabet::Alphabet;
use super::budget::CompileBudget;
use super::code_points::ClassTable;
use super::nfa::NfaProgram;
use super::transition_table::{DEAD, TableStart, TransitionTable};

/// Bytes of text between two looks at the fuel.
const BLOCK: usize = 1024;

/// Bytes of text for one unit of fuel.
const BYTES_PER_UNIT: u64 = 4;

/// A deterministic automaton. A state is the index of its row in the table; the first two rows have no entries.
#[derive(Debug)]
pub(super) struct DenseDfa {
    alphabet: Alphabet,
    /// For each state the next state for each symbol, and the verdict at the end of the text.
    table: Box<[u16]>,
    start: u16,
    match_state: u16,
}

/// Where a search with a deterministic automaton is.
#[derive(Clone, Copy, Debug)]
pub(super) struct DfaPosition {
    state: u16,
    position: usize,
}

impl DenseDfa {
    /// Builds the automaton. Returns nothing if it is too large.
    pub(super) fn build(
        program: &NfaProgram,
        looks: &[NfaProgram],
        classes: &ClassTable,
        budget: &mut CompileBudget<'_>,
    ) -> Result<Option<Self>, PatternError> {
        let programs: Vec<&NfaProgram> = looks.iter().chain([program]).collect();
        let Some(alphabet) = Alphabet::new(&programs, classes, budget)? else { return Ok(None) };
        let mut tables: Vec<TransitionTable> = Vec::new();
        for program in programs {
            let Some(table) = TransitionTable::build(program, &tables, &alphabet, classes, budget)? else {
                return Ok(None);
            };
            tables.push(table);
        }
        let Some(table) = tables.pop() else { return Ok(None) };
        let match_state = table.match_row();
        let start = table.start(TableStart::TextStart);
        let dfa = Self { table: table.rows.into_boxed_slice(), start, match_state, alphabet };
        if dfa.memory() > budget.memory_left() {
            return Ok(None);
        }
        budget.hold(dfa.memory())?;
        Ok(Some(dfa))
    }

    /// Bytes that the automaton holds.
    pub(super) fn memory(&self) -> usize {
        self.table.len() * 2 + self.alphabet.memory()
    }

    /// The position before a text.
    pub(super) fn start(&self) -> DfaPosition {
        DfaPosition { state: self.start, position: 0 }
    }

    /// Goes on until the verdict is known or the fuel is spent.
    pub(super) fn resume(&self, at: &mut DfaPosition, text: &str, fuel: &mut Fuel) -> Poll<bool> {
        loop {
            if at.state <= self.match_state {
                return Poll::Ready(at.state == self.match_state);
            }
            if at.position >= text.len() {
                return Poll::Ready(self.next_state(at.state, self.end_symbol()) == self.match_state);
            }
            if fuel.is_spent() {
                return Poll::Pending;
            }
            self.run_block(at, text, fuel);
        }
    }

    /// Matches a text without looking whether the fuel is spent.
    #[inline]
    pub(super) fn run(&self, text: &str, fuel: &mut Fuel) -> bool {
        let mut at = self.start();
        while at.state > self.match_state && at.position < text.len() {
            self.run_block(&mut at, text, fuel);
        }
        let state = if at.state > self.match_state { self.next_state(at.state, self.end_symbol()) } else { at.state };
        state == self.match_state
    }

    fn end_symbol(&self) -> usize {
        usize::from(self.match_state) - 1
    }

    #[inline]
    fn next_state(&self, state: u16, symbol: usize) -> u16 {
        self.table.get(usize::from(state) + symbol).copied().unwrap_or(DEAD)
    }

    fn run_block(&self, at: &mut DfaPosition, text: &str, fuel: &mut Fuel) {
        let block = text.get(at.position..).unwrap_or_default();
        fuel.charge_bytes(block.len().min(BLOCK), BYTES_PER_UNIT);
        let mut state = at.state;
        let bytes = block.as_bytes();
        let mut offset = 0;
        while offset < BLOCK {
            let Some(&byte) = bytes.get(offset) else { break };
            let symbol = if byte < 128 {
                offset += 1;
                self.alphabet.ascii_symbol(byte)
            } else {
                let Some(character) = block.get(offset..).and_then(|rest| rest.chars().next()) else { break };
                offset += character.len_utf8();
                fuel.charge(1);
                self.alphabet.symbol(character)
            };
            state = self.next_state(state, usize::from(symbol));
            if state <= self.match_state {
                break;
            }
        }
        *at = DfaPosition { state, position: at.position + offset };
    }
}
