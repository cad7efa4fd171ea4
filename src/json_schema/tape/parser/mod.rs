//! Parses a JSON text into a tape: strict, without recursion, and in slices of fuel.
//!
//! The text is read in blocks, each of which is charged before it is read. What is charged depends on the text alone.

mod failure;
mod tokens;

use super::{
    Entry, MAX_DEPTH, MAX_TEXT_BYTES, Tape, TapeBounds, TapeError,
    error::{LinePosition, SyntaxError},
    member_names::{NameInsert, NameScope, OpenNames, SLOTS_PER_STEP},
    number_scanner::{NumberScan, NumberScanner},
    text_decoder::{DECODED_BYTES_PER_UNIT, TextPart, TextParts, block_at},
};
use crate::fuel::Fuel;
use bytes::Bytes;
use siphasher::sip::SipHasher13;
use std::{hash::Hasher, task::Poll};

/// Bytes of text that are read between two looks at the fuel.
const BLOCK_BYTES: usize = 2048;
/// Bytes of text that are read for a unit of fuel.
const BYTES_PER_UNIT: u64 = 4;
/// The same where a string without escapes goes on.
const STRING_BYTES_PER_UNIT: u64 = 16;
/// Bytes that are checked to be UTF-8 between two looks at the fuel, and for a unit of fuel.
const UTF8_BLOCK_BYTES: usize = 16 * 1024;
const UTF8_BYTES_PER_UNIT: u64 = 16;
/// Entries that are copied into a larger list at once, and for a unit of fuel.
const COPIED_ENTRIES: usize = 4096;
const COPIED_ENTRIES_PER_UNIT: usize = 8;
/// A name up to this length is hashed at once, a longer one in blocks.
const SHORT_NAME_BYTES: usize = 1024;
/// Digits of an integer that is read without a [`NumberScanner`]; it is in the range of a double.
const MAX_SHORT_DIGITS: usize = 64;
/// Units of fuel for a name, what comes on top in a table or with escapes, and those for an array or object.
const NAME_UNITS: u64 = 1;
const TABLE_UNITS: u64 = 3;
const ESCAPED_NAME_UNITS: u64 = 6;
const CONTAINER_UNITS: u64 = 2;
/// Bytes of a name that are hashed for a unit of fuel, and units for a slot that is moved.
const HASHED_BYTES_PER_UNIT: u64 = 8;
const UNITS_PER_MOVED_SLOT: u64 = 2;

/// A string that goes on in the next block.
#[derive(Clone, Copy, Debug, Default)]
struct OpenString {
    start: usize,
    is_name: bool,
    is_escaped: bool,
}

/// A long name or one with escapes, of which a part is hashed.
#[derive(Debug)]
struct NameHash {
    at: usize,
    hasher: SipHasher13,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ParserState {
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
    InString,
    InNumber,
    /// The name must be hashed.
    HashName,
    /// The key of a name is inserted, which may need a larger table.
    InsertName,
    /// The table is growing; the key follows.
    GrowTable,
}

impl ParserState {
    /// Returns whether there is work for a name before the text goes on.
    #[inline]
    fn is_work(self) -> bool {
        matches!(self, Self::HashName | Self::InsertName | Self::GrowTable)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum EnclosingKind {
    Root,
    Array,
    Object,
}

/// No entry: a text has less than 2^28 of them.
const NO_NAME: u32 = u32::MAX;

#[derive(Clone, Copy, Debug)]
struct EnclosingValue {
    kind: EnclosingKind,
    /// The entry of the array or object.
    entry: u32,
    /// Values that are complete.
    count: u32,
    /// The entry of the member's name whose value is being read, or [`NO_NAME`].
    name: u32,
    names: NameScope,
}

/// What a step of the parser needs next.
enum ReadResult {
    /// More of the text must be charged.
    Bytes,
    /// The state has work that is charged by itself.
    Work,
}

/// A parser that can be suspended.
#[derive(Debug)]
pub struct TapeParser {
    text: Bytes,
    entries: Vec<Entry>,
    /// A list that takes over the entries, and how many it has: its capacity is larger, or exact at the end.
    next_entries: Option<Vec<Entry>>,
    is_complete: bool,
    max_depth: usize,
    checked_utf8: usize,
    at: usize,
    /// Bytes that are charged and whose entries have room.
    charged: usize,
    /// Whether the last block was charged as the content of a string without escapes.
    plain_block: bool,
    line: LinePosition,
    state: ParserState,
    string: OpenString,
    number: NumberScanner,
    name_hash: Option<NameHash>,
    /// The key of the name that is inserted.
    name_key: u64,
    frame: EnclosingValue,
    parents: Vec<EnclosingValue>,
    names: OpenNames,
}

type Failure = Box<TapeError>;

impl TapeParser {
    /// Creates a parser of a text. It does nothing yet.
    pub fn new(text: Bytes, bounds: &TapeBounds) -> Self {
        let root = EnclosingValue {
            kind: EnclosingKind::Root,
            entry: 0,
            count: 0,
            name: NO_NAME,
            names: NameScope::default(),
        };
        Self {
            text,
            entries: Vec::new(),
            next_entries: None,
            is_complete: false,
            max_depth: usize::from(bounds.max_depth.min(MAX_DEPTH)),
            checked_utf8: 0,
            at: 0,
            charged: 0,
            plain_block: false,
            line: LinePosition::default(),
            state: ParserState::Value,
            string: OpenString::default(),
            number: NumberScanner::new(0),
            name_hash: None,
            name_key: 0,
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
        (self.entries.capacity() + next) * size_of::<Entry>()
            + self.parents.capacity() * size_of::<EnclosingValue>()
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
                ReadResult::Work => self.work(text, fuel)?,
                ReadResult::Bytes if self.charged < text.len() => self.charge_block(text, fuel),
                ReadResult::Bytes => {
                    self.finish(text)?;
                    if matches!(self.state, ParserState::End) {
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
        let is_plain = self.state == ParserState::InString && !self.string.is_escaped;
        fuel.charge_bytes(end - self.charged, if is_plain { STRING_BYTES_PER_UNIT } else { BYTES_PER_UNIT });
        self.plain_block = is_plain;
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

    #[inline(always)]
    fn insert_name(&mut self, text: &[u8], key: u64) -> Result<(), Failure> {
        match self.names.insert(&mut self.frame.names, key) {
            NameInsert::New => self.state = ParserState::Colon,
            NameInsert::Duplicate => return Err(self.fail_duplicate(text)),
            NameInsert::Full => (self.state, self.name_key) = (ParserState::GrowTable, key),
        }
        Ok(())
    }

    /// Does a part of the work for a name.
    fn work(&mut self, text: &[u8], fuel: &mut Fuel) -> Result<(), Failure> {
        match self.state {
            ParserState::HashName => {
                if let Some(key) = self.hash_name(text, fuel) {
                    self.name_hash = None;
                    (self.state, self.name_key) = (ParserState::InsertName, key);
                }
                Ok(())
            }
            ParserState::InsertName => self.insert_name(text, self.name_key),
            ParserState::GrowTable => {
                fuel.charge(SLOTS_PER_STEP as u64 * UNITS_PER_MOVED_SLOT);
                if self.names.grow() {
                    self.state = ParserState::InsertName;
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Hashes the next block of a name; returns the key after the last one.
    fn hash_name(&mut self, text: &[u8], fuel: &mut Fuel) -> Option<u64> {
        let raw = name_text(text, &self.entries, self.frame.name);
        let names = &self.names;
        let progress = self.name_hash.get_or_insert_with(|| NameHash { at: 0, hasher: names.hasher() });
        let block = block_at(raw, progress.at, BLOCK_BYTES);
        fuel.charge(ESCAPED_NAME_UNITS + block.len() as u64 / DECODED_BYTES_PER_UNIT);
        let is_first = progress.at == 0;
        progress.at += block.len().max(1);
        let is_last = progress.at >= raw.len();
        if is_first && is_last && raw.len() <= SHORT_NAME_BYTES {
            let name: String = TextParts::new(block).collect();
            return Some(names.key(name.as_bytes()));
        }
        for part in TextParts::new(block) {
            let mut buffer = [0; 4];
            match part {
                TextPart::Plain(plain) => progress.hasher.write(plain.as_bytes()),
                TextPart::Escaped(character) => progress.hasher.write(character.encode_utf8(&mut buffer).as_bytes()),
            }
        }
        // More than 1024 bytes, of which an escape has at most six for one of text: longer than a packed name.
        is_last.then(|| OpenNames::hashed_key(&progress.hasher))
    }

    /// Ends the value at the end of the text, or says what is missing.
    fn finish(&mut self, text: &[u8]) -> Result<(), Failure> {
        let error = match self.state {
            ParserState::End => return Ok(()),
            ParserState::InNumber => match self.number.finish(text, text.len()) {
                NumberScan::End(end) => {
                    self.end_number(end);
                    return Ok(());
                }
                NumberScan::Error(error, _) => error,
                NumberScan::Limit => SyntaxError::EndInValue,
            },
            ParserState::Value if self.frame.kind == EnclosingKind::Root => return Err(Box::new(TapeError::empty())),
            ParserState::Value | ParserState::Name => SyntaxError::EndInValue,
            ParserState::FirstItem | ParserState::AfterItem => SyntaxError::EndInArray,
            ParserState::InString => SyntaxError::EndInString,
            _ => SyntaxError::EndInObject,
        };
        Err(self.fail(text, error, text.len()))
    }
}

fn name_text<'a>(text: &'a [u8], entries: &[Entry], name: u32) -> &'a [u8] {
    let entry = entries.get(name as usize).copied().unwrap_or_default();
    text.get(entry.offset()..entry.offset() + entry.length()).unwrap_or_default()
}
