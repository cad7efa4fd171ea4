//! The proof that a call was admitted, without which no call is sent.

use super::upstream_set::UpstreamSet;
use tokio::time::Instant;

/// Proof that a call was admitted. Only one type in `gateway` implements this trait, and only one function there
/// builds that type, so a call that was not admitted cannot be sent.
pub trait Admission: Sync {
    /// The upstream to call.
    fn upstream_set(&self) -> &UpstreamSet;

    /// The deadline of the call, all attempts included.
    fn deadline(&self) -> Instant;

    /// A hash of the caller's session, if it has one: all calls of a session go to one endpoint. See [`super::stable_hash`].
    fn session_hash(&self) -> Option<u64> {
        None
    }
}
