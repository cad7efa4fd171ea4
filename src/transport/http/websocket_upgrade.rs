//! The upgrade of an HTTP connection to a WebSocket (RFC 6455 §4.1): to the same addresses, under the same TLS profile,
//! with the same header fields as a call. The connection is not shared, and its messages are not interpreted here.

use super::{
    HttpTarget,
    connection_pool::MAX_RESPONSE_HEAD,
    connector, error_mapping,
    http_target::{AttemptStart, HttpExchange, validate_response_head},
};
use crate::{
    fault::{Fault, FaultCode},
    telemetry::{AgentMetrics, UpstreamConnection},
    trace::SpanScope,
    transport::{
        UpstreamReply,
        headers::HeaderMutations,
        timeouts::{self, CallEnd, TimeoutKind},
        upstream_body::HyperBody,
        upstream_reply::ReplyBody,
        websocket::WebSocketIo,
    },
};
use bytes::BytesMut;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Response, StatusCode, Version, header, uri::PathAndQuery};
use hyper::{
    body::{Body as _, Incoming},
    client::conn::http1,
};
use hyper_util::rt::TokioIo;
use std::{
    fmt::Display,
    future::poll_fn,
    pin::{Pin, pin},
    sync::Arc,
};
use tokio::time::{Instant, timeout_at};
use tokio_tungstenite::tungstenite::handshake::{client::generate_key, derive_accept_key};

/// The maximum number of bytes read of a refusal's body.
const MAX_REFUSAL_BYTES: usize = 64 << 10;

/// The parameters of an upgrade request.
pub(in crate::transport) struct UpgradeRequest<'a> {
    /// Path and query, if they differ from those of the agent's endpoint.
    pub(in crate::transport) path: Option<PathAndQuery>,
    pub(in crate::transport) headers: &'a HeaderMap,
    pub(in crate::transport) header_mutations: HeaderMutations<'a>,
    /// What the agent may choose from.
    pub(in crate::transport) offer: WebSocketOffer<'a>,
    /// The metrics of the agent.
    pub(in crate::transport) metrics: Option<&'a AgentMetrics>,
    /// Whether the connection outlives the deadline of a call.
    pub(in crate::transport) outlives_call: bool,
    /// The span of the attempt, whose context the agent receives.
    pub(in crate::transport) trace: Option<&'a SpanScope>,
}

/// What the agent may choose from in its handshake.
#[derive(Clone, Copy, Default)]
pub(in crate::transport) struct WebSocketOffer<'a> {
    pub(in crate::transport) subprotocols: Option<&'a HeaderValue>,
    /// Extensions change the frames, so they are offered only where the frames pass as they are.
    pub(in crate::transport) extensions: Option<&'a HeaderValue>,
}

/// The outcome of an upgrade request.
pub(in crate::transport) enum UpgradeOutcome {
    /// The WebSocket's byte stream, and the valid head of the agent's handshake.
    Upgraded(Box<dyn WebSocketIo>, HeaderMap),
    /// The agent refused the upgrade with an ordinary reply.
    Refused(UpstreamReply),
}

/// Connects and performs the handshake, within the connect and the first-byte timeout.
///
/// # Errors
/// The agent cannot be reached, does not reply in time, or sends an invalid handshake.
pub(in crate::transport) async fn upgrade_to_websocket(
    target: &Arc<HttpTarget>,
    request: UpgradeRequest<'_>,
    deadline: Instant,
) -> Result<UpgradeOutcome, Fault> {
    if deadline <= Instant::now() {
        return Err(timeouts::deadline_fault("the call's deadline passed before the agent was called"));
    }
    let started = Instant::now();
    let stream = connector::connect_dedicated(target, deadline).await;
    if let Some(metrics) = request.metrics {
        match &stream {
            Ok(_) => metrics.record_opened_connection(started.elapsed()),
            Err(_) => metrics.record_connection(UpstreamConnection::Failed),
        }
    }
    let stream = stream?;
    let until = deadline.min(Instant::now() + target.timeouts.first_byte);
    let (mut sender, connection) = http1::Builder::new()
        .max_header_size(MAX_RESPONSE_HEAD)
        .max_buf_size(2 * MAX_RESPONSE_HEAD)
        .handshake(TokioIo::new(stream))
        .await
        .map_err(|error| error_mapping::no_response_fault(&error))?;
    let key = generate_key();
    let handshake = build_handshake(target, &request, &key, deadline)?;
    let mut connection = pin!(connection.with_upgrades());
    let mut outcome = pin!(async {
        let response =
            sender.send_request(handshake).await.map_err(|error| error_mapping::no_response_fault(&error))?;
        if response.status() != StatusCode::SWITCHING_PROTOCOLS {
            return read_refusal(response, target.has_credential()).await.map(UpgradeOutcome::Refused);
        }
        read_handshake_response(response, &key, request.offer).await
    });
    let exchange = async {
        tokio::select! {
            biased;
            result = &mut outcome => result,
            _ = &mut connection => outcome.await,
        }
    };
    let late = |_| {
        let detail = "no complete response to the WebSocket handshake in time";
        target.timeouts.fault_at(TimeoutKind::FirstByte, CallEnd { until, deadline }, detail)
    };
    timeout_at(until, exchange).await.map_err(late).flatten()
}

fn build_handshake(
    target: &Arc<HttpTarget>,
    request: &UpgradeRequest<'_>,
    key: &str,
    deadline: Instant,
) -> Result<http::Request<HyperBody>, Fault> {
    let (headers, header_mutations) = (request.headers, request.header_mutations);
    let path = request.path.clone();
    let exchange = HttpExchange { target, method: Method::GET, path, query: None, headers, header_mutations, deadline };
    let attempt = AttemptStart { now: Instant::now(), trace: request.trace };
    let mut handshake = exchange.build_request(HyperBody::Whole(None), Version::HTTP_11, attempt)?;
    let fields = handshake.headers_mut();
    // These fields describe a body or a reply that a handshake does not have, and the gateway is not a web page.
    for name in
        [header::CONTENT_TYPE, header::CONTENT_ENCODING, header::ACCEPT, header::ACCEPT_ENCODING, header::ORIGIN]
    {
        fields.remove(name);
    }
    if request.outlives_call {
        fields.remove("x-request-timeout");
    }
    fields.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
    fields.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
    fields.insert(header::SEC_WEBSOCKET_VERSION, HeaderValue::from_static("13"));
    let key = HeaderValue::from_str(key).map_err(|error| Fault::from(FaultCode::Internal).with_detail(error))?;
    fields.insert(header::SEC_WEBSOCKET_KEY, key);
    let WebSocketOffer { subprotocols, extensions } = request.offer;
    for (name, offered) in
        [(header::SEC_WEBSOCKET_PROTOCOL, subprotocols), (header::SEC_WEBSOCKET_EXTENSIONS, extensions)]
    {
        if let Some(offered) = offered {
            fields.insert(name, offered.clone());
        }
    }
    Ok(handshake)
}

async fn read_handshake_response(
    mut response: Response<Incoming>,
    key: &str,
    offer: WebSocketOffer<'_>,
) -> Result<UpgradeOutcome, Fault> {
    validate_handshake(response.headers(), key, offer)?;
    let headers = std::mem::take(response.headers_mut());
    let io = hyper::upgrade::on(&mut response).await.map_err(|error| error_mapping::no_response_fault(&error))?;
    Ok(UpgradeOutcome::Upgraded(Box::new(TokioIo::new(io)), headers))
}

/// Validates the server's handshake (RFC 6455 §4.1): the agent must accept nothing that the gateway did not offer.
fn validate_handshake(headers: &HeaderMap, key: &str, offer: WebSocketOffer<'_>) -> Result<(), Fault> {
    let single_value = |name: &HeaderName| {
        let mut values = headers.get_all(name).into_iter();
        let first = values.next();
        first.filter(|_| values.next().is_none())
    };
    let has_token = |name: &HeaderName, token: &str| {
        let tokens = headers.get_all(name).into_iter().filter_map(|value| value.to_str().ok());
        tokens.flat_map(|value| value.split(',')).any(|candidate| candidate.trim().eq_ignore_ascii_case(token))
    };
    if !has_token(&header::UPGRADE, "websocket") || !has_token(&header::CONNECTION, "upgrade") {
        return Err(invalid_handshake_fault("Upgrade or Connection does not name the WebSocket protocol"));
    }
    let is_accepted =
        single_value(&header::SEC_WEBSOCKET_ACCEPT).is_some_and(|accept| *accept == derive_accept_key(key.as_bytes()));
    if !is_accepted {
        return Err(invalid_handshake_fault("Sec-WebSocket-Accept does not match Sec-WebSocket-Key"));
    }
    let offered = list_names(offer.extensions);
    let is_offered = |value: &HeaderValue| list_names(Some(value)).iter().all(|name| offered.contains(name));
    if !headers.get_all(header::SEC_WEBSOCKET_EXTENSIONS).iter().all(is_offered) {
        return Err(invalid_handshake_fault("the agent chose an extension that was not offered"));
    }
    if !headers.contains_key(header::SEC_WEBSOCKET_PROTOCOL) {
        return Ok(());
    }
    let chosen = single_value(&header::SEC_WEBSOCKET_PROTOCOL).and_then(|value| value.to_str().ok());
    let offered = list_names(offer.subprotocols);
    match chosen.filter(|chosen| offered.contains(chosen)) {
        Some(_) => Ok(()),
        None => Err(invalid_handshake_fault("the agent chose a subprotocol that was not offered")),
    }
}

/// Returns the names in a list, without their parameters.
fn list_names(list: Option<&HeaderValue>) -> Vec<&str> {
    let text = list.and_then(|list| list.to_str().ok()).unwrap_or_default();
    let names = text.split(',').map(|item| item.split(';').next().unwrap_or_default().trim());
    names.filter(|name| !name.is_empty()).collect()
}

fn invalid_handshake_fault(detail: impl Display) -> Fault {
    Fault::new(FaultCode::AgentError, "The agent's WebSocket handshake is not valid").with_detail(detail)
}

/// Reads the agent's refusal, up to a bound. A success is an error: only an upgrade was requested.
async fn read_refusal(response: Response<Incoming>, credential_sent: bool) -> Result<UpstreamReply, Fault> {
    validate_response_head(&response)?;
    let (head, mut body) = response.into_parts();
    if head.status.is_success() {
        return Err(Fault::new(FaultCode::AgentError, "The agent did not open a WebSocket").with_detail(head.status));
    }
    let mut bytes = BytesMut::new();
    // A truncated refusal is still a refusal.
    while let Some(Ok(frame)) = poll_fn(|task| Pin::new(&mut body).poll_frame(task)).await {
        if let Ok(data) = frame.into_data() {
            bytes.extend_from_slice(&data);
        }
        if bytes.len() > MAX_REFUSAL_BYTES {
            break;
        }
    }
    Ok(UpstreamReply {
        status: head.status,
        headers: head.headers,
        body: ReplyBody::from(bytes.freeze()),
        credential_sent,
    })
}
