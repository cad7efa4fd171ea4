//! A running task or stream: its event buffer, its readers and its outcome.

use super::{
    event_buffer::{BufferRead, EventBuffer, EventLimits},
    event_log::EventLogWriter,
    sse_splitter::{EventChunk, SseSplitter, gateway_event},
    task_record::{Task, TaskOutcome, TaskState},
};
use crate::values::{ClientKey, CountedHold};
use parking_lot::{Mutex, MutexGuard};
use std::{
    sync::Arc,
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
    /// Where other gateways read the events.
    log: Option<Arc<EventLogWriter>>,
    _permit: RunPermit,
}

/// Permit of the limits on running tasks, or on resumable streams.
#[derive(Debug)]
pub(super) struct RunPermit {
    pub(super) _of_all: OwnedSemaphorePermit,
    pub(super) _of_client: CountedHold<ClientKey>,
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

/// The result of reading one chunk of a task's events.
#[derive(Debug)]
pub(super) struct TaskRead {
    pub(super) chunk: BufferRead,
    /// Whether the task ended, so that no further chunk arrives.
    pub(super) has_ended: bool,
}

impl RunningTask {
    pub(super) fn new(task: Task, owner: Arc<str>, limits: EventLimits, permit: RunPermit) -> Self {
        let now = Instant::now();
        let state = RunningTaskState {
            task,
            outcome: None,
            splitter: SseSplitter::default(),
            buffer: EventBuffer::new(limits),
            readers: 0,
            unread_since: now,
            ended: None,
            saved: false,
        };
        Self {
            owner,
            limits,
            state: Mutex::new(state),
            changed: watch::Sender::new(0),
            canceled: watch::Sender::new(false),
            log: None,
            _permit: permit,
        }
    }

    /// Writes the events to a log as well.
    pub(super) fn with_log(self, log: Option<Arc<EventLogWriter>>) -> Self {
        Self { log, ..self }
    }

    fn lock(&self) -> MutexGuard<'_, RunningTaskState> {
        self.state.lock()
    }

    fn notify(&self) {
        self.changed.send_modify(|count| *count += 1);
    }

    /// Returns the current record.
    pub fn record(&self) -> Task {
        self.lock().task.clone()
    }

    /// Returns the number of the last event.
    pub(super) fn last_event(&self) -> u64 {
        self.lock().buffer.last_number()
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
            let (readers, unread_since) = {
                let state = self.lock();
                (state.readers, state.unread_since)
            };
            let remaining = window.saturating_sub(unread_since.elapsed());
            match readers {
                0 if remaining.is_zero() => return,
                0 => tokio::time::sleep(remaining).await,
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
        let chunks = {
            let mut state = self.lock();
            state.task.streamed = true;
            state.splitter.push(bytes, self.limits.max_bytes)
        };
        for chunk in chunks {
            self.push_chunk(chunk).await;
        }
    }

    /// Appends the remaining event at the end of the agent's stream.
    pub async fn finish_agent_stream(&self) {
        let chunk = self.lock().splitter.finish();
        if let Some(chunk) = chunk {
            self.push_chunk(chunk).await;
        }
    }

    /// Appends an event of the gateway.
    pub fn push_gateway_event(&self, name: &str, data: &str) {
        let mut state = self.lock();
        let number = state.splitter.next_number();
        let event = EventChunk { number, ends_event: true, bytes: gateway_event(number, name, data) };
        self.append(&mut state, event);
        drop(state);
        self.notify();
    }

    async fn push_chunk(&self, chunk: EventChunk) {
        let mut changed = self.changed.subscribe();
        loop {
            {
                let mut state = self.lock();
                if !self.limits.lossless || state.buffer.fits(&chunk) {
                    self.append(&mut state, chunk);
                    break;
                }
            }
            if changed.changed().await.is_err() {
                return;
            }
        }
        self.notify();
    }

    /// Ends the task or stream, unless it has ended. `final_event` builds the last event; `None` if readers need none.
    pub(super) fn end(
        &self,
        outcome: &TaskOutcome,
        retention: Duration,
        final_event: impl FnOnce(&Task) -> Option<(&'static str, String)>,
    ) -> Option<Task> {
        let mut state = self.lock();
        if state.ended.is_some() {
            return None;
        }
        state.task.record_outcome(outcome, retention);
        state.outcome = Some(outcome.clone());
        if let Some((name, data)) = final_event(&state.task).filter(|_| state.buffer.ends_with_complete_event()) {
            let number = state.splitter.next_number();
            let event = EventChunk { number, ends_event: true, bytes: gateway_event(number, name, &data) };
            self.append(&mut state, event);
        }
        state.task.last = state.buffer.last_number();
        state.ended = Some(Instant::now());
        let task = state.task.clone();
        if let Some(log) = &self.log {
            log.end(&task);
        }
        drop(state);
        self.notify();
        Some(task)
    }

    /// Appends a part of an event to the buffer and to the log, while the state is locked: both have one order.
    fn append(&self, state: &mut RunningTaskState, chunk: EventChunk) {
        if let Some(log) = &self.log {
            log.push(&chunk);
        }
        state.buffer.push(chunk);
    }

    /// Renews the log, which readers elsewhere would lose if the agent sends nothing for long.
    pub(super) fn renew_log(&self) {
        self.log.iter().for_each(EventLogWriter::renew_if_due);
    }

    /// Records that another gateway has a reader, which has read everything before `next_index`.
    pub(super) fn record_remote_read(&self, next_index: u64) {
        let mut state = self.lock();
        state.buffer.set_read_up_to(next_index);
        state.unread_since = Instant::now();
        drop(state);
        self.notify();
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
        let state = self.lock();
        state.ended.is_some() && !state.saved
    }

    /// Whether it can be dropped: it ended, its end is saved, it has no readers, and they had `window` to resume.
    pub(super) fn can_be_dropped(&self, window: Duration) -> bool {
        let state = self.lock();
        let has_passed = |since: Instant| since.elapsed() >= window;
        // The agent's events are only in memory; everything else is stored.
        let is_needed = state.task.streamed && !state.ended.is_some_and(has_passed);
        state.saved && state.readers == 0 && state.ended.is_some() && !is_needed
    }

    /// Reads the chunk at an index.
    pub(super) fn read_at(&self, index: u64) -> TaskRead {
        let mut state = self.lock();
        let chunk = state.buffer.read_at(index);
        let has_ended = state.ended.is_some();
        drop(state);
        if matches!(chunk, BufferRead::Chunk { .. }) {
            self.notify();
        }
        TaskRead { chunk, has_ended }
    }

    /// Unregisters a reader.
    pub(super) fn unregister_reader(&self) {
        let mut state = self.lock();
        state.readers -= 1;
        state.unread_since = Instant::now();
        drop(state);
        self.notify();
    }

    /// Registers a reader at the index that `find_start` returns; `None` if it returns none.
    pub(super) fn register_reader(&self, find_start: impl FnOnce(&EventBuffer) -> Option<u64>) -> Option<u64> {
        let mut state = self.lock();
        let start = find_start(&state.buffer)?;
        state.readers += 1;
        drop(state);
        self.notify();
        Some(start)
    }

    /// Watches for changes: events, readers, the end.
    pub(super) fn watch_changes(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }
}
