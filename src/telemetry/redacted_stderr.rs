//! The log's writer: standard error, without the secrets that the gateway holds. Messages quote agents, brokers and
//! databases, which may repeat a secret in any form (R131), and which must not steer a terminal.

use crate::values::{redact_known_secrets, visible_text};
use std::io::{self, Write};

/// Standard error; every line is redacted before it is written.
#[derive(Clone, Copy, Debug, Default)]
pub struct RedactedStderr;

impl Write for RedactedStderr {
    /// Writes one entry; the subscriber passes each entry whole.
    fn write(&mut self, entry: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(entry);
        io::stderr().write_all(visible_text(&redact_known_secrets(&text)).as_bytes())?;
        Ok(entry.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}
