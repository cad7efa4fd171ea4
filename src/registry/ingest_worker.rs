//! Ingest worker: ingests the poll results of all sources in batches, limited so that most of a core is left to calls;
//! stores the last known good agents of remote sources, and records the metrics of all sources.

use super::{
    catalogue::Catalogue,
    last_known_good::LastKnownGoodFile,
    poller::QueuedPoll,
    source_poll::{Generation, IngestOutcome, SourcePoll},
};
use crate::telemetry::PollOutcome;
use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};
use tokio::{
    sync::{mpsc, oneshot},
    task::JoinHandle,
    time::Instant,
};

/// Interval of the periodic maintenance.
const MAINTENANCE_INTERVAL: Duration = Duration::from_secs(1);
/// Minimum interval between two writes of one source's file.
const WRITE_INTERVAL: Duration = Duration::from_secs(1);
/// The same as a multiple of the duration of the last write, for sources with many agents that change often.
const WRITE_INTERVAL_FACTOR: u32 = 10;
/// Minimum interval between two updates of the file's modification time.
const TOUCH_INTERVAL: Duration = Duration::from_secs(60);
/// Capacity of the queue of poll results; each source has one poll result at a time.
pub(super) const QUEUE_CAPACITY: usize = 128;

/// Persistence of one source's last known good agents.
pub(super) struct PersistenceState {
    file: Arc<LastKnownGoodFile>,
    /// Revision in the file, and the time of its last successful poll.
    stored: Option<(u64, SystemTime)>,
    writing: Option<JoinHandle<FinishedWrite>>,
    /// When the last write began, and how long it took.
    last_write: Option<(Instant, Duration)>,
}

/// Result of writing a file.
struct FinishedWrite {
    /// Revision in the file, and the time of its last successful poll; `None` if the write failed.
    stored: Option<(u64, SystemTime)>,
    duration: Duration,
}

/// A source's agents that are to be stored.
struct SourceContent<'a, R> {
    catalogue: &'a Arc<Catalogue<R>>,
    generation: Generation,
    /// Index of the source.
    source: usize,
    revision: u64,
    last_success: SystemTime,
}

/// Asks the ingest worker to store everything; the answer arrives when that is done.
pub(super) type FlushRequest = oneshot::Sender<()>;

impl PersistenceState {
    pub(super) fn new(file: Arc<LastKnownGoodFile>) -> Self {
        Self { file, stored: None, writing: None, last_write: None }
    }
}

/// Ingests poll results.
pub(super) struct IngestWorker<R> {
    pub(super) catalogue: Arc<Catalogue<R>>,
    pub(super) generation: Generation,
    /// Names of the sources, in order of precedence, with the persistence of each.
    pub(super) sources: Vec<(Arc<str>, Option<PersistenceState>)>,
}

impl<R: Send + Sync + 'static> IngestWorker<R> {
    /// Ingests poll results until every sender is dropped.
    pub(super) async fn run(
        mut self,
        mut polls: mpsc::Receiver<QueuedPoll>,
        mut flushes: mpsc::Receiver<FlushRequest>,
    ) {
        let mut tick = tokio::time::interval(MAINTENANCE_INTERVAL);
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                first = polls.recv() => {
                    let Some(first) = first else { return };
                    let mut batch = vec![first];
                    while let Ok(next) = polls.try_recv() {
                        batch.push(next);
                    }
                    let began = std::time::Instant::now();
                    self.ingest(batch).await;
                    // At most 30 % of the time is spent on ingesting. A timer costs more than a poll that found nothing.
                    let duration = began.elapsed();
                    if duration >= Duration::from_millis(1) {
                        tokio::time::sleep(duration * 7 / 3).await;
                    }
                }
                Some(done) = flushes.recv() => {
                    self.persist_everything().await;
                    // An error means that the caller no longer waits.
                    let _ = done.send(());
                }
                _ = tick.tick() => self.run_maintenance().await,
            }
        }
    }

    async fn ingest(&mut self, polls: Vec<QueuedPoll>) {
        let (source_polls, outcome_senders): (Vec<SourcePoll>, Vec<_>) =
            polls.into_iter().map(|queued| (queued.poll, queued.outcome)).unzip();
        let source_indexes: Vec<usize> = source_polls.iter().map(|poll| poll.source).collect();
        let (catalogue, generation) = (Arc::clone(&self.catalogue), self.generation);
        let outcomes = match catalogue.ingest_unchanged(generation, source_polls) {
            Ok(outcomes) => outcomes,
            Err(source_polls) => {
                let ingested = tokio::task::spawn_blocking(move || catalogue.ingest(generation, source_polls)).await;
                ingested.unwrap_or_else(|_| {
                    tracing::error!("ingesting agents panicked: the agents in force stay (a defect of the gateway)");
                    vec![IngestOutcome::Rejected; source_indexes.len()]
                })
            }
        };
        self.report_outcomes(source_indexes, outcome_senders, outcomes);
        self.run_maintenance().await;
    }

    /// Records the outcome of each poll and returns it to the poller.
    pub(super) fn report_outcomes(
        &mut self,
        source_indexes: Vec<usize>,
        outcome_senders: Vec<oneshot::Sender<IngestOutcome>>,
        outcomes: Vec<IngestOutcome>,
    ) {
        for ((index, sender), outcome) in source_indexes.into_iter().zip(outcome_senders).zip(outcomes) {
            if let Some((name, _)) = self.sources.get(index) {
                let poll_outcome = match outcome {
                    IngestOutcome::Accepted { .. } | IngestOutcome::Outdated => PollOutcome::Success,
                    IngestOutcome::Withheld => PollOutcome::Withheld,
                    IngestOutcome::Failed => PollOutcome::Failure,
                    IngestOutcome::Rejected => PollOutcome::Rejected,
                };
                self.catalogue.metrics().sources().record_poll(name, poll_outcome);
            }
            // The poller may be gone after a change of the sources.
            let _ = sender.send(outcome);
        }
    }

    /// Removes stale agents, records the metrics of all sources, and stores what is due.
    pub(super) async fn run_maintenance(&mut self) {
        self.catalogue.remove_stale_agents(self.generation);
        let sources = self.catalogue.source_health();
        for health in sources.iter() {
            let age = health.age().map(|age| age.as_secs_f64());
            let (agents, withheld) = (health.agents, health.withheld_loss.unwrap_or_default());
            self.catalogue.metrics().sources().record_state(&health.name, age, agents, withheld);
            self.catalogue.metrics().sources().record_read(&health.name, health.is_read);
        }
        self.persist(PersistenceState::is_write_due).await;
    }

    /// Stores what changed, and waits until it is on disk.
    async fn persist_everything(&mut self) {
        self.finish_writes().await;
        self.persist(|_| true).await;
        self.finish_writes().await;
    }

    async fn finish_writes(&mut self) {
        for persistence in self.sources.iter_mut().filter_map(|(_, persistence)| persistence.as_mut()) {
            persistence.finish_write().await;
        }
    }

    /// Begins to store the agents of the sources that changed and are due.
    async fn persist(&mut self, is_due: impl Fn(&PersistenceState) -> bool) {
        let sources = self.catalogue.source_health();
        for (source, ((_, persistence), health)) in self.sources.iter_mut().zip(sources.iter()).enumerate() {
            let last_success = health.last_success.filter(|_| !health.from_disk);
            let (Some(persistence), Some(last_success)) = (persistence, last_success) else { continue };
            if persistence.writing.as_ref().is_some_and(JoinHandle::is_finished) {
                persistence.finish_write().await;
            }
            if persistence.writing.is_none() && is_due(persistence) {
                let (catalogue, generation, revision) = (&self.catalogue, self.generation, health.revision);
                persistence.begin_write(SourceContent { catalogue, generation, source, revision, last_success });
            }
        }
    }
}

impl PersistenceState {
    /// Returns whether the last write is long enough ago.
    fn is_write_due(&self) -> bool {
        self.last_write.is_none_or(|(began, duration)| {
            began.elapsed() >= WRITE_INTERVAL.max(duration.saturating_mul(WRITE_INTERVAL_FACTOR))
        })
    }

    /// Waits for the write in progress. A failed write is repeated when it is next due.
    async fn finish_write(&mut self) {
        let Some(writing) = self.writing.take() else { return };
        let finished = writing.await.ok();
        self.stored = finished.as_ref().and_then(|finished| finished.stored);
        if let (Some((_, duration)), Some(finished)) = (&mut self.last_write, finished) {
            *duration = finished.duration;
        }
    }

    /// Begins to store the agents of a source, unless the file is up to date.
    fn begin_write<R: Send + Sync + 'static>(&mut self, content: SourceContent<'_, R>) {
        let SourceContent { catalogue, generation, source, revision, last_success } = content;
        let unchanged = self.stored.filter(|(stored, _)| *stored == revision);
        if unchanged
            .is_some_and(|(_, stored)| last_success.duration_since(stored).is_ok_and(|age| age < TOUCH_INTERVAL))
        {
            return;
        }
        let began = Instant::now();
        self.last_write = Some((began, Duration::ZERO));
        let (file, catalogue) = (Arc::clone(&self.file), Arc::clone(catalogue));
        let write = move || {
            // A file that is missing is written again.
            if unchanged.is_some() && file.touch(last_success).is_ok() {
                return Some((revision, last_success));
            }
            let parts = catalogue.agents_of_source(generation, source)?;
            let result = file.save(&parts, last_success);
            if let Err(why) = &result {
                tracing::warn!(error = %why, "last known good agents cannot be stored");
            }
            result.ok().map(|()| (revision, last_success))
        };
        self.writing =
            Some(tokio::task::spawn_blocking(move || FinishedWrite { stored: write(), duration: began.elapsed() }));
    }
}
