//! Progress of the search index: a write waits for it, so that a publisher can find its agent as soon as it has the
//! response.

use std::time::Duration;
use tokio::sync::watch;

/// Counters of published changes, and of changes that are indexed.
#[derive(Clone, Debug)]
pub struct IndexProgress {
    /// Number of changes in force.
    pub published: watch::Receiver<u64>,
    /// Number of changes that the index contains.
    pub indexed: watch::Receiver<u64>,
}

impl IndexProgress {
    /// Waits until all current changes are indexed, but no longer than `timeout`.
    pub async fn wait_until_indexed(&self, timeout: Duration) {
        let published = *self.published.borrow();
        let mut indexed = self.indexed.clone();
        // A slower index is eventually consistent; a closed channel means that the index task has ended.
        drop(tokio::time::timeout(timeout, indexed.wait_for(|count| *count >= published)).await);
    }
}
