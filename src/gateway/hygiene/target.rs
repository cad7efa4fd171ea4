//! Request targets: which forms are served, and paths that can be read in one way only.

use super::{field, refuse};
use crate::fault::Fault;
use std::ops::Range;

/// Judges `target` and says where its authority is, if it has one (absolute form, RFC 9112 §3.2.2).
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
        .ok_or_else(|| refuse("The request's target is not a path (it begins with '/')."))?;
    let rest = target.get(scheme.len()..).unwrap_or_default();
    let length = rest.iter().position(|b| matches!(b, b'/' | b'?' | b'#')).unwrap_or(rest.len());
    field::authority(rest.get(..length).unwrap_or_default())?;
    match rest.get(length..).unwrap_or_default() {
        [] => {}
        path => path_and_query(path)?,
    }
    Ok(Some(scheme.len()..scheme.len() + length))
}

/// Judges an origin-form target.
pub(super) fn path_and_query(target: &[u8]) -> Result<(), Fault> {
    let query = target.iter().position(|b| *b == b'?');
    let (path, query) = target.split_at(query.unwrap_or(target.len()));
    if path.first() != Some(&b'/') {
        return Err(refuse("The request's path does not begin with '/'."));
    }
    bytes(path, true)?;
    bytes(query, false)?;
    segments(path)
}

/// Empty and dot segments mean one thing to a router and another to what is behind it.
fn segments(path: &[u8]) -> Result<(), Fault> {
    let mut segments = path.split(|b| *b == b'/').skip(1).peekable();
    while let Some(segment) = segments.next() {
        if segment.is_empty() && segments.peek().is_some() {
            return Err(refuse("The request's path has an empty segment ('//')."));
        }
        // Some servers cut a segment at ';' before they look at its dots.
        let name = segment.split(|b| *b == b';').next().unwrap_or_default();
        if matches!(name, b"." | b"..") {
            return Err(refuse("The request's path has a dot segment ('.' or '..')."));
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
                return Err(refuse("The request's target has a fragment ('#' is written %23)."));
            }
            // Clients send these bare in queries; in a path nobody agrees on them.
            0x21..=0x7e if !path => {}
            _ => {
                return Err(refuse("The request's target has a character that must be percent-encoded."));
            }
        }
    }
    Ok(())
}

fn escape(high: Option<u8>, low: Option<u8>, path: bool) -> Result<(), Fault> {
    let digit = |byte: Option<u8>| byte.and_then(|byte| char::from(byte).to_digit(16));
    let (Some(high), Some(low)) = (digit(high), digit(low)) else {
        return Err(refuse("The request's target has a '%' without two hexadecimal digits (write %25)."));
    };
    match high << 4 | low {
        0 => Err(refuse("The request's target has an encoded NUL.")),
        0x2e | 0x2f | 0x5c if path => Err(refuse("The request's path has an encoded dot, slash or backslash.")),
        0..=0x1f | 0x7f if path => Err(refuse("The request's path has an encoded control character.")),
        _ => Ok(()),
    }
}
