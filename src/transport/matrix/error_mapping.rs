//! Faults of homeservers. The homeserver is on the gateway's side: its statements about the gateway's account go to the
//! log, and never read as if the caller's own credential had been refused.

use crate::{
    fault::{CallProgress, Fault, FaultCode},
    net::{ApiReply, FetchError},
    transport::timeouts,
};
use serde::Deserialize;
use std::{fmt::Display, time::Duration};

/// `Retry-After` where the homeserver is unavailable and names no time.
pub(super) const RETRY_SOON: Duration = Duration::from_secs(1);

/// The longest wait that is accepted from a homeserver.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(3600);

/// A homeserver's error (Matrix client-server API, "Standard error response").
#[derive(Debug, Default, Deserialize)]
struct HomeserverError {
    #[serde(default)]
    errcode: String,
    #[serde(default)]
    error: String,
    #[serde(default)]
    retry_after_ms: Option<u64>,
}

fn parse_error(reply: &ApiReply) -> HomeserverError {
    serde_json::from_slice(&reply.body).unwrap_or_default()
}

/// Whether the homeserver says that the resource does not exist.
pub(super) fn is_not_found(reply: &ApiReply) -> bool {
    reply.status == 404 && parse_error(reply).errcode == "M_NOT_FOUND"
}

/// Returns the wait that the homeserver's rate limit asks for (`M_LIMIT_EXCEEDED`).
pub(super) fn rate_limit_delay(reply: &ApiReply) -> Option<Duration> {
    (reply.status == 429).then(|| {
        let delay = parse_error(reply).retry_after_ms.map(Duration::from_millis).or(reply.retry_after);
        delay.unwrap_or(RETRY_SOON).clamp(Duration::from_millis(50), MAX_RETRY_AFTER)
    })
}

/// The fault of the homeserver's rate limit, which applies to the gateway's account, not to this caller.
pub(super) fn rate_limited_fault(wait: Duration) -> Fault {
    Fault::new(FaultCode::Overloaded, "The agent's messaging server accepts no more messages for now")
        .with_detail("the homeserver limits the rate of the gateway's account")
        .with_retry_after(wait)
}

pub(super) fn unavailable_fault(message: &'static str, detail: impl Display) -> Fault {
    Fault::new(FaultCode::AgentUnavailable, message).with_detail(detail)
}

/// The fault of a request without a usable response.
pub(super) fn unreachable_fault(error: &FetchError) -> Fault {
    unavailable_fault("The agent cannot be reached", error).with_retry_after(RETRY_SOON)
}

/// The fault of a response that breaks the Matrix protocol.
pub(super) fn invalid_response_fault(request: &str, error: impl Display) -> Fault {
    unavailable_fault(
        "The agent cannot be reached",
        format_args!("homeserver sent an invalid response to {request}: {error}"),
    )
    .with_retry_after(RETRY_SOON)
}

/// The fault of a request that the homeserver refused.
pub(super) fn homeserver_fault(request: &str, reply: &ApiReply) -> Fault {
    let HomeserverError { errcode, error, .. } = parse_error(reply);
    let text: String = error.chars().take(200).collect();
    let detail = format!("homeserver answered {} to {request}: {errcode} {text}", reply.status);
    match (reply.status, errcode.as_str()) {
        (413, _) | (_, "M_TOO_LARGE") => Fault::new(FaultCode::PayloadTooLarge, TOO_LARGE_MESSAGE).with_detail(detail),
        (_, "M_UNKNOWN_TOKEN" | "M_MISSING_TOKEN" | "M_USER_DEACTIVATED" | "M_USER_LOCKED" | "M_USER_SUSPENDED") => {
            unavailable_fault("The gateway's account cannot be used for this agent", detail)
        }
        (403 | 404, _) => unavailable_fault("The agent's room cannot be entered", detail),
        (500.., _) => unavailable_fault("The agent cannot be reached", detail).with_retry_after(RETRY_SOON),
        _ => unavailable_fault("The agent cannot be reached", detail),
    }
}

/// The message to a caller whose input does not fit into an event.
pub(super) const TOO_LARGE_MESSAGE: &str = "The body is too large for this agent (a Matrix event has at most 64 KiB)";

/// Says in a fault that the agent may have received the message: the homeserver did not refuse it, and the gateway lost
/// sight of it.
pub(super) fn with_unknown_outcome(fault: Fault) -> Fault {
    match fault.code() {
        FaultCode::AgentUnavailable => fault.with_progress(CallProgress::PossiblySent),
        // A rate limit precedes the message, and a timeout never counts as a refusal.
        _ => fault,
    }
}

pub(super) fn timeout_fault() -> Fault {
    timeouts::timeout_fault("no reply in the agent's Matrix room")
}
