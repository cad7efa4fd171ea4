//! Embedded errors: failures that an agent reports with a 2xx status (R40), as an error object, GraphQL's `errors` or
//! truncated JSON. A body that could also be a result is treated as a result.

use super::{
    Answer,
    status::{chosen, faulted, object},
    told::Told,
};
use crate::fault::{Code, Fault};
use http::{HeaderMap, header};
use memchr::memchr2;
use serde_json::{Map, Value};

/// Members that may accompany an error; any other member may be a result.
const BESIDE: &[&str] = &[
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

pub(super) fn failure(answer: &Answer<'_>) -> Option<Fault> {
    if !is_json(answer.headers) {
        return None;
    }
    let keys = scan(answer.body);
    if answer.complete && keys == Keys::Cut {
        return Some(Fault::new(Code::AgentError, "The agent's response is incomplete"));
    }
    if keys != Keys::Suspect {
        return None;
    }
    let body = object(answer)?;
    let fails =
        !is_rpc(&body) && (is_langgraph(&body) || is_graphql(&body) || (!answer.declares_error && is_error(&body)));
    fails.then(|| {
        let told = Told::read(&body);
        faulted(told.code.and_then(chosen).unwrap_or(Code::AgentError), &told)
    })
}

/// Whether the beginning of a JSON body has a member that could be an embedded error, or ends before that is decided.
/// If not, the body can be streamed without buffering.
pub(in crate::gateway) fn may_hide_failure(beginning: &[u8]) -> bool {
    // Only an object has members; an array of objects is a list of results.
    let first = beginning.iter().find(|byte| !byte.is_ascii_whitespace());
    first.is_none_or(|first| *first == b'{') && scan(beginning) != Keys::Clean
}

/// Whether the content type is JSON or missing. Event streams are neither.
fn is_json(headers: &HeaderMap) -> bool {
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

/// Whether the body is JSON-RPC (also A2A over JSON-RPC), whose protocol has errors in the body.
pub(super) fn is_rpc(body: &Map<String, Value>) -> bool {
    body.get("jsonrpc").is_some_and(|version| version == "2.0")
}

/// Whether the body is a failed LangGraph run, which LangGraph reports with status 200 and `__error__`.
fn is_langgraph(body: &Map<String, Value>) -> bool {
    body.get("__error__").is_some_and(|error| error.is_object() || error.as_str().is_some_and(|text| !text.is_empty()))
}

/// Whether the body is a GraphQL response with errors and no data (GraphQL specification, "Response Format").
fn is_graphql(body: &Map<String, Value>) -> bool {
    let errors = body.get("errors").and_then(Value::as_array).is_some_and(|errors| {
        !errors.is_empty() && errors.iter().all(|error| error.get("message").is_some_and(Value::is_string))
    });
    let alone = body.iter().all(|(name, value)| matches!(name.as_str(), "errors" | "extensions") || value.is_null());
    errors && alone
}

/// Whether the body is an error object: a non-empty `error`, and either no member that could be a result or a member
/// that states that the call failed.
fn is_error(body: &Map<String, Value>) -> bool {
    let says = match body.get("error") {
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
    let failed =
        flag("success") == Some(false) || flag("ok") == Some(false) || matches!(status, "error" | "failed" | "failure");
    let alone = || body.iter().all(|(name, value)| BESIDE.contains(&name.as_str()) || value.is_null());
    says && !succeeded && (failed || alone())
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Keys {
    /// Complete, without an error member.
    Clean,
    /// With an error member, or with a name that contains escapes.
    Suspect,
    /// Ends inside a value.
    Cut,
}

/// Scans the member names of the top level without parsing values. A body that is no object or array has no members.
fn scan(body: &[u8]) -> Keys {
    let Some(start) = body.iter().position(|b| !b.is_ascii_whitespace()) else {
        return Keys::Clean;
    };
    let mut rest = body.get(start..).unwrap_or_default();
    if !matches!(rest.first(), Some(b'{' | b'[')) {
        return Keys::Clean;
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
                    return Keys::Clean;
                }
            }
            b',' => at_name = is_object && depth == 1,
            b'"' => {
                let Some((text, after)) = string(rest) else {
                    return Keys::Cut;
                };
                if std::mem::take(&mut at_name) && is_suspect(text) {
                    return Keys::Suspect;
                }
                rest = after;
            }
            _ => {}
        }
    }
    Keys::Cut
}

fn is_suspect(name: &[u8]) -> bool {
    matches!(name, b"error" | b"errors" | b"__error__") || name.contains(&b'\\')
}

/// Splits `text` after the quote that ends a JSON string.
fn string(text: &[u8]) -> Option<(&[u8], &[u8])> {
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
