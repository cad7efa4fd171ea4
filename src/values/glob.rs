//! Glob patterns over names: `*` matches any run of characters, every other character matches itself.

use std::{fmt, str::FromStr};

/// A glob pattern such as `translator-*`. A match takes time linear in the name for each `*`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Glob(Box<str>);

impl Glob {
    /// Returns whether the pattern matches the whole `name`.
    pub fn matches(&self, name: &str) -> bool {
        let Some((head, rest)) = self.0.split_once('*') else {
            return &*self.0 == name;
        };
        let Some(mut name) = name.strip_prefix(head) else { return false };
        let mut parts = rest.split('*').peekable();
        while let Some(part) = parts.next() {
            if parts.peek().is_none() {
                return name.ends_with(part);
            }
            let Some(at) = name.find(part) else { return false };
            name = name.get(at + part.len()..).unwrap_or_default();
        }
        true
    }

    /// Returns the pattern as written.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns whether the pattern has no `*` and thus matches exactly one name.
    pub fn is_exact(&self) -> bool {
        !self.0.contains('*')
    }
}

impl FromStr for Glob {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "" => Err("a pattern must not be empty (write '*' for everything)".to_owned()),
            text if text.len() > 256 => Err("a pattern must have at most 256 bytes".to_owned()),
            text => Ok(Self(text.into())),
        }
    }
}

impl fmt::Display for Glob {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl serde::Serialize for Glob {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

super::impl_string_deserialize_and_schema!(
    Glob,
    "A name, or a pattern in which * matches any run of characters.",
    r"^.{1,256}$"
);
