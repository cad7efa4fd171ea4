//! Removes the gateway's secrets from the failures that an agent reports within a body that is forwarded as it arrives
//! (R131): events, lines, and the bodies of errors. An agent that refuses the gateway's credential may repeat it.

use super::{contains_known_secret, last_event_end, redact_known_secrets};
use aho_corasick::AhoCorasick;
use bytes::{Bytes, BytesMut};
use std::sync::LazyLock;

/// The longest event or line that is held back. A longer one is redacted in parts.
const MAX_HELD: usize = 256 << 10;
/// What is held back of a part, so that a secret at its end is found with the next part.
const MAX_SPLIT_SECRET: usize = 8 << 10;

/// Every form of a failure contains one of these words, or a member's name with escapes.
static FAILURE_WORDS: LazyLock<Option<AhoCorasick>> =
    LazyLock::new(|| AhoCorasick::builder().ascii_case_insensitive(true).build(["error", "fail", "false", "\\u"]).ok());

/// The unit of a body that may be a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureUnit {
    /// A server-sent event.
    Event,
    /// A line of NDJSON, or a record of a JSON text sequence.
    Line,
    /// The whole body, which is a failure by its status.
    Body,
}

/// Redacts the chunks of one body.
#[derive(Debug)]
pub struct FailureRedactor {
    unit: FailureUnit,
    held: BytesMut,
    /// Whether the beginning of the held unit was returned already.
    is_inside_long_unit: bool,
}

impl FailureRedactor {
    /// Creates a redactor of a body that consists of such units.
    pub fn new(unit: FailureUnit) -> Self {
        Self { unit, held: BytesMut::new(), is_inside_long_unit: false }
    }

    /// Adds a chunk; returns the units that are complete, which may be none.
    pub fn push(&mut self, chunk: Bytes) -> Bytes {
        // The common case: a chunk consists of complete units and passes without a copy.
        if self.held.is_empty() && !self.is_inside_long_unit && self.last_end(&chunk) == Some(chunk.len()) {
            return redact(chunk, self.unit);
        }
        let search_start = self.held.len().saturating_sub(3);
        self.held.extend_from_slice(&chunk);
        // A record whose line does not end yet is not held back. What follows on its line is redacted as a part of it.
        let ends_in_record = self.unit == FailureUnit::Line && self.held.ends_with(b"}");
        let end = self.held.get(search_start..).and_then(|rest| self.last_end(rest)).map(|end| search_start + end);
        if let Some(end) = if ends_in_record { Some(self.held.len()) } else { end } {
            let is_continued = std::mem::replace(&mut self.is_inside_long_unit, ends_in_record);
            let unit = if is_continued { FailureUnit::Body } else { self.unit };
            return redact(self.held.split_to(end).freeze(), unit);
        }
        if self.held.len() <= MAX_HELD {
            return Bytes::new();
        }
        self.is_inside_long_unit = true;
        let mut part = BytesMut::from(redact(self.held.split().freeze(), FailureUnit::Body));
        self.held = part.split_off(part.len().saturating_sub(MAX_SPLIT_SECRET));
        part.freeze()
    }

    /// Returns the rest of a body that has ended.
    pub fn finish(&mut self) -> Bytes {
        redact(self.held.split().freeze(), FailureUnit::Body)
    }

    /// Returns the index after the last unit that ends in `bytes`.
    fn last_end(&self, bytes: &[u8]) -> Option<usize> {
        match self.unit {
            FailureUnit::Event => last_event_end(bytes),
            FailureUnit::Line => memchr::memrchr(b'\n', bytes).map(|at| at + 1),
            FailureUnit::Body => None,
        }
    }
}

fn redact(bytes: Bytes, unit: FailureUnit) -> Bytes {
    let may_be_failure =
        unit == FailureUnit::Body || FAILURE_WORDS.as_ref().is_none_or(|words| words.is_match(&*bytes));
    if !may_be_failure || !contains_known_secret(&bytes) {
        return bytes;
    }
    Bytes::from(redact_known_secrets(&String::from_utf8_lossy(&bytes)).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::values::register_secret;

    const SECRET: &str = "redactor-secret-4711/42";

    /// Returns what a redactor makes of a body that arrives in chunks of this many bytes.
    fn pass(unit: FailureUnit, body: &str, chunk_len: usize) -> String {
        register_secret(SECRET);
        let mut redactor = FailureRedactor::new(unit);
        let mut passed = Vec::new();
        for chunk in body.as_bytes().chunks(chunk_len) {
            passed.extend_from_slice(&redactor.push(Bytes::copy_from_slice(chunk)));
        }
        passed.extend_from_slice(&redactor.finish());
        String::from_utf8(passed).unwrap()
    }

    #[test]
    fn r131_a_failure_loses_the_secret_however_its_chunks_are_cut() {
        let json_escaped = SECRET.replace('/', "\\/");
        for (unit, body) in [
            (FailureUnit::Event, format!("event: error\ndata: bad key {SECRET}\n\n")),
            (FailureUnit::Event, format!("event: error\r\ndata: {SECRET}\r\n\r\n")),
            (FailureUnit::Event, format!("event: error\rdata: {SECRET}\r\r")),
            (
                FailureUnit::Event,
                format!("data: {{\"jsonrpc\":\"2.0\",\"error\":{{\"message\":\"{json_escaped}\"}}}}\n\n"),
            ),
            (FailureUnit::Event, format!("data: {{\"success\":false,\"message\":\"{SECRET}\"}}\n\n")),
            (
                FailureUnit::Event,
                format!("data: {{\"status\":\"FAILED\",\"message\":\"{SECRET}\"}}\n\ndata: [DONE]\n\n"),
            ),
            (FailureUnit::Event, format!("data: {{\"\\u0065rror\":\"{SECRET}\"}}\n\n")),
            (FailureUnit::Event, format!("data: ok\n\nevent: error\ndata: {SECRET} without an end")),
            (FailureUnit::Line, format!("{{\"n\":1}}\n{{\"error\":{{\"message\":\"{SECRET}\"}}}}\n")),
            (FailureUnit::Line, format!("{{\"n\":1}}\n{{\"error\":\"{SECRET}\"}}")),
            (FailureUnit::Line, format!("{{\"error\":{{\"code\":1}},\"message\":\"{SECRET}\"}}\n")),
            (FailureUnit::Body, format!("<h1>502</h1> {SECRET}")),
        ] {
            for chunk_len in [1, 2, 7, 30, 4096] {
                let passed = pass(unit, &body, chunk_len);
                assert!(!passed.contains(SECRET) && !passed.contains(&json_escaped), "{chunk_len}: {passed}");
                assert!(passed.contains("[redacted]"), "{chunk_len}: {passed}");
            }
        }
    }

    #[test]
    fn a_record_passes_before_its_line_ends() {
        let mut redactor = FailureRedactor::new(FailureUnit::Line);
        for record in ["{\"first\":1}", "{\"second\":2}", "\n{\"third\":3}"] {
            assert_eq!(redactor.push(Bytes::from(record)), record);
        }
        assert_eq!(redactor.push(Bytes::from_static(b"{\"a\":")), "");
        assert_eq!(redactor.finish(), "{\"a\":");
    }

    #[test]
    fn r33_a_body_without_a_secret_passes_byte_for_byte() {
        for unit in [FailureUnit::Event, FailureUnit::Line, FailureUnit::Body] {
            for body in [
                "",
                "data: a\n\n",
                "event: error\ndata: boom\n\n",
                ": x\r\n\r\nhalf",
                "{\"error\":1}\n{\"a\":",
                "\r\r\n\n\r",
            ] {
                for chunk_len in [1, 3, 100] {
                    assert_eq!(pass(unit, body, chunk_len), body);
                }
            }
        }
    }

    #[test]
    fn a_long_unit_is_redacted_in_parts_and_does_not_fill_the_memory() {
        register_secret(SECRET);
        let mut redactor = FailureRedactor::new(FailureUnit::Event);
        let mut passed = Vec::new();
        let filler = "x".repeat(60 << 10);
        for _ in 0..20 {
            for chunk in [filler.as_str(), &SECRET[..9], &SECRET[9..]] {
                passed.extend_from_slice(&redactor.push(Bytes::copy_from_slice(chunk.as_bytes())));
                assert!(redactor.held.len() <= MAX_HELD + filler.len());
            }
        }
        passed.extend_from_slice(&redactor.push(Bytes::from_static(b"\n\n")));
        assert!(redactor.held.is_empty());
        let text = String::from_utf8(passed).unwrap();
        assert!(!text.contains(SECRET) && text.matches("[redacted]").count() == 20);
    }
}
