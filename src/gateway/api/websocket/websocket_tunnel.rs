//! A tunnel between a caller's and an agent's WebSocket: frames pass as they are, with back-pressure in both directions.

use super::{
    authorization_check::AuthorizationCheck,
    frame_relay::{FrameRelay, RelayEnd},
    tunnel_end::{TunnelEnd, close_code_fault, close_frame_for_agent, close_frame_for_caller},
};
use crate::{
    fault::{Fault, FaultCode},
    gateway::{admission::Admitted, call::Call},
    http_server::UpgradedStream,
    limit::CountedWebSocket,
    transport::{TunnelHold, WebSocketError, WebSocketIo},
};
use std::{io::Cursor, pin::pin, sync::Arc, time::Duration};
use tokio::{
    io::{AsyncReadExt as _, ReadHalf, WriteHalf},
    time::{Instant, sleep_until, timeout},
};

/// How long a side has to close after the other.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);
/// The longest timer.
const MAX_TIMER: Duration = Duration::from_secs(3600);

type FromCaller = tokio::io::Chain<Cursor<Vec<u8>>, ReadHalf<Box<dyn UpgradedStream>>>;
type ToAgent = FrameRelay<FromCaller, WriteHalf<Box<dyn WebSocketIo>>>;
type ToCaller = FrameRelay<ReadHalf<Box<dyn WebSocketIo>>, WriteHalf<Box<dyn UpgradedStream>>>;

/// How long a tunnel may last.
#[derive(Clone, Copy)]
pub(super) struct TunnelLimits {
    /// Without a message in either direction.
    pub(super) idle_timeout: Duration,
    pub(super) expires_at: Instant,
    /// How long the agent may accept no data.
    pub(super) agent_write_timeout: Duration,
    /// How long the caller may accept no data.
    pub(super) caller_write_timeout: Duration,
}

/// A tunnel that is about to run.
pub(super) struct WebSocketTunnelTask {
    pub(super) call: Call,
    pub(super) authorization: AuthorizationCheck,
    pub(super) agent: Box<dyn WebSocketIo>,
    pub(super) limits: TunnelLimits,
    /// What the call holds until the tunnel ends: its permit, the agent's endpoint, and its place among WebSockets.
    pub(super) holds: (Admitted, TunnelHold, CountedWebSocket),
}

impl WebSocketTunnelTask {
    /// Relays until one side ends, closes both, and records the call.
    pub(super) async fn run(self, io: Box<dyn UpgradedStream>, read_ahead: Vec<u8>) {
        let Self { mut call, authorization, agent, limits, holds } = self;
        let (from_caller, to_caller) = tokio::io::split(io);
        let (from_agent, to_agent) = tokio::io::split(agent);
        let from_caller = Cursor::new(read_ahead).chain(from_caller);
        let mut tunnel = Tunnel {
            to_agent: FrameRelay::new(from_caller, to_agent, limits.agent_write_timeout),
            to_caller: FrameRelay::new(from_agent, to_caller, limits.caller_write_timeout),
            authorization,
            limits,
        };
        let caller = Arc::clone(tunnel.authorization.caller());
        let end = {
            let relay = pin!(tunnel.relay());
            caller.connection.until_cut_off(relay).await
        };
        let end = end.unwrap_or_else(|| TunnelEnd::CutOff(caller.gateway.cut_off_call()));
        tunnel.close(&end).await;
        (call.stats.bytes_in, call.stats.bytes_out) = (tunnel.to_agent.relayed(), tunnel.to_caller.relayed());
        call.state = end.into_call_state();
        drop(holds);
    }
}

/// An open tunnel.
struct Tunnel {
    to_agent: ToAgent,
    to_caller: ToCaller,
    authorization: AuthorizationCheck,
    limits: TunnelLimits,
}

/// What happens next in a tunnel.
enum TunnelEvent {
    FromCaller(Result<(), RelayEnd>),
    FromAgent(Result<(), RelayEnd>),
    Authorized,
    Unauthorized,
    Timer,
    Shutdown,
}

impl Tunnel {
    async fn relay(&mut self) -> TunnelEnd {
        let (mut last_message, mut message_bytes) = (Instant::now(), 0);
        let mut closing_since = None;
        loop {
            let now = Instant::now();
            if message_bytes != self.message_bytes() {
                (last_message, message_bytes) = (now, self.message_bytes());
            }
            if closing_since.is_none() && (self.to_agent.close().is_some() || self.to_caller.close().is_some()) {
                closing_since = Some(now);
            }
            if let Some(end) = self.end_by_time(now, last_message, closing_since) {
                return end;
            }
            let idle_at = last_message + self.limits.idle_timeout;
            // A check that is due already is under way, and needs no timer.
            let check_at = Some(self.authorization.due_at()).filter(|due_at| *due_at > now);
            let wake_at = check_at.into_iter().fold(idle_at.min(self.limits.expires_at), Instant::min);
            let closes_at = closing_since.map_or(now + MAX_TIMER, |since: Instant| since + CLOSE_TIMEOUT);
            let end = match self.next_event(wake_at.min(closes_at)).await {
                TunnelEvent::FromCaller(Ok(()))
                | TunnelEvent::FromAgent(Ok(()))
                | TunnelEvent::Authorized
                | TunnelEvent::Timer => continue,
                TunnelEvent::Shutdown => TunnelEnd::Shutdown,
                TunnelEvent::Unauthorized => TunnelEnd::Unauthorized,
                TunnelEvent::FromCaller(Err(end)) => self.end_from_caller(end).await,
                TunnelEvent::FromAgent(Err(end)) => self.end_from_agent(end),
            };
            return end;
        }
    }

    /// Relays one piece of either direction. Messages of the caller wait for a check that is due.
    async fn next_event(&mut self, wake_at: Instant) -> TunnelEvent {
        let Self { to_agent, to_caller, authorization, .. } = self;
        let caller = Arc::clone(authorization.caller());
        let message_waits = to_agent.has_pending() && authorization.is_due_for_message();
        let is_check_due = message_waits || authorization.due_at() <= Instant::now();
        let from_caller = async { if to_agent.has_pending() { to_agent.write().await } else { to_agent.read().await } };
        let from_agent = async {
            to_caller.read().await?;
            to_caller.write().await
        };
        // Not biased: neither direction may starve the other.
        tokio::select! {
            () = caller.connection.wait_for_shutdown() => TunnelEvent::Shutdown,
            checked = authorization.check(), if is_check_due => {
                checked.map_or(TunnelEvent::Unauthorized, |()| TunnelEvent::Authorized)
            }
            relayed = from_caller, if !message_waits => TunnelEvent::FromCaller(relayed),
            relayed = from_agent => TunnelEvent::FromAgent(relayed),
            () = sleep_until(wake_at) => TunnelEvent::Timer,
        }
    }

    fn message_bytes(&self) -> u64 {
        self.to_agent.message_bytes() + self.to_caller.message_bytes()
    }

    fn end_by_time(&self, now: Instant, last_message: Instant, closing_since: Option<Instant>) -> Option<TunnelEnd> {
        if closing_since.is_some_and(|since| now >= since + CLOSE_TIMEOUT) {
            return Some(TunnelEnd::Closed(self.agent_close_fault()));
        }
        if now >= last_message + self.limits.idle_timeout {
            return Some(TunnelEnd::Idle);
        }
        (now >= self.limits.expires_at).then_some(TunnelEnd::Expired)
    }

    fn agent_close_fault(&self) -> Option<Fault> {
        close_code_fault(self.to_caller.close().and_then(|close| close.get()))
    }

    /// Ends after the caller's last byte. What the agent still sends to a caller that closed is relayed.
    async fn end_from_caller(&mut self, end: RelayEnd) -> TunnelEnd {
        match end {
            RelayEnd::SourceEnded if self.to_agent.close().is_some() => {
                self.to_agent.shut_down().await;
                let rest =
                    async { while self.to_caller.read().await.is_ok() && self.to_caller.write().await.is_ok() {} };
                drop(timeout(CLOSE_TIMEOUT, rest).await);
                TunnelEnd::Closed(self.agent_close_fault())
            }
            RelayEnd::SourceEnded | RelayEnd::SourceLost(_) => TunnelEnd::CallerGone,
            RelayEnd::SinkLost if self.to_caller.close().is_some() => TunnelEnd::Closed(self.agent_close_fault()),
            RelayEnd::SinkLost => TunnelEnd::AgentFailed(agent_lost()),
            RelayEnd::SinkStalled => TunnelEnd::AgentFailed(WebSocketError::WriteTimeout.to_fault()),
        }
    }

    /// Ends after the agent's last byte.
    fn end_from_agent(&self, end: RelayEnd) -> TunnelEnd {
        match end {
            RelayEnd::SourceEnded | RelayEnd::SourceLost(_) if self.to_caller.close().is_some() => {
                TunnelEnd::Closed(self.agent_close_fault())
            }
            // A caller that closed may find that the agent hangs up without a close frame.
            RelayEnd::SourceEnded if self.to_agent.close().is_some() => TunnelEnd::Closed(None),
            RelayEnd::SourceEnded => TunnelEnd::AgentFailed(agent_lost()),
            RelayEnd::SourceLost(error) => TunnelEnd::AgentFailed(agent_lost().with_detail(error)),
            RelayEnd::SinkLost if self.to_agent.close().is_some() => TunnelEnd::Closed(None),
            RelayEnd::SinkLost => TunnelEnd::CallerGone,
            RelayEnd::SinkStalled => {
                TunnelEnd::CallerFailed(Fault::new(FaultCode::Timeout, "The caller does not read").with_status(408))
            }
        }
    }

    /// Closes both sides within [`CLOSE_TIMEOUT`]: a side that the end concerns gets a close frame after the frame that it
    /// is reading, and time to answer it. A side whose frame cannot be completed is cut off.
    async fn close(&mut self, end: &TunnelEnd) {
        let Self { to_agent, to_caller, .. } = self;
        let closing = async {
            let (for_caller, for_agent) = (end.reason_for_caller(), end.reason_for_agent());
            // An agent that is gone completes no frame.
            let cut_caller = matches!(end, TunnelEnd::AgentFailed(_)) && to_caller.is_inside_frame();
            let cut_agent =
                matches!(end, TunnelEnd::CallerGone | TunnelEnd::CallerFailed(_)) && to_agent.is_inside_frame();
            let close_caller = async {
                match for_caller {
                    Some(reason) if !cut_caller => to_caller.send_close(&close_frame_for_caller(reason)).await.is_ok(),
                    _ => false,
                }
            };
            let close_agent = async {
                match for_agent {
                    Some(reason) if !cut_agent => to_agent.send_close(&close_frame_for_agent(reason)).await.is_ok(),
                    _ => false,
                }
            };
            let (is_caller_told, is_agent_told) = tokio::join!(close_caller, close_agent);
            let drain_caller = async {
                if is_caller_told {
                    to_agent.drain_until_close().await;
                }
            };
            let drain_agent = async {
                if is_agent_told {
                    to_caller.drain_until_close().await;
                }
            };
            tokio::join!(drain_caller, drain_agent);
            tokio::join!(to_caller.shut_down(), to_agent.shut_down());
        };
        drop(timeout(CLOSE_TIMEOUT, closing).await);
    }
}

fn agent_lost() -> Fault {
    WebSocketError::Disconnected.to_fault()
}
