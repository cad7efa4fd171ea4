//! Calls that are made once: the first answer to an idempotency key is kept for its caller and agent, and whoever sends
//! the key again waits for it (draft-ietf-httpapi-idempotency-key-header). In memory, bounded in number, bytes and time;
//! a call that is under way is never forgotten, or it could be made twice.

mod config;
mod memory;

pub use config::Config;
pub use memory::{Answer, Entered, Once, Ticket, Waiting};

use crate::fault::{Code, Fault, Result};
use aws_lc_rs::digest;
use http::{HeaderMap, HeaderName};

/// The header.
pub const FIELD: HeaderName = HeaderName::from_static("idempotency-key");
const LONGEST: usize = 255;

/// The key of a request: 1 to 255 visible ASCII characters, in one field.
///
/// # Errors
/// `InvalidInput`.
pub fn key(headers: &HeaderMap) -> Result<Option<&str>> {
    let mut all = headers.get_all(FIELD).iter();
    let Some(first) = all.next() else { return Ok(None) };
    let text = first.to_str().unwrap_or_default();
    let fits = (1..=LONGEST).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic());
    match all.next() {
        None if fits => Ok(Some(text)),
        None => {
            let wanted = format!("Idempotency-Key is not a key (1 to {LONGEST} visible ASCII characters)");
            Err(Fault::new(Code::InvalidInput, wanted))
        }
        Some(_) => Err(Fault::new(Code::InvalidInput, "there are several Idempotency-Key fields (one is required)")),
    }
}

/// What makes two calls the same: SHA-256 over the parts, each with its length.
pub fn digest(parts: &[&[u8]]) -> [u8; 32] {
    let mut context = digest::Context::new(&digest::SHA256);
    for part in parts {
        context.update(&(part.len() as u64).to_be_bytes());
        context.update(part);
    }
    let mut whole = [0; 32];
    whole.copy_from_slice(context.finish().as_ref());
    whole
}

#[cfg(test)]
mod tests;
