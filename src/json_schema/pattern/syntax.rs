//! The syntax tree of a pattern.

use super::code_points::ClassTable;

/// A condition on a position that depends on the characters beside it only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Boundary {
    TextStart,
    TextEnd,
    Word,
    NotWord,
}

/// A part of a pattern.
#[derive(Clone, Debug)]
pub(super) enum Expression {
    Empty,
    /// One code point of the class with this index.
    Class(u32),
    Boundary(Boundary),
    Concatenation(Vec<Expression>),
    Alternation(Vec<Expression>),
    Repetition(Box<Repetition>),
    /// A group that captures, by its number.
    Group(u32, Box<Expression>),
    Look(Box<LookAround>),
    /// What one of these groups captured. Several groups share a name if they are in different alternatives.
    BackReference(Vec<u32>),
}

/// A part with its quantifier.
#[derive(Clone, Debug)]
pub(super) struct Repetition {
    pub(super) body: Expression,
    pub(super) min: u32,
    pub(super) max: Option<u32>,
    pub(super) is_lazy: bool,
    /// Groups within the body: the first number, and one more than the last.
    pub(super) groups: (u32, u32),
}

/// A look-ahead or a look-behind.
#[derive(Clone, Debug)]
pub(super) struct LookAround {
    pub(super) body: Expression,
    pub(super) is_behind: bool,
    pub(super) is_negative: bool,
}

/// What the parser makes of a pattern.
#[derive(Debug)]
pub(super) struct SyntaxTree {
    pub(super) root: Expression,
    pub(super) classes: ClassTable,
    /// Groups that capture.
    pub(super) group_count: u32,
    pub(super) has_back_references: bool,
}
