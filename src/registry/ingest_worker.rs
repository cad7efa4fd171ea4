//! Ingest worker: ingests the poll results of all sources in batches, limited so that most of a core is left to calls;
//! stores the last known good agents of remote sources, and records the metrics of all sources.

use super::{
    catalogue::{Catalogue, Generation},
    ingest::{IngestOutcome, SourcePoll},
    last_known_good::LastKnownGoodFile,
    poller::QueuedPoll,
};
use crate::telemetry::PollOutcome;
use std::{
    sync::Arc,
    time::{Duration, Instant, SystemTime},
};
use tokio::{
    sync::{mpsc, oneshot},
    task::JoinHandle,
};

/// Interval of the periodic maintenance.
const MAINTENANCE_INTERVAL: Duration = Duration::from_secs(1);
/// Minimum interval between two writes of one source's file.
const WRITE_INTERVAL: Duration = Duration::from_secs(10);
/// Minimum interval between two updates of the file's modification time.
const TOUCH_INTERVAL: Duration = Duration::from_secs(60);
/// Capacity of the queue of poll results; each source has one poll result at a time.
pub(super) const QUEUE_CAPACITY: usize = 128;

/// Persistence of one source's last known good agents.
pub(super) struct PersistenceState {
    file: Arc<LastKnownGoodFile>,
    /// Revision in the file, and the time of its last successful poll.
    stored: Option<(u64, SystemTime)>,
    writing: Option<JoinHandle<Option<(u64, SystemTime)>>>,
    next_write: Instant,
}

impl PersistenceState {
    pub(super) fn new(keeper: Arc<LastKnownGoodFile>) -> Self {
        Self { file: keeper, stored: None, writing: None, next_write: Instant::now() }
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
    pub(super) async fn run(mut self, mut polls: mpsc::Receiver<QueuedPoll>) {
        let mut tick = tokio::time::interval(MAINTENANCE_INTERVAL);
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                one = polls.recv() => {
                    let Some(one) = one else { return };
                    let mut all = vec![one];
                    while let Ok(more) = polls.try_recv() {
                        all.push(more);
                    }
                    let began = Instant::now();
                    self.ingest(all).await;
                    // At most 30 % of the time is spent on ingesting.
                    tokio::time::sleep(began.elapsed() * 7 / 3).await;
                }
                _ = tick.tick() => self.run_maintenance().await,
            }
        }
    }

    async fn ingest(&mut self, polls: Vec<QueuedPoll>) {
        let (looks, answers): (Vec<SourcePoll>, Vec<_>) =
            polls.into_iter().map(|told| (told.poll, told.outcome)).unzip();
        let source_indexes: Vec<usize> = looks.iter().map(|look| look.source).collect();
        let (catalogue, era) = (Arc::clone(&self.catalogue), self.generation);
        let taken = tokio::task::spawn_blocking(move || catalogue.ingest(era, looks)).await;
        let verdicts = taken.unwrap_or_else(|_| {
            tracing::error!("ingesting agents panicked: those in force stay");
            vec![IngestOutcome::Rejected; source_indexes.len()]
        });
        self.report_outcomes(source_indexes, answers, verdicts);
        self.run_maintenance().await;
    }

    /// Records the outcome of each poll and returns it to the poller.
    pub(super) fn report_outcomes(
        &mut self,
        source_indexes: Vec<usize>,
        answers: Vec<oneshot::Sender<IngestOutcome>>,
        verdicts: Vec<IngestOutcome>,
    ) {
        for ((at, answer), verdict) in source_indexes.into_iter().zip(answers).zip(verdicts) {
            if let Some((name, _)) = self.sources.get(at) {
                let outcome = match verdict {
                    IngestOutcome::Accepted { .. } | IngestOutcome::Outdated => PollOutcome::Success,
                    IngestOutcome::Withheld => PollOutcome::Held,
                    IngestOutcome::Failed => PollOutcome::Failure,
                    IngestOutcome::Rejected => PollOutcome::Rejected,
                };
                self.catalogue.metrics().sources().record_poll(name, outcome);
            }
            // The poller may be gone after a change of the sources.
            let _ = answer.send(verdict);
        }
    }

    /// Removes stale agents, records the metrics of all sources, and stores what is due.
    pub(super) async fn run_maintenance(&mut self) {
        self.catalogue.remove_stale_agents(self.generation);
        let sources = self.catalogue.source_health();
        for health in sources.iter() {
            let age = health.age().map(|age| age.as_secs_f64());
            let (agents, held) = (health.agents, health.withheld_loss.unwrap_or_default());
            self.catalogue.metrics().sources().record_state(&health.name, age, agents, held);
        }
        for (at, ((_, keeping), health)) in self.sources.iter_mut().zip(sources.iter()).enumerate() {
            let good = health.last_success.filter(|_| !health.from_disk);
            if let (Some(keeping), Some(good)) = (keeping, good) {
                keeping.persist_if_due((at, health.revision, good), &self.catalogue, self.generation).await;
            }
        }
    }
}

impl PersistenceState {
    /// Stores the agents of the source at index `at`, whose `revision` was last polled successfully at `good`.
    async fn persist_if_due<R: Send + Sync + 'static>(
        &mut self,
        (at, revision, good): (usize, u64, SystemTime),
        catalogue: &Arc<Catalogue<R>>,
        era: Generation,
    ) {
        if let Some(writing) = self.writing.take_if(|writing| writing.is_finished()) {
            // A failed write is retried when it is next due.
            self.stored = writing.await.ok().flatten();
        }
        let now = Instant::now();
        if self.writing.is_some() || now < self.next_write {
            return;
        }
        let same = self.stored.filter(|(kept, _)| *kept == revision);
        if same.is_some_and(|(_, kept)| good.duration_since(kept).is_ok_and(|since| since < TOUCH_INTERVAL)) {
            return;
        }
        self.next_write = now + WRITE_INTERVAL;
        let (keeper, catalogue) = (Arc::clone(&self.file), Arc::clone(catalogue));
        self.writing = Some(tokio::task::spawn_blocking(move || {
            // A file that is missing is written again.
            if same.is_some() && keeper.touch(good).is_ok() {
                return Some((revision, good));
            }
            let parts = catalogue.agents_of_source(era, at)?;
            let saved = keeper.save(&parts, good);
            if let Err(why) = &saved {
                tracing::warn!(error = %why, "last known good agents cannot be stored");
            }
            saved.ok().map(|()| (revision, good))
        }));
    }
}
