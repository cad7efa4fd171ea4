//! Server-sent events: cuts an event stream at event boundaries, so that a comment or an error can be inserted between
//! two events and never inside one (R43, R80).

use bytes::{Bytes, BytesMut};

/// The longest event that is buffered. A longer one is passed on in parts, and nothing can be inserted inside it.
const LONGEST: usize = 256 << 10;

/// Cuts a byte stream after the empty line that ends an event.
#[derive(Debug, Default)]
pub(super) struct Events {
    held: BytesMut,
    torn: bool,
}

impl Events {
    /// Adds a chunk; returns the bytes that may be sent now.
    pub(super) fn push(&mut self, chunk: Bytes) -> Bytes {
        // The common case: the chunk consists of complete events and passes unchanged.
        if self.held.is_empty() && last_end(&chunk) == Some(chunk.len()) {
            self.torn = false;
            return chunk;
        }
        let from = self.held.len().saturating_sub(3);
        self.held.extend_from_slice(&chunk);
        let end = self.held.get(from..).and_then(last_end).map(|end| from + end);
        match end {
            Some(end) => {
                self.torn = false;
                self.held.split_to(end).freeze()
            }
            None if self.torn || self.held.len() > LONGEST => {
                self.torn = true;
                // Keep the last bytes: they may be the start of the empty line.
                let keep = self.held.len().saturating_sub(3);
                self.held.split_to(keep).freeze()
            }
            None => Bytes::new(),
        }
    }

    /// Returns whether something may be inserted here.
    pub(super) fn between(&self) -> bool {
        !self.torn && self.held.is_empty()
    }

    /// Returns whether the stream may end with an event of the gateway; the buffered bytes are then dropped.
    pub(super) fn may_end_with_ours(&self) -> bool {
        !self.torn
    }

    /// Returns the buffered rest of a stream that ended without an empty line.
    pub(super) fn rest(&mut self) -> Bytes {
        self.held.split().freeze()
    }
}

/// Returns the index after the last empty line: `\n\n`, `\r\n\r\n` or `\r\r`.
fn last_end(bytes: &[u8]) -> Option<usize> {
    let lf = rfind(bytes, b"\n\n").map(|at| at + 2);
    let crlf = rfind(bytes, b"\n\r\n").map(|at| at + 3);
    let cr = rfind(bytes, b"\r\r").map(|at| at + 2);
    lf.max(crlf).max(cr)
}

fn rfind(bytes: &[u8], what: &[u8]) -> Option<usize> {
    bytes.windows(what.len()).rposition(|window| window == what)
}
