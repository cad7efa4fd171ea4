//! The data of server-sent events, one event after the other. The fields besides `data` are skipped.

use crate::fault::{Fault, FaultCode, Result};
use bytes::{Buf as _, Bytes, BytesMut};

/// The longest line, and the longest data of an event, in bytes.
const MAX_EVENT: usize = 256 << 10;

/// Splits the chunks of a stream into the data of its events.
#[derive(Debug, Default)]
pub(super) struct EventDataReader {
    /// What was not read yet.
    unread: BytesMut,
    /// How much of it has no end of a line.
    searched: usize,
    /// The data of the event that is being read.
    data: Vec<u8>,
    has_data: bool,
}

impl EventDataReader {
    /// Adds a chunk.
    pub(super) fn push(&mut self, chunk: &Bytes) {
        self.unread.extend_from_slice(chunk);
    }

    /// Returns the data of the next event that is complete.
    ///
    /// # Errors
    /// The event is too long.
    pub(super) fn next_data(&mut self) -> Result<Option<Vec<u8>>> {
        loop {
            let Some(line) = self.next_line()? else { return Ok(None) };
            if line.is_empty() {
                if std::mem::take(&mut self.has_data) {
                    return Ok(Some(std::mem::take(&mut self.data)));
                }
                continue;
            }
            let Some(value) = line.strip_prefix(b"data:") else { continue };
            if std::mem::replace(&mut self.has_data, true) {
                self.data.push(b'\n');
            }
            self.data.extend_from_slice(value.strip_prefix(b" ").unwrap_or(value));
            if self.data.len() > MAX_EVENT {
                return Err(too_long());
            }
        }
    }

    /// Returns the data of the last event, if the stream ended before the empty line after it.
    pub(super) fn take_rest(&mut self) -> Result<Option<Vec<u8>>> {
        self.unread.extend_from_slice(b"\n\n");
        self.next_data()
    }

    fn next_line(&mut self) -> Result<Option<Bytes>> {
        let end = self.unread.get(self.searched..).and_then(|rest| memchr::memchr(b'\n', rest));
        let Some(end) = end.map(|end| self.searched + end) else {
            self.searched = self.unread.len();
            return if self.searched > MAX_EVENT { Err(too_long()) } else { Ok(None) };
        };
        self.searched = 0;
        let mut line = self.unread.split_to(end).freeze();
        self.unread.advance(1);
        if line.ends_with(b"\r") {
            line.truncate(line.len() - 1);
        }
        Ok(Some(line))
    }
}

fn too_long() -> Fault {
    Fault::new(FaultCode::AgentError, "An event of the agent's stream is too long")
}
