//! Tests of the tape.

mod grammar;
mod oracle;
mod work;

use super::*;

/// Parses a text with the default bounds.
fn parse(text: impl AsRef<[u8]>) -> Result<Tape, TapeError> {
    Tape::parse(Bytes::copy_from_slice(text.as_ref()), &TapeBounds::default())
}

/// Parses a text that is wrong, and returns why.
fn parse_error(text: impl AsRef<[u8]>) -> TapeError {
    parse(text).unwrap_err()
}
