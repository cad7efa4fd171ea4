//! Validation of request heads against request smuggling: a head that two parsers could read differently is refused
//! before routing, authentication or forwarding. HTTP/1 heads are validated on their raw bytes, line by line as they
//! arrive, before Pingora parses them; HTTP/2 heads after the codec has decoded them.
//! This module knows nothing of agents, callers or rates, and allocates only to refuse a request.

mod chunked_framing;
mod header_field;
mod http1_head;
mod http2_head;
mod request_line;
mod request_target;

pub use chunked_framing::{ChunkedFramingValidator, InvalidChunkedFraming};
pub use http1_head::Http1HeadValidator;
pub use http2_head::validate_http2_head;

use crate::fault::{Fault, FaultCode};

/// Size limits of a request head.
#[derive(Clone, Copy, Debug)]
pub struct HeadLimits {
    /// Bytes of the whole head, including the request line and the final empty line.
    pub max_bytes: usize,
    /// Number of header lines.
    pub max_fields: usize,
}

/// Maximum bytes of a request target; generous, because one client library sends its whole body in the query.
const MAX_TARGET_BYTES: usize = 32 << 10;

/// Validates a complete HTTP/1 head: request line, header lines and the empty line that ends them.
///
/// # Errors
/// The fault to respond with. The connection must close after the response, because the start of the next request
/// is no longer certain.
pub fn validate_http1_head(head: &[u8], limits: HeadLimits) -> Result<(), Fault> {
    match Http1HeadValidator::new(limits).feed(head)? {
        Some(_) => Ok(()),
        None => Err(invalid_request("The request head is incomplete (an empty line must end it)")),
    }
}

/// Returns a fault with status 400.
#[cold]
fn invalid_request(message: &'static str) -> Fault {
    Fault::new(FaultCode::InvalidInput, message)
}

/// Whether `byte` is a `tchar` (RFC 9110 §5.6.2). A table, because every byte of every field name is checked.
#[expect(clippy::indexing_slicing, reason = "the table has an entry for every byte")]
const fn is_tchar(byte: u8) -> bool {
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

#[cfg(test)]
mod tests;
