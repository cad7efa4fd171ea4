//! Builds the table of a deterministic automaton.

use std::collections::HashMap;

use super::PatternError;
use super::alphabet::Alphabet;
use super::budget::CompileBudget;
use super::code_points::{ClassTable, is_word_character};
use super::nfa::{Condition, NfaProgram, NfaState};
use super::threads::{LookReference, NfaThread, ThreadOutcome, ThreadTable};

/// Entries of a table: 64 KiB.
const MAX_ENTRIES: usize = 32_768;

/// States of the automaton without determinism that building may visit.
const MAX_VISITS: u64 = 400_000;

/// The row from which no match follows.
pub(super) const DEAD: u16 = 0;

/// What is before the position at which a deterministic automaton starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TableStart {
    TextStart,
    AfterWord,
    AfterOther,
}

/// The rows of a deterministic automaton. A row is named by the index of its first entry; the first two have no
/// entries: the dead one and that of a match.
#[derive(Debug)]
pub(super) struct TransitionTable {
    /// For each row the next row for each symbol, and the verdict at the end of the text.
    pub(super) rows: Vec<u16>,
    starts: [u16; 3],
    stride: u16,
}

impl TransitionTable {
    /// Builds the table of an automaton whose look-aheads have the tables `looks`. Returns nothing if it is too large.
    pub(super) fn build(
        program: &NfaProgram,
        looks: &[Self],
        alphabet: &Alphabet,
        classes: &ClassTable,
        budget: &mut CompileBudget<'_>,
    ) -> Result<Option<Self>, PatternError> {
        let mut builder = TableBuilder::new(program, looks, classes, alphabet);
        builder.max_visits = MAX_VISITS.min(budget.units_left() / 4);
        let starts = builder.build();
        budget.charge(builder.visits + builder.table.len() as u64 / 4 + 10)?;
        let (Some(starts), Ok(stride)) = (starts, u16::try_from(builder.stride)) else { return Ok(None) };
        Ok(Some(Self { rows: builder.table, starts, stride }))
    }

    /// The row of a match.
    pub(super) fn match_row(&self) -> u16 {
        self.stride
    }

    /// The row that a scan starts with.
    pub(super) fn start(&self, start: TableStart) -> u16 {
        let [text_start, after_word, after_other] = self.starts;
        match start {
            TableStart::TextStart => text_start,
            TableStart::AfterWord => after_word,
            TableStart::AfterOther => after_other,
        }
    }

    /// The row behind `row`.
    pub(super) fn next(&self, row: u16, symbol: usize) -> u16 {
        self.rows.get(usize::from(row) + symbol).copied().unwrap_or(DEAD)
    }
}

/// Marks a state whose position follows a word character, in the key of the state.
const AFTER_WORD: u32 = u32::MAX;

/// Marks the state at the start of the text, in the key of the state.
const AT_START: u32 = u32::MAX - 1;

struct TableBuilder<'b> {
    program: &'b NfaProgram,
    threads: ThreadTable<'b>,
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
    max_visits: u64,
}

/// What is known of a position.
#[derive(Clone, Copy)]
struct PositionFacts {
    is_start: bool,
    /// The code point behind the position, or nothing at the end. Absent while that is not known.
    after: Option<Option<u32>>,
    is_after_word: bool,
}

impl<'b> TableBuilder<'b> {
    fn new(
        program: &'b NfaProgram,
        looks: &'b [TransitionTable],
        classes: &'b ClassTable,
        alphabet: &'b Alphabet,
    ) -> Self {
        let stride = alphabet.symbol_count() + 1;
        Self {
            program,
            threads: ThreadTable::new(program, looks),
            classes,
            alphabet,
            stride,
            has_word_conditions: alphabet.has_word_conditions(),
            table: vec![DEAD; stride * 2],
            rows: HashMap::default(),
            queue: Vec::new(),
            reached: vec![0; program.len()],
            step: 0,
            visits: program.len() as u64 / 8,
            max_visits: MAX_VISITS,
        }
    }

    /// Fills the table and returns the first rows, or nothing if it becomes too large.
    fn build(&mut self) -> Option<[u16; 3]> {
        let mut starts = [DEAD; 3];
        let facts = [(true, false), (false, true), (false, false)];
        for (start, (is_start, is_after_word)) in starts.iter_mut().zip(facts) {
            let facts = PositionFacts { is_start, after: None, is_after_word };
            *start = self.add_state(vec![self.program.start], facts)?;
        }
        while let Some((key, row)) = self.queue.pop() {
            self.fill_row(&key, row)?;
        }
        Some(starts)
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
            let next = self.find_next(slot.as_deref()?, symbol, code_point)?;
            *self.table.get_mut(usize::from(row) + symbol)? = next;
        }
        let facts = PositionFacts { is_start, after: Some(None), is_after_word };
        let at_end = self.close(key.to_vec(), facts)?;
        let is_match = self.find_accept_at_end(&at_end)?;
        *self.table.get_mut(usize::from(row) + self.stride - 1)? = if is_match { self.stride as u16 } else { DEAD };
        Some(())
    }

    fn find_next(&mut self, closure: &[u32], symbol: usize, code_point: u32) -> Option<u16> {
        if self.has_accept(closure) {
            return Some(self.stride as u16);
        }
        let mut targets = Vec::new();
        for &number in closure {
            let Some(thread) = self.threads.thread(number) else { continue };
            let next = match self.program.state(thread.state) {
                Some(NfaState::Class { class, next }) if self.classes.contains(class, code_point) => next,
                // The rest of the text decides the look-aheads.
                Some(NfaState::Accept) => thread.state,
                _ => continue,
            };
            if let ThreadOutcome::GoesOn(obligations) = self.threads.step(thread.obligations, symbol)? {
                targets.push(self.threads.number(NfaThread { state: next, obligations }));
            }
        }
        self.visits += 1 + closure.len() as u64;
        let facts = PositionFacts { is_start: false, after: None, is_after_word: is_word_character(code_point) };
        self.add_state(targets, facts)
    }

    fn state_of(&self, number: u32) -> Option<NfaState> {
        self.program.state(self.threads.thread(number)?.state)
    }

    fn has_accept(&self, numbers: &[u32]) -> bool {
        numbers.iter().any(|&number| matches!(self.program.state(number), Some(NfaState::Accept)))
    }

    fn find_accept_at_end(&mut self, numbers: &[u32]) -> Option<bool> {
        for &number in numbers {
            if matches!(self.state_of(number), Some(NfaState::Accept)) {
                let obligations = self.threads.thread(number)?.obligations;
                if self.threads.step(obligations, self.stride - 1)? != ThreadOutcome::Ends {
                    return Some(true);
                }
            }
        }
        Some(false)
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
        if self.table.len() + self.stride > MAX_ENTRIES || self.visits > self.max_visits {
            return None;
        }
        let row = u16::try_from(self.table.len()).ok()?;
        self.table.resize(self.table.len() + self.stride, DEAD);
        self.rows.insert(key.clone().into(), row);
        self.queue.push((key.into(), row));
        Some(row)
    }

    fn has_condition(&self, key: &[u32]) -> bool {
        key.iter().any(|&number| matches!(self.state_of(number), Some(NfaState::Condition { .. })))
    }

    /// Follows what needs no code point, and returns the states that need one or a condition, sorted.
    fn close(&mut self, mut pending: Vec<u32>, facts: PositionFacts) -> Option<Vec<u32>> {
        self.step += 1;
        let mut states = Vec::new();
        while let Some(index) = pending.pop() {
            self.visits += 1;
            if self.reached.len() < self.threads.len() {
                self.reached.resize(self.threads.len(), 0);
            }
            match self.reached.get_mut(index as usize) {
                Some(reached) if *reached != self.step => *reached = self.step,
                _ => continue,
            }
            let NfaThread { state, obligations } = self.threads.thread(index)?;
            match self.program.state(state)? {
                NfaState::Split { first, second } => {
                    for state in [second, first] {
                        pending.push(self.threads.number(NfaThread { state, obligations }));
                    }
                }
                NfaState::Condition { condition: Condition::Look { index, is_negative }, next } => {
                    let outcome = self.threads.add_look(
                        obligations,
                        LookReference { look: index, is_negative },
                        facts.table_start(),
                    )?;
                    if let ThreadOutcome::GoesOn(obligations) = outcome {
                        pending.push(self.threads.number(NfaThread { state: next, obligations }));
                    }
                }
                NfaState::Condition { condition, next } => match facts.decide(condition) {
                    Some(true) => pending.push(self.threads.number(NfaThread { state: next, obligations })),
                    Some(false) => {}
                    None => states.push(index),
                },
                NfaState::Class { .. } | NfaState::Counter { .. } | NfaState::Accept => states.push(index),
            }
        }
        if self.visits > self.max_visits {
            return None;
        }
        states.sort_unstable();
        Some(states)
    }
}

impl PositionFacts {
    fn table_start(self) -> TableStart {
        match (self.is_start, self.is_after_word) {
            (true, _) => TableStart::TextStart,
            (false, true) => TableStart::AfterWord,
            (false, false) => TableStart::AfterOther,
        }
    }

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
