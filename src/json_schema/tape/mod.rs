//! The compact form of a JSON text: the text itself, and one entry of 8 bytes for each value and each member name, in
//! document order.
//!
//! A [`Tape`] keeps numbers as text, so that their value is not rounded, and strings with their escapes, so that parsing
//! allocates nothing for them.

mod convert;
mod entry;
mod error;
mod member_names;
mod number_scanner;
mod parser;
mod string_scanner;
#[cfg(test)]
mod tests;
mod text_decoder;

pub(crate) use entry::Entry;
pub use entry::NodeKind;
pub use error::TapeError;
pub use parser::TapeParser;
pub(crate) use text_decoder::block_at;
pub use text_decoder::{TextDecoder, TextPart, TextParts};

use bytes::Bytes;
use std::borrow::Cow;

/// Maximum nesting depth that [`TapeBounds`] can allow.
pub const MAX_DEPTH: u16 = 120;

/// Maximum length of a text in bytes: a length has 28 bits in an entry.
pub const MAX_TEXT_BYTES: usize = (1 << 28) - 1;

/// Bounds of a text that is parsed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TapeBounds {
    /// Maximum number of nested arrays and objects; more than [`MAX_DEPTH`] counts as [`MAX_DEPTH`].
    pub max_depth: u16,
}

impl Default for TapeBounds {
    fn default() -> Self {
        Self { max_depth: MAX_DEPTH }
    }
}

/// The index of an entry in a [`Tape`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Node(u32);

impl Node {
    /// Returns the index of the entry.
    #[inline]
    pub fn index(self) -> u32 {
        self.0
    }

    /// Returns the node of an index.
    #[inline]
    pub fn from_index(index: u32) -> Self {
        Self(index)
    }
}

/// Returns the first eight bytes of a text as a number; what is missing is 0.
#[inline]
pub(crate) fn head_of(text: &[u8]) -> u64 {
    match text.first_chunk() {
        Some(head) => u64::from_le_bytes(*head),
        None => text.iter().rev().fold(0, |head, byte| head << 8 | u64::from(*byte)),
    }
}

/// Masks for the bytes of a text of less than eight bytes, by its length.
const HEAD_MASKS: [u64; 8] =
    [0, 0xff, 0xffff, 0xff_ffff, 0xffff_ffff, 0xff_ffff_ffff, 0xffff_ffff_ffff, 0xff_ffff_ffff_ffff];

/// A JSON text and the entries of its values.
#[derive(Debug)]
pub struct Tape {
    text: Bytes,
    entries: Vec<Entry>,
}

impl Tape {
    /// The value of the whole text.
    pub const ROOT: Node = Node(0);

    /// Parses a text to its end.
    ///
    /// # Errors
    /// The first problem and its position.
    pub fn parse(text: Bytes, bounds: &TapeBounds) -> Result<Self, TapeError> {
        let mut parser = TapeParser::new(text, bounds);
        loop {
            if let std::task::Poll::Ready(result) = parser.resume(&mut crate::fuel::Fuel::new(u64::MAX)) {
                return result;
            }
        }
    }

    #[inline]
    pub(crate) fn entry(&self, node: Node) -> Entry {
        self.entries.get(node.0 as usize).copied().unwrap_or_default()
    }

    /// Returns the entries of a value's subtree, its own first.
    #[inline]
    pub(crate) fn subtree(&self, node: Node) -> Option<&[Entry]> {
        let start = node.0 as usize;
        self.entries.get(start..start + self.entry(node).subtree() as usize)
    }

    /// Returns the kind of a value; `Null` for a node that this tape has not.
    #[inline]
    pub fn kind(&self, node: Node) -> NodeKind {
        self.entry(node).kind()
    }

    /// Returns the offset in the text: of a string's content, of other values' first byte.
    #[inline]
    pub fn offset(&self, node: Node) -> usize {
        self.entry(node).offset()
    }

    /// Returns the text of a number or literal, or the content of a string with its escapes, without another check that
    /// it is UTF-8. For an array or object it returns the whole text, which it has to read to the end.
    #[inline]
    pub fn raw_bytes(&self, node: Node) -> &[u8] {
        let entry = self.entry(node);
        let start = entry.offset();
        let length = if entry.is_container() {
            string_scanner::container_length(self.text.get(start..).unwrap_or_default())
        } else {
            entry.length()
        };
        self.text.get(start..start + length).unwrap_or_default()
    }

    /// Returns the text of a scalar with its first eight bytes, as [`head_of`] does.
    #[inline]
    pub(crate) fn scalar(&self, entry: Entry) -> (u64, &[u8]) {
        let (rest, length) = (self.text.get(entry.offset()..).unwrap_or_default(), entry.length());
        let text = rest.get(..length).unwrap_or_default();
        let head = match (rest.first_chunk::<8>(), HEAD_MASKS.get(length)) {
            (Some(head), Some(mask)) => u64::from_le_bytes(*head) & mask,
            (Some(head), None) => u64::from_le_bytes(*head),
            (None, _) => head_of(text),
        };
        (head, text)
    }

    /// Returns the length of [`raw_bytes`](Self::raw_bytes) of a scalar; 0 for arrays and objects. It takes no time.
    #[inline]
    pub fn raw_length(&self, node: Node) -> usize {
        self.entry(node).length()
    }

    /// Returns [`raw_bytes`](Self::raw_bytes) as text. It checks UTF-8 again, about 0.1 ns a byte of ASCII and 1 ns of
    /// other text.
    #[inline]
    pub fn raw(&self, node: Node) -> &str {
        std::str::from_utf8(self.raw_bytes(node)).unwrap_or_default()
    }

    /// Returns the decoded content of a string; for other values as [`raw`](Self::raw).
    pub fn text(&self, node: Node) -> Cow<'_, str> {
        let entry = self.entry(node);
        if entry.is_container() { Cow::Borrowed(self.raw(node)) } else { self.text_of(entry) }
    }

    /// As [`text`](Self::text), for the entry of a scalar.
    pub(crate) fn text_of(&self, entry: Entry) -> Cow<'_, str> {
        let raw = std::str::from_utf8(self.scalar(entry).1).unwrap_or_default();
        match entry.kind() {
            NodeKind::EscapedString => Cow::Owned(TextParts::new(raw).collect()),
            _ => Cow::Borrowed(raw),
        }
    }

    /// Returns the entry after the subtree of a value. For a member's name this is the member's value.
    #[inline]
    pub fn next_sibling(&self, node: Node) -> Node {
        Node(node.0.saturating_add(self.entry(node).subtree()))
    }

    /// Returns the entry after the last one of a subtree.
    #[inline]
    pub fn end(&self, node: Node) -> Node {
        self.next_sibling(node)
    }

    /// Returns the first entry within an array or object; it equals [`end`](Self::end) if there is none.
    #[inline]
    pub fn first_child(&self, node: Node) -> Node {
        Node(node.0.saturating_add(1))
    }

    /// Returns the value of a member, by the node of its name.
    #[inline]
    pub fn value_of(&self, name: Node) -> Node {
        Node(name.0.saturating_add(1))
    }

    /// Returns the items of an array; none for other values.
    pub fn items(&self, node: Node) -> impl Iterator<Item = Node> + '_ {
        let (mut next, end) = self.children(node, NodeKind::Array);
        std::iter::from_fn(move || {
            let item = (next < end).then_some(next)?;
            next = self.next_sibling(item);
            Some(item)
        })
    }

    /// Returns the names and values of an object's members; none for other values.
    pub fn members(&self, node: Node) -> impl Iterator<Item = (Node, Node)> + '_ {
        let (mut next, end) = self.children(node, NodeKind::Object);
        std::iter::from_fn(move || {
            let name = (next < end).then_some(next)?;
            let value = self.value_of(name);
            next = self.next_sibling(value);
            Some((name, value))
        })
    }

    fn children(&self, node: Node, kind: NodeKind) -> (Node, Node) {
        if self.kind(node) == kind { (self.first_child(node), self.end(node)) } else { (node, node) }
    }

    /// Returns the value of the member with a decoded name. It looks at all members up to this one.
    pub fn find_member(&self, node: Node, name: &str) -> Option<Node> {
        self.members(node).find(|(found, _)| self.is_text(*found, name)).map(|(_, value)| value)
    }

    /// Returns whether a string's decoded content is `text`, without an allocation.
    pub fn is_text(&self, node: Node, text: &str) -> bool {
        match self.kind(node) {
            NodeKind::String => self.raw_bytes(node) == text.as_bytes(),
            NodeKind::EscapedString => {
                // An escape has at most six bytes for one byte of text.
                let raw = self.raw_bytes(node).len();
                let can_be_equal = raw > text.len() && raw.div_ceil(6) <= text.len();
                can_be_equal && text_decoder::is_decoded(self.raw(node), text)
            }
            _ => false,
        }
    }

    /// Returns the text that was parsed.
    pub fn body(&self) -> &Bytes {
        &self.text
    }

    /// Returns the bytes of memory beside the text: 8 for each entry.
    pub fn memory(&self) -> usize {
        self.entries.capacity() * size_of::<Entry>()
    }

    /// Returns the number of entries: values and member names.
    pub fn entry_count(&self) -> usize {
        self.entries.len()
    }
}
