//! Maps an agent's error statuses to faults.

use super::{
    AgentResponse, embedded_error,
    error_body::{ErrorBodyFormat, ParsedErrorBody},
    retry_after,
};
use crate::fault::{Blame, Fault, FaultCode};
use serde_json::{Map, Value};

pub(super) fn fault_from_error_status(response: &AgentResponse<'_>) -> Option<Fault> {
    let status = response.status.as_u16();
    match status {
        300..=399 => {
            return Some(Fault::new(
                FaultCode::AgentError,
                "The agent responded with a redirect, which is not followed",
            ));
        }
        401 | 403 | 407 => {
            return Some(Fault::new(FaultCode::AgentError, "The agent refused the gateway's credential"));
        }
        _ => {}
    }
    let body = parse_complete_object(response);
    if body.as_ref().is_some_and(|body| embedded_error::is_json_rpc(body) || is_a2a_error(body, status)) {
        return None;
    }
    let error = body.as_ref().map(ParsedErrorBody::parse).unwrap_or_default();
    let code = code_for_status(status, &error);
    let mut fault = build_fault(code, &error);
    if code == FaultCode::AgentError && status == 500 {
        fault = fault.with_status(500);
    }
    match retry_after::parse_retry_after(response.headers) {
        Some(delay) if matches!(code, FaultCode::RateLimited | FaultCode::AgentUnavailable) => {
            Some(fault.with_retry_after(delay))
        }
        _ => Some(fault),
    }
}

/// Parses the body if it is a complete JSON object, with any content type.
pub(super) fn parse_complete_object(response: &AgentResponse<'_>) -> Option<Map<String, Value>> {
    let first_byte = response.body.iter().find(|b| !b.is_ascii_whitespace());
    if !response.complete || first_byte != Some(&b'{') {
        return None;
    }
    serde_json::from_slice(response.body).ok()
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
fn code_for_status(status: u16, error: &ParsedErrorBody) -> FaultCode {
    let default = match status {
        400 | 422 => FaultCode::InvalidInput,
        404 | 410
            if matches!(
                error.format,
                ErrorBodyFormat::AidipError | ErrorBodyFormat::Problem | ErrorBodyFormat::Detail
            ) =>
        {
            FaultCode::CapabilityNotFound
        }
        406 => FaultCode::NotAcceptable,
        408 | 504 => return FaultCode::Timeout,
        409 => FaultCode::Conflict,
        413 => FaultCode::PayloadTooLarge,
        415 => FaultCode::UnsupportedMediaType,
        429 => return FaultCode::RateLimited,
        503 => FaultCode::AgentUnavailable,
        404 | 405 | 410 => FaultCode::AgentError,
        400..=499 if error.format != ErrorBodyFormat::Unknown => FaultCode::InvalidInput,
        _ => FaultCode::AgentError,
    };
    let blame = if status < 500 { Blame::Caller } else { Blame::Agent };
    error.code.and_then(allowed_agent_code).filter(|code| code.row().blame == blame).unwrap_or(default)
}

/// Maps a code that an agent names. Only the gateway reports on authentication, authorisation and rates; an agent that
/// uses those codes has failed.
pub(super) fn allowed_agent_code(code: FaultCode) -> Option<FaultCode> {
    match code {
        FaultCode::NotFound => Some(FaultCode::CapabilityNotFound),
        FaultCode::Overloaded => Some(FaultCode::AgentUnavailable),
        FaultCode::InvalidInput
        | FaultCode::CapabilityNotFound
        | FaultCode::NotAcceptable
        | FaultCode::Conflict
        | FaultCode::PreconditionFailed
        | FaultCode::PayloadTooLarge => Some(code),
        FaultCode::UnsupportedMediaType | FaultCode::AgentUnavailable | FaultCode::AgentError | FaultCode::Timeout => {
            Some(code)
        }
        FaultCode::Unauthorized
        | FaultCode::PermissionDenied
        | FaultCode::RateLimited
        | FaultCode::MethodNotAllowed
        | FaultCode::Internal => None,
        FaultCode::Gone | FaultCode::IdempotencyMismatch => None,
    }
}

/// Builds the fault for a code. The agent's message is kept where the caller can correct the call; otherwise it would
/// only reveal the agent's internals.
pub(super) fn build_fault(code: FaultCode, error: &ParsedErrorBody) -> Fault {
    if code.row().blame != Blame::Caller {
        return Fault::new(code, general_message(code));
    }
    let fault = match error.public_message() {
        Some(message) => Fault::new(code, message.to_owned()),
        None => Fault::new(code, general_message(code)),
    };
    if code == FaultCode::InvalidInput { fault.with_violations(error.violations.clone()) } else { fault }
}

fn general_message(code: FaultCode) -> &'static str {
    match code {
        FaultCode::InvalidInput => "The agent refused the input",
        FaultCode::CapabilityNotFound => "The agent does not have the requested operation or resource",
        FaultCode::NotAcceptable => "The agent has no acceptable response format",
        FaultCode::Conflict => "The agent reports a conflict with its current state",
        FaultCode::PreconditionFailed => "The agent reports that a precondition of the request failed",
        FaultCode::PayloadTooLarge => "The input is too large for the agent",
        FaultCode::UnsupportedMediaType => "The agent does not support the media type",
        FaultCode::RateLimited => "The agent accepts no more calls for now",
        FaultCode::AgentUnavailable => "The agent is not available",
        FaultCode::Timeout => "The agent did not finish in time",
        _ => "The agent failed",
    }
}
