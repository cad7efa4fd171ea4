//! Server-sent events on their way through: whole events at once, so that a comment or an error can be put
//! between two of them and never inside one (R43, R80).

use bytes::{Bytes, BytesMut};

/// An event longer than this is passed on in parts; nothing can be put into the stream while it lasts.
const LONGEST: usize = 256 << 10;

/// Cuts a stream of bytes behind the empty line that ends an event.
#[derive(Debug, Default)]
pub(super) struct Events {
    held: BytesMut,
    torn: bool,
}

impl Events {
    /// Takes what arrived; gives what may go out now.
    pub(super) fn push(&mut self, chunk: Bytes) -> Bytes {
        // Usually a chunk is whole events: it goes through as it came.
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
                // The last bytes stay: they may be the first half of the empty line.
                let keep = self.held.len().saturating_sub(3);
                self.held.split_to(keep).freeze()
            }
            None => Bytes::new(),
        }
    }

    /// Whether something may be put into the stream here.
    pub(super) fn between(&self) -> bool {
        !self.torn && self.held.is_empty()
    }

    /// Whether the stream can still end with an event of ours: what is held is dropped then.
    pub(super) fn may_end_with_ours(&self) -> bool {
        !self.torn
    }

    /// What is left when the agent ended its stream without an empty line.
    pub(super) fn rest(&mut self) -> Bytes {
        self.held.split().freeze()
    }
}

/// The place behind the last empty line: `\n\n`, `\r\n\r\n` or `\r\r`.
fn last_end(bytes: &[u8]) -> Option<usize> {
    let lf = rfind(bytes, b"\n\n").map(|at| at + 2);
    let crlf = rfind(bytes, b"\n\r\n").map(|at| at + 3);
    let cr = rfind(bytes, b"\r\r").map(|at| at + 2);
    lf.max(crlf).max(cr)
}

fn rfind(bytes: &[u8], what: &[u8]) -> Option<usize> {
    bytes.windows(what.len()).rposition(|window| window == what)
}
