//! The size of a JSON text without its long strings, counted before the text is parsed.

use memchr::{memchr, memchr2};

/// Strings of at least this length in bytes are long: a file in Base64, and no name.
const LONG_TEXT: usize = 1 << 10;

/// Returns the size of `json` without the contents of its long strings. The text need not be valid JSON.
pub fn size_without_long_texts(json: &[u8]) -> usize {
    let (mut rest, mut size) = (json, json.len());
    while let Some(start) = memchr(b'"', rest) {
        let text = rest.get(start + 1..).unwrap_or_default();
        let length = string_length(text);
        if length >= LONG_TEXT {
            size -= length;
        }
        rest = text.get(length + 1..).unwrap_or_default();
    }
    size
}

/// Returns the length of the string at the beginning of `text`, up to its closing quote.
fn string_length(text: &[u8]) -> usize {
    let mut at = 0;
    while let Some(found) = text.get(at..).and_then(|rest| memchr2(b'"', b'\\', rest)) {
        at += found;
        if text.get(at) == Some(&b'"') {
            return at;
        }
        at += 2;
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_texts_do_not_count_and_everything_else_does() {
        let file = "A".repeat(5_000);
        let json = format!(r#"{{"parts":[{{"raw":"{file}"}},{{"text":"short"}}]}}"#);
        assert_eq!(size_without_long_texts(json.as_bytes()), json.len() - 5_000);
        let numbers = format!("[{}]", vec!["1"; 2_000].join(","));
        assert_eq!(size_without_long_texts(numbers.as_bytes()), numbers.len());
        // An escaped quote does not end a string.
        let escaped = format!(r#"["{}"]"#, r#"a\""#.repeat(1_000));
        assert_eq!(size_without_long_texts(escaped.as_bytes()), 4);
        for broken in [&b"\""[..], b"\"\\", b"", b"\"\\\""] {
            assert_eq!(size_without_long_texts(broken), broken.len());
        }
    }
}
