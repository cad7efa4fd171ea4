//! Decimal numbers of any size, compared by value. An exponent is never expanded, and every function takes time linear in
//! the length of the text: about 1 ns a byte to compare, 2 ns to divide.

mod decimal;
mod divisor;
#[cfg(test)]
mod tests;

pub use decimal::Decimal;
pub use divisor::Divisor;

use serde_json::Number;
use std::cmp::Ordering;

/// Bytes of a number's text that are compared, hashed or divided for one unit of fuel.
pub const BYTES_PER_UNIT: u64 = 4;

/// Returns the units of fuel for one operation with a number's text.
pub fn cost(text: &str) -> u64 {
    2 + text.len() as u64 / BYTES_PER_UNIT
}

/// Returns whether a number is an integer by its value: `1.0` and `1e3` are.
pub fn is_integer(text: &str) -> bool {
    read_short_integer(text).is_some() || Decimal::parse(text).is_integer()
}

/// Compares two numbers by value.
pub fn compare(first: &str, second: &str) -> Ordering {
    match (read_short_integer(first), read_short_integer(second)) {
        (Some(first), Some(second)) => first.cmp(&second),
        _ => Decimal::parse(first).cmp(&Decimal::parse(second)),
    }
}

/// Maximum length of a text that is surely in the range of an `i64`: 18 digits.
const MAX_SHORT_BYTES: usize = 18;

/// Reads an integer of at most 18 bytes without fraction and exponent.
#[inline]
pub(crate) fn read_short_integer(text: &str) -> Option<i64> {
    let bytes = text.as_bytes();
    let (is_negative, digits) = match bytes.split_first() {
        Some((b'-', digits)) => (true, digits),
        _ => (false, bytes),
    };
    if bytes.len() > MAX_SHORT_BYTES || digits.is_empty() {
        return None;
    }
    let mut value = 0_i64;
    for byte in digits {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        value = value * 10 + i64::from(digit);
    }
    Some(if is_negative { -value } else { value })
}

/// The number of a schema's keyword, such as `minimum`.
#[derive(Clone, Debug)]
pub struct Bound {
    text: Box<str>,
    integer: Option<i64>,
}

impl Bound {
    /// Creates a bound. A number that is a double counts as the shortest decimal that stands for this double.
    pub fn new(number: &Number) -> Self {
        Self::from_text(&number.to_string())
    }

    /// Creates a bound of exactly the number that a text has.
    pub fn from_text(text: &str) -> Self {
        Self { text: text.into(), integer: read_short_integer(text).or_else(|| Decimal::parse(text).to_i64()) }
    }

    /// Compares a number with the bound: `Less` if the number is less.
    #[inline]
    pub fn compare_text(&self, number_text: &str) -> Ordering {
        match (self.integer, read_short_integer(number_text)) {
            (Some(bound), Some(number)) => number.cmp(&bound),
            _ => Decimal::parse(number_text).cmp(&Decimal::parse(&self.text)),
        }
    }

    /// Returns the text of the bound.
    pub fn text(&self) -> &str {
        &self.text
    }
}
