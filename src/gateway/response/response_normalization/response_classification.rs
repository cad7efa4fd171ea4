//! Whether a response is a result or a failure.

use super::{
    agent_response::{AgentResponse, ResponseVerdict},
    embedded_error::find_embedded_error,
    error_status::fault_from_error_status,
};
use http::header;
use std::fmt::Write as _;

/// Maximum bytes of an agent's body that are logged.
const MAX_LOGGED_BODY_BYTES: usize = 2048;

/// Classifies a response as a result or a failure. JSON-RPC and A2A bodies pass with every status, because their
/// clients read errors from the body, except where the agent refuses the gateway's credential or sends a redirect.
pub(in crate::gateway) fn classify_response(response: &AgentResponse<'_>) -> ResponseVerdict {
    let fault = match response.status.as_u16() {
        200..=299 => find_embedded_error(response),
        _ => fault_from_error_status(response),
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
