//! The text of a streamed response, which the events at its end repeat.

use serde_json::value::RawValue;

/// The longest text that is repeated, in bytes of JSON: it is written four times.
const MAX_REPEATED_TEXT: usize = 1 << 20;

/// The text so far as JSON, up to a bound. Of a longer text it is the beginning, without a hole.
#[derive(Debug, Default)]
pub(super) struct RepeatedText {
    /// The escaped text, without quotes.
    escaped: String,
    is_cut: bool,
}

impl RepeatedText {
    /// Appends a part, which is a JSON string. After the first part that does not fit, nothing is appended.
    pub(super) fn push(&mut self, part: &RawValue) {
        let part = part.get();
        let part = part.strip_prefix('"').and_then(|part| part.strip_suffix('"')).unwrap_or_default();
        self.is_cut |= self.escaped.len() + part.len() > MAX_REPEATED_TEXT;
        if !self.is_cut {
            self.escaped.push_str(part);
        }
    }

    /// Returns whether the text is longer.
    pub(super) fn is_cut(&self) -> bool {
        self.is_cut
    }

    /// Returns the text as a JSON string.
    pub(super) fn into_json(self) -> Box<RawValue> {
        RawValue::from_string(format!("\"{}\"", self.escaped)).unwrap_or_default()
    }
}
