//! Splits a streamed reply into messages: the data of an event, or a line. The buffer is bounded.

use crate::{
    fault::{Fault, FaultCode, Result},
    gateway::response::is_event_stream,
};
use bytes::BytesMut;
use http::HeaderMap;

/// Splits a body into messages.
#[derive(Debug)]
pub(super) struct MessageSplitter {
    is_event_stream: bool,
    buffer: BytesMut,
    /// The data of the current event.
    data: Option<String>,
    max_message: usize,
    after_cr: bool,
}

impl MessageSplitter {
    /// Creates a splitter for a body with these headers; a message has at most `max_message` bytes.
    pub(super) fn new(headers: &HeaderMap, max_message: usize) -> Self {
        Self {
            is_event_stream: is_event_stream(headers),
            buffer: BytesMut::new(),
            data: None,
            max_message,
            after_cr: false,
        }
    }

    /// Adds a chunk; returns the messages that are complete.
    ///
    /// # Errors
    /// A message is too large, or is not UTF-8.
    pub(super) fn push(&mut self, chunk: &[u8]) -> Result<Vec<String>> {
        let mut messages = Vec::new();
        for &byte in chunk {
            // A line ends with LF, CR LF or, in an event stream, CR alone.
            let ends_line = match byte {
                b'\n' if std::mem::replace(&mut self.after_cr, false) => continue,
                b'\n' => true,
                b'\r' if self.is_event_stream => {
                    self.after_cr = true;
                    true
                }
                _ => false,
            };
            if ends_line {
                let line = self.buffer.split();
                messages.extend(self.take_line(&line)?);
                continue;
            }
            self.after_cr = false;
            self.buffer.extend_from_slice(&[byte]);
            if self.buffer.len() + self.data.as_ref().map_or(0, String::len) > self.max_message {
                return Err(Fault::new(FaultCode::AgentError, "A part of the agent's answer is too large"));
            }
        }
        Ok(messages)
    }

    /// Returns the rest at the end: a last line needs no line end; an event without one is discarded (HTML, "event
    /// streams").
    ///
    /// # Errors
    /// The rest is not UTF-8.
    pub(super) fn take_rest(&mut self) -> Result<Option<String>> {
        let line = self.buffer.split();
        if self.is_event_stream || line.is_empty() { Ok(None) } else { self.take_line(&line) }
    }

    fn take_line(&mut self, line: &[u8]) -> Result<Option<String>> {
        let Ok(text) = std::str::from_utf8(line) else {
            return Err(Fault::new(FaultCode::AgentError, "The agent's answer is not text in UTF-8"));
        };
        if !self.is_event_stream {
            let text = text.trim_matches(['\r', ' ', '\t', '\u{1e}']);
            return Ok((!text.is_empty()).then(|| text.to_owned()));
        }
        if text.is_empty() {
            return Ok(self.data.take());
        }
        if let Some(value) = text.strip_prefix("data:").or_else(|| (text == "data").then_some("")) {
            let value = value.strip_prefix(' ').unwrap_or(value);
            match &mut self.data {
                Some(data) => {
                    data.push('\n');
                    data.push_str(value);
                }
                None => self.data = Some(value.to_owned()),
            }
        }
        Ok(None)
    }
}
