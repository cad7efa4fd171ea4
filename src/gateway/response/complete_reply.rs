//! A reply that was read completely.

use bytes::Bytes;
use http::{HeaderMap, StatusCode};

/// A reply that was read completely and validated.
#[derive(Debug)]
pub(in crate::gateway) struct CompleteReply {
    pub(in crate::gateway) status: StatusCode,
    /// The header fields as the agent sent them, or those of them that callers may receive.
    pub(in crate::gateway) headers: HeaderMap,
    pub(in crate::gateway) body: Bytes,
}
