//! Syntax of header fields, and the fields whose repetition or misspelling makes a head ambiguous; the size limits of
//! heads, the fault for an invalid request, and the characters of a token.

use crate::fault::{Fault, FaultCode};
use crate::values::is_host_and_port;
use memchr::memchr;

/// Size limits of a request head.
#[derive(Clone, Copy, Debug)]
pub struct HeadLimits {
    /// Bytes of the whole head, including the request line and the final empty line.
    pub max_bytes: usize,
    /// Number of header lines.
    pub max_fields: usize,
}

/// Maximum bytes of a request target; generous, because one client library sends its whole body in the query.
pub(super) const MAX_TARGET_BYTES: usize = 32 << 10;

/// Returns a fault with status 400.
#[cold]
pub(super) fn invalid_request(message: &'static str) -> Fault {
    Fault::new(FaultCode::InvalidInput, message)
}

/// Whether `byte` is a `tchar` (RFC 9110 §5.6.2). A table, because every byte of every field name is checked.
#[expect(clippy::indexing_slicing, reason = "the table has an entry for every byte")]
pub(super) const fn is_tchar(byte: u8) -> bool {
    TCHARS[byte as usize]
}

#[expect(clippy::indexing_slicing, reason = "evaluated at compile time")]
const TCHARS: [bool; 256] = {
    let mut chars = [false; 256];
    let mut byte = 0;
    while byte < 256 {
        chars[byte] = matches!(byte as u8, b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9'
            | b'!' | b'#' | b'$' | b'%' | b'&' | b'\'' | b'*' | b'+' | b'-' | b'.' | b'^' | b'_' | b'`' | b'|' | b'~');
        byte += 1;
    }
    chars
};

/// Fields that decide framing, routing or identity. Some servers read a name with `_` instead of `-` as these.
const SENSITIVE_FIELDS: &[&str] = &[
    "content-length",
    "transfer-encoding",
    "host",
    "connection",
    "keep-alive",
    "te",
    "trailer",
    "upgrade",
    "expect",
    "proxy-connection",
    "content-type",
    "content-encoding",
    "authorization",
    "proxy-authorization",
    "cookie",
    "x-api-key",
    "api-key",
    "forwarded",
    "via",
    "x-real-ip",
    "x-request-id",
    "x-request-timeout",
    "x-operation",
    "x-session-id",
    "x-task-id",
    "x-agent-version",
    "idempotency-key",
];

/// Prefixes of such fields.
const SENSITIVE_FIELD_PREFIXES: &[&str] = &["x-forwarded-", "x-client-", "x-gatepost-"];

/// Splits a header line into its name and its trimmed value.
pub(super) fn split_header_line(line: &[u8]) -> Result<(&[u8], &[u8]), Fault> {
    if matches!(line.first(), Some(b' ' | b'\t')) {
        return Err(invalid_request("A header line is folded (obsolete; write it on one line)"));
    }
    let colon = memchr(b':', line).ok_or_else(|| invalid_request("A header line has no colon"))?;
    let (name, value) = (line.get(..colon).unwrap_or_default(), line.get(colon + 1..).unwrap_or_default());
    if name.is_empty() {
        return Err(invalid_request("A header line has no name"));
    }
    if !name.iter().copied().all(is_tchar) {
        return Err(invalid_request("A header name contains a space or another character that is not allowed"));
    }
    // The fold visits every byte instead of stopping at the first match, so the compiler can vectorise it.
    if value.iter().fold(false, |found, b| found | matches!(b, 0..=8 | 0x0a..=0x1f | 0x7f)) {
        return Err(invalid_request("A header value contains a control character"));
    }
    Ok((name, value.trim_ascii()))
}

/// Bit set of the fields seen so far that may occur only once.
#[derive(Debug, Default)]
pub(super) struct SingletonFields(u8);

const HOST: u8 = 1;
const CONTENT_LENGTH: u8 = 2;
const TRANSFER_ENCODING: u8 = 4;
const AUTHORIZATION: u8 = 8;
const CONTENT_TYPE: u8 = 16;
const EXPECT: u8 = 32;

impl SingletonFields {
    /// Whether the head has a `Content-Length`.
    pub(super) fn has_content_length(&self) -> bool {
        self.0 & CONTENT_LENGTH != 0
    }

    /// Whether the head has a `Transfer-Encoding`, whose value then is `chunked`.
    pub(super) fn is_chunked(&self) -> bool {
        self.0 & TRANSFER_ENCODING != 0
    }

    /// Validates one field in the context of the fields before it, and records it.
    pub(super) fn validate_and_record(&mut self, name: &[u8], value: &[u8]) -> Result<(), Fault> {
        if name.contains(&b'_') && is_underscore_lookalike(name) {
            return Err(invalid_request("A header name differs from a standard one only by '_' (write '-')"));
        }
        let is_named = |expected: &str| name.eq_ignore_ascii_case(expected.as_bytes());
        match name.len() {
            4 if is_named("host") => {
                self.record_once(HOST, "The request has several Host headers (exactly one is required)")
            }
            6 if is_named("expect") => {
                self.record_once(EXPECT, "The request has several Expect headers")?;
                let is_supported = value.eq_ignore_ascii_case(b"100-continue");
                if is_supported {
                    Ok(())
                } else {
                    Err(invalid_request("The Expect header is not supported (only 100-continue is)"))
                }
            }
            10 if is_named("connection") => validate_connection_options(value),
            12 if is_named("content-type") => {
                self.record_once(CONTENT_TYPE, "The request has several Content-Type headers")
            }
            13 if is_named("authorization") => {
                self.record_once(AUTHORIZATION, "The request has several Authorization headers")
            }
            14 if is_named("content-length") => {
                self.record_once(CONTENT_LENGTH, "The request has several Content-Length headers")?;
                validate_content_length(value)
            }
            17 if is_named("transfer-encoding") => {
                self.record_once(TRANSFER_ENCODING, "The request has several Transfer-Encoding headers")?;
                let is_supported = value.eq_ignore_ascii_case(b"chunked");
                if is_supported {
                    Ok(())
                } else {
                    Err(invalid_request("The Transfer-Encoding is not supported (only chunked is)"))
                }
            }
            _ => Ok(()),
        }
    }

    fn record_once(&mut self, bit: u8, message: &'static str) -> Result<(), Fault> {
        if self.0 & bit != 0 {
            return Err(invalid_request(message));
        }
        self.0 |= bit;
        Ok(())
    }
}

/// Validates that `value` is one number of bytes, in digits only. A list of equal numbers is refused as well.
fn validate_content_length(value: &[u8]) -> Result<(), Fault> {
    let is_decimal = !value.is_empty() && value.iter().all(u8::is_ascii_digit);
    let is_in_range =
        || std::str::from_utf8(value).is_ok_and(|text| text.parse::<u64>().is_ok_and(|n| n <= i64::MAX as u64));
    if is_decimal && is_in_range() {
        Ok(())
    } else {
        Err(invalid_request("The Content-Length header is not one number of bytes"))
    }
}

/// Refuses a `Connection` that declares end-to-end fields hop-by-hop: the next hop would see a different request.
fn validate_connection_options(value: &[u8]) -> Result<(), Fault> {
    const KEPT: &[&str] =
        &["host", "content-length", "content-type", "authorization", "x-api-key", "forwarded", "cookie"];
    let is_end_to_end =
        |option: &[u8]| KEPT.iter().any(|name| option.trim_ascii().eq_ignore_ascii_case(name.as_bytes()));
    if value.split(|b| *b == b',').any(is_end_to_end) {
        return Err(invalid_request("The Connection header names a header that is not hop-by-hop"));
    }
    Ok(())
}

fn is_underscore_lookalike(name: &[u8]) -> bool {
    let matches_byte = |byte: &u8, field: u8| {
        if *byte == b'_' { field == b'-' } else { byte.eq_ignore_ascii_case(&field) }
    };
    let is_prefix = |field: &&str| {
        name.len() >= field.len() && name.iter().zip(field.bytes()).all(|(byte, field)| matches_byte(byte, field))
    };
    SENSITIVE_FIELDS.iter().any(|field| field.len() == name.len() && is_prefix(field))
        || SENSITIVE_FIELD_PREFIXES.iter().any(is_prefix)
}

/// Validates `host[:port]` without user information (RFC 3986 §3.2), the only supported form.
pub(super) fn validate_authority(text: &[u8]) -> Result<(), Fault> {
    if is_host_and_port(text) { Ok(()) } else { Err(invalid_host()) }
}

#[cold]
fn invalid_host() -> Fault {
    invalid_request("The host is not valid (a name or an IP address of at most 255 bytes, optionally with a port)")
}
