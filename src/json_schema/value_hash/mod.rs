//! Equality of JSON values by a keyed hash of 128 bits.
//!
//! Values are hashed bottom-up: numbers by value (1, 1.0 and 10e-1 are equal), strings decoded, arrays with their order and
//! length, objects as a sum over their members, so that the order of members does not matter. Types differ: false is not
//! 0. The key is random for each process: a caller can neither know a hash nor find two values that share one, and two
//! different values of a check share one with a probability of about 2^-127.

mod node_hasher;
#[cfg(test)]
mod tests;
mod uniqueness;

pub use node_hasher::NodeHasher;
pub use uniqueness::{OutOfMemory, UniquenessCheck};

use crate::{
    number::{Decimal, read_short_integer},
    tape::{Node, NodeKind, Tape, TextPart, TextParts},
};
use serde_json::Value;
use siphasher::sip128::{Hasher128, SipHasher13};
use std::{
    hash::{BuildHasher, Hasher, RandomState},
    sync::LazyLock,
};

/// A key for each kind of value, so that the hash of a value of one kind says nothing about another.
static KEYS: LazyLock<[(u64, u64); HashKind::COUNT]> = LazyLock::new(|| {
    // The only source of random bytes in the standard library: its keys are those of the operating system.
    let random = RandomState::new();
    std::array::from_fn(|index| (random.hash_one(2 * index), random.hash_one(2 * index + 1)))
});

/// Returns the key of a kind of values in this process.
fn key_of(tag: HashKind) -> (u64, u64) {
    KEYS.get(tag as usize).copied().unwrap_or_default()
}

/// Returns the key of this process for names of members.
pub(crate) fn process_key() -> (u64, u64) {
    key_of(HashKind::Name)
}

/// What is hashed.
#[derive(Clone, Copy)]
enum HashKind {
    Null,
    False,
    True,
    /// A number of at most 18 digits.
    Number,
    /// A number of more digits.
    LongNumber,
    String,
    Array,
    Object,
    Member,
    Name,
}

impl HashKind {
    const COUNT: usize = 10;
}

#[inline]
fn begin(tag: HashKind) -> SipHasher13 {
    let (first, second) = key_of(tag);
    SipHasher13::new_with_keys(first, second)
}

#[inline]
fn finish(hasher: &SipHasher13) -> u128 {
    let hash = hasher.finish128();
    (u128::from(hash.h1) << 64) | u128::from(hash.h2)
}

/// Digits that are hashed as an integer.
const MAX_SHORT_DIGITS: usize = 18;

/// Returns the sign and the place of the decimal point as one word.
fn number_prefix(is_negative: bool, magnitude: i64) -> [u8; 8] {
    ((magnitude << 1) | i64::from(is_negative)).to_le_bytes()
}

/// Begins the hash of a number of more than 18 digits; its digits follow, without the decimal point.
fn begin_long_number(decimal: &Decimal<'_>) -> SipHasher13 {
    let mut hasher = begin(HashKind::LongNumber);
    hasher.write(&number_prefix(decimal.is_negative(), decimal.magnitude()));
    hasher
}

/// Writes a part of a number's digits.
fn write_digits(hasher: &mut SipHasher13, digits: &[u8]) {
    let point = memchr::memchr(b'.', digits).unwrap_or(digits.len());
    hasher.write(digits.get(..point).unwrap_or_default());
    hasher.write(digits.get(point + 1..).unwrap_or_default());
}

/// Hashes a number of at most 18 digits.
fn hash_short_number(decimal: &Decimal<'_>) -> u128 {
    let digits = decimal.digits().fold(0_u64, |value, digit| value.wrapping_mul(10) + u64::from(digit - b'0'));
    hash_digits(decimal.is_negative(), decimal.magnitude(), digits)
}

/// Hashes 0.DIGITS × 10^magnitude, whose last digit is not 0.
fn hash_digits(is_negative: bool, magnitude: i64, digits: u64) -> u128 {
    let mut hasher = begin(HashKind::Number);
    hasher.write(&number_prefix(is_negative, magnitude));
    hasher.write(&digits.to_le_bytes());
    finish(&hasher)
}

/// Hashes an integer of at most 18 digits, as [`hash_short_number`] does.
fn hash_integer(integer: i64) -> u128 {
    let mut digits = integer.unsigned_abs();
    let magnitude = digits.checked_ilog10().map_or(0, |log| i64::from(log) + 1);
    while digits != 0 && digits.is_multiple_of(10) {
        digits /= 10;
    }
    hash_digits(integer < 0, magnitude, digits)
}

fn hash_number(text: &str) -> u128 {
    if let Some(integer) = read_short_integer(text) {
        return hash_integer(integer);
    }
    let decimal = Decimal::parse(text);
    if decimal.digit_count() <= MAX_SHORT_DIGITS {
        return hash_short_number(&decimal);
    }
    let mut hasher = begin_long_number(&decimal);
    write_digits(&mut hasher, text.as_bytes().get(decimal.significant_range()).unwrap_or_default());
    finish(&hasher)
}

/// Writes the decoded form of a string's content, or a part of it.
fn write_text(hasher: &mut SipHasher13, raw: &str) {
    for part in TextParts::new(raw) {
        let mut buffer = [0; 4];
        match part {
            TextPart::Plain(plain) => hasher.write(plain.as_bytes()),
            TextPart::Escaped(character) => hasher.write(character.encode_utf8(&mut buffer).as_bytes()),
        }
    }
}

fn hash_text(text: &[u8]) -> u128 {
    let mut hasher = begin(HashKind::String);
    hasher.write(text);
    finish(&hasher)
}

fn hash_member(name: u128, value: u128) -> u128 {
    let mut hasher = begin(HashKind::Member);
    hasher.write(&name.to_le_bytes());
    hasher.write(&value.to_le_bytes());
    finish(&hasher)
}

/// Ends an array, into which the hashes of its items were written.
fn finish_array(mut hasher: SipHasher13, count: u64) -> u128 {
    hasher.write(&count.to_le_bytes());
    finish(&hasher)
}

fn finish_object(sum: u128, count: u64) -> u128 {
    let mut hasher = begin(HashKind::Object);
    hasher.write(&sum.to_le_bytes());
    hasher.write(&count.to_le_bytes());
    finish(&hasher)
}

/// Returns the hash of a value of a schema. It goes as deep as the value, which its parser has bounded.
pub fn hash_value(value: &Value) -> u128 {
    match value {
        Value::Null => finish(&begin(HashKind::Null)),
        Value::Bool(false) => finish(&begin(HashKind::False)),
        Value::Bool(true) => finish(&begin(HashKind::True)),
        Value::Number(number) => hash_number(&number.to_string()),
        Value::String(text) => hash_text(text.as_bytes()),
        Value::Array(items) => {
            let mut hasher = begin(HashKind::Array);
            for item in items {
                hasher.write(&hash_value(item).to_le_bytes());
            }
            finish_array(hasher, items.len() as u64)
        }
        Value::Object(members) => {
            let member = |(name, value): (&String, &Value)| hash_member(hash_text(name.as_bytes()), hash_value(value));
            let sum = members.iter().map(member).fold(0_u128, u128::wrapping_add);
            finish_object(sum, members.len() as u64)
        }
    }
}

/// Returns the hash of a scalar or a member's name; `None` for an array or object. It takes time for its whole text:
/// [`NodeHasher`] can be suspended.
#[inline]
pub fn hash_scalar(tape: &Tape, node: Node) -> Option<u128> {
    Some(match tape.kind(node) {
        NodeKind::Null => finish(&begin(HashKind::Null)),
        NodeKind::False => finish(&begin(HashKind::False)),
        NodeKind::True => finish(&begin(HashKind::True)),
        NodeKind::Integer | NodeKind::Number => hash_number(tape.raw(node)),
        NodeKind::String => hash_text(tape.raw_bytes(node)),
        NodeKind::EscapedString => {
            let mut hasher = begin(HashKind::String);
            write_text(&mut hasher, tape.raw(node));
            finish(&hasher)
        }
        NodeKind::Array | NodeKind::Object => return None,
    })
}

/// Returns the hash of a value in one go, for values that are known to be small.
pub fn hash_node(tape: &Tape, node: Node) -> u128 {
    let mut hasher = NodeHasher::start(node);
    loop {
        if let std::task::Poll::Ready(hash) = hasher.resume(tape, &mut crate::fuel::Fuel::new(u64::MAX)) {
            return hash;
        }
    }
}
