//! Groups code points that an automaton cannot tell apart.

use std::collections::{BTreeSet, HashMap};

use super::PatternError;
use super::budget::CompileBudget;
use super::code_points::{ClassTable, word_characters};
use super::nfa::{Condition, NfaProgram, NfaState};

/// Groups of code points that an alphabet may have.
const MAX_SYMBOLS: usize = 254;

/// Comparisons of a range with a class that finding the groups may take.
const MAX_COMPARISONS: usize = 200_000;

/// Sets of code points, each as its sorted ranges.
type RangeSets = Vec<Vec<(u32, u32)>>;

/// Groups of code points that an automaton cannot tell apart, by number.
#[derive(Debug)]
pub(super) struct Alphabet {
    ascii: [u8; 128],
    /// First code points of ranges, sorted, each with its group.
    ranges: Box<[(u32, u8)]>,
    symbol_count: usize,
    has_word_conditions: bool,
    /// A code point of each group.
    representatives: Vec<u32>,
}

impl Alphabet {
    /// Finds the groups of automata. Returns nothing if there are too many.
    pub(super) fn new(
        programs: &[&NfaProgram],
        classes: &ClassTable,
        budget: &mut CompileBudget<'_>,
    ) -> Result<Option<Self>, PatternError> {
        let Some(sets) = collect_ranges(programs, classes, budget)? else { return Ok(None) };
        let mut bounds = BTreeSet::from([0]);
        for &(low, high) in sets.iter().flatten() {
            bounds.extend([low, high + 1]);
        }
        if bounds.len() * sets.len() > MAX_COMPARISONS {
            return Ok(None);
        }
        budget.charge((bounds.len() * (sets.len() + 10)) as u64 / 2)?;
        let starts: Vec<u32> = bounds.into_iter().collect();
        let Some(symbols) = number_groups(&starts, &sets) else { return Ok(None) };
        let ranges: Box<[(u32, u8)]> = starts.iter().copied().zip(symbols).collect();
        let mut alphabet = Self::from_ranges(ranges);
        alphabet.has_word_conditions = programs.iter().any(|program| program.has_word_conditions());
        Ok(Some(alphabet))
    }

    fn from_ranges(ranges: Box<[(u32, u8)]>) -> Self {
        let mut representatives = Vec::new();
        for &(start, symbol) in &ranges {
            if usize::from(symbol) == representatives.len() {
                representatives.push(start);
            }
        }
        let symbol_count = representatives.len();
        let mut alphabet = Self { ascii: [0; 128], ranges, symbol_count, has_word_conditions: false, representatives };
        for code_point in 0u8..128 {
            let symbol = alphabet.search(u32::from(code_point));
            if let Some(slot) = alphabet.ascii.get_mut(usize::from(code_point)) {
                *slot = symbol;
            }
        }
        alphabet
    }

    /// Returns whether the automata have conditions about words.
    pub(super) fn has_word_conditions(&self) -> bool {
        self.has_word_conditions
    }

    /// The number of groups.
    pub(super) fn symbol_count(&self) -> usize {
        self.symbol_count
    }

    /// A code point of each group.
    pub(super) fn representatives(&self) -> &[u32] {
        &self.representatives
    }

    /// Returns the group of a code point.
    #[inline]
    pub(super) fn symbol(&self, character: char) -> u8 {
        match self.ascii.get(character as usize) {
            Some(&symbol) => symbol,
            None => self.search(u32::from(character)),
        }
    }

    /// Returns the group of an ASCII byte. For other bytes it is 0.
    #[inline]
    pub(super) fn ascii_symbol(&self, byte: u8) -> u8 {
        self.ascii.get(usize::from(byte)).copied().unwrap_or(0)
    }

    fn search(&self, code_point: u32) -> u8 {
        let after = self.ranges.partition_point(|&(start, _)| start <= code_point);
        after.checked_sub(1).and_then(|before| self.ranges.get(before)).map_or(0, |&(_, symbol)| symbol)
    }

    /// Bytes that the alphabet holds.
    pub(super) fn memory(&self) -> usize {
        128 + self.ranges.len() * size_of::<(u32, u8)>() + self.representatives.capacity() * 4
    }
}

/// Returns the ranges of each class that the automata name, and of `\w` if they have conditions about words.
fn collect_ranges(
    programs: &[&NfaProgram],
    classes: &ClassTable,
    budget: &mut CompileBudget<'_>,
) -> Result<Option<RangeSets>, PatternError> {
    let mut names = BTreeSet::new();
    let mut has_word_boundaries = false;
    budget.charge(programs.iter().map(|program| program.len() as u64).sum())?;
    for state in programs.iter().flat_map(|program| program.states()) {
        match state {
            NfaState::Class { class, .. } => {
                names.insert(*class);
            }
            NfaState::Condition { condition: Condition::WordBoundary | Condition::NotWordBoundary, .. } => {
                has_word_boundaries = true;
            }
            NfaState::Counter { .. } => return Ok(None),
            _ => {}
        }
    }
    let mut sets = Vec::new();
    let mut total = 0;
    for class in names.into_iter().filter_map(|class| classes.get(class)) {
        total += class.ranges().len() + 1;
        if total > MAX_COMPARISONS / 4 {
            return Ok(None);
        }
        sets.push(class.ranges().to_vec());
    }
    budget.charge(total as u64 * 4)?;
    if has_word_boundaries {
        sets.push(word_characters().ranges().to_vec());
    }
    Ok(Some(sets))
}

/// Returns the group of the range behind each start. Two ranges are in one group if the same sets have them.
fn number_groups(starts: &[u32], sets: &[Vec<(u32, u32)>]) -> Option<Vec<u8>> {
    let mut symbols = vec![0u16; starts.len()];
    for set in sets {
        let mut numbers: HashMap<(u16, bool), u16> = HashMap::new();
        let mut ranges = set.iter().peekable();
        for (symbol, &start) in symbols.iter_mut().zip(starts) {
            while ranges.next_if(|&&(_, high)| high < start).is_some() {}
            let is_in_set = ranges.peek().is_some_and(|&&(low, _)| low <= start);
            let number = u16::try_from(numbers.len()).ok()?;
            *symbol = *numbers.entry((*symbol, is_in_set)).or_insert(number);
        }
        if numbers.len() > MAX_SYMBOLS {
            return None;
        }
    }
    symbols.into_iter().map(|symbol| u8::try_from(symbol).ok()).collect()
}
