//! Reader of a stream's events, at its own pace.

use super::RunningTask;
use bytes::{Bytes, BytesMut};
use std::sync::Arc;
use tokio::sync::watch;

/// Result of reading the next event.
#[derive(Debug, PartialEq, Eq)]
pub enum NextEvent {
    /// A whole event or a part of a very long one, and whether the event ends with it.
    Bytes(Bytes, bool),
    /// The stream ended.
    End,
    /// The next event was evicted from the buffer.
    Evicted,
}

/// Reads the events of a task or stream. Dropping it unregisters the reader.
#[derive(Debug)]
pub struct EventReader {
    task: Arc<RunningTask>,
    next_index: u64,
    changed: watch::Receiver<u64>,
}

impl EventReader {
    pub(super) fn new(live: Arc<RunningTask>, next: u64, changed: watch::Receiver<u64>) -> Self {
        Self { task: live, next_index: next, changed }
    }

    /// Waits for the next event. Cancel safe.
    pub async fn next(&mut self) -> NextEvent {
        loop {
            // Marked before reading, so that a change after the read is waited for.
            self.changed.mark_unchanged();
            if let Some(next) = self.try_next() {
                return next;
            }
            if self.changed.changed().await.is_err() {
                return NextEvent::End;
            }
        }
    }

    /// Appends the available events to `first`, until there are `most` bytes, so that they need one write.
    pub fn coalesce(&mut self, (first, mut ends): (Bytes, bool), most: usize) -> (Bytes, bool) {
        let mut all = BytesMut::new();
        while first.len().max(all.len()) < most {
            // An end or a gap is found again by the next read.
            let Some(NextEvent::Bytes(more, whole)) = self.try_next() else { break };
            if all.is_empty() {
                all.extend_from_slice(&first);
            }
            all.extend_from_slice(&more);
            ends = whole;
        }
        if all.is_empty() { (first, ends) } else { (all.freeze(), ends) }
    }

    fn try_next(&mut self) -> Option<NextEvent> {
        match self.task.read_at(self.next_index) {
            (Ok(Some((bytes, ends))), _) => {
                self.next_index += 1;
                Some(NextEvent::Bytes(bytes, ends))
            }
            (Ok(None), ended) => ended.then_some(NextEvent::End),
            (Err(()), _) => Some(NextEvent::Evicted),
        }
    }

    /// The task or stream that is read.
    pub fn task(&self) -> &Arc<RunningTask> {
        &self.task
    }
}

impl Drop for EventReader {
    fn drop(&mut self) {
        self.task.unregister_reader();
    }
}
