//! Changes that wait to be recorded in the audit log. They are recorded one after the other, and only the shutdown waits
//! for them: a disk or a lock that does not answer delays no key file, no certificate and no configuration.

use super::change_recorder::ChangeRecorder;
use crate::{
    auth::Authorizer,
    http_server::CertificateReload,
    telemetry::{AuditEntryResult, Metrics},
};
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    time::Duration,
};
use tokio::sync::{mpsc, oneshot};

/// Maximum number of recordings that wait.
const MAX_QUEUED: usize = 64;
/// How long the shutdown waits for the log.
const STOP_TIMEOUT: Duration = Duration::from_secs(10);

type Recording = Box<dyn FnOnce(&ChangeRecorder) + Send>;

/// The changes that wait to be recorded.
pub(super) struct ChangeQueue {
    recordings: mpsc::Sender<Recording>,
    /// Whether a comparison with what was in force before waits, which will find later changes too.
    is_comparison_queued: Arc<AtomicBool>,
    metrics: Arc<Metrics>,
}

impl ChangeQueue {
    /// Starts to record.
    pub(super) fn start(recorder: ChangeRecorder, metrics: Arc<Metrics>) -> Self {
        let (recordings, mut queued) = mpsc::channel::<Recording>(MAX_QUEUED);
        let recorder = Arc::new(recorder);
        tokio::spawn(async move {
            while let Some(record) = queued.recv().await {
                let recorder = Arc::clone(&recorder);
                // The runtime reports a panic.
                drop(tokio::task::spawn_blocking(move || record(&recorder)).await);
            }
        });
        Self { recordings, is_comparison_queued: Arc::default(), metrics }
    }

    /// As [`ChangeRecorder::record_reload`].
    pub(super) fn record_reload(&self, digest: Option<String>, refusal: Option<String>) {
        self.queue(Box::new(move |recorder| recorder.record_reload(digest, refusal)));
    }

    /// As [`ChangeRecorder::record_periodically`].
    pub(super) fn record_periodically(&self, certificates: Vec<CertificateReload>, auth: Arc<Authorizer>) {
        if self.is_comparison_queued.swap(true, SeqCst) && certificates.is_empty() {
            return;
        }
        let is_queued = Arc::clone(&self.is_comparison_queued);
        let recording: Recording = Box::new(move |recorder| {
            is_queued.store(false, SeqCst);
            recorder.record_periodically(certificates, &auth);
        });
        if !self.queue(recording) {
            self.is_comparison_queued.store(false, SeqCst);
        }
    }

    /// As [`ChangeRecorder::delete_old_files`].
    pub(super) fn delete_old_files(&self) {
        self.queue(Box::new(ChangeRecorder::delete_old_files));
    }

    /// As [`ChangeRecorder::stop`]; waits for it, but not for a disk that does not answer.
    pub(super) async fn stop(&self, reason: &'static str) {
        let (done, is_done) = oneshot::channel();
        self.queue(Box::new(move |recorder| {
            recorder.stop(reason);
            // Whoever waited may have given up.
            let _ = done.send(());
        }));
        if tokio::time::timeout(STOP_TIMEOUT, is_done).await.is_err() {
            tracing::error!("audit entry lost: the audit log does not answer at the shutdown (check the disk)");
        }
    }

    /// Returns whether the recording has a place in the queue.
    fn queue(&self, recording: Recording) -> bool {
        let is_queued = self.recordings.try_send(recording).is_ok();
        if !is_queued {
            self.metrics.record_audit_entries(AuditEntryResult::Lost, 1);
            tracing::error!("audit entry lost: the audit log does not answer, and too many changes wait");
        }
        is_queued
    }
}
