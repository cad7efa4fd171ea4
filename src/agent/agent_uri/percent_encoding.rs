//! Allowed characters in each part of a name (RFC 3986 §3), and percent-decoding.

use super::UriParseError;

/// A part of a name, which decides the allowed characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum UriPart {
    /// `pchar` and `/`.
    Path,
    /// `pchar`, `/` and `?`: query and fragment.
    Query,
    /// The address format of a transport without hosts.
    TransportAddress,
}

/// Checks every character and every percent-encoded octet.
///
/// # Errors
/// The first character that is not allowed in this part.
pub(super) fn validate_chars(text: &str, part: UriPart) -> Result<(), UriParseError> {
    let mut bytes = text.bytes().enumerate();
    while let Some((at, byte)) = bytes.next() {
        let wrong = |why| Err(UriParseError { offset: at, reason: why });
        let allowed = match byte {
            b'%' => {
                let digits = bytes.next().zip(bytes.next()).and_then(|((_, high), (_, low))| decode_octet(high, low));
                match digits {
                    None => return wrong("a percent sign is not followed by two hexadecimal digits (write %25 for %)"),
                    Some(octet) if part != UriPart::Query && octet.is_ascii_control() => {
                        return wrong("an encoded control character is not allowed here");
                    }
                    Some(_) => true,
                }
            }
            b'/' => part != UriPart::TransportAddress,
            b'?' => part == UriPart::Query,
            b':' | b'@' => true,
            byte => is_unreserved_or_sub_delim(byte),
        };
        if !allowed {
            return wrong("this character is not allowed here (percent-encode it)");
        }
    }
    Ok(())
}

/// Whether `byte` is in `unreserved` or `sub-delims`.
fn is_unreserved_or_sub_delim(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=".contains(&byte)
}

/// Whether a segment is `.` or `..`, also with encoded dots or with parameters after a `;`.
pub(super) fn is_dot_segment(segment: &str) -> bool {
    let decoded = segment.replace("%2e", ".").replace("%2E", ".");
    let name = decoded.split(';').next().unwrap_or_default();
    matches!(name, "." | "..")
}

fn decode_octet(high: u8, low: u8) -> Option<u8> {
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    Some(digit(high)? << 4 | digit(low)?)
}

/// Percent-decodes `text`, reading `+` as a space if `plus`. Returns `None` if `text` is malformed or not UTF-8.
pub(super) fn percent_decode(text: &str, plus: bool) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'+' if plus => b' ',
            b'%' => decode_octet(rest.next()?, rest.next()?)?,
            byte => byte,
        });
    }
    String::from_utf8(bytes).ok()
}
