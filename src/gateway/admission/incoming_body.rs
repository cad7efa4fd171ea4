//! The request body: bounded in size and time, and not read before it is needed.

use super::{body_account::BodyAccount, body_bound::BodyBound, incoming_request::IncomingRequest};
use crate::{fault::Result, limit::MemoryReservation};
use bytes::Bytes;
use http::{HeaderMap, header};
use std::time::Instant;

/// Minimum capacity in bytes of a body that arrives in several pieces.
const MIN_CAPACITY: usize = 8 << 10;

/// A buffered body, and the memory that it uses: returned when the last part of the body is dropped.
struct BufferedBody {
    bytes: Vec<u8>,
    max_capacity: usize,
    reservation: MemoryReservation,
}

impl BufferedBody {
    fn new(reservation: MemoryReservation, max_capacity: usize) -> Self {
        Self { bytes: Vec::new(), max_capacity, reservation }
    }

    /// Appends bytes. The capacity grows with what arrives, because a caller may declare a length and send nothing:
    /// it doubles, to at most the declared length or the bound. All of it is charged to the caller.
    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        let needed = self.bytes.len() + bytes.len();
        if needed > self.bytes.capacity() {
            let doubled = (2 * self.bytes.capacity()).max(MIN_CAPACITY);
            let capacity = doubled.min(self.max_capacity).max(needed);
            self.reservation.grow_to(capacity)?;
            self.bytes.reserve_exact(capacity - self.bytes.len());
        }
        self.bytes.extend_from_slice(bytes);
        Ok(())
    }
}

impl AsRef<[u8]> for BufferedBody {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// A request body that is being read: with the connection's idle timeout between two reads, and a deadline for the
/// whole body.
pub(in crate::gateway) struct IncomingBody<'a> {
    request: IncomingRequest<'a>,
    deadline: Instant,
    unread: Option<Bytes>,
    continue_sent: bool,
}

impl<'a> IncomingBody<'a> {
    pub(in crate::gateway) fn new(request: impl Into<IncomingRequest<'a>>, deadline: Instant) -> Self {
        Self { request: request.into(), deadline, unread: None, continue_sent: false }
    }

    pub(in crate::gateway) fn deadline(&self) -> Instant {
        self.deadline
    }

    pub(in crate::gateway) fn headers(&self) -> &HeaderMap {
        &self.request.head().headers
    }

    /// Returns whether the request has no body.
    pub(in crate::gateway) fn detect_empty(&mut self) -> bool {
        self.unread.is_none() && self.request.detect_empty_body()
    }

    /// Returns `Content-Length`, which `request_validation` has validated.
    pub(in crate::gateway) fn content_length(&self) -> Option<u64> {
        let length = self.headers().get(header::CONTENT_LENGTH)?;
        length.to_str().ok()?.parse().ok()
    }

    /// Reads the next chunk; `None` at the end.
    pub(in crate::gateway) async fn chunk(&mut self) -> Result<Option<Bytes>> {
        if let Some(bytes) = self.unread.take() {
            return Ok(Some(bytes));
        }
        if !std::mem::replace(&mut self.continue_sent, true) {
            self.request.send_continue_if_expected().await;
        }
        self.request.read_body_chunk(self.deadline).await
    }

    /// Reads the first chunk that is not empty; returns an empty one if the body is empty.
    pub(in crate::gateway) async fn first_chunk(&mut self) -> Result<Bytes> {
        while let Some(bytes) = self.chunk().await? {
            if !bytes.is_empty() {
                return Ok(bytes);
            }
        }
        Ok(Bytes::new())
    }

    pub(in crate::gateway) fn unread(&mut self, bytes: Bytes) {
        self.unread = Some(bytes);
    }

    /// Reads the whole body, within `bound`. A body that arrives in one piece is not charged to the account.
    ///
    /// # Errors
    /// `PayloadTooLarge`, before reading if `Content-Length` says so; `Timeout` with 408; 429 or 503 if the bodies of
    /// the client, or of all, take too much memory.
    pub(in crate::gateway) async fn read_complete(
        &mut self,
        bound: BodyBound,
        account: BodyAccount<'_>,
    ) -> Result<Bytes> {
        let max_bytes = bound.max_bytes();
        let declared_length = self.content_length();
        if declared_length.is_some_and(|length| length > max_bytes as u64) {
            return Err(bound.exceeded());
        }
        let first = self.first_chunk().await?;
        if !first.is_empty() && Some(first.len() as u64) == declared_length {
            return Ok(first);
        }
        let max_capacity = declared_length.map_or(max_bytes, |length| length as usize);
        let mut body = BufferedBody::new(account.limits.reserve_body(account.client), max_capacity);
        let mut next = Some(first);
        while let Some(bytes) = next {
            if body.bytes.len() + bytes.len() > max_bytes {
                return Err(bound.exceeded());
            }
            body.append(&bytes)?;
            next = self.chunk().await?;
        }
        if body.bytes.is_empty() {
            return Ok(Bytes::new());
        }
        Ok(Bytes::from_owner(body))
    }
}
