//! States of an automaton together with the look-aheads that must still be decided.

use std::collections::HashMap;

use super::nfa::NfaProgram;
use super::transition_table::{DEAD, TableStart, TransitionTable};

/// Look-aheads that one thread may wait for.
const MAX_OBLIGATIONS: usize = 16;

/// A look-ahead of the pattern, by its number.
#[derive(Clone, Copy, Debug)]
pub(super) struct LookReference {
    pub(super) look: u32,
    pub(super) is_negative: bool,
}

/// A look-ahead that a thread has passed and that is not decided, with the row of its table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct LookObligation {
    look: u32,
    is_negative: bool,
    row: u16,
}

/// A state of an automaton with the index of the obligations that a match through it has. Index 0 has none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct NfaThread {
    pub(super) state: u32,
    pub(super) obligations: u32,
}

/// What becomes of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ThreadOutcome {
    /// It goes on with these obligations.
    GoesOn(u32),
    /// A look-ahead failed.
    Ends,
}

/// Numbers the threads of one automaton. A thread without obligations has the number of its state.
#[derive(Debug)]
pub(super) struct ThreadTable<'t> {
    looks: &'t [TransitionTable],
    state_count: u32,
    threads: Vec<NfaThread>,
    numbers: HashMap<NfaThread, u32, foldhash::quality::RandomState>,
    sets: Vec<Vec<LookObligation>>,
    set_numbers: HashMap<Vec<LookObligation>, u32, foldhash::quality::RandomState>,
}

impl<'t> ThreadTable<'t> {
    /// Creates the table of an automaton whose look-aheads have these tables.
    pub(super) fn new(program: &NfaProgram, looks: &'t [TransitionTable]) -> Self {
        Self {
            looks,
            state_count: u32::try_from(program.len()).unwrap_or(u32::MAX),
            threads: Vec::new(),
            numbers: HashMap::default(),
            sets: vec![Vec::new()],
            set_numbers: HashMap::from_iter([(Vec::new(), 0)]),
        }
    }

    /// Returns the number of a thread.
    pub(super) fn number(&mut self, thread: NfaThread) -> u32 {
        if thread.obligations == 0 {
            return thread.state;
        }
        let next = self.state_count.saturating_add(u32::try_from(self.threads.len()).unwrap_or(u32::MAX));
        let number = *self.numbers.entry(thread).or_insert(next);
        if number == next {
            self.threads.push(thread);
        }
        number
    }

    /// Returns the thread with this number.
    pub(super) fn thread(&self, number: u32) -> Option<NfaThread> {
        match number.checked_sub(self.state_count) {
            None => Some(NfaThread { state: number, obligations: 0 }),
            Some(index) => self.threads.get(index as usize).copied(),
        }
    }

    /// The number of threads.
    pub(super) fn len(&self) -> usize {
        self.state_count as usize + self.threads.len()
    }

    /// Adds a look-ahead that starts here. Returns nothing if there are too many.
    pub(super) fn add_look(
        &mut self,
        obligations: u32,
        reference: LookReference,
        start: TableStart,
    ) -> Option<ThreadOutcome> {
        let LookReference { look, is_negative } = reference;
        let row = self.looks.get(look as usize)?.start(start);
        let mut set = self.sets.get(obligations as usize)?.clone();
        set.push(LookObligation { look, is_negative, row });
        self.decide(set)
    }

    /// Lets the look-aheads read a symbol.
    pub(super) fn step(&mut self, obligations: u32, symbol: usize) -> Option<ThreadOutcome> {
        if obligations == 0 {
            return Some(ThreadOutcome::GoesOn(0));
        }
        let mut set = self.sets.get(obligations as usize)?.clone();
        for obligation in &mut set {
            obligation.row = self.looks.get(obligation.look as usize)?.next(obligation.row, symbol);
        }
        self.decide(set)
    }

    /// Removes the look-aheads that are decided.
    fn decide(&mut self, set: Vec<LookObligation>) -> Option<ThreadOutcome> {
        let mut open = Vec::with_capacity(set.len());
        for obligation in set {
            let is_match = obligation.row == self.looks.get(obligation.look as usize)?.match_row();
            if is_match || obligation.row == DEAD {
                if is_match == obligation.is_negative {
                    return Some(ThreadOutcome::Ends);
                }
                continue;
            }
            open.push(obligation);
        }
        open.sort_unstable();
        open.dedup();
        if open.len() > MAX_OBLIGATIONS {
            return None;
        }
        let next = u32::try_from(self.sets.len()).unwrap_or(u32::MAX);
        let number = match self.set_numbers.get(&open) {
            Some(&number) => number,
            None => {
                self.set_numbers.insert(open.clone(), next);
                self.sets.push(open);
                next
            }
        };
        Some(ThreadOutcome::GoesOn(number))
    }
}
