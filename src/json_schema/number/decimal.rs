//! A decimal number that borrows its digits from the text.

use std::cmp::Ordering;

/// Largest exponent that is kept; larger ones count as this one.
const MAX_EXPONENT: i64 = 1 << 62;

/// A number: a sign, and 0.DIGITS × 10^magnitude, where the first and the last digit are not 0. Zero has no digits.
#[derive(Clone, Copy, Debug)]
pub struct Decimal<'a> {
    is_negative: bool,
    /// From the first digit that is not 0 to the last one; the decimal point can be in between.
    significant: &'a [u8],
    has_point: bool,
    magnitude: i64,
    /// Offset of `significant` in the text.
    start: usize,
}

impl<'a> Decimal<'a> {
    /// Reads a number that follows the grammar of JSON; another text gives some number. Nothing is allocated.
    pub fn parse(text: &'a str) -> Self {
        let bytes = text.as_bytes();
        let is_negative = bytes.first() == Some(&b'-');
        let begin = usize::from(is_negative);
        let mantissa_end = memchr::memchr2(b'e', b'E', bytes).unwrap_or(bytes.len());
        let exponent = read_exponent(bytes.get(mantissa_end + 1..).unwrap_or_default());
        let mantissa = bytes.get(..mantissa_end).unwrap_or_default();
        let point = memchr::memchr(b'.', mantissa).unwrap_or(mantissa_end);
        // The offset of the first digit, over the point if there are zeros only before it.
        let mut start = begin + count_zeros(mantissa.get(begin..point).unwrap_or_default());
        if start == point {
            let fraction = mantissa.get(point + 1..).unwrap_or_default();
            start = point + 1 + count_zeros(fraction);
        }
        let mut significant = mantissa.get(start..).unwrap_or_default();
        significant = trim_zeros(significant);
        if let Some((b'.', integer)) = significant.split_last() {
            significant = trim_zeros(integer);
        }
        if significant.is_empty() {
            return Self { is_negative: false, significant, has_point: false, magnitude: 0, start: 0 };
        }
        let places = if start < point {
            (point - start) as i64
        } else {
            // Zeros after the point.
            -((start - point - 1) as i64)
        };
        Self {
            is_negative,
            significant,
            has_point: (start..start + significant.len()).contains(&point),
            magnitude: places.saturating_add(exponent),
            start,
        }
    }

    /// Returns whether the number is less than 0.
    pub fn is_negative(&self) -> bool {
        self.is_negative
    }

    /// Returns whether the number is 0.
    pub fn is_zero(&self) -> bool {
        self.significant.is_empty()
    }

    /// Returns the number of digits without zeros at the beginning and the end.
    pub fn digit_count(&self) -> usize {
        self.significant.len() - usize::from(self.has_point)
    }

    /// Returns the place of the decimal point before the first digit: 0.DIGITS × 10^magnitude.
    pub fn magnitude(&self) -> i64 {
        self.magnitude
    }

    /// Returns the exponent of the last digit: the number is DIGITS × 10^exponent.
    pub fn exponent(&self) -> i64 {
        self.magnitude.saturating_sub(self.digit_count() as i64)
    }

    /// Returns whether the number is an integer.
    pub fn is_integer(&self) -> bool {
        self.exponent() >= 0
    }

    /// Returns the digits as ASCII, without zeros at the beginning and the end.
    pub fn digits(&self) -> impl Iterator<Item = u8> + use<'a> {
        self.significant.iter().copied().filter(u8::is_ascii_digit)
    }

    /// Returns where in the text the digits are; a decimal point can be among them.
    pub(crate) fn significant_range(&self) -> std::ops::Range<usize> {
        self.start..self.start + self.significant.len()
    }

    /// Returns the number if it is an integer within the range.
    pub(super) fn to_i64(self) -> Option<i64> {
        if !self.is_integer() || self.magnitude > 19 {
            return None;
        }
        let mut value = 0_i128;
        for digit in self.digits() {
            value = value * 10 + i128::from(digit - b'0');
        }
        let exponent = u32::try_from(self.exponent()).ok()?;
        value = value.checked_mul(10_i128.checked_pow(exponent)?)?;
        i64::try_from(if self.is_negative { -value } else { value }).ok()
    }

    fn compare_size(&self, other: &Self) -> Ordering {
        match (self.is_zero(), other.is_zero()) {
            (true, true) => Ordering::Equal,
            (true, false) => Ordering::Less,
            (false, true) => Ordering::Greater,
            // With equal magnitudes digits compare like letters: a number that has more of them is larger.
            (false, false) => self.magnitude.cmp(&other.magnitude).then_with(|| self.digits().cmp(other.digits())),
        }
    }
}

impl Ord for Decimal<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        match (self.is_negative, other.is_negative) {
            (false, false) => self.compare_size(other),
            (true, true) => other.compare_size(self),
            (false, true) => Ordering::Greater,
            (true, false) => Ordering::Less,
        }
    }
}

impl PartialOrd for Decimal<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Decimal<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Decimal<'_> {}

fn read_exponent(text: &[u8]) -> i64 {
    let (is_negative, digits) = match text.split_first() {
        Some((b'-', digits)) => (true, digits),
        Some((b'+', digits)) => (false, digits),
        _ => (false, text),
    };
    let digits = digits.get(count_zeros(digits)..).unwrap_or_default();
    // 19 digits are more than the maximum.
    let value = digits
        .iter()
        .take(19)
        .fold(0_i64, |value, digit| value.saturating_mul(10).saturating_add(i64::from(digit.wrapping_sub(b'0'))))
        .min(MAX_EXPONENT);
    if is_negative { -value } else { value }
}

/// Returns the number of zeros at the beginning.
fn count_zeros(digits: &[u8]) -> usize {
    const BLOCK: usize = 32;
    let is_zero = |byte: &u8| *byte == b'0';
    // Blocks first: the compiler makes one comparison of each.
    let blocks = digits.chunks_exact(BLOCK).take_while(|block| block.iter().all(is_zero)).count();
    let rest = digits.get(blocks * BLOCK..).unwrap_or_default();
    blocks * BLOCK + rest.iter().take_while(|byte| is_zero(byte)).count()
}

/// Returns the digits without the zeros at the end.
fn trim_zeros(digits: &[u8]) -> &[u8] {
    const BLOCK: usize = 32;
    let is_zero = |byte: &u8| *byte == b'0';
    let blocks = digits.rchunks_exact(BLOCK).take_while(|block| block.iter().all(is_zero)).count();
    let rest = digits.get(..digits.len() - blocks * BLOCK).unwrap_or_default();
    let zeros = rest.iter().rev().take_while(|byte| is_zero(byte)).count();
    rest.get(..rest.len() - zeros).unwrap_or_default()
}
