//! Decodes the escapes of JSON strings that the parser has accepted.

use super::{Node, NodeKind, Tape};
use crate::fuel::Fuel;
use std::task::Poll;

/// Bytes that are decoded between two looks at the fuel.
const BLOCK_BYTES: usize = 2048;
/// Bytes of a string that are decoded for a unit of fuel.
pub(crate) const DECODED_BYTES_PER_UNIT: u64 = 4;
/// Maximum length of a part without escapes.
const MAX_PART_BYTES: usize = 4096;

/// A part of a decoded string.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TextPart<'a> {
    /// Text without escapes, at most 4096 bytes.
    Plain(&'a str),
    /// The character of one escape, or of an escaped surrogate pair.
    Escaped(char),
}

/// The parts of a string, decoded one after the other without an allocation.
#[derive(Clone, Debug)]
pub struct TextParts<'a> {
    raw: &'a str,
    at: usize,
}

impl<'a> TextParts<'a> {
    /// Creates the parts of a string's content `raw`, which has no quotes around it.
    pub fn new(raw: &'a str) -> Self {
        Self { raw, at: 0 }
    }

    /// Creates the parts from a byte offset on, which [`offset`](Self::offset) has returned.
    pub fn from_offset(raw: &'a str, at: usize) -> Self {
        Self { raw, at }
    }

    /// Returns the offset of the part that comes next.
    pub fn offset(&self) -> usize {
        self.at
    }

    fn decode_escape(&mut self, rest: &str) -> Option<TextPart<'a>> {
        let letter = rest.as_bytes().get(1)?;
        self.at += 2;
        Some(TextPart::Escaped(match letter {
            b'b' => '\u{8}',
            b'f' => '\u{c}',
            b'n' => '\n',
            b'r' => '\r',
            b't' => '\t',
            b'u' => {
                self.at += 4;
                let first = hex_digits(rest.get(2..6)?)?;
                if (0xd800..0xdc00).contains(&first) {
                    self.at += 6;
                    let second = hex_digits(rest.get(8..12)?)?;
                    char::from_u32(0x10000 + ((first - 0xd800) << 10) + (second & 0x3ff))?
                } else {
                    char::from_u32(first)?
                }
            }
            other => char::from(*other),
        }))
    }
}

fn hex_digits(digits: &str) -> Option<u32> {
    u32::from_str_radix(digits, 16).ok()
}

impl<'a> Iterator for TextParts<'a> {
    type Item = TextPart<'a>;

    fn next(&mut self) -> Option<TextPart<'a>> {
        let rest = self.raw.get(self.at..)?;
        let first = rest.as_bytes().first()?;
        if *first == b'\\' {
            return self.decode_escape(rest);
        }
        let window = rest.as_bytes().get(..MAX_PART_BYTES).unwrap_or(rest.as_bytes());
        let mut length = memchr::memchr(b'\\', window).unwrap_or(window.len());
        while !rest.is_char_boundary(length) {
            length -= 1;
        }
        self.at += length;
        rest.get(..length).map(TextPart::Plain)
    }
}

impl<'a> FromIterator<TextPart<'a>> for String {
    fn from_iter<I: IntoIterator<Item = TextPart<'a>>>(parts: I) -> Self {
        let mut text = Self::new();
        for part in parts {
            push_part(&mut text, part);
        }
        text
    }
}

fn push_part(text: &mut String, part: TextPart<'_>) {
    match part {
        TextPart::Plain(plain) => text.push_str(plain),
        TextPart::Escaped(character) => text.push(character),
    }
}

/// Returns whether the decoded form of `raw` is `text`.
pub(super) fn is_decoded(raw: &str, text: &str) -> bool {
    let mut rest = text;
    for part in TextParts::new(raw) {
        let next = match part {
            TextPart::Plain(plain) => rest.strip_prefix(plain),
            TextPart::Escaped(character) => rest.strip_prefix(character),
        };
        match next {
            Some(next) => rest = next,
            None => return false,
        }
    }
    rest.is_empty()
}

/// Decodes a string in blocks, so that a long one can be decoded over several slices of fuel. Its buffer is used again
/// for the next string.
#[derive(Debug, Default)]
pub struct TextDecoder {
    text: String,
    at: usize,
}

impl TextDecoder {
    /// Creates a decoder without a buffer.
    pub fn new() -> Self {
        Self::default()
    }

    /// Begins a string. The buffer stays.
    pub fn restart(&mut self) {
        self.text.clear();
        self.at = 0;
    }

    /// Decodes a string as far as the fuel goes; one unit for 4 bytes. The same node must be passed until it is ready, and
    /// [`restart`](Self::restart) called before the next one.
    pub fn resume(&mut self, tape: &Tape, node: Node, fuel: &mut Fuel) -> Poll<()> {
        let whole = tape.raw_bytes(node);
        if !tape.kind(node).is_string() {
            return Poll::Ready(());
        }
        while self.at < whole.len() {
            if fuel.is_spent() {
                return Poll::Pending;
            }
            let block = block_at(whole, self.at, BLOCK_BYTES);
            fuel.charge_bytes(block.len(), DECODED_BYTES_PER_UNIT);
            if self.text.capacity() == 0 {
                self.text.reserve(whole.len());
            }
            if tape.kind(node) == NodeKind::String {
                self.text.push_str(block);
            } else {
                TextParts::new(block).for_each(|part| push_part(&mut self.text, part));
            }
            // A block is never empty: the text is UTF-8.
            self.at += block.len().max(1);
        }
        Poll::Ready(())
    }

    /// Returns what has been decoded.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Returns the bytes of the buffer.
    pub fn memory(&self) -> usize {
        self.text.capacity()
    }
}

/// Returns about `length` bytes of a string's content from `at` on, cut where neither a character nor an escape is cut.
pub(crate) fn block_at(whole: &[u8], at: usize, length: usize) -> &str {
    let rest = whole.get(at..).unwrap_or_default();
    let end = if rest.len() <= length { rest.len() } else { cut_before(rest, length) };
    std::str::from_utf8(rest.get(..end).unwrap_or_default()).unwrap_or_default()
}

/// Returns the largest offset at most `length` that is between two characters and not within an escape.
fn cut_before(rest: &[u8], length: usize) -> usize {
    let byte_at = |at: usize| rest.get(at).copied().unwrap_or(0);
    let mut end = length;
    while end > 0 && byte_at(end) & 0xc0 == 0x80 {
        end -= 1;
    }
    for back in 1..=5.min(end) {
        let start = end - back;
        if byte_at(start) == b'\\' && is_escape_start(rest, start) {
            let size = if byte_at(start + 1) == b'u' { 6 } else { 2 };
            if size > back {
                end = start;
            }
            break;
        }
    }
    // The second half of a surrogate pair must not begin a block.
    let is_low_surrogate = byte_at(end) == b'\\'
        && byte_at(end + 1) == b'u'
        && byte_at(end + 2) | 0x20 == b'd'
        && matches!(byte_at(end + 3) | 0x20, b'c'..=b'f');
    if is_low_surrogate && end >= 6 && is_escape_start(rest, end) {
        end -= 6;
    }
    end
}

/// Returns whether a backslash begins an escape: an even number of backslashes stand directly before it.
fn is_escape_start(rest: &[u8], at: usize) -> bool {
    let before = rest.get(..at).unwrap_or_default();
    before.iter().rev().take_while(|byte| **byte == b'\\').count() % 2 == 0
}
