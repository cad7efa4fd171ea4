//! What the validators of heads share: size limits, the fault for an invalid request, and the characters of a token.

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
