//! The reply of an upstream: its head, and a body that is read in chunks at the reader's pace.

use super::{breaker::InFlight, http::Answer};
use crate::fault::Fault;
use bytes::{Bytes, BytesMut};
use http::{HeaderMap, StatusCode};
use tokio::sync::mpsc;

/// An agent's reply.
#[derive(Debug)]
pub struct Reply {
    /// The status, 200 to 599.
    pub status: StatusCode,
    /// The header fields as the agent sent them; [`super::filter_reply_headers`] selects those for the caller.
    pub headers: HeaderMap,
    /// The body.
    pub body: ReplyBody,
}

/// The body of a reply. Dropping it before its end cancels the exchange with the agent.
#[derive(Debug)]
pub struct ReplyBody {
    /// Bytes that were peeked at and are returned again.
    front: Option<Bytes>,
    rest: Rest,
    /// Counts the call as in flight at its endpoint until the body ends.
    held: Option<InFlight>,
}

#[derive(Debug)]
enum Rest {
    None,
    Pieces(mpsc::Receiver<Result<Bytes, Fault>>),
    Http(Box<Answer>),
}

/// The beginning of a body, and whether the body is complete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Beginning {
    /// The bytes read.
    pub bytes: Bytes,
    /// Whether the body ends here.
    pub complete: bool,
}

impl ReplyBody {
    /// Creates a body from a channel of non-empty chunks and at most one fault, at the end. The sender bounds the time
    /// of each chunk, and stops when the receiver is dropped.
    pub fn pieces(pieces: mpsc::Receiver<Result<Bytes, Fault>>) -> Self {
        Self { front: None, rest: Rest::Pieces(pieces), held: None }
    }

    /// Counts the call as in flight until the body is dropped.
    pub(super) fn hold(&mut self, held: InFlight) {
        self.held = Some(held);
    }

    /// The number of bytes that remain, if the agent declared the length.
    pub fn length(&self) -> Option<u64> {
        let front = self.front.as_ref().map_or(0, |bytes| bytes.len() as u64);
        match &self.rest {
            Rest::None => Some(front),
            Rest::Pieces(_) => None,
            Rest::Http(answer) if answer.is_spent() => Some(front),
            Rest::Http(answer) => answer.length().map(|rest| front + rest),
        }
    }

    /// Returns the next chunk, never empty; `None` after the last. A body that is truncated or too slow ends with a
    /// fault.
    pub async fn chunk(&mut self) -> Option<Result<Bytes, Fault>> {
        if let Some(front) = self.front.take() {
            return Some(Ok(front));
        }
        match &mut self.rest {
            Rest::None => None,
            Rest::Pieces(pieces) => pieces.recv().await,
            Rest::Http(answer) => answer.chunk().await,
        }
    }

    /// Reads to the end, or until more than `most` bytes are read. [`ReplyBody::next_chunk`] returns these bytes again,
    /// so that a body too long for inspection can still be forwarded.
    ///
    /// # Errors
    /// The body is truncated, or too slow.
    pub async fn beginning(&mut self, most: usize) -> Result<Beginning, Fault> {
        let Some(first) = self.chunk().await.transpose()? else {
            return Ok(Beginning { bytes: Bytes::new(), complete: true });
        };
        if first.len() > most {
            self.front = Some(first.clone());
            return Ok(Beginning { bytes: first, complete: false });
        }
        let mut complete = true;
        let mut bytes = first;
        // Most bodies are one chunk, which is then not copied.
        if let Some(second) = self.chunk().await.transpose()? {
            let mut all = BytesMut::with_capacity((bytes.len() + second.len()).next_power_of_two());
            all.extend_from_slice(&bytes);
            all.extend_from_slice(&second);
            while all.len() <= most {
                let Some(more) = self.chunk().await.transpose()? else {
                    break;
                };
                all.extend_from_slice(&more);
            }
            complete = all.len() <= most;
            bytes = all.freeze();
        }
        self.front = Some(bytes.clone());
        Ok(Beginning { bytes, complete })
    }
}

impl From<Answer> for ReplyBody {
    fn from(answer: Answer) -> Self {
        Self { front: None, rest: Rest::Http(Box::new(answer)), held: None }
    }
}

impl From<Bytes> for ReplyBody {
    fn from(bytes: Bytes) -> Self {
        Self { front: Some(bytes).filter(|bytes| !bytes.is_empty()), rest: Rest::None, held: None }
    }
}
