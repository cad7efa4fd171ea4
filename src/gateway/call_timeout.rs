//! The deadline of a call: the agent's total timeout, or the caller's (`X-Request-Timeout`) if that is shorter.

use super::header_names::REQUEST_TIMEOUT;
use crate::fault::{Fault, FaultCode, Result};
use http::HeaderMap;
use std::time::{Duration, Instant};

/// Returns the deadline: `max_duration` after arrival, or the caller's timeout if that is shorter.
///
/// # Errors
/// `InvalidInput` if the caller's timeout is not a duration.
pub(super) fn call_deadline(arrived_at: Instant, max_duration: Duration, headers: &HeaderMap) -> Result<Instant> {
    let requested = match headers.get(REQUEST_TIMEOUT) {
        None => max_duration,
        Some(value) => parse_timeout(value.to_str().unwrap_or_default())?,
    };
    Ok(arrived_at + requested.min(max_duration))
}

/// Parses `X-Request-Timeout`: seconds (`2`, `0.5`, `2s`) or milliseconds (`1500ms`).
fn parse_timeout(text: &str) -> Result<Duration> {
    let refuse = || {
        Fault::new(FaultCode::InvalidInput, "X-Request-Timeout is not a duration (seconds such as 2 or 0.5, or 1500ms)")
    };
    let (number, unit) = match text.strip_suffix("ms") {
        Some(number) => (number, 0.001),
        None => (text.strip_suffix('s').unwrap_or(text), 1.0),
    };
    let is_decimal =
        !number.is_empty() && number.len() <= 12 && number.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    let seconds: f64 = number.parse().ok().filter(|_| is_decimal).ok_or_else(refuse)?;
    match Duration::try_from_secs_f64(seconds * unit) {
        Ok(timeout) if !timeout.is_zero() => Ok(timeout),
        _ => Err(refuse()),
    }
}
