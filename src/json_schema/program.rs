//! The compiled form of a schema: blocks of instructions, one block for each subschema, and the tables they use.

use crate::{
    block_summary::BlockSummary,
    format::Format,
    number::{Bound, Divisor},
    pattern::Pattern,
    tape::{Entry, NodeKind, Tape, head_of},
};
use serde_json::Value;
use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

/// Index of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct BlockId(pub(crate) u32);

impl BlockId {
    /// The block of `true` and `{}`, without instructions.
    pub(crate) const TRUE: Self = Self(0);
    /// The block of `false`.
    pub(crate) const FALSE: Self = Self(1);
}

/// One subschema in one dynamic scope.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Block {
    /// Index of the first instruction.
    pub(crate) start: u32,
    /// Index after the last instruction.
    pub(crate) end: u32,
    /// Position of the subschema.
    pub(crate) position: u32,
    /// What is known of the block's verdict without its instructions.
    pub(crate) summary: BlockSummary,
}

impl Block {
    /// A block that every value satisfies.
    pub(crate) const EMPTY: Self = Self { start: 0, end: 0, position: 0, summary: BlockSummary::of(&[]) };
}

/// A list in [`Program::lists`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ListRange {
    pub(crate) start: u32,
    pub(crate) end: u32,
}

/// The types of JSON as bits.
pub(crate) mod type_bits {
    pub(crate) const NULL: u8 = 1;
    pub(crate) const BOOLEAN: u8 = 2;
    pub(crate) const INTEGER: u8 = 4;
    pub(crate) const NUMBER: u8 = 8;
    pub(crate) const STRING: u8 = 16;
    pub(crate) const ARRAY: u8 = 32;
    pub(crate) const OBJECT: u8 = 64;
}

/// One instruction: an assertion about the value of its block. Numbers are indices of the tables of [`Program`].
#[derive(Clone, Copy, Debug)]
pub(crate) enum Instruction {
    /// `false`.
    Never,
    /// `type`; with `by_value`, 1.0 is an integer.
    Type {
        bits: u8,
        by_value: bool,
    },
    /// `const` and `enum`.
    Enum {
        table: u32,
        is_const: bool,
    },
    Minimum(u32),
    Maximum(u32),
    ExclusiveMinimum(u32),
    ExclusiveMaximum(u32),
    MultipleOf(u32),
    MinLength(u32),
    MaxLength(u32),
    MinItems(u32),
    MaxItems(u32),
    MinProperties(u32),
    MaxProperties(u32),
    Pattern(u32),
    Format(Format),
    Content {
        base64: bool,
        json: bool,
    },
    UniqueItems,
    /// `properties`, `patternProperties`, `additionalProperties` and `required`.
    Members(u32),
    PropertyNames(BlockId),
    /// `dependentRequired`, `dependentSchemas`, `dependencies`.
    Dependencies(u32),
    /// `items` with `prefixItems` or `additionalItems`.
    /// `says_all` is whether a keyword applies to the items after the prefix.
    Items {
        prefix: ListRange,
        rest: BlockId,
        says_all: bool,
    },
    Contains(u32),
    /// `$ref`, `$dynamicRef`.
    Ref(BlockId),
    AllOf(ListRange),
    AnyOf(ListRange),
    OneOf(ListRange),
    Not(BlockId),
    If(u32),
    UnevaluatedItems(BlockId),
    UnevaluatedProperties(BlockId),
}

impl Instruction {
    /// Returns whether the instruction looks at a single value and applies no subschema.
    pub(crate) const fn is_leaf(&self) -> bool {
        !matches!(
            self,
            Self::Members(_)
                | Self::PropertyNames(_)
                | Self::Dependencies(_)
                | Self::Items { .. }
                | Self::Contains(_)
                | Self::Ref(_)
                | Self::AllOf(_)
                | Self::AnyOf(_)
                | Self::OneOf(_)
                | Self::Not(_)
                | Self::If(_)
                | Self::UniqueItems
                | Self::UnevaluatedItems(_)
                | Self::UnevaluatedProperties(_)
        )
    }

    /// Returns about how much the instruction costs, for the order within a block.
    pub(crate) fn rank(&self) -> u8 {
        match self {
            Self::Never | Self::Type { .. } => 0,
            Self::MinLength(_) | Self::MaxLength(_) | Self::Minimum(_) | Self::Maximum(_) => 1,
            Self::ExclusiveMinimum(_) | Self::ExclusiveMaximum(_) | Self::MultipleOf(_) | Self::Enum { .. } => 2,
            Self::MinItems(_) | Self::MaxItems(_) | Self::MinProperties(_) | Self::MaxProperties(_) => 3,
            Self::Format(_) | Self::Content { .. } => 4,
            Self::Pattern(_) => 5,
            Self::Members(_) => 6,
            Self::PropertyNames(_) | Self::Items { .. } | Self::UniqueItems => 7,
            Self::Ref(_) | Self::AllOf(_) | Self::Contains(_) | Self::Dependencies(_) => 8,
            Self::Not(_) | Self::If(_) => 9,
            Self::AnyOf(_) | Self::OneOf(_) => 10,
            Self::UnevaluatedItems(_) | Self::UnevaluatedProperties(_) => 11,
        }
    }
}

/// The values of `enum` or `const`.
#[derive(Debug, Default)]
pub(crate) struct EnumTable {
    /// Strings, if they are few: compared one by one.
    pub(crate) few_strings: Vec<KnownText>,
    /// Strings, if they are many.
    pub(crate) strings: HashSet<Box<[u8]>, foldhash::fast::RandomState>,
    /// Length of the longest string, in bytes.
    pub(crate) max_string: usize,
    /// Hashes of numbers.
    pub(crate) numbers: HashSet<u128>,
    /// Hashes of arrays and objects.
    pub(crate) structures: HashSet<u128>,
    pub(crate) has_null: bool,
    pub(crate) has_false: bool,
    pub(crate) has_true: bool,
    pub(crate) has_arrays: bool,
    pub(crate) has_objects: bool,
}

/// What a name of `properties` or `required` means.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MemberRule {
    /// The block of `properties`, if the name is there.
    pub(crate) block: Option<BlockId>,
    /// The index in [`MembersTable::required`], or `u32::MAX`.
    pub(crate) required: u32,
}

/// A text of the schema that texts of the input are compared with.
#[derive(Debug)]
pub(crate) struct KnownText {
    /// The first eight bytes, which mostly decide.
    head: u64,
    pub(crate) text: Box<[u8]>,
}

impl KnownText {
    pub(crate) fn new(text: Box<[u8]>) -> Self {
        Self { head: head_of(&text), text }
    }

    /// Returns whether `text`, whose first eight bytes are `head`, is this one.
    #[inline]
    pub(crate) fn is(&self, head: u64, text: &[u8]) -> bool {
        self.head == head && self.text.len() == text.len() && (text.len() <= 8 || self.text.get(8..) == text.get(8..))
    }
}

/// The keywords for the members of objects.
#[derive(Debug, Default)]
pub(crate) struct MembersTable {
    /// Names, if they are few: compared one by one.
    pub(crate) few: Vec<(KnownText, MemberRule)>,
    /// Names, if they are many.
    pub(crate) many: HashMap<Box<[u8]>, MemberRule, foldhash::fast::RandomState>,
    /// Length of the longest name in bytes.
    pub(crate) max_name: usize,
    /// `patternProperties`: a pattern and its block.
    pub(crate) patterns: Vec<(u32, BlockId)>,
    /// `additionalProperties`; `TRUE` if there is none.
    pub(crate) additional: Option<BlockId>,
    /// `required`, sorted.
    pub(crate) required: Vec<Box<str>>,
    /// Whether a pattern of `patternProperties` is not in force.
    pub(crate) has_unsupported_pattern: bool,
}

impl MembersTable {
    /// Returns the names of `properties`.
    pub(crate) fn property_names(&self) -> impl Iterator<Item = &[u8]> {
        let all = self.few.iter().map(|(name, rule)| (&name.text, rule)).chain(&self.many);
        all.filter(|(_, rule)| rule.block.is_some()).map(|(name, _)| &**name)
    }

    /// Returns the units for a look-up of a name of this length.
    #[inline]
    pub(crate) fn cost(&self, length: usize) -> u64 {
        let for_table = if self.many.is_empty() { 1 } else { 4 };
        for_table + length as u64 / 64
    }

    /// Returns the rule of a name in a tape.
    #[inline(always)]
    pub(crate) fn rule(&self, tape: &Tape, name: Entry) -> Option<&MemberRule> {
        if name.kind() == NodeKind::EscapedString {
            return self.rule_of_escaped(tape, name);
        }
        if name.length() > self.max_name {
            return None;
        }
        let (head, text) = tape.scalar(name);
        self.rule_of_text(head, text)
    }

    #[cold]
    fn rule_of_escaped(&self, tape: &Tape, name: Entry) -> Option<&MemberRule> {
        // An escape of six bytes can stand for one.
        if name.length() / 6 > self.max_name {
            return None;
        }
        let name = tape.text_of(name);
        self.rule_of_text(head_of(name.as_bytes()), name.as_bytes())
    }

    #[inline(always)]
    fn rule_of_text(&self, head: u64, name: &[u8]) -> Option<&MemberRule> {
        for (known, rule) in &self.few {
            if known.is(head, name) {
                return Some(rule);
            }
        }
        if self.many.is_empty() { None } else { self.many.get(name) }
    }
}

/// What depends on the presence of members. Names are indices of [`DependencyTable::names`].
#[derive(Debug, Default)]
pub(crate) struct DependencyTable {
    pub(crate) names: HashMap<Box<[u8]>, u32, foldhash::fast::RandomState>,
    /// Length of the longest name in bytes.
    pub(crate) max_name: usize,
    /// Names that are required if another one is present, which comes first.
    pub(crate) required: Vec<(u32, Vec<u32>)>,
    /// Blocks that apply if a name is present.
    pub(crate) schemas: Vec<(u32, BlockId)>,
}

/// `contains` with its bounds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ContainsRule {
    pub(crate) block: BlockId,
    pub(crate) min: u32,
    pub(crate) max: u32,
    /// Whether items that match count as evaluated.
    pub(crate) marks: bool,
}

/// `if`, `then` and `else`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Conditional {
    pub(crate) condition: BlockId,
    pub(crate) then: BlockId,
    pub(crate) otherwise: BlockId,
}

/// A keyword that is not in force, because the program cannot serve it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnsupportedKeyword {
    /// JSON Pointer of the keyword's value in the schema.
    pub pointer: String,
    /// Why it is not in force.
    pub reason: String,
}

/// A compiled schema: immutable, and shared between checks.
#[derive(Debug)]
pub struct Program {
    pub(crate) schema: Arc<Value>,
    pub(crate) root: BlockId,
    pub(crate) blocks: Box<[Block]>,
    pub(crate) code: Box<[Instruction]>,
    pub(crate) lists: Box<[BlockId]>,
    pub(crate) bounds: Box<[Bound]>,
    pub(crate) divisors: Box<[Divisor]>,
    pub(crate) patterns: Box<[Pattern]>,
    pub(crate) enums: Box<[EnumTable]>,
    pub(crate) members: Box<[MembersTable]>,
    pub(crate) dependencies: Box<[DependencyTable]>,
    pub(crate) contains: Box<[ContainsRule]>,
    pub(crate) conditionals: Box<[Conditional]>,
    pub(crate) positions: Box<[(u32, Box<str>)]>,
    pub(crate) unsupported: Vec<UnsupportedKeyword>,
    pub(crate) memory: usize,
    pub(crate) compile_fuel: u64,
}

impl Program {
    /// Returns the schema.
    pub fn schema(&self) -> &Arc<Value> {
        &self.schema
    }

    /// Returns the keywords that are not in force.
    pub fn unsupported(&self) -> &[UnsupportedKeyword] {
        &self.unsupported
    }

    /// Returns the memory of the program in bytes, without that of the schema's text.
    pub fn memory(&self) -> usize {
        self.memory
    }

    /// Returns the fuel that compiling took.
    pub fn compile_fuel(&self) -> u64 {
        self.compile_fuel
    }

    #[inline]
    pub(crate) fn block(&self, id: BlockId) -> Block {
        self.blocks.get(id.0 as usize).copied().unwrap_or(Block::EMPTY)
    }

    /// Returns the instructions of a block that may refuse a value of an allowed kind: only for a [`NodeKind::Number`] has
    /// `type` to look at the value.
    #[inline(always)]
    pub(crate) fn open_code(&self, block: &Block, kind: NodeKind) -> Option<&[Instruction]> {
        match self.code.get(block.start as usize..block.end as usize)? {
            [Instruction::Type { .. }, rest @ ..] if kind != NodeKind::Number => Some(rest),
            code => Some(code),
        }
    }

    #[inline]
    pub(crate) fn list(&self, range: ListRange) -> &[BlockId] {
        self.lists.get(range.start as usize..range.end as usize).unwrap_or_default()
    }
}
