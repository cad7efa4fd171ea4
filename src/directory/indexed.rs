//! Progress of the search index: lets a publisher find its agent as soon as it has the response.

use std::time::Duration;
use tokio::sync::watch;

/// Counters of published changes, and of changes that are indexed.
#[derive(Clone, Debug)]
pub struct Indexed {
    /// Number of changes in force.
    pub changed: watch::Receiver<u64>,
    /// Number of changes that the index contains.
    pub taken: watch::Receiver<u64>,
}

impl Indexed {
    /// Waits until all current changes are indexed, but no longer than `timeout`.
    pub async fn catch_up(&self, most: Duration) {
        let now = *self.changed.borrow();
        let mut taken = self.taken.clone();
        // A slower index is eventually consistent; a closed channel means that the index task has ended.
        drop(tokio::time::timeout(most, taken.wait_for(|taken| *taken >= now)).await);
    }
}
