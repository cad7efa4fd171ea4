//! What a kind of transport is: one agent, and how a call reaches it.

use super::{Bounds, Opened, Reply, Request};
use crate::fault::Fault;
use std::{fmt, num::NonZeroU32};
use tokio::time::Instant;

/// A way to one agent, worked out when its record was read.
#[async_trait::async_trait]
pub trait Way: fmt::Debug + Send + Sync {
    /// The agent's bounds in time.
    fn bounds(&self) -> &Bounds;

    /// How many calls the agent takes at once, where its kind of transport knows; the configuration's word for this very
    /// agent comes first.
    fn at_once(&self) -> Option<NonZeroU32> {
        None
    }

    /// Makes the call and waits for the beginning of the answer. Dropping this, or the body of the reply, ends the
    /// call: whatever is kept for it goes, and an answer that comes later reaches nobody.
    ///
    /// # Errors
    /// The agent cannot be reached, does not answer before `deadline`, or answers what is no answer.
    async fn call(&self, request: Request<'_>, deadline: Instant) -> Result<Reply, Fault>;

    /// Whether [`Way::socket`] may open anything.
    fn has_socket(&self) -> bool {
        false
    }

    /// Opens the agent's own WebSocket for a caller who has one. `None`: the agent has none, and takes calls.
    ///
    /// # Errors
    /// The agent cannot be reached, or does not shake hands before `deadline`.
    async fn socket(&self, _: Request<'_>, _: Instant) -> Option<Result<Opened, Fault>> {
        None
    }
}
