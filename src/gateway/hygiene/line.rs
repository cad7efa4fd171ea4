//! The HTTP/1 request line: method, target and version, separated by single spaces.

use super::{LONGEST_TARGET, is_tchar, refuse, target};
use crate::fault::{Code, Fault};
use std::ops::Range;

/// The supported HTTP/1 versions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Version {
    Http10,
    Http11,
}

/// The parts of the request line that the rest of the head is validated against.
#[derive(Debug)]
pub(super) struct RequestLine {
    pub(super) version: Version,
    /// Range of the authority within the head, if the target is in absolute form.
    pub(super) authority: Option<Range<usize>>,
}

/// Parses `line`, which begins at offset `start` of the head.
pub(super) fn parse(line: &[u8], start: usize) -> Result<RequestLine, Fault> {
    let mut parts = line.split(|byte| *byte == b' ');
    let (method, target) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    if method.is_empty() || !method.iter().copied().all(is_tchar) {
        return Err(refuse("The request line does not begin with a method"));
    }
    if target.is_empty() {
        return Err(refuse("The request line has no target (write method, target and version with single spaces)"));
    }
    let version = version(parts.next().unwrap_or_default())?;
    if parts.next().is_some() {
        return Err(refuse("The request line has more than three parts (percent-encode spaces in the target as %20)"));
    }
    if target.len() > LONGEST_TARGET {
        return Err(too_long());
    }
    method_is_served(method)?;
    let authority = target::split(method, target)?.map(|at| {
        let origin = start + method.len() + 1;
        origin + at.start..origin + at.end
    });
    Ok(RequestLine { version, authority })
}

fn version(text: &[u8]) -> Result<Version, Fault> {
    match text {
        b"HTTP/1.1" => Ok(Version::Http11),
        b"HTTP/1.0" => Ok(Version::Http10),
        [b'H', b'T', b'T', b'P', b'/', major, rest @ ..]
            if major.is_ascii_digit() && rest.iter().all(|b| b.is_ascii_digit() || *b == b'.') =>
        {
            Err(Fault::new(Code::InvalidInput, "The HTTP version is not supported (use 1.0, 1.1 or 2)").status(505))
        }
        _ => Err(refuse("The request line does not end in an HTTP version")),
    }
}

/// Refuses TRACE, which would echo credentials, and CONNECT, which would open a tunnel; the router decides on others.
pub(super) fn method_is_served(method: &[u8]) -> Result<(), Fault> {
    if method.eq_ignore_ascii_case(b"CONNECT") || method.eq_ignore_ascii_case(b"TRACE") {
        return Err(Fault::new(Code::MethodNotAllowed, "The method is not supported")
            .header("allow", "GET, HEAD, POST, PUT, PATCH, DELETE"));
    }
    Ok(())
}

#[cold]
pub(super) fn too_long() -> Fault {
    Fault::new(Code::InvalidInput, "The request target is too long").status(414)
}
