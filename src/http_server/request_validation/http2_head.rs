//! Validation of HTTP/2 heads. The codec refuses invalid syntax; this module refuses heads that are ambiguous or
//! would become ambiguous behind the gateway (RFC 9113 §8.2.2, §8.3.1).

use super::{
    header_field::{self, HeadLimits, MAX_TARGET_BYTES, SingletonFields, invalid_request},
    request_line,
};
use crate::fault::{Fault, FaultCode};
use pingora_http::RequestHeader;

/// Connection-specific fields, which HTTP/2 forbids.
const CONNECTION_SPECIFIC_FIELDS: &[&str] =
    &["connection", "transfer-encoding", "keep-alive", "proxy-connection", "upgrade"];

/// Validates a decoded head; returns the bytes that it takes.
///
/// # Errors
/// The fault to respond with; other streams of the connection are not affected.
pub fn validate_http2_head(head: &RequestHeader, limits: HeadLimits) -> Result<usize, Fault> {
    request_line::validate_method(head.method.as_str().as_bytes())?;
    let path = head.raw_path();
    if path.len() > MAX_TARGET_BYTES {
        return Err(request_line::target_too_long());
    }
    if !(path == b"*" && head.method == http::Method::OPTIONS) {
        request_line::validate_path_and_query(path)?;
    }
    if head.headers.len() > limits.max_fields {
        return Err(Fault::new(FaultCode::InvalidInput, "The request has too many header lines")
            .with_status(431)
            .with_setting("connections.max_headers"));
    }
    let mut singletons = SingletonFields::default();
    let mut length = path.len();
    for (name, value) in &head.headers {
        if CONNECTION_SPECIFIC_FIELDS.contains(&name.as_str()) {
            return Err(invalid_request("The request has a connection-specific header, which HTTP/2 forbids"));
        }
        if name == http::header::TE && !value.as_bytes().eq_ignore_ascii_case(b"trailers") {
            return Err(invalid_request("The TE header may only be 'trailers' in HTTP/2"));
        }
        singletons.validate_and_record(name.as_str().as_bytes(), value.as_bytes())?;
        length += name.as_str().len() + value.len();
    }
    validate_authority_and_host(head)?;
    Ok(length)
}

fn validate_authority_and_host(head: &RequestHeader) -> Result<(), Fault> {
    let authority = head.uri.authority().map(|authority| authority.as_str().as_bytes());
    let host = head.headers.get(http::header::HOST).map(http::HeaderValue::as_bytes);
    match (authority, host) {
        (Some(authority), Some(host)) if !authority.eq_ignore_ascii_case(host) => {
            Err(invalid_request("The ':authority' and the Host header differ"))
        }
        (Some(value), _) | (None, Some(value)) => header_field::validate_authority(value),
        (None, None) => Err(invalid_request("The ':authority' is missing")),
    }
}
