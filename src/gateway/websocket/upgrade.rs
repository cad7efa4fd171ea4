//! The upgrade of a caller's connection to a WebSocket. The request takes the steps of any call, and a refusal is an
//! ordinary response; then the agent's own WebSocket is opened, if it has one, and the caller gets 101.

use super::{WebSocketSession, handshake::WebSocketHandshake};
use crate::{
    fault::{Fault, FaultCode, Result},
    gateway::{
        CallError,
        admission::{Admitted, CallerContext},
        call::Call,
        http_server::{self, ServeOutcome, UpgradedConnection},
        input_validation,
        path_router::InvokeTarget,
        reply_validation::ReplyValidator,
        request_handler::{RequestContext, requested_host},
        request_head::{call_deadline, gateway_and_query_headers},
        requested_version::{self, AGENT_VERSION_HEADER, RequestedVersion},
        response_headers::{add_call_headers, response_head},
    },
    transport::{HeaderMutations, RequestBody, UpstreamCall, UpstreamReply, WebSocketOutcome},
};
use http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use pingora_core::protocols::http::ServerSession;
use std::sync::Arc;
use tokio::time::Instant;

/// The target of an upgrade request, owned because the request head is borrowed.
pub(in crate::gateway) struct WebSocketTarget {
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

impl RequestContext<'_> {
    /// Handles an upgrade request (steps 5 to 11), and upgrades the connection.
    pub(in crate::gateway) async fn upgrade_websocket(
        &self,
        session: &mut ServerSession,
        call: &mut Call,
        WebSocketTarget { agent, version, operation }: WebSocketTarget,
    ) -> std::result::Result<ServeOutcome, CallError> {
        let Self { gateway, config, connection } = self;
        let head = session.req_header().clone();
        let handshake = WebSocketHandshake::parse(&head, &config.websockets, config.api_key_header.as_ref())?;
        let headers = &handshake.headers;
        let context = CallerContext {
            headers,
            client_certificate: connection.client_identity(),
            address: connection.peer_address.ip(),
        };
        let mut permitted = gateway.authorize_and_acquire_permit(config, call, &agent, context).await?;
        let authorized = &mut permitted.authorized;
        let named_operation = input_validation::named_operation(&authorized.route, operation.as_deref(), headers)?;
        let query = head.uri.query();
        let declares_version =
            query.is_some() && requested_version::declares_version_input(&authorized.route, named_operation);
        let requested = RequestedVersion::from_request(version.as_deref(), query, headers, declares_version)?;
        authorized.version = authorized.route.versions.select(&requested)?;
        let requested_label =
            authorized.version.as_ref().filter(|_| requested.is_specified()).and_then(|version| version.label.clone());
        if let Some(operation) = named_operation {
            call.set_operation(operation);
        }
        let deadline = call_deadline(call, &authorized.route, headers)?;
        let rate_limit_status = authorized.rate_limit_status;
        let admitted = permitted.admit(named_operation.unwrap_or_default(), deadline);
        let forwarded = connection.forwarded_header(requested_host(&head));
        let gateway_headers = gateway_and_query_headers(call, &admitted, &head);
        let header_mutations = HeaderMutations {
            forwarded: Some(&forwarded),
            credential_headers: config.auth.credential_headers(),
            set: &gateway_headers,
        };
        let outcome = tokio::select! {
            biased;
            outcome = self.open_agent_socket(call, &admitted, headers, header_mutations) => outcome?,
            () = http_server::wait_for_disconnect(session) => return Err(CallError::CallerGone),
        };
        admitted.stop_latency_tracking();
        let socket = match outcome {
            None => None,
            Some(WebSocketOutcome::Open(socket)) => Some(socket),
            Some(WebSocketOutcome::Refused(reply)) => {
                return Err(self.handshake_refusal(&admitted, reply).await.into());
            }
        };
        let protocol = handshake.select_protocol(socket.as_ref().and_then(|socket| socket.subprotocol.clone()));
        let mut response_headers = switching_protocols_headers(&handshake.accept_key, protocol);
        add_call_headers(&mut response_headers, call, rate_limit_status.as_ref());
        add_agent_headers(&mut response_headers, &admitted);
        // Without a WebSocket of the agent each message is a call, which acquires its own concurrency permit: the permit
        // of the handshake is released before the caller learns that it may send.
        let agent_socket = socket.map(|socket| (socket, admitted));
        self.write_switching_protocols(session, response_headers).await?;
        let websocket_session = WebSocketSession {
            gateway: Arc::clone(gateway),
            connection: Arc::clone(connection),
            call: call.hand_over(),
            headers: message_headers(handshake.headers, requested_label),
            forwarded,
            agent,
            operation,
            config: config.websockets.clone(),
            expires_at: Instant::now() + config.websockets.max_connection_age.get(),
            agent_close: None,
        };
        let upgraded = UpgradedConnection::new(move |io, read_ahead| {
            Box::pin(websocket_session.run(io, read_ahead, agent_socket))
        });
        Ok(ServeOutcome::Upgraded(upgraded))
    }

    /// Opens the agent's own WebSocket, if the agent has one.
    async fn open_agent_socket(
        &self,
        call: &Call,
        admitted: &Admitted,
        headers: &HeaderMap,
        header_mutations: HeaderMutations<'_>,
    ) -> Result<Option<WebSocketOutcome>> {
        let request = UpstreamCall {
            id: call.id(),
            operation: &admitted.operation().name,
            method: Method::GET,
            path: admitted.version().and_then(|version| version.path.clone()),
            headers,
            body: RequestBody::Empty,
            header_mutations,
            instruction: None,
        };
        self.gateway.transport.open_websocket(admitted, request).await
    }

    /// Returns the fault for an agent's refusal of the handshake.
    async fn handshake_refusal(&self, admitted: &Admitted, mut reply: UpstreamReply) -> Fault {
        let validator = ReplyValidator { gateway: self.gateway, contract_config: &self.config.contract, admitted };
        let result = validator.read_complete(&mut reply).await;
        result.err().unwrap_or_else(|| Fault::new(FaultCode::AgentError, "The agent did not open a WebSocket"))
    }

    /// Writes the 101 response, after which the connection no longer carries HTTP.
    async fn write_switching_protocols(
        &self,
        session: &mut ServerSession,
        headers: HeaderMap,
    ) -> std::result::Result<(), CallError> {
        http_server::disable_write_buffering(session);
        session.set_write_timeout(Some(self.connection.limits.body_idle_timeout.get()));
        let head = response_head(StatusCode::SWITCHING_PROTOCOLS, headers);
        session.write_response_header(Box::new(head)).await.map_err(|_| CallError::CallerGone)
    }
}

/// Returns the headers of every 101 response to a WebSocket handshake (RFC 6455 §4.2.2).
fn switching_protocols_headers(accept_key: &str, protocol: Option<HeaderValue>) -> HeaderMap {
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
    headers.extend(version.map(|version| (AGENT_VERSION_HEADER, version)));
    for (name, value) in &admitted.agent_route().response_headers {
        headers.append(name, value.clone());
    }
}

/// Returns the headers of the handshake that apply to every message: the requested version as a header, and no
/// idempotency key, because one key cannot belong to several calls.
fn message_headers(mut headers: HeaderMap, version: Option<HeaderValue>) -> HeaderMap {
    headers.remove("idempotency-key");
    if let Some(version) = version {
        headers.insert(AGENT_VERSION_HEADER, version);
    }
    headers
}
