//! Reader of a stream's events, at its own pace.

use super::{
    event_buffer::{BufferRead, EventBuffer},
    running_task::{RunningTask, TaskRead},
};
use bytes::Bytes;
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
    /// The gateway that ran the task is gone.
    Lost,
    /// The events of another gateway cannot be read at the moment.
    Unavailable,
}

/// Reads the events of a task or stream. Dropping it unregisters the reader.
#[derive(Debug)]
pub struct EventReader {
    task: Arc<RunningTask>,
    next_index: u64,
    changed: watch::Receiver<u64>,
}

impl EventReader {
    /// Creates a reader that starts after event `after`; 0 is the start. `None` if the next event was evicted, or there
    /// was no such event.
    pub fn after(task: &Arc<RunningTask>, after: u64) -> Option<Self> {
        Self::register(task, |buffer| buffer.index_after(after))
    }

    /// Creates a reader that starts with the oldest complete event.
    pub fn from_oldest(task: &Arc<RunningTask>) -> Option<Self> {
        Self::register(task, |buffer| Some(buffer.oldest_index()))
    }

    fn register(task: &Arc<RunningTask>, find_start: impl FnOnce(&EventBuffer) -> Option<u64>) -> Option<Self> {
        let next_index = task.register_reader(find_start)?;
        Some(Self { task: Arc::clone(task), next_index, changed: task.watch_changes() })
    }

    /// Waits for the next event. Cancel-safe.
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

    /// Returns the next event if it is available.
    pub(super) fn try_next(&mut self) -> Option<NextEvent> {
        let TaskRead { chunk, has_ended } = self.task.read_at(self.next_index);
        match chunk {
            BufferRead::Chunk { bytes, ends_event } => {
                self.next_index += 1;
                Some(NextEvent::Bytes(bytes, ends_event))
            }
            BufferRead::Pending => has_ended.then_some(NextEvent::End),
            BufferRead::Evicted => Some(NextEvent::Evicted),
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
