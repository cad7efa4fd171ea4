//! Ingest worker: ingests the poll results of all sources in batches, limited so that most of a core is left to calls;
//! stores the last known good agents of remote sources, and records the metrics of all sources.

use super::{
    catalogue::{Catalogue, Era},
    intake::{Look, Verdict},
    keep::Keeper,
    looker::Told,
};
use crate::telemetry::LookOutcome;
use std::{
    sync::Arc,
    time::{Duration, Instant, SystemTime},
};
use tokio::{
    sync::{mpsc, oneshot},
    task::JoinHandle,
};

/// Interval of the periodic maintenance.
const TICK: Duration = Duration::from_secs(1);
/// Minimum interval between two writes of one source's file.
const WRITTEN: Duration = Duration::from_secs(10);
/// Minimum interval between two updates of the file's modification time.
const TOUCHED: Duration = Duration::from_secs(60);
/// Capacity of the queue of poll results; each source has one poll result at a time.
pub(super) const WAITING: usize = 128;

/// Persistence of one source's last known good agents.
pub(super) struct Keeping {
    keeper: Arc<Keeper>,
    /// Revision in the file, and the time of its last successful poll.
    kept: Option<(u64, SystemTime)>,
    writing: Option<JoinHandle<Option<(u64, SystemTime)>>>,
    next: Instant,
}

impl Keeping {
    pub(super) fn new(keeper: Arc<Keeper>) -> Self {
        Self { keeper, kept: None, writing: None, next: Instant::now() }
    }
}

/// Ingests poll results.
pub(super) struct Desk<R> {
    pub(super) catalogue: Arc<Catalogue<R>>,
    pub(super) era: Era,
    /// Names of the sources, in order of precedence, with the persistence of each.
    pub(super) sources: Vec<(Arc<str>, Option<Keeping>)>,
}

impl<R: Send + Sync + 'static> Desk<R> {
    /// Ingests poll results until every sender is dropped.
    pub(super) async fn run(mut self, mut told: mpsc::Receiver<Told>) {
        let mut tick = tokio::time::interval(TICK);
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                one = told.recv() => {
                    let Some(one) = one else { return };
                    let mut all = vec![one];
                    while let Ok(more) = told.try_recv() {
                        all.push(more);
                    }
                    let began = Instant::now();
                    self.take(all).await;
                    // At most 30 % of the time is spent on ingesting.
                    tokio::time::sleep(began.elapsed() * 7 / 3).await;
                }
                _ = tick.tick() => self.tend().await,
            }
        }
    }

    async fn take(&mut self, told: Vec<Told>) {
        let (looks, answers): (Vec<Look>, Vec<_>) = told.into_iter().map(|told| (told.look, told.answer)).unzip();
        let of: Vec<usize> = looks.iter().map(|look| look.source).collect();
        let (catalogue, era) = (Arc::clone(&self.catalogue), self.era);
        let taken = tokio::task::spawn_blocking(move || catalogue.apply(era, looks)).await;
        let verdicts = taken.unwrap_or_else(|_| {
            tracing::error!("ingesting agents panicked: those in force stay");
            vec![Verdict::Refused; of.len()]
        });
        self.answer(of, answers, verdicts);
        self.tend().await;
    }

    /// Records the outcome of each poll and returns it to the poller.
    pub(super) fn answer(&mut self, of: Vec<usize>, answers: Vec<oneshot::Sender<Verdict>>, verdicts: Vec<Verdict>) {
        for ((at, answer), verdict) in of.into_iter().zip(answers).zip(verdicts) {
            if let Some((name, _)) = self.sources.get(at) {
                let outcome = match verdict {
                    Verdict::Taken { .. } | Verdict::Late => LookOutcome::Good,
                    Verdict::Held => LookOutcome::Held,
                    Verdict::Failed => LookOutcome::Failed,
                    Verdict::Refused => LookOutcome::Refused,
                };
                self.catalogue.metrics().feeds().looked(name, outcome);
            }
            // The poller may be gone after a change of the sources.
            let _ = answer.send(verdict);
        }
    }

    /// Removes stale agents, records the metrics of all sources, and stores what is due.
    pub(super) async fn tend(&mut self) {
        self.catalogue.expire(self.era);
        let sources = self.catalogue.sources();
        for health in sources.iter() {
            let age = health.age().map(|age| age.as_secs_f64());
            let (agents, held) = (health.agents, health.losing.unwrap_or_default());
            self.catalogue.metrics().feeds().is(&health.name, age, agents, held);
        }
        for (at, ((_, keeping), health)) in self.sources.iter_mut().zip(sources.iter()).enumerate() {
            let good = health.good.filter(|_| !health.remembered);
            if let (Some(keeping), Some(good)) = (keeping, good) {
                keeping.tend((at, health.revision, good), &self.catalogue, self.era).await;
            }
        }
    }
}

impl Keeping {
    /// Stores the agents of the source at index `at`, whose `revision` was last polled successfully at `good`.
    async fn tend<R: Send + Sync + 'static>(
        &mut self,
        (at, revision, good): (usize, u64, SystemTime),
        catalogue: &Arc<Catalogue<R>>,
        era: Era,
    ) {
        if let Some(writing) = self.writing.take_if(|writing| writing.is_finished()) {
            // A failed write is retried when it is next due.
            self.kept = writing.await.ok().flatten();
        }
        let now = Instant::now();
        if self.writing.is_some() || now < self.next {
            return;
        }
        let same = self.kept.filter(|(kept, _)| *kept == revision);
        if same.is_some_and(|(_, kept)| good.duration_since(kept).is_ok_and(|since| since < TOUCHED)) {
            return;
        }
        self.next = now + WRITTEN;
        let (keeper, catalogue) = (Arc::clone(&self.keeper), Arc::clone(catalogue));
        self.writing = Some(tokio::task::spawn_blocking(move || {
            // A file that is missing is written again.
            if same.is_some() && keeper.touch(good).is_ok() {
                return Some((revision, good));
            }
            let parts = catalogue.kept(era, at)?;
            let saved = keeper.save(&parts, good);
            if let Err(why) = &saved {
                tracing::warn!(error = %why, "last known good agents cannot be stored");
            }
            saved.ok().map(|()| (revision, good))
        }));
    }
}
