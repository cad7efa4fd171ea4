//! The fault for a failure that an agent reports.

use super::error_body::ParsedErrorBody;
use crate::fault::{Blame, Fault, FaultCode};

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
