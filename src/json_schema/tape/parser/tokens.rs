//! Reads the tokens of the bytes that are charged.
//!
//! The place in the text and the state are local variables of the loop, which is twice as fast as fields.

use super::{
    BYTES_PER_UNIT, CONTAINER_UNITS, EnclosingKind, EnclosingValue, Failure, HASHED_BYTES_PER_UNIT, MAX_SHORT_DIGITS,
    NAME_UNITS, NO_NAME, OpenString, ParserState, ReadResult, SHORT_NAME_BYTES, TABLE_UNITS, TapeParser,
};
use crate::{
    fuel::Fuel,
    tape::{
        Entry, NodeKind,
        error::SyntaxError,
        member_names::NameScope,
        number_scanner::{NumberScan, NumberScanner},
        string_scanner::{StringScan, scan_string},
    },
};

impl TapeParser {
    /// Reads up to the end of the charged bytes.
    pub(super) fn step(&mut self, text: &[u8], fuel: &mut Fuel) -> Result<ReadResult, Failure> {
        let is_complete = match self.state {
            ParserState::InString => self.scan_string(text, self.at, fuel)?,
            ParserState::InNumber => self.scan_number(text)?,
            _ => true,
        };
        if !is_complete {
            return Ok(ReadResult::Bytes);
        }
        if self.state.is_work() {
            return Ok(ReadResult::Work);
        }
        let window = text.get(..self.charged).unwrap_or(text);
        let mut at = self.at;
        let mut state = self.state;
        loop {
            let Some(byte) = window.get(at).copied() else {
                (self.at, self.state) = (at, state);
                return Ok(ReadResult::Bytes);
            };
            if matches!(byte, b' ' | b'\n' | b'\t' | b'\r') {
                at += 1;
                continue;
            }
            match (state, byte) {
                (ParserState::FirstName | ParserState::Name, b'"') => {
                    self.string = OpenString { start: at + 1, is_name: true, is_escaped: false };
                    if !self.scan_string(text, at + 1, fuel)? {
                        return Ok(ReadResult::Bytes);
                    }
                    (at, state) = (self.at, self.state);
                    if state.is_work() {
                        return Ok(ReadResult::Work);
                    }
                    // Mostly the colon follows at once.
                    if state == ParserState::Colon && window.get(at) == Some(&b':') {
                        (at, state) = (at + 1, ParserState::Value);
                    }
                }
                (ParserState::Colon, b':') => (at, state) = (at + 1, ParserState::Value),
                (ParserState::AfterMember, b',') => (at, state) = (at + 1, ParserState::Name),
                (ParserState::AfterItem, b',') => (at, state) = (at + 1, ParserState::Value),
                (ParserState::FirstName | ParserState::AfterMember, b'}')
                | (ParserState::FirstItem | ParserState::AfterItem, b']') => (at, state) = (at + 1, self.close()),
                (ParserState::Value | ParserState::FirstItem, b'"') => {
                    self.string = OpenString { start: at + 1, is_name: false, is_escaped: false };
                    if !self.scan_string(text, at + 1, fuel)? {
                        return Ok(ReadResult::Bytes);
                    }
                    (at, state) = (self.at, self.state);
                }
                (ParserState::Value | ParserState::FirstItem, b'0'..=b'9' | b'-') => {
                    if let Some(end) = integer_end(window, at, byte) {
                        self.entries.push(Entry::new(at, NodeKind::Integer, end - at));
                        (at, state) = (end, self.end_value());
                        continue;
                    }
                    self.number = NumberScanner::new(at);
                    (self.at, self.state) = (at, ParserState::InNumber);
                    if !self.scan_number(text)? {
                        return Ok(ReadResult::Bytes);
                    }
                    (at, state) = (self.at, self.state);
                }
                (ParserState::Value | ParserState::FirstItem, b'[' | b'{') => {
                    fuel.charge(CONTAINER_UNITS);
                    (self.at, self.state) = (at, state);
                    state = self.open(text, byte)?;
                    at += 1;
                }
                (ParserState::Value | ParserState::FirstItem, b'n' | b't' | b'f') => {
                    (self.at, self.state) = (at, state);
                    (at, state) = self.read_literal(text, byte)?;
                }
                _ => {
                    (self.at, self.state) = (at, state);
                    let error = self.unexpected(byte);
                    return Err(self.fail(text, error, at + 1));
                }
            }
        }
    }

    /// Goes on with a number; returns whether it has ended.
    fn scan_number(&mut self, text: &[u8]) -> Result<bool, Failure> {
        match self.number.scan(text, &mut self.at, self.charged) {
            NumberScan::End(end) => {
                self.end_number(end);
                Ok(true)
            }
            NumberScan::Limit => Ok(false),
            NumberScan::Error(error, end) => Err(self.fail(text, error, end)),
        }
    }

    /// Adds the number that has ended.
    pub(super) fn end_number(&mut self, end: usize) {
        let kind = if self.number.is_integer() { NodeKind::Integer } else { NodeKind::Number };
        self.entries.push(Entry::new(self.number.start, kind, end - self.number.start));
        self.at = end;
        self.state = self.end_value();
    }

    /// Goes on with a string from `at` on; returns whether it has ended.
    #[inline]
    fn scan_string(&mut self, text: &[u8], at: usize, fuel: &mut Fuel) -> Result<bool, Failure> {
        let mut is_escaped = self.string.is_escaped;
        match scan_string(text, at, self.charged, &mut is_escaped) {
            StringScan::Quote(quote) => {
                self.string.is_escaped = is_escaped;
                self.end_string(text, quote, fuel)?;
                Ok(true)
            }
            StringScan::Limit(at) => {
                self.string.is_escaped = is_escaped;
                (self.at, self.state) = (at, ParserState::InString);
                Ok(false)
            }
            StringScan::Error(error, end) => Err(self.fail(text, error, end)),
        }
    }

    #[inline]
    fn end_string(&mut self, text: &[u8], quote: usize, fuel: &mut Fuel) -> Result<(), Failure> {
        let OpenString { start, is_name, is_escaped } = self.string;
        let kind = if is_escaped { NodeKind::EscapedString } else { NodeKind::String };
        let length = quote - start;
        self.entries.push(Entry::new(start, kind, length));
        self.at = quote + 1;
        if self.plain_block {
            // What follows in this block is no longer the content of a string.
            self.plain_block = false;
            fuel.charge_bytes(self.charged.saturating_sub(quote), BYTES_PER_UNIT);
        }
        if !is_name {
            self.state = self.end_value();
            return Ok(());
        }
        self.frame.name = (self.entries.len() - 1) as u32;
        if is_escaped || length > SHORT_NAME_BYTES {
            self.state = ParserState::HashName;
            return Ok(());
        }
        let table_units = if self.frame.names.has_table() { TABLE_UNITS } else { 0 };
        fuel.charge(NAME_UNITS + table_units + length as u64 / HASHED_BYTES_PER_UNIT);
        let key = self.names.key(text.get(start..quote).unwrap_or_default());
        self.insert_name(text, key)
    }

    /// Reads a literal; it may be some bytes longer than what is charged.
    fn read_literal(&mut self, text: &[u8], first: u8) -> Result<(usize, ParserState), Failure> {
        let (kind, letters): (_, &[u8]) = match first {
            b'n' => (NodeKind::Null, b"null"),
            b't' => (NodeKind::True, b"true"),
            _ => (NodeKind::False, b"false"),
        };
        let rest = text.get(self.at..).unwrap_or_default();
        if !rest.starts_with(letters) {
            let wrong = rest.iter().zip(letters).position(|(byte, letter)| byte != letter);
            let (error, end) = match wrong {
                Some(wrong) => (SyntaxError::ExpectedLiteral, self.at + wrong + 1),
                None => (SyntaxError::EndInValue, text.len()),
            };
            return Err(self.fail(text, error, end));
        }
        self.entries.push(Entry::new(self.at, kind, letters.len()));
        Ok((self.at + letters.len(), self.end_value()))
    }

    #[inline]
    fn open(&mut self, text: &[u8], bracket: u8) -> Result<ParserState, Failure> {
        if self.parents.len() >= self.max_depth {
            return Err(self.fail(text, SyntaxError::TooDeep, self.at + 1));
        }
        self.parents.push(self.frame);
        let (kind, node, state, names) = if bracket == b'{' {
            (EnclosingKind::Object, NodeKind::Object, ParserState::FirstName, self.names.open())
        } else {
            (EnclosingKind::Array, NodeKind::Array, ParserState::FirstItem, NameScope::default())
        };
        self.frame = EnclosingValue { kind, entry: self.entries.len() as u32, count: 0, name: NO_NAME, names };
        self.entries.push(Entry::new(self.at, node, 1));
        Ok(state)
    }

    #[inline]
    fn close(&mut self) -> ParserState {
        let size = self.entries.len() - self.frame.entry as usize;
        if let Some(entry) = self.entries.get_mut(self.frame.entry as usize) {
            *entry = Entry::new(entry.offset(), entry.kind(), size);
        }
        if self.frame.kind == EnclosingKind::Object {
            self.names.close(self.frame.names);
        }
        if let Some(parent) = self.parents.pop() {
            self.frame = parent;
        }
        self.end_value()
    }

    /// Counts a value of the innermost array or object; returns what may follow.
    #[inline]
    fn end_value(&mut self) -> ParserState {
        self.frame.count += 1;
        self.frame.name = NO_NAME;
        match self.frame.kind {
            EnclosingKind::Root => ParserState::End,
            EnclosingKind::Array => ParserState::AfterItem,
            EnclosingKind::Object => ParserState::AfterMember,
        }
    }
}

/// Returns the end of a short integer if it has one within `window`. The byte after it is looked at only if it could
/// belong to the number.
#[inline]
fn integer_end(window: &[u8], at: usize, first: u8) -> Option<usize> {
    let digits = at + usize::from(first == b'-');
    let mut end = digits;
    let after = loop {
        match window.get(end) {
            Some(b'0'..=b'9') => end += 1,
            Some(byte) => break *byte,
            None => return None,
        }
    };
    let length = end - digits;
    let has_leading_zero = length > 1 && window.get(digits) == Some(&b'0');
    let is_short = (1..=MAX_SHORT_DIGITS).contains(&length);
    (is_short && !has_leading_zero && !matches!(after, b'.' | b'e' | b'E')).then_some(end)
}
