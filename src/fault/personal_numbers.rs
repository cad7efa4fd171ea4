//! Card and telephone numbers in error texts (R133). A number is recognised by its form: a card number by its length and
//! check digit (ISO/IEC 7812), a telephone number by its prefix or its groups.

use std::{borrow::Cow, ops::Range};

const REDACTED: &str = "[redacted]";

/// Returns `text` with its card and telephone numbers replaced by `[redacted]`; borrows `text` if it has none.
pub fn redact_personal_numbers(text: &str) -> Cow<'_, str> {
    let (mut redacted, mut position, mut search_from) = (String::new(), 0, 0);
    while let Some(number) = find_number(text, search_from) {
        let candidate = text.get(number.clone()).unwrap_or_default();
        if is_card_number(candidate) || is_telephone_number(candidate) {
            redacted.push_str(text.get(position..number.start).unwrap_or_default());
            redacted.push_str(REDACTED);
            position = number.end;
        }
        search_from = number.end;
    }
    if position == 0 {
        return Cow::Borrowed(text);
    }
    redacted.push_str(text.get(position..).unwrap_or_default());
    Cow::Owned(redacted)
}

/// Finds the next sequence of digits with at most two separators between them, which no letter touches.
fn find_number(text: &str, search_from: usize) -> Option<Range<usize>> {
    let bytes = text.as_bytes();
    let mut start = search_from;
    loop {
        start += bytes.get(start..)?.iter().position(u8::is_ascii_digit)?;
        let mut end = start + 1;
        let mut separators = 0;
        for (at, byte) in bytes.iter().enumerate().skip(start + 1) {
            match byte {
                b'0'..=b'9' => (end, separators) = (at + 1, 0),
                b' ' | b'-' | b'.' | b'(' | b')' | b'/' if separators < 2 => separators += 1,
                _ => break,
            }
        }
        let is_word = |byte: Option<&u8>| byte.is_some_and(|byte| byte.is_ascii_alphanumeric() || *byte == b'_');
        let before = start.checked_sub(1);
        if !is_word(before.and_then(|at| bytes.get(at))) && !is_word(bytes.get(end)) {
            // The prefix of a telephone number belongs to it.
            let prefix = bytes.get(..start)?.iter().rev().take_while(|byte| matches!(byte, b'+' | b'(')).count();
            return Some(start - prefix..end);
        }
        start = end;
    }
}

fn digits(text: &str) -> impl DoubleEndedIterator<Item = u32> + '_ {
    text.chars().filter_map(|c| c.to_digit(10))
}

/// 13 to 19 digits in groups, with a valid check digit.
fn is_card_number(text: &str) -> bool {
    let has_card_form = text.bytes().all(|byte| byte.is_ascii_digit() || byte == b' ' || byte == b'-');
    let count = digits(text).count();
    let checksum: u32 = digits(text)
        .rev()
        .enumerate()
        .map(|(at, digit)| if at % 2 == 0 { digit } else { digit * 2 / 10 + digit * 2 % 10 })
        .sum();
    has_card_form && (13..=19).contains(&count) && checksum.is_multiple_of(10) && digits(text).any(|digit| digit > 0)
}

/// A number with `+`, with an area code in parentheses, with a leading zero and groups, or in groups of 3, 3 and 4.
fn is_telephone_number(text: &str) -> bool {
    let count = digits(text).count();
    if !(7..=15).contains(&count) {
        return false;
    }
    let groups: Vec<usize> =
        text.split(|c: char| !c.is_ascii_digit()).map(str::len).filter(|length| *length > 0).collect();
    let is_grouped = text.bytes().any(|byte| matches!(byte, b' ' | b'-' | b'/')) && !text.contains('.');
    text.starts_with('+')
        || (text.starts_with('(') && count >= 9)
        || (text.starts_with('0') && is_grouped && (9..=13).contains(&count))
        || (groups == [3, 3, 4] && !text.contains(' '))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r133_card_and_telephone_numbers_are_redacted() {
        for number in [
            "4111 1111 1111 1111",
            "4111111111111111",
            "5500-0000-0000-0004",
            "340000000000009",
            "+49 30 1234567",
            "+14155552671",
            "(030) 1234 5678",
            "0171-2345678",
            "030/123456789",
            "415-555-2671",
            "415.555.2671",
        ] {
            let text = format!("no account for {number}, try again");
            assert_eq!(redact_personal_numbers(&text), "no account for [redacted], try again", "{text}");
        }
    }

    #[test]
    fn r133_other_numbers_stay() {
        for text in [
            "This model's maximum context length is 8192 tokens",
            "4111 1111 1111 1112 has a wrong check digit",
            "between 2026-11-23 and 2027-01-01",
            "10.0.0.7 refused",
            "expected 1000000000 items (0.5 to 100)",
            "order A4111111111111111",
            "id 0171_2345678",
            "",
            "1",
        ] {
            assert!(matches!(redact_personal_numbers(text), Cow::Borrowed(_)), "{}", redact_personal_numbers(text));
        }
    }
}
