//! How far the index follows the agents: whoever publishes one finds it as soon as it has the answer.

use std::time::Duration;
use tokio::sync::watch;

/// Counts the changes of the agents, and those that can be found.
#[derive(Clone, Debug)]
pub struct Indexed {
    /// Changes that are in force.
    pub changed: watch::Receiver<u64>,
    /// Changes that the index has taken in.
    pub taken: watch::Receiver<u64>,
}

impl Indexed {
    /// Waits until what is in force now can be found, but no longer than `most`.
    pub async fn catch_up(&self, most: Duration) {
        let now = *self.changed.borrow();
        let mut taken = self.taken.clone();
        // What takes longer is found later; an index that has ended has said so itself.
        drop(tokio::time::timeout(most, taken.wait_for(|taken| *taken >= now)).await);
    }
}
