//! Where a document was read, against which its relative references are resolved.

use super::json_members::quote_name;
use crate::net::Url;

/// Where a document was read.
#[derive(Clone, Copy, Debug)]
pub(in crate::registry) enum DocumentLocation<'a> {
    /// At this URL.
    Url(&'a Url),
    /// In a file, or sent by a publisher: references must be absolute.
    NoUrl,
}

impl DocumentLocation<'_> {
    /// Resolves a reference of the document.
    ///
    /// # Errors
    /// The reference is not a URL, or is relative and the document has no URL of its own.
    pub(super) fn resolve(self, reference: &str) -> Result<Url, String> {
        let (resolved, hint) = match self {
            Self::Url(base) => (base.join(reference), ""),
            Self::NoUrl => (Url::parse(reference), " (it must be absolute in a document that was not read from a URL)"),
        };
        resolved.map_err(|_| format!("{} is not a URL{hint}", quote_name(reference)))
    }
}
