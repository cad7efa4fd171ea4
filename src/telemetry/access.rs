//! Access log: bounded queue and writer thread. A call appends its entry to the queue and continues; one thread writes
//! the queued entries, at most a hundred times a second. When the queue is full, entries are dropped and counted: a
//! slow disk loses entries but never delays a call.

use super::{Entry, Metrics, Target};
use std::{
    cell::RefCell,
    io::{self, Write},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

/// Maximum size of the queue in bytes.
const FULL: usize = 8 << 20;
/// Number of queued bytes that triggers a write before the flush interval ends.
const BATCH: usize = 256 << 10;
/// Flush interval: how long entries accumulate before a write.
const PAUSE: Duration = Duration::from_millis(10);
/// How long closing waits for a writer that is blocked.
const LAST_WAIT: Duration = Duration::from_secs(5);

#[derive(Default)]
struct Queue {
    lines: Vec<u8>,
    count: u64,
    reopen: bool,
    closing: bool,
    closed: bool,
}

struct Shared {
    queue: Mutex<Queue>,
    wake: Condvar,
    done: Condvar,
    metrics: Arc<Metrics>,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The access log: one JSON line per call.
pub struct AccessLog {
    target: Target,
    shared: Arc<Shared>,
}

impl std::fmt::Debug for AccessLog {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        to.debug_struct("AccessLog").field("target", &self.target).finish_non_exhaustive()
    }
}

thread_local! {
    /// Buffer in which an entry is serialised, so that the queue is locked only while the entry is copied.
    static LINE: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

impl AccessLog {
    /// Opens the log and starts its writer thread.
    ///
    /// # Errors
    /// The file cannot be opened, or the thread cannot be started.
    pub fn new(target: Target, metrics: Arc<Metrics>) -> Result<Self, String> {
        let out =
            target.open().map_err(|why| format!("to: {} cannot be opened ({why})", String::from(target.clone())))?;
        let shared = Arc::new(Shared { queue: Mutex::default(), wake: Condvar::new(), done: Condvar::new(), metrics });
        if target != Target::Off {
            let writer = Writer { out, target: target.clone(), shared: Arc::clone(&shared), failing: false };
            let thread = std::thread::Builder::new().name("access-log".to_owned());
            thread.spawn(|| writer.run()).map_err(|why| format!("to: the access log's thread cannot start ({why})"))?;
        }
        Ok(Self { target, shared })
    }

    /// Queues one call's entry for writing.
    pub fn write(&self, entry: &Entry<'_>) {
        if self.target == Target::Off {
            return;
        }
        // The buffer is gone only on a thread that is ending, which handles no calls.
        let kept = LINE.try_with(|line| {
            let mut line = line.borrow_mut();
            line.clear();
            entry.write(&mut line);
            self.push(&line)
        });
        if !kept.unwrap_or(false) {
            self.shared.metrics.access_dropped(1);
        }
    }

    fn push(&self, line: &[u8]) -> bool {
        let mut queue = self.shared.lock();
        let (before, after) = (queue.lines.len(), queue.lines.len() + line.len());
        if queue.closing || after > FULL {
            return false;
        }
        queue.lines.extend_from_slice(line);
        queue.count += 1;
        drop(queue);
        if before == 0 || (before < BATCH && after >= BATCH) {
            self.shared.wake.notify_one();
        }
        true
    }

    /// Reopens the file before the next write, after a rotation.
    pub fn reopen(&self) {
        self.shared.lock().reopen = true;
        self.shared.wake.notify_one();
    }

    /// Writes the queued entries and stops the thread. Waits a bounded time for a target that accepts no data.
    pub fn close(&self) {
        if self.target == Target::Off {
            return;
        }
        let mut queue = self.shared.lock();
        queue.closing = true;
        self.shared.wake.notify_one();
        let waited = self.shared.done.wait_timeout_while(queue, LAST_WAIT, |queue| !queue.closed);
        let (queue, _) = waited.unwrap_or_else(PoisonError::into_inner);
        if !queue.closed {
            tracing::warn!(lines = queue.count, "access log not flushed at shutdown: the target accepts no data");
        }
    }
}

impl Drop for AccessLog {
    fn drop(&mut self) {
        self.close();
    }
}

/// The writer thread.
struct Writer {
    out: Box<dyn Write + Send>,
    target: Target,
    shared: Arc<Shared>,
    failing: bool,
}

impl Writer {
    fn run(mut self) {
        let mut batch = Vec::new();
        loop {
            let (count, reopen, closing) = self.gather(&mut batch);
            if reopen {
                self.reopen();
            }
            if let Err(why) = self.out.write_all(&batch).and_then(|()| self.out.flush()) {
                self.failed(count, &why);
            } else if count > 0 {
                self.failing = false;
            }
            if closing {
                self.shared.lock().closed = true;
                self.shared.done.notify_all();
                return;
            }
            batch.clear();
            // Releases the memory of a burst.
            batch.shrink_to(2 * BATCH);
        }
    }

    /// Waits for entries, lets more of them accumulate, and takes all of them.
    fn gather(&self, batch: &mut Vec<u8>) -> (u64, bool, bool) {
        let idle = |queue: &mut Queue| queue.lines.is_empty() && !queue.closing && !queue.reopen;
        let queue = self.shared.wake.wait_while(self.shared.lock(), idle).unwrap_or_else(PoisonError::into_inner);
        let begun = Instant::now();
        let few = |queue: &mut Queue| queue.lines.len() < BATCH && !queue.closing && begun.elapsed() < PAUSE;
        let waited = self.shared.wake.wait_timeout_while(queue, PAUSE, few);
        let (mut queue, _) = waited.unwrap_or_else(PoisonError::into_inner);
        std::mem::swap(&mut queue.lines, batch);
        (std::mem::take(&mut queue.count), std::mem::take(&mut queue.reopen), queue.closing)
    }

    fn reopen(&mut self) {
        match self.target.open() {
            Ok(out) => self.out = out,
            Err(why) => {
                tracing::error!(%why, "access log cannot be reopened: still writing to the previous file")
            }
        }
    }

    /// Counts the dropped entries; logs only the first failure after a success.
    fn failed(&mut self, count: u64, why: &io::Error) {
        self.shared.metrics.access_dropped(count);
        if !std::mem::replace(&mut self.failing, true) {
            tracing::error!(%why, "access log cannot be written: entries are dropped");
        }
    }
}
