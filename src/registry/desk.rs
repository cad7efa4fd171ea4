//! Where looks arrive: they are taken in together, no more often than leaves most of a core to calls; what sources
//! beyond this machine said is kept on disk, and what they are is measured.

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

/// How often ages are told, and what is due is done.
const TICK: Duration = Duration::from_secs(1);
/// A source's agents are written at most so often.
const WRITTEN: Duration = Duration::from_secs(10);
/// And the file's time is set at most so often.
const TOUCHED: Duration = Duration::from_secs(60);
/// Looks that wait at most; a source has one at a time.
pub(super) const WAITING: usize = 128;

/// What is kept of one source.
pub(super) struct Keeping {
    keeper: Arc<Keeper>,
    /// The revision in the file, and when it was good.
    kept: Option<(u64, SystemTime)>,
    writing: Option<JoinHandle<Option<(u64, SystemTime)>>>,
    next: Instant,
}

impl Keeping {
    pub(super) fn new(keeper: Arc<Keeper>) -> Self {
        Self { keeper, kept: None, writing: None, next: Instant::now() }
    }
}

/// Takes looks in.
pub(super) struct Desk<R> {
    pub(super) catalogue: Arc<Catalogue<R>>,
    pub(super) era: Era,
    /// The sources' names, in their order, with what is kept of them.
    pub(super) sources: Vec<(Arc<str>, Option<Keeping>)>,
}

impl<R: Send + Sync + 'static> Desk<R> {
    /// Takes in what comes, until nobody is left who could say anything.
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
                    // Seven parts of rest to three of work.
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
            tracing::error!("agents could not be taken in; those in force stay");
            vec![Verdict::Refused; of.len()]
        });
        self.answer(of, answers, verdicts);
        self.tend().await;
    }

    /// Tells each look what became of it.
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
            // Whoever asked may be gone: the sources were changed.
            let _ = answer.send(verdict);
        }
    }

    /// Does what is due.
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
    /// Writes what is new of the source at this place, with this revision, which was good then.
    async fn tend<R: Send + Sync + 'static>(
        &mut self,
        (at, revision, good): (usize, u64, SystemTime),
        catalogue: &Arc<Catalogue<R>>,
        era: Era,
    ) {
        if let Some(writing) = self.writing.take_if(|writing| writing.is_finished()) {
            // What could not be written is tried again when it is due.
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
            // A file that is gone is written anew.
            if same.is_some() && keeper.touch(good).is_ok() {
                return Some((revision, good));
            }
            let parts = catalogue.kept(era, at)?;
            let saved = keeper.save(&parts, good);
            if let Err(why) = &saved {
                tracing::warn!(%why, "the last known good agents cannot be kept");
            }
            saved.ok().map(|()| (revision, good))
        }));
    }
}
