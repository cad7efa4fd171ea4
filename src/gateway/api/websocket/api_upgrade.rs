//! The handshake of a WebSocket of an agent's own API: it takes the steps of any request to the API, and a refusal is an
//! ordinary response; then the agent's WebSocket is opened, and the caller gets 101.

use super::{
    authorization_check::{AuthorizationCheck, TunnelCaller},
    websocket_tunnel::{TunnelLimits, WebSocketTunnelTask},
};
use crate::{
    gateway::{
        admission::{AdmissionRecorder as _, Admitted, AdmittedCall, CallInput, CallSource},
        api::{
            api_authorization::{AuthorizedApiRequest, authorize_api_request},
            api_reply::{AgentReplyHead, ApiResponder},
            public_url::public_url,
        },
        call::{CallError, CallResult},
        exchange::{AgentHeaders, Exchange},
        path_router::ApiRequest,
        upstream::{BodyPump, api_gateway_headers},
        websocket::{WebSocketHandshake, switching_protocols_headers},
    },
    http_server::{ResponseHead, ServeOutcome, UpgradedConnection},
    transport::{Admission as _, HeaderMutations, RequestBody, TunnelOutcome, UpstreamCall},
};
use bytes::Bytes;
use http::{HeaderMap, Method, StatusCode, header, uri::PathAndQuery};
use std::sync::Arc;
use tokio::time::Instant;

/// Handles a handshake (steps 5 to 11), and upgrades the connection.
pub(in crate::gateway::api) async fn upgrade_api_request(
    exchange: &mut Exchange<'_>,
    request: ApiRequest,
) -> CallResult<ServeOutcome> {
    let config = Arc::clone(exchange.config);
    let handshake =
        WebSocketHandshake::parse(exchange.session.head(), &config.websockets, config.api_key_header.as_ref())?;
    let headers = Some(&handshake.headers);
    let AuthorizedApiRequest { authorized, api, path, .. } =
        authorize_api_request(exchange, &request, CallSource::ApiHandshake, headers).await?;
    let admission = exchange.admission();
    let checked = admission.pass_input(authorized, CallInput::Complete(Bytes::new()));
    let (limits, client) = (&exchange.gateway.limits, checked.client());
    let counted = limits.count_websocket(&checked.route().limits, client, config.websockets.max_connections)?;
    let AdmittedCall { admitted, .. } = admission.admit(exchange.call, checked).await?;
    let outcome = open_tunnel(exchange, &admitted, &handshake.headers, path).await?;
    admitted.stop_latency_tracking();
    let tunnel = match outcome {
        TunnelOutcome::Open(tunnel) => tunnel,
        TunnelOutcome::Refused(reply) => {
            let responder = ApiResponder { exchange, admitted: &admitted, api: &api, request: &request };
            return responder.respond(*reply, BodyPump::without_body()).await;
        }
    };
    let headers = response_headers(
        exchange,
        &admitted,
        &handshake,
        AgentReplyHead { api: &api, request: &request, headers: &tunnel.headers },
    );
    let head = ResponseHead { status: StatusCode::SWITCHING_PROTOCOLS, headers };
    exchange.start_stream(head).await.map_err(|_| CallError::CallerGone)?;
    let limits = TunnelLimits {
        idle_timeout: config.websockets.idle_timeout.get(),
        expires_at: Instant::now() + config.websockets.max_connection_age.get(),
        agent_write_timeout: admitted.upstream_set().timeouts().idle,
        caller_write_timeout: exchange.connection.limits.body_idle_timeout.get(),
    };
    let authorization = AuthorizationCheck::new(TunnelCaller {
        gateway: Arc::clone(exchange.gateway),
        connection: Arc::clone(exchange.connection),
        request,
        headers: handshake.headers,
    });
    let (agent, hold) = tunnel.into_parts();
    let call = exchange.call.hand_over();
    let task = WebSocketTunnelTask { call, authorization, agent, limits, holds: (admitted, hold, counted) };
    Ok(ServeOutcome::Upgraded(UpgradedConnection::new(move |io, read_ahead| Box::pin(task.run(io, read_ahead)))))
}

/// Opens the agent's WebSocket while watching the caller.
async fn open_tunnel(
    exchange: &mut Exchange<'_>,
    admitted: &Admitted,
    headers: &HeaderMap,
    path: PathAndQuery,
) -> CallResult<TunnelOutcome> {
    let forwarded = exchange.forwarded_header();
    let set = api_gateway_headers(exchange.call, admitted);
    let sent_at = exchange.call.record_sent();
    let request = UpstreamCall {
        id: exchange.call.id(),
        operation: "",
        method: Method::GET,
        path: Some(path),
        query: None,
        headers,
        body: RequestBody::Empty,
        header_mutations: HeaderMutations {
            passes_conditions: true,
            caller_headers: admitted.caller_headers(),
            ..exchange.config.header_mutations(&forwarded, &set)
        },
        instruction: None,
        metrics: Some(&admitted.agent_route().metrics),
        attempts: Some(exchange.call.stats.attempts()),
        trace: exchange.call.trace_scope(),
    };
    let outcome = tokio::select! {
        biased;
        outcome = exchange.gateway.transport.open_tunnel(admitted, request) => outcome.map_err(CallError::from),
        () = exchange.session.wait_for_disconnect() => Err(CallError::CallerGone),
    };
    exchange.call.record_reply();
    exchange.call.stats.upstream_duration = Some(sent_at.elapsed());
    outcome
}

/// Returns the header fields of the 101 response: those of the agent that callers may see, its choice of subprotocol and
/// extensions, and the gateway's own.
fn response_headers(
    exchange: &Exchange<'_>,
    admitted: &Admitted,
    handshake: &WebSocketHandshake,
    agent: AgentReplyHead<'_>,
) -> HeaderMap {
    let mut headers = agent.headers_for_caller(|| public_url(exchange, agent.request));
    AgentHeaders::of(admitted).add_to(&mut headers, exchange.call, None);
    let protocol = handshake.select_protocol(agent.headers.get(header::SEC_WEBSOCKET_PROTOCOL).cloned());
    headers.extend(switching_protocols_headers(&handshake.accept_key, protocol));
    for extensions in agent.headers.get_all(header::SEC_WEBSOCKET_EXTENSIONS) {
        headers.append(header::SEC_WEBSOCKET_EXTENSIONS, extensions.clone());
    }
    headers
}
