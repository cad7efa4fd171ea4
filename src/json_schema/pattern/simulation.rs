//! Runs an automaton over a text as the set of its states, with fuel.

use std::collections::VecDeque;
use std::task::Poll;

use crate::fuel::Fuel;

use super::OutOfMemory;
use super::code_points::ClassTable;
use super::nfa::{Condition, Direction, NfaProgram, NfaState, is_word_boundary};
use super::position_bits::PositionBits;

/// States that are visited between two looks at the fuel.
const STATES_PER_BATCH: usize = 256;

/// What a simulation reads.
#[derive(Clone, Copy)]
pub(super) struct SimulationInput<'i> {
    pub(super) program: &'i NfaProgram,
    pub(super) classes: &'i ClassTable,
    pub(super) text: &'i str,
    /// The tables of the look-arounds that the program names.
    pub(super) looks: &'i [PositionBits],
    /// Bytes that the simulation may hold.
    pub(super) max_memory: usize,
}

/// What a simulation finds.
#[derive(Debug)]
pub(super) enum SimulationOutput {
    /// Whether there is a match. The simulation ends with the first.
    Verdict,
    /// Where matches end, in the direction of the scan.
    Ends(PositionBits),
}

/// Which part of the work at one position is next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Follows the states that need no code point.
    Closure,
    /// Takes the code point behind the position, for the active state with this index and those after it.
    Move {
        active: usize,
    },
    Done {
        is_match: bool,
    },
}

/// How often a counted repeat has matched, for each way that leads into it.
#[derive(Debug, Default)]
struct CounterState {
    /// Ticks at which the repeat was entered, as runs of consecutive ones, oldest first.
    entries: VecDeque<(u32, u32)>,
    /// Code points that the repeat has read since the automaton started.
    tick: u32,
    is_live: bool,
}

/// The state of running one automaton over one text.
#[derive(Debug)]
pub(super) struct NfaSimulation {
    output: SimulationOutput,
    phase: Phase,
    /// Byte offset.
    position: usize,
    /// States to follow at this position.
    pending: Vec<u32>,
    /// States with a class that were reached at this position.
    active: Vec<u32>,
    /// States that the next position starts with.
    next: Vec<u32>,
    /// The position's number at which a state was reached, for each state.
    reached: Vec<u32>,
    step: u32,
    counters: Vec<CounterState>,
    /// States of counted repeats that have entries.
    live: Vec<u32>,
    entry_runs: usize,
    is_match: bool,
}

impl NfaSimulation {
    /// Creates a simulation at the start of the scan of a text of `length` bytes.
    pub(super) fn new(program: &NfaProgram, length: usize, output: SimulationOutput) -> Self {
        Self {
            output,
            phase: Phase::Closure,
            position: if program.direction == Direction::Forward { 0 } else { length },
            pending: vec![program.start],
            active: Vec::new(),
            next: Vec::new(),
            reached: vec![0; program.len()],
            step: 1,
            counters: program.counters().iter().map(|_| CounterState::default()).collect(),
            live: Vec::new(),
            entry_runs: 0,
            is_match: false,
        }
    }

    /// Bytes that a simulation of `program` holds at most, without the entries of counted repeats.
    pub(super) fn memory_for(program: &NfaProgram) -> usize {
        program.len() * 24 + program.counters().len() * size_of::<CounterState>()
    }

    /// Takes the positions at which matches end, once the simulation is done.
    pub(super) fn take_ends(&mut self) -> PositionBits {
        match &mut self.output {
            SimulationOutput::Ends(ends) => std::mem::take(ends),
            SimulationOutput::Verdict => PositionBits::default(),
        }
    }

    /// Goes on until the verdict is known or the fuel is spent.
    pub(super) fn resume(&mut self, input: SimulationInput<'_>, fuel: &mut Fuel) -> Poll<Result<bool, OutOfMemory>> {
        loop {
            if let Phase::Done { is_match } = self.phase {
                return Poll::Ready(Ok(is_match));
            }
            if fuel.is_spent() {
                return Poll::Pending;
            }
            if self.entry_runs * size_of::<(u32, u32)>() > input.max_memory {
                return Poll::Ready(Err(OutOfMemory));
            }
            match self.phase {
                Phase::Closure => self.follow(input, fuel),
                Phase::Move { active } => self.advance(input, active, fuel),
                Phase::Done { .. } => {}
            }
        }
    }

    fn follow(&mut self, input: SimulationInput<'_>, fuel: &mut Fuel) {
        for visited in 0..STATES_PER_BATCH {
            let Some(index) = self.pending.pop() else {
                fuel.charge(1 + visited as u64);
                return self.finish_closure(input);
            };
            match self.reached.get_mut(index as usize) {
                Some(reached) if *reached != self.step => *reached = self.step,
                _ => continue,
            }
            match input.program.state(index) {
                Some(NfaState::Class { .. }) => self.active.push(index),
                Some(NfaState::Split { first, second }) => self.pending.extend([second, first]),
                Some(NfaState::Condition { condition, next }) => {
                    self.pending.extend(self.holds(condition, input).then_some(next));
                }
                Some(NfaState::Counter { counter, .. }) => self.enter_counter(counter, index, input),
                Some(NfaState::Accept) => self.is_match = true,
                None => {}
            }
        }
        fuel.charge(STATES_PER_BATCH as u64);
    }

    fn holds(&self, condition: Condition, input: SimulationInput<'_>) -> bool {
        let text = input.text;
        let (start, end) = match input.program.direction {
            Direction::Forward => (0, text.len()),
            Direction::Backward => (text.len(), 0),
        };
        match condition {
            Condition::ScanStart => self.position == start,
            Condition::ScanEnd => self.position == end,
            Condition::WordBoundary => is_at_word_boundary(text, self.position),
            Condition::NotWordBoundary => !is_at_word_boundary(text, self.position),
            Condition::Look { index, is_negative } => {
                let is_set = input.looks.get(index as usize).is_some_and(|bits| bits.is_set(self.position));
                is_set != is_negative
            }
        }
    }

    fn enter_counter(&mut self, counter: u32, state: u32, input: SimulationInput<'_>) {
        let (Some(counter_state), Some(bounds)) =
            (self.counters.get_mut(counter as usize), input.program.counters().get(counter as usize))
        else {
            return;
        };
        // With a minimum of one the youngest entry can do what older ones can.
        if bounds.min <= 1 {
            self.entry_runs = self.entry_runs.saturating_sub(counter_state.entries.len());
            counter_state.entries.clear();
        }
        let tick = counter_state.tick;
        match counter_state.entries.back_mut() {
            Some(run) if run.1.wrapping_add(1) == tick => run.1 = tick,
            Some(run) if run.1 == tick => {}
            _ => {
                counter_state.entries.push_back((tick, tick));
                self.entry_runs += 1;
            }
        }
        if !counter_state.is_live {
            counter_state.is_live = true;
            self.live.push(state);
        }
    }

    /// Ends the work at one position: records a match, and stops where nothing more can be found.
    fn finish_closure(&mut self, input: SimulationInput<'_>) {
        if self.is_match {
            match &mut self.output {
                SimulationOutput::Verdict => {
                    self.phase = Phase::Done { is_match: true };
                    return;
                }
                SimulationOutput::Ends(ends) => ends.set(self.position),
            }
            self.is_match = false;
        }
        let is_at_end = match input.program.direction {
            Direction::Forward => self.position >= input.text.len(),
            Direction::Backward => self.position == 0,
        };
        let is_dead = self.active.is_empty() && self.live.is_empty();
        self.phase = if is_at_end || is_dead { Phase::Done { is_match: false } } else { Phase::Move { active: 0 } };
    }

    fn advance(&mut self, input: SimulationInput<'_>, start: usize, fuel: &mut Fuel) {
        let Some(character) = self.next_character(input) else {
            self.phase = Phase::Done { is_match: false };
            return;
        };
        let code_point = u32::from(character);
        let end = self.active.len().min(start + STATES_PER_BATCH);
        fuel.charge(1 + (end - start) as u64);
        for &index in self.active.get(start..end).unwrap_or_default() {
            if let Some(NfaState::Class { class, next }) = input.program.state(index)
                && input.classes.contains(class, code_point)
            {
                self.next.push(next);
            }
        }
        if end < self.active.len() {
            self.phase = Phase::Move { active: end };
            return;
        }
        self.advance_counters(input, code_point, fuel);
        self.active.clear();
        std::mem::swap(&mut self.pending, &mut self.next);
        self.next.clear();
        self.start_step();
        match input.program.direction {
            Direction::Forward => self.position += character.len_utf8(),
            Direction::Backward => self.position -= character.len_utf8(),
        }
        self.phase = Phase::Closure;
    }

    fn next_character(&self, input: SimulationInput<'_>) -> Option<char> {
        match input.program.direction {
            Direction::Forward => input.text.get(self.position..)?.chars().next(),
            Direction::Backward => input.text.get(..self.position)?.chars().next_back(),
        }
    }

    fn start_step(&mut self) {
        self.step = self.step.wrapping_add(1);
        if self.step == 0 {
            self.reached.fill(0);
            self.step = 1;
        }
    }

    fn advance_counters(&mut self, input: SimulationInput<'_>, code_point: u32, fuel: &mut Fuel) {
        fuel.charge(2 * self.live.len() as u64);
        let mut live = std::mem::take(&mut self.live);
        live.retain(|&index| {
            let Some(NfaState::Counter { counter, next }) = input.program.state(index) else { return false };
            let (Some(state), Some(bounds)) =
                (self.counters.get_mut(counter as usize), input.program.counters().get(counter as usize))
            else {
                return false;
            };
            let runs = state.entries.len();
            if input.classes.contains(bounds.class, code_point) {
                state.tick = state.tick.wrapping_add(1);
                state.drop_older_than(bounds.max);
                if state.oldest_age().is_some_and(|age| age >= bounds.min) {
                    self.next.push(next);
                }
            } else {
                state.entries.clear();
            }
            self.entry_runs = self.entry_runs.saturating_sub(runs - state.entries.len());
            state.is_live = !state.entries.is_empty();
            state.is_live
        });
        self.live = live;
    }
}

impl CounterState {
    fn oldest_age(&self) -> Option<u32> {
        self.entries.front().map(|&(first, _)| self.tick.wrapping_sub(first))
    }

    /// Only the oldest entry can pass the maximum: entries are older by one with each tick.
    fn drop_older_than(&mut self, max: u32) {
        if self.oldest_age().is_none_or(|age| age <= max) {
            return;
        }
        if let Some(run) = self.entries.front_mut() {
            if run.0 == run.1 {
                self.entries.pop_front();
            } else {
                run.0 = run.0.wrapping_add(1);
            }
        }
    }
}

/// Returns whether a byte offset of a text is at a word boundary.
pub(super) fn is_at_word_boundary(text: &str, position: usize) -> bool {
    // A continuation byte is no word character, and neither is the character that it ends.
    let bytes = text.as_bytes();
    let before = position.checked_sub(1).and_then(|before| bytes.get(before)).map(|&byte| u32::from(byte));
    let after = bytes.get(position).map(|&byte| u32::from(byte));
    is_word_boundary(before, after)
}
