//! The fault for a failure that an agent reports.

use super::{error_body::ParsedErrorBody, error_details::ErrorDetails};
use crate::fault::{Blame, Fault, FaultCode};
use serde_json::{Map, Value};

/// Maps a code that an agent names. Only the gateway reports on authentication, authorisation and rates; an agent that
/// uses those codes has failed.
pub(super) fn allowed_agent_code(code: FaultCode) -> Option<FaultCode> {
    match code {
        FaultCode::NotFound => Some(FaultCode::CapabilityNotFound),
        FaultCode::Overloaded => Some(FaultCode::AgentUnavailable),
        FaultCode::InvalidInput
        | FaultCode::CapabilityNotFound
        | FaultCode::NotAcceptable
        | FaultCode::PaymentRequired
        | FaultCode::Conflict
        | FaultCode::PreconditionFailed
        | FaultCode::AmbiguousResponse
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

/// An agent's error, as far as it is read, and what of it reaches the caller.
pub(super) struct AgentError<'a> {
    pub(super) error: &'a ParsedErrorBody,
    pub(super) body: Option<&'a Map<String, Value>>,
    pub(super) details: &'a ErrorDetails,
}

impl AgentError<'_> {
    /// Builds the fault for a code. By default the agent's message is kept where the caller can correct the call;
    /// otherwise it would only reveal the agent's internals.
    pub(super) fn build_fault(&self, code: FaultCode) -> Fault {
        let Self { error, body, details } = self;
        let fault = Fault::new(code, general_message(code));
        let is_kept = match details {
            ErrorDetails::Message => code.row().blame == Blame::Caller,
            ErrorDetails::All | ErrorDetails::Pointer(_) => true,
            ErrorDetails::None => false,
        };
        if !is_kept {
            return fault;
        }
        let fault = match error.public_message() {
            Some(message) => fault.with_agent_message(message.into_owned()),
            None => fault,
        };
        let fault = match body.and_then(|body| details.public_body(body)) {
            Some(public) => fault.with_member("agent_error", public),
            None => fault,
        };
        if code == FaultCode::InvalidInput { fault.with_violations(error.violations.clone()) } else { fault }
    }
}

fn general_message(code: FaultCode) -> &'static str {
    match code {
        FaultCode::InvalidInput => "The agent refused the input",
        FaultCode::CapabilityNotFound => "The agent does not have the requested operation or resource",
        FaultCode::NotAcceptable => "The agent has no acceptable response format",
        FaultCode::PaymentRequired => "The agent requires a payment",
        FaultCode::PermissionDenied => "The agent refuses the call",
        FaultCode::Conflict => "The agent reports a conflict with its current state",
        FaultCode::PreconditionFailed => "The agent reports that a precondition of the request failed",
        FaultCode::PayloadTooLarge => "The input is too large for the agent",
        FaultCode::UnsupportedMediaType => "The agent does not support the media type",
        FaultCode::AmbiguousResponse => "The agent found more than one answer to the request",
        FaultCode::RateLimited => "The agent accepts no more calls for now",
        FaultCode::AgentUnavailable => "The agent is not available",
        FaultCode::Timeout => "The agent did not finish in time",
        _ => "The agent failed",
    }
}
