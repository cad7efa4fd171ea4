//! The trait of a kind of transport: how calls reach one endpoint of one agent.

use super::{Bounds, Opened, Reply, Request};
use crate::fault::Fault;
use std::{fmt, num::NonZeroU32};
use tokio::time::Instant;

/// A transport to one endpoint, built when the agent's record is read.
#[async_trait::async_trait]
pub trait Way: fmt::Debug + Send + Sync {
    /// The timeouts in force for the agent.
    fn bounds(&self) -> &Bounds;

    /// The number of concurrent calls that the agent accepts, if the transport knows it; the configured bound for the
    /// agent takes precedence.
    fn at_once(&self) -> Option<NonZeroU32> {
        None
    }

    /// Whether the transport carries an instruction beside the input.
    fn takes_instructions(&self) -> bool {
        false
    }

    /// Whether the endpoint accepts connections now; `true` for transports that cannot tell.
    async fn reaches(&self) -> bool {
        true
    }

    /// Makes the call and waits for the beginning of the reply. Dropping the future, or the body of the reply, ends the
    /// call and releases its resources; a reply that arrives later is discarded.
    ///
    /// # Errors
    /// The endpoint cannot be reached, does not reply before `deadline`, or sends an invalid reply.
    async fn call(&self, request: Request<'_>, deadline: Instant) -> Result<Reply, Fault>;

    /// Whether [`Transport::open_websocket`] may open a WebSocket.
    fn has_socket(&self) -> bool {
        false
    }

    /// Opens the agent's own WebSocket. Returns `None` where the agent has no WebSocket and takes calls instead.
    ///
    /// # Errors
    /// The endpoint cannot be reached, or does not complete the handshake before `deadline`.
    async fn socket(&self, _: Request<'_>, _: Instant) -> Option<Result<Opened, Fault>> {
        None
    }
}
