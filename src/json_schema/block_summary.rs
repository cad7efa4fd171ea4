//! What is known of a block's verdict without its instructions.

use crate::{
    program::{Instruction, type_bits},
    tape::{Entry, NodeKind},
};

/// What the kind of a value and the length of its text say about the instructions of a block. Most members of ordinary
/// schemas need no more.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BlockSummary {
    /// The kinds that can be valid.
    allowed: KindSet,
    /// The kinds that are valid if the text is not longer than `max_length`.
    settled: KindSet,
    /// In code points, of which a text has at most as many as bytes.
    max_length: u32,
    /// Whether the block has only instructions that look at a single value, so that it needs no frame.
    pub(crate) is_leaf: bool,
}

impl BlockSummary {
    /// Summarises instructions.
    pub(crate) const fn of(code: &[Instruction]) -> Self {
        let mut summary = Self { allowed: KindSet::ALL, settled: KindSet::ALL, max_length: u32::MAX, is_leaf: true };
        let mut rest = code;
        while let [instruction, others @ ..] = rest {
            let mut open = KindSet::NONE;
            match instruction {
                Instruction::Type { bits, by_value } => {
                    summary.allowed = summary.allowed.and(KindSet::of_types(*bits, *by_value));
                    if *by_value && *bits & type_bits::NUMBER == 0 {
                        open = KindSet::of(NodeKind::Number);
                    }
                }
                Instruction::MaxLength(max) if *max < summary.max_length => summary.max_length = *max,
                Instruction::MaxLength(_) => {}
                _ => open = kinds_of(instruction),
            }
            summary.settled = summary.settled.without(open);
            summary.is_leaf &= instruction.is_leaf();
            rest = others;
        }
        summary
    }

    /// Returns whether a value is valid, if that is known.
    #[inline(always)]
    pub(crate) fn verdict(&self, value: Entry) -> Option<bool> {
        let kind = value.kind();
        if !self.allowed.contains(kind) {
            return Some(false);
        }
        (self.settled.contains(kind) && value.length() <= self.max_length as usize).then_some(true)
    }
}

/// Kinds of values, one bit for each.
#[derive(Clone, Copy, Debug)]
struct KindSet(u16);

impl KindSet {
    const NONE: Self = Self(0);
    const ALL: Self = Self(u16::MAX);
    const STRINGS: Self = Self::of(NodeKind::String).or(Self::of(NodeKind::EscapedString));
    const NUMBERS: Self = Self::of(NodeKind::Integer).or(Self::of(NodeKind::Number));

    const fn of(kind: NodeKind) -> Self {
        Self(1 << kind as u16)
    }

    const fn or(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    const fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// Returns the kinds that may have one of the types. Whether a [`NodeKind::Number`] is an integer depends on its value.
    const fn of_types(bits: u8, by_value: bool) -> Self {
        const fn when(condition: bool, set: KindSet) -> KindSet {
            if condition { set } else { KindSet::NONE }
        }
        let has_numbers = bits & type_bits::NUMBER != 0;
        let has_integers = bits & type_bits::INTEGER != 0;
        when(bits & type_bits::NULL != 0, Self::of(NodeKind::Null))
            .or(when(bits & type_bits::BOOLEAN != 0, Self::of(NodeKind::False).or(Self::of(NodeKind::True))))
            .or(when(has_numbers || has_integers, Self::of(NodeKind::Integer)))
            .or(when(has_numbers || has_integers && by_value, Self::of(NodeKind::Number)))
            .or(when(bits & type_bits::STRING != 0, Self::STRINGS))
            .or(when(bits & type_bits::ARRAY != 0, Self::of(NodeKind::Array)))
            .or(when(bits & type_bits::OBJECT != 0, Self::of(NodeKind::Object)))
    }

    #[inline(always)]
    fn contains(self, kind: NodeKind) -> bool {
        self.0 & 1 << kind as u16 != 0
    }
}

/// Returns the kinds of values that an instruction may refuse.
const fn kinds_of(instruction: &Instruction) -> KindSet {
    match instruction {
        Instruction::Minimum(_)
        | Instruction::Maximum(_)
        | Instruction::ExclusiveMinimum(_)
        | Instruction::ExclusiveMaximum(_)
        | Instruction::MultipleOf(_) => KindSet::NUMBERS,
        Instruction::MinLength(_)
        | Instruction::MaxLength(_)
        | Instruction::Pattern(_)
        | Instruction::Format(_)
        | Instruction::Content { .. } => KindSet::STRINGS,
        Instruction::MinItems(_)
        | Instruction::MaxItems(_)
        | Instruction::UniqueItems
        | Instruction::Items { .. }
        | Instruction::Contains(_)
        | Instruction::UnevaluatedItems(_) => KindSet::of(NodeKind::Array),
        Instruction::MinProperties(_)
        | Instruction::MaxProperties(_)
        | Instruction::Members(_)
        | Instruction::PropertyNames(_)
        | Instruction::Dependencies(_)
        | Instruction::UnevaluatedProperties(_) => KindSet::of(NodeKind::Object),
        _ => KindSet::ALL,
    }
}
