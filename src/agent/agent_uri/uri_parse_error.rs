//! The error of a name that is not valid.

use std::fmt;

/// Why a text is not a valid name, with the position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UriParseError {
    /// The offset of the invalid byte, from 0.
    pub offset: usize,
    /// The problem, and the requirement.
    pub reason: &'static str,
}

impl fmt::Display for UriParseError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "at character {}: {}", self.offset + 1, self.reason)
    }
}

impl std::error::Error for UriParseError {}

impl UriParseError {
    /// Returns the error of a part that starts `bytes` after the start of the name.
    pub(super) fn shifted_by(mut self, bytes: usize) -> Self {
        self.offset += bytes;
        self
    }
}
