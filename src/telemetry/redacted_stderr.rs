//! The log's writer: standard error, without the secrets that the gateway holds. Messages quote agents, brokers and
//! databases, which may repeat a secret in any form (R131).

use crate::values::redact_known_secrets;
use std::io::{self, Write};

/// Standard error; every line is redacted before it is written.
#[derive(Clone, Copy, Debug, Default)]
pub struct RedactedStderr;

impl Write for RedactedStderr {
    /// Writes one entry; the subscriber passes each entry whole.
    fn write(&mut self, entry: &[u8]) -> io::Result<usize> {
        match std::str::from_utf8(entry) {
            Ok(text) => io::stderr().write_all(redact_known_secrets(text).as_bytes())?,
            Err(_) => io::stderr().write_all(redact_known_secrets(&String::from_utf8_lossy(entry)).as_bytes())?,
        }
        Ok(entry.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}
