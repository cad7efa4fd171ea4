//! What a call says of itself besides its body: the session and the task that it names, its timeout, and the query that
//! is the input of a `GET`.

use super::{
    header_names::{AGENT_VERSION, MCP_SESSION_ID, OPERATION, REQUEST_TIMEOUT, SESSION_ID, TASK_ID},
    prefer,
    route::Route,
};
use crate::{
    agent::AgentId,
    auth::Caller,
    contract::QueryTypes,
    explain::DeadlineSource,
    fault::{Fault, FaultCode, Result},
    transport::{self, CallTimeout, TimeoutKind, UpstreamTimeouts},
};
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue};
use serde_json::Value;
use std::{
    sync::LazyLock,
    time::{Duration, Instant},
};

/// Query parameters that identify a session or task, and the headers in which agents expect them (R76).
static QUERY_AS_HEADERS: [(&str, HeaderName); 2] = [("sessionId", SESSION_ID), ("taskId", TASK_ID)];

/// Returns the input of a `GET`: the query as a JSON object, typed by the schema (R49).
///
/// # Errors
/// `InvalidInput` for a query that is not percent-encoded correctly, or that the schema gives another type.
pub(super) fn input_from_query(query: &str, route: &Route, named_operation: Option<usize>) -> Result<Bytes> {
    let pairs = || query.split('&').filter_map(|pair| pair.split_once('='));
    let named_in_query =
        || pairs().find(|(name, _)| *name == "operation").and_then(|(_, name)| route.operation_index(name));
    let operation = named_operation.or_else(named_in_query).and_then(|at| route.operations.get(at));
    let unknown = QueryTypes::default();
    let types = operation.map_or(&unknown, |operation| operation.contract.query_types());
    let mut members = types.input_from_query(query)?;
    // Parameters that name the session, task, version or callback (R76) are input only if the schema declares them.
    members.retain(|name, _| types.declares(name) || !is_gateway_parameter(name, route));
    Ok(Bytes::from(Value::Object(members).to_string()))
}

/// Returns the headers for the session and the task that the query names, unless the caller sends those headers.
pub(super) fn headers_from_query<'a>(
    query: Option<&'a str>,
    headers: &'a HeaderMap,
) -> impl Iterator<Item = (HeaderName, HeaderValue)> + 'a {
    let pairs = query.into_iter().flat_map(|query| query.split('&')).filter_map(|pair| pair.split_once('='));
    pairs.filter_map(|(name, value)| {
        let (_, header) = QUERY_AS_HEADERS.iter().find(|(parameter, _)| *parameter == name)?;
        let is_forwarded = AgentId::is_valid(value) && !headers.contains_key(header);
        is_forwarded.then(|| Some((header.clone(), HeaderValue::from_str(value).ok()?)))?
    })
}

/// Returns whether the gateway reads the query parameter itself, unless the schema declares it.
pub(super) fn is_gateway_parameter(name: &str, route: &Route) -> bool {
    name == prefer::CALLBACK_PARAMETER
        || (name == "version" && !route.agent.versions.is_empty())
        || QUERY_AS_HEADERS.iter().any(|(parameter, _)| *parameter == name)
}

/// When a call ends, and what says so.
#[derive(Clone, Copy)]
pub(super) struct CallDeadline {
    pub(super) at: Instant,
    pub(super) source: DeadlineSource,
    /// What a fault says of it.
    pub(super) timeout: CallTimeout,
}

/// Returns the deadline: the total timeout after arrival, or the caller's timeout if that is shorter.
///
/// # Errors
/// `InvalidInput` if the caller's timeout is not a duration.
pub(super) fn call_deadline(
    arrived_at: Instant,
    timeouts: &UpstreamTimeouts,
    headers: &HeaderMap,
) -> Result<CallDeadline> {
    let requested = headers.get(REQUEST_TIMEOUT).map(|value| parse_timeout(value.to_str().unwrap_or_default()));
    Ok(match requested.transpose()?.filter(|requested| *requested < timeouts.total) {
        Some(requested) => {
            let timeout = CallTimeout::of_request("X-Request-Timeout", requested);
            CallDeadline { at: arrived_at + requested, source: DeadlineSource::Caller, timeout }
        }
        None => {
            let timeout = timeouts.named(TimeoutKind::Total);
            CallDeadline { at: arrived_at + timeouts.total, source: DeadlineSource::Agent, timeout }
        }
    })
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

/// The fields in which a call names its operation, version, session and timeout.
static CALL_FIELDS: [HeaderName; 5] = [OPERATION, AGENT_VERSION, REQUEST_TIMEOUT, SESSION_ID, MCP_SESSION_ID];
static NO_FIELDS: LazyLock<HeaderMap> = LazyLock::new(HeaderMap::new);

/// Returns the fields of a head that has one of [`CALL_FIELDS`], and none of another: one pass over the names costs less
/// than looking each of them up.
pub(in crate::gateway) fn call_fields(headers: &HeaderMap) -> &HeaderMap {
    if headers.keys().any(|name| CALL_FIELDS.contains(name)) { headers } else { &NO_FIELDS }
}

/// Headers that identify a session: the caller's own (R76), and MCP's.
const SESSION_HEADERS: [HeaderName; 2] = [SESSION_ID, MCP_SESSION_ID];

/// The query parameter that identifies a session.
const SESSION_PARAMETER: &str = "sessionId";

/// The longest session id, in characters.
const MAX_SESSION_ID: usize = 256;

/// Returns the hash of the caller's session: the session that the caller names in a header or in the query, or that an
/// agent named (MCP). The hash covers the owner: two callers, and two users of one client, never share a session.
///
/// # Errors
/// `InvalidInput` for a malformed session id in a header.
pub(in crate::gateway) fn session_hash(
    headers: &HeaderMap,
    query: Option<&str>,
    caller: &Caller,
) -> Result<Option<u64>> {
    let mut session_hash = None;
    for name in SESSION_HEADERS {
        let Some(value) = headers.get(&name) else { continue };
        let id = value.as_bytes();
        if !(1..=MAX_SESSION_ID).contains(&id.len()) || !id.iter().all(u8::is_ascii_graphic) {
            let message = format!("{name} is not a session id (1 to {MAX_SESSION_ID} visible ASCII characters)");
            return Err(Fault::new(FaultCode::InvalidInput, message));
        }
        session_hash = session_hash.or_else(|| Some(hash_session(caller, id)));
    }
    Ok(session_hash.or_else(|| Some(hash_session(caller, session_in_query(query?)?.as_bytes()))))
}

fn session_in_query(query: &str) -> Option<&str> {
    let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    let mut session_ids = pairs.filter(|(name, value)| *name == SESSION_PARAMETER && AgentId::is_valid(value));
    session_ids.next().map(|(_, id)| id)
}

fn hash_session(caller: &Caller, id: &[u8]) -> u64 {
    transport::stable_hash(&[caller.owner_key.as_bytes(), id])
}
