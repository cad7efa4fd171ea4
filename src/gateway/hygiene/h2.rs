//! Validation of HTTP/2 heads. The codec refuses invalid syntax; this module refuses heads that are ambiguous or
//! would become ambiguous behind the gateway (RFC 9113 §8.2.2, §8.3.1).

use super::{
    Bounds, LONGEST_TARGET,
    field::{self, Seen},
    line, refuse, target,
};
use crate::fault::{Code, Fault};
use pingora_http::RequestHeader;

/// Connection-specific fields, which HTTP/2 forbids.
const OF_A_CONNECTION: &[&str] = &["connection", "transfer-encoding", "keep-alive", "proxy-connection", "upgrade"];

/// Validates a decoded head.
///
/// # Errors
/// The fault to respond with; other streams of the connection are not affected.
pub fn check_h2(head: &RequestHeader, bounds: Bounds) -> Result<(), Fault> {
    line::method_is_served(head.method.as_str().as_bytes())?;
    let path = head.raw_path();
    if path.len() > LONGEST_TARGET {
        return Err(line::too_long());
    }
    if !(path == b"*" && head.method == http::Method::OPTIONS) {
        target::path_and_query(path)?;
    }
    if head.headers.len() > bounds.fields {
        return Err(Fault::new(Code::InvalidInput, "The request has too many header lines").status(431));
    }
    let mut seen = Seen::default();
    for (name, value) in &head.headers {
        if OF_A_CONNECTION.contains(&name.as_str()) {
            return Err(refuse("The request has a connection-specific header, which HTTP/2 forbids"));
        }
        if name == http::header::TE && !value.as_bytes().eq_ignore_ascii_case(b"trailers") {
            return Err(refuse("The TE header may only be 'trailers' in HTTP/2"));
        }
        seen.note(name.as_str().as_bytes(), value.as_bytes())?;
    }
    authority(head)
}

fn authority(head: &RequestHeader) -> Result<(), Fault> {
    let named = head.uri.authority().map(|authority| authority.as_str().as_bytes());
    let host = head.headers.get(http::header::HOST).map(http::HeaderValue::as_bytes);
    match (named, host) {
        (Some(named), Some(host)) if !named.eq_ignore_ascii_case(host) => {
            Err(refuse("The ':authority' and the Host header differ"))
        }
        (Some(one), _) | (None, Some(one)) => field::authority(one),
        (None, None) => Err(refuse("The ':authority' is missing")),
    }
}
