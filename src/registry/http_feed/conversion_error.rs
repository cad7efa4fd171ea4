//! Why a document of a source does not become an agent.

use crate::{
    registry::{DocumentBody, RawDocument},
    values::sha256,
};
use std::fmt;

/// Why a document of a source does not become an agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::registry) enum ConversionError {
    /// The document is malformed, or says something that AIDIP cannot express.
    Invalid(String),
    /// The document is well-formed and describes something that the gateway does not call. Catalogues list such entries
    /// beside agents: they say nothing against the source.
    Unsupported(String),
}

impl ConversionError {
    /// Returns the error of something that the gateway does not call.
    pub(super) fn unsupported(why: impl Into<String>) -> Self {
        Self::Unsupported(why.into())
    }

    /// Returns the reason.
    pub(in crate::registry) fn reason(&self) -> &str {
        match self {
            Self::Invalid(why) | Self::Unsupported(why) => why,
        }
    }

    /// Returns the document in the form that the catalogue does not serve, with this reason.
    pub(in crate::registry) fn to_raw_document(&self) -> RawDocument {
        let (kind, body) = match self {
            Self::Invalid(why) => ("refused", DocumentBody::Invalid(why.clone())),
            Self::Unsupported(why) => ("unsupported", DocumentBody::Unsupported(why.clone())),
        };
        RawDocument::new(sha256(format!("{kind}: {}", self.reason()).as_bytes()), body)
    }

    /// Returns the same error with another reason.
    pub(super) fn map_reason(self, map: impl FnOnce(&str) -> String) -> Self {
        match self {
            Self::Invalid(why) => Self::Invalid(map(&why)),
            Self::Unsupported(why) => Self::Unsupported(map(&why)),
        }
    }
}

impl From<String> for ConversionError {
    fn from(why: String) -> Self {
        Self::Invalid(why)
    }
}

impl From<&str> for ConversionError {
    fn from(why: &str) -> Self {
        Self::Invalid(why.to_owned())
    }
}

impl fmt::Display for ConversionError {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(self.reason())
    }
}
