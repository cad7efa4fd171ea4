//! The divisor of `multipleOf`.

use super::{Decimal, read_short_integer};
use serde_json::Number;

/// Digits that are divided at once.
const CHUNK_DIGITS: usize = 18;

/// A divisor: mantissa × 10^exponent, and the mantissa is not a multiple of 10.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Divisor {
    mantissa: u64,
    exponent: i64,
    /// The divisor, if it is an integer.
    integer: Option<i64>,
}

impl Divisor {
    /// Creates a divisor; `None` if the number is 0 or its digits have more than 64 bits. A number that is a double counts
    /// as the shortest decimal that stands for this double. The sign does not matter.
    pub fn new(number: &Number) -> Option<Self> {
        Self::from_text(&number.to_string())
    }

    /// Creates a divisor of exactly the number that a text has.
    pub fn from_text(text: &str) -> Option<Self> {
        let decimal = Decimal::parse(text);
        let mut mantissa = 0_u64;
        for digit in decimal.digits() {
            mantissa = mantissa.checked_mul(10)?.checked_add(u64::from(digit - b'0'))?;
        }
        let integer = decimal.to_i64().map(i64::saturating_abs);
        (mantissa != 0).then(|| Self { mantissa, exponent: decimal.exponent(), integer })
    }

    /// Returns whether a number is a multiple of the divisor. Its digits are divided as they stand; a power of ten is
    /// taken modulo the divisor.
    pub fn divides(&self, number_text: &str) -> bool {
        if let (Some(divisor), Some(number)) = (self.integer, read_short_integer(number_text)) {
            return number.checked_rem(divisor) == Some(0);
        }
        let decimal = Decimal::parse(number_text);
        if decimal.is_zero() {
            return true;
        }
        // The digits of the number are no multiple of ten: a factor of ten in the divisor does not divide them.
        let Ok(shift) = u64::try_from(decimal.exponent().saturating_sub(self.exponent)) else { return false };
        let modulus = u128::from(self.mantissa);
        let remainder = digits_modulo(&decimal, modulus);
        (remainder * power_of_ten_modulo(shift, modulus)).is_multiple_of(modulus)
    }
}

/// Returns the remainder of the digits, read as an integer.
fn digits_modulo(decimal: &Decimal<'_>, modulus: u128) -> u128 {
    let (mut remainder, mut chunk, mut scale, mut count) = (0_u128, 0_u64, 1_u64, 0);
    for digit in decimal.digits() {
        chunk = chunk * 10 + u64::from(digit - b'0');
        scale *= 10;
        count += 1;
        if count == CHUNK_DIGITS {
            // Both factors have at most 64 bits.
            remainder = (remainder * u128::from(scale) + u128::from(chunk)) % modulus;
            (chunk, scale, count) = (0, 1, 0);
        }
    }
    (remainder * u128::from(scale) + u128::from(chunk)) % modulus
}

/// Returns 10^exponent modulo a number of at most 64 bits.
fn power_of_ten_modulo(mut exponent: u64, modulus: u128) -> u128 {
    let (mut result, mut square) = (1 % modulus, 10 % modulus);
    while exponent > 0 {
        if exponent % 2 == 1 {
            result = result * square % modulus;
        }
        square = square * square % modulus;
        exponent /= 2;
    }
    result
}
