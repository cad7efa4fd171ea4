//! Patterns such as `^[a-z][a-z0-9-]{0,62}$`: classes in a row, of which one may have a length that varies.

use std::task::Poll;

use crate::fuel::Fuel;

use super::code_points::{CharacterClass, ClassTable};
use super::nfa::as_class_repeat;
use super::syntax::{Boundary, Expression};

/// Classes before and after the one whose length varies.
const MAX_FIXED: usize = 256;

/// Bytes of text between two looks at the fuel.
const BLOCK: usize = 1024;

/// Bytes of text for one unit of fuel where bytes are compared.
const BYTES_PER_UNIT: u64 = 8;

/// A class with the number of its code points.
#[derive(Clone, Copy, Debug)]
struct ClassRun {
    class: u32,
    min: u32,
    max: Option<u32>,
}

/// How the code points of the middle are compared.
#[derive(Debug)]
enum MiddleTest {
    /// Every code point is in the class.
    Everything,
    /// Bytes suffice: the class has all code points above ASCII or none. The table has the bytes that it allows.
    Bytes(Box<[bool; 256]>),
    CodePoints,
}

/// Classes in a row that match a whole text.
#[derive(Debug)]
pub(super) struct CharacterSequence {
    head: Box<[u32]>,
    middle: ClassRun,
    test: MiddleTest,
    tail: Box<[u32]>,
}

/// Where a comparison with a sequence is.
#[derive(Clone, Copy, Debug)]
pub(super) struct SequencePosition {
    is_started: bool,
    /// Byte offsets of what is left of the middle.
    position: usize,
    end: usize,
    /// Code points of the middle so far.
    count: usize,
}

impl CharacterSequence {
    /// Returns the sequence that an expression is, if it is one.
    pub(super) fn from_expression(expression: &Expression, classes: &ClassTable) -> Option<Self> {
        let mut parts = Vec::new();
        collect_parts(expression, &mut parts)?;
        let (first, rest) = parts.split_first()?;
        let (last, inner) = rest.split_last()?;
        if !matches!(first, Expression::Boundary(Boundary::TextStart))
            || !matches!(last, Expression::Boundary(Boundary::TextEnd))
        {
            return None;
        }
        let runs: Vec<ClassRun> = inner.iter().map(|part| class_run(part)).collect::<Option<_>>()?;
        let middle = find_middle(&runs)?;
        let (head, tail) = (runs.get(..middle)?, runs.get(middle + 1..)?);
        let run = *runs.get(middle)?;
        let test = MiddleTest::new(classes.get(run.class)?);
        Some(Self { head: expand(head)?, middle: run, test, tail: expand(tail)? })
    }

    /// Bytes that the sequence holds.
    pub(super) fn memory(&self) -> usize {
        (self.head.len() + self.tail.len()) * 4 + 256
    }

    /// The position before a text.
    pub(super) fn start() -> SequencePosition {
        SequencePosition { is_started: false, position: 0, end: 0, count: 0 }
    }

    /// Goes on until the verdict is known or the fuel is spent.
    pub(super) fn resume(
        &self,
        at: &mut SequencePosition,
        text: &str,
        classes: &ClassTable,
        fuel: &mut Fuel,
    ) -> Poll<bool> {
        if !at.is_started {
            fuel.charge(self.ends_price());
            match self.compare_ends(text, classes) {
                Some(start) => *at = start,
                None => return Poll::Ready(false),
            }
        }
        loop {
            if at.position >= at.end {
                return Poll::Ready(self.is_length_allowed(at.count));
            }
            if fuel.is_spent() {
                return Poll::Pending;
            }
            if !self.compare_block(at, text, classes, fuel) {
                return Poll::Ready(false);
            }
        }
    }

    /// Compares a text without looking whether the fuel is spent.
    #[inline]
    pub(super) fn compare(&self, text: &str, classes: &ClassTable, fuel: &mut Fuel) -> bool {
        fuel.charge(self.ends_price());
        let Some(mut at) = self.compare_ends(text, classes) else { return false };
        while at.position < at.end {
            if !self.compare_block(&mut at, text, classes, fuel) {
                return false;
            }
        }
        self.is_length_allowed(at.count)
    }

    fn ends_price(&self) -> u64 {
        1 + (self.head.len() + self.tail.len()) as u64 / 2
    }

    fn is_length_allowed(&self, count: usize) -> bool {
        count >= self.middle.min as usize && self.middle.max.is_none_or(|max| count <= max as usize)
    }

    /// Compares what is before and after the middle, and returns where the middle is.
    fn compare_ends(&self, text: &str, classes: &ClassTable) -> Option<SequencePosition> {
        let mut characters = text.chars();
        for &class in &self.head {
            let code_point = u32::from(characters.next()?);
            classes.contains(class, code_point).then_some(())?;
        }
        for &class in self.tail.iter().rev() {
            let code_point = u32::from(characters.next_back()?);
            classes.contains(class, code_point).then_some(())?;
        }
        let middle = characters.as_str();
        let is_too_long = self.middle.max.is_some_and(|max| middle.len() > (max as usize).saturating_mul(4));
        if is_too_long || middle.len() < self.middle.min as usize {
            return None;
        }
        let position = middle.as_ptr().addr() - text.as_ptr().addr();
        Some(SequencePosition { is_started: true, position, end: position + middle.len(), count: 0 })
    }

    fn compare_block(&self, at: &mut SequencePosition, text: &str, classes: &ClassTable, fuel: &mut Fuel) -> bool {
        let end = at.end.min(at.position + BLOCK);
        let per_unit = if matches!(self.test, MiddleTest::Everything) { 16 } else { BYTES_PER_UNIT };
        fuel.charge_bytes(end - at.position, per_unit);
        let block = text.as_bytes().get(at.position..end).unwrap_or_default();
        match &self.test {
            MiddleTest::Everything => {
                at.count += block.iter().filter(|&&byte| is_first_byte(byte)).count();
                at.position = end;
                true
            }
            MiddleTest::Bytes(allowed) => {
                let mut count = 0;
                for &byte in block {
                    if !allowed.get(usize::from(byte)).copied().unwrap_or(false) {
                        return false;
                    }
                    count += usize::from(is_first_byte(byte));
                }
                at.count += count;
                at.position = end;
                true
            }
            MiddleTest::CodePoints => self.compare_code_points(at, text, classes, fuel),
        }
    }

    fn compare_code_points(
        &self,
        at: &mut SequencePosition,
        text: &str,
        classes: &ClassTable,
        fuel: &mut Fuel,
    ) -> bool {
        let Some(class) = classes.get(self.middle.class) else { return false };
        let limit = at.end.min(at.position + BLOCK);
        for character in text.get(at.position..at.end).unwrap_or_default().chars() {
            if at.position >= limit {
                break;
            }
            fuel.charge(u64::from(!character.is_ascii()));
            if !class.contains(u32::from(character)) {
                return false;
            }
            at.count += 1;
            at.position += character.len_utf8();
        }
        true
    }
}

impl MiddleTest {
    fn new(class: &CharacterClass) -> Self {
        if class.is_everything() {
            return Self::Everything;
        }
        let has_all = class.has_all_above_ascii();
        let has_none = class.ranges().last().is_none_or(|&(_, high)| high < 128);
        if !has_all && !has_none {
            return Self::CodePoints;
        }
        let mut allowed = Box::new([has_all; 256]);
        for (byte, slot) in (0..128).zip(allowed.iter_mut()) {
            *slot = class.contains(byte);
        }
        Self::Bytes(allowed)
    }
}

fn is_first_byte(byte: u8) -> bool {
    byte & 0xC0 != 0x80
}

fn collect_parts<'e>(expression: &'e Expression, parts: &mut Vec<&'e Expression>) -> Option<()> {
    match expression {
        Expression::Concatenation(inner) => inner.iter().try_for_each(|part| collect_parts(part, parts)),
        Expression::Group(_, body) => collect_parts(body, parts),
        Expression::Boundary(_) | Expression::Class(_) | Expression::Repetition(_) => {
            parts.push(expression);
            (parts.len() <= MAX_FIXED + 3).then_some(())
        }
        Expression::Empty => Some(()),
        Expression::Alternation(_) | Expression::Look(_) | Expression::BackReference(_) => None,
    }
}

fn class_run(expression: &Expression) -> Option<ClassRun> {
    match expression {
        Expression::Class(class) => Some(ClassRun { class: *class, min: 1, max: Some(1) }),
        Expression::Repetition(repetition) => {
            as_class_repeat(repetition).map(|(class, min, max)| ClassRun { class, min, max })
        }
        _ => None,
    }
}

/// Returns the index of the run whose length varies, or else of the longest.
fn find_middle(runs: &[ClassRun]) -> Option<usize> {
    let mut varying = runs.iter().enumerate().filter(|(_, run)| run.max != Some(run.min));
    match (varying.next(), varying.next()) {
        (Some((index, _)), None) => Some(index),
        (None, _) => runs.iter().enumerate().max_by_key(|(_, run)| run.min).map(|(index, _)| index),
        _ => None,
    }
}

fn expand(runs: &[ClassRun]) -> Option<Box<[u32]>> {
    let total: u64 = runs.iter().map(|run| u64::from(run.min)).sum();
    if total > MAX_FIXED as u64 {
        return None;
    }
    Some(runs.iter().flat_map(|run| std::iter::repeat_n(run.class, run.min as usize)).collect())
}
