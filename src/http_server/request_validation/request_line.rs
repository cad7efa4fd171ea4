//! The HTTP/1 request line: method, target and version, separated by single spaces.

use super::{
    head_rules::{MAX_TARGET_BYTES, invalid_request, is_tchar},
    request_target,
};
use crate::fault::{Fault, FaultCode};
use std::ops::Range;

/// The supported HTTP/1 versions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Http1Version {
    Http10,
    Http11,
}

/// The parts of the request line that the rest of the head is validated against.
#[derive(Debug)]
pub(super) struct RequestLine {
    pub(super) version: Http1Version,
    /// Range of the authority within the head, if the target is in absolute form.
    pub(super) authority: Option<Range<usize>>,
}

/// Parses `line`, which begins at offset `start` of the head.
pub(super) fn parse_request_line(line: &[u8], start: usize) -> Result<RequestLine, Fault> {
    let mut parts = line.split(|byte| *byte == b' ');
    let (method, target) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    if method.is_empty() || !method.iter().copied().all(is_tchar) {
        return Err(invalid_request("The request line does not begin with a method"));
    }
    if target.is_empty() {
        return Err(invalid_request(
            "The request line has no target (write method, target and version with single spaces)",
        ));
    }
    let version = parse_version(parts.next().unwrap_or_default())?;
    if parts.next().is_some() {
        return Err(invalid_request(
            "The request line has more than three parts (percent-encode spaces in the target as %20)",
        ));
    }
    if target.len() > MAX_TARGET_BYTES {
        return Err(target_too_long());
    }
    validate_method(method)?;
    let authority = request_target::validate_target(method, target)?.map(|at| {
        let origin = start + method.len() + 1;
        origin + at.start..origin + at.end
    });
    Ok(RequestLine { version, authority })
}

fn parse_version(text: &[u8]) -> Result<Http1Version, Fault> {
    match text {
        b"HTTP/1.1" => Ok(Http1Version::Http11),
        b"HTTP/1.0" => Ok(Http1Version::Http10),
        [b'H', b'T', b'T', b'P', b'/', major, rest @ ..]
            if major.is_ascii_digit() && rest.iter().all(|b| b.is_ascii_digit() || *b == b'.') =>
        {
            Err(Fault::new(FaultCode::InvalidInput, "The HTTP version is not supported (use 1.0, 1.1 or 2)")
                .with_status(505))
        }
        _ => Err(invalid_request("The request line does not end in an HTTP version")),
    }
}

/// Refuses TRACE, which would echo credentials, and CONNECT, which would open a tunnel; the router decides on others.
pub(super) fn validate_method(method: &[u8]) -> Result<(), Fault> {
    if method.eq_ignore_ascii_case(b"CONNECT") || method.eq_ignore_ascii_case(b"TRACE") {
        return Err(Fault::new(FaultCode::MethodNotAllowed, "The method is not supported")
            .with_header("allow", "GET, HEAD, POST, PUT, PATCH, DELETE"));
    }
    Ok(())
}

#[cold]
pub(super) fn target_too_long() -> Fault {
    Fault::new(FaultCode::InvalidInput, "The request target is too long").with_status(414)
}
