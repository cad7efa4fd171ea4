//! Error of a fetch. The text names addresses; it is for the log and never for callers.

use crate::values::ByteSize;

/// Why a fetch failed. The text is for the log.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    /// The URL is denied.
    #[error("{url}: {why}")]
    Denied {
        /// The URL.
        url: String,
        /// What is wrong.
        why: String,
    },
    /// Connecting, TLS or HTTP failed, or the time limit passed.
    #[error("{url}: {why}")]
    Failed {
        /// The URL.
        url: String,
        /// The error, with its causes.
        why: String,
    },
    /// The body exceeds the size limit.
    #[error("{url}: the body is longer than {most}")]
    TooLarge {
        /// The URL.
        url: String,
        /// The limit.
        most: ByteSize,
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
    #[error("{url}: {why}")]
    Invalid {
        /// The URL.
        url: String,
        /// What is wrong.
        why: String,
    },
}
