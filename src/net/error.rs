//! Error of a fetch. The text names addresses; it is for the log and never for callers.

use crate::values::ByteSize;

/// Why a fetch failed. The text is for the log.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    /// The URL is denied.
    #[error("{url}: {reason}")]
    Denied {
        /// The URL.
        url: String,
        /// The reason.
        reason: String,
    },
    /// Connecting, TLS or HTTP failed, or the time limit passed.
    #[error("{url}: {reason}")]
    Failed {
        /// The URL.
        url: String,
        /// The error, with its causes.
        reason: String,
    },
    /// The body exceeds the size limit.
    #[error("{url}: the body is longer than {limit}")]
    TooLarge {
        /// The URL.
        url: String,
        /// The limit.
        limit: ByteSize,
    },
    /// The status is not 200.
    #[error("{url}: responded with status {status}")]
    Status {
        /// The URL.
        url: String,
        /// The status.
        status: u16,
    },
    /// The response is not the JSON that was expected.
    #[error("{url}: {reason}")]
    Invalid {
        /// The URL.
        url: String,
        /// The reason.
        reason: String,
    },
}
