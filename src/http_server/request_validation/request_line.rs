//! The HTTP/1 request line (method, target and version, separated by single spaces), and the request targets of both
//! protocols: the supported forms, and refusal of paths that servers interpret differently.

use super::header_field::{self, MAX_TARGET_BYTES, invalid_request, is_tchar};
use crate::{
    fault::{Fault, FaultCode},
    values::decode_octet,
};
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
    let authority = validate_target(method, target)?.map(|at| {
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

/// Validates `target` and returns the range of its authority if it has one (absolute form, RFC 9112 §3.2.2).
fn validate_target(method: &[u8], target: &[u8]) -> Result<Option<Range<usize>>, Fault> {
    if target == b"*" && method == b"OPTIONS" {
        return Ok(None);
    }
    if target.first() == Some(&b'/') {
        return validate_path_and_query(target).map(|()| None);
    }
    let scheme = ["http://", "https://"]
        .into_iter()
        .find(|scheme| target.get(..scheme.len()).is_some_and(|head| head.eq_ignore_ascii_case(scheme.as_bytes())))
        .ok_or_else(|| invalid_request("The request target is not a path that begins with '/'"))?;
    let rest = target.get(scheme.len()..).unwrap_or_default();
    let length = rest.iter().position(|b| matches!(b, b'/' | b'?' | b'#')).unwrap_or(rest.len());
    header_field::validate_authority(rest.get(..length).unwrap_or_default())?;
    match rest.get(length..).unwrap_or_default() {
        [] => {}
        path => validate_path_and_query(path)?,
    }
    Ok(Some(scheme.len()..scheme.len() + length))
}

/// Validates a target in origin form.
pub(super) fn validate_path_and_query(target: &[u8]) -> Result<(), Fault> {
    let query = target.iter().position(|b| *b == b'?');
    let (path, query) = target.split_at(query.unwrap_or(target.len()));
    if path.first() != Some(&b'/') {
        return Err(invalid_request("The request path does not begin with '/'"));
    }
    validate_characters(path, true)?;
    validate_characters(query, false)?;
    validate_segments(path)
}

/// Refuses empty segments and dot segments: a router and the server behind it may interpret them differently.
fn validate_segments(path: &[u8]) -> Result<(), Fault> {
    let mut segments = path.split(|b| *b == b'/').skip(1).peekable();
    while let Some(segment) = segments.next() {
        if segment.is_empty() && segments.peek().is_some() {
            return Err(invalid_request("The request path has an empty segment ('//')"));
        }
        // Some servers cut a segment at ';' before they check for dots.
        let name = segment.split(|b| *b == b';').next().unwrap_or_default();
        if matches!(name, b"." | b"..") {
            return Err(invalid_request("The request path has a dot segment ('.' or '..')"));
        }
    }
    Ok(())
}

fn validate_characters(text: &[u8], in_path: bool) -> Result<(), Fault> {
    let mut rest = text.iter().copied();
    while let Some(byte) = rest.next() {
        match byte {
            b'%' => validate_escape(rest.next(), rest.next(), in_path)?,
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' | b':' | b'@' => {}
            b'!' | b'$' | b'&' | b'\'' | b'(' | b')' | b'*' | b'+' | b',' | b';' | b'=' => {}
            b'#' => {
                return Err(invalid_request("The request target has a fragment (percent-encode '#' as %23)"));
            }
            // Clients send these unencoded in queries; in a path, servers treat them differently.
            0x21..=0x7e if !in_path => {}
            _ => {
                return Err(invalid_request("The request target has a character that must be percent-encoded"));
            }
        }
    }
    Ok(())
}

fn validate_escape(high: Option<u8>, low: Option<u8>, in_path: bool) -> Result<(), Fault> {
    let Some(octet) = high.zip(low).and_then(|(high, low)| decode_octet(high, low)) else {
        return Err(invalid_request("The request target has a '%' without two hexadecimal digits (write %25)"));
    };
    match octet {
        0 => Err(invalid_request("The request target has an encoded NUL")),
        0x2e | 0x2f | 0x5c if in_path => {
            Err(invalid_request("The request path has an encoded dot, slash or backslash"))
        }
        0..=0x1f | 0x7f if in_path => Err(invalid_request("The request path has an encoded control character")),
        _ => Ok(()),
    }
}
