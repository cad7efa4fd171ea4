//! The parser of ECMA-262's pattern grammar, with `u` and by Annex B.

use std::collections::HashMap;

use super::PatternError;
use super::budget::CompileBudget;
use super::code_points::{ClassTable, CodePointSet, line_terminators};
use super::property::PropertySets;
use super::syntax::{Boundary, Expression, LookAround, Repetition, SyntaxTree};

/// How deep groups may be nested.
const MAX_DEPTH: u32 = 250;

/// Groups with names that a pattern may have.
const MAX_NAMED_GROUPS: usize = 1000;

/// Which of ECMA-262's two grammars the parser follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Grammar {
    /// The grammar with the flag `u`.
    Unicode,
    /// The grammar of Annex B, which web browsers follow without the flag.
    AnnexB,
    /// As Annex B, but a backslash before an ASCII letter must have a meaning.
    AnnexBStrictEscapes,
}

/// Parses `source`. Its characters are code points in both grammars.
pub(super) fn parse(
    source: &str,
    grammar: Grammar,
    budget: &mut CompileBudget<'_>,
) -> Result<SyntaxTree, PatternError> {
    budget.charge(source.len() as u64 / 4 + 1)?;
    let mut parser = Parser::new(source, grammar, budget);
    parser.count_groups();
    let root = parser.parse_disjunction(0)?;
    if parser.peek().is_some() {
        return Err(parser.syntax_error("unmatched ')'"));
    }
    parser.finish(root)
}

/// The state of parsing one pattern.
pub(super) struct Parser<'p, 'f> {
    characters: Vec<char>,
    pub(super) position: usize,
    pub(super) grammar: Grammar,
    pub(super) budget: &'p mut CompileBudget<'f>,
    pub(super) classes: ClassTable,
    pub(super) properties: PropertySets,
    /// Groups before `position`, and in the whole pattern.
    group_count: u32,
    pub(super) total_groups: u32,
    pub(super) has_named_groups: bool,
    named_groups: HashMap<String, Vec<u32>>,
    named_group_count: usize,
    /// Names that a group at `position` may not have.
    names_in_scope: Vec<String>,
    /// Names of back-references in the order in which they stand in the pattern, with their positions.
    pub(super) referenced_names: Vec<(String, usize)>,
    pub(super) has_back_references: bool,
}

impl<'p, 'f> Parser<'p, 'f> {
    fn new(source: &str, grammar: Grammar, budget: &'p mut CompileBudget<'f>) -> Self {
        Self {
            characters: source.chars().collect(),
            position: 0,
            grammar,
            budget,
            classes: ClassTable::default(),
            properties: PropertySets::default(),
            group_count: 0,
            total_groups: 0,
            has_named_groups: false,
            named_groups: HashMap::new(),
            named_group_count: 0,
            names_in_scope: Vec::new(),
            referenced_names: Vec::new(),
            has_back_references: false,
        }
    }

    fn finish(mut self, mut root: Expression) -> Result<SyntaxTree, PatternError> {
        let referenced = std::mem::take(&mut self.referenced_names);
        let mut groups = Vec::with_capacity(referenced.len());
        for (name, position) in referenced {
            let numbers =
                self.named_groups.get(&name).cloned().ok_or_else(|| {
                    PatternError::Syntax(format!("position {position}: no group has the name '{name}'"))
                })?;
            self.budget.charge(numbers.len() as u64)?;
            groups.push(numbers);
        }
        resolve_names(&mut root, &mut groups.into_iter());
        self.classes.finish();
        Ok(SyntaxTree {
            root,
            classes: self.classes,
            group_count: self.total_groups,
            has_back_references: self.has_back_references,
        })
    }

    pub(super) fn is_unicode(&self) -> bool {
        self.grammar == Grammar::Unicode
    }

    pub(super) fn peek(&self) -> Option<char> {
        self.peek_at(0)
    }

    pub(super) fn peek_at(&self, offset: usize) -> Option<char> {
        self.characters.get(self.position + offset).copied()
    }

    pub(super) fn take_if(&mut self, expected: char) -> bool {
        let is_expected = self.peek() == Some(expected);
        self.position += usize::from(is_expected);
        is_expected
    }

    fn starts_with(&self, text: &str) -> bool {
        text.chars().enumerate().all(|(offset, c)| self.peek_at(offset) == Some(c))
    }

    pub(super) fn syntax_error(&self, message: &str) -> PatternError {
        PatternError::Syntax(format!("position {}: {message}", self.position))
    }

    /// Counts the groups of the whole pattern: whether `\2` is a reference depends on groups behind it.
    fn count_groups(&mut self) {
        let mut is_in_class = false;
        let mut characters = self.characters.iter().peekable();
        let mut position = 0;
        while let Some(&character) = characters.next() {
            position += 1;
            match character {
                '\\' => {
                    characters.next();
                    position += 1;
                }
                '[' => is_in_class = true,
                ']' => is_in_class = false,
                '(' if !is_in_class => {
                    let after = |offset: usize| self.characters.get(position + offset).copied();
                    let is_named =
                        after(0) == Some('?') && after(1) == Some('<') && !matches!(after(2), Some('=' | '!'));
                    self.has_named_groups |= is_named;
                    self.total_groups += u32::from(is_named || after(0) != Some('?'));
                }
                _ => {}
            }
        }
    }

    fn parse_disjunction(&mut self, depth: u32) -> Result<Expression, PatternError> {
        if depth > MAX_DEPTH {
            return Err(PatternError::Unsupported(format!("groups are nested more than {MAX_DEPTH} deep")));
        }
        let scope = self.names_in_scope.len();
        let mut names_of_others = Vec::new();
        let mut alternatives = vec![self.parse_alternative(depth)?];
        while self.take_if('|') {
            names_of_others.extend(self.names_in_scope.drain(scope..));
            alternatives.push(self.parse_alternative(depth)?);
        }
        self.names_in_scope.extend(names_of_others);
        Ok(match (alternatives.len(), alternatives.pop()) {
            (1, Some(only)) => only,
            (_, last) => {
                alternatives.extend(last);
                Expression::Alternation(alternatives)
            }
        })
    }

    fn parse_alternative(&mut self, depth: u32) -> Result<Expression, PatternError> {
        let mut terms = Vec::new();
        while let Some(character) = self.peek() {
            if matches!(character, '|' | ')') {
                break;
            }
            self.budget.charge(2)?;
            terms.push(self.parse_term(depth)?);
        }
        Ok(match (terms.len(), terms.pop()) {
            (1, Some(only)) => only,
            (_, None) => Expression::Empty,
            (_, Some(last)) => {
                terms.push(last);
                Expression::Concatenation(terms)
            }
        })
    }

    fn parse_term(&mut self, depth: u32) -> Result<Expression, PatternError> {
        let first_group = self.group_count;
        if let Some(boundary) = self.parse_boundary() {
            return Ok(Expression::Boundary(boundary));
        }
        let atom = if let Some((is_behind, is_negative)) = self.parse_look_start() {
            let body = self.parse_disjunction(depth + 1)?;
            self.expect_group_end()?;
            let look = Expression::Look(Box::new(LookAround { body, is_behind, is_negative }));
            // Annex B: only a look-ahead may have a quantifier.
            if self.is_unicode() || is_behind {
                return Ok(look);
            }
            look
        } else {
            self.parse_atom(depth)?
        };
        self.parse_quantifier(atom, first_group)
    }

    fn parse_boundary(&mut self) -> Option<Boundary> {
        let (boundary, length) = match (self.peek()?, self.peek_at(1)) {
            ('^', _) => (Boundary::TextStart, 1),
            ('$', _) => (Boundary::TextEnd, 1),
            ('\\', Some('b')) => (Boundary::Word, 2),
            ('\\', Some('B')) => (Boundary::NotWord, 2),
            _ => return None,
        };
        self.position += length;
        Some(boundary)
    }

    fn parse_look_start(&mut self) -> Option<(bool, bool)> {
        let starts = [("(?=", false, false), ("(?!", false, true), ("(?<=", true, false), ("(?<!", true, true)];
        let &(text, is_behind, is_negative) = starts.iter().find(|(text, ..)| self.starts_with(text))?;
        self.position += text.len();
        Some((is_behind, is_negative))
    }

    fn expect_group_end(&mut self) -> Result<(), PatternError> {
        if self.take_if(')') { Ok(()) } else { Err(self.syntax_error("a group has no ')'")) }
    }

    fn parse_atom(&mut self, depth: u32) -> Result<Expression, PatternError> {
        let Some(character) = self.peek() else { return Err(self.syntax_error("a character is missing")) };
        match character {
            '(' => self.parse_group(depth),
            '[' => self.parse_class(),
            '\\' => self.parse_atom_escape(),
            '.' => {
                self.position += 1;
                self.class_expression(line_terminators().complement())
            }
            '*' | '+' | '?' => Err(self.syntax_error("nothing to repeat")),
            '{' if self.is_unicode() || self.parse_braces()?.is_some() => Err(self.syntax_error("nothing to repeat")),
            '}' | ']' if self.is_unicode() => Err(self.syntax_error("a lone bracket")),
            _ => {
                self.position += 1;
                self.class_expression(CodePointSet::from_code_point(u32::from(character)))
            }
        }
    }

    pub(super) fn class_expression(&mut self, set: CodePointSet) -> Result<Expression, PatternError> {
        self.classes.intern(set, self.budget).map(Expression::Class)
    }

    fn parse_group(&mut self, depth: u32) -> Result<Expression, PatternError> {
        self.position += 1;
        let mut number = None;
        if !self.starts_with("?:") {
            number = Some(self.group_count + 1);
            self.group_count += 1;
        } else {
            self.position += 2;
        }
        if let Some(number) = number
            && self.take_if('?')
        {
            if !self.take_if('<') {
                return Err(self.syntax_error("a group of an unknown kind"));
            }
            self.declare_name(number)?;
        }
        let body = self.parse_disjunction(depth + 1)?;
        self.expect_group_end()?;
        Ok(match number {
            Some(number) => Expression::Group(number, Box::new(body)),
            None => body,
        })
    }

    fn declare_name(&mut self, number: u32) -> Result<(), PatternError> {
        let name = self.parse_group_name()?;
        self.named_group_count += 1;
        if self.named_group_count > MAX_NAMED_GROUPS {
            return Err(PatternError::Unsupported(format!("more than {MAX_NAMED_GROUPS} groups have names")));
        }
        self.budget.charge(self.names_in_scope.len() as u64 / 4 + 8)?;
        if self.names_in_scope.contains(&name) {
            return Err(self.syntax_error("two groups have the same name"));
        }
        self.names_in_scope.push(name.clone());
        self.named_groups.entry(name).or_default().push(number);
        Ok(())
    }

    fn parse_quantifier(&mut self, body: Expression, first_group: u32) -> Result<Expression, PatternError> {
        let bounds = match self.peek() {
            Some('*') => self.take_bounds(0, None),
            Some('+') => self.take_bounds(1, None),
            Some('?') => self.take_bounds(0, Some(1)),
            Some('{') => match self.parse_braces()? {
                Some(bounds) => Some(bounds),
                None if self.is_unicode() => return Err(self.syntax_error("an incomplete quantifier")),
                None => None,
            },
            _ => None,
        };
        let Some((min, max)) = bounds else { return Ok(body) };
        let is_lazy = self.take_if('?');
        let groups = (first_group + 1, self.group_count + 1);
        Ok(Expression::Repetition(Box::new(Repetition { body, min, max, is_lazy, groups })))
    }

    fn take_bounds(&mut self, min: u32, max: Option<u32>) -> Option<(u32, Option<u32>)> {
        self.position += 1;
        Some((min, max))
    }

    /// Reads `{n}`, `{n,}` or `{n,m}`. Anything else is left where it is.
    fn parse_braces(&mut self) -> Result<Option<(u32, Option<u32>)>, PatternError> {
        let start = self.position;
        self.position += 1;
        let bounds = self.parse_bounds();
        match bounds {
            Some((min, Some(max))) if max < min => {
                Err(self.syntax_error("the bounds of a quantifier are out of order"))
            }
            Some(bounds) => Ok(Some(bounds)),
            None => {
                self.position = start;
                Ok(None)
            }
        }
    }

    fn parse_bounds(&mut self) -> Option<(u32, Option<u32>)> {
        let min = self.parse_decimal()?;
        let max = match self.take_if(',') {
            true if self.peek() == Some('}') => None,
            true => Some(self.parse_decimal()?),
            false => Some(min),
        };
        self.take_if('}').then_some((min, max))
    }

    /// Reads decimal digits. A number too large for the type becomes its maximum.
    pub(super) fn parse_decimal(&mut self) -> Option<u32> {
        let mut value = None;
        while let Some(digit) = self.peek().and_then(|character| character.to_digit(10)) {
            value = Some(value.unwrap_or(0u32).saturating_mul(10).saturating_add(digit));
            self.position += 1;
        }
        value
    }
}

/// Gives references by name the numbers of their groups, which may stand behind the reference.
fn resolve_names(expression: &mut Expression, groups: &mut impl Iterator<Item = Vec<u32>>) {
    match expression {
        Expression::Concatenation(parts) | Expression::Alternation(parts) => {
            parts.iter_mut().for_each(|part| resolve_names(part, groups));
        }
        Expression::Repetition(repetition) => resolve_names(&mut repetition.body, groups),
        Expression::Group(_, body) => resolve_names(body, groups),
        Expression::Look(look) => resolve_names(&mut look.body, groups),
        Expression::BackReference(numbers) if numbers.is_empty() => *numbers = groups.next().unwrap_or_default(),
        Expression::BackReference(_) | Expression::Empty | Expression::Class(_) | Expression::Boundary(_) => {}
    }
}
