//! Why the shared state gave no answer.

/// Why the shared state gave no answer. Whether the server applied the request is unknown, unless the error says it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StateError {
    /// The server did not answer in time.
    #[error("the server of the shared state did not answer in time")]
    Timeout,
    /// The server cannot be reached, or refused the request.
    #[error("{0}")]
    Failed(String),
    /// The server answers, and does not accept the content of the request. It applied nothing of it, and would refuse it
    /// again.
    #[error("{0}")]
    Refused(String),
    /// Nothing was sent, because the circuit breaker is open.
    #[error("the server of the shared state is unavailable")]
    Unavailable,
}
