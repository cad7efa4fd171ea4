//! Maps an agent's error statuses to faults.

use super::{
    agent_fault::{allowed_agent_code, build_fault},
    agent_response::{AgentResponse, is_json_rpc},
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
    let body = response.parse_complete_object();
    if body.as_ref().is_some_and(|body| is_json_rpc(body) || is_a2a_error(body, status)) {
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
