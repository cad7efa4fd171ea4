//! What a kind of feed sees of the network: GET, with everything that bounds it already in force.
//! It remembers what it fetched only so far that it can tell what changed.

use crate::net::Url;
use bytes::Bytes;
use std::time::Duration;

/// The way to one source. It holds the source's credential and bounds, and remembers validators for each URL.
#[derive(Debug)]
pub(super) struct Web {
    url: Url,
}

/// What became of a conditional GET.
#[derive(Debug)]
pub(super) enum Fetched {
    /// What is there is what was there: the server says so, or it may still be used, or its bytes are the same.
    Unchanged,
    /// Something else than the last time.
    Fresh(Page),
}

/// A complete document with status 200.
#[derive(Clone, Debug)]
pub(super) struct Page {
    /// Where it was found, after redirects.
    pub(super) url: Url,
    /// Its bytes.
    pub(super) body: Bytes,
}

impl Web {
    /// The configured address.
    pub(super) fn url(&self) -> &Url {
        &self.url
    }

    /// What is at `url`, if it is something else than the last time.
    ///
    /// # Errors
    /// Whatever kept a complete document from coming back in bounds, as a sentence that names the URL.
    pub(super) async fn get(&self, url: &Url) -> Result<Fetched, String> {
        self.whole(url).await.map(Fetched::Fresh)
    }

    /// What is at `url`, changed or not.
    ///
    /// # Errors
    /// As [`Web::get`].
    pub(super) async fn whole(&self, url: &Url) -> Result<Page, String> {
        Err(format!("{url}: cannot be fetched yet"))
    }

    /// Forgets what was fetched: the next GET brings everything again. For after a look that could not be used.
    pub(super) fn forget(&self) {}

    /// How soon the server's own words ask to look again, within the configured bounds.
    pub(super) fn again(&self) -> Option<Duration> {
        None
    }
}

#[cfg(test)]
impl Web {
    /// For tests: a source at `url` without credentials; plain http and every address of this machine are allowed.
    pub(super) fn local(url: &str) -> Self {
        Self { url: url.parse().unwrap() }
    }
}
