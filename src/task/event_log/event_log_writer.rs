//! The events of one task or stream on their way to the shared state. They wait in memory, within the limits of the task's
//! event buffer and the budget of all logs; beyond these the oldest are dropped, and readers elsewhere find a gap.

use super::{
    log_entry::{ENTRY_OVERHEAD, LogEntry},
    log_header::LogHeader,
    log_names::events_of_task,
    log_queue::LogQueue,
};
use crate::{
    store::LogAppend,
    task::{event_buffer::EventLimits, sse_splitter::EventChunk, task_record::Task},
};
use bytes::Bytes;
use parking_lot::Mutex;
use std::{collections::VecDeque, fmt, sync::Arc, time::Duration};
use tokio::time::Instant;

/// How long the log of a running task outlives its last renewal: the readers of a gateway that died get what it wrote.
const RUNNING_LIFETIME: Duration = Duration::from_secs(60);
/// How long after an append the log of a running task is renewed.
const RENEWAL_INTERVAL: Duration = Duration::from_secs(20);
/// Longest lifetime after the end, if the task store has everything that the log has: readers that follow the log need it
/// a little longer.
const STORED_LIFETIME: Duration = Duration::from_secs(10);
/// Maximum bytes of an entry, which is appended in one trip. A larger one is dropped, and readers find a gap.
const MAX_ENTRY_BYTES: usize = 1 << 20;

/// The log of a task that begins.
#[derive(Clone, Copy, Debug)]
pub(in crate::task) struct NewEventLog<'a> {
    /// The task, or the stream.
    pub(in crate::task) task: &'a Task,
    /// The limits of its event buffer, and of its log.
    pub(in crate::task) limits: EventLimits,
    /// How long the log is kept after the end.
    pub(in crate::task) window: Duration,
}

/// Writes the log of one task or stream.
pub(in crate::task) struct EventLogWriter {
    log: u128,
    max_entries: usize,
    max_bytes: usize,
    is_stream: bool,
    window: Duration,
    queue: Arc<LogQueue<Self>>,
    state: Mutex<WriterState>,
}

struct WriterState {
    header: LogHeader,
    encoded_header: Bytes,
    /// The entries that the shared state has not confirmed.
    pending: VecDeque<Bytes>,
    pending_bytes: usize,
    /// The index of the first of them. Each chunk has an index, also one that is dropped.
    first_index: u64,
    /// Whether the next chunk begins an event.
    is_between_events: bool,
    lifetime: Duration,
    is_queued: bool,
    last_append: Instant,
    ended: Option<Instant>,
}

impl EventLogWriter {
    /// Begins the log of a task.
    pub(super) fn start(new: NewEventLog<'_>, header: LogHeader, queue: &Arc<LogQueue<Self>>) -> Arc<Self> {
        let state = WriterState {
            encoded_header: header.encode(),
            header,
            pending: VecDeque::new(),
            pending_bytes: 0,
            first_index: 0,
            is_between_events: true,
            lifetime: RUNNING_LIFETIME,
            is_queued: false,
            last_append: Instant::now(),
            ended: None,
        };
        let EventLimits { max_bytes, max_events, lossless } = new.limits;
        let writer = Arc::new(Self {
            log: events_of_task(&new.task.id),
            max_entries: max_events,
            // The log holds everything that the event buffer may hold.
            max_bytes: max_bytes.saturating_add(max_events.saturating_mul(ENTRY_OVERHEAD)),
            is_stream: lossless,
            window: new.window,
            queue: Arc::clone(queue),
            state: Mutex::new(state),
        });
        // Readers find a stream that has no events yet.
        writer.enqueue(&mut writer.state.lock());
        writer
    }

    /// Appends a part of an event. Never waits.
    pub(in crate::task) fn push(self: &Arc<Self>, chunk: &EventChunk) {
        let mut state = self.state.lock();
        let begins_event = std::mem::replace(&mut state.is_between_events, chunk.ends_event);
        let size = ENTRY_OVERHEAD + chunk.bytes.len();
        if size > MAX_ENTRY_BYTES || !self.queue.try_reserve(size) {
            while self.drop_oldest(&mut state) {}
            state.first_index += 1;
            self.queue.record_gap();
        } else {
            state.pending_bytes += size;
            state.pending.push_back(LogEntry::encode(chunk, begins_event));
            self.trim(&mut state);
        }
        self.enqueue(&mut state);
    }

    /// Ends the log with the last record of the task.
    pub(in crate::task) fn end(self: &Arc<Self>, task: &Task) {
        let mut state = self.state.lock();
        state.header.ended = true;
        state.header.stream = self.is_stream.then(|| task.clone());
        state.encoded_header = state.header.encode();
        let is_stored = !self.is_stream && !task.streamed;
        state.lifetime = if is_stored { self.window.min(STORED_LIFETIME) } else { self.window };
        state.ended = Some(Instant::now());
        self.enqueue(&mut state);
    }

    /// Renews the log of a running task that has written nothing for a while.
    pub(in crate::task) fn renew_if_due(self: &Arc<Self>) {
        let mut state = self.state.lock();
        if state.ended.is_none() && state.last_append.elapsed() >= RENEWAL_INTERVAL {
            self.enqueue(&mut state);
        }
    }

    /// Whether the log has ended, and its lifetime is over.
    pub(super) fn has_expired(&self) -> bool {
        let state = self.state.lock();
        state.ended.is_some_and(|ended| ended.elapsed() > state.lifetime)
    }

    /// Returns the next append, of about `max_bytes`.
    pub(super) fn take_append(&self, max_bytes: usize) -> LogAppend {
        let mut state = self.state.lock();
        state.is_queued = false;
        let (mut entries, mut bytes) = (Vec::new(), 0);
        for entry in &state.pending {
            if bytes > 0 && bytes + entry.len() > max_bytes {
                break;
            }
            bytes += entry.len();
            entries.push(entry.clone());
        }
        // The header says that the log has ended only with the last entries, so that no reader stops before them.
        let is_complete = entries.len() == state.pending.len();
        let header = if is_complete || !state.header.ended {
            state.encoded_header.clone()
        } else {
            state.header.encode_without_end()
        };
        LogAppend {
            log: self.log,
            header,
            first_index: Some(state.first_index),
            entries,
            max_entries: u32::try_from(self.max_entries).unwrap_or(u32::MAX),
            max_bytes: self.max_bytes as u64,
            lifetime: state.lifetime.max(Duration::from_secs(1)),
        }
    }

    /// Records that the shared state has confirmed an append.
    pub(super) fn record_append(self: &Arc<Self>, append: &LogAppend) {
        let mut state = self.state.lock();
        state.last_append = Instant::now();
        let confirmed = append.first_index.unwrap_or_default() + append.entries.len() as u64;
        while state.first_index < confirmed && self.drop_oldest(&mut state) {}
        if !state.pending.is_empty() {
            self.enqueue(&mut state);
        }
    }

    /// Records that an append failed, so that it is repeated.
    pub(super) fn record_failure(self: &Arc<Self>) {
        self.enqueue(&mut self.state.lock());
    }

    /// Drops the oldest entries beyond the limits of the task.
    fn trim(&self, state: &mut WriterState) {
        let mut has_gap = false;
        while state.pending.len() > 1
            && (state.pending_bytes > self.max_bytes || state.pending.len() > self.max_entries)
        {
            has_gap |= self.drop_oldest(state);
        }
        if has_gap {
            self.queue.record_gap();
        }
    }

    /// Drops the oldest entry, and returns whether there was one.
    fn drop_oldest(&self, state: &mut WriterState) -> bool {
        let Some(entry) = state.pending.pop_front() else { return false };
        state.pending_bytes -= entry.len();
        state.first_index += 1;
        self.queue.release(entry.len());
        true
    }

    fn enqueue(self: &Arc<Self>, state: &mut WriterState) {
        if !std::mem::replace(&mut state.is_queued, true) {
            self.queue.push(Arc::clone(self));
        }
    }
}

impl Drop for EventLogWriter {
    fn drop(&mut self) {
        self.queue.release(self.state.get_mut().pending_bytes);
    }
}

impl fmt::Debug for EventLogWriter {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.debug_struct("EventLogWriter").finish_non_exhaustive()
    }
}
