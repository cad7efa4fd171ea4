//! Runs a program over a tape, in slices of fuel.
//!
//! The machine has a stack of frames, one for each block that is being applied to a value, and no recursion. A first pass
//! finds the verdict and ends with the first failure. If that is negative, a second pass finds up to 20 violations.

mod bit_set;
mod content;
mod frame;
mod in_place;
mod items;
mod leaf;
mod length;
mod marks;
mod members;
mod memo;
mod quick;
mod scratch;
mod violation;

#[cfg(test)]
mod tests;

use crate::{
    fuel::Fuel,
    program::{BlockId, Instruction, Program},
    tape::{Node, Tape},
};
use frame::{Frame, Step};
use scratch::Scratch;
use std::{sync::Arc, task::Poll};
pub use violation::Violation;
use violation::{Detail, RawViolation};

/// Maximum number of frames: 1 MiB.
const MAX_FRAMES: usize = 1 << 15;
/// Maximum number of violations.
const MAX_VIOLATIONS: usize = 20;
/// Verdicts are memorised after this much fuel: a check of ordinary size never pays for it.
const MEMO_AFTER: u64 = 20_000;
/// Units for a frame, from its begin to its end.
const FRAME_COST: u64 = 3;
/// Units between two looks at the memory.
const LOOK_INTERVAL: u64 = 1_000;
/// Memory of all that a check holds beside tape and program, for a text of at most 1 MiB.
const MAX_SCRATCH_BYTES: usize = 4 << 20;

/// What a check says of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The value is valid.
    Valid,
    /// The value is not valid; there is at least one violation, and at most 20.
    Invalid(Vec<Violation>),
    /// The verdict takes more fuel than allowed.
    OutOfFuel,
    /// The verdict takes more memory than allowed.
    OutOfMemory,
}

/// What the instructions of one slice work with.
struct Context<'r> {
    program: &'r Program,
    tape: &'r Tape,
    fuel: &'r mut Fuel,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Verdict,
    Violations,
}

/// The state of a check of one value. It refers to neither the program nor the tape, which must be the same at each call.
#[derive(Debug)]
pub struct Evaluation {
    root: Node,
    max_violations: usize,
    fuel_limit: u64,
    fuel_used: u64,
    /// Made when the verdict is not found at once.
    machine: Option<Box<Machine>>,
}

impl Evaluation {
    /// Begins the check of `root`, which may take up to `fuel_limit` units.
    pub fn new(root: Node, fuel_limit: u64) -> Self {
        Self { root, max_violations: MAX_VIOLATIONS, fuel_limit, fuel_used: 0, machine: None }
    }

    /// Ends the check after so many violations, instead of 20.
    #[must_use]
    pub fn with_max_violations(mut self, max_violations: usize) -> Self {
        self.max_violations = max_violations.max(1);
        self
    }

    /// Returns the fuel that the check has taken.
    pub fn fuel_used(&self) -> u64 {
        self.fuel_used
    }

    /// Returns the memory that the check holds, in bytes.
    pub fn memory(&self) -> usize {
        self.machine.as_ref().map_or(0, |machine| machine.memory())
    }

    /// Goes on until the check ends or has taken `slice` units.
    pub fn resume(&mut self, program: &Program, tape: &Tape, slice: u64) -> Poll<Outcome> {
        let left = self.fuel_limit.saturating_sub(self.fuel_used);
        let mut fuel = Fuel::new(slice.min(left));
        let mut context = Context { program, tape, fuel: &mut fuel };
        let result = self.run(&mut context);
        self.fuel_used = self.fuel_used.saturating_add(fuel.used());
        match result {
            Poll::Pending if self.fuel_used >= self.fuel_limit => {
                // The second pass gives what it has found.
                let machine = self.machine.as_ref().filter(|machine| machine.phase == Phase::Violations);
                Poll::Ready(machine.map_or(Outcome::OutOfFuel, |machine| machine.invalid(program, tape)))
            }
            result => result,
        }
    }

    fn run(&mut self, context: &mut Context<'_>) -> Poll<Outcome> {
        let machine = match &mut self.machine {
            Some(machine) => machine,
            empty => {
                let verdict = quick::verdict(context, self.root, context.program.root);
                if verdict == Some(true) {
                    return Poll::Ready(Outcome::Valid);
                }
                let machine = empty.insert(Box::new(Machine::new(self.root, self.max_violations)));
                match verdict {
                    Some(_) => machine.begin_violations(context),
                    None => machine.push(context, self.root, context.program.root, false),
                }
                machine
            }
        };
        machine.fuel_before = self.fuel_used;
        machine.run(context)
    }
}

/// The frames of a check, and what belongs to them.
#[derive(Debug)]
struct Machine {
    root: Node,
    phase: Phase,
    frames: Vec<Frame>,
    returned: Option<bool>,
    scratch: Scratch,
    violations: Vec<RawViolation>,
    max_violations: usize,
    /// The fuel that slices before this one have taken.
    fuel_before: u64,
    /// The fuel at which the memory is looked at next.
    next_look: u64,
}

impl Machine {
    fn new(root: Node, max_violations: usize) -> Self {
        Self {
            root,
            phase: Phase::Verdict,
            frames: Vec::new(),
            returned: None,
            scratch: Scratch::default(),
            violations: Vec::new(),
            max_violations,
            fuel_before: 0,
            next_look: 0,
        }
    }

    fn memory(&self) -> usize {
        size_of::<Self>() + self.frames.capacity() * size_of::<Frame>() + self.scratch.memory()
    }

    fn run(&mut self, context: &mut Context<'_>) -> Poll<Outcome> {
        loop {
            match std::task::ready!(self.run_frames(context)) {
                Ok(true) if self.phase == Phase::Verdict => return Poll::Ready(Outcome::Valid),
                Ok(false) if self.phase == Phase::Verdict => self.begin_violations(context),
                Ok(_) => return Poll::Ready(self.invalid(context.program, context.tape)),
                Err(OutOfMemory) if self.phase == Phase::Verdict => return Poll::Ready(Outcome::OutOfMemory),
                Err(OutOfMemory) => return Poll::Ready(self.invalid(context.program, context.tape)),
            }
        }
    }

    fn begin_violations(&mut self, context: &mut Context<'_>) {
        self.phase = Phase::Violations;
        self.frames.clear();
        self.returned = None;
        self.scratch.begin_violations();
        self.push(context, self.root, context.program.root, true);
    }

    fn push(&mut self, context: &mut Context<'_>, node: Node, block: BlockId, collects: bool) {
        context.fuel.charge(FRAME_COST);
        let frame = Frame::new(node, block, context.program.block(block), collects);
        self.frames.push(Frame { explains: self.scratch.gives_reason && !collects, ..frame });
    }

    /// Runs until the last frame has ended.
    fn run_frames(&mut self, context: &mut Context<'_>) -> Poll<Result<bool, OutOfMemory>> {
        loop {
            if context.fuel.is_spent() {
                return Poll::Pending;
            }
            let depth = self.frames.len();
            let Some(frame) = self.frames.last_mut() else {
                return Poll::Ready(Ok(self.returned.take().unwrap_or(true)));
            };
            let Some(instruction) = context.program.code.get(frame.pc as usize).filter(|_| frame.pc < frame.end) else {
                let verdict = !frame.has_failed;
                self.end_frame(context, verdict);
                continue;
            };
            let child = self.returned.take();
            match self.scratch.step(context, frame, depth, *instruction, child) {
                Step::Pass => {
                    context.fuel.charge(1);
                    frame.advance();
                }
                Step::Push(node, block, collects) => {
                    if depth >= MAX_FRAMES || self.exceeds_memory(context) {
                        return Poll::Ready(Err(OutOfMemory));
                    }
                    self.push(context, node, block, collects);
                }
                Step::Pending => return Poll::Pending,
                Step::OutOfMemory => return Poll::Ready(Err(OutOfMemory)),
                Step::OutOfFuel => {
                    context.fuel.charge(u64::MAX);
                    return Poll::Pending;
                }
                failed @ (Step::Fail | Step::FailBelow) if !frame.collects => {
                    // What failed below has noted its reason.
                    let is_own = matches!(failed, Step::Fail) || !self.scratch.has_reason();
                    if frame.explains && is_own {
                        self.scratch.note_reason(context, &self.frames, *instruction);
                    }
                    self.end_frame(context, false);
                }
                Step::FailBelow => {
                    context.fuel.charge(1);
                    frame.has_failed = true;
                    frame.advance();
                }
                Step::Fail => {
                    frame.has_failed = true;
                    let details = self.scratch.take_details(depth);
                    self.record(context, *instruction, details);
                    if let Some(frame) = self.frames.last_mut() {
                        frame.advance();
                    }
                    if self.violations.len() >= self.max_violations {
                        self.frames.clear();
                        return Poll::Ready(Ok(false));
                    }
                }
            }
        }
    }

    fn end_frame(&mut self, context: &mut Context<'_>, verdict: bool) {
        if let Some(frame) = self.frames.pop() {
            if self.fuel_before + context.fuel.used() > MEMO_AFTER {
                self.scratch.memorises = true;
            }
            self.scratch.end_frame(context, &frame, self.frames.len() + 1, verdict);
        }
        self.returned = Some(verdict);
    }

    /// Looks at the memory from time to time; frames, memo and sets of bits have bounds of their own.
    fn exceeds_memory(&mut self, context: &Context<'_>) -> bool {
        let used = self.fuel_before + context.fuel.used();
        if used < self.next_look {
            return false;
        }
        self.next_look = used + LOOK_INTERVAL;
        self.memory() > scratch_limit(context.tape)
    }

    fn record(&mut self, context: &mut Context<'_>, instruction: Instruction, details: Vec<Detail>) {
        let Some(frame) = self.frames.last() else { return };
        let pointer = violation::pointer(context.tape, &self.frames, 0);
        context.fuel.charge(self.frames.len() as u64 + pointer.len() as u64 / 16);
        let position = context.program.block(frame.block).position;
        for detail in details {
            if self.violations.len() < self.max_violations {
                let (node, pointer) = (frame.node, pointer.clone());
                self.violations.push(RawViolation { pointer, node, position, instruction, detail });
            }
        }
    }

    fn invalid(&self, program: &Program, tape: &Tape) -> Outcome {
        let mut violations: Vec<_> = self.violations.iter().map(|raw| raw.render(program, tape)).collect();
        if violations.is_empty() {
            violations.push(Violation::of_whole());
        }
        Outcome::Invalid(violations)
    }
}

/// The memory that a check may hold: 4 MiB, and 4 bytes for each byte of the text beyond 1 MiB.
fn scratch_limit(tape: &Tape) -> usize {
    MAX_SCRATCH_BYTES + 4 * tape.body().len().saturating_sub(1 << 20)
}

/// The check takes more memory than allowed.
#[derive(Clone, Copy, Debug)]
struct OutOfMemory;

/// A check that owns what it works with, so that another thread can go on with it.
#[derive(Debug)]
pub struct Check {
    program: Arc<Program>,
    tape: Arc<Tape>,
    evaluation: Evaluation,
}

impl Check {
    /// Takes over an evaluation that has not ended.
    pub fn new(program: Arc<Program>, tape: Arc<Tape>, evaluation: Evaluation) -> Self {
        Self { program, tape, evaluation }
    }

    /// Goes on until the check ends or has taken `slice` units.
    pub fn resume(&mut self, slice: u64) -> Poll<Outcome> {
        self.evaluation.resume(&self.program, &self.tape, slice)
    }

    /// Returns the memory that the check holds beside program and tape, in bytes.
    pub fn memory(&self) -> usize {
        self.evaluation.memory()
    }

    /// Returns the fuel that the check has taken.
    pub fn fuel_used(&self) -> u64 {
        self.evaluation.fuel_used()
    }
}

impl Program {
    /// Checks a value to the end, without a bound of fuel: for values of the program's owner.
    pub fn check(&self, tape: &Tape, node: Node) -> Outcome {
        let mut evaluation = Evaluation::new(node, u64::MAX);
        loop {
            if let Poll::Ready(outcome) = evaluation.resume(self, tape, u64::MAX) {
                return outcome;
            }
        }
    }

    /// Returns whether a text is valid, without a bound of fuel.
    pub fn is_valid(&self, tape: &Tape) -> bool {
        self.check(tape, Tape::ROOT) == Outcome::Valid
    }

    /// Returns the violations of a text, without a bound of fuel.
    pub fn violations(&self, tape: &Tape) -> Vec<Violation> {
        match self.check(tape, Tape::ROOT) {
            Outcome::Invalid(violations) => violations,
            _ => Vec::new(),
        }
    }
}
