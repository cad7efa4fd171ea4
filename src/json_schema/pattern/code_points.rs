//! Sets of code points, and the table of the sets that a pattern names.

use std::collections::HashMap;

use super::PatternError;
use super::budget::CompileBudget;

/// The largest code point.
pub(super) const MAX_CODE_POINT: u32 = 0x10_FFFF;

/// A set of code points as sorted ranges that neither overlap nor touch.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct CodePointSet {
    ranges: Vec<(u32, u32)>,
}

impl CodePointSet {
    /// Creates the set of all code points in `ranges`, which may be in any order and overlap.
    pub(super) fn from_ranges(mut ranges: Vec<(u32, u32)>) -> Self {
        // Stable: sets that are joined are runs, which this sort merges.
        ranges.sort();
        let mut merged: Vec<(u32, u32)> = Vec::with_capacity(ranges.len());
        for (low, high) in ranges {
            match merged.last_mut() {
                Some(last) if low <= last.1.saturating_add(1) => last.1 = last.1.max(high),
                _ => merged.push((low, high)),
            }
        }
        merged.shrink_to_fit();
        Self { ranges: merged }
    }

    /// Creates the set of one code point.
    pub(super) fn from_code_point(code_point: u32) -> Self {
        Self { ranges: vec![(code_point, code_point)] }
    }

    /// Returns the set of all code points that are not in this set.
    pub(super) fn complement(&self) -> Self {
        let mut ranges = Vec::with_capacity(self.ranges.len() + 1);
        let mut next = 0;
        for &(low, high) in &self.ranges {
            if low > next {
                ranges.push((next, low - 1));
            }
            next = high + 1;
        }
        if next <= MAX_CODE_POINT {
            ranges.push((next, MAX_CODE_POINT));
        }
        Self { ranges }
    }

    /// The ranges, sorted.
    pub(super) fn ranges(&self) -> &[(u32, u32)] {
        &self.ranges
    }
}

/// A set of code points in the form in which a text is compared with it.
#[derive(Debug)]
pub(super) struct CharacterClass {
    ascii: u128,
    ranges: Box<[(u32, u32)]>,
}

impl CharacterClass {
    fn new(set: &CodePointSet) -> Self {
        let mut ascii = 0u128;
        for &(low, high) in set.ranges() {
            for code_point in low..=high.min(127) {
                ascii |= 1 << code_point;
            }
        }
        Self { ascii, ranges: set.ranges().into() }
    }

    /// Returns whether the class has the code point.
    #[inline]
    pub(super) fn contains(&self, code_point: u32) -> bool {
        if code_point < 128 {
            return self.ascii >> code_point & 1 == 1;
        }
        match *self.ranges {
            [] => false,
            [(low, high)] => low <= code_point && code_point <= high,
            _ => self.search(code_point),
        }
    }

    fn search(&self, code_point: u32) -> bool {
        let after = self.ranges.partition_point(|&(low, _)| low <= code_point);
        let Some(before) = after.checked_sub(1) else { return false };
        self.ranges.get(before).is_some_and(|&(_, high)| code_point <= high)
    }

    /// The ranges, sorted.
    pub(super) fn ranges(&self) -> &[(u32, u32)] {
        &self.ranges
    }

    /// Returns whether the class has every Unicode scalar value.
    pub(super) fn is_everything(&self) -> bool {
        *self.ranges == [(0, MAX_CODE_POINT)]
    }

    /// Returns whether the class has every code point above ASCII.
    pub(super) fn has_all_above_ascii(&self) -> bool {
        self.ranges.last().is_some_and(|&(low, high)| low <= 128 && high == MAX_CODE_POINT)
    }
}

/// The distinct classes of one pattern. Expressions name a class by its index.
#[derive(Debug, Default)]
pub(super) struct ClassTable {
    classes: Vec<CharacterClass>,
    indices: HashMap<CodePointSet, u32, foldhash::quality::RandomState>,
    memory: usize,
}

impl ClassTable {
    /// Adds a set if the table does not have it, and returns its index.
    pub(super) fn intern(&mut self, set: CodePointSet, budget: &mut CompileBudget<'_>) -> Result<u32, PatternError> {
        budget.charge(2 + set.ranges.len() as u64)?;
        if let Some(&index) = self.indices.get(&set) {
            return Ok(index);
        }
        let bytes = size_of::<CharacterClass>() + set.ranges.len() * size_of::<(u32, u32)>();
        budget.hold(bytes * 2)?;
        budget.charge(8)?;
        self.memory += bytes;
        let index = u32::try_from(self.classes.len()).unwrap_or(u32::MAX);
        self.classes.push(CharacterClass::new(&set));
        self.indices.insert(set, index);
        Ok(index)
    }

    /// The class with this index. Indices come from [`ClassTable::intern`].
    #[inline]
    pub(super) fn get(&self, index: u32) -> Option<&CharacterClass> {
        self.classes.get(index as usize)
    }

    /// Returns whether the class with this index has the code point.
    #[inline]
    pub(super) fn contains(&self, index: u32, code_point: u32) -> bool {
        self.get(index).is_some_and(|class| class.contains(code_point))
    }

    /// Frees what only [`ClassTable::intern`] needs.
    pub(super) fn finish(&mut self) {
        self.indices = HashMap::default();
        self.classes.shrink_to_fit();
    }

    /// Bytes that the finished table holds.
    pub(super) fn memory(&self) -> usize {
        self.memory
    }
}

/// Returns the set `\d`.
pub(super) fn digits() -> CodePointSet {
    CodePointSet::from_ranges(vec![(0x30, 0x39)])
}

/// Returns the set `\w`.
pub(super) fn word_characters() -> CodePointSet {
    CodePointSet::from_ranges(vec![(0x30, 0x39), (0x41, 0x5A), (0x5F, 0x5F), (0x61, 0x7A)])
}

/// Returns whether `\w` has the code point.
#[inline]
pub(super) fn is_word_character(code_point: u32) -> bool {
    u8::try_from(code_point).is_ok_and(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

/// Returns the set `\s`: WhiteSpace and LineTerminator of ECMA-262.
pub(super) fn white_space() -> CodePointSet {
    CodePointSet::from_ranges(vec![
        (0x09, 0x0D),
        (0x20, 0x20),
        (0xA0, 0xA0),
        (0x1680, 0x1680),
        (0x2000, 0x200A),
        (0x2028, 0x2029),
        (0x202F, 0x202F),
        (0x205F, 0x205F),
        (0x3000, 0x3000),
        (0xFEFF, 0xFEFF),
    ])
}

/// Returns the set that `.` does not have.
pub(super) fn line_terminators() -> CodePointSet {
    CodePointSet::from_ranges(vec![(0x0A, 0x0A), (0x0D, 0x0D), (0x2028, 0x2029)])
}
