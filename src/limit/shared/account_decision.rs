//! What an account of a limit decides about a call.

use std::time::Duration;

/// What an account decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AccountDecision {
    /// The tokens are spent; as many remain.
    Granted { remaining: u64 },
    /// There are fewer tokens. `retry_after` is the time until there are enough, unless there never are.
    Refused { remaining: u64, retry_after: Option<Duration> },
    /// Only the server knows.
    Undecided,
}
