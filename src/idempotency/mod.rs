//! Idempotency keys (draft-ietf-httpapi-idempotency-key-header): stores the first response to a key for its caller and
//! agent, and replays it; a repeated call waits for the first one. In memory, bounded in number, bytes and time. A call
//! in progress is never dropped, because it could then be made twice.

mod config;
mod idempotency_store;

pub use config::IdempotencyConfig;
pub use idempotency_store::{FirstCallClaim, FirstCallWaiter, FirstOutcome, IdempotencyStore, KeyLookup};

use crate::fault::{Fault, FaultCode, Result};
use aws_lc_rs::digest;
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

/// Computes the digest that identifies a request: SHA-256 over its parts, each with its length.
pub fn request_digest(parts: &[&[u8]]) -> [u8; 32] {
    let mut context = digest::Context::new(&digest::SHA256);
    for part in parts {
        context.update(&(part.len() as u64).to_be_bytes());
        context.update(part);
    }
    let mut hash = [0; 32];
    hash.copy_from_slice(context.finish().as_ref());
    hash
}

#[cfg(test)]
mod tests;
