//! The ids of calls.

use super::header_names::REQUEST_ID;
use http::HeaderMap;

/// Returns the caller's `X-Request-ID` if it is safe to log and to echo, else a new id (R34).
pub(super) fn request_id_from(headers: &HeaderMap) -> String {
    let id = headers.get(REQUEST_ID).and_then(|id| id.to_str().ok()).filter(|id| is_safe_request_id(id));
    id.map_or_else(new_call_id, str::to_owned)
}

/// Returns whether an id is safe to log and to echo.
pub(super) fn is_safe_request_id(id: &str) -> bool {
    (1..=128).contains(&id.len()) && id.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b))
}

/// Returns a new call id.
pub(super) fn new_call_id() -> String {
    uuid::Uuid::now_v7().simple().encode_lower(&mut uuid::Uuid::encode_buffer()).to_owned()
}
