//! The audit log of a process: appends entries, signs checkpoints and deletes old files. Entries that cannot be written
//! wait in memory.

use super::{
    anchor_file::LogFiles,
    audit_entry::{AuditAction, AuditEntry, AuditOutcome},
    audit_line::ChainPosition,
    chained_file::{LockedLog, list_renamed_files},
    config::AuditConfig,
    head_file::LOCK_TIMEOUT,
    refusal_queue::RefusalQueue,
};
use crate::{
    fault::{Fault, FaultCode},
    signing::SigningKey,
    telemetry::{AccessLogConfig, AuditEntryResult, LogPrivacy, Metrics},
    values::ConfigDuration,
};
use parking_lot::Mutex;
use serde_json::{Value, json};
use std::{
    collections::VecDeque,
    fmt, io,
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};
use time::OffsetDateTime;

/// The type of the tokens that sign checkpoints and prunings.
pub(super) const CHECKPOINT_TYPE: &str = "gatepost-audit+jwt";
/// Maximum number of entries that wait for a file that can be written.
const MAX_WAITING: usize = 1_000;
/// How often a checkpoint is signed while entries are written.
const CHECKPOINT_INTERVAL: Duration = Duration::from_secs(3_600);

/// The audit log cannot be written at the moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AuditLogUnavailable;

impl From<AuditLogUnavailable> for Fault {
    fn from(_: AuditLogUnavailable) -> Self {
        Self::new(FaultCode::Overloaded, "The change cannot be recorded at the moment (try again later)")
            .with_detail("the audit log cannot be written")
    }
}

/// The audit log.
pub struct AuditLog {
    files: LogFiles,
    retention: Option<Duration>,
    max_file_size: u64,
    max_size: Option<u64>,
    privacy: LogPrivacy,
    metrics: Option<Arc<Metrics>>,
    /// Apart from the state, whose lock is held while the disk is written.
    signing_key: Mutex<Option<Arc<SigningKey>>>,
    state: Mutex<WriterState>,
    /// Apart from the state, so that a refused request does not wait for the disk. Locked after the state where both are.
    refusals: Mutex<RefusalQueue>,
}

impl fmt::Debug for AuditLog {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.debug_struct("AuditLog").field("file", &self.files.log).finish_non_exhaustive()
    }
}

#[derive(Default)]
struct WriterState {
    /// Entries that are not written yet, in their order.
    waiting: VecDeque<AuditEntry>,
    is_failing: bool,
    unsigned_entries: u64,
    last_checkpoint: Option<Instant>,
    /// The last line that this process has written: lines that others cut off after it are noticed.
    written: Option<ChainPosition>,
}

impl AuditLog {
    /// Opens the log: loads the key of pseudonyms, and checks that the file can be written. Blocks.
    ///
    /// # Errors
    /// What cannot be used, by its path in the section.
    pub fn open(
        config: &AuditConfig,
        access_log: &AccessLogConfig,
        metrics: Option<Arc<Metrics>>,
    ) -> Result<Self, Vec<String>> {
        let mut problems = config.problems();
        let privacy = config.privacy(access_log).map_err(|why| problems.push(why)).ok();
        let (Some(privacy), true) = (privacy, problems.is_empty()) else { return Err(problems) };
        let log = Self {
            files: LogFiles {
                log: config.file.to_path_buf(),
                anchor: config.anchor_file.as_ref().map(|anchor| anchor.to_path_buf()),
            },
            retention: config.retention.map(ConfigDuration::get),
            max_file_size: config.max_file_size.get() as u64,
            max_size: config.max_size.map(|size| size.get() as u64),
            privacy,
            metrics,
            signing_key: Mutex::default(),
            state: Mutex::default(),
            refusals: Mutex::new(RefusalQueue::new(config)),
        };
        LockedLog::open(&log.files, None, LOCK_TIMEOUT)
            .map(|mut locked| locked.restore_head_and_anchor())
            .map_err(|why| vec![format!("file: {} cannot be written ({why})", log.files.log.display())])?;
        Ok(log)
    }

    /// Sets the key that signs checkpoints. Does not block.
    pub fn set_signing_key(&self, key: Option<Arc<SigningKey>>) {
        *self.signing_key.lock() = key;
    }

    /// Records a change that was made or refused. On return the entry is on disk, or waits in memory: the change is in
    /// force, and the caller cannot undo it. Blocks.
    pub fn record(&self, entry: AuditEntry) {
        let mut state = self.state.lock();
        self.take_refusals(&mut state);
        self.enqueue(&mut state, entry);
        self.write_waiting(&mut state);
    }

    /// Records that a change was refused, within the budget of refusals. Returns at once: the entry is written with the next
    /// change, and by [`AuditLog::maintain`].
    pub fn record_refusal(&self, entry: AuditEntry) {
        if !self.refusals.lock().add(entry, &self.privacy) {
            self.count(AuditEntryResult::Omitted, 1);
        }
    }

    /// Records a change that a request has made, on a thread that may block, or that it was refused.
    pub async fn record_in_background(self: &Arc<Self>, entry: AuditEntry) {
        if entry.outcome == AuditOutcome::Refused {
            return self.record_refusal(entry);
        }
        let log = Arc::clone(self);
        // The runtime reports a panic.
        drop(tokio::task::spawn_blocking(move || log.record(entry)).await);
    }

    /// Checks that changes can be recorded, before one that can be refused. Blocks only while entries wait.
    ///
    /// # Errors
    /// Entries wait, and the file still cannot be written.
    pub fn require_writable(&self) -> Result<(), AuditLogUnavailable> {
        let mut state = self.state.lock();
        if !state.waiting.is_empty() {
            self.write_waiting(&mut state);
        }
        if state.waiting.is_empty() { Ok(()) } else { Err(AuditLogUnavailable) }
    }

    /// As [`AuditLog::require_writable`], and opens the file also while no entries wait: for a change that must not be
    /// made without its entry. Blocks.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn require_writable_file(&self) -> Result<(), AuditLogUnavailable> {
        self.require_writable()?;
        // Under the lock of this process's writer, which would otherwise wait for this one.
        let state = self.state.lock();
        LockedLog::open(&self.files, state.written.as_ref(), LOCK_TIMEOUT).map(drop).map_err(|why| {
            tracing::warn!(error = %why, file = %self.files.log.display(), "audit log cannot be written: the change is refused");
            AuditLogUnavailable
        })
    }

    /// Returns the current file.
    pub fn file(&self) -> &Path {
        &self.files.log
    }

    /// Returns the anchor, if there is one.
    pub fn anchor_file(&self) -> Option<&Path> {
        self.files.anchor.as_deref()
    }

    /// As [`AuditLog::require_writable`], on a thread that may block.
    ///
    /// # Errors
    /// As [`AuditLog::require_writable`].
    pub async fn require_writable_in_background(self: &Arc<Self>) -> Result<(), AuditLogUnavailable> {
        let log = Arc::clone(self);
        let checked = tokio::task::spawn_blocking(move || log.require_writable()).await;
        checked.unwrap_or(Err(AuditLogUnavailable))
    }

    /// Writes entries that wait, signs a checkpoint if one is due, and deletes old files if `deletes_old_files`. Blocks.
    pub fn maintain(&self, deletes_old_files: bool) {
        let mut state = self.state.lock();
        self.take_refusals(&mut state);
        if !state.waiting.is_empty() {
            self.write_waiting(&mut state);
        }
        if state.unsigned_entries > 0 && state.last_checkpoint.is_none_or(|last| last.elapsed() >= CHECKPOINT_INTERVAL)
        {
            self.write_checkpoint(&mut state);
        }
        drop(state);
        if deletes_old_files && let Err(why) = self.delete_old_files(OffsetDateTime::now_utc()) {
            tracing::warn!(error = %why, file = %self.files.log.display(), "old files of the audit log not deleted: trying again in an hour");
        }
    }

    /// Records what was only counted, and signs a checkpoint over the entries since the last one: nothing follows. Blocks.
    pub fn finish(&self) {
        let omitted = self.refusals.lock().take_omitted();
        omitted.into_iter().for_each(|entry| self.record(entry));
        let mut state = self.state.lock();
        if state.unsigned_entries > 0 {
            self.write_checkpoint(&mut state);
        }
    }

    fn write_checkpoint(&self, state: &mut WriterState) {
        if self.signing_key.lock().is_none() || !state.waiting.is_empty() {
            return;
        }
        state.last_checkpoint = Some(Instant::now());
        self.enqueue(state, AuditEntry::by_gateway(AuditAction::Checkpoint, ""));
        self.write_waiting(state);
    }

    /// Adds the refusals to the entries that wait, unless the log cannot be written: then their places belong to changes.
    fn take_refusals(&self, state: &mut WriterState) {
        if !state.is_failing {
            state.waiting.extend(self.refusals.lock().take(OffsetDateTime::now_utc()));
        }
    }

    /// Adds an entry to those that wait. Beyond the bound the entry is lost, except in the gateway's own log.
    fn enqueue(&self, state: &mut WriterState, entry: AuditEntry) {
        if state.waiting.len() < MAX_WAITING {
            state.waiting.push_back(entry);
            return;
        }
        self.count(AuditEntryResult::Lost, 1);
        tracing::error!(
            action = entry.action.name(),
            subject = entry.subject,
            outcome = entry.outcome.name(),
            "audit entry lost: the audit log cannot be written, and too many entries wait"
        );
    }

    fn write_waiting(&self, state: &mut WriterState) {
        let waiting = state.waiting.len();
        if let Err(why) = self.try_write_waiting(state) {
            if !std::mem::replace(&mut state.is_failing, true) {
                tracing::error!(error = %why, file = %self.files.log.display(), "audit log cannot be written: entries wait in memory, and changes over HTTP that add something are refused");
            }
        } else if std::mem::take(&mut state.is_failing) {
            tracing::info!(entries = waiting, file = %self.files.log.display(), "audit log can be written again");
        }
        if let Some(metrics) = &self.metrics {
            metrics.set_waiting_audit_entries(state.waiting.len());
        }
    }

    fn try_write_waiting(&self, state: &mut WriterState) -> io::Result<()> {
        // One call waits for a process that holds the lock, and not each one after it.
        let lock_timeout = if state.is_failing { Duration::ZERO } else { LOCK_TIMEOUT };
        let mut log = LockedLog::open(&self.files, state.written.as_ref(), lock_timeout)?;
        if let Err(why) = log.rotate_if_due(OffsetDateTime::now_utc(), self.max_file_size) {
            tracing::warn!(error = %why, file = %self.files.log.display(), "audit log not rotated: the file grows");
        }
        let signing_key = self.signing_key.lock().clone();
        let mut written = 0;
        let mut result = Ok(());
        for entry in &state.waiting {
            result = match signed_entry(signing_key.as_deref(), entry, log.position()) {
                Some(signed) => log.append(&signed, &self.privacy),
                None => log.append(entry, &self.privacy),
            };
            if result.is_err() {
                break;
            }
            written += 1;
        }
        log.commit()?;
        state.written = Some(log.position().clone());
        for entry in state.waiting.drain(..written) {
            match entry.action {
                AuditAction::Checkpoint => state.unsigned_entries = 0,
                _ => state.unsigned_entries += 1,
            }
        }
        self.count(AuditEntryResult::Written, written as u64);
        result
    }

    /// Deletes renamed files whose last line is older than the retention, and the oldest ones beyond the maximum size. An
    /// entry says so before, with the hash to which the first remaining line refers.
    ///
    /// # Errors
    /// The folder or a file cannot be read, the entry cannot be written, or a file cannot be deleted.
    pub(super) fn delete_old_files(&self, now: OffsetDateTime) -> io::Result<()> {
        let files = list_renamed_files(&self.files.log)?;
        let current_size = std::fs::metadata(&self.files.log).map_or(0, |metadata| metadata.len());
        let mut size = files.iter().map(|file| file.size).sum::<u64>() + current_size;
        let (mut old, mut last_deleted) = (Vec::new(), None);
        for file in files {
            let last = file.last_line()?;
            let is_expired = match (&last, self.retention) {
                (Some((line, _)), Some(retention)) => now - line.time > retention,
                _ => false,
            };
            if !is_expired && self.max_size.is_none_or(|max_size| size <= max_size) {
                break;
            }
            size -= file.size;
            last_deleted = last.or(last_deleted);
            old.push(file);
        }
        let (Some(first), Some((last, hash))) = (old.first(), last_deleted) else { return Ok(()) };
        let detail = format!("{} files with the lines {} to {}", old.len(), first.first_sequence, last.sequence);
        let entry = AuditEntry::by_gateway(AuditAction::LogPruned, self.files.log.display().to_string());
        self.record(entry.with_digests(Some(hash), None).with_detail(detail));
        if self.require_writable().is_err() {
            return Err(io::Error::other("the entry about it cannot be written"));
        }
        old.iter().try_for_each(|file| std::fs::remove_file(&file.path))
    }

    fn count(&self, result: AuditEntryResult, count: u64) {
        if let Some(metrics) = &self.metrics {
            metrics.record_audit_entries(result, count);
        }
    }
}

/// Returns a checkpoint or a pruning with its signature over the line before it, and thus over all lines before, and over
/// the hash of the last line that is deleted; `None` for other entries.
fn signed_entry(key: Option<&SigningKey>, entry: &AuditEntry, last: &ChainPosition) -> Option<AuditEntry> {
    let mut claims = json!({"sequence": last.sequence, "hash": last.hash});
    let subject = match entry.action {
        AuditAction::Checkpoint => format!("lines up to {}", last.sequence),
        AuditAction::LogPruned => entry.subject.clone(),
        _ => return None,
    };
    if let (Some(before), Some(claims)) = (&entry.before, claims.as_object_mut()) {
        claims.insert("before".to_owned(), Value::from(before.as_str()));
    }
    Some(AuditEntry { subject, signature: key?.sign_token(CHECKPOINT_TYPE, &claims), ..entry.clone() })
}

impl Drop for AuditLog {
    fn drop(&mut self) {
        let mut state = self.state.lock();
        self.take_refusals(&mut state);
        if !state.waiting.is_empty() {
            self.write_waiting(&mut state);
        }
        for entry in &state.waiting {
            self.count(AuditEntryResult::Lost, 1);
            tracing::error!(
                action = entry.action.name(),
                subject = entry.subject,
                outcome = entry.outcome.name(),
                "audit entry lost: the audit log cannot be written"
            );
        }
    }
}
