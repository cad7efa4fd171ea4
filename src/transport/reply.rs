//! What came back: a head, and a body that is read piece by piece, at the reader's pace.

use super::{breaker::InFlight, http::Answer};
use crate::fault::Fault;
use bytes::{Bytes, BytesMut};
use http::{HeaderMap, StatusCode};
use tokio::sync::mpsc;

/// An agent's answer.
#[derive(Debug)]
pub struct Reply {
    /// The status, 200 to 599.
    pub status: StatusCode,
    /// The fields as the agent sent them; [`super::incoming_headers`] is what the caller may read.
    pub headers: HeaderMap,
    /// The body.
    pub body: ReplyBody,
}

/// The body of an answer. Dropping it before its end ends the exchange.
#[derive(Debug)]
pub struct ReplyBody {
    /// Read already, and put back.
    front: Option<Bytes>,
    rest: Rest,
    /// The endpoint's place that the exchange takes until its end.
    held: Option<InFlight>,
}

#[derive(Debug)]
enum Rest {
    None,
    Pieces(mpsc::Receiver<Result<Bytes, Fault>>),
    Http(Box<Answer>),
}

/// The beginning of a body, and whether it is all of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Beginning {
    /// What was read.
    pub bytes: Bytes,
    /// Whether nothing follows.
    pub complete: bool,
}

impl ReplyBody {
    /// A body that comes piece by piece from elsewhere: pieces that are not empty, and at most one fault, at the end.
    /// Whoever sends them bounds their time, and stops when nobody takes them any more.
    pub fn pieces(pieces: mpsc::Receiver<Result<Bytes, Fault>>) -> Self {
        Self { front: None, rest: Rest::Pieces(pieces), held: None }
    }

    /// Keeps the place at an endpoint until the body goes.
    pub(super) fn hold(&mut self, held: InFlight) {
        self.held = Some(held);
    }

    /// How many bytes are to come, if the agent has said.
    pub fn length(&self) -> Option<u64> {
        let front = self.front.as_ref().map_or(0, |bytes| bytes.len() as u64);
        match &self.rest {
            Rest::None => Some(front),
            Rest::Pieces(_) => None,
            Rest::Http(answer) if answer.is_spent() => Some(front),
            Rest::Http(answer) => answer.length().map(|rest| front + rest),
        }
    }

    /// The next piece, never empty; `None` after the last. A body that ends early, or that is too slow,
    /// ends with a fault.
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

    /// Reads until the end, or until there is more than `most`. What was read then comes first from
    /// [`ReplyBody::chunk`] again, so that a body too long to be looked at can still be passed on.
    ///
    /// # Errors
    /// The body ends early, or comes too slowly.
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
        // Most bodies are one piece, which is then not copied.
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
