//! Agent identifiers, which are safe in paths, bounded in length and cheap to clone.

use std::{borrow::Borrow, fmt, str::FromStr, sync::Arc};

/// An agent identifier: `[A-Za-z0-9._-]{1,128}`, but not `.` or `..`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct AgentId(Arc<str>);

impl AgentId {
    /// Returns whether `text` is a valid identifier.
    pub fn is_valid(text: &str) -> bool {
        let is_safe = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-');
        (1..=128).contains(&text.len()) && text.bytes().all(is_safe) && text != "." && text != ".."
    }

    /// Returns the identifier as a string slice.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the identifier as a shared string.
    pub fn to_shared_str(&self) -> Arc<str> {
        Arc::clone(&self.0)
    }
}

impl FromStr for AgentId {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if Self::is_valid(text) {
            Ok(Self(text.into()))
        } else {
            Err("the id must be 1 to 128 characters of A-Z a-z 0-9 . _ - and not . or ..".to_owned())
        }
    }
}

impl Borrow<str> for AgentId {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for AgentId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}
