//! Reader of a stream's events, at its own pace.

use super::Live;
use bytes::{Bytes, BytesMut};
use std::sync::Arc;
use tokio::sync::watch;

/// Result of reading the next event.
#[derive(Debug, PartialEq, Eq)]
pub enum Next {
    /// A whole event or a part of a very long one, and whether the event ends with it.
    Bytes(Bytes, bool),
    /// The stream ended.
    End,
    /// The next event was evicted from the buffer.
    Lost,
}

/// Reads the events of a task or stream. Dropping it unregisters the reader.
#[derive(Debug)]
pub struct Follower {
    live: Arc<Live>,
    next: u64,
    changed: watch::Receiver<u64>,
}

impl Follower {
    pub(super) fn new(live: Arc<Live>, next: u64, changed: watch::Receiver<u64>) -> Self {
        Self { live, next, changed }
    }

    /// Waits for the next event. Cancel safe.
    pub async fn next(&mut self) -> Next {
        loop {
            // Marked before reading, so that a change after the read is waited for.
            self.changed.mark_unchanged();
            if let Some(next) = self.look() {
                return next;
            }
            if self.changed.changed().await.is_err() {
                return Next::End;
            }
        }
    }

    /// Appends the available events to `first`, until there are `most` bytes, so that they need one write.
    pub fn gather(&mut self, (first, mut ends): (Bytes, bool), most: usize) -> (Bytes, bool) {
        let mut all = BytesMut::new();
        while first.len().max(all.len()) < most {
            // An end or a gap is found again by the next read.
            let Some(Next::Bytes(more, whole)) = self.look() else { break };
            if all.is_empty() {
                all.extend_from_slice(&first);
            }
            all.extend_from_slice(&more);
            ends = whole;
        }
        if all.is_empty() { (first, ends) } else { (all.freeze(), ends) }
    }

    fn look(&mut self) -> Option<Next> {
        match self.live.look(self.next) {
            (Ok(Some((bytes, ends))), _) => {
                self.next += 1;
                Some(Next::Bytes(bytes, ends))
            }
            (Ok(None), ended) => ended.then_some(Next::End),
            (Err(()), _) => Some(Next::Lost),
        }
    }

    /// The task or stream that is read.
    pub fn live(&self) -> &Arc<Live> {
        &self.live
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        self.live.left();
    }
}
