//! One entry of a tape.

/// The kind of a value. Containers have bit 3, and the two kinds of strings and of numbers differ in bit 0 only, so that
/// an entry of a tape answers with one comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum NodeKind {
    /// `null`.
    Null = 0,
    /// `false`.
    False = 1,
    /// `true`.
    True = 2,
    /// A number whose text has neither a fraction nor an exponent.
    Integer = 4,
    /// A number with a fraction or an exponent.
    Number = 5,
    /// A string without escapes.
    String = 6,
    /// A string with at least one escape.
    EscapedString = 7,
    /// An array.
    Array = 8,
    /// An object.
    Object = 9,
}

impl NodeKind {
    /// Returns whether it is an array or an object.
    #[inline]
    pub fn is_container(self) -> bool {
        self as u8 >= Self::Array as u8
    }

    /// Returns whether it is a string.
    #[inline]
    pub fn is_string(self) -> bool {
        self as u8 >> 1 == Self::String as u8 >> 1
    }

    /// Returns whether it is a number.
    #[inline]
    pub fn is_number(self) -> bool {
        self as u8 >> 1 == Self::Integer as u8 >> 1
    }
}

const LENGTH_BITS: u32 = 28;
const LENGTH_MASK: u64 = (1 << LENGTH_BITS) - 1;
const CONTAINER_BIT: u64 = 8 << LENGTH_BITS;

/// The kinds by their bits in an entry.
#[rustfmt::skip]
const KINDS: [NodeKind; 16] = {
    use NodeKind::{Array, EscapedString, False, Integer, Null, Number, Object, String, True};
    [Null, False, True, Null, Integer, Number, String, EscapedString, Array, Object, Null, Null, Null, Null, Null, Null]
};

/// A value or a member's name: the offset in the text (32 bits), the kind (4 bits), and 28 bits for the length of a
/// scalar's text or, for an array or object, the number of entries of its subtree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Entry(u64);

impl Entry {
    #[inline]
    pub(crate) fn new(offset: usize, kind: NodeKind, length: usize) -> Self {
        Self(((offset as u64) << 32) | (u64::from(kind as u8) << LENGTH_BITS) | (length as u64 & LENGTH_MASK))
    }

    #[inline]
    pub(crate) fn kind(self) -> NodeKind {
        let bits = (self.0 >> LENGTH_BITS) & 15;
        KINDS.get(bits as usize).copied().unwrap_or(NodeKind::Null)
    }

    #[inline]
    pub(crate) fn is_container(self) -> bool {
        self.0 & CONTAINER_BIT != 0
    }

    #[inline]
    pub(crate) fn offset(self) -> usize {
        (self.0 >> 32) as usize
    }

    /// Returns the length of a scalar's text; 0 for arrays and objects.
    #[inline]
    pub(crate) fn length(self) -> usize {
        if self.is_container() { 0 } else { (self.0 & LENGTH_MASK) as usize }
    }

    /// Returns the number of entries of the value's subtree, itself included.
    #[inline]
    pub(crate) fn subtree(self) -> u32 {
        if self.is_container() { (self.0 & LENGTH_MASK) as u32 } else { 1 }
    }
}
