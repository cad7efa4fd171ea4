//! The `Idempotency-Key` header of a request.

use crate::fault::{Fault, FaultCode, Result};
use http::{HeaderMap, HeaderName};

/// Name of the request header.
pub const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
const MAX_KEY_LENGTH: usize = 255;

/// Returns the idempotency key of a request: 1 to 255 visible ASCII characters, in one header.
///
/// # Errors
/// `InvalidInput` for several keys or an invalid one.
pub fn parse_key(headers: &HeaderMap) -> Result<Option<&str>> {
    let mut all = headers.get_all(IDEMPOTENCY_KEY).iter();
    let Some(first) = all.next() else { return Ok(None) };
    let text = first.to_str().unwrap_or_default();
    let is_valid = (1..=MAX_KEY_LENGTH).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic());
    match all.next() {
        None if is_valid => Ok(Some(text)),
        None => {
            let message = format!("Idempotency-Key is invalid (1 to {MAX_KEY_LENGTH} visible ASCII characters)");
            Err(Fault::new(FaultCode::InvalidInput, message))
        }
        Some(_) => {
            Err(Fault::new(FaultCode::InvalidInput, "The request has several Idempotency-Key headers (send one)"))
        }
    }
}
