//! Where the access log goes. A call leaves its line in a bounded queue and goes on; one thread writes what has
//! gathered, at most a hundred times a second. When the queue is full lines are dropped and counted: a slow disk
//! makes the log thinner, never a call slower.

use super::{Entry, Metrics, Target};
use std::{
    cell::RefCell,
    io::{self, Write},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

/// Bytes that may wait to be written.
const FULL: usize = 8 << 20;
/// Bytes that are worth a write before the pause is over.
const BATCH: usize = 256 << 10;
/// How long lines gather.
const PAUSE: Duration = Duration::from_millis(10);
/// How long closing waits for a writer that is stuck.
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

/// The access log: one JSON line for each call.
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
    /// A line is made here, so that the queue is locked only to copy it.
    static LINE: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

impl AccessLog {
    /// Opens the log and starts its thread.
    ///
    /// # Errors
    /// Says why the file cannot be opened.
    pub fn new(target: Target, metrics: Arc<Metrics>) -> Result<Self, String> {
        let out =
            target.open().map_err(|why| format!("to: {} cannot be opened ({why})", String::from(target.clone())))?;
        let shared = Arc::new(Shared { queue: Mutex::default(), wake: Condvar::new(), done: Condvar::new(), metrics });
        if target != Target::Off {
            let writer = Writer { out, target: target.clone(), shared: Arc::clone(&shared), failing: false };
            let thread = std::thread::Builder::new().name("access-log".to_owned());
            thread.spawn(|| writer.run()).map_err(|why| format!("to: no thread for the access log ({why})"))?;
        }
        Ok(Self { target, shared })
    }

    /// Leaves one call's line to be written.
    pub fn write(&self, entry: &Entry<'_>) {
        if self.target == Target::Off {
            return;
        }
        // A thread that is ending has no line to make any more; none of ours writes then.
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

    /// Opens the file anew before the next line: after it was moved away.
    pub fn reopen(&self) {
        self.shared.lock().reopen = true;
        self.shared.wake.notify_one();
    }

    /// Writes what has gathered and ends. Waits, but not for ever, for a target that takes nothing.
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
            tracing::warn!(lines = queue.count, "the access log takes no more lines; its last ones are lost");
        }
    }
}

impl Drop for AccessLog {
    fn drop(&mut self) {
        self.close();
    }
}

/// The thread that writes.
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
            // After a flood the memory goes back.
            batch.shrink_to(2 * BATCH);
        }
    }

    /// Waits for lines, lets more of them gather, and takes them.
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
                tracing::error!(%why, "the access log cannot be opened anew; it goes on where it was")
            }
        }
    }

    /// Says it once, until a write succeeds again.
    fn failed(&mut self, count: u64, why: &io::Error) {
        self.shared.metrics.access_dropped(count);
        if !std::mem::replace(&mut self.failing, true) {
            tracing::error!(%why, "the access log cannot be written");
        }
    }
}
