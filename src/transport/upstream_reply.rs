//! The reply of an upstream: its head, and a body that is read in chunks at the reader's pace.

use super::{circuit_breaker::InFlightGuard, http::HttpReplyBody, timeouts::CallTimeout};
use crate::{
    fault::Fault,
    trace::ActiveSpan,
    values::{FailureRedactor, FailureUnit},
};
use bytes::{Bytes, BytesMut};
use http::{HeaderMap, StatusCode};
use tokio::sync::mpsc;

/// An agent's reply.
#[derive(Debug)]
pub struct UpstreamReply {
    /// The status, 200 to 599.
    pub status: StatusCode,
    /// The header fields as the agent sent them; [`super::filter_reply_headers`] selects those for the caller.
    pub headers: HeaderMap,
    /// The body.
    pub body: ReplyBody,
    /// Whether the request carried a credential of the gateway.
    pub credential_sent: bool,
}

/// The body of a reply. Dropping it before its end cancels the exchange with the agent.
#[derive(Debug)]
pub struct ReplyBody {
    /// Bytes that were peeked at and are returned again.
    peeked: Option<Bytes>,
    source: ReplySource,
    /// Counts the call as in flight at its endpoint until the body ends.
    in_flight: Option<InFlightGuard>,
    /// The span of the call to the agent, which ends with the body.
    span: Option<Box<ActiveSpan>>,
    /// What bounds the time of the call, for the fault of a body that takes longer.
    deadline_timeout: Option<CallTimeout>,
    /// Removes the gateway's secrets from the failures in a body that is forwarded as it arrives.
    redactor: Option<Box<FailureRedactor>>,
}

#[derive(Debug)]
enum ReplySource {
    None,
    Channel(mpsc::Receiver<Result<Bytes, Fault>>),
    Http(Box<HttpReplyBody>),
}

/// The beginning of a body, and whether the body is complete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BodyPrefix {
    /// The bytes read.
    pub bytes: Bytes,
    /// Whether the body ends here.
    pub complete: bool,
}

impl ReplyBody {
    /// Creates a body from a channel of non-empty chunks and at most one fault, at the end. The sender bounds the time
    /// of each chunk, and stops when the receiver is dropped.
    pub fn from_channel(chunks: mpsc::Receiver<Result<Bytes, Fault>>) -> Self {
        Self {
            peeked: None,
            source: ReplySource::Channel(chunks),
            in_flight: None,
            span: None,
            deadline_timeout: None,
            redactor: None,
        }
    }

    /// Counts the call as in flight until the body is dropped.
    pub(super) fn hold_in_flight(&mut self, in_flight: InFlightGuard) {
        self.in_flight = Some(in_flight);
    }

    /// Ends the span when the body ends. A body that is dropped before its end is one that nobody waits for.
    pub fn hold_span(&mut self, span: ActiveSpan) {
        self.span = span.scope().is_sampled().then(|| Box::new(span));
    }

    /// Sets what bounds the time of the call, which a fault of the body then names.
    pub fn set_deadline_timeout(&mut self, timeout: CallTimeout) {
        self.deadline_timeout = Some(timeout);
    }

    /// Removes the gateway's secrets from the failures in this body, which consists of such units.
    pub fn redact_failures(&mut self, unit: FailureUnit) {
        let mut redactor = FailureRedactor::new(unit);
        if matches!(self.source, ReplySource::None) {
            let whole = self.peeked.take().map(|whole| [redactor.push(whole), redactor.finish()].concat());
            self.peeked = whole.map(Bytes::from);
        } else {
            self.redactor = Some(Box::new(redactor));
        }
    }

    /// The number of bytes that remain, if the agent declared the length. A body that loses secrets has none.
    pub fn length(&self) -> Option<u64> {
        if self.redactor.is_some() {
            return None;
        }
        let peeked = self.peeked.as_ref().map_or(0, |bytes| bytes.len() as u64);
        match &self.source {
            ReplySource::None => Some(peeked),
            ReplySource::Channel(_) => None,
            ReplySource::Http(body) if body.is_finished() => Some(peeked),
            ReplySource::Http(body) => body.length().map(|rest| peeked + rest),
        }
    }

    /// Returns the next chunk, never empty; `None` after the last. A body that is truncated or too slow ends with a
    /// fault.
    pub async fn next_chunk(&mut self) -> Option<Result<Bytes, Fault>> {
        if let Some(peeked) = self.peeked.take() {
            return Some(Ok(peeked));
        }
        if self.redactor.is_none() {
            return self.next_agent_chunk().await;
        }
        loop {
            let chunk = self.next_agent_chunk().await;
            let redactor = self.redactor.as_mut()?;
            let redacted = match chunk {
                Some(Ok(chunk)) => redactor.push(chunk),
                // Half an event is not passed on.
                Some(Err(fault)) => return Some(Err(fault)),
                None => return Some(redactor.finish()).filter(|rest| !rest.is_empty()).map(Ok),
            };
            if !redacted.is_empty() {
                return Some(Ok(redacted));
            }
        }
    }

    async fn next_agent_chunk(&mut self) -> Option<Result<Bytes, Fault>> {
        let chunk = match &mut self.source {
            ReplySource::None => None,
            ReplySource::Channel(chunks) => chunks.recv().await,
            ReplySource::Http(body) => body.next_chunk().await,
        };
        if self.span.is_some() {
            self.end_span(chunk.as_ref());
        }
        match (chunk, self.deadline_timeout) {
            (Some(Err(fault)), Some(timeout)) => Some(Err(timeout.name_in(fault))),
            (chunk, _) => chunk,
        }
    }

    /// Ends the span after the last chunk.
    fn end_span(&mut self, chunk: Option<&Result<Bytes, Fault>>) {
        let is_last = match (chunk, &self.source) {
            (Some(Ok(_)), ReplySource::Http(body)) => body.is_finished(),
            (Some(Ok(_)), _) => false,
            (Some(Err(_)) | None, _) => true,
        };
        if let Some(span) = self.span.take_if(|_| is_last) {
            match chunk {
                Some(Err(fault)) => span.fail(fault.code().row().name),
                _ => span.finish(),
            }
        }
    }

    /// Reads to the end, or until more than `max_bytes` are read. [`ReplyBody::next_chunk`] returns these bytes again,
    /// so that a body too long for inspection can still be forwarded.
    ///
    /// # Errors
    /// The body is truncated, or too slow.
    pub async fn peek(&mut self, max_bytes: usize) -> Result<BodyPrefix, Fault> {
        let Some(first) = self.next_chunk().await.transpose()? else {
            return Ok(BodyPrefix { bytes: Bytes::new(), complete: true });
        };
        if first.len() > max_bytes {
            self.peeked = Some(first.clone());
            return Ok(BodyPrefix { bytes: first, complete: false });
        }
        let mut complete = true;
        let mut bytes = first;
        // Most bodies are one chunk, which is then not copied.
        if let Some(second) = self.next_chunk().await.transpose()? {
            let mut all = BytesMut::with_capacity((bytes.len() + second.len()).next_power_of_two());
            all.extend_from_slice(&bytes);
            all.extend_from_slice(&second);
            while all.len() <= max_bytes {
                let Some(more) = self.next_chunk().await.transpose()? else {
                    break;
                };
                all.extend_from_slice(&more);
            }
            complete = all.len() <= max_bytes;
            bytes = all.freeze();
        }
        self.peeked = Some(bytes.clone());
        Ok(BodyPrefix { bytes, complete })
    }
}

impl From<HttpReplyBody> for ReplyBody {
    fn from(body: HttpReplyBody) -> Self {
        Self {
            peeked: None,
            source: ReplySource::Http(Box::new(body)),
            in_flight: None,
            span: None,
            deadline_timeout: None,
            redactor: None,
        }
    }
}

impl From<Bytes> for ReplyBody {
    fn from(bytes: Bytes) -> Self {
        Self {
            peeked: Some(bytes).filter(|bytes| !bytes.is_empty()),
            source: ReplySource::None,
            in_flight: None,
            span: None,
            deadline_timeout: None,
            redactor: None,
        }
    }
}
