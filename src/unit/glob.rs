//! Patterns over names: `*` stands for any run of characters, everything else for itself.

use std::{fmt, str::FromStr};

/// A pattern such as `translator-*`; matching takes time linear in the name for each `*`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Glob(Box<str>);

impl Glob {
    /// Whether the whole of `name` fits.
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

    /// The pattern as it was written.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether it has no `*`: it names exactly one thing.
    pub fn is_exact(&self) -> bool {
        !self.0.contains('*')
    }
}

impl FromStr for Glob {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "" => Err("a pattern must not be empty (write '*' for everything)".to_owned()),
            text if text.len() > 256 => Err("a pattern has at most 256 characters".to_owned()),
            text => Ok(Self(text.into())),
        }
    }
}

impl fmt::Display for Glob {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(&self.0)
    }
}

impl serde::Serialize for Glob {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

super::written_as_string!(Glob, "A name, or a pattern in which * stands for anything.", r"^.{1,256}$");
