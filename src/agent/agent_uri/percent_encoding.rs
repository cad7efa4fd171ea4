//! Allowed characters in each part of a name (RFC 3986 §3), and percent-decoding.

use super::uri_parse_error::UriParseError;

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

fn decode_octet(high: u8, low: u8) -> Option<u8> {
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    Some(digit(high)? << 4 | digit(low)?)
}

/// Percent-decodes `text`. With `plus_is_space`, a `+` is a space. Returns `None` if `text` is malformed or not UTF-8.
pub(super) fn percent_decode(text: &str, plus_is_space: bool) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut encoded = text.bytes();
    while let Some(byte) = encoded.next() {
        bytes.push(match byte {
            b'+' if plus_is_space => b' ',
            b'%' => decode_octet(encoded.next()?, encoded.next()?)?,
            byte => byte,
        });
    }
    String::from_utf8(bytes).ok()
}
