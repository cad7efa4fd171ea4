//! Finds the end of a string, and checks its escapes and control characters.

use super::error::SyntaxError;

/// Where a scan of a string's content stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StringScan {
    /// At the closing quote, which has this offset.
    Quote(usize),
    /// After the bytes that may be read now.
    Limit(usize),
    /// At an error, with the offset after the bytes that are wrong.
    Error(SyntaxError, usize),
}

const ONES: u64 = u64::MAX / 255;

/// Returns a word whose lowest set bit is the top bit of the first byte that is a quote, a backslash or a control
/// character (Mycroft's test; bits above the lowest one can be wrong).
#[inline]
fn find_special(chars: u64) -> u64 {
    let control = chars.wrapping_sub(ONES * 0x20) & !chars;
    let quote = chars ^ (ONES * b'"' as u64);
    let backslash = chars ^ (ONES * b'\\' as u64);
    let matches = control | (quote.wrapping_sub(ONES) & !quote) | (backslash.wrapping_sub(ONES) & !backslash);
    matches & (ONES << 7)
}

/// Scans a string's content from `at` up to `limit`; it looks at most 12 bytes beyond `limit`.
#[inline(always)]
pub(super) fn scan_string(text: &[u8], mut at: usize, limit: usize, is_escaped: &mut bool) -> StringScan {
    loop {
        while let Some(chunk) = text.get(at..).and_then(|rest| rest.first_chunk::<8>()) {
            if at >= limit {
                return StringScan::Limit(at);
            }
            let special = find_special(u64::from_le_bytes(*chunk));
            if special != 0 {
                at += special.trailing_zeros() as usize / 8;
                break;
            }
            at += 8;
        }
        match text.get(at) {
            Some(b'"') => return StringScan::Quote(at),
            Some(b'\\') => {
                *is_escaped = true;
                match scan_escape(text, at) {
                    Ok(end) => at = end,
                    Err((error, end)) => return StringScan::Error(error, end),
                }
            }
            Some(0..0x20) => return StringScan::Error(SyntaxError::ControlCharacter, at + 1),
            Some(_) => at += 1,
            None => return StringScan::Limit(text.len()),
        }
        if at >= limit {
            return StringScan::Limit(at);
        }
    }
}

/// Returns the offset after the escape at `at`, where a backslash is.
fn scan_escape(text: &[u8], at: usize) -> Result<usize, (SyntaxError, usize)> {
    match text.get(at + 1) {
        Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => Ok(at + 2),
        Some(b'u') => scan_unicode_escape(text, at + 2),
        Some(_) => Err((SyntaxError::InvalidEscape, at + 2)),
        None => Err((SyntaxError::EndInString, text.len())),
    }
}

fn scan_unicode_escape(text: &[u8], digits: usize) -> Result<usize, (SyntaxError, usize)> {
    let (first, end) = scan_hex(text, digits)?;
    match first {
        0xdc00..=0xdfff => Err((SyntaxError::LoneSurrogate, end)),
        0xd800..=0xdbff => {
            for (offset, wanted) in [(end, b'\\'), (end + 1, b'u')] {
                match text.get(offset) {
                    Some(byte) if *byte == wanted => {}
                    Some(_) => return Err((SyntaxError::MissingSurrogate, offset + 1)),
                    None => return Err((SyntaxError::EndInString, text.len())),
                }
            }
            let (second, end) = scan_hex(text, end + 2)?;
            if (0xdc00..=0xdfff).contains(&second) { Ok(end) } else { Err((SyntaxError::LoneSurrogate, end)) }
        }
        _ => Ok(end),
    }
}

fn scan_hex(text: &[u8], at: usize) -> Result<(u32, usize), (SyntaxError, usize)> {
    let Some(digits) = text.get(at..).and_then(|rest| rest.first_chunk::<4>()) else {
        return Err((SyntaxError::EndInString, text.len()));
    };
    let mut value = 0;
    for digit in digits {
        let digit = char::from(*digit).to_digit(16).ok_or((SyntaxError::InvalidEscape, at + 4))?;
        value = value * 16 + digit;
    }
    Ok((value, at + 4))
}

/// Returns the length of the array or object at the beginning of valid JSON text.
pub(super) fn container_length(text: &[u8]) -> usize {
    let (mut at, mut depth) = (0, 0_usize);
    while let Some(byte) = text.get(at) {
        at += 1;
        match byte {
            b'[' | b'{' => depth += 1,
            b']' | b'}' => {
                depth = depth.saturating_sub(1);
                if depth == 0 {
                    return at;
                }
            }
            b'"' => match scan_string(text, at, text.len(), &mut false) {
                StringScan::Quote(quote) => at = quote + 1,
                _ => return text.len(),
            },
            _ => {}
        }
    }
    text.len()
}
