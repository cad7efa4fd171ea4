//! Maps an agent's error statuses to faults.

use super::{
    agent_fault::{AgentError, allowed_agent_code},
    agent_response::{AgentResponse, JsonObjectBody, is_a2a_error, is_json_rpc},
    error_body::{ErrorBodyFormat, ParsedErrorBody},
    retry_after,
};
use crate::fault::{Blame, Fault, FaultCode};
use serde_json::{Map, Value};

pub(super) fn fault_from_error_status(response: &AgentResponse<'_>, body: &JsonObjectBody<'_>) -> Option<Fault> {
    let status = response.status.as_u16();
    if (300..=399).contains(&status) {
        return Some(Fault::new(FaultCode::AgentError, "The agent responded with a redirect, which is not followed"));
    }
    let body = body.object();
    let error = ParsedErrorBody::of_response(response, body);
    if let Some(message) = refused_credential(response, body) {
        return Some(Fault::new(FaultCode::AgentError, message).with_setting("agents.defaults.credential"));
    }
    if body.is_some_and(|body| response.passes_error(body)) {
        return None;
    }
    let code = code_for_status(response, &error);
    let agent_error = AgentError { error: &error, body, details: response.error_details };
    let mut fault = agent_error.build_fault(code);
    if code == FaultCode::AgentError && status == 500 {
        fault = fault.with_status(500);
    }
    if code == FaultCode::InvalidInput && status == 422 {
        fault = fault.with_status(422);
    }
    match retry_after::parse_retry_after(response.headers) {
        Some(delay) if matches!(code, FaultCode::RateLimited | FaultCode::AgentUnavailable) => {
            Some(fault.with_retry_after(delay))
        }
        _ => Some(fault),
    }
}

/// Returns the message for a status that refuses the gateway and not the caller. A 403 to a request without a credential
/// of the gateway, or with another reason than the credential, is the agent's answer to the call.
fn refused_credential(response: &AgentResponse<'_>, body: Option<&Map<String, Value>>) -> Option<&'static str> {
    let status = response.status.as_u16();
    let names_another_reason = || {
        let is_protocol_error = |body: &&Map<String, Value>| is_json_rpc(body) || is_a2a_error(body, status);
        let error = body.filter(|body| !is_protocol_error(body)).map(ParsedErrorBody::parse).unwrap_or_default();
        error.format != ErrorBodyFormat::Unknown && !error.is_about_credential()
    };
    match (status, response.credential_sent) {
        (401 | 407, true) => Some("The agent refused the gateway's credential"),
        (403, true) if !names_another_reason() => Some("The agent refused the gateway's credential"),
        (401, false) => Some("The agent requires a credential, and the gateway has none for it"),
        (407, false) => Some("The agent failed"),
        _ => None,
    }
}

/// Returns the code for a status. A code that the agent names takes precedence if it fits the status.
fn code_for_status(response: &AgentResponse<'_>, error: &ParsedErrorBody) -> FaultCode {
    let status = response.status.as_u16();
    let default = match status {
        400 | 422 => FaultCode::InvalidInput,
        402 => return FaultCode::PaymentRequired,
        403 => return FaultCode::PermissionDenied,
        // The session that the caller named has ended (MCP, "Session Management").
        404 | 410 if response.has_session => FaultCode::CapabilityNotFound,
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
