//! Splits a streamed reply into messages: the data of an event, or a line. The buffer is bounded.

use crate::{
    fault::{Fault, FaultCode, Result},
    gateway::response::is_event_stream,
    values::EventReader,
};
use bytes::{Buf as _, BytesMut};
use http::HeaderMap;

/// Splits a body into messages.
#[derive(Debug)]
pub(super) enum MessageSplitter {
    Events(EventReader),
    Lines(LineReader),
}

/// Splits a body into lines, which end with LF.
#[derive(Debug)]
pub(super) struct LineReader {
    unread: BytesMut,
    /// How much of it has no end of a line.
    searched: usize,
    /// The longest line, in bytes.
    max_line: usize,
}

impl MessageSplitter {
    /// Creates a splitter for a body with these headers; a message has at most `max_message` bytes.
    pub(super) fn new(headers: &HeaderMap, max_message: usize) -> Self {
        if is_event_stream(headers) {
            return Self::Events(EventReader::new(max_message));
        }
        Self::Lines(LineReader { unread: BytesMut::new(), searched: 0, max_line: max_message })
    }

    /// Adds a chunk; returns the messages that are complete.
    ///
    /// # Errors
    /// A message is too large, or is not UTF-8.
    pub(super) fn push(&mut self, chunk: &[u8]) -> Result<Vec<String>> {
        let mut messages = Vec::new();
        match self {
            Self::Events(reader) => {
                reader.push(chunk);
                while let Some(event) = reader.next_event()? {
                    if let Some(data) = event.data {
                        messages.push(String::from_utf8(data).map_err(|_| not_text())?);
                    }
                }
            }
            Self::Lines(reader) => {
                reader.unread.extend_from_slice(chunk);
                while let Some(line) = reader.next_line()? {
                    messages.extend(line_message(&line)?);
                }
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
        match self {
            Self::Events(_) => Ok(None),
            Self::Lines(reader) => line_message(&reader.unread.split()),
        }
    }
}

impl LineReader {
    fn next_line(&mut self) -> Result<Option<BytesMut>> {
        let end = self.unread.get(self.searched..).and_then(|rest| memchr::memchr(b'\n', rest));
        let end = end.map(|end| self.searched + end);
        if end.unwrap_or(self.unread.len()) > self.max_line {
            return Err(Fault::new(FaultCode::AgentError, "A line of the agent's answer is too long"));
        }
        let Some(end) = end else {
            self.searched = self.unread.len();
            return Ok(None);
        };
        self.searched = 0;
        let line = self.unread.split_to(end);
        self.unread.advance(1);
        Ok(Some(line))
    }
}

/// Returns the text of a line, unless it is empty. RFC 7464 begins lines with a record separator.
fn line_message(line: &[u8]) -> Result<Option<String>> {
    let text = std::str::from_utf8(line).map_err(|_| not_text())?.trim_matches(['\r', ' ', '\t', '\u{1e}']);
    Ok((!text.is_empty()).then(|| text.to_owned()))
}

fn not_text() -> Fault {
    Fault::new(FaultCode::AgentError, "The agent's answer is not text in UTF-8")
}
