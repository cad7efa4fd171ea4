//! Server-sent events: cuts an event stream at event boundaries, so that a comment or an error can be inserted between
//! two events and never inside one (R43, R80).

use crate::values::{ends_with_empty_line, last_event_end};
use bytes::{Bytes, BytesMut};

/// The longest event that is buffered. A longer one is passed on in parts, and nothing can be inserted inside it.
const MAX_BUFFERED_EVENT: usize = 256 << 10;

/// Cuts a byte stream after the empty line that ends an event.
#[derive(Debug, Default)]
pub(in crate::gateway) struct EventSplitter {
    buffer: BytesMut,
    inside_long_event: bool,
}

impl EventSplitter {
    /// Adds a chunk; returns the bytes that may be sent now.
    pub(in crate::gateway) fn push(&mut self, chunk: Bytes) -> Bytes {
        // The common case: the chunk consists of complete events and passes unchanged.
        if self.buffer.is_empty() && ends_with_empty_line(&chunk) {
            self.inside_long_event = false;
            return chunk;
        }
        let search_start = self.buffer.len().saturating_sub(3);
        self.buffer.extend_from_slice(&chunk);
        let end = self.buffer.get(search_start..).and_then(last_event_end).map(|end| search_start + end);
        match end {
            Some(end) => {
                self.inside_long_event = false;
                self.buffer.split_to(end).freeze()
            }
            None if self.inside_long_event || self.buffer.len() > MAX_BUFFERED_EVENT => {
                self.inside_long_event = true;
                // Keep the last bytes: they may be the start of the empty line.
                let ready = self.buffer.len().saturating_sub(3);
                self.buffer.split_to(ready).freeze()
            }
            None => Bytes::new(),
        }
    }

    /// Returns whether a comment or an event may be inserted here.
    pub(super) fn is_between_events(&self) -> bool {
        !self.inside_long_event && self.buffer.is_empty()
    }

    /// Returns whether the stream may end with an event of the gateway; the buffered bytes are then dropped.
    pub(in crate::gateway) fn can_append_event(&self) -> bool {
        !self.inside_long_event
    }

    /// Returns the buffered rest of a stream that ended without an empty line.
    pub(in crate::gateway) fn take_rest(&mut self) -> Bytes {
        self.buffer.split().freeze()
    }
}
