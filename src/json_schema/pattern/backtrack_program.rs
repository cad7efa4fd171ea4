//! Patterns with back-references, compiled for a search with backtracking.

use super::PatternError;
use super::budget::CompileBudget;
use super::nfa::{Direction, as_class_repeat, starts_at_scan_start};
use super::syntax::{Boundary, Expression, LookAround, Repetition, SyntaxTree};

/// One step of a search. Steps that have no target go on to the step behind them.
#[derive(Clone, Copy, Debug)]
pub(super) enum BacktrackStep {
    Class {
        class: u32,
        direction: Direction,
    },
    /// As many code points of a class as there are, then fewer.
    ClassRun {
        class: u32,
        min: u32,
        max: u32,
        direction: Direction,
    },
    Boundary(Boundary),
    /// Goes on to the step behind it, and if that fails to the target.
    Split {
        other: u32,
    },
    Jump {
        target: u32,
    },
    /// Stores the position.
    Save {
        register: u32,
    },
    /// Compares with what a group captured: a range of [`BacktrackProgram::references`].
    BackReference {
        first: u32,
        last: u32,
        direction: Direction,
    },
    /// Starts a repeat.
    RepeatStart {
        repeat: u32,
    },
    /// Decides whether there is another round.
    RepeatHead {
        repeat: u32,
    },
    /// Starts a round.
    RepeatEnter {
        repeat: u32,
    },
    /// Ends a round.
    RepeatEnd {
        repeat: u32,
    },
    LookStart {
        is_negative: bool,
        end: u32,
    },
    LookEnd,
    Accept,
}

/// A repeat that counts its rounds in a register. The position at which a round starts is in the next register.
#[derive(Clone, Copy, Debug)]
pub(super) struct RepeatBounds {
    pub(super) register: u32,
    pub(super) min: u32,
    pub(super) max: u32,
    pub(super) is_lazy: bool,
    pub(super) head: u32,
    pub(super) exit: u32,
    /// Registers of the groups within, which each round clears: the first, and one more than the last.
    pub(super) groups: (u32, u32),
}

/// A pattern as steps of a search with backtracking.
#[derive(Debug)]
pub(super) struct BacktrackProgram {
    steps: Vec<BacktrackStep>,
    repeats: Vec<RepeatBounds>,
    /// Numbers of groups.
    references: Vec<u32>,
    pub(super) register_count: u32,
    /// Whether a match starts at the start of the text only.
    pub(super) is_anchored: bool,
}

impl BacktrackProgram {
    /// Compiles a pattern.
    pub(super) fn compile(tree: &SyntaxTree, budget: &mut CompileBudget<'_>) -> Result<Self, PatternError> {
        let program = Self {
            steps: Vec::new(),
            repeats: Vec::new(),
            references: Vec::new(),
            register_count: (tree.group_count + 1).saturating_mul(2),
            is_anchored: starts_at_scan_start(&tree.root, Direction::Forward),
        };
        let mut compiler = BacktrackCompiler { program, direction: Direction::Forward, budget };
        compiler.emit(&tree.root)?;
        compiler.push(BacktrackStep::Accept)?;
        Ok(compiler.program)
    }

    /// The step with this index.
    #[inline]
    pub(super) fn step(&self, index: u32) -> Option<BacktrackStep> {
        self.steps.get(index as usize).copied()
    }

    /// The repeat with this index.
    pub(super) fn repeat(&self, index: u32) -> Option<RepeatBounds> {
        self.repeats.get(index as usize).copied()
    }

    /// The groups in this range of references.
    pub(super) fn references(&self, first: u32, last: u32) -> &[u32] {
        self.references.get(first as usize..last as usize).unwrap_or_default()
    }

    /// Bytes that the program holds.
    pub(super) fn memory(&self) -> usize {
        self.steps.capacity() * size_of::<BacktrackStep>()
            + self.repeats.capacity() * size_of::<RepeatBounds>()
            + self.references.capacity() * 4
    }
}

struct BacktrackCompiler<'c, 'f> {
    program: BacktrackProgram,
    direction: Direction,
    budget: &'c mut CompileBudget<'f>,
}

impl BacktrackCompiler<'_, '_> {
    fn push(&mut self, step: BacktrackStep) -> Result<u32, PatternError> {
        self.budget.charge(2)?;
        self.budget.hold(size_of::<BacktrackStep>() * 2)?;
        let index = self.here();
        self.program.steps.push(step);
        Ok(index)
    }

    fn here(&self) -> u32 {
        u32::try_from(self.program.steps.len()).unwrap_or(u32::MAX)
    }

    fn set(&mut self, index: u32, step: BacktrackStep) {
        if let Some(slot) = self.program.steps.get_mut(index as usize) {
            *slot = step;
        }
    }

    fn emit(&mut self, expression: &Expression) -> Result<(), PatternError> {
        self.budget.charge(1)?;
        let direction = self.direction;
        match expression {
            Expression::Empty => Ok(()),
            Expression::Class(class) => self.push(BacktrackStep::Class { class: *class, direction }).map(drop),
            Expression::Boundary(boundary) => self.push(BacktrackStep::Boundary(*boundary)).map(drop),
            Expression::Concatenation(parts) => match direction {
                Direction::Forward => parts.iter().try_for_each(|part| self.emit(part)),
                Direction::Backward => parts.iter().rev().try_for_each(|part| self.emit(part)),
            },
            Expression::Alternation(parts) => self.emit_alternation(parts),
            Expression::Repetition(repetition) => self.emit_repetition(repetition),
            Expression::Group(number, body) => self.emit_group(*number, body),
            Expression::Look(look) => self.emit_look(look),
            Expression::BackReference(groups) => self.emit_back_reference(groups),
        }
    }

    fn emit_alternation(&mut self, parts: &[Expression]) -> Result<(), PatternError> {
        let mut jumps = Vec::new();
        for (index, part) in parts.iter().enumerate() {
            let is_last = index + 1 == parts.len();
            if is_last {
                self.emit(part)?;
                continue;
            }
            let split = self.push(BacktrackStep::Split { other: 0 })?;
            self.emit(part)?;
            jumps.push(self.push(BacktrackStep::Jump { target: 0 })?);
            let other = self.here();
            self.set(split, BacktrackStep::Split { other });
        }
        let target = self.here();
        jumps.into_iter().for_each(|jump| self.set(jump, BacktrackStep::Jump { target }));
        Ok(())
    }

    fn emit_group(&mut self, number: u32, body: &Expression) -> Result<(), PatternError> {
        let (start, end) = (number * 2, number * 2 + 1);
        let (before, after) = match self.direction {
            Direction::Forward => (start, end),
            Direction::Backward => (end, start),
        };
        self.push(BacktrackStep::Save { register: before })?;
        self.emit(body)?;
        self.push(BacktrackStep::Save { register: after }).map(drop)
    }

    fn emit_look(&mut self, look: &LookAround) -> Result<(), PatternError> {
        let is_negative = look.is_negative;
        let start = self.push(BacktrackStep::LookStart { is_negative, end: 0 })?;
        let direction = if look.is_behind { Direction::Backward } else { Direction::Forward };
        let outer = std::mem::replace(&mut self.direction, direction);
        self.emit(&look.body)?;
        self.direction = outer;
        self.push(BacktrackStep::LookEnd)?;
        let end = self.here();
        self.set(start, BacktrackStep::LookStart { is_negative, end });
        Ok(())
    }

    fn emit_back_reference(&mut self, groups: &[u32]) -> Result<(), PatternError> {
        self.budget.hold(groups.len() * 8)?;
        let first = u32::try_from(self.program.references.len()).unwrap_or(u32::MAX);
        self.program.references.extend_from_slice(groups);
        let last = u32::try_from(self.program.references.len()).unwrap_or(u32::MAX);
        self.push(BacktrackStep::BackReference { first, last, direction: self.direction }).map(drop)
    }

    fn emit_repetition(&mut self, repetition: &Repetition) -> Result<(), PatternError> {
        let has_groups = repetition.groups.0 < repetition.groups.1;
        if !has_groups
            && !repetition.is_lazy
            && let Some((class, min, max)) = as_class_repeat(repetition)
        {
            let (max, direction) = (max.unwrap_or(u32::MAX), self.direction);
            return self.push(BacktrackStep::ClassRun { class, min, max, direction }).map(drop);
        }
        self.budget.hold(size_of::<RepeatBounds>() * 2)?;
        let repeat = u32::try_from(self.program.repeats.len()).unwrap_or(u32::MAX);
        let register = self.program.register_count;
        self.program.register_count = register.saturating_add(2);
        let mut bounds = RepeatBounds {
            register,
            min: repetition.min,
            max: repetition.max.unwrap_or(u32::MAX),
            is_lazy: repetition.is_lazy,
            head: 0,
            exit: 0,
            groups: (repetition.groups.0 * 2, repetition.groups.1 * 2),
        };
        self.program.repeats.push(bounds);
        self.push(BacktrackStep::RepeatStart { repeat })?;
        bounds.head = self.push(BacktrackStep::RepeatHead { repeat })?;
        self.push(BacktrackStep::RepeatEnter { repeat })?;
        self.emit(&repetition.body)?;
        self.push(BacktrackStep::RepeatEnd { repeat })?;
        bounds.exit = self.here();
        if let Some(slot) = self.program.repeats.get_mut(repeat as usize) {
            *slot = bounds;
        }
        Ok(())
    }
}
