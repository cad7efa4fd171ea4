//! The gateway's headers in a request head: the timeout, the session and the operation; their equivalents in the query;
//! and the input of a `GET`.

use super::{
    admission::Admitted, call::Call, delegation::DELEGATION_CHAIN, prefer, requested_version,
    response_headers::REQUEST_ID, route::Route,
};
use crate::{
    agent::AgentId,
    auth::Caller,
    contract,
    fault::{Fault, FaultCode, Result},
    transport,
};
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue};
use pingora_http::RequestHeader;
use serde_json::Value;
use std::time::{Duration, Instant};

/// The header that names the operation if the path does not (R30).
pub(super) const OPERATION_HEADER: HeaderName = HeaderName::from_static("x-operation");

const TIMEOUT_HEADER: HeaderName = HeaderName::from_static("x-request-timeout");

/// Headers that identify a session: the caller's own (R76), and MCP's.
const SESSION_HEADERS: [HeaderName; 2] =
    [HeaderName::from_static("x-session-id"), HeaderName::from_static("mcp-session-id")];

/// Query parameters that identify a session or task, and the headers in which agents expect them (R76).
const QUERY_AS_HEADERS: [(&str, &str); 2] = [("sessionId", "x-session-id"), ("taskId", "x-task-id")];

/// Returns the gateway's headers for the agent ([`gateway_headers`]), and the session and task that the query names.
pub(super) fn gateway_and_query_headers(
    call: &Call,
    admitted: &Admitted,
    head: &RequestHeader,
) -> Vec<(HeaderName, HeaderValue)> {
    let pairs = head.uri.query().into_iter().flat_map(|query| query.split('&')).filter_map(|pair| pair.split_once('='));
    let from_query = pairs.filter_map(|(name, value)| {
        let (_, header) = QUERY_AS_HEADERS.iter().find(|(parameter, _)| *parameter == name)?;
        let is_forwarded = AgentId::is_valid(value) && !head.headers.contains_key(*header);
        is_forwarded.then(|| Some((HeaderName::from_static(header), HeaderValue::from_str(value).ok()?)))?
    });
    gateway_headers(call, admitted).chain(from_query).collect()
}

/// The longest session id, in characters.
const MAX_SESSION_ID: usize = 256;

/// Returns the hash of the caller's session, so that its calls reach one endpoint: the session that the caller names
/// (R76) or that an agent named (MCP). The hash covers the caller: two callers never share a session.
///
/// # Errors
/// `InvalidInput` for a malformed session id.
pub(super) fn session_hash(headers: &HeaderMap, caller: &Caller) -> Result<Option<u64>> {
    let mut session_hash = None;
    for name in SESSION_HEADERS {
        let Some(value) = headers.get(&name) else { continue };
        let id = value.as_bytes();
        if !(1..=MAX_SESSION_ID).contains(&id.len()) || !id.iter().all(u8::is_ascii_graphic) {
            let message = format!("{name} is not a session id (1 to {MAX_SESSION_ID} visible ASCII characters)");
            return Err(Fault::new(FaultCode::InvalidInput, message));
        }
        session_hash = session_hash.or_else(|| Some(transport::stable_hash(&[caller.id.as_bytes(), id])));
    }
    Ok(session_hash)
}

/// Returns the hash of the session that the query names.
pub(super) fn session_hash_from_query(head: &RequestHeader, caller: &Caller) -> Option<u64> {
    let pairs = head.uri.query()?.split('&').filter_map(|pair| pair.split_once('='));
    let mut session_ids = pairs.filter(|(name, value)| *name == "sessionId" && AgentId::is_valid(value));
    session_ids.next().map(|(_, id)| transport::stable_hash(&[caller.id.as_bytes(), id.as_bytes()]))
}

/// Returns the gateway's headers for the agent: call id, operation name, version (each if it exists), and delegation
/// chain.
pub(super) fn gateway_headers(call: &Call, admitted: &Admitted) -> impl Iterator<Item = (HeaderName, HeaderValue)> {
    let id = call.id_header().map(|id| (REQUEST_ID, id));
    let operation = admitted.operation().name_header.clone().map(|name| (OPERATION_HEADER, name));
    let chain = admitted.delegation_chain().map(|chain| (DELEGATION_CHAIN, chain.clone()));
    let version = admitted.version().and_then(|version| version.label.clone());
    id.into_iter()
        .chain(operation)
        .chain(version.map(|version| (requested_version::AGENT_VERSION_HEADER, version)))
        .chain(chain)
}

/// Returns the input of a `GET`: the query as a JSON object, typed by the schema (R49).
pub(super) fn input_from_query(head: &RequestHeader, route: &Route, named_operation: Option<usize>) -> Result<Bytes> {
    let query = head.uri.query().unwrap_or_default();
    let pairs = || query.split('&').filter_map(|pair| pair.split_once('='));
    let named_in_query =
        || pairs().find(|(name, _)| *name == "operation").and_then(|(_, name)| route.operation_index(name));
    let operation = named_operation.or_else(named_in_query).and_then(|at| route.agent.operations.get(at));
    let schema = operation.and_then(|operation| operation.inputs.as_deref());
    let mut input = contract::input_from_query(query, schema)?;
    if let Value::Object(members) = &mut input {
        // Parameters that name the session, task, version or callback (R76) are input only if the schema declares them.
        let is_declared = |name: &str| schema.and_then(|schema| schema.get("properties")?.get(name)).is_some();
        let is_gateway_parameter = |name: &str| {
            let is_version = name == "version" && !route.agent.versions.is_empty();
            is_version
                || name == prefer::CALLBACK_PARAMETER
                || QUERY_AS_HEADERS.iter().any(|(parameter, _)| *parameter == name)
        };
        members.retain(|name, _| is_declared(name) || !is_gateway_parameter(name));
    }
    Ok(Bytes::from(input.to_string()))
}

/// Returns the deadline: the agent's total timeout, or the caller's if that is shorter.
pub(super) fn call_deadline(call: &Call, route: &Route, headers: &HeaderMap) -> Result<Instant> {
    deadline_within(call, route.upstream.timeouts().total, headers)
}

/// Returns the deadline: `max_duration` after arrival, or the caller's timeout if that is shorter.
pub(super) fn deadline_within(call: &Call, max_duration: Duration, headers: &HeaderMap) -> Result<Instant> {
    let requested = match headers.get(TIMEOUT_HEADER) {
        None => max_duration,
        Some(value) => parse_timeout(value.to_str().unwrap_or_default())?,
    };
    Ok(call.arrived_at() + requested.min(max_duration))
}

/// Parses `X-Request-Timeout`: seconds (`2`, `0.5`, `2s`) or milliseconds (`1500ms`).
fn parse_timeout(text: &str) -> Result<Duration> {
    let refuse = || {
        Fault::new(FaultCode::InvalidInput, "X-Request-Timeout is not a duration (seconds such as 2 or 0.5, or 1500ms)")
    };
    let (number, unit) = match text.strip_suffix("ms") {
        Some(number) => (number, 0.001),
        None => (text.strip_suffix('s').unwrap_or(text), 1.0),
    };
    let is_decimal =
        !number.is_empty() && number.len() <= 12 && number.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    let seconds: f64 = number.parse().ok().filter(|_| is_decimal).ok_or_else(refuse)?;
    match Duration::try_from_secs_f64(seconds * unit) {
        Ok(timeout) if !timeout.is_zero() => Ok(timeout),
        _ => Err(refuse()),
    }
}
