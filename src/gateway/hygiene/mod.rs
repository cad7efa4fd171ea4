//! Is a request's head beyond doubt? What two parsers could read in two ways is refused here, before
//! anything routes, authenticates or forwards it. HTTP/1 heads are judged on their raw bytes, line by line
//! as they arrive and before another parser sees them; HTTP/2 heads on what the codec decoded.
//! Nothing here knows agents, callers or limits of pace, and nothing allocates unless it refuses.

mod chunks;
mod field;
mod h2;
mod line;
mod scan;
mod target;

pub use chunks::{Broken, Chunks};
pub use h2::check as check_h2;
pub use scan::Scan;

use crate::fault::{Code, Fault};

/// How large a head may be.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Bytes of the whole head, request line and final empty line included.
    pub head: usize,
    /// Header lines.
    pub fields: usize,
}

/// Bytes of a request target; generous, because one client repeats its whole body in the query.
const LONGEST_TARGET: usize = 32 << 10;

/// Judges a complete HTTP/1 head: request line, header lines and the empty line that ends them.
///
/// # Errors
/// The refusal to answer with; the connection must close after it, because where the next request
/// begins is not certain any more.
pub fn check(head: &[u8], bounds: Bounds) -> Result<(), Fault> {
    match Scan::new(bounds).feed(head)? {
        Some(_) => Ok(()),
        None => Err(refuse("The request's head is not complete (an empty line ends it).")),
    }
}

/// A plain 400.
#[cold]
fn refuse(message: &'static str) -> Fault {
    Fault::new(Code::InvalidInput, message)
}

/// RFC 9110 §5.6.2, `tchar`: a table, because every byte of every name is asked.
#[expect(clippy::indexing_slicing, reason = "the table has a place for every byte")]
const fn is_tchar(byte: u8) -> bool {
    TCHARS[byte as usize]
}

#[expect(clippy::indexing_slicing, reason = "told while it is compiled")]
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
