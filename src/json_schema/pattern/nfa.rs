//! Automata without determinism, over code points.
//!
//! An automaton scans a text in one direction. Conditions on positions are relative to it: where the scan is backward,
//! `$` is a condition on its start.

use std::collections::HashMap;

use super::PatternError;
use super::budget::CompileBudget;
use super::code_points::{ClassTable, is_word_character};
use super::syntax::{Boundary, Expression, LookAround, Repetition};

/// A repeat of one class with at least so many states may be counted.
const MIN_COUNTED: u32 = 8;

/// A condition on a position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Condition {
    ScanStart,
    ScanEnd,
    WordBoundary,
    NotWordBoundary,
    /// The bit of this position in the table of this look-around.
    Look {
        index: u32,
        is_negative: bool,
    },
}

/// A state of an automaton.
#[derive(Clone, Copy, Debug)]
pub(super) enum NfaState {
    Class {
        class: u32,
        next: u32,
    },
    Split {
        first: u32,
        second: u32,
    },
    Condition {
        condition: Condition,
        next: u32,
    },
    /// Between `min` (at least 1) and `max` code points of a class.
    Counter {
        counter: u32,
        next: u32,
    },
    Accept,
}

/// The bounds of a counted repeat.
#[derive(Clone, Copy, Debug)]
pub(super) struct CounterBounds {
    pub(super) class: u32,
    pub(super) min: u32,
    pub(super) max: u32,
}

/// In which direction an automaton scans the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Direction {
    Forward,
    Backward,
}

/// An automaton whose matches may start anywhere.
#[derive(Debug)]
pub(super) struct NfaProgram {
    states: Vec<NfaState>,
    counters: Vec<CounterBounds>,
    pub(super) start: u32,
    pub(super) direction: Direction,
}

impl NfaProgram {
    /// The state with this index.
    #[inline]
    pub(super) fn state(&self, index: u32) -> Option<NfaState> {
        self.states.get(index as usize).copied()
    }

    /// All states.
    pub(super) fn states(&self) -> &[NfaState] {
        &self.states
    }

    /// The number of states.
    pub(super) fn len(&self) -> usize {
        self.states.len()
    }

    /// The bounds of all counted repeats.
    pub(super) fn counters(&self) -> &[CounterBounds] {
        &self.counters
    }

    /// Returns whether a condition depends on word characters.
    pub(super) fn has_word_conditions(&self) -> bool {
        self.states.iter().any(|state| match state {
            NfaState::Condition { condition, .. } => {
                matches!(condition, Condition::WordBoundary | Condition::NotWordBoundary)
            }
            _ => false,
        })
    }

    /// Bytes that the automaton holds.
    pub(super) fn memory(&self) -> usize {
        self.states.capacity() * size_of::<NfaState>() + self.counters.capacity() * size_of::<CounterBounds>()
    }
}

/// How an expression becomes an automaton.
#[derive(Clone, Copy, Debug)]
pub(super) struct NfaOptions {
    pub(super) direction: Direction,
    /// Whether matches start at the start of the scan only.
    pub(super) is_anchored: bool,
    /// Whether repeats of one class become counters.
    pub(super) has_counters: bool,
    pub(super) max_states: usize,
    pub(super) look_form: LookForm,
}

/// What the automata of look-arounds are for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LookForm {
    /// Each fills a table of positions: that of a look-ahead scans backward.
    PositionTable,
    /// Each starts where the look-ahead stands. Look-behinds are refused.
    Forward,
}

/// The automata of look-arounds, innermost first.
#[derive(Debug, Default)]
pub(super) struct LookPrograms {
    pub(super) programs: Vec<NfaProgram>,
    /// Indices of look-arounds by their addresses in the syntax tree: a repeat compiles its body several times.
    indices: HashMap<usize, u32>,
}

/// Look-arounds whose tables one pattern may need.
const MAX_LOOKS: usize = 64;

/// Compiles `expression`, and the bodies of its look-arounds into `looks`.
pub(super) fn compile_nfa(
    expression: &Expression,
    options: NfaOptions,
    looks: &mut LookPrograms,
    classes: &mut ClassTable,
    budget: &mut CompileBudget<'_>,
) -> Result<NfaProgram, PatternError> {
    let mut compiler = NfaCompiler { states: Vec::new(), counters: Vec::new(), options, looks, classes, budget };
    let accept = compiler.push(NfaState::Accept)?;
    let body = compiler.emit(expression, accept)?;
    let is_anchored = options.is_anchored || starts_at_scan_start(expression, options.direction);
    let start = if is_anchored { body } else { compiler.emit_any_prefix(body)? };
    compiler.states.shrink_to_fit();
    Ok(NfaProgram { states: compiler.states, counters: compiler.counters, start, direction: options.direction })
}

/// Returns whether the expression matches at the start of the scan only.
pub(super) fn starts_at_scan_start(expression: &Expression, direction: Direction) -> bool {
    match (expression, direction) {
        (Expression::Boundary(Boundary::TextStart), Direction::Forward)
        | (Expression::Boundary(Boundary::TextEnd), Direction::Backward) => true,
        (Expression::Concatenation(parts), Direction::Forward) => {
            parts.first().is_some_and(|part| starts_at_scan_start(part, direction))
        }
        (Expression::Concatenation(parts), Direction::Backward) => {
            parts.last().is_some_and(|part| starts_at_scan_start(part, direction))
        }
        (Expression::Alternation(parts), _) => parts.iter().all(|part| starts_at_scan_start(part, direction)),
        (Expression::Group(_, body), _) => starts_at_scan_start(body, direction),
        _ => false,
    }
}

struct NfaCompiler<'c, 'f> {
    states: Vec<NfaState>,
    counters: Vec<CounterBounds>,
    options: NfaOptions,
    looks: &'c mut LookPrograms,
    classes: &'c mut ClassTable,
    budget: &'c mut CompileBudget<'f>,
}

impl NfaCompiler<'_, '_> {
    fn push(&mut self, state: NfaState) -> Result<u32, PatternError> {
        if self.states.len() >= self.options.max_states {
            return Err(PatternError::Unsupported("the pattern is too large: its repeats need too many states".into()));
        }
        self.budget.charge(1)?;
        self.budget.hold(size_of::<NfaState>())?;
        let index = u32::try_from(self.states.len()).unwrap_or(u32::MAX);
        self.states.push(state);
        Ok(index)
    }

    fn set(&mut self, index: u32, state: NfaState) {
        if let Some(slot) = self.states.get_mut(index as usize) {
            *slot = state;
        }
    }

    fn emit_any_prefix(&mut self, body: u32) -> Result<u32, PatternError> {
        let everything = super::code_points::CodePointSet::default().complement();
        let class = self.classes.intern(everything, self.budget)?;
        let split = self.push(NfaState::Accept)?;
        let any = self.push(NfaState::Class { class, next: split })?;
        self.set(split, NfaState::Split { first: body, second: any });
        Ok(split)
    }

    /// Emits the states of `expression`, which go on to the state `next`, and returns the first.
    fn emit(&mut self, expression: &Expression, next: u32) -> Result<u32, PatternError> {
        self.budget.charge(1)?;
        match expression {
            Expression::Empty => Ok(next),
            Expression::Class(class) => self.push(NfaState::Class { class: *class, next }),
            Expression::Boundary(boundary) => {
                let condition = self.condition(*boundary);
                self.push(NfaState::Condition { condition, next })
            }
            Expression::Concatenation(parts) => match self.options.direction {
                Direction::Forward => parts.iter().rev().try_fold(next, |next, part| self.emit(part, next)),
                Direction::Backward => parts.iter().try_fold(next, |next, part| self.emit(part, next)),
            },
            Expression::Alternation(parts) => self.emit_alternation(parts, next),
            Expression::Repetition(repetition) => self.emit_repetition(repetition, next),
            Expression::Group(_, body) => self.emit(body, next),
            Expression::Look(look) => self.emit_look(look, next),
            Expression::BackReference(_) => {
                Err(PatternError::Unsupported("a back-reference within a linear automaton".into()))
            }
        }
    }

    fn condition(&self, boundary: Boundary) -> Condition {
        match (boundary, self.options.direction) {
            (Boundary::TextStart, Direction::Forward) | (Boundary::TextEnd, Direction::Backward) => {
                Condition::ScanStart
            }
            (Boundary::TextEnd, Direction::Forward) | (Boundary::TextStart, Direction::Backward) => Condition::ScanEnd,
            (Boundary::Word, _) => Condition::WordBoundary,
            (Boundary::NotWord, _) => Condition::NotWordBoundary,
        }
    }

    fn emit_alternation(&mut self, parts: &[Expression], next: u32) -> Result<u32, PatternError> {
        let mut parts = parts.iter().rev();
        let Some(last) = parts.next() else { return Ok(next) };
        let mut first = self.emit(last, next)?;
        for part in parts {
            let start = self.emit(part, next)?;
            first = self.push(NfaState::Split { first: start, second: first })?;
        }
        Ok(first)
    }

    fn emit_look(&mut self, look: &LookAround, next: u32) -> Result<u32, PatternError> {
        let address = std::ptr::from_ref(look).addr();
        let index = match self.looks.indices.get(&address) {
            Some(&index) => index,
            None => self.compile_look(look, address)?,
        };
        let condition = Condition::Look { index, is_negative: look.is_negative };
        self.push(NfaState::Condition { condition, next })
    }

    fn compile_look(&mut self, look: &LookAround, address: usize) -> Result<u32, PatternError> {
        let is_forward = self.options.look_form == LookForm::Forward;
        if is_forward && look.is_behind {
            return Err(PatternError::Unsupported("a look-behind within a deterministic automaton".into()));
        }
        let direction = if look.is_behind || is_forward { Direction::Forward } else { Direction::Backward };
        let options = NfaOptions { direction, is_anchored: is_forward, ..self.options };
        let program = compile_nfa(&look.body, options, self.looks, self.classes, self.budget)?;
        if self.looks.programs.len() >= MAX_LOOKS {
            return Err(PatternError::Unsupported(format!("more than {MAX_LOOKS} look-arounds")));
        }
        let index = u32::try_from(self.looks.programs.len()).unwrap_or(u32::MAX);
        self.looks.programs.push(program);
        self.looks.indices.insert(address, index);
        Ok(index)
    }

    fn emit_repetition(&mut self, repetition: &Repetition, next: u32) -> Result<u32, PatternError> {
        if let Some((class, min, max)) = as_class_repeat(repetition) {
            let copies = max.unwrap_or(min);
            if self.options.has_counters && copies >= MIN_COUNTED {
                return self.emit_counted(class, min, max, next);
            }
            return self.emit_copies(&Expression::Class(class), min, max, next);
        }
        self.emit_copies(&repetition.body, repetition.min, repetition.max, next)
    }

    fn emit_counted(&mut self, class: u32, min: u32, max: Option<u32>, next: u32) -> Result<u32, PatternError> {
        let rest = match max {
            Some(_) => next,
            None => self.emit_star(&Expression::Class(class), next)?,
        };
        let bounds = CounterBounds { class, min: min.max(1), max: max.unwrap_or(min) };
        self.budget.hold(size_of::<CounterBounds>())?;
        let counter = u32::try_from(self.counters.len()).unwrap_or(u32::MAX);
        self.counters.push(bounds);
        let state = self.push(NfaState::Counter { counter, next: rest })?;
        match min {
            0 => self.push(NfaState::Split { first: state, second: next }),
            _ => Ok(state),
        }
    }

    fn emit_copies(&mut self, body: &Expression, min: u32, max: Option<u32>, next: u32) -> Result<u32, PatternError> {
        if matches!(body, Expression::Empty) {
            return Ok(next);
        }
        let mut copies = min;
        let mut rest = match max {
            None if min == 0 => self.emit_star(body, next)?,
            None => {
                // The last copy goes back to itself.
                copies -= 1;
                let split = self.push(NfaState::Accept)?;
                let first = self.emit(body, split)?;
                self.set(split, NfaState::Split { first, second: next });
                first
            }
            Some(max) => {
                let mut rest = next;
                for _ in min..max {
                    let first = self.emit(body, rest)?;
                    // The body has no states: more copies are the same.
                    if first == rest {
                        break;
                    }
                    rest = self.push(NfaState::Split { first, second: next })?;
                }
                rest
            }
        };
        for _ in 0..copies {
            let first = self.emit(body, rest)?;
            if first == rest {
                break;
            }
            rest = first;
        }
        Ok(rest)
    }

    fn emit_star(&mut self, body: &Expression, next: u32) -> Result<u32, PatternError> {
        let split = self.push(NfaState::Accept)?;
        let first = self.emit(body, split)?;
        self.set(split, NfaState::Split { first, second: next });
        Ok(split)
    }
}

/// Returns the class and the bounds of a repeat of one class, also of nested ones such as `(a{0,9}){0,9}`.
pub(super) fn as_class_repeat(repetition: &Repetition) -> Option<(u32, u32, Option<u32>)> {
    let (class, min, max) = match skip_groups(&repetition.body) {
        Expression::Class(class) => (*class, 1, Some(1)),
        Expression::Repetition(inner) => as_class_repeat(inner)?,
        _ => return None,
    };
    if repetition.max == Some(0) || max == Some(0) {
        return Some((class, 0, Some(0)));
    }
    // Between k and k + 1 rounds no length may be missing.
    let rounds = u64::from(repetition.min.max(1));
    let has_gap = max.is_some_and(|max| u64::from(max) * rounds + 1 < u64::from(min) * (rounds + 1));
    if repetition.max != Some(repetition.min) && (has_gap || (repetition.min == 0 && min > 1)) {
        return None;
    }
    let max = match (max, repetition.max) {
        (Some(max), Some(rounds)) => Some(max.checked_mul(rounds)?),
        _ => None,
    };
    Some((class, min.checked_mul(repetition.min)?, max))
}

fn skip_groups(mut expression: &Expression) -> &Expression {
    while let Expression::Group(_, body) = expression {
        expression = body;
    }
    expression
}

/// Returns whether a position is at a word boundary.
#[inline]
pub(super) fn is_word_boundary(before: Option<u32>, after: Option<u32>) -> bool {
    before.is_some_and(is_word_character) != after.is_some_and(is_word_character)
}
