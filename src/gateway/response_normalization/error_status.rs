//! Maps an agent's error statuses to faults.

use super::{
    AgentResponse, embedded_error,
    error_body::{ErrorBodyFormat, ParsedErrorBody},
    retry_after,
};
use crate::fault::{Blame, Code, Fault};
use serde_json::{Map, Value};

pub(super) fn fault_from_error_status(answer: &AgentResponse<'_>) -> Option<Fault> {
    let status = answer.status.as_u16();
    match status {
        300..=399 => {
            return Some(Fault::new(Code::AgentError, "The agent responded with a redirect, which is not followed"));
        }
        401 | 403 | 407 => {
            return Some(Fault::new(Code::AgentError, "The agent refused the gateway's credential"));
        }
        _ => {}
    }
    let body = parse_complete_object(answer);
    if body.as_ref().is_some_and(|body| embedded_error::is_json_rpc(body) || is_a2a_error(body, status)) {
        return None;
    }
    let told = body.as_ref().map(ParsedErrorBody::parse).unwrap_or_default();
    let code = code_for_status(status, &told);
    let mut fault = build_fault(code, &told);
    if code == Code::AgentError && status == 500 {
        fault = fault.with_status(500);
    }
    match retry_after::parse_retry_after(answer.headers) {
        Some(wait) if matches!(code, Code::RateLimited | Code::AgentUnavailable) => Some(fault.with_retry_after(wait)),
        _ => Some(fault),
    }
}

/// Parses the body if it is a complete JSON object, whatever its content type.
pub(super) fn parse_complete_object(answer: &AgentResponse<'_>) -> Option<Map<String, Value>> {
    let begins = answer.body.iter().find(|b| !b.is_ascii_whitespace());
    if !answer.complete || begins != Some(&b'{') {
        return None;
    }
    serde_json::from_slice(answer.body).ok()
}

/// Whether the body is an A2A REST error: `error` with a numeric code and one of the canonical status names.
fn is_a2a_error(body: &Map<String, Value>, status: u16) -> bool {
    const NAMES: [&str; 16] = [
        "CANCELLED",
        "UNKNOWN",
        "INVALID_ARGUMENT",
        "DEADLINE_EXCEEDED",
        "NOT_FOUND",
        "ALREADY_EXISTS",
        "PERMISSION_DENIED",
        "RESOURCE_EXHAUSTED",
        "FAILED_PRECONDITION",
        "ABORTED",
        "OUT_OF_RANGE",
        "UNIMPLEMENTED",
        "INTERNAL",
        "UNAVAILABLE",
        "DATA_LOSS",
        "UNAUTHENTICATED",
    ];
    let Some(error) = body.get("error").and_then(Value::as_object) else {
        return false;
    };
    let name = error.get("status").and_then(Value::as_str);
    error.get("code").and_then(Value::as_u64) == Some(u64::from(status))
        && name.is_some_and(|name| NAMES.contains(&name))
}

/// Returns the code for a status. A code that the agent names takes precedence if it fits the status.
fn code_for_status(status: u16, error: &ParsedErrorBody) -> Code {
    let default = match status {
        400 | 422 => Code::InvalidInput,
        404 | 410
            if matches!(
                error.format,
                ErrorBodyFormat::AidipError | ErrorBodyFormat::Problem | ErrorBodyFormat::Detail
            ) =>
        {
            Code::CapabilityNotFound
        }
        406 => Code::NotAcceptable,
        408 | 504 => return Code::Timeout,
        409 => Code::Conflict,
        413 => Code::PayloadTooLarge,
        415 => Code::UnsupportedMediaType,
        429 => return Code::RateLimited,
        503 => Code::AgentUnavailable,
        404 | 405 | 410 => Code::AgentError,
        400..=499 if error.format != ErrorBodyFormat::Unknown => Code::InvalidInput,
        _ => Code::AgentError,
    };
    let blame = if status < 500 { Blame::Caller } else { Blame::Agent };
    error.code.and_then(allowed_agent_code).filter(|code| code.row().blame == blame).unwrap_or(default)
}

/// Maps a code that an agent names. Only the gateway reports on authentication, authorisation and rates; an agent that
/// uses those codes has failed.
pub(super) fn allowed_agent_code(code: Code) -> Option<Code> {
    match code {
        Code::NotFound => Some(Code::CapabilityNotFound),
        Code::Overloaded => Some(Code::AgentUnavailable),
        Code::InvalidInput
        | Code::CapabilityNotFound
        | Code::NotAcceptable
        | Code::Conflict
        | Code::PreconditionFailed
        | Code::PayloadTooLarge => Some(code),
        Code::UnsupportedMediaType | Code::AgentUnavailable | Code::AgentError | Code::Timeout => Some(code),
        Code::Unauthorized | Code::PermissionDenied | Code::RateLimited | Code::MethodNotAllowed | Code::Internal => {
            None
        }
        Code::Gone | Code::IdempotencyMismatch => None,
    }
}

/// Builds the fault for a code. The agent's message is kept where the caller can correct the call; otherwise it would
/// only reveal the agent's internals.
pub(super) fn build_fault(code: Code, error: &ParsedErrorBody) -> Fault {
    if code.row().blame != Blame::Caller {
        return Fault::new(code, general_message(code));
    }
    let fault = match error.public_message() {
        Some(words) => Fault::new(code, words.to_owned()),
        None => Fault::new(code, general_message(code)),
    };
    if code == Code::InvalidInput { fault.with_violations(error.violations.clone()) } else { fault }
}

fn general_message(code: Code) -> &'static str {
    match code {
        Code::InvalidInput => "The agent refused the input",
        Code::CapabilityNotFound => "The agent does not have the requested operation or resource",
        Code::NotAcceptable => "The agent has no acceptable response format",
        Code::Conflict => "The agent reports a conflict with its current state",
        Code::PreconditionFailed => "The agent reports that a precondition of the request failed",
        Code::PayloadTooLarge => "The input is too large for the agent",
        Code::UnsupportedMediaType => "The agent does not support the media type",
        Code::RateLimited => "The agent accepts no more calls for now",
        Code::AgentUnavailable => "The agent is not available",
        Code::Timeout => "The agent did not finish in time",
        _ => "The agent failed",
    }
}
