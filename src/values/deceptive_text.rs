//! Characters that make a text read otherwise than it is, and their visible form.

use std::{borrow::Cow, fmt::Write as _};

/// Returns whether a character is not seen, ends a line, or changes the direction of the text. All of them are in the
/// basic plane, so that each is one escape in JSON, Python and JavaScript.
pub fn is_deceptive(character: char) -> bool {
    matches!(character,
        '\u{7f}'..='\u{9f}' | '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}')
}

/// Returns a text for a page or a terminal: deceptive and control characters, such as those that steer a terminal or
/// reverse the direction of the text, are written as `\u202e`. Ends of lines and tabs stay. A text that is JSON stays the
/// same JSON.
pub fn visible_text(text: &str) -> Cow<'_, str> {
    if !text.chars().any(|c| is_deceptive(c) || (c.is_control() && c != '\n' && c != '\t')) {
        return text.into();
    }
    let (mut visible, mut characters) = (String::with_capacity(text.len() + 16), text.chars().peekable());
    while let Some(character) = characters.next() {
        let is_line_end = character == '\n' || (character == '\r' && characters.peek() == Some(&'\n'));
        if is_line_end || character == '\t' || !(character.is_control() || is_deceptive(character)) {
            visible.push(character);
        } else {
            // Writing to a string does not fail.
            let _ = write!(visible, "\\u{:04x}", u32::from(character));
        }
    }
    visible.into()
}

/// Reads a text that arrives in parts, which may end within a character.
#[derive(Debug, Default)]
pub struct TextParts {
    /// The beginning of a character whose end is still to come.
    incomplete: Vec<u8>,
}

impl TextParts {
    /// Adds a part, and returns the text that is complete with it. Bytes that are no text become replacement characters.
    pub fn push(&mut self, part: &[u8]) -> String {
        self.incomplete.extend_from_slice(part);
        let complete = match std::str::from_utf8(&self.incomplete) {
            // A character has four bytes at most: what is longer is not text.
            Err(why) if why.error_len().is_none() => why.valid_up_to(),
            Ok(_) | Err(_) => self.incomplete.len(),
        };
        let rest = self.incomplete.split_off(complete);
        let text = std::mem::replace(&mut self.incomplete, rest);
        String::from_utf8_lossy(&text).into_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_seen_is_written_as_an_escape() {
        for (text, visible) in [
            ("a\n\tb\r\nc é 漢 😀", "a\n\tb\r\nc é 漢 😀"),
            ("a\u{1b}[2Jb", "a\\u001b[2Jb"),
            ("a\rb", "a\\u000db"),
            ("\u{202e}cba\u{202c}", "\\u202ecba\\u202c"),
            ("a\u{2028}b\u{2029}c\u{2066}d\u{200b}e\u{feff}f", "a\\u2028b\\u2029c\\u2066d\\u200be\\ufefff"),
            ("a\u{0}b\u{7}c\u{8}d\u{9b}2Je", "a\\u0000b\\u0007c\\u0008d\\u009b2Je"),
        ] {
            assert_eq!(visible_text(text), visible);
        }
        let json = serde_json::json!({"name": "a\u{202e}\u{2028}\u{9b}b\n"});
        assert_eq!(serde_json::from_str::<serde_json::Value>(&visible_text(&json.to_string())).unwrap(), json);
    }

    #[test]
    fn a_character_that_arrives_in_two_parts_is_one() {
        let mut parts = TextParts::default();
        let bytes = "a漢".as_bytes();
        assert_eq!((parts.push(&bytes[..2]), parts.push(&bytes[2..])), ("a".to_owned(), "漢".to_owned()));
        assert_eq!(parts.push(b"\xff\xfe"), "\u{fffd}\u{fffd}");
    }
}
