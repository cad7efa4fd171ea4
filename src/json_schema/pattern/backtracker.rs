//! Searches with backtracking, with fuel for each step and a bound on what can be taken back.

use std::task::Poll;

use crate::fuel::Fuel;

use super::OutOfMemory;
use super::backtrack_program::{BacktrackProgram, BacktrackStep, RepeatBounds};
use super::code_points::ClassTable;
use super::nfa::Direction;
use super::simulation::is_at_word_boundary;
use super::syntax::Boundary;

/// Entries that can be taken back: 2 MiB. Taking back all of them takes a fraction of a millisecond.
const MAX_ENTRIES: usize = 2 * 1024 * 1024 / size_of::<UndoEntry>();

/// Code points of a run that one step reads, and bytes of a capture that one step compares.
const RUN_PER_STEP: u32 = 256;
const BYTES_PER_STEP: usize = 4096;

/// A register without a value.
const UNSET: u32 = u32::MAX;

/// What a search does when it cannot go on.
#[derive(Clone, Copy, Debug)]
enum UndoEntry {
    /// Goes on at another step.
    Choice { step: u32, position: u32 },
    /// Goes on behind a run of a class with one code point less, down to `low`.
    ShorterRun { step: u32, low: u32, current: u32 },
    /// Gives a register its old value.
    Register { register: u32, value: u32 },
    /// A look-around whose body is being matched. `outer` is the entry of the look-around around it.
    Look { step: u32, position: u32, outer: u32 },
}

/// Whether the search can go on at its step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StepOutcome {
    GoOn,
    Fail,
    Accept,
}

/// What a search reads.
#[derive(Clone, Copy)]
pub(super) struct BacktrackInput<'i> {
    pub(super) program: &'i BacktrackProgram,
    pub(super) classes: &'i ClassTable,
    pub(super) text: &'i str,
}

/// The state of a search with backtracking.
#[derive(Debug)]
pub(super) struct Backtracker {
    step: u32,
    position: u32,
    /// Where the attempt starts.
    start: u32,
    /// Positions that groups captured, and the counters of repeats.
    registers: Box<[u32]>,
    undo: Vec<UndoEntry>,
    /// The entry of the innermost look-around.
    look: u32,
    /// Code points of a run, or bytes of a capture, that earlier steps have compared.
    progress: u32,
    run_start: u32,
}

impl Backtracker {
    /// Creates a search. Fails if the text is too long for its registers.
    pub(super) fn new(program: &BacktrackProgram, text: &str) -> Result<Self, OutOfMemory> {
        if u32::try_from(text.len()).is_err() {
            return Err(OutOfMemory);
        }
        Ok(Self {
            step: 0,
            position: 0,
            start: 0,
            registers: vec![UNSET; program.register_count as usize].into(),
            undo: Vec::new(),
            look: UNSET,
            progress: 0,
            run_start: 0,
        })
    }

    /// Goes on until the verdict is known or the fuel is spent.
    pub(super) fn resume(&mut self, input: BacktrackInput<'_>, fuel: &mut Fuel) -> Poll<Result<bool, OutOfMemory>> {
        loop {
            if fuel.is_spent() {
                return Poll::Pending;
            }
            if self.undo.len() > MAX_ENTRIES {
                return Poll::Ready(Err(OutOfMemory));
            }
            fuel.charge(1);
            match self.do_step(input, fuel) {
                StepOutcome::GoOn => {}
                StepOutcome::Accept => return Poll::Ready(Ok(true)),
                StepOutcome::Fail => {
                    if !self.go_back(input, fuel) && !self.start_next_attempt(input) {
                        return Poll::Ready(Ok(false));
                    }
                }
            }
        }
    }

    fn start_next_attempt(&mut self, input: BacktrackInput<'_>) -> bool {
        let rest = input.text.get(self.start as usize..).unwrap_or_default();
        let Some(character) = rest.chars().next() else { return false };
        if input.program.is_anchored {
            return false;
        }
        self.start += length_of(character);
        self.position = self.start;
        self.step = 0;
        true
    }

    /// Takes entries back until one says where to go on.
    fn go_back(&mut self, input: BacktrackInput<'_>, fuel: &mut Fuel) -> bool {
        self.progress = 0;
        while let Some(entry) = self.undo.pop() {
            match entry {
                UndoEntry::Register { register, value } => {
                    fuel.charge(1);
                    self.set_register(register, value);
                }
                UndoEntry::Choice { step, position } => {
                    (self.step, self.position) = (step, position);
                    return true;
                }
                UndoEntry::ShorterRun { step, low, current } => {
                    self.shorten_run(input, step, low, current);
                    return true;
                }
                UndoEntry::Look { step, position, outer } => {
                    self.look = outer;
                    if let Some(BacktrackStep::LookStart { is_negative: true, end }) = input.program.step(step) {
                        (self.step, self.position) = (end, position);
                        return true;
                    }
                }
            }
        }
        false
    }

    fn do_step(&mut self, input: BacktrackInput<'_>, fuel: &mut Fuel) -> StepOutcome {
        let Some(step) = input.program.step(self.step) else { return StepOutcome::Fail };
        match step {
            BacktrackStep::Class { class, direction } => match self.read(input, class, direction) {
                Some(position) => self.go_on_at(position),
                None => StepOutcome::Fail,
            },
            BacktrackStep::ClassRun { .. } => self.do_class_run(input, step, fuel),
            BacktrackStep::Boundary(boundary) => self.go_on_if(holds(boundary, input.text, self.position)),
            BacktrackStep::Split { other } => {
                self.undo.push(UndoEntry::Choice { step: other, position: self.position });
                self.go_on_at(self.position)
            }
            BacktrackStep::Jump { target } => self.jump(target),
            BacktrackStep::Save { register } => {
                self.change_register(register, self.position);
                self.go_on_at(self.position)
            }
            BacktrackStep::BackReference { first, last, direction } => {
                let groups = input.program.references(first, last);
                self.do_back_reference(input, groups, direction, fuel)
            }
            BacktrackStep::RepeatStart { repeat } => {
                let Some(bounds) = input.program.repeat(repeat) else { return StepOutcome::Fail };
                self.change_register(bounds.register, 0);
                self.go_on_at(self.position)
            }
            BacktrackStep::RepeatHead { repeat } => match input.program.repeat(repeat) {
                Some(bounds) => self.do_repeat_head(bounds),
                None => StepOutcome::Fail,
            },
            BacktrackStep::RepeatEnter { repeat } => match input.program.repeat(repeat) {
                Some(bounds) => self.do_repeat_enter(bounds, fuel),
                None => StepOutcome::Fail,
            },
            BacktrackStep::RepeatEnd { repeat } => match input.program.repeat(repeat) {
                Some(bounds) => self.do_repeat_end(bounds),
                None => StepOutcome::Fail,
            },
            BacktrackStep::LookStart { .. } => {
                let entry = UndoEntry::Look { step: self.step, position: self.position, outer: self.look };
                self.look = u32::try_from(self.undo.len()).unwrap_or(UNSET);
                self.undo.push(entry);
                self.go_on_at(self.position)
            }
            BacktrackStep::LookEnd => self.do_look_end(input, fuel),
            BacktrackStep::Accept => StepOutcome::Accept,
        }
    }

    fn go_on_at(&mut self, position: u32) -> StepOutcome {
        self.position = position;
        self.step += 1;
        StepOutcome::GoOn
    }

    fn go_on_if(&mut self, condition: bool) -> StepOutcome {
        if condition { self.go_on_at(self.position) } else { StepOutcome::Fail }
    }

    fn jump(&mut self, step: u32) -> StepOutcome {
        self.step = step;
        StepOutcome::GoOn
    }

    fn register(&self, register: u32) -> u32 {
        self.registers.get(register as usize).copied().unwrap_or(UNSET)
    }

    fn set_register(&mut self, register: u32, value: u32) {
        if let Some(slot) = self.registers.get_mut(register as usize) {
            *slot = value;
        }
    }

    fn change_register(&mut self, register: u32, value: u32) {
        let old = self.register(register);
        if old != value {
            self.undo.push(UndoEntry::Register { register, value: old });
            self.set_register(register, value);
        }
    }

    /// Returns the position behind a code point of the class.
    fn read(&self, input: BacktrackInput<'_>, class: u32, direction: Direction) -> Option<u32> {
        let character = character_at(input.text, self.position, direction)?;
        input.classes.contains(class, u32::from(character)).then(|| match direction {
            Direction::Forward => self.position + length_of(character),
            Direction::Backward => self.position - length_of(character),
        })
    }

    fn do_class_run(&mut self, input: BacktrackInput<'_>, step: BacktrackStep, fuel: &mut Fuel) -> StepOutcome {
        let BacktrackStep::ClassRun { class, min, max, direction } = step else { return StepOutcome::Fail };
        if self.progress == 0 {
            self.run_start = self.position;
        }
        let limit = max.min(self.progress.saturating_add(RUN_PER_STEP));
        let first = self.progress;
        let mut is_at_end = false;
        while self.progress < limit && !is_at_end {
            match self.read(input, class, direction) {
                Some(position) => {
                    self.position = position;
                    self.progress += 1;
                    if self.progress == min {
                        self.run_start = position;
                    }
                }
                None => is_at_end = true,
            }
        }
        fuel.charge(u64::from(self.progress - first) / 2);
        if !is_at_end && self.progress < max {
            return StepOutcome::GoOn;
        }
        let count = std::mem::take(&mut self.progress);
        if count < min {
            return StepOutcome::Fail;
        }
        if count > min {
            self.undo.push(UndoEntry::ShorterRun { step: self.step, low: self.run_start, current: self.position });
        }
        self.go_on_at(self.position)
    }

    fn shorten_run(&mut self, input: BacktrackInput<'_>, step: u32, low: u32, current: u32) {
        let direction = match input.program.step(step) {
            Some(BacktrackStep::ClassRun { direction: Direction::Backward, .. }) => Direction::Forward,
            _ => Direction::Backward,
        };
        let length = character_at(input.text, current, direction).map_or(0, length_of);
        let position = match direction {
            Direction::Forward => current + length,
            Direction::Backward => current - length,
        };
        if position != low {
            self.undo.push(UndoEntry::ShorterRun { step, low, current: position });
        }
        self.step = step + 1;
        self.position = position;
    }

    fn do_back_reference(
        &mut self,
        input: BacktrackInput<'_>,
        groups: &[u32],
        direction: Direction,
        fuel: &mut Fuel,
    ) -> StepOutcome {
        fuel.charge(groups.len() as u64 / 4);
        let captures = groups.iter().map(|&group| (self.register(group * 2), self.register(group * 2 + 1)));
        let Some((start, end)) = captures.into_iter().find(|&(start, end)| start != UNSET && end != UNSET) else {
            return self.go_on_at(self.position);
        };
        let length = end.saturating_sub(start);
        let from = match direction {
            Direction::Forward => Some(self.position),
            Direction::Backward => self.position.checked_sub(length),
        };
        let Some(from) = from.map(|from| from as usize) else { return StepOutcome::Fail };
        let bytes = input.text.as_bytes();
        let captured = bytes.get(start as usize..end as usize).unwrap_or_default();
        let Some(other) = bytes.get(from..from + length as usize) else { return StepOutcome::Fail };
        let first = self.progress as usize;
        let last = captured.len().min(first + BYTES_PER_STEP);
        fuel.charge_bytes(last - first, 64);
        if captured.get(first..last) != other.get(first..last) {
            return StepOutcome::Fail;
        }
        if last < captured.len() {
            self.progress = u32::try_from(last).unwrap_or(UNSET);
            return StepOutcome::GoOn;
        }
        self.progress = 0;
        self.go_on_at(match direction {
            Direction::Forward => self.position + length,
            Direction::Backward => self.position - length,
        })
    }

    fn do_repeat_head(&mut self, bounds: RepeatBounds) -> StepOutcome {
        let count = self.register(bounds.register);
        if count >= bounds.max {
            return self.jump(bounds.exit);
        }
        if count < bounds.min {
            return self.jump(bounds.head + 1);
        }
        let enter = bounds.head + 1;
        let (first, second) = if bounds.is_lazy { (bounds.exit, enter) } else { (enter, bounds.exit) };
        self.undo.push(UndoEntry::Choice { step: second, position: self.position });
        self.jump(first)
    }

    fn do_repeat_enter(&mut self, bounds: RepeatBounds, fuel: &mut Fuel) -> StepOutcome {
        let count = self.register(bounds.register);
        self.change_register(bounds.register, count.saturating_add(1));
        self.change_register(bounds.register + 1, self.position);
        fuel.charge(u64::from(bounds.groups.1.saturating_sub(bounds.groups.0)) / 4);
        for register in bounds.groups.0..bounds.groups.1 {
            self.change_register(register, UNSET);
        }
        self.go_on_at(self.position)
    }

    /// A round beyond the minimum must not be empty (RepeatMatcher, ECMA-262 §22.2.2.3.1).
    fn do_repeat_end(&mut self, bounds: RepeatBounds) -> StepOutcome {
        let is_beyond_min = self.register(bounds.register) > bounds.min;
        if is_beyond_min && self.register(bounds.register + 1) == self.position {
            return StepOutcome::Fail;
        }
        self.jump(bounds.head)
    }

    fn do_look_end(&mut self, input: BacktrackInput<'_>, fuel: &mut Fuel) -> StepOutcome {
        let look = self.look as usize;
        let Some(&UndoEntry::Look { step, position, outer }) = self.undo.get(look) else { return StepOutcome::Fail };
        let Some(BacktrackStep::LookStart { is_negative, end }) = input.program.step(step) else {
            return StepOutcome::Fail;
        };
        self.look = outer;
        fuel.charge((self.undo.len() - look) as u64 / 2);
        if is_negative {
            while self.undo.len() > look {
                if let Some(UndoEntry::Register { register, value }) = self.undo.pop() {
                    self.set_register(register, value);
                }
            }
            return StepOutcome::Fail;
        }
        // The body is not matched again in another way, but its captures can be taken back.
        let mut index = 0;
        self.undo.retain(|entry| {
            index += 1;
            index <= look || matches!(entry, UndoEntry::Register { .. })
        });
        self.position = position;
        self.jump(end)
    }
}

fn holds(boundary: Boundary, text: &str, position: u32) -> bool {
    let position = position as usize;
    match boundary {
        Boundary::TextStart => position == 0,
        Boundary::TextEnd => position == text.len(),
        Boundary::Word => is_at_word_boundary(text, position),
        Boundary::NotWord => !is_at_word_boundary(text, position),
    }
}

fn character_at(text: &str, position: u32, direction: Direction) -> Option<char> {
    let position = position as usize;
    match direction {
        Direction::Forward => text.get(position..)?.chars().next(),
        Direction::Backward => text.get(..position)?.chars().next_back(),
    }
}

fn length_of(character: char) -> u32 {
    u32::try_from(character.len_utf8()).unwrap_or(1)
}
