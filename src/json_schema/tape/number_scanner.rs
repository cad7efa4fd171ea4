//! Checks the grammar of a number, byte by byte, and whether a double can hold its size.

use super::error::SyntaxError;

/// The decimal places of the largest double: it is less than 10^309.
const MAX_MAGNITUDE: i64 = 309;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NumberState {
    Start,
    Minus,
    Zero,
    Integer,
    Point,
    Fraction,
    ExponentLetter,
    ExponentSign,
    Exponent,
}

/// A number that is being scanned.
#[derive(Clone, Copy, Debug)]
pub(super) struct NumberScanner {
    pub(super) start: usize,
    state: NumberState,
    /// Offset of the first digit that is not 0, if there is one.
    first_significant: Option<u32>,
    /// Offset after the integer part.
    integer_end: usize,
    exponent: i64,
    is_exponent_negative: bool,
}

/// Where a scan of a number stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NumberScan {
    /// At the end of the number, which has this offset.
    End(usize),
    /// After the bytes that may be read now.
    Limit,
    /// At an error, with the offset after the bytes that are wrong.
    Error(SyntaxError, usize),
}

impl NumberScanner {
    pub(super) fn new(start: usize) -> Self {
        Self {
            start,
            state: NumberState::Start,
            first_significant: None,
            integer_end: start,
            exponent: 0,
            is_exponent_negative: false,
        }
    }

    /// Returns whether the text has neither a fraction nor an exponent.
    pub(super) fn is_integer(&self) -> bool {
        matches!(self.state, NumberState::Zero | NumberState::Integer)
    }

    /// Goes on from `at` to the end of the number or to `limit`.
    pub(super) fn scan(&mut self, text: &[u8], at: &mut usize, limit: usize) -> NumberScan {
        use NumberState as State;
        let window = text.get(..limit).unwrap_or(text);
        while let Some(byte) = window.get(*at) {
            self.state = match (self.state, byte) {
                (State::Integer, b'0'..=b'9') => State::Integer,
                (State::Fraction | State::Point, b'0'..=b'9') => {
                    if *byte != b'0' && self.first_significant.is_none() {
                        self.first_significant = u32::try_from(*at).ok();
                    }
                    State::Fraction
                }
                (State::Start, b'-') => State::Minus,
                (State::Start | State::Minus, b'0') => State::Zero,
                (State::Start | State::Minus, b'1'..=b'9') => {
                    self.first_significant = u32::try_from(*at).ok();
                    State::Integer
                }
                (State::Zero | State::Integer, b'.') => {
                    self.integer_end = *at;
                    State::Point
                }
                (State::Zero | State::Integer | State::Fraction, b'e' | b'E') => {
                    if self.state != State::Fraction {
                        self.integer_end = *at;
                    }
                    State::ExponentLetter
                }
                (State::ExponentLetter, b'+') => State::ExponentSign,
                (State::ExponentLetter, b'-') => {
                    self.is_exponent_negative = true;
                    State::ExponentSign
                }
                (State::ExponentLetter | State::ExponentSign | State::Exponent, b'0'..=b'9') => {
                    self.exponent = self.exponent.saturating_mul(10).saturating_add(i64::from(byte - b'0'));
                    State::Exponent
                }
                (State::Integer | State::Fraction | State::Exponent, _) => return self.finish(text, *at),
                (State::Zero, b'0'..=b'9') => return NumberScan::Error(SyntaxError::InvalidNumber, *at + 1),
                (State::Zero, _) => return self.finish(text, *at),
                _ => return NumberScan::Error(SyntaxError::InvalidNumber, *at + 1),
            };
            *at += 1;
        }
        NumberScan::Limit
    }

    /// Ends the number at the end of the text.
    pub(super) fn finish(&mut self, text: &[u8], end: usize) -> NumberScan {
        match self.state {
            NumberState::Zero | NumberState::Integer => self.integer_end = end,
            NumberState::Fraction | NumberState::Exponent => {}
            _ => return NumberScan::Error(SyntaxError::EndInValue, end),
        }
        if self.is_out_of_range(text, end) {
            return NumberScan::Error(SyntaxError::NumberOutOfRange, end);
        }
        NumberScan::End(end)
    }

    fn is_out_of_range(&self, text: &[u8], end: usize) -> bool {
        let Some(first) = self.first_significant.map(|first| first as usize) else { return false };
        // The value is 0.DIGITS × 10^magnitude, and the first digit is not 0.
        let places = if first < self.integer_end {
            (self.integer_end - first) as i64
        } else {
            (self.integer_end as i64 + 1).saturating_sub(first as i64)
        };
        let exponent = if self.is_exponent_negative { -self.exponent } else { self.exponent };
        let magnitude = places.saturating_add(exponent);
        if magnitude != MAX_MAGNITUDE {
            return magnitude > MAX_MAGNITUDE;
        }
        // The largest double has 17 digits that matter; 40 decide all but texts within 10^-40 of the limit.
        let digits = text.get(first..end).unwrap_or_default().iter().take(41);
        let digits = digits.take_while(|byte| !matches!(byte, b'e' | b'E')).filter(|byte| **byte != b'.');
        let mut leading = String::from("0.");
        leading.extend(digits.map(|byte| char::from(*byte)));
        leading.push_str("e309");
        leading.parse::<f64>().is_ok_and(f64::is_infinite)
    }
}
