//! Whether a response is a result or a failure: by its status, and by an error that is embedded in the body of a
//! success.

use super::{
    super::media_types::has_content_coding,
    ErrorDetails,
    agent_fault::{AgentError, allowed_agent_code},
    agent_response::{AgentResponse, JsonObjectBody, ResponseVerdict, is_json_rpc},
    error_body::{ParsedErrorBody, top_level_code},
    error_details::is_name,
    error_status::fault_from_error_status,
};
use crate::{
    agent::{MemberScan, reports_failure, scan_members},
    fault::{Fault, FaultCode},
    values::{contains_known_secret, redact_known_secrets},
};
use http::{HeaderMap, header};
use serde_json::{Map, Value};
use std::fmt::Write as _;

/// Maximum bytes of an agent's body that are logged.
const MAX_LOGGED_BODY_BYTES: usize = 2048;
/// Maximum bytes of an agent's body that are redacted for the log.
const MAX_REDACTED_BODY_BYTES: usize = 32 * MAX_LOGGED_BODY_BYTES;

/// Classifies a response as a result or a failure. Errors of JSON-RPC and A2A pass with every status to callers that
/// speak the protocol, because they read errors from the body, except where the agent refuses the gateway's credential,
/// sends a redirect, or repeats a secret of the gateway, and where the operator withholds errors.
pub(in crate::gateway) fn classify_response(response: &AgentResponse<'_>) -> ResponseVerdict {
    let body = JsonObjectBody::of(response);
    let verdict = match response.status.as_u16() {
        200..=299 => find_embedded_error(response, &body),
        _ => fault_from_error_status(response, &body).map_or_else(passed_error, ResponseVerdict::Fault),
    };
    let detail = || log_detail(response, &body);
    match verdict {
        ResponseVerdict::Fault(fault) => ResponseVerdict::Fault(fault.with_detail(detail())),
        ResponseVerdict::PassError(_) if contains_known_secret(response.body) => {
            ResponseVerdict::Fault(Fault::from(FaultCode::AgentError).with_detail(detail()))
        }
        ResponseVerdict::PassError(fault) => ResponseVerdict::PassError(fault.with_detail(detail())),
        ResponseVerdict::Pass => ResponseVerdict::Pass,
    }
}

/// Returns the failure that a body reports in its protocol's own form, for the log and the metrics. The code is that of
/// an agent's failure: the agent's protocol says no more in a form that all agents share.
fn passed_error() -> ResponseVerdict {
    ResponseVerdict::PassError(Fault::new(FaultCode::AgentError, "The agent reports an error"))
}

/// Returns the detail of a failure for the log. The body repeats the caller's input in many frameworks, so that the log
/// has it only if the operator asks for it; the code of the error is the agent's own.
fn log_detail(response: &AgentResponse<'_>, body: &JsonObjectBody<'_>) -> String {
    let mut text = format!("the agent responded with status {}", response.status.as_u16());
    if response.status.is_success() && body.object().is_some() {
        text.push_str(" and reported a failure in the body");
    }
    for name in [header::CONTENT_TYPE, header::LOCATION, header::WWW_AUTHENTICATE, header::RETRY_AFTER] {
        if let Some(value) = response.headers.get(&name) {
            let value = String::from_utf8_lossy(value.as_bytes());
            // Redacted before it is cut, so that no half of a secret is left.
            let value = redact_known_secrets(&value);
            let _ = write!(text, ", {name}: {}", value.chars().take(200).collect::<String>());
        }
    }
    let more = if response.complete { "" } else { " or more" };
    if !response.logs_body {
        if let Some(code) = body.object().and_then(agent_code) {
            let _ = write!(text, ", error: {code}");
        }
        let _ = write!(text, ", body: {} bytes{more}", response.body.len());
        return text;
    }
    // As above; secrets at the beginning make the text shorter, so that more of it than is logged is redacted.
    let beginning = response.body.get(..MAX_REDACTED_BODY_BYTES).unwrap_or(response.body);
    let beginning = String::from_utf8_lossy(beginning);
    let redacted = redact_known_secrets(&beginning);
    let logged = redacted.get(..redacted.floor_char_boundary(MAX_LOGGED_BODY_BYTES)).unwrap_or_default();
    if !logged.is_empty() {
        let _ = write!(text, ", body: {logged}");
    }
    if response.body.len() > MAX_LOGGED_BODY_BYTES || !response.complete {
        text.push('…');
    }
    text
}

/// Returns the code of an error, if it is an identifier or a number.
fn agent_code(body: &Map<String, Value>) -> Option<String> {
    let number = body.get("error").and_then(|error| error.get("code")).filter(|code| code.is_i64());
    let name = || ParsedErrorBody::parse(body).agent_code.filter(|code| is_name(code));
    number.map(Value::to_string).or_else(name)
}

fn find_embedded_error(response: &AgentResponse<'_>, body: &JsonObjectBody<'_>) -> ResponseVerdict {
    if !has_json_content_type(response.headers) {
        return ResponseVerdict::Pass;
    }
    let withholds_errors = *response.error_details == ErrorDetails::None;
    if withholds_errors && has_content_coding(response.headers) {
        let message = "The agent's answer is compressed, although the gateway asked for no coding";
        return ResponseVerdict::Fault(Fault::new(FaultCode::AgentError, message));
    }
    let scan = scan_members(response.body);
    if withholds_errors && !response.complete && may_embed_error(response.body) {
        let message = "The agent's answer is too large to be searched for an error";
        return ResponseVerdict::Fault(Fault::new(FaultCode::AgentError, message));
    }
    if response.complete && scan == MemberScan::Truncated {
        return ResponseVerdict::Fault(Fault::new(FaultCode::AgentError, "The agent's response is incomplete"));
    }
    if scan != MemberScan::ErrorMember {
        return ResponseVerdict::Pass;
    }
    let Some(body) = body.object() else {
        let unread_error =
            withholds_errors.then(|| Fault::new(FaultCode::AgentError, "The agent's answer is not valid JSON"));
        return unread_error.map_or(ResponseVerdict::Pass, ResponseVerdict::Fault);
    };
    let has_json_rpc_error = is_json_rpc(body) && body.get("error").is_some_and(Value::is_object);
    if is_json_rpc(body) && !has_json_rpc_error {
        return ResponseVerdict::Pass;
    }
    if has_json_rpc_error && response.passes_error(body) {
        return passed_error();
    }
    let is_failure = has_json_rpc_error
        || is_langgraph_error(body)
        || is_graphql_error(body)
        || (!response.read_errors.a2a && is_numbered_error(body) && !response.declared_members.has("error"))
        || reports_failure(body, response.declared_members);
    if !is_failure {
        return ResponseVerdict::Pass;
    }
    let error = ParsedErrorBody::of_response(response, Some(body));
    let code = error.code.or_else(|| top_level_code(body)).and_then(allowed_agent_code);
    let code = code.unwrap_or(FaultCode::AgentError);
    let agent_error = AgentError { error: &error, body: Some(body), details: response.error_details };
    ResponseVerdict::Fault(agent_error.build_fault(code))
}

/// Whether the beginning of a JSON body has a member that could be an embedded error, or ends before that is decided.
/// If not, the body can be streamed without buffering.
pub(in crate::gateway) fn may_embed_error(beginning: &[u8]) -> bool {
    // Only an object has members; an array of objects is a list of results.
    let first = beginning.iter().find(|byte| !byte.is_ascii_whitespace());
    first.is_none_or(|first| *first == b'{') && scan_members(beginning) != MemberScan::NoErrorMember
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

/// Whether the body is an error of a protocol that numbers its errors, such as `google.rpc.Status`, and nothing else.
fn is_numbered_error(body: &Map<String, Value>) -> bool {
    let error = body.get("error").and_then(Value::as_object).filter(|_| body.len() == 1);
    error.is_some_and(|error| {
        error.get("code").is_some_and(Value::is_number) && error.get("message").is_some_and(Value::is_string)
    })
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
