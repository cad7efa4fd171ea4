//! A running task or stream: its event buffer, its readers and its outcome.

use super::{
    EventReader,
    event_buffer::{EventBuffer, EventLimits},
    sse_splitter::{EventChunk, SseSplitter, gateway_event},
    task_record::{Task, TaskOutcome, TaskState},
};
use bytes::Bytes;
use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};
use tokio::sync::{OwnedSemaphorePermit, watch};

/// A task or stream that runs in this process, or ended recently.
#[derive(Debug)]
pub struct RunningTask {
    pub(super) owner: Arc<str>,
    limits: EventLimits,
    state: Mutex<RunningTaskState>,
    changed: watch::Sender<u64>,
    canceled: watch::Sender<bool>,
    /// Permit of the limit on running tasks, or on resumable streams.
    _permit: OwnedSemaphorePermit,
}

#[derive(Debug)]
struct RunningTaskState {
    task: Task,
    outcome: Option<TaskOutcome>,
    splitter: SseSplitter,
    buffer: EventBuffer,
    readers: usize,
    /// Since when there is no reader.
    unread_since: Instant,
    ended: Option<Instant>,
    saved: bool,
}

impl RunningTask {
    pub(super) fn new(task: Task, owner: Arc<str>, room: EventLimits, permit: OwnedSemaphorePermit) -> Self {
        let now = Instant::now();
        let inner = RunningTaskState {
            task,
            outcome: None,
            splitter: SseSplitter::default(),
            buffer: EventBuffer::new(room),
            readers: 0,
            unread_since: now,
            ended: None,
            saved: false,
        };
        Self {
            owner,
            limits: room,
            state: Mutex::new(inner),
            changed: watch::Sender::new(0),
            canceled: watch::Sender::new(false),
            _permit: permit,
        }
    }

    fn lock(&self) -> MutexGuard<'_, RunningTaskState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn notify(&self) {
        self.changed.send_modify(|count| *count += 1);
    }

    /// Returns the current record.
    pub fn record(&self) -> Task {
        self.lock().task.clone()
    }

    /// Returns the id.
    pub fn id(&self) -> Arc<str> {
        Arc::clone(&self.lock().task.id)
    }

    /// Returns the outcome; `None` while it runs.
    pub fn outcome(&self) -> Option<TaskOutcome> {
        self.lock().outcome.clone()
    }

    /// Resolves when the task ended.
    pub async fn wait_until_ended(&self) {
        let mut changed = self.changed.subscribe();
        while self.lock().ended.is_none() && changed.changed().await.is_ok() {}
    }

    /// Requests cancellation of the call to the agent.
    pub fn cancel(&self) {
        self.canceled.send_replace(true);
    }

    /// Resolves when cancellation was requested.
    pub async fn wait_until_canceled(&self) {
        let mut canceled = self.canceled.subscribe();
        // The sender lives as long as `self`.
        if canceled.wait_for(|canceled| *canceled).await.is_err() {
            std::future::pending().await
        }
    }

    /// Resolves when there has been no reader for `window`.
    pub async fn wait_until_abandoned(&self, window: Duration) {
        loop {
            let (followers, alone) = {
                let inner = self.lock();
                (inner.readers, inner.unread_since)
            };
            let left = window.saturating_sub(alone.elapsed());
            match followers {
                0 if left.is_zero() => return,
                0 => tokio::time::sleep(left).await,
                _ => {
                    let mut changed = self.changed.subscribe();
                    if self.lock().readers > 0 && changed.changed().await.is_err() {
                        return std::future::pending().await;
                    }
                }
            }
        }
    }

    /// Appends bytes of the agent's stream. Waits while that would evict events that no reader has read.
    pub async fn push_agent_bytes(&self, bytes: &[u8]) {
        let pieces = {
            let mut inner = self.lock();
            inner.task.streamed = true;
            inner.splitter.push(bytes, self.limits.max_bytes)
        };
        for piece in pieces {
            self.push_chunk(piece).await;
        }
    }

    /// Appends the remaining event at the end of the agent's stream.
    pub async fn finish_agent_stream(&self) {
        let piece = self.lock().splitter.finish();
        if let Some(piece) = piece {
            self.push_chunk(piece).await;
        }
    }

    /// Appends an event of the gateway.
    pub fn push_gateway_event(&self, name: &str, data: &str) {
        let mut inner = self.lock();
        let number = inner.splitter.next_number();
        inner.buffer.push(EventChunk { number, ends_event: true, bytes: gateway_event(number, name, data) });
        drop(inner);
        self.notify();
    }

    async fn push_chunk(&self, piece: EventChunk) {
        let mut changed = self.changed.subscribe();
        loop {
            {
                let mut inner = self.lock();
                if !self.limits.lossless || inner.buffer.fits(&piece) {
                    inner.buffer.push(piece);
                    break;
                }
            }
            if changed.changed().await.is_err() {
                return;
            }
        }
        self.notify();
    }

    /// Ends the task or stream. `last` builds the final event, or `None` if readers need none.
    pub(super) fn end(
        &self,
        outcome: &TaskOutcome,
        keep: Duration,
        last: impl FnOnce(&Task) -> Option<(&'static str, String)>,
    ) -> Option<Task> {
        let mut inner = self.lock();
        if inner.ended.is_some() {
            return None;
        }
        inner.task.record_outcome(outcome, keep);
        inner.outcome = Some(outcome.clone());
        if let Some((name, data)) = last(&inner.task).filter(|_| inner.buffer.ends_with_complete_event()) {
            let number = inner.splitter.next_number();
            inner.buffer.push(EventChunk { number, ends_event: true, bytes: gateway_event(number, name, &data) });
        }
        inner.task.last = inner.buffer.last_number();
        inner.ended = Some(Instant::now());
        let task = inner.task.clone();
        drop(inner);
        self.notify();
        Some(task)
    }

    pub(super) fn is_working(&self) -> bool {
        self.lock().task.state == TaskState::Working
    }

    /// Whether it is a stream, which is not stored.
    pub(super) fn is_stream(&self) -> bool {
        self.limits.lossless
    }

    pub(super) fn set_saved(&self) {
        self.lock().saved = true;
    }

    /// Whether it ended and its end is not saved yet.
    pub(super) fn is_unsaved(&self) -> bool {
        let inner = self.lock();
        inner.ended.is_some() && !inner.saved
    }

    /// Whether it can be dropped: it ended, the end is saved, and readers had `window` to resume.
    pub(super) fn can_be_dropped(&self, window: Duration) -> bool {
        let inner = self.lock();
        let past = |since: Instant| since.elapsed() >= window;
        // The agent's events are only in memory; everything else is stored.
        let needed = inner.task.streamed && !inner.ended.is_some_and(past);
        inner.saved && inner.readers == 0 && inner.ended.is_some() && !needed
    }

    /// Returns the chunk at an index (`None` if it has not arrived, an error if it was evicted), and whether it ended.
    pub(super) fn read_at(&self, at: u64) -> (Result<Option<(Bytes, bool)>, ()>, bool) {
        let mut inner = self.lock();
        let read = inner.buffer.get(at);
        let ended = inner.ended.is_some();
        drop(inner);
        if matches!(read, Ok(Some(_))) {
            self.notify();
        }
        (read, ended)
    }

    /// Unregisters a reader.
    pub(super) fn unregister_reader(&self) {
        let mut inner = self.lock();
        inner.readers -= 1;
        inner.unread_since = Instant::now();
        drop(inner);
        self.notify();
    }

    /// Creates a reader that starts after event `after`; 0 is the start. `None` if the next event was evicted, or there
    /// was no such event.
    pub fn read_after(self: &Arc<Self>, after: u64) -> Option<EventReader> {
        let inner = self.lock();
        let next = inner.buffer.index_after(after)?;
        Some(self.register_reader(inner, next))
    }

    /// Creates a reader that starts with the oldest complete event.
    pub fn read_all(self: &Arc<Self>) -> EventReader {
        let inner = self.lock();
        let next = inner.buffer.oldest_index();
        self.register_reader(inner, next)
    }

    fn register_reader(self: &Arc<Self>, mut inner: MutexGuard<'_, RunningTaskState>, next: u64) -> EventReader {
        inner.readers += 1;
        drop(inner);
        self.notify();
        EventReader::new(Arc::clone(self), next, self.changed.subscribe())
    }
}
