//! Writes responses that are complete: those of agents, those of the gateway itself, and faults. Every fault goes
//! through one function and one table.

use super::{
    CallError,
    call::{Call, CallState},
    cors,
    http_server::{self, CallerConnection, ServeOutcome},
    response_headers::{REQUEST_ID, add_agent_response_headers, add_call_headers, append_if_valid, response_head},
    route::Route,
    subrequest::CompleteReply,
};
use crate::{
    directory,
    fault::{ErrorFormat, Fault},
    limit::RateLimitStatus,
};
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, StatusCode, header};
use pingora_core::protocols::http::ServerSession;
use pingora_http::ResponseHeader;

/// A stored reply of an agent; its headers are those that callers may receive.
pub(super) struct StoredReply<'a> {
    pub(super) route: &'a Route,
    pub(super) reply: CompleteReply,
    pub(super) rate_limit_status: Option<&'a RateLimitStatus>,
}

/// Writes a stored reply.
pub(super) async fn write_stored_reply(
    session: &mut ServerSession,
    connection: &CallerConnection,
    call: &mut Call,
    stored: StoredReply<'_>,
) -> std::result::Result<ServeOutcome, CallError> {
    let StoredReply { route, reply: CompleteReply { status, mut headers, body }, rate_limit_status } = stored;
    let length = (status != StatusCode::NO_CONTENT).then_some(body.len());
    add_agent_response_headers(&mut headers, call, route, rate_limit_status, length);
    write_response(session, connection, call, response_head(status, headers), body).await
}

/// Writes a response that the gateway produced itself.
pub(super) async fn write_local_response(
    session: &mut ServerSession,
    connection: &CallerConnection,
    call: &mut Call,
    response: directory::DirectoryResponse,
    rate_limit_status: Option<RateLimitStatus>,
) -> std::result::Result<ServeOutcome, CallError> {
    let directory::DirectoryResponse { status, mut headers, body } = response;
    // RFC 9110 §8.6, §15.4.5: 204 and 304 have no content, and Content-Length would describe another response.
    if !matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED) {
        headers.insert(header::CONTENT_LENGTH, HeaderValue::from(body.len()));
    }
    add_call_headers(&mut headers, call, rate_limit_status.as_ref());
    write_response(session, connection, call, response_head(status, headers), body).await
}

/// Writes a complete response, and records how the call ended.
pub(super) async fn write_response(
    session: &mut ServerSession,
    connection: &CallerConnection,
    call: &mut Call,
    head: ResponseHeader,
    body: Bytes,
) -> std::result::Result<ServeOutcome, CallError> {
    let status = head.status.as_u16();
    call.state = match write_all(session, connection, head, body).await {
        Some(length) => {
            call.stats.bytes_out += length;
            CallState::Answered(status)
        }
        None => CallState::CallerGone(status),
    };
    Ok(if matches!(call.state, CallState::CallerGone(_)) { ServeOutcome::Aborted } else { ServeOutcome::Complete })
}

/// Writes head and body. Returns the bytes of the body, or `None` if the caller is gone.
async fn write_all(
    session: &mut ServerSession,
    connection: &CallerConnection,
    head: ResponseHeader,
    body: Bytes,
) -> Option<u64> {
    http_server::prepare_keep_alive(session, connection).await;
    // Pingora's HTTP/1 writer omits the body of a HEAD response; its HTTP/2 writer does not.
    let is_head = session.is_http2() && session.req_header().method == http::Method::HEAD;
    let body = if is_head { Bytes::new() } else { body };
    let length = body.len() as u64;
    session.set_write_timeout(Some(connection.limits.body_idle_timeout.get()));
    session.write_response_header(Box::new(head)).await.ok()?;
    session.write_response_body(body, true).await.ok()?;
    Some(length)
}

/// Writes a fault: the only place where a fault becomes a response.
pub(super) async fn write_fault(
    session: &mut ServerSession,
    connection: &CallerConnection,
    call: &mut Call,
    fault: Fault,
    format: ErrorFormat,
) -> ServeOutcome {
    let (head, body) = fault_response(call, &fault, format);
    let written = write_all(session, connection, head, body).await;
    call.stats.bytes_out += written.unwrap_or_default();
    call.state = CallState::Refused(fault);
    if written.is_some() { ServeOutcome::Complete } else { ServeOutcome::Aborted }
}

fn fault_response(call: &Call, fault: &Fault, format: ErrorFormat) -> (ResponseHeader, Bytes) {
    let (media, body) = match call.json_rpc_id() {
        Some(id) => ("application/json", fault.to_json_rpc_response(&id, call.id()).to_string().into_bytes()),
        None => (format.media_type(), fault.to_body(format, call.id())),
    };
    let body = Bytes::from(body);
    let mut headers = HeaderMap::with_capacity(8);
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(media));
    headers.insert(header::CONTENT_LENGTH, HeaderValue::from(body.len()));
    headers.insert(header::VARY, HeaderValue::from_static("Accept"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    if let Ok(id) = HeaderValue::from_str(call.id()) {
        headers.insert(REQUEST_ID, id);
    }
    if let Some(secs) = fault.retry_after_secs() {
        headers.insert(header::RETRY_AFTER, HeaderValue::from(secs));
    }
    for (name, value) in fault.headers() {
        append_if_valid(&mut headers, name, value);
    }
    if let Some(origin) = &call.cors_origin {
        cors::set_cors_headers(&mut headers, origin.as_ref());
    }
    let status = StatusCode::from_u16(fault.http_status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    (response_head(status, headers), body)
}
