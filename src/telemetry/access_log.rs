//! Access log: a bounded queue and a writer thread. A call appends its entry to the queue and continues; the thread
//! writes the queued entries, at most a hundred times a second. If the queue is full, entries are dropped and counted:
//! a slow disk loses entries but delays no call. The configuration names the target of the entries.

use super::{
    AccessLogEntry, Metrics,
    log_privacy::{LogPrivacy, LoggedAddresses, LoggedCallers},
    recent_calls::RecentCalls,
};
use crate::values::{ConfigPath, SecretRef};
use parking_lot::{Condvar, Mutex, MutexGuard};
use std::{
    borrow::Cow,
    cell::RefCell,
    fs::OpenOptions,
    io::{self, Write},
    net::IpAddr,
    os::unix::fs::OpenOptionsExt,
    str::FromStr,
    sync::Arc,
    time::{Duration, Instant},
};

/// Configuration of the access log.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Deserialize, serde::Serialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct AccessLogConfig {
    /// Where the access log goes: stdout, stderr, off, or the path of a file, to which the gateway appends and which
    /// SIGHUP opens again. Default stdout.
    #[schemars(with = "String")]
    pub output: AccessLogTarget,
    /// How the log names callers: plain, or pseudonym (a keyed hash of the name). Default plain.
    pub callers: LoggedCallers,
    /// How the log gives the addresses of clients: full, truncated (to /24, or /48 with IPv6), pseudonym (a keyed hash)
    /// or omitted. Default full.
    pub addresses: LoggedAddresses,
    /// Key of the pseudonyms, at least 16 bytes: gateways with one key give one pseudonym to a caller, and who has the
    /// key can find the entries of a caller. Default: a random key for each process, which is stored nowhere.
    pub pseudonym_key: Option<SecretRef>,
}

/// The target of the access log.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Deserialize, serde::Serialize)]
#[serde(try_from = "String", into = "String")]
pub enum AccessLogTarget {
    /// Standard output.
    #[default]
    Stdout,
    /// Standard error.
    Stderr,
    /// No access log.
    Off,
    /// A file.
    File(ConfigPath),
}

impl FromStr for AccessLogTarget {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "" => Err("must name a target (stdout, stderr, off or a path)".to_owned()),
            "stdout" => Ok(Self::Stdout),
            "stderr" => Ok(Self::Stderr),
            "off" => Ok(Self::Off),
            path => path.parse().map(Self::File),
        }
    }
}

impl TryFrom<String> for AccessLogTarget {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<AccessLogTarget> for String {
    fn from(target: AccessLogTarget) -> Self {
        match target {
            AccessLogTarget::Stdout => "stdout".to_owned(),
            AccessLogTarget::Stderr => "stderr".to_owned(),
            AccessLogTarget::Off => "off".to_owned(),
            AccessLogTarget::File(path) => path.display().to_string(),
        }
    }
}

impl AccessLogTarget {
    pub(super) fn open(&self) -> io::Result<Box<dyn Write + Send>> {
        Ok(match self {
            Self::Stdout => Box::new(io::stdout()),
            Self::Stderr => Box::new(io::stderr()),
            Self::Off => Box::new(io::sink()),
            // Not world-readable: entries contain paths and callers' names.
            Self::File(path) => Box::new(OpenOptions::new().create(true).append(true).mode(0o640).open(path)?),
        })
    }
}

/// Maximum size of the queue in bytes.
const MAX_QUEUED_BYTES: usize = 8 << 20;
/// Number of queued bytes that triggers a write before the flush interval ends.
const FLUSH_BYTES: usize = 256 << 10;
/// Flush interval: how long entries accumulate before a write.
const FLUSH_INTERVAL: Duration = Duration::from_millis(10);
/// How long `close` waits for a writer that is blocked.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

#[derive(Default)]
struct AccessLogQueue {
    buffer: Vec<u8>,
    entries: u64,
    reopen: bool,
    closing: bool,
    closed: bool,
}

struct SharedQueue {
    queue: Mutex<AccessLogQueue>,
    wake: Condvar,
    done: Condvar,
    metrics: Arc<Metrics>,
    recent_calls: RecentCalls,
}

impl SharedQueue {
    fn lock(&self) -> MutexGuard<'_, AccessLogQueue> {
        self.queue.lock()
    }
}

/// The access log: one JSON line per call.
pub struct AccessLog {
    target: AccessLogTarget,
    privacy: LogPrivacy,
    shared: Arc<SharedQueue>,
}

impl std::fmt::Debug for AccessLog {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("AccessLog").field("target", &self.target).finish_non_exhaustive()
    }
}

thread_local! {
    /// Buffer in which an entry is serialised, so that the queue is locked only while the entry is copied.
    static ENTRY_BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

impl AccessLog {
    /// Opens the log and starts its writer thread.
    ///
    /// # Errors
    /// The file cannot be opened, the key of pseudonyms is not valid, or the thread cannot be started.
    pub fn new(config: &AccessLogConfig, metrics: Arc<Metrics>) -> Result<Self, String> {
        let target = config.output.clone();
        let privacy = LogPrivacy::new(config.callers, config.addresses, config.pseudonym_key.as_ref())?;
        let writer = target
            .open()
            .map_err(|why| format!("output: {} cannot be opened ({why})", String::from(target.clone())))?;
        let shared = Arc::new(SharedQueue {
            queue: Mutex::default(),
            wake: Condvar::new(),
            done: Condvar::new(),
            metrics,
            recent_calls: RecentCalls::default(),
        });
        if target != AccessLogTarget::Off {
            let log_writer =
                AccessLogWriter { writer, target: target.clone(), shared: Arc::clone(&shared), failing: false };
            let thread = std::thread::Builder::new().name("access-log".to_owned());
            thread
                .spawn(|| log_writer.run())
                .map_err(|why| format!("output: the thread of the access log cannot start ({why})"))?;
        }
        Ok(Self { target, privacy, shared })
    }

    /// Queues one call's entry for writing.
    pub fn write(&self, entry: &AccessLogEntry<'_>) {
        if self.target == AccessLogTarget::Off {
            return;
        }
        // The buffer is missing only on a thread that ends, which handles no calls.
        let enqueued = ENTRY_BUFFER.try_with(|buffer| {
            let mut buffer = buffer.borrow_mut();
            buffer.clear();
            entry.write(&mut buffer, &self.privacy);
            self.enqueue(&buffer)
        });
        if !enqueued.unwrap_or(false) {
            self.shared.metrics.record_dropped_log_entries(1);
        }
    }

    /// Begins to keep the most recent lines in memory, for the console; none if the log is off.
    pub fn keep_recent_calls(&self) {
        if self.target != AccessLogTarget::Off {
            self.shared.recent_calls.keep();
        }
    }

    /// Returns the most recent lines.
    pub fn recent_calls(&self) -> &RecentCalls {
        &self.shared.recent_calls
    }

    /// Returns a caller as the log names it.
    pub fn logged_caller<'a>(&self, caller: &'a str) -> Cow<'a, str> {
        self.privacy.caller_pseudonym(caller).map_or(Cow::Borrowed(caller), Cow::Owned)
    }

    /// Returns the address of a client as the log gives it, if it does.
    pub fn logged_address(&self, address: IpAddr) -> Option<String> {
        self.privacy.address_text(address)
    }

    fn enqueue(&self, line: &[u8]) -> bool {
        let mut queue = self.shared.lock();
        let (queued_before, queued_after) = (queue.buffer.len(), queue.buffer.len() + line.len());
        if queue.closing || queued_after > MAX_QUEUED_BYTES {
            return false;
        }
        queue.buffer.extend_from_slice(line);
        queue.entries += 1;
        drop(queue);
        if queued_before == 0 || (queued_before < FLUSH_BYTES && queued_after >= FLUSH_BYTES) {
            self.shared.wake.notify_one();
        }
        true
    }

    /// Reopens the file before the next write, after a rotation.
    pub fn reopen(&self) {
        self.shared.lock().reopen = true;
        self.shared.wake.notify_one();
    }

    /// Writes the queued entries and stops the thread. Waits for at most `CLOSE_TIMEOUT` if the target accepts no
    /// data.
    pub fn close(&self) {
        if self.target == AccessLogTarget::Off {
            return;
        }
        let mut queue = self.shared.lock();
        queue.closing = true;
        self.shared.wake.notify_one();
        self.shared.done.wait_while_for(&mut queue, |queue| !queue.closed, CLOSE_TIMEOUT);
        if !queue.closed {
            tracing::warn!(entries = queue.entries, "access log not flushed at shutdown: the target accepts no data");
        }
    }
}

impl Drop for AccessLog {
    fn drop(&mut self) {
        self.close();
    }
}

/// The writer thread.
struct AccessLogWriter {
    writer: Box<dyn Write + Send>,
    target: AccessLogTarget,
    shared: Arc<SharedQueue>,
    failing: bool,
}

impl AccessLogWriter {
    fn run(mut self) {
        let mut batch = Vec::new();
        loop {
            let (count, reopen, is_closing) = self.collect_batch(&mut batch);
            if reopen {
                self.reopen();
            }
            if let Err(why) = self.writer.write_all(&batch).and_then(|()| self.writer.flush()) {
                self.record_write_failure(count, &why);
            } else if count > 0 {
                self.failing = false;
            }
            // Operators see the calls of a log that cannot be written, too.
            self.shared.recent_calls.record_lines(&batch);
            if is_closing {
                self.shared.lock().closed = true;
                self.shared.done.notify_all();
                return;
            }
            batch.clear();
            // Frees the memory of a burst.
            batch.shrink_to(2 * FLUSH_BYTES);
        }
    }

    /// Waits for entries, lets more of them accumulate, and moves all of them to `batch`. Returns their number, whether
    /// to reopen the file, and whether to stop.
    fn collect_batch(&self, batch: &mut Vec<u8>) -> (u64, bool, bool) {
        let is_idle = |queue: &mut AccessLogQueue| queue.buffer.is_empty() && !queue.closing && !queue.reopen;
        let mut queue = self.shared.lock();
        self.shared.wake.wait_while(&mut queue, is_idle);
        let started_at = Instant::now();
        let may_accumulate = |queue: &mut AccessLogQueue| {
            queue.buffer.len() < FLUSH_BYTES && !queue.closing && started_at.elapsed() < FLUSH_INTERVAL
        };
        self.shared.wake.wait_while_for(&mut queue, may_accumulate, FLUSH_INTERVAL);
        std::mem::swap(&mut queue.buffer, batch);
        (std::mem::take(&mut queue.entries), std::mem::take(&mut queue.reopen), queue.closing)
    }

    fn reopen(&mut self) {
        match self.target.open() {
            Ok(writer) => self.writer = writer,
            Err(why) => {
                tracing::error!(error = %why, "access log cannot be reopened: still writing to the previous file")
            }
        }
    }

    /// Counts the dropped entries; logs only the first failure after a success.
    fn record_write_failure(&mut self, count: u64, why: &io::Error) {
        self.shared.metrics.record_dropped_log_entries(count);
        if !std::mem::replace(&mut self.failing, true) {
            tracing::error!(error = %why, "access log cannot be written: entries are dropped");
        }
    }
}
