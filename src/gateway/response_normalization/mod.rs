//! Response normalization: agents report failures in many formats; the caller gets one format (R38, R40) without the
//! agent's internals (R41, R117). The full text goes to the log.
//! Pure functions: this module does no I/O and writes no response.

mod embedded_error;
mod error_body;
mod error_status;
mod retry_after;

pub(super) use embedded_error::may_embed_error;

use crate::fault::Fault;
use http::{HeaderMap, StatusCode, header};
use std::fmt::Write as _;

/// An agent's response, as far as it was read.
#[derive(Clone, Copy, Debug)]
pub(super) struct AgentResponse<'a> {
    /// The HTTP status.
    pub(super) status: StatusCode,
    /// The header fields as sent by the agent.
    pub(super) headers: &'a HeaderMap,
    /// The beginning of the body.
    pub(super) body: &'a [u8],
    /// Whether `body` is the whole body.
    pub(super) complete: bool,
    /// Whether the operation's output schema declares a property `error`: such a body is a result.
    pub(super) declares_error: bool,
}

/// How to treat a response.
#[derive(Debug)]
pub(super) enum ResponseVerdict {
    /// Pass it to the caller unchanged.
    Pass,
    /// It is a failure; the caller gets this fault instead.
    Fault(Fault),
}

/// Maximum bytes of an agent's body that are logged.
const MAX_LOGGED_BODY_BYTES: usize = 2048;

/// Classifies a response as a result or a failure. JSON-RPC and A2A bodies pass with every status, because their
/// clients read errors from the body, except where the agent refuses the gateway's credential or sends a redirect.
pub(super) fn classify_response(response: &AgentResponse<'_>) -> ResponseVerdict {
    let fault = match response.status.as_u16() {
        200..=299 => embedded_error::find_embedded_error(response),
        _ => error_status::fault_from_error_status(response),
    };
    match fault {
        Some(fault) => ResponseVerdict::Fault(fault.with_detail(log_detail(response))),
        None => ResponseVerdict::Pass,
    }
}

/// Returns the detail of a failure for the log.
fn log_detail(response: &AgentResponse<'_>) -> String {
    let mut text = format!("the agent responded with status {}", response.status.as_u16());
    for name in [header::CONTENT_TYPE, header::LOCATION, header::WWW_AUTHENTICATE, header::RETRY_AFTER] {
        if let Some(value) = response.headers.get(&name) {
            let value = String::from_utf8_lossy(value.as_bytes());
            let _ = write!(text, ", {name}: {}", value.chars().take(200).collect::<String>());
        }
    }
    let logged_body = response.body.get(..MAX_LOGGED_BODY_BYTES).unwrap_or(response.body);
    if !logged_body.is_empty() {
        let _ = write!(text, ", body: {}", String::from_utf8_lossy(logged_body));
    }
    if logged_body.len() < response.body.len() || !response.complete {
        text.push('…');
    }
    text
}

#[cfg(test)]
mod tests;
