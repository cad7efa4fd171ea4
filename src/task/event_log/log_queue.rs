//! The logs of this gateway with events to append, and the budget of the memory for these events.

use crate::telemetry::{Event, Metrics};
use parking_lot::Mutex;
use std::{
    collections::VecDeque,
    fmt,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};
use tokio::{
    sync::{Notify, watch},
    time::timeout,
};

/// Maximum bytes of the events of all logs that the shared state has not confirmed.
pub(super) const MAX_PENDING_BYTES: usize = 64 << 20;

/// The logs that have something to append, each once.
pub(super) struct LogQueue<L> {
    logs: Mutex<VecDeque<Arc<L>>>,
    added: Notify,
    /// Number of logs that are in the queue, or whose append is under way.
    unwritten: watch::Sender<usize>,
    /// Bytes that the shared state has not confirmed, of all logs.
    pending_bytes: AtomicUsize,
    metrics: Arc<Metrics>,
}

impl<L> LogQueue<L> {
    pub(super) fn new(metrics: &Arc<Metrics>) -> Self {
        Self {
            logs: Mutex::default(),
            added: Notify::new(),
            unwritten: watch::Sender::new(0),
            pending_bytes: AtomicUsize::new(0),
            metrics: Arc::clone(metrics),
        }
    }

    /// Adds a log.
    pub(super) fn push(&self, log: Arc<L>) {
        self.unwritten.send_modify(|count| *count += 1);
        self.logs.lock().push_back(log);
        self.added.notify_one();
    }

    /// Takes a log; [`LogQueue::record_done`] must follow.
    pub(super) fn take(&self) -> Option<Arc<L>> {
        self.logs.lock().pop_front()
    }

    /// Records that logs that were taken have been appended, or are in the queue again.
    pub(super) fn record_done(&self, logs: usize) {
        self.unwritten.send_modify(|count| *count = count.saturating_sub(logs));
    }

    /// Removes the logs that `is_needed` does not keep.
    pub(super) fn retain(&self, is_needed: impl Fn(&L) -> bool) {
        // `is_needed` may lock a log, and a locked log may be added at the same time: the queue must not be locked.
        let logs = std::mem::take(&mut *self.logs.lock());
        let before = logs.len();
        let mut kept: VecDeque<Arc<L>> = logs.into_iter().filter(|log| is_needed(log)).collect();
        let removed = before - kept.len();
        let mut logs = self.logs.lock();
        kept.append(&mut logs);
        *logs = kept;
        drop(logs);
        self.record_done(removed);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.logs.lock().is_empty()
    }

    /// Waits until a log is added.
    pub(super) async fn wait_for_log(&self) {
        self.added.notified().await;
    }

    /// Waits until everything is appended, for at most `limit`.
    pub(super) async fn wait_until_written(&self, limit: Duration) {
        let mut unwritten = self.unwritten.subscribe();
        // An error means that the time is over.
        let _ = timeout(limit, unwritten.wait_for(|count| *count == 0)).await;
    }

    /// Takes bytes from the budget of all logs, and returns whether they fit.
    pub(super) fn try_reserve(&self, bytes: usize) -> bool {
        let add = |pending: usize| pending.checked_add(bytes).filter(|pending| *pending <= MAX_PENDING_BYTES);
        self.pending_bytes.fetch_update(Relaxed, Relaxed, add).is_ok()
    }

    /// Returns bytes to the budget.
    pub(super) fn release(&self, bytes: usize) {
        self.pending_bytes.fetch_sub(bytes, Relaxed);
    }

    /// Counts a gap: events were dropped because they waited for too long, or are too large.
    pub(super) fn record_gap(&self) {
        self.metrics.record_event(Event::EventLogGap);
    }
}

impl<L> fmt::Debug for LogQueue<L> {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.debug_struct("LogQueue").field("unwritten", &*self.unwritten.borrow()).finish_non_exhaustive()
    }
}
