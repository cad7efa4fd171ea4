//! Why a text is not acceptable JSON. Errors have the position but never the content, except a name that appears twice.

use super::{MAX_TEXT_BYTES, text_decoder::TextParts};
use std::fmt;

/// Maximum number of characters of a name in an error.
const MAX_NAME_CHARS: usize = 60;

/// Why a text is not acceptable JSON.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TapeError {
    /// The value in which the parser stopped, as a JSON Pointer.
    pub pointer: String,
    /// What is wrong, with line and column.
    pub reason: String,
}

impl fmt::Display for TapeError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.pointer.as_str() {
            "" => formatter.write_str(&self.reason),
            pointer => write!(formatter, "{} (in {pointer})", self.reason),
        }
    }
}

impl std::error::Error for TapeError {}

impl TapeError {
    fn without_position(reason: impl Into<String>) -> Self {
        Self { pointer: String::new(), reason: reason.into() }
    }

    pub(super) fn byte_order_mark() -> Self {
        Self::without_position("the text begins with a byte order mark (forbidden in JSON, RFC 8259 §8.1)")
    }

    pub(super) fn not_utf8(offset: usize) -> Self {
        Self::without_position(format!("byte {offset} is not UTF-8"))
    }

    pub(super) fn empty() -> Self {
        Self::without_position("the text is empty (a JSON value is required)")
    }

    pub(super) fn too_long() -> Self {
        Self::without_position(format!("the text is longer than {MAX_TEXT_BYTES} bytes"))
    }

    pub(super) fn not_serializable() -> Self {
        Self::without_position("the value cannot be written as JSON")
    }
}

/// A problem of the grammar, in the words of serde_json.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SyntaxError {
    EndInArray,
    EndInObject,
    EndInString,
    EndInValue,
    ExpectedColon,
    ExpectedCommaOrArrayEnd,
    ExpectedCommaOrObjectEnd,
    ExpectedLiteral,
    ExpectedValue,
    InvalidEscape,
    InvalidNumber,
    NumberOutOfRange,
    ControlCharacter,
    NameIsNotString,
    LoneSurrogate,
    MissingSurrogate,
    TrailingComma,
    TrailingCharacters,
    TooDeep,
}

impl SyntaxError {
    pub(super) fn message(self) -> &'static str {
        match self {
            Self::EndInArray => "EOF while parsing a list",
            Self::EndInObject => "EOF while parsing an object",
            Self::EndInString => "EOF while parsing a string",
            Self::EndInValue => "EOF while parsing a value",
            Self::ExpectedColon => "expected `:`",
            Self::ExpectedCommaOrArrayEnd => "expected `,` or `]`",
            Self::ExpectedCommaOrObjectEnd => "expected `,` or `}`",
            Self::ExpectedLiteral => "expected ident",
            Self::ExpectedValue => "expected value",
            Self::InvalidEscape => "invalid escape",
            Self::InvalidNumber => "invalid number",
            Self::NumberOutOfRange => "number out of range",
            Self::ControlCharacter => "control character (\\u0000-\\u001F) found while parsing a string",
            Self::NameIsNotString => "key must be a string",
            Self::LoneSurrogate => "lone leading surrogate in hex escape",
            Self::MissingSurrogate => "unexpected end of hex escape",
            Self::TrailingComma => "trailing comma",
            Self::TrailingCharacters => "trailing characters",
            Self::TooDeep => "arrays and objects are nested too deeply",
        }
    }
}

/// Decodes the beginning of a name, for errors.
pub(super) fn truncate_name(raw: &str) -> String {
    // A character has at most 12 bytes in escapes, so that this many parts or bytes are sufficient.
    let mut name = String::new();
    let mut characters = 0;
    for part in TextParts::new(raw) {
        let mut push = |character| {
            characters += 1;
            if characters <= MAX_NAME_CHARS {
                name.push(character);
            }
        };
        match part {
            super::TextPart::Plain(plain) => plain.chars().take(MAX_NAME_CHARS + 1).for_each(&mut push),
            super::TextPart::Escaped(character) => push(character),
        }
        if characters > MAX_NAME_CHARS {
            name.push('…');
            break;
        }
    }
    name
}

/// Appends one segment to a JSON Pointer (RFC 6901 §3).
pub(super) fn push_pointer_segment(pointer: &mut String, segment: &str) {
    pointer.push('/');
    pointer.push_str(&segment.replace('~', "~0").replace('/', "~1"));
}

/// The number of lines before a place in the text, kept while the parser goes on.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LinePosition {
    offset: usize,
    lines: usize,
    line_start: usize,
}

impl LinePosition {
    /// Counts the lines up to `offset`.
    pub(super) fn advance(&mut self, text: &[u8], offset: usize) {
        let part = text.get(self.offset..offset).unwrap_or_default();
        if let Some(last) = memchr::memrchr(b'\n', part) {
            self.lines += memchr::memchr_iter(b'\n', part).count();
            self.line_start = self.offset + last + 1;
        }
        self.offset = offset.max(self.offset);
    }

    /// Writes a message with the line and column of `end`, the offset after the byte that is wrong.
    pub(super) fn describe(mut self, text: &[u8], end: usize, message: &str) -> String {
        if end < self.offset {
            self = Self::default();
        }
        self.advance(text, end);
        format!("{message} at line {} column {}", self.lines + 1, end.saturating_sub(self.line_start))
    }
}
