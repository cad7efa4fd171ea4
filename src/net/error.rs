//! Error of a fetch. The text names addresses; it is for the log and never for callers.

use crate::values::{ByteSize, redact_known_secrets, shown_url};

/// Why a fetch failed. The text is for the log.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    /// The URL is denied.
    #[error("{}: {}", shown_url(.url), redact_known_secrets(.reason))]
    Denied {
        /// The URL.
        url: String,
        /// The reason.
        reason: String,
    },
    /// Connecting, TLS or HTTP failed, or the time limit passed.
    #[error("{}: {}", shown_url(.url), redact_known_secrets(.reason))]
    Failed {
        /// The URL.
        url: String,
        /// The error, with its causes.
        reason: String,
    },
    /// The body exceeds the size limit.
    #[error("{}: the body is longer than {limit}", shown_url(.url))]
    TooLarge {
        /// The URL.
        url: String,
        /// The limit.
        limit: ByteSize,
    },
    /// The status is not 200.
    #[error("{}: responded with status {status}", shown_url(.url))]
    Status {
        /// The URL.
        url: String,
        /// The status.
        status: u16,
    },
    /// The response is not the JSON that was expected.
    #[error("{}: {}", shown_url(.url), redact_known_secrets(.reason))]
    Invalid {
        /// The URL.
        url: String,
        /// The reason.
        reason: String,
    },
}
