//! The request body: counted, bounded in size and time, and not read before it is needed.

use super::listen::{self, Connection};
use crate::fault::{Code, Fault, Result};
use bytes::{Bytes, BytesMut};
use http::{HeaderMap, header};
use pingora_core::protocols::http::ServerSession;
use std::time::Instant;

/// The time bounds of a body: the connection's idle timeout between two reads, and a deadline for the whole body.
#[derive(Clone, Copy)]
pub(super) struct Pace<'a> {
    pub(super) connection: &'a Connection,
    pub(super) until: Instant,
}

/// A request body that is being read.
pub(super) struct Incoming<'a> {
    session: &'a mut ServerSession,
    pace: Pace<'a>,
    put_back: Option<Bytes>,
    continued: bool,
}

impl<'a> Incoming<'a> {
    pub(super) fn new(session: &'a mut ServerSession, pace: Pace<'a>) -> Self {
        Self { session, pace, put_back: None, continued: false }
    }

    pub(super) fn headers(&self) -> &HeaderMap {
        &self.session.req_header().headers
    }

    /// Returns whether the request has no body.
    pub(super) fn is_empty(&mut self) -> bool {
        self.put_back.is_none() && self.session.is_body_empty()
    }

    /// Returns `Content-Length`, which `hygiene` has validated.
    pub(super) fn length(&self) -> Option<u64> {
        let length = self.headers().get(header::CONTENT_LENGTH)?;
        length.to_str().ok()?.parse().ok()
    }

    /// Reads the next chunk; `None` at the end.
    pub(super) async fn chunk(&mut self) -> Result<Option<Bytes>> {
        if let Some(bytes) = self.put_back.take() {
            return Ok(Some(bytes));
        }
        if !std::mem::replace(&mut self.continued, true) {
            listen::expect_continue(self.session).await;
        }
        let chunk = listen::read_chunk(self.session, self.pace.connection, Some(self.pace.until.into())).await?;
        Ok(chunk)
    }

    /// Reads the first chunk that is not empty; returns an empty one if the body is empty.
    pub(super) async fn first(&mut self) -> Result<Bytes> {
        while let Some(bytes) = self.chunk().await? {
            if !bytes.is_empty() {
                return Ok(bytes);
            }
        }
        Ok(Bytes::new())
    }

    pub(super) fn put_back(&mut self, bytes: Bytes) {
        self.put_back = Some(bytes);
    }

    /// Reads the whole body, at most `most` bytes.
    ///
    /// # Errors
    /// `PayloadTooLarge`, before reading if `Content-Length` says so; `Timeout` with 408.
    pub(super) async fn whole(&mut self, most: usize) -> Result<Bytes> {
        let length = self.length().unwrap_or_default();
        if length > most as u64 {
            return Err(too_large(most));
        }
        let first = self.first().await?;
        if first.len() as u64 == length && length > 0 {
            return Ok(first);
        }
        let mut whole = BytesMut::with_capacity((length as usize).max(first.len()));
        whole.extend_from_slice(&first);
        while let Some(bytes) = self.chunk().await? {
            if whole.len() + bytes.len() > most {
                return Err(too_large(most));
            }
            whole.extend_from_slice(&bytes);
        }
        if whole.len() > most { Err(too_large(most)) } else { Ok(whole.freeze()) }
    }
}

/// The fault for a body of more than `most` bytes.
pub(super) fn too_large(most: usize) -> Fault {
    Fault::new(Code::PayloadTooLarge, format!("The body is too large (at most {most} bytes)"))
}
