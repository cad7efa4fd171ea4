//! Who named a URL that a source leads to.

/// Who named a URL that a source leads to. It decides whether the source's credential goes there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LinkAuthor {
    /// The operator, or a document of the source's own server.
    Source,
    /// A document of another server.
    Foreign,
}

impl LinkAuthor {
    /// Returns the author of what a document names that this author led to; `is_own` says whether the document is of the
    /// source's own server.
    #[must_use]
    pub fn of_links(self, is_own: bool) -> Self {
        if is_own { self } else { Self::Foreign }
    }
}
