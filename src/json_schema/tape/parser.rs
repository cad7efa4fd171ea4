//! Parses a JSON text into a tape: strict, without recursion, and in slices of fuel.
//!
//! The text is read in blocks, each of which is charged before it is read. What is charged depends on the text alone.

use super::{
    MAX_DEPTH, MAX_TEXT_BYTES, NodeKind, Tape, TapeBounds, TapeError,
    error::{LinePosition, SyntaxError, push_pointer_segment, truncate_name},
    kind_of, length_of,
    member_names::{NameInsert, NameScope, OpenNames, SLOTS_PER_STEP},
    number_scanner::{NumberScan, NumberScanner},
    offset_of, pack_entry,
    string_scanner::{StringScan, scan_string},
    text_decoder::{TextPart, TextParts, block_at},
};
use crate::fuel::Fuel;
use bytes::Bytes;
use siphasher::sip::SipHasher13;
use std::{hash::Hasher, task::Poll};

/// Bytes of text that are read between two looks at the fuel.
const BLOCK_BYTES: usize = 2048;
/// Bytes of text that are read for a unit of fuel.
const BYTES_PER_UNIT: u64 = 4;
/// Bytes that are checked to be UTF-8 between two looks at the fuel, and for a unit of fuel.
const UTF8_BLOCK_BYTES: usize = 16 * 1024;
const UTF8_BYTES_PER_UNIT: u64 = 16;
/// Entries that are copied into a larger list at once, and for a unit of fuel.
const COPIED_ENTRIES: usize = 4096;
const COPIED_ENTRIES_PER_UNIT: usize = 8;
/// A name up to this length is hashed at once, a longer one in blocks.
const SHORT_NAME_BYTES: usize = 1024;
/// Bytes of a name that are hashed for a unit of fuel, and slots that are moved for one.
const HASHED_BYTES_PER_UNIT: u64 = 8;
const MOVED_SLOTS_PER_UNIT: usize = 1;

#[derive(Clone, Copy, Debug)]
struct StringState {
    start: usize,
    is_name: bool,
    is_escaped: bool,
}

#[derive(Clone, Debug)]
enum State {
    /// A value must follow.
    Value,
    /// A value or the end of the array must follow.
    FirstItem,
    AfterItem,
    /// A name or the end of the object must follow.
    FirstName,
    /// A name must follow.
    Name,
    AfterMember,
    Colon,
    /// Nothing may follow.
    End,
    InString(StringState),
    InNumber(NumberScanner),
    /// A long name is hashed from the offset on.
    HashName {
        at: usize,
        decoded_bytes: usize,
        hasher: SipHasher13,
    },
    /// The key of a name is inserted, which may need a larger table.
    InsertName(u64),
    /// The table is growing; the key follows.
    GrowTable(u64),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FrameKind {
    Root,
    Array,
    Object,
}

#[derive(Clone, Copy, Debug)]
struct Frame {
    kind: FrameKind,
    /// The entry of the array or object.
    entry: usize,
    /// Values that are complete.
    count: usize,
    /// The entry of the member's name whose value is being read.
    name: Option<usize>,
    names: NameScope,
}

/// What a step of the parser needs next.
enum Step {
    /// More of the text must be charged.
    Bytes,
    /// The state has work that is charged by itself.
    Work,
}

/// A parser that can be suspended.
#[derive(Debug)]
pub struct TapeParser {
    text: Bytes,
    entries: Vec<u64>,
    /// A list that takes over the entries, and how many it has: its capacity is larger, or exact at the end.
    next_entries: Option<Vec<u64>>,
    is_complete: bool,
    max_depth: usize,
    checked_utf8: usize,
    at: usize,
    /// Bytes that are charged and whose entries have room.
    charged: usize,
    line: LinePosition,
    state: State,
    frame: Frame,
    parents: Vec<Frame>,
    names: OpenNames,
}

type Failure = Box<TapeError>;

impl TapeParser {
    /// Creates a parser of a text. It does nothing yet.
    pub fn new(text: Bytes, bounds: &TapeBounds) -> Self {
        let root = Frame { kind: FrameKind::Root, entry: 0, count: 0, name: None, names: NameScope::default() };
        Self {
            text,
            entries: Vec::new(),
            next_entries: None,
            is_complete: false,
            max_depth: usize::from(bounds.max_depth.min(MAX_DEPTH)),
            checked_utf8: 0,
            at: 0,
            charged: 0,
            line: LinePosition::default(),
            state: State::Value,
            frame: root,
            parents: Vec::new(),
            names: OpenNames::new(),
        }
    }

    /// Goes on as far as the fuel goes. After a result the parser is empty, and must not be used again.
    pub fn resume(&mut self, fuel: &mut Fuel) -> Poll<Result<Tape, TapeError>> {
        match self.advance(fuel) {
            Ok(Poll::Pending) => Poll::Pending,
            Ok(Poll::Ready(())) => Poll::Ready(Ok(Tape {
                text: std::mem::take(&mut self.text),
                entries: std::mem::take(&mut self.entries),
            })),
            Err(error) => Poll::Ready(Err(*error)),
        }
    }

    /// Returns the bytes of memory that the parser has now, beside the text.
    pub fn memory(&self) -> usize {
        let next = self.next_entries.as_ref().map_or(0, Vec::capacity);
        (self.entries.capacity() + next) * size_of::<u64>()
            + self.parents.capacity() * size_of::<Frame>()
            + self.names.memory()
    }

    fn advance(&mut self, fuel: &mut Fuel) -> Result<Poll<()>, Failure> {
        // A handle of its own, so that the text can be read while the parser changes.
        let text = self.text.clone();
        let text = text.as_ref();
        if text.len() > MAX_TEXT_BYTES {
            return Err(Box::new(TapeError::too_long()));
        }
        if text.starts_with(b"\xef\xbb\xbf") {
            return Err(Box::new(TapeError::byte_order_mark()));
        }
        if self.check_utf8(text, fuel)?.is_pending() {
            return Ok(Poll::Pending);
        }
        loop {
            if fuel.is_spent() {
                return Ok(Poll::Pending);
            }
            if self.next_entries.is_some() {
                self.copy_entries(fuel);
                continue;
            }
            if self.is_complete {
                return Ok(Poll::Ready(()));
            }
            match self.step(text, fuel)? {
                Step::Work => self.work(text, fuel)?,
                Step::Bytes if self.charged < text.len() => self.charge_block(text, fuel),
                Step::Bytes => {
                    self.finish(text)?;
                    if matches!(self.state, State::End) {
                        self.complete();
                    }
                }
            }
        }
    }

    /// Checks that the text is UTF-8; it is needed only within strings, but the message says so first.
    fn check_utf8(&mut self, text: &[u8], fuel: &mut Fuel) -> Result<Poll<()>, Failure> {
        while self.checked_utf8 < text.len() {
            if fuel.is_spent() {
                return Ok(Poll::Pending);
            }
            let rest = text.get(self.checked_utf8..).unwrap_or_default();
            let block = rest.get(..UTF8_BLOCK_BYTES).unwrap_or(rest);
            fuel.charge_bytes(block.len(), UTF8_BYTES_PER_UNIT);
            match std::str::from_utf8(block) {
                Ok(_) => self.checked_utf8 += block.len(),
                // The last character of the block continues in the next one.
                Err(why) if why.error_len().is_none() && block.len() < rest.len() => {
                    self.checked_utf8 += why.valid_up_to();
                }
                Err(why) => return Err(Box::new(TapeError::not_utf8(self.checked_utf8 + why.valid_up_to()))),
            }
        }
        Ok(Poll::Ready(()))
    }

    /// Charges the next block, and sees to it that its entries have room.
    fn charge_block(&mut self, text: &[u8], fuel: &mut Fuel) {
        self.line.advance(text, self.charged.min(self.at));
        let end = text.len().min(self.charged + BLOCK_BYTES);
        fuel.charge_bytes(end - self.charged, BYTES_PER_UNIT);
        self.charged = end;
        // Two values have at least a byte between them, and so have a name and its value.
        let max_entries = text.len() / 2 + 1;
        let needed = max_entries.min(self.entries.len() + BLOCK_BYTES / 2 + 16);
        if self.entries.capacity() < needed {
            let first = text.len() / 16 + 16;
            let capacity = max_entries.min(needed.max(first).max(self.entries.capacity() * 2));
            self.next_entries = Some(Vec::with_capacity(capacity));
        }
    }

    fn complete(&mut self) {
        self.is_complete = true;
        if self.entries.capacity() > self.entries.len() {
            self.next_entries = Some(Vec::with_capacity(self.entries.len()));
        }
    }

    /// Copies some entries into the next list, and replaces the list once it has all.
    fn copy_entries(&mut self, fuel: &mut Fuel) {
        let Some(next) = &mut self.next_entries else { return };
        let rest = self.entries.get(next.len()..).unwrap_or_default();
        let part = rest.get(..COPIED_ENTRIES).unwrap_or(rest);
        fuel.charge(part.len().div_ceil(COPIED_ENTRIES_PER_UNIT) as u64);
        next.extend_from_slice(part);
        if next.len() == self.entries.len() {
            self.entries = self.next_entries.take().unwrap_or_default();
        }
    }

    /// Reads up to the end of the charged bytes.
    fn step(&mut self, text: &[u8], fuel: &mut Fuel) -> Result<Step, Failure> {
        let limit = self.charged.min(text.len());
        loop {
            match &mut self.state {
                State::InString(string) => {
                    let mut string = *string;
                    match scan_string(text, self.at, limit, &mut string.is_escaped) {
                        StringScan::Quote(quote) => self.end_string(text, string, quote, fuel)?,
                        StringScan::Limit(at) => {
                            self.at = at;
                            self.state = State::InString(string);
                            return Ok(Step::Bytes);
                        }
                        StringScan::Error(error, end) => return Err(self.fail(text, error, end)),
                    }
                    continue;
                }
                State::InNumber(number) => {
                    match number.scan(text, &mut self.at, limit) {
                        NumberScan::End(end) => {
                            let number = *number;
                            self.end_number(number, end);
                        }
                        NumberScan::Limit => return Ok(Step::Bytes),
                        NumberScan::Error(error, end) => return Err(self.fail(text, error, end)),
                    }
                    continue;
                }
                State::HashName { .. } | State::InsertName(_) | State::GrowTable(_) => return Ok(Step::Work),
                _ => {}
            }
            let byte = loop {
                if self.at >= limit {
                    return Ok(Step::Bytes);
                }
                match text.get(self.at) {
                    Some(b' ' | b'\n' | b'\t' | b'\r') => self.at += 1,
                    Some(byte) => break *byte,
                    None => return Ok(Step::Bytes),
                }
            };
            match (&self.state, byte) {
                (State::AfterItem, b',') => {
                    self.at += 1;
                    self.state = State::Value;
                }
                (State::AfterMember, b',') => {
                    self.at += 1;
                    self.state = State::Name;
                }
                (State::Colon, b':') => {
                    self.at += 1;
                    self.state = State::Value;
                }
                (State::FirstItem | State::AfterItem, b']') | (State::FirstName | State::AfterMember, b'}') => {
                    self.at += 1;
                    self.close();
                }
                (State::FirstName | State::Name, b'"') => {
                    self.at += 1;
                    self.state = State::InString(StringState { start: self.at, is_name: true, is_escaped: false });
                }
                (State::Value | State::FirstItem, _) => self.begin_value(text, byte)?,
                _ => {
                    let error = self.unexpected(byte);
                    return Err(self.fail(text, error, self.at + 1));
                }
            }
        }
    }

    #[inline]
    fn begin_value(&mut self, text: &[u8], byte: u8) -> Result<(), Failure> {
        match byte {
            b'"' => {
                self.at += 1;
                self.state = State::InString(StringState { start: self.at, is_name: false, is_escaped: false });
            }
            b'-' | b'0'..=b'9' => self.state = State::InNumber(NumberScanner::new(self.at)),
            b'[' => self.open(text, FrameKind::Array)?,
            b'{' => self.open(text, FrameKind::Object)?,
            b'n' => self.literal(text, NodeKind::Null, b"null")?,
            b't' => self.literal(text, NodeKind::True, b"true")?,
            b'f' => self.literal(text, NodeKind::False, b"false")?,
            _ => {
                let error = self.unexpected(byte);
                return Err(self.fail(text, error, self.at + 1));
            }
        }
        Ok(())
    }

    /// Reads a literal; it may be some bytes longer than what is charged.
    fn literal(&mut self, text: &[u8], kind: NodeKind, letters: &[u8]) -> Result<(), Failure> {
        for (offset, letter) in letters.iter().enumerate() {
            match text.get(self.at + offset) {
                Some(byte) if byte == letter => {}
                Some(_) => return Err(self.fail(text, SyntaxError::ExpectedLiteral, self.at + offset + 1)),
                None => return Err(self.fail(text, SyntaxError::EndInValue, text.len())),
            }
        }
        self.entries.push(pack_entry(self.at, kind, letters.len()));
        self.at += letters.len();
        self.end_value();
        Ok(())
    }

    fn open(&mut self, text: &[u8], kind: FrameKind) -> Result<(), Failure> {
        if self.parents.len() >= self.max_depth {
            return Err(self.fail(text, SyntaxError::TooDeep, self.at + 1));
        }
        self.parents.push(self.frame);
        let entry = self.entries.len();
        let (node, state, names) = match kind {
            FrameKind::Object => (NodeKind::Object, State::FirstName, self.names.open()),
            _ => (NodeKind::Array, State::FirstItem, NameScope::default()),
        };
        self.frame = Frame { kind, entry, count: 0, name: None, names };
        self.entries.push(pack_entry(self.at, node, 1));
        self.at += 1;
        self.state = state;
        Ok(())
    }

    fn close(&mut self) {
        let size = self.entries.len() - self.frame.entry;
        if let Some(entry) = self.entries.get_mut(self.frame.entry) {
            *entry = pack_entry(offset_of(*entry), kind_of(*entry), size);
        }
        if self.frame.kind == FrameKind::Object {
            self.names.close(self.frame.names);
        }
        if let Some(parent) = self.parents.pop() {
            self.frame = parent;
        }
        self.end_value();
    }

    #[inline]
    fn end_value(&mut self) {
        self.frame.count += 1;
        self.frame.name = None;
        self.state = match self.frame.kind {
            FrameKind::Root => State::End,
            FrameKind::Array => State::AfterItem,
            FrameKind::Object => State::AfterMember,
        };
    }

    #[inline]
    fn end_number(&mut self, number: NumberScanner, end: usize) {
        let kind = if number.is_integer() { NodeKind::Integer } else { NodeKind::Number };
        self.entries.push(pack_entry(number.start, kind, end - number.start));
        self.at = end;
        self.end_value();
    }

    #[inline]
    fn end_string(&mut self, text: &[u8], string: StringState, quote: usize, fuel: &mut Fuel) -> Result<(), Failure> {
        let kind = if string.is_escaped { NodeKind::EscapedString } else { NodeKind::String };
        let length = quote - string.start;
        self.entries.push(pack_entry(string.start, kind, length));
        self.at = quote + 1;
        if !string.is_name {
            self.end_value();
            return Ok(());
        }
        self.frame.name = Some(self.entries.len() - 1);
        let key = if string.is_escaped || length > SHORT_NAME_BYTES {
            self.state = State::HashName { at: 0, decoded_bytes: 0, hasher: self.names.hasher() };
            return Ok(());
        } else {
            fuel.charge(1 + length as u64 / HASHED_BYTES_PER_UNIT);
            self.names.key(text.get(string.start..quote).unwrap_or_default())
        };
        match self.names.insert(&mut self.frame.names, key) {
            NameInsert::New => self.state = State::Colon,
            NameInsert::Duplicate => return Err(self.fail_duplicate(text)),
            NameInsert::Full => self.state = State::GrowTable(key),
        }
        Ok(())
    }

    /// Does a part of the work for a name.
    fn work(&mut self, text: &[u8], fuel: &mut Fuel) -> Result<(), Failure> {
        match &mut self.state {
            State::HashName { at, decoded_bytes, hasher } => {
                let raw = name_text(text, &self.entries, self.frame.name);
                let block = block_at(raw, *at, BLOCK_BYTES);
                fuel.charge(1 + 2 * block.len() as u64 / HASHED_BYTES_PER_UNIT);
                *at += block.len().max(1);
                let is_last = *at >= raw.len();
                if is_last && *decoded_bytes == 0 && block.len() <= SHORT_NAME_BYTES {
                    let name: String = TextParts::new(block).collect();
                    self.state = State::InsertName(self.names.key(name.as_bytes()));
                    return Ok(());
                }
                for part in TextParts::new(block) {
                    let mut buffer = [0; 4];
                    let bytes = match part {
                        TextPart::Plain(plain) => plain.as_bytes(),
                        TextPart::Escaped(character) => character.encode_utf8(&mut buffer).as_bytes(),
                    };
                    hasher.write(bytes);
                    *decoded_bytes += bytes.len();
                }
                if is_last {
                    // Of more than 1024 bytes in escapes of at most six bytes for one: longer than any packed name.
                    self.state = State::InsertName(OpenNames::hashed_key(hasher));
                }
                Ok(())
            }
            State::InsertName(key) => {
                let key = *key;
                match self.names.insert(&mut self.frame.names, key) {
                    NameInsert::New => self.state = State::Colon,
                    NameInsert::Duplicate => return Err(self.fail_duplicate(text)),
                    NameInsert::Full => self.state = State::GrowTable(key),
                }
                Ok(())
            }
            State::GrowTable(key) => {
                let key = *key;
                fuel.charge((SLOTS_PER_STEP / MOVED_SLOTS_PER_UNIT) as u64);
                if self.names.grow() {
                    self.state = State::InsertName(key);
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Ends the value at the end of the text, or says what is missing.
    fn finish(&mut self, text: &[u8]) -> Result<(), Failure> {
        let error = match &mut self.state {
            State::End => return Ok(()),
            State::InNumber(number) => match number.finish(text, text.len()) {
                NumberScan::End(end) => {
                    let number = *number;
                    self.end_number(number, end);
                    return Ok(());
                }
                NumberScan::Error(error, _) => error,
                NumberScan::Limit => SyntaxError::EndInValue,
            },
            State::Value if self.frame.kind == FrameKind::Root => return Err(Box::new(TapeError::empty())),
            State::Value | State::Name => SyntaxError::EndInValue,
            State::FirstItem | State::AfterItem => SyntaxError::EndInArray,
            State::InString(_) => SyntaxError::EndInString,
            _ => SyntaxError::EndInObject,
        };
        Err(self.fail(text, error, text.len()))
    }

    fn unexpected(&self, byte: u8) -> SyntaxError {
        match &self.state {
            State::Value if byte == b']' && self.frame.kind == FrameKind::Array => SyntaxError::TrailingComma,
            State::Name if byte == b'}' => SyntaxError::TrailingComma,
            State::FirstName | State::Name => SyntaxError::NameIsNotString,
            State::AfterItem => SyntaxError::ExpectedCommaOrArrayEnd,
            State::AfterMember => SyntaxError::ExpectedCommaOrObjectEnd,
            State::Colon => SyntaxError::ExpectedColon,
            State::End => SyntaxError::TrailingCharacters,
            _ => SyntaxError::ExpectedValue,
        }
    }

    #[cold]
    fn fail(&self, text: &[u8], error: SyntaxError, end: usize) -> Failure {
        self.describe(text, error.message(), end)
    }

    #[cold]
    fn fail_duplicate(&mut self, text: &[u8]) -> Failure {
        let name = truncated(name_text(text, &self.entries, self.frame.name));
        self.frame.name = None;
        self.describe(text, &format!("the name '{name}' appears twice in one object"), self.at)
    }

    fn describe(&self, text: &[u8], message: &str, end: usize) -> Failure {
        let reason = self.line.describe(text, end.min(text.len()), message);
        let mut pointer = String::new();
        for frame in self.parents.iter().chain([&self.frame]) {
            match (frame.kind, frame.name) {
                (FrameKind::Array, _) => push_pointer_segment(&mut pointer, &frame.count.to_string()),
                (FrameKind::Object, Some(name)) => {
                    push_pointer_segment(&mut pointer, &truncated(name_text(text, &self.entries, Some(name))));
                }
                _ => {}
            }
        }
        Box::new(TapeError { pointer, reason })
    }
}

fn name_text<'a>(text: &'a [u8], entries: &[u64], name: Option<usize>) -> &'a [u8] {
    let entry = name.and_then(|name| entries.get(name)).copied().unwrap_or_default();
    text.get(offset_of(entry)..offset_of(entry) + length_of(entry)).unwrap_or_default()
}

/// Decodes the beginning of a name, for a message.
fn truncated(raw: &[u8]) -> String {
    truncate_name(block_at(raw, 0, BLOCK_BYTES))
}
