//! WebSockets of callers (R43, R80, R82). An upgrade request is authenticated, authorised and limited like any call,
//! and a refusal is an ordinary response; only then is the connection upgraded. An agent with a WebSocket receives the
//! messages unchanged; for any other agent each message is a call. A WebSocket is one call in log and metrics, recorded
//! when it closes.

mod caller_message;
mod config;
mod handshake;
mod message_calls;
mod message_policy;
mod message_relay;
mod message_splitter;

pub use config::CallerWebSocketConfig;
pub(super) use handshake::is_websocket_request;

use super::{
    CallError, Gateway,
    admission::{Admitted, CallerContext},
    call::{Call, CallState},
    http_server::{self, CallerConnection, ServeOutcome, UpgradedConnection},
    input_validation,
    path_router::InvokeTarget,
    reply_validation::ReplyValidator,
    request_handler::{RequestContext, requested_host},
    request_head::{call_deadline, gateway_and_query_headers},
    requested_version,
    response_headers::{add_call_headers, response_head},
};
use crate::{
    fault::{Fault, FaultCode, Result},
    limit::RateLimitStatus,
    transport::{
        HeaderMutations, RequestBody, UpstreamCall, UpstreamReply, UpstreamWebSocket, WebSocketConnection,
        WebSocketError, WebSocketIo, WebSocketLimits, WebSocketOutcome, WebSocketPeer,
    },
};
use handshake::WebSocketHandshake;
use http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use pingora_core::protocols::http::ServerSession;
use pingora_http::RequestHeader;
use std::{sync::Arc, time::Duration};
use tokio::{task::JoinHandle, time::Instant};

/// The state of an open WebSocket.
pub(super) struct WebSocketSession {
    gateway: Arc<Gateway>,
    connection: Arc<CallerConnection>,
    call: Call,
    /// The credentials and the other headers of the handshake.
    headers: HeaderMap,
    forwarded: HeaderValue,
    agent: String,
    operation: Option<String>,
    config: CallerWebSocketConfig,
    expires_at: Instant,
    /// The task that closes the agent's side.
    agent_close: Option<JoinHandle<()>>,
}

/// Why a WebSocket session ends.
enum SessionEnd {
    /// One side closed in order, or a time limit was reached; with the close frame for the caller.
    Orderly(Option<(u16, &'static str)>),
    /// The caller's connection is lost.
    CallerLost(WebSocketError),
    /// The agent's connection is lost; the caller has been told.
    AgentLost(Fault),
}

impl RequestContext<'_> {
    /// Handles an upgrade request (steps 5 to 11), and upgrades the connection.
    pub(super) async fn upgrade_websocket(
        &self,
        session: &mut ServerSession,
        call: &mut Call,
        WebSocketTarget { agent, version, operation }: WebSocketTarget,
    ) -> std::result::Result<ServeOutcome, CallError> {
        let Self { gateway, config: world, connection } = self;
        let head = session.req_header().clone();
        let handshake = WebSocketHandshake::parse(&head, &world.websockets, world.api_key_header.as_ref())?;
        let headers = &handshake.headers;
        let shown =
            CallerContext { headers, peer: connection.client_identity(), address: connection.peer_address.ip() };
        let mut entry = gateway.authorize_and_acquire_permit(world, call, &agent, shown).await?;
        let named = input_validation::named_operation(&entry.authorized.route, operation.as_deref(), headers)?;
        let declared =
            head.uri.query().is_some() && requested_version::declares_version_input(&entry.authorized.route, named);
        let asked =
            requested_version::RequestedVersion::from_request(version.as_deref(), head.uri.query(), headers, declared)?;
        entry.authorized.version = entry.authorized.route.versions.select(&asked)?;
        let stated =
            entry.authorized.version.as_ref().filter(|_| asked.is_stated()).and_then(|version| version.label.clone());
        if let Some(operation) = named {
            call.set_operation(operation);
        }
        let until = call_deadline(call, &entry.authorized.route, headers)?;
        let standing = entry.authorized.rate_limit_status;
        let admitted = entry.admit(named.unwrap_or_default(), until);
        let forwarded = connection.forwarded_header(requested_host(&head));
        let opened = tokio::select! {
            biased;
            opened = self.open_agent_socket(call, &admitted, (&head, headers, &forwarded)) => opened?,
            () = http_server::wait_for_disconnect(session) => return Err(CallError::CallerGone),
        };
        admitted.stop_latency_tracking();
        let socket = match opened {
            None => None,
            Some(WebSocketOutcome::Open(socket)) => Some(socket),
            Some(WebSocketOutcome::Refused(reply)) => {
                return Err(self.handshake_refusal(&admitted, reply).await.into());
            }
        };
        let protocol = handshake.select_protocol(socket.as_ref().and_then(|socket| socket.subprotocol.clone()));
        self.write_switching_protocols(session, call, &admitted, (&handshake.accept_key, protocol, standing)).await?;
        let sitting = WebSocketSession {
            gateway: Arc::clone(gateway),
            connection: Arc::clone(connection),
            call: call.hand_over(),
            headers: message_headers(handshake.headers, stated),
            forwarded,
            agent,
            operation,
            config: world.websockets.clone(),
            expires_at: Instant::now() + world.websockets.max_connection_age.get(),
            agent_close: None,
        };
        // Without a WebSocket of the agent each message is a call, which acquires its own concurrency permit.
        let place = socket.map(|socket| (socket, admitted));
        Ok(ServeOutcome::Upgraded(UpgradedConnection::new(move |io, early| Box::pin(sitting.run(io, early, place)))))
    }

    /// Opens the agent's own WebSocket, if the agent has one.
    async fn open_agent_socket(
        &self,
        call: &Call,
        admitted: &Admitted,
        (head, headers, forwarded): (&RequestHeader, &HeaderMap, &HeaderValue),
    ) -> Result<Option<WebSocketOutcome>> {
        let fields = gateway_and_query_headers(call, admitted, head);
        let request = UpstreamCall {
            id: call.id(),
            operation: &admitted.operation().name,
            method: Method::GET,
            path: admitted.version().and_then(|version| version.path.clone()),
            headers,
            body: RequestBody::Empty,
            header_mutations: HeaderMutations {
                forwarded: Some(forwarded),
                api_key_header: self.config.api_key_header.as_ref(),
                set: &fields,
            },
            instruction: None,
        };
        self.gateway.transport.open_websocket(admitted, request).await
    }

    /// Returns the fault for an agent's refusal of the handshake.
    async fn handshake_refusal(&self, admitted: &Admitted, mut reply: UpstreamReply) -> Fault {
        let judge = ReplyValidator { gateway: self.gateway, contract_config: &self.config.contract, admitted };
        let passed = judge.read_complete(&mut reply).await;
        passed.err().unwrap_or_else(|| Fault::new(FaultCode::AgentError, "The agent did not open a WebSocket"))
    }

    /// Writes the 101 response, after which the connection no longer carries HTTP.
    async fn write_switching_protocols(
        &self,
        session: &mut ServerSession,
        call: &Call,
        admitted: &Admitted,
        (accept, protocol, standing): (&str, Option<HeaderValue>, Option<RateLimitStatus>),
    ) -> std::result::Result<(), CallError> {
        let mut headers = HeaderMap::with_capacity(8);
        headers.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
        headers.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
        if let Ok(accept) = HeaderValue::from_str(accept) {
            headers.insert(header::SEC_WEBSOCKET_ACCEPT, accept);
        }
        if let Some(protocol) = protocol {
            headers.insert(header::SEC_WEBSOCKET_PROTOCOL, protocol);
        }
        add_call_headers(&mut headers, call, standing.as_ref());
        let version = admitted.version().and_then(|version| version.label.clone());
        headers.extend(version.map(|version| (requested_version::AGENT_VERSION_HEADER, version)));
        for (name, value) in &admitted.agent_route().response_headers {
            headers.append(name, value.clone());
        }
        http_server::disable_write_buffering(session);
        session.set_write_timeout(Some(self.connection.limits.body_idle_timeout.get()));
        let head = response_head(StatusCode::SWITCHING_PROTOCOLS, headers);
        session.write_response_header(Box::new(head)).await.map_err(|_| CallError::CallerGone)
    }
}

impl WebSocketSession {
    /// Runs the session until it ends, and records how it ended.
    async fn run(
        mut self,
        io: Box<dyn WebSocketIo>,
        early: Vec<u8>,
        agent: Option<(Box<UpstreamWebSocket>, Admitted)>,
    ) {
        let bounds = WebSocketLimits {
            max_message: self.config.max_message_size.get(),
            ping_interval: self.config.ping_interval.get(),
            pong_timeout: self.config.pong_timeout.get(),
            write_timeout: self.connection.limits.body_idle_timeout.get(),
        };
        let mut caller = WebSocketConnection::new(io, WebSocketPeer::Caller, early, bounds).await;
        let end = match agent {
            Some((socket, admitted)) => self.relay(&mut caller, *socket, &admitted).await,
            None => self.serve_messages(&mut caller).await,
        };
        (self.call.stats.bytes_in, self.call.stats.bytes_out) = (caller.received_bytes, caller.sent_bytes);
        let (stage, farewell) = match end {
            SessionEnd::Orderly(farewell) => (CallState::Answered(101), farewell),
            SessionEnd::CallerLost(WebSocketError::Disconnected) => (CallState::CallerGone(101), None),
            SessionEnd::CallerLost(lost) => {
                (CallState::FailedMidResponse(101, caller_fault(&lost)), lost.close_frame())
            }
            SessionEnd::AgentLost(fault) => {
                (CallState::FailedMidResponse(101, fault), Some((1011, "The agent failed")))
            }
        };
        self.call.state = stage;
        caller.close(farewell).await;
        if let Some(parting) = self.agent_close.take()
            && self.connection.is_draining()
        {
            // The process is about to exit: wait until the agent's side is closed too.
            drop(parting.await);
        }
    }

    /// Returns when the session ends by idle timeout or lifetime, and the close frame for that.
    fn session_deadline(&self, last_message: Instant) -> (Instant, (u16, &'static str)) {
        let idle = last_message + self.config.idle_timeout.get();
        if idle < self.expires_at {
            (idle, (1001, "Idle timeout"))
        } else {
            (self.expires_at, (1001, "Lifetime exceeded"))
        }
    }
}

/// The close frame for callers when the gateway shuts down.
const GOING_AWAY: (u16, &str) = (1001, "The gateway is shutting down");

/// The longest timer, in case the clock is set far ahead.
const MAX_TIMER: Duration = Duration::from_secs(3600);

/// Returns the fault for the log when a caller's connection was lost by the caller's doing.
fn caller_fault(lost: &WebSocketError) -> Fault {
    let code = match lost {
        WebSocketError::TooLarge => FaultCode::PayloadTooLarge,
        WebSocketError::PingTimeout | WebSocketError::WriteTimeout => {
            return Fault::new(FaultCode::Timeout, "The caller did not answer").with_status(408);
        }
        _ => FaultCode::InvalidInput,
    };
    Fault::new(code, "The caller violated the WebSocket protocol").with_detail(format_args!("{lost:?}"))
}

/// The target of an upgrade request, owned because the request head is borrowed.
pub(super) struct WebSocketTarget {
    agent: String,
    version: Option<String>,
    operation: Option<String>,
}

impl From<&InvokeTarget<'_>> for WebSocketTarget {
    fn from(invoke: &InvokeTarget<'_>) -> Self {
        let owned = |text: Option<&str>| text.map(str::to_owned);
        Self { agent: invoke.agent.to_owned(), version: owned(invoke.version), operation: owned(invoke.operation) }
    }
}

/// Returns the headers of the handshake that apply to every message: the requested version as a header, and no
/// idempotency key, because one key cannot belong to several calls.
fn message_headers(mut headers: HeaderMap, version: Option<HeaderValue>) -> HeaderMap {
    headers.remove("idempotency-key");
    if let Some(version) = version {
        headers.insert(requested_version::AGENT_VERSION_HEADER, version);
    }
    headers
}

#[cfg(test)]
mod tests;
