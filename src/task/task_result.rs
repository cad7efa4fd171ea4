//! The result of a task: JSON on one line, which is never parsed again, so that its depth and the length of its numbers do
//! not matter. Records and replies share its bytes.

use base64::Engine as _;
use bytes::Bytes;
use serde_json::value::RawValue;
use std::sync::Arc;

/// JSON on one line.
#[derive(Clone, Debug)]
pub struct TaskResult(Bytes);

/// The result of a reply.
pub(super) struct ReplyResult {
    /// `None` for an empty reply.
    pub(super) json: Option<TaskResult>,
    /// Whether it is a string that has the reply in Base64.
    pub(super) is_base64: bool,
}

impl TaskResult {
    /// Returns the part of a stored record from `start`, which is such JSON.
    pub(super) fn from_record(record: Arc<str>, start: usize) -> Self {
        struct Owner(Arc<str>);
        impl AsRef<[u8]> for Owner {
            fn as_ref(&self) -> &[u8] {
                self.0.as_bytes()
            }
        }
        Self(Bytes::from_owner(Owner(record)).slice(start..))
    }

    /// Returns the JSON.
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).unwrap_or("null")
    }

    /// Returns the length in bytes.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns JSON as is. Line ends become spaces: they occur only between tokens, where white space has no meaning
    /// (RFC 8259 §2, §7).
    fn from_json(body: &Bytes) -> Option<Self> {
        let text = serde_json::from_slice::<&RawValue>(body).ok()?.get();
        let has_line_ends = text.contains(['\n', '\r']);
        Some(Self(if has_line_ends { text.replace(['\n', '\r'], " ").into() } else { body.slice_ref(text.as_bytes()) }))
    }

    fn from_text(text: &str) -> Self {
        Self(serde_json::Value::from(text).to_string().into())
    }
}

impl ReplyResult {
    /// Returns JSON as is, text as a string, the rest in Base64. Text of which more than half would be escapes is in Base64
    /// as well, so that no result is more than twice as long as the reply.
    pub(super) fn of(media_type: &str, body: &Bytes) -> Self {
        let is_json = media_type.contains("json") && !media_type.contains("ndjson");
        if let Some(json) = Some(body).filter(|_| is_json).and_then(TaskResult::from_json) {
            return Self { json: Some(json), is_base64: false };
        }
        let text = std::str::from_utf8(body).ok();
        if text == Some("") {
            return Self { json: None, is_base64: false };
        }
        let string = text.filter(|text| !is_mostly_escaped(text)).map(TaskResult::from_text);
        let is_base64 = string.is_none();
        let json =
            string.unwrap_or_else(|| TaskResult::from_text(&base64::engine::general_purpose::STANDARD.encode(body)));
        Self { json: Some(json), is_base64 }
    }
}

/// Whether a text is more than twice as long as a JSON string (RFC 8259 §7).
fn is_mostly_escaped(text: &str) -> bool {
    let escapes = text.bytes().map(|byte| match byte {
        b'"' | b'\\' | b'\n' | b'\r' | b'\t' | 8 | 12 => 1,
        0..0x20 => 5,
        _ => 0,
    });
    escapes.sum::<usize>() > text.len()
}
