//! Spellings of header names that servers read as one.

/// Whether two names in lower case are one for a server that reads fields as CGI variables (RFC 3875 §4.1.18): every
/// character that is neither letter nor digit becomes an underscore there.
pub(super) fn is_same_field(one: &str, other: &str) -> bool {
    let fold = |byte: u8| if byte.is_ascii_alphanumeric() { byte } else { b'_' };
    one.len() == other.len() && one.bytes().zip(other.bytes()).all(|(one, other)| fold(one) == fold(other))
}
