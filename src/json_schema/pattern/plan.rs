//! Chooses how a pattern is matched.

use super::PatternError;
use super::backtrack_program::BacktrackProgram;
use super::budget::CompileBudget;
use super::code_points::ClassTable;
use super::dense_dfa::DenseDfa;
use super::nfa::{Direction, LookForm, LookPrograms, NfaOptions, NfaProgram, compile_nfa};
use super::sequence::CharacterSequence;
use super::simulation::NfaSimulation;
use super::syntax::{Boundary, Expression, LookAround, SyntaxTree};

/// States of an automaton from which a deterministic one may be built, and in which repeats are copied.
const MAX_COPIED_STATES: usize = 4_000;

/// States of any automaton.
const MAX_STATES: usize = 200_000;

/// Parts that a pattern may be divided into.
const MAX_PARTS: usize = 16;

/// How one part of a pattern is matched.
#[derive(Debug)]
pub(super) enum PartEngine {
    Sequence(CharacterSequence),
    Dense(DenseDfa),
    Simulation(SimulationPrograms),
    Backtrack(BacktrackProgram),
}

/// An automaton with the automata of its look-arounds, innermost first.
#[derive(Debug)]
pub(super) struct SimulationPrograms {
    pub(super) looks: Vec<NfaProgram>,
    pub(super) main: NfaProgram,
}

impl SimulationPrograms {
    /// Bytes of the largest simulation that runs one of the automata.
    pub(super) fn largest_simulation(&self) -> usize {
        self.looks.iter().chain([&self.main]).map(NfaSimulation::memory_for).max().unwrap_or(0)
    }
}

/// A part of a pattern. The pattern matches if each positive part matches and no negative part does.
#[derive(Debug)]
pub(super) struct PatternPart {
    pub(super) engine: PartEngine,
    pub(super) is_negative: bool,
}

impl PatternPart {
    /// Returns whether matching needs no memory.
    pub(super) fn is_quick(&self) -> bool {
        matches!(self.engine, PartEngine::Sequence(_) | PartEngine::Dense(_))
    }

    /// Bytes that matching takes beside the tables of look-arounds.
    pub(super) fn simulation_memory(&self) -> usize {
        match &self.engine {
            PartEngine::Simulation(programs) => programs.largest_simulation(),
            _ => 0,
        }
    }

    /// Bytes that the part holds.
    pub(super) fn memory(&self) -> usize {
        size_of::<Self>()
            + match &self.engine {
                PartEngine::Sequence(sequence) => sequence.memory(),
                PartEngine::Dense(dfa) => dfa.memory(),
                PartEngine::Backtrack(program) => program.memory(),
                PartEngine::Simulation(programs) => {
                    programs.main.memory() + programs.looks.iter().map(NfaProgram::memory).sum::<usize>()
                }
            }
    }
}

/// Compiles a pattern into its parts.
pub(super) fn compile_parts(
    tree: SyntaxTree,
    budget: &mut CompileBudget<'_>,
) -> Result<(Vec<PatternPart>, ClassTable), PatternError> {
    if tree.has_back_references {
        let engine = PartEngine::Backtrack(BacktrackProgram::compile(&tree, budget)?);
        return Ok((vec![PatternPart { engine, is_negative: false }], tree.classes));
    }
    let SyntaxTree { root, mut classes, .. } = tree;
    if has_look(&root)
        && let Some(dfa) = build_dense(&root, &mut classes, budget)?
    {
        classes.finish();
        return Ok((vec![PatternPart { engine: PartEngine::Dense(dfa), is_negative: false }], classes));
    }
    let parts = divide(root)
        .into_iter()
        .map(|(expression, is_negative)| {
            let engine = choose_engine(&expression, &mut classes, budget)?;
            Ok(PatternPart { engine, is_negative })
        })
        .collect::<Result<_, PatternError>>()?;
    classes.finish();
    Ok((parts, classes))
}

/// Divides a pattern at look-aheads at the start of the text and look-behinds at its end: each can be matched alone.
fn divide(root: Expression) -> Vec<(Expression, bool)> {
    let mut terms = match root {
        Expression::Concatenation(terms) => terms,
        other => return vec![(other, false)],
    };
    let mut parts = Vec::new();
    if matches!(terms.first(), Some(Expression::Boundary(Boundary::TextStart))) {
        while parts.len() < MAX_PARTS && is_look(terms.get(1), false) {
            if let Expression::Look(look) = terms.remove(1) {
                let LookAround { body, is_negative, .. } = *look;
                let start = Expression::Boundary(Boundary::TextStart);
                parts.push((Expression::Concatenation(vec![start, body]), is_negative));
            }
        }
    }
    if matches!(terms.last(), Some(Expression::Boundary(Boundary::TextEnd))) {
        while parts.len() < MAX_PARTS && terms.len() > 1 && is_look(terms.get(terms.len() - 2), true) {
            if let Expression::Look(look) = terms.remove(terms.len() - 2) {
                let LookAround { body, is_negative, .. } = *look;
                let end = Expression::Boundary(Boundary::TextEnd);
                parts.push((Expression::Concatenation(vec![body, end]), is_negative));
            }
        }
    }
    parts.push((Expression::Concatenation(terms), false));
    parts
}

/// Returns whether a term of the pattern is a look-around.
fn has_look(root: &Expression) -> bool {
    matches!(root, Expression::Concatenation(terms) if terms.iter().any(|term| matches!(term, Expression::Look(_))))
}

fn is_look(term: Option<&Expression>, is_behind: bool) -> bool {
    matches!(term, Some(Expression::Look(look)) if look.is_behind == is_behind)
}

fn choose_engine(
    expression: &Expression,
    classes: &mut ClassTable,
    budget: &mut CompileBudget<'_>,
) -> Result<PartEngine, PatternError> {
    if let Some(sequence) = CharacterSequence::from_expression(expression, classes) {
        budget.hold(sequence.memory())?;
        return Ok(PartEngine::Sequence(sequence));
    }
    if let Some(dfa) = build_dense(expression, classes, budget)? {
        return Ok(PartEngine::Dense(dfa));
    }
    let mut looks = LookPrograms::default();
    let options = NfaOptions {
        direction: Direction::Forward,
        is_anchored: false,
        has_counters: true,
        max_states: MAX_STATES,
        look_form: LookForm::PositionTable,
    };
    let main = compile_nfa(expression, options, &mut looks, classes, budget)?;
    Ok(PartEngine::Simulation(SimulationPrograms { looks: looks.programs, main }))
}

/// Builds a deterministic automaton with copied repeats, if that is small.
fn build_dense(
    expression: &Expression,
    classes: &mut ClassTable,
    budget: &mut CompileBudget<'_>,
) -> Result<Option<DenseDfa>, PatternError> {
    let memory_left = budget.memory_left();
    let mut looks = LookPrograms::default();
    let options = NfaOptions {
        direction: Direction::Forward,
        is_anchored: false,
        has_counters: false,
        max_states: MAX_COPIED_STATES,
        look_form: LookForm::Forward,
    };
    let program = match compile_nfa(expression, options, &mut looks, classes, budget) {
        Ok(program) => Some(program),
        Err(PatternError::Unsupported(_)) => None,
        Err(error) => return Err(error),
    };
    budget.release(memory_left.saturating_sub(budget.memory_left()));
    match program {
        Some(program) => DenseDfa::build(&program, &looks.programs, classes, budget),
        None => Ok(None),
    }
}
