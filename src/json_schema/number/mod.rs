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

/// A decimal of at most 18 digits without an exponent: `digits` divided by ten to the power of `places`.
#[derive(Clone, Copy, Debug)]
struct ShortDecimal {
    digits: i64,
    places: u32,
}

impl ShortDecimal {
    #[inline]
    fn read(text: &[u8]) -> Option<Self> {
        let (is_negative, unsigned) = match text.split_first() {
            Some((b'-', unsigned)) => (true, unsigned),
            _ => (false, text),
        };
        if unsigned.is_empty() || unsigned.len() > MAX_SHORT_BYTES {
            return None;
        }
        let (mut digits, mut places, mut has_point) = (0_i64, 0, false);
        for byte in unsigned {
            match byte {
                b'0'..=b'9' => {
                    digits = digits * 10 + i64::from(byte - b'0');
                    places += u32::from(has_point);
                }
                b'.' => has_point = true,
                _ => return None,
            }
        }
        Some(Self { digits: if is_negative { -digits } else { digits }, places })
    }

    #[inline]
    fn compare(self, other: Self) -> Ordering {
        if self.places == other.places {
            return self.digits.cmp(&other.digits);
        }
        // Eighteen digits and eighteen places are less than an `i128` holds.
        let places = self.places.max(other.places);
        let scaled = |number: Self| i128::from(number.digits) * i128::from(10_i64.pow(places - number.places));
        scaled(self).cmp(&scaled(other))
    }
}

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
    short: Option<ShortDecimal>,
}

impl Bound {
    /// Creates a bound. A number that is a double counts as the shortest decimal that stands for this double.
    pub fn new(number: &Number) -> Self {
        Self::from_text(&number.to_string())
    }

    /// Creates a bound of exactly the number that a text has.
    pub fn from_text(text: &str) -> Self {
        let integer = Decimal::parse(text).to_i64().filter(|integer| integer.unsigned_abs() < 10_u64.pow(18));
        let integer = integer.map(|digits| ShortDecimal { digits, places: 0 });
        Self { text: text.into(), short: ShortDecimal::read(text.as_bytes()).or(integer) }
    }

    /// Compares a number with the bound: `Less` if the number is less.
    pub fn compare_text(&self, number_text: &str) -> Ordering {
        self.compare_short(number_text.as_bytes())
            .unwrap_or_else(|| Decimal::parse(number_text).cmp(&Decimal::parse(&self.text)))
    }

    /// As [`compare_text`](Self::compare_text), if both numbers are short decimals without an exponent.
    #[inline]
    pub(crate) fn compare_short(&self, number_text: &[u8]) -> Option<Ordering> {
        Some(ShortDecimal::read(number_text)?.compare(self.short?))
    }

    /// Returns the text of the bound.
    pub fn text(&self) -> &str {
        &self.text
    }
}
