//! What an agent's answer means. Whatever shape its failures have, a caller gets one shape (R38, R40), and
//! not a word of the agent's inside (R41, R117); all of it goes to the log.
//! Pure functions: no I/O, nothing is written here.

mod hidden;
mod retry;
mod status;
mod told;

pub(super) use hidden::may_hide_failure;

use crate::fault::Fault;
use http::{HeaderMap, StatusCode, header};
use std::fmt::Write as _;

/// An agent's answer, as far as it was read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Answer<'a> {
    /// The status.
    pub(super) status: StatusCode,
    /// The header fields as the agent sent them.
    pub(super) headers: &'a HeaderMap,
    /// The beginning of the body.
    pub(super) body: &'a [u8],
    /// Whether that is the whole body.
    pub(super) complete: bool,
    /// Whether the operation's output schema declares a property `error`: then it is a result.
    pub(super) declares_error: bool,
}

/// What is to be done with the answer.
#[derive(Debug)]
pub(super) enum Verdict {
    /// Pass it on as it is.
    Pass,
    /// It is a failure; the caller gets this instead.
    Fault(Fault),
}

/// Bytes of an agent's body that the log keeps.
const LOGGED: usize = 2048;

/// Judges an answer. JSON-RPC and A2A bodies pass with every status, because their callers read them;
/// but not where the agent refuses the gateway's own credential or sends the caller elsewhere.
pub(super) fn verdict(answer: &Answer<'_>) -> Verdict {
    let fault = match answer.status.as_u16() {
        200..=299 => hidden::failure(answer),
        _ => status::failure(answer),
    };
    match fault {
        Some(fault) => Verdict::Fault(fault.detail(detail(answer))),
        None => Verdict::Pass,
    }
}

/// What the log keeps of a failure.
fn detail(answer: &Answer<'_>) -> String {
    let mut text = format!("the agent answered {}", answer.status.as_u16());
    for name in [header::CONTENT_TYPE, header::LOCATION, header::WWW_AUTHENTICATE, header::RETRY_AFTER] {
        if let Some(value) = answer.headers.get(&name) {
            let value = String::from_utf8_lossy(value.as_bytes());
            let _ = write!(text, ", {name}: {}", value.chars().take(200).collect::<String>());
        }
    }
    let kept = answer.body.get(..LOGGED).unwrap_or(answer.body);
    if !kept.is_empty() {
        let _ = write!(text, ", body: {}", String::from_utf8_lossy(kept));
    }
    if kept.len() < answer.body.len() || !answer.complete {
        text.push('…');
    }
    text
}

#[cfg(test)]
mod tests;
