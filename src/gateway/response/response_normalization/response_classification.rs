//! Whether a response is a result or a failure: by its status, and by an error that is embedded in the body of a
//! success.

use super::{
    agent_fault::{allowed_agent_code, build_fault},
    agent_response::{AgentResponse, ResponseVerdict, is_json_rpc},
    error_body::ParsedErrorBody,
    error_status::fault_from_error_status,
};
use crate::fault::{Fault, FaultCode};
use http::{HeaderMap, header};
use memchr::memchr2;
use serde_json::{Map, Value};
use std::fmt::Write as _;

/// Maximum bytes of an agent's body that are logged.
const MAX_LOGGED_BODY_BYTES: usize = 2048;

/// Classifies a response as a result or a failure. JSON-RPC and A2A bodies pass with every status, because their
/// clients read errors from the body, except where the agent refuses the gateway's credential or sends a redirect.
pub(in crate::gateway) fn classify_response(response: &AgentResponse<'_>) -> ResponseVerdict {
    let fault = match response.status.as_u16() {
        200..=299 => find_embedded_error(response),
        _ => fault_from_error_status(response),
    };
    match fault {
        Some(fault) => ResponseVerdict::Fault(fault.with_detail(log_detail(response))),
        None => ResponseVerdict::Pass,
    }
}

/// Returns the detail of a failure for the log.
fn log_detail(response: &AgentResponse<'_>) -> String {
    let mut text = format!("the agent responded with status {}", response.status.as_u16());
    for name in [header::CONTENT_TYPE, header::LOCATION, header::WWW_AUTHENTICATE, header::RETRY_AFTER] {
        if let Some(value) = response.headers.get(&name) {
            let value = String::from_utf8_lossy(value.as_bytes());
            let _ = write!(text, ", {name}: {}", value.chars().take(200).collect::<String>());
        }
    }
    let logged_body = response.body.get(..MAX_LOGGED_BODY_BYTES).unwrap_or(response.body);
    if !logged_body.is_empty() {
        let _ = write!(text, ", body: {}", String::from_utf8_lossy(logged_body));
    }
    if logged_body.len() < response.body.len() || !response.complete {
        text.push('…');
    }
    text
}

/// Members that may accompany an error; any other member may be a result.
const ERROR_COMPANION_MEMBERS: &[&str] = &[
    "code",
    "conversation_id",
    "detail",
    "details",
    "error",
    "error_code",
    "error_description",
    "error_type",
    "message",
    "ok",
    "path",
    "request_id",
    "requestId",
    "session_id",
    "status",
    "status_code",
    "statusCode",
    "success",
    "task_id",
    "timestamp",
    "trace",
    "traceback",
    "trace_id",
    "traceId",
    "type",
];

fn find_embedded_error(response: &AgentResponse<'_>) -> Option<Fault> {
    if !has_json_content_type(response.headers) {
        return None;
    }
    let scan = scan_top_level_members(response.body);
    if response.complete && scan == MemberScan::Truncated {
        return Some(Fault::new(FaultCode::AgentError, "The agent's response is incomplete"));
    }
    if scan != MemberScan::ErrorMember {
        return None;
    }
    let body = response.parse_complete_object()?;
    let is_failure = !is_json_rpc(&body)
        && (is_langgraph_error(&body)
            || is_graphql_error(&body)
            || (!response.declares_error && is_error_object(&body)));
    is_failure.then(|| {
        let error = ParsedErrorBody::parse(&body);
        build_fault(error.code.and_then(allowed_agent_code).unwrap_or(FaultCode::AgentError), &error)
    })
}

/// Whether the beginning of a JSON body has a member that could be an embedded error, or ends before that is decided.
/// If not, the body can be streamed without buffering.
pub(in crate::gateway) fn may_embed_error(beginning: &[u8]) -> bool {
    // Only an object has members; an array of objects is a list of results.
    let first = beginning.iter().find(|byte| !byte.is_ascii_whitespace());
    first.is_none_or(|first| *first == b'{') && scan_top_level_members(beginning) != MemberScan::NoErrorMember
}

/// Whether the content type is JSON or missing. Event streams are neither.
fn has_json_content_type(headers: &HeaderMap) -> bool {
    let Some(value) = headers.get(header::CONTENT_TYPE) else {
        return true;
    };
    let Ok(text) = value.to_str() else {
        return false;
    };
    if text == "application/json" {
        return true;
    }
    let essence = text.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    essence == "application/json" || essence.ends_with("+json")
}

/// Whether the body is a failed LangGraph run, which LangGraph reports with status 200 and `__error__`.
fn is_langgraph_error(body: &Map<String, Value>) -> bool {
    body.get("__error__").is_some_and(|error| error.is_object() || error.as_str().is_some_and(|text| !text.is_empty()))
}

/// Whether the body is a GraphQL response with errors and no data (GraphQL specification, "Response Format").
fn is_graphql_error(body: &Map<String, Value>) -> bool {
    let has_errors = body.get("errors").and_then(Value::as_array).is_some_and(|errors| {
        !errors.is_empty() && errors.iter().all(|error| error.get("message").is_some_and(Value::is_string))
    });
    let has_no_data =
        body.iter().all(|(name, value)| matches!(name.as_str(), "errors" | "extensions") || value.is_null());
    has_errors && has_no_data
}

/// Whether the body is an error object: a non-empty `error`, and either no member that could be a result or a member
/// that states that the call failed.
fn is_error_object(body: &Map<String, Value>) -> bool {
    let has_error = match body.get("error") {
        // A numeric code means A2A.
        Some(Value::Object(error)) => {
            let text =
                |name: &str| error.get(name).is_some_and(|value| value.as_str().is_some_and(|text| !text.is_empty()));
            !error.get("code").is_some_and(Value::is_number) && (text("code") || text("message") || text("type"))
        }
        Some(Value::String(text)) => !text.is_empty(),
        Some(Value::Bool(true)) => body.get("message").is_some_and(Value::is_string),
        _ => false,
    };
    let flag = |name: &str| body.get(name).and_then(Value::as_bool);
    let succeeded = flag("success") == Some(true) || flag("ok") == Some(true);
    let status = body.get("status").and_then(Value::as_str).unwrap_or_default();
    let has_failed =
        flag("success") == Some(false) || flag("ok") == Some(false) || matches!(status, "error" | "failed" | "failure");
    let has_no_result =
        || body.iter().all(|(name, value)| ERROR_COMPANION_MEMBERS.contains(&name.as_str()) || value.is_null());
    has_error && !succeeded && (has_failed || has_no_result())
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MemberScan {
    /// Complete, without an error member.
    NoErrorMember,
    /// With an error member, or with a name that contains escapes.
    ErrorMember,
    /// Ends inside a value.
    Truncated,
}

/// Scans the member names of the top level without parsing values. A body that is no object or array has no members.
fn scan_top_level_members(body: &[u8]) -> MemberScan {
    let Some(start) = body.iter().position(|b| !b.is_ascii_whitespace()) else {
        return MemberScan::NoErrorMember;
    };
    let mut rest = body.get(start..).unwrap_or_default();
    if !matches!(rest.first(), Some(b'{' | b'[')) {
        return MemberScan::NoErrorMember;
    }
    let is_object = rest.first() == Some(&b'{');
    let (mut depth, mut at_name) = (0_usize, false);
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        match byte {
            b'{' | b'[' => {
                depth += 1;
                at_name = is_object && depth == 1;
            }
            b'}' | b']' => {
                depth = depth.saturating_sub(1);
                if depth == 0 {
                    return MemberScan::NoErrorMember;
                }
            }
            b',' => at_name = is_object && depth == 1,
            b'"' => {
                let Some((text, after)) = split_string(rest) else {
                    return MemberScan::Truncated;
                };
                if std::mem::take(&mut at_name) && is_error_member(text) {
                    return MemberScan::ErrorMember;
                }
                rest = after;
            }
            _ => {}
        }
    }
    MemberScan::Truncated
}

fn is_error_member(name: &[u8]) -> bool {
    matches!(name, b"error" | b"errors" | b"__error__") || name.contains(&b'\\')
}

/// Splits `text` after the quote that ends a JSON string.
fn split_string(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let mut at = 0;
    loop {
        at += memchr2(b'"', b'\\', text.get(at..)?)?;
        if text.get(at) == Some(&b'"') {
            return Some((text.get(..at)?, text.get(at + 1..)?));
        }
        // Skips the escaped character, which never ends the string.
        at += 2;
    }
}
