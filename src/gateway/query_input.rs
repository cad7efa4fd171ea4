//! The query of a call: the input of a `GET`, and the session and task that it names.

use super::{
    header_names::{SESSION_ID, TASK_ID},
    prefer,
    route::Route,
};
use crate::{agent::AgentId, contract, fault::Result};
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue};
use serde_json::Value;

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
