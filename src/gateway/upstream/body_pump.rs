//! The caller's body on its way to the agent, and the watch over the caller while the agent works.

use crate::{
    gateway::{
        admission::{BodyBound, IncomingBody},
        call::{CallError, CallResult},
    },
    http_server::{CallerSignal, HttpSession},
    transport::BodySender,
};
use bytes::Bytes;
use std::time::{Duration, Instant};

/// How long a caller may be half-closed before it is probed.
const PROBE_DELAY: Duration = Duration::from_secs(1);

/// Sends the caller's body to the agent, with back-pressure; after the body it watches whether the caller is still
/// connected.
pub(in crate::gateway) struct BodyPump {
    outgoing: Option<OutgoingBody>,
    caller_state: CallerState,
}

/// A body that has not been sent completely.
struct OutgoingBody {
    sender: BodySender,
    /// When the body must have arrived.
    deadline: Instant,
    pending: Option<PendingPart>,
    /// The bytes that the body may still have within its bound.
    remaining: usize,
    bound: BodyBound,
}

/// The part of the body that was read from the caller and not yet sent.
enum PendingPart {
    Chunk(Bytes),
    End,
}

/// The state of the caller's connection after the whole body was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CallerState {
    Connected,
    /// The caller has closed its sending side: it awaits the response, or has disconnected.
    HalfClosed,
    /// A half-closed caller was probed: a reset will show if it has disconnected.
    Probed,
}

impl BodyPump {
    /// Returns a pump without a body.
    pub(in crate::gateway) fn without_body() -> Self {
        Self { outgoing: None, caller_state: CallerState::Connected }
    }

    /// Returns a pump that sends `first`, which has been read, and the rest of the body: within `bound`, all of
    /// them before `deadline`.
    ///
    /// # Errors
    /// `PayloadTooLarge`, if `first` is larger.
    pub(super) fn streaming(sender: BodySender, first: Bytes, bound: BodyBound, deadline: Instant) -> CallResult<Self> {
        let Some(remaining) = bound.max_bytes().checked_sub(first.len()) else {
            return Err(bound.exceeded().into());
        };
        let pending = (!first.is_empty()).then_some(PendingPart::Chunk(first));
        let outgoing = OutgoingBody { sender, deadline, pending, remaining, bound };
        Ok(Self { outgoing: Some(outgoing), caller_state: CallerState::Connected })
    }

    /// Reads or sends one chunk. Cancel-safe. An agent that stops reading is not a failure here: its reply states why.
    pub(in crate::gateway) async fn advance(&mut self, session: &mut HttpSession) -> CallResult<()> {
        let Some(outgoing) = &mut self.outgoing else {
            return self.watch_caller(session).await;
        };
        if outgoing.pending.is_none() {
            return outgoing.read_part(session).await;
        }
        if !outgoing.send_pending().await {
            self.outgoing = None;
        }
        Ok(())
    }

    /// Watches a caller that has sent its whole body.
    async fn watch_caller(&mut self, session: &mut HttpSession) -> CallResult<()> {
        self.caller_state = match self.caller_state {
            CallerState::Connected => match session.wait_for_caller_signal().await {
                CallerSignal::Disconnected => return Err(CallError::CallerGone),
                CallerSignal::HalfClosed => CallerState::HalfClosed,
            },
            CallerState::HalfClosed => {
                tokio::select! {
                    () = session.wait_for_disconnect() => return Err(CallError::CallerGone),
                    () = tokio::time::sleep(PROBE_DELAY) => {}
                }
                session.probe_caller().await;
                CallerState::Probed
            }
            CallerState::Probed => {
                session.wait_for_disconnect().await;
                return Err(CallError::CallerGone);
            }
        };
        Ok(())
    }

    /// Returns whether the caller has half-closed its side, so that it may have left.
    pub(in crate::gateway) fn is_caller_half_closed(&self) -> bool {
        self.caller_state != CallerState::Connected
    }

    /// Returns whether the whole body was sent.
    pub(in crate::gateway) fn is_body_sent(&self) -> bool {
        self.outgoing.is_none()
    }
}

impl OutgoingBody {
    async fn read_part(&mut self, session: &mut HttpSession) -> CallResult<()> {
        self.pending = match IncomingBody::new(session, self.deadline).chunk().await? {
            None => Some(PendingPart::End),
            Some(bytes) if bytes.len() > self.remaining => return Err(self.bound.exceeded().into()),
            Some(bytes) => {
                self.remaining -= bytes.len();
                (!bytes.is_empty()).then_some(PendingPart::Chunk(bytes))
            }
        };
        Ok(())
    }

    /// Sends the pending part; returns whether more of the body may follow.
    async fn send_pending(&mut self) -> bool {
        if self.sender.wait_for_capacity().await.is_err() {
            return false;
        }
        if let Some(PendingPart::Chunk(bytes)) = self.pending.take() {
            self.sender.send_reserved(bytes);
            true
        } else {
            self.sender.finish_reserved();
            false
        }
    }
}
