//! Faults of homeservers. The homeserver is on the gateway's side: its statements about the gateway's account go to the
//! log, and never read as if the caller's own credential had been refused.

use crate::{
    fault::{Code, Fault},
    net::{ApiReply, FetchError},
};
use serde::Deserialize;
use std::{fmt::Display, time::Duration};

/// `Retry-After` where the homeserver is unavailable and names no time.
pub(super) const SOON: Duration = Duration::from_secs(1);

/// The longest wait that is accepted from a homeserver.
const LONGEST: Duration = Duration::from_secs(3600);

/// A homeserver's error (Matrix client-server API, "Standard error response").
#[derive(Debug, Default, Deserialize)]
struct Refusal {
    #[serde(default)]
    errcode: String,
    #[serde(default)]
    error: String,
    #[serde(default)]
    retry_after_ms: Option<u64>,
}

fn read(reply: &ApiReply) -> Refusal {
    serde_json::from_slice(&reply.body).unwrap_or_default()
}

/// Whether the homeserver says that the resource does not exist.
pub(super) fn is_nothing(reply: &ApiReply) -> bool {
    reply.status == 404 && read(reply).errcode == "M_NOT_FOUND"
}

/// Returns the wait that the homeserver's rate limit asks for (`M_LIMIT_EXCEEDED`).
pub(super) fn limited(reply: &ApiReply) -> Option<Duration> {
    (reply.status == 429).then(|| {
        let told = read(reply).retry_after_ms.map(Duration::from_millis).or(reply.retry_after);
        told.unwrap_or(SOON).clamp(Duration::from_millis(50), LONGEST)
    })
}

/// The fault of the homeserver's rate limit, which applies to the gateway's account, not to this caller.
pub(super) fn busy(wait: Duration) -> Fault {
    Fault::new(Code::Overloaded, "The agent's messaging server accepts no more messages for now")
        .detail("the homeserver limits the rate of the gateway's account")
        .retry_after(wait)
}

pub(super) fn unavailable(words: &'static str, detail: impl Display) -> Fault {
    Fault::new(Code::AgentUnavailable, words).detail(detail)
}

/// The fault of a request without a usable response.
pub(super) fn unreached(why: &FetchError) -> Fault {
    unavailable("The agent cannot be reached", why).retry_after(SOON)
}

/// The fault of a response that breaks the Matrix protocol.
pub(super) fn garbled(what: &str, why: impl Display) -> Fault {
    unavailable("The agent cannot be reached", format_args!("homeserver sent an invalid response to {what}: {why}"))
        .retry_after(SOON)
}

/// The fault of a request that the homeserver refused.
pub(super) fn refused(what: &str, reply: &ApiReply) -> Fault {
    let Refusal { errcode, error, .. } = read(reply);
    let told: String = error.chars().take(200).collect();
    let detail = format!("homeserver answered {} to {what}: {errcode} {told}", reply.status);
    match (reply.status, errcode.as_str()) {
        (413, _) | (_, "M_TOO_LARGE") => Fault::new(Code::PayloadTooLarge, TOO_LARGE).detail(detail),
        (_, "M_UNKNOWN_TOKEN" | "M_MISSING_TOKEN" | "M_USER_DEACTIVATED" | "M_USER_LOCKED" | "M_USER_SUSPENDED") => {
            unavailable("The gateway's account cannot be used for this agent", detail)
        }
        (403 | 404, _) => unavailable("The agent's room cannot be entered", detail),
        (500.., _) => unavailable("The agent cannot be reached", detail).retry_after(SOON),
        _ => unavailable("The agent cannot be reached", detail),
    }
}

/// The message to a caller whose input does not fit into an event.
pub(super) const TOO_LARGE: &str = "The body is too large for this agent (a Matrix event has at most 64 KiB)";

pub(super) fn too_late() -> Fault {
    Fault::new(Code::Timeout, "The agent did not answer in time").detail("no reply in the agent's Matrix room")
}
