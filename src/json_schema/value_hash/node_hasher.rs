//! The hash of a value of a tape, in slices of fuel.

use super::{
    HashKind, MAX_SHORT_DIGITS, begin, begin_long_number, finish, finish_array, finish_object, hash_member,
    hash_scalar, hash_short_number, write_digits, write_text,
};
use crate::{
    fuel::Fuel,
    number::Decimal,
    tape::{Node, NodeKind, Tape, block_at},
};
use siphasher::sip128::SipHasher13;
use std::{hash::Hasher, task::Poll};

/// Units of fuel for a value beside its text, and for an array or object on top.
const VALUE_UNITS: u64 = 6;
const CONTAINER_UNITS: u64 = 3;
/// Units of fuel for a number with a fraction or an exponent, on top.
const FRACTION_UNITS: u64 = 4;
/// Bytes of text that are hashed for a unit of fuel.
const BYTES_PER_UNIT: u64 = 4;
const ESCAPED_BYTES_PER_UNIT: u64 = 2;
/// A string or number up to this length is hashed at once, a longer one in blocks.
const SHORT_BYTES: usize = 1024;
const BLOCK_BYTES: usize = 4096;

/// An array or object whose entries are being hashed.
#[derive(Debug)]
struct OpenContainer {
    /// The entry after the last one.
    end: Node,
    count: u64,
    kind: ContainerKind,
}

#[derive(Debug)]
enum ContainerKind {
    Array(SipHasher13),
    Object { sum: u128, name: Option<u128> },
}

/// A long string or number, of which a part is hashed.
#[derive(Debug)]
struct LongScalar {
    hasher: SipHasher13,
    at: usize,
    end: usize,
    /// The hash, if it is a number of few digits in a long text.
    short_number: Option<u128>,
}

/// Computes the hash of a value over several slices of fuel. It has one entry of 96 bytes for each open array and object,
/// at most as many as the tape is deep.
#[derive(Debug)]
pub struct NodeHasher {
    next: Node,
    open: Vec<OpenContainer>,
    long: Option<LongScalar>,
}

impl NodeHasher {
    /// Begins with a value.
    pub fn start(node: Node) -> Self {
        Self { next: node, open: Vec::new(), long: None }
    }

    /// Begins with another value, in the memory of the last one.
    pub fn restart(&mut self, node: Node) {
        self.next = node;
        self.open.clear();
        self.long = None;
    }

    /// Goes on as far as the fuel goes. After the hash, [`restart`](Self::restart) must be called before the next one.
    pub fn resume(&mut self, tape: &Tape, fuel: &mut Fuel) -> Poll<u128> {
        loop {
            if fuel.is_spent() {
                return Poll::Pending;
            }
            let Some(mut hash) = self.hash_next(tape, fuel) else { continue };
            // The hash may be the last one of several arrays and objects.
            loop {
                let Some(container) = self.open.last_mut() else { return Poll::Ready(hash) };
                container.add(hash);
                if self.next < container.end {
                    break;
                }
                match self.open.pop() {
                    Some(container) => hash = container.finish(),
                    None => return Poll::Ready(hash),
                }
            }
        }
    }

    /// Returns the hash of the next scalar or empty container; `None` if the value goes on.
    fn hash_next(&mut self, tape: &Tape, fuel: &mut Fuel) -> Option<u128> {
        if let Some(long) = &mut self.long {
            if long.hash_block(tape, self.next, fuel) {
                return None;
            }
            let hash = finish(&long.hasher);
            self.long = None;
            self.next = tape.next_sibling(self.next);
            return Some(hash);
        }
        let node = self.next;
        let kind = tape.kind(node);
        fuel.charge(VALUE_UNITS);
        if kind.is_container() {
            self.next = tape.first_child(node);
            fuel.charge(CONTAINER_UNITS);
            let container = OpenContainer::new(kind, tape.end(node));
            if self.next >= container.end {
                return Some(container.finish());
            }
            self.open.push(container);
            return None;
        }
        if kind == NodeKind::Number {
            fuel.charge(FRACTION_UNITS);
        }
        let length = tape.raw_length(node);
        if length > SHORT_BYTES {
            // Where the digits of a number are takes a look at all of it, which is fast.
            fuel.charge(length as u64 / 64);
            let long = LongScalar::new(tape, node);
            if let Some(hash) = long.short_number {
                self.next = tape.next_sibling(node);
                return Some(hash);
            }
            self.long = Some(long);
            return None;
        }
        let is_escaped = kind == NodeKind::EscapedString;
        fuel.charge_bytes(length, if is_escaped { ESCAPED_BYTES_PER_UNIT } else { BYTES_PER_UNIT });
        self.next = tape.next_sibling(node);
        hash_scalar(tape, node)
    }

    /// Returns the bytes of memory.
    pub fn memory(&self) -> usize {
        self.open.capacity() * size_of::<OpenContainer>()
    }
}

impl OpenContainer {
    fn new(kind: NodeKind, end: Node) -> Self {
        let kind = match kind {
            NodeKind::Object => ContainerKind::Object { sum: 0, name: None },
            _ => ContainerKind::Array(begin(HashKind::Array)),
        };
        Self { end, count: 0, kind }
    }

    fn add(&mut self, hash: u128) {
        match &mut self.kind {
            ContainerKind::Array(hasher) => {
                self.count += 1;
                hasher.write(&hash.to_le_bytes());
            }
            ContainerKind::Object { sum, name } => match name.take() {
                None => *name = Some(hash),
                Some(name) => {
                    self.count += 1;
                    *sum = sum.wrapping_add(hash_member(name, hash));
                }
            },
        }
    }

    fn finish(self) -> u128 {
        match self.kind {
            ContainerKind::Array(hasher) => finish_array(hasher, self.count),
            ContainerKind::Object { sum, .. } => finish_object(sum, self.count),
        }
    }
}

impl LongScalar {
    fn new(tape: &Tape, node: Node) -> Self {
        if tape.kind(node).is_number() {
            let decimal = Decimal::parse(tape.raw(node));
            let digits = decimal.significant_range();
            let short_number = (decimal.digit_count() <= MAX_SHORT_DIGITS).then(|| hash_short_number(&decimal));
            Self { hasher: begin_long_number(&decimal), at: digits.start, end: digits.end, short_number }
        } else {
            Self { hasher: begin(HashKind::String), at: 0, end: tape.raw_length(node), short_number: None }
        }
    }

    /// Hashes the next block; returns false if there is none. An escape takes longer than other text.
    fn hash_block(&mut self, tape: &Tape, node: Node, fuel: &mut Fuel) -> bool {
        if self.at >= self.end {
            return false;
        }
        let raw = tape.raw_bytes(node).get(..self.end).unwrap_or_default();
        let block = block_at(raw, self.at, BLOCK_BYTES);
        let is_escaped = tape.kind(node) == NodeKind::EscapedString;
        fuel.charge_bytes(block.len(), if is_escaped { ESCAPED_BYTES_PER_UNIT } else { BYTES_PER_UNIT });
        match tape.kind(node) {
            NodeKind::EscapedString => write_text(&mut self.hasher, block),
            NodeKind::String => self.hasher.write(block.as_bytes()),
            _ => write_digits(&mut self.hasher, block.as_bytes()),
        }
        // A block is never empty: the text is UTF-8.
        self.at += block.len().max(1);
        true
    }
}
