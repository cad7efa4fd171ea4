//! Card, telephone and social security numbers in error texts (R133). A number is recognised by its form: a card number
//! by its length and check digit (ISO/IEC 7812), a telephone number by its prefix or its groups, a social security number
//! of the USA by its groups.

use std::{borrow::Cow, ops::Range};

const REDACTED: &str = "[redacted]";
/// A card number is written in at most this many groups.
const MAX_CARD_GROUPS: usize = 5;
const MIN_CARD_GROUP_LEN: usize = 3;
/// The digits in each group of a social security number.
const SOCIAL_SECURITY_GROUPS: [usize; 3] = [3, 2, 4];
/// The most digits of an area code in parentheses, with the code of its country.
const MAX_AREA_CODE_DIGITS: usize = 6;

/// Returns `text` with its card, telephone and social security numbers replaced by `[redacted]`; borrows `text` if it has none.
pub fn redact_personal_numbers(text: &str) -> Cow<'_, str> {
    let (mut redacted, mut position) = (String::new(), 0);
    for mut run in digit_runs(text) {
        mark_card_numbers(text, &mut run);
        mark_social_security_numbers(text, &mut run);
        // Neighbouring groups of marked numbers, or groups between them.
        for groups in run.chunk_by(|group, next| group.is_marked == next.is_marked) {
            let Some(number) = find_number(text, groups) else { continue };
            redacted.push_str(text.get(position..number.start).unwrap_or_default());
            redacted.push_str(REDACTED);
            position = number.end;
        }
    }
    if position == 0 {
        return Cow::Borrowed(text);
    }
    redacted.push_str(text.get(position..).unwrap_or_default());
    Cow::Owned(redacted)
}

/// Digits that nothing separates, and which no letter touches.
struct DigitGroup {
    range: Range<usize>,
    /// Whether the group belongs to a card number or a social security number.
    is_marked: bool,
}

/// Returns the runs of neighbouring groups, with at most two separators between two groups.
fn digit_runs(text: &str) -> Vec<Vec<DigitGroup>> {
    let bytes = text.as_bytes();
    let is_word = |byte: Option<&u8>| byte.is_some_and(|byte| byte.is_ascii_alphanumeric() || *byte == b'_');
    let is_separator = |byte: &u8| matches!(byte, b' ' | b'-' | b'.' | b'(' | b')' | b'/');
    let mut runs: Vec<Vec<DigitGroup>> = Vec::new();
    let mut position = 0;
    while let Some(rest) = bytes.get(position..) {
        let Some(before) = rest.iter().position(u8::is_ascii_digit) else { break };
        let start = position + before;
        let end = start + rest.iter().skip(before).take_while(|byte| byte.is_ascii_digit()).count();
        position = end;
        if is_word(start.checked_sub(1).and_then(|at| bytes.get(at))) || is_word(bytes.get(end)) {
            continue;
        }
        let group = DigitGroup { range: start..end, is_marked: false };
        let is_next = |run: &&mut Vec<DigitGroup>| {
            let between = run.last().and_then(|last| bytes.get(last.range.end..start)).unwrap_or_default();
            between.len() <= 2 && between.iter().all(is_separator)
        };
        match runs.last_mut().filter(is_next) {
            Some(run) => run.push(group),
            None => runs.push(vec![group]),
        }
    }
    runs
}

/// Marks the groups of card numbers. Other numbers may stand beside one, such as its expiry date.
fn mark_card_numbers(text: &str, run: &mut [DigitGroup]) {
    for first in 0..run.len() {
        for count in 1..=MAX_CARD_GROUPS {
            let Some(groups) = run.get_mut(first..first + count) else { break };
            let is_card = groups.iter().all(|group| group.range.len() >= MIN_CARD_GROUP_LEN)
                && is_card_number(text.get(span(groups)).unwrap_or_default());
            if is_card {
                groups.iter_mut().for_each(|group| group.is_marked = true);
            }
        }
    }
}

/// Marks the groups of social security numbers.
fn mark_social_security_numbers(text: &str, run: &mut [DigitGroup]) {
    for first in 0..run.len() {
        let Some(groups) = run.get_mut(first..first + SOCIAL_SECURITY_GROUPS.len()) else { break };
        let lengths = groups.iter().map(|group| group.range.len());
        if lengths.eq(SOCIAL_SECURITY_GROUPS) && has_social_security_form(text, &span(groups)) {
            groups.iter_mut().for_each(|group| group.is_marked = true);
        }
    }
}

/// Returns whether hyphens or spaces join three groups, and nothing else to them: a longer row is an id or a list.
fn has_social_security_form(text: &str, place: &Range<usize>) -> bool {
    let parts = (text.get(..place.start), text.get(place.clone()), text.get(place.end..));
    let (Some(before), Some(number), Some(after)) = parts else { return false };
    let is_joined_by = |separator: char| {
        let separators = number.bytes().filter(|byte| !byte.is_ascii_digit()).count();
        separators == 2 && number.matches(separator).count() == 2
    };
    let is_digit = |c: char| c.is_ascii_digit();
    let is_in_list = before.strip_suffix(' ').is_some_and(|before| before.ends_with(is_digit))
        || after.strip_prefix(' ').is_some_and(|after| after.starts_with(is_digit));
    let is_in_id = before.ends_with('-') || after.starts_with('-');
    (is_joined_by('-') && !is_in_id) || (is_joined_by(' ') && !is_in_list)
}

/// Returns the place of the marked number or the telephone number that these groups are.
fn find_number(text: &str, groups: &[DigitGroup]) -> Option<Range<usize>> {
    let digits = span(groups);
    if groups.iter().all(|group| group.is_marked) {
        return Some(digits);
    }
    // The prefix of a telephone number belongs to it, but not a parenthesis around it, or around more than it.
    let before = text.get(..digits.start)?;
    let prefix = before.len() - before.trim_end_matches(['+', '(']).len();
    let candidate = text.get(digits.start - prefix..digits.end)?;
    let number = if has_area_code(candidate) { candidate } else { candidate.trim_start_matches('(') };
    is_telephone_number(number).then(|| digits.end - number.len()..digits.end)
}

fn span(groups: &[DigitGroup]) -> Range<usize> {
    let start = groups.first().map_or(0, |group| group.range.start);
    start..groups.last().map_or(start, |group| group.range.end)
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

/// Returns whether the number begins with an area code in parentheses.
fn has_area_code(text: &str) -> bool {
    let area_code = text.strip_prefix('(').and_then(|rest| rest.split_once(')'));
    area_code.is_some_and(|(code, _)| digits(code).count() <= MAX_AREA_CODE_DIGITS)
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
        || (has_area_code(text) && count >= 9)
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
    fn r133_numbers_in_parentheses_and_beside_other_numbers_are_redacted() {
        for (text, expected) in [
            ("no account (4111 1111 1111 1111)", "no account ([redacted])"),
            ("card 4111111111111111 123 refused", "card [redacted] 123 refused"),
            ("card 4111 1111 1111 1111 12/27 refused", "card [redacted] 12/27 refused"),
            ("item 7 4111-1111-1111-1111", "item 7 [redacted]"),
            ("item A7 4111 1111 1111 1111 12a", "item A7 [redacted] 12a"),
            ("4111 1111 1111 1111 5500 0000 0000 0004", "[redacted]"),
            ("4111 1111 1111 1111 (030) 1234 5678", "[redacted] [redacted]"),
            ("ask us (0171 2345678)", "ask us ([redacted])"),
            ("ask us (+49 30 1234567)", "ask us ([redacted])"),
            ("ask us ((030) 1234 5678)", "ask us [redacted])"),
            ("ask us +(49) 30 1234567", "ask us [redacted]"),
        ] {
            assert_eq!(redact_personal_numbers(text), expected, "{text}");
        }
    }

    #[test]
    fn r133_social_security_numbers_are_redacted() {
        for (text, expected) in [
            ("ssn 123-45-6789", "ssn [redacted]"),
            ("ssn:123-45-6789.", "ssn:[redacted]."),
            ("no record (123 45 6789), try again", "no record ([redacted]), try again"),
            ("row 7 123-45-6789 12/27 refused", "row 7 [redacted] 12/27 refused"),
            ("123-45-6789, 4111 1111 1111 1111", "[redacted], [redacted]"),
        ] {
            assert_eq!(redact_personal_numbers(text), expected, "{text}");
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
            "too large (1073741824 bytes)",
            "too large (1073741824) by 5",
            "4111 1111 1111 x1111",
            "on 23-11-2026 and 2026-11-23",
            "version 123.45.6789 is too old",
            "order 123-456-789, 12-345-6789 or 1234-56-789",
            "ticket REQ-123-45-6789 and 123-45-6789-1",
            "ticket 7-123-45-6789",
            "expected 120, 12 123 45 6789",
            "between 123 45 6789 99",
            "between 12. 45 6789",
            "between 123 45-6789",
            "",
            "1",
        ] {
            assert!(matches!(redact_personal_numbers(text), Cow::Borrowed(_)), "{}", redact_personal_numbers(text));
        }
    }
}
