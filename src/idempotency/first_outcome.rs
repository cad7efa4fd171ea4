//! Outcome of the first call with a key.

use crate::fault::Fault;
use bytes::Bytes;
use http::{HeaderMap, StatusCode};

/// Outcome of the first call.
#[derive(Clone, Debug)]
pub enum FirstOutcome {
    /// A complete response.
    Response {
        /// HTTP status.
        status: StatusCode,
        /// Headers, as the caller received them.
        headers: HeaderMap,
        /// Body.
        body: Bytes,
    },
    /// A failure after which the agent may have executed the call.
    Failed(Fault),
    /// The response was a stream, or too large to be stored.
    NotStored,
    /// The gateway that made the call stopped, or lost its claim, before it stored an outcome: the agent may have executed
    /// the call.
    Unknown,
}

impl FirstOutcome {
    /// Returns the size of a response's headers and body, in bytes; 0 for the other outcomes.
    pub fn response_size(&self) -> usize {
        match self {
            Self::Response { headers, body, .. } => {
                headers.iter().map(|(name, value)| name.as_str().len() + value.len()).sum::<usize>() + body.len()
            }
            Self::Failed(_) | Self::NotStored | Self::Unknown => 0,
        }
    }
}
