//! A deterministic automaton that is built when the pattern is compiled.

use std::collections::HashMap;
use std::task::Poll;

use crate::fuel::Fuel;

use super::PatternError;
use super::alphabet::Alphabet;
use super::budget::CompileBudget;
use super::code_points::{ClassTable, is_word_character};
use super::nfa::{Condition, NfaProgram, NfaState};

/// Entries of a table: 64 KiB.
const MAX_ENTRIES: usize = 32_768;

/// States of the automaton without determinism that building may visit.
const MAX_VISITS: u64 = 400_000;

/// Bytes of text between two looks at the fuel.
const BLOCK: usize = 1024;

/// Bytes of text for one unit of fuel.
const BYTES_PER_UNIT: u64 = 4;

/// The state from which no match follows.
const DEAD: u16 = 0;

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
        classes: &ClassTable,
        budget: &mut CompileBudget<'_>,
    ) -> Result<Option<Self>, PatternError> {
        let Some(alphabet) = Alphabet::new(program, classes, budget)? else { return Ok(None) };
        let mut builder = DfaBuilder::new(program, classes, &alphabet);
        let built = builder.build();
        budget.charge(builder.visits + builder.table.len() as u64 / 4 + 10)?;
        let Some(start) = built else { return Ok(None) };
        let (table, match_state) = (std::mem::take(&mut builder.table), builder.stride as u16);
        let dfa = Self { table: table.into_boxed_slice(), start, match_state, alphabet };
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

/// Marks a state whose position follows a word character, in the key of the state.
const AFTER_WORD: u32 = u32::MAX;

/// Marks the state at the start of the text, in the key of the state.
const AT_START: u32 = u32::MAX - 1;

struct DfaBuilder<'b> {
    program: &'b NfaProgram,
    classes: &'b ClassTable,
    alphabet: &'b Alphabet,
    stride: usize,
    has_word_conditions: bool,
    table: Vec<u16>,
    /// Rows by the states of the other automaton that they stand for.
    rows: HashMap<Box<[u32]>, u16, foldhash::quality::RandomState>,
    queue: Vec<(Box<[u32]>, u16)>,
    reached: Vec<u32>,
    step: u32,
    visits: u64,
}

/// What is known of a position.
#[derive(Clone, Copy)]
struct PositionFacts {
    is_start: bool,
    /// The code point behind the position, or nothing at the end. Absent while that is not known.
    after: Option<Option<u32>>,
    is_after_word: bool,
}

impl<'b> DfaBuilder<'b> {
    fn new(program: &'b NfaProgram, classes: &'b ClassTable, alphabet: &'b Alphabet) -> Self {
        let stride = alphabet.symbol_count() + 1;
        Self {
            program,
            classes,
            alphabet,
            stride,
            has_word_conditions: program.has_word_conditions(),
            table: vec![DEAD; stride * 2],
            rows: HashMap::default(),
            queue: Vec::new(),
            reached: vec![0; program.len()],
            step: 0,
            visits: program.len() as u64 / 8,
        }
    }

    /// Fills the table and returns the first state, or nothing if it becomes too large.
    fn build(&mut self) -> Option<u16> {
        let facts = PositionFacts { is_start: true, after: None, is_after_word: false };
        let start = self.add_state(vec![self.program.start], facts)?;
        while let Some((key, row)) = self.queue.pop() {
            self.fill_row(&key, row)?;
        }
        Some(start)
    }

    fn fill_row(&mut self, key: &[u32], row: u16) -> Option<()> {
        let is_after_word = key.last() == Some(&AFTER_WORD);
        let is_start = key.last() == Some(&AT_START);
        let is_conditional = self.has_condition(key);
        let alphabet = self.alphabet;
        let mut closures: [Option<Vec<u32>>; 2] = [None, None];
        for (symbol, &code_point) in alphabet.representatives().iter().enumerate() {
            let is_word = is_word_character(code_point);
            let facts = PositionFacts { is_start, after: Some(Some(code_point)), is_after_word };
            let slot = closures.get_mut(usize::from(is_word && is_conditional))?;
            if slot.is_none() {
                *slot = Some(if is_conditional { self.close(key.to_vec(), facts)? } else { key.to_vec() });
            }
            let next = self.find_next(slot.as_deref()?, code_point)?;
            *self.table.get_mut(usize::from(row) + symbol)? = next;
        }
        let facts = PositionFacts { is_start, after: Some(None), is_after_word };
        let at_end = self.close(key.to_vec(), facts)?;
        let is_match = self.has_accept(&at_end);
        *self.table.get_mut(usize::from(row) + self.stride - 1)? = if is_match { self.stride as u16 } else { DEAD };
        Some(())
    }

    fn find_next(&mut self, closure: &[u32], code_point: u32) -> Option<u16> {
        if self.has_accept(closure) {
            return Some(self.stride as u16);
        }
        let mut targets = Vec::new();
        for &state in closure {
            if let Some(NfaState::Class { class, next }) = self.program.state(state)
                && self.classes.contains(class, code_point)
            {
                targets.push(next);
            }
        }
        self.visits += 1 + closure.len() as u64;
        let facts = PositionFacts { is_start: false, after: None, is_after_word: is_word_character(code_point) };
        self.add_state(targets, facts)
    }

    fn has_accept(&self, states: &[u32]) -> bool {
        states.iter().any(|&state| matches!(self.program.state(state), Some(NfaState::Accept)))
    }

    /// Returns the row for these states of the other automaton, which is added if it is new.
    fn add_state(&mut self, targets: Vec<u32>, facts: PositionFacts) -> Option<u16> {
        let mut key = self.close(targets, facts)?;
        if key.is_empty() {
            return Some(DEAD);
        }
        if self.has_accept(&key) {
            return Some(self.stride as u16);
        }
        if facts.is_start && self.has_condition(&key) {
            key.push(AT_START);
        }
        if facts.is_after_word && self.has_word_conditions && self.has_condition(&key) {
            key.push(AFTER_WORD);
        }
        if let Some(&row) = self.rows.get(key.as_slice()) {
            return Some(row);
        }
        if self.table.len() + self.stride > MAX_ENTRIES || self.visits > MAX_VISITS {
            return None;
        }
        let row = u16::try_from(self.table.len()).ok()?;
        self.table.resize(self.table.len() + self.stride, DEAD);
        self.rows.insert(key.clone().into(), row);
        self.queue.push((key.into(), row));
        Some(row)
    }

    fn has_condition(&self, key: &[u32]) -> bool {
        key.iter().any(|&state| matches!(self.program.state(state), Some(NfaState::Condition { .. })))
    }

    /// Follows what needs no code point, and returns the states that need one or a condition, sorted.
    fn close(&mut self, mut pending: Vec<u32>, facts: PositionFacts) -> Option<Vec<u32>> {
        self.step += 1;
        let mut states = Vec::new();
        while let Some(index) = pending.pop() {
            self.visits += 1;
            match self.reached.get_mut(index as usize) {
                Some(reached) if *reached != self.step => *reached = self.step,
                _ => continue,
            }
            match self.program.state(index)? {
                NfaState::Split { first, second } => pending.extend([second, first]),
                NfaState::Condition { condition, next } => match facts.decide(condition) {
                    Some(true) => pending.push(next),
                    Some(false) => {}
                    None => states.push(index),
                },
                NfaState::Class { .. } | NfaState::Counter { .. } | NfaState::Accept => states.push(index),
            }
        }
        if self.visits > MAX_VISITS {
            return None;
        }
        states.sort_unstable();
        Some(states)
    }
}

impl PositionFacts {
    /// Returns whether a condition holds, or nothing if that depends on what is behind the position.
    fn decide(self, condition: Condition) -> Option<bool> {
        let is_boundary = |after: Option<u32>| self.is_after_word != after.is_some_and(is_word_character);
        match condition {
            Condition::ScanStart => Some(self.is_start),
            Condition::ScanEnd => self.after.map(|after| after.is_none()),
            Condition::WordBoundary => self.after.map(is_boundary),
            Condition::NotWordBoundary => self.after.map(|after| !is_boundary(after)),
            Condition::Look { .. } => Some(false),
        }
    }
}
