//! Dates, times and durations (RFC 3339).

use super::Scanner;

/// The value of a character that is an ASCII digit.
fn digit(character: char) -> Option<u16> {
    character.to_digit(10).and_then(|digit| u16::try_from(digit).ok())
}

/// Appends a digit to a number of at most four digits; returns whether the character was a digit.
fn append_digit(number: &mut u16, character: char) -> bool {
    let Some(digit) = digit(character) else { return false };
    *number = number.saturating_mul(10).saturating_add(digit);
    true
}

/// Returns whether `text` is a `full-date`.
pub(super) fn is_date(text: &str) -> bool {
    let mut scanner = DateScanner::default();
    text.chars().all(|character| scanner.read(character)) && scanner.is_complete()
}

/// A scanner of `full-date`: `YYYY-MM-DD`.
#[derive(Clone, Debug, Default)]
struct DateScanner {
    length: u8,
    year: u16,
    month: u16,
    day: u16,
}

impl DateScanner {
    fn days_of_month(&self) -> u16 {
        let is_leap_year =
            self.year.is_multiple_of(4) && (!self.year.is_multiple_of(100) || self.year.is_multiple_of(400));
        match self.month {
            1 | 3 | 5 | 7 | 8 | 10 | 12 => 31,
            4 | 6 | 9 | 11 => 30,
            2 if is_leap_year => 29,
            2 => 28,
            _ => 0,
        }
    }
}

impl Scanner for DateScanner {
    fn read(&mut self, character: char) -> bool {
        let position = self.length;
        self.length = self.length.saturating_add(1);
        match position {
            0..=3 => append_digit(&mut self.year, character),
            4 | 7 => character == '-',
            5 | 6 => append_digit(&mut self.month, character),
            8 | 9 => append_digit(&mut self.day, character),
            _ => false,
        }
    }

    fn is_complete(&self) -> bool {
        self.length == 10 && (1..=self.days_of_month()).contains(&self.day)
    }
}

/// A scanner of `full-time`: `HH:MM:SS`, a fraction of a second, and the offset from UTC.
#[derive(Clone, Debug, Default)]
pub(super) struct TimeScanner {
    part: TimePart,
    length: u8,
    hour: u16,
    minute: u16,
    second: u16,
    offset_hour: u16,
    offset_minute: u16,
    is_offset_negative: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum TimePart {
    #[default]
    PartialTime,
    /// The point before the fraction.
    Point,
    Fraction,
    Offset,
    Utc,
}

impl TimeScanner {
    fn read_offset_start(&mut self, character: char) -> bool {
        self.length = 0;
        self.is_offset_negative = character == '-';
        self.part = if matches!(character, 'Z' | 'z') { TimePart::Utc } else { TimePart::Offset };
        matches!(character, 'Z' | 'z' | '+' | '-')
    }

    /// Returns whether the second exists. The 60th one does at the end of a day of UTC (RFC 3339, section 5.7).
    fn is_second_valid(&self) -> bool {
        const MINUTES_OF_DAY: i32 = 24 * 60;
        if self.second < 60 {
            return true;
        }
        let offset = i32::from(self.offset_hour) * 60 + i32::from(self.offset_minute);
        let local = i32::from(self.hour) * 60 + i32::from(self.minute);
        let utc = if self.is_offset_negative { local + offset } else { local - offset };
        self.second == 60 && utc.rem_euclid(MINUTES_OF_DAY) == MINUTES_OF_DAY - 1
    }
}

impl Scanner for TimeScanner {
    fn read(&mut self, character: char) -> bool {
        let position = self.length;
        self.length = self.length.saturating_add(1);
        match self.part {
            TimePart::PartialTime => match position {
                0 | 1 => append_digit(&mut self.hour, character),
                3 | 4 => append_digit(&mut self.minute, character),
                6 | 7 => append_digit(&mut self.second, character),
                2 | 5 => character == ':',
                _ if character == '.' => {
                    self.part = TimePart::Point;
                    true
                }
                _ => self.read_offset_start(character),
            },
            TimePart::Point => {
                self.part = TimePart::Fraction;
                digit(character).is_some()
            }
            TimePart::Fraction => digit(character).is_some() || self.read_offset_start(character),
            TimePart::Offset => match position {
                0 | 1 => append_digit(&mut self.offset_hour, character),
                2 => character == ':',
                3 | 4 => append_digit(&mut self.offset_minute, character),
                _ => false,
            },
            TimePart::Utc => false,
        }
    }

    fn is_complete(&self) -> bool {
        let has_end = self.part == TimePart::Utc || (self.part == TimePart::Offset && self.length == 5);
        let is_time_valid = self.hour < 24 && self.minute < 60 && self.is_second_valid();
        has_end && is_time_valid && self.offset_hour < 24 && self.offset_minute < 60
    }
}

/// A scanner of `date-time`.
#[derive(Clone, Debug, Default)]
pub(super) struct DateTimeScanner {
    date: DateScanner,
    is_date_read: bool,
    time: TimeScanner,
}

impl Scanner for DateTimeScanner {
    fn read(&mut self, character: char) -> bool {
        if self.is_date_read {
            return self.time.read(character);
        }
        if matches!(character, 'T' | 't') {
            self.is_date_read = true;
            return self.date.is_complete();
        }
        self.date.read(character)
    }

    fn is_complete(&self) -> bool {
        self.is_date_read && self.time.is_complete()
    }
}

/// A scanner of `duration` (RFC 3339, appendix A): units follow each other without a gap, and weeks stand alone.
#[derive(Clone, Debug, Default)]
pub(super) struct DurationScanner {
    is_started: bool,
    is_time: bool,
    has_digits: bool,
    /// The unit before, of the same part.
    unit: Option<char>,
}

impl Scanner for DurationScanner {
    fn read(&mut self, character: char) -> bool {
        if !self.is_started {
            self.is_started = true;
            return character == 'P';
        }
        if digit(character).is_some() {
            self.has_digits = true;
            return true;
        }
        if character == 'T' {
            let can_start_time = !self.is_time && !self.has_digits && self.unit != Some('W');
            self.is_time = true;
            self.unit = None;
            return can_start_time;
        }
        let follows = match (self.is_time, self.unit) {
            (false, None) => matches!(character, 'Y' | 'M' | 'W' | 'D'),
            (false, Some('Y')) => character == 'M',
            (false, Some('M')) => character == 'D',
            (true, None) => matches!(character, 'H' | 'M' | 'S'),
            (true, Some('H')) => character == 'M',
            (true, Some('M')) => character == 'S',
            _ => false,
        };
        let is_unit_valid = follows && self.has_digits;
        self.unit = Some(character);
        self.has_digits = false;
        is_unit_valid
    }

    fn is_complete(&self) -> bool {
        self.unit.is_some() && !self.has_digits
    }
}
