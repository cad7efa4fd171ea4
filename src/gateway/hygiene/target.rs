//! Request targets: the supported forms, and refusal of paths that servers interpret differently.

use super::{field, refuse};
use crate::fault::Fault;
use std::ops::Range;

/// Validates `target` and returns the range of its authority if it has one (absolute form, RFC 9112 §3.2.2).
pub(super) fn split(method: &[u8], target: &[u8]) -> Result<Option<Range<usize>>, Fault> {
    if target == b"*" && method == b"OPTIONS" {
        return Ok(None);
    }
    if target.first() == Some(&b'/') {
        return path_and_query(target).map(|()| None);
    }
    let scheme = ["http://", "https://"]
        .into_iter()
        .find(|scheme| target.get(..scheme.len()).is_some_and(|head| head.eq_ignore_ascii_case(scheme.as_bytes())))
        .ok_or_else(|| refuse("The request target is not a path that begins with '/'"))?;
    let rest = target.get(scheme.len()..).unwrap_or_default();
    let length = rest.iter().position(|b| matches!(b, b'/' | b'?' | b'#')).unwrap_or(rest.len());
    field::authority(rest.get(..length).unwrap_or_default())?;
    match rest.get(length..).unwrap_or_default() {
        [] => {}
        path => path_and_query(path)?,
    }
    Ok(Some(scheme.len()..scheme.len() + length))
}

/// Validates a target in origin form.
pub(super) fn path_and_query(target: &[u8]) -> Result<(), Fault> {
    let query = target.iter().position(|b| *b == b'?');
    let (path, query) = target.split_at(query.unwrap_or(target.len()));
    if path.first() != Some(&b'/') {
        return Err(refuse("The request path does not begin with '/'"));
    }
    bytes(path, true)?;
    bytes(query, false)?;
    segments(path)
}

/// Refuses empty segments and dot segments: a router and the server behind it may interpret them differently.
fn segments(path: &[u8]) -> Result<(), Fault> {
    let mut segments = path.split(|b| *b == b'/').skip(1).peekable();
    while let Some(segment) = segments.next() {
        if segment.is_empty() && segments.peek().is_some() {
            return Err(refuse("The request path has an empty segment ('//')"));
        }
        // Some servers cut a segment at ';' before they check for dots.
        let name = segment.split(|b| *b == b';').next().unwrap_or_default();
        if matches!(name, b"." | b"..") {
            return Err(refuse("The request path has a dot segment ('.' or '..')"));
        }
    }
    Ok(())
}

fn bytes(text: &[u8], path: bool) -> Result<(), Fault> {
    let mut rest = text.iter().copied();
    while let Some(byte) = rest.next() {
        match byte {
            b'%' => escape(rest.next(), rest.next(), path)?,
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' | b':' | b'@' => {}
            b'!' | b'$' | b'&' | b'\'' | b'(' | b')' | b'*' | b'+' | b',' | b';' | b'=' => {}
            b'#' => {
                return Err(refuse("The request target has a fragment (percent-encode '#' as %23)"));
            }
            // Clients send these unencoded in queries; in a path, servers treat them differently.
            0x21..=0x7e if !path => {}
            _ => {
                return Err(refuse("The request target has a character that must be percent-encoded"));
            }
        }
    }
    Ok(())
}

fn escape(high: Option<u8>, low: Option<u8>, path: bool) -> Result<(), Fault> {
    let digit = |byte: Option<u8>| byte.and_then(|byte| char::from(byte).to_digit(16));
    let (Some(high), Some(low)) = (digit(high), digit(low)) else {
        return Err(refuse("The request target has a '%' without two hexadecimal digits (write %25)"));
    };
    match high << 4 | low {
        0 => Err(refuse("The request target has an encoded NUL")),
        0x2e | 0x2f | 0x5c if path => Err(refuse("The request path has an encoded dot, slash or backslash")),
        0..=0x1f | 0x7f if path => Err(refuse("The request path has an encoded control character")),
        _ => Ok(()),
    }
}
