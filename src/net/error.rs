//! Why a fetch brought nothing usable. For the log: it names addresses, and callers never see it.

use crate::unit::Size;

/// Why nothing usable came back. For the log.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    /// The address may not be fetched from at all.
    #[error("{url}: {why}")]
    Refused {
        /// The address.
        url: String,
        /// What would be right.
        why: String,
    },
    /// Connecting, TLS, HTTP or the time bound.
    #[error("{url}: {why}")]
    Failed {
        /// The address.
        url: String,
        /// What went wrong, with its causes.
        why: String,
    },
    /// The body is longer than asked for.
    #[error("{url}: the body is longer than {most}")]
    TooLong {
        /// The address.
        url: String,
        /// The bound.
        most: Size,
    },
    /// Another status than 200.
    #[error("{url}: answered {status}")]
    Status {
        /// The address.
        url: String,
        /// The status.
        status: u16,
    },
    /// Not the JSON that was expected.
    #[error("{url}: {why}")]
    Unreadable {
        /// The address.
        url: String,
        /// What is wrong with it.
        why: String,
    },
}
