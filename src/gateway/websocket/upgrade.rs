//! The upgrade of a caller's connection to a WebSocket. The request takes the steps of any call, and a refusal is an
//! ordinary response; then the agent's own WebSocket is opened, if it has one, and the caller gets 101.

use super::{
    handshake::WebSocketHandshake,
    message_memory::MessageMemory,
    session_runner::{AgentWebSocket, SessionRunner},
    websocket_session::WebSocketSession,
};
use crate::{
    fault::{Fault, FaultCode},
    gateway::{
        admission::{AdmissionRecorder as _, AdmissionRequest, Admitted, AdmittedCall, CallSource, InputSource},
        call::{CallError, CallResult},
        call_parameters::headers_from_query,
        exchange::{Exchange, add_call_headers},
        header_names::AGENT_VERSION,
        operation_path::upstream_path,
        path_router::CallTarget,
        response::ReplyValidator,
        upstream::gateway_headers,
    },
    http_server::{ResponseHead, ServeOutcome, UpgradedConnection},
    idempotency::IDEMPOTENCY_KEY,
    transport::{HeaderMutations, RequestBody, UpstreamCall, UpstreamReply, WebSocketOutcome},
};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header, uri::PathAndQuery};
use std::{num::NonZeroU32, sync::Arc};
use tokio::time::Instant;

/// The target of an upgrade request, owned because the request head is borrowed.
pub(in crate::gateway) struct WebSocketTarget {
    agent: String,
    version: Option<String>,
    operation: Option<String>,
    may_be_agent: bool,
}

impl From<CallTarget<'_>> for WebSocketTarget {
    fn from(invoke: CallTarget<'_>) -> Self {
        let owned = |text: Option<&str>| text.map(str::to_owned);
        Self {
            agent: invoke.agent.to_owned(),
            version: owned(invoke.version),
            operation: owned(invoke.operation),
            may_be_agent: invoke.may_be_agent,
        }
    }
}

/// Handles an upgrade request (steps 5 to 11), and upgrades the connection.
pub(in crate::gateway) async fn upgrade_websocket(
    exchange: &mut Exchange<'_>,
    WebSocketTarget { agent, version, operation, may_be_agent }: WebSocketTarget,
) -> CallResult<ServeOutcome> {
    let Exchange { config, connection, .. } = *exchange;
    let head = exchange.session.head();
    let handshake = WebSocketHandshake::parse(head, &config.websockets, config.api_key_header.as_ref())?;
    let request = AdmissionRequest {
        source: CallSource::WebSocketHandshake,
        caller: connection.caller_context(&handshake.headers),
        target: CallTarget {
            agent: &agent,
            version: version.as_deref(),
            operation: operation.as_deref(),
            may_be_agent,
        },
        query: head.uri.query(),
        calls: NonZeroU32::MIN,
    };
    let admission = exchange.admission();
    let authorized = admission.authorize(exchange.call, &request).await?;
    let requested_version = authorized.requested_version().cloned();
    let names_operation = authorized.named_operation().is_some();
    let operation = request.target.operation_of(&authorized.route().agent).map(str::to_owned);
    let checked = admission.check_input(exchange.call, authorized, InputSource::None).await?;
    let client = checked.client();
    let counted =
        exchange.gateway.limits.count_websocket(&checked.route().limits, client, config.websockets.max_connections)?;
    let AdmittedCall { admitted, .. } = admission.admit(exchange.call, checked).await?;
    let forwarded = exchange.forwarded_header();
    // The messages of a WebSocket that names no operation may be for any: it opens at the endpoint.
    let operation_path = admitted.operation().path.as_ref().filter(|_| names_operation);
    let path = upstream_path(admitted.version(), operation_path);
    let target = AgentSocketTarget { path, headers: &handshake.headers, forwarded: &forwarded };
    let socket = open_agent_socket(exchange, &admitted, target).await?;
    admitted.stop_latency_tracking();
    let protocol = handshake.select_protocol(match &socket {
        Some(WebSocketOutcome::Open(socket)) => socket.subprotocol.clone(),
        _ => None,
    });
    let mut headers = switching_protocols_headers(&handshake.accept_key, protocol);
    add_call_headers(&mut headers, exchange.call, admitted.rate_limit_status());
    add_agent_headers(&mut headers, &admitted);
    // Without a WebSocket of the agent each message is a call, which acquires its own concurrency permit: the permit of
    // the handshake is released before the caller learns that it may send.
    let agent_socket = match socket {
        None => {
            drop(admitted);
            None
        }
        Some(WebSocketOutcome::Open(socket)) => Some(AgentWebSocket { socket, admitted }),
        Some(WebSocketOutcome::Refused(reply)) => {
            return Err(handshake_refusal(exchange, &admitted, *reply).await.into());
        }
    };
    let head = ResponseHead { status: StatusCode::SWITCHING_PROTOCOLS, headers };
    exchange.start_stream(head).await.map_err(|_| CallError::CallerGone)?;
    let session = WebSocketSession {
        gateway: Arc::clone(exchange.gateway),
        connection: Arc::clone(connection),
        call: exchange.call.hand_over(),
        headers: message_headers(handshake.headers, requested_version),
        forwarded,
        agent,
        version,
        operation,
        config: config.websockets.clone(),
        expires_at: Instant::now() + config.websockets.max_connection_age.get(),
        agent_close: None,
        message_memory: MessageMemory::new(exchange.gateway, client),
        _counted: counted,
    };
    let runner = SessionRunner { session, agent: agent_socket };
    Ok(ServeOutcome::Upgraded(UpgradedConnection::new(move |io, read_ahead| Box::pin(runner.run(io, read_ahead)))))
}

/// The handshake with the agent.
struct AgentSocketTarget<'a> {
    /// Path and query, if they differ from the endpoint's.
    path: Option<PathAndQuery>,
    headers: &'a HeaderMap,
    forwarded: &'a HeaderValue,
}

/// Opens the agent's own WebSocket, if the agent has one, while watching the caller.
async fn open_agent_socket(
    exchange: &mut Exchange<'_>,
    admitted: &Admitted,
    AgentSocketTarget { path, headers, forwarded }: AgentSocketTarget<'_>,
) -> CallResult<Option<WebSocketOutcome>> {
    let head = exchange.session.head();
    let from_query = headers_from_query(head.uri.query(), &head.headers);
    let gateway_headers: Vec<(HeaderName, HeaderValue)> =
        gateway_headers(exchange.call, admitted).chain(from_query).collect();
    let header_mutations = HeaderMutations {
        caller_headers: admitted.caller_headers(),
        ..exchange.config.header_mutations(forwarded, &gateway_headers)
    };
    let request = UpstreamCall {
        id: exchange.call.id(),
        operation: &admitted.operation().name,
        method: Method::GET,
        path,
        query: None,
        headers,
        body: RequestBody::Empty,
        header_mutations,
        instruction: None,
        metrics: Some(&admitted.agent_route().metrics),
        attempts: Some(exchange.call.stats.attempts()),
        trace: exchange.call.trace_scope(),
    };
    tokio::select! {
        biased;
        outcome = exchange.gateway.transport.open_websocket(admitted, request) => {
            Ok(outcome.map_err(|fault| admitted.deadline_timeout().name_in(fault))?)
        }
        () = exchange.session.wait_for_disconnect() => Err(CallError::CallerGone),
    }
}

/// Returns the fault for an agent's refusal of the handshake.
async fn handshake_refusal(exchange: &Exchange<'_>, admitted: &Admitted, mut reply: UpstreamReply) -> Fault {
    let contract_config = &exchange.config.contract;
    let validator = ReplyValidator { gateway: exchange.gateway, contract_config, admitted };
    let result = validator.read_complete(&mut reply).await;
    result.err().unwrap_or_else(|| Fault::new(FaultCode::AgentError, "The agent did not open a WebSocket"))
}

/// Returns the headers of every 101 response to a WebSocket handshake (RFC 6455 §4.2.2).
pub(in crate::gateway) fn switching_protocols_headers(accept_key: &str, protocol: Option<HeaderValue>) -> HeaderMap {
    let mut headers = HeaderMap::with_capacity(8);
    headers.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
    headers.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
    if let Ok(accept_key) = HeaderValue::from_str(accept_key) {
        headers.insert(header::SEC_WEBSOCKET_ACCEPT, accept_key);
    }
    if let Some(protocol) = protocol {
        headers.insert(header::SEC_WEBSOCKET_PROTOCOL, protocol);
    }
    headers
}

/// Adds the version that is called, and the headers of the agent.
fn add_agent_headers(headers: &mut HeaderMap, admitted: &Admitted) {
    let version = admitted.version().and_then(|version| version.label.clone());
    headers.extend(version.map(|version| (AGENT_VERSION, version)));
    for (name, value) in &admitted.agent_route().response_headers {
        headers.append(name, value.clone());
    }
}

/// Returns the headers of the handshake that apply to every message: the requested version as a header, and no
/// idempotency key, because one key cannot belong to several calls.
fn message_headers(mut headers: HeaderMap, version: Option<HeaderValue>) -> HeaderMap {
    headers.remove(IDEMPOTENCY_KEY);
    if let Some(version) = version {
        headers.insert(AGENT_VERSION, version);
    }
    headers
}
