//! Allowed characters in each part of a name (RFC 3986 §3).

use super::uri_parse_error::UriParseError;
use crate::values::decode_octet;

/// A part of a name, which determines the allowed characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum UriPart {
    /// `pchar` and `/`.
    Path,
    /// `pchar`, `/` and `?`: query and fragment.
    Query,
    /// The address format of a transport without hosts.
    TransportAddress,
}

/// Validates every character and every percent-encoded octet.
///
/// # Errors
/// The first character that is not allowed in this part.
pub(super) fn validate_chars(text: &str, part: UriPart) -> Result<(), UriParseError> {
    let mut bytes = text.bytes().enumerate();
    while let Some((offset, byte)) = bytes.next() {
        let error = |why| Err(UriParseError { offset, reason: why });
        let is_allowed = match byte {
            b'%' => {
                let octet = bytes.next().zip(bytes.next()).and_then(|((_, high), (_, low))| decode_octet(high, low));
                match octet {
                    None => return error("a percent sign is not followed by two hexadecimal digits (write %25 for %)"),
                    Some(octet) if part != UriPart::Query && octet.is_ascii_control() => {
                        return error("an encoded control character is not allowed here");
                    }
                    Some(_) => true,
                }
            }
            b'/' => part != UriPart::TransportAddress,
            b'?' => part == UriPart::Query,
            b':' | b'@' => true,
            byte => is_unreserved_or_sub_delim(byte),
        };
        if !is_allowed {
            return error("this character is not allowed here (percent-encode it)");
        }
    }
    Ok(())
}

/// Returns whether `byte` is in `unreserved` or `sub-delims`.
fn is_unreserved_or_sub_delim(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=".contains(&byte)
}

/// Returns whether a segment is `.` or `..`, also with encoded dots or with parameters after a `;`.
pub(super) fn is_dot_segment(segment: &str) -> bool {
    let decoded = segment.replace("%2e", ".").replace("%2E", ".");
    let name = decoded.split(';').next().unwrap_or_default();
    matches!(name, "." | "..")
}
