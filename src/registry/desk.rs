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
    time::{Duration, Instant},
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
    changed: bool,
    good: bool,
    writing: Option<JoinHandle<bool>>,
    next: Instant,
    touched: Instant,
}

impl Keeping {
    pub(super) fn new(keeper: Arc<Keeper>) -> Self {
        let now = Instant::now();
        Self { keeper, changed: false, good: false, writing: None, next: now, touched: now }
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
            if let Some((name, keeping)) = self.sources.get_mut(at) {
                let outcome = match verdict {
                    Verdict::Taken { .. } | Verdict::Late => LookOutcome::Good,
                    Verdict::Held => LookOutcome::Held,
                    Verdict::Failed => LookOutcome::Failed,
                    Verdict::Refused => LookOutcome::Refused,
                };
                self.catalogue.metrics().feeds().looked(name, outcome);
                if let (Some(keeping), Verdict::Taken { changed }) = (keeping, verdict) {
                    keeping.changed |= changed;
                    keeping.good = true;
                }
            }
            // Whoever asked may be gone: the sources were changed.
            let _ = answer.send(verdict);
        }
    }

    /// Does what is due.
    pub(super) async fn tend(&mut self) {
        self.catalogue.expire(self.era);
        for health in self.catalogue.sources().iter() {
            let age = health.age().map(|age| age.as_secs_f64());
            let (agents, held) = (health.agents, health.losing.unwrap_or_default());
            self.catalogue.metrics().feeds().is(&health.name, age, agents, held);
        }
        for (at, (_, keeping)) in self.sources.iter_mut().enumerate() {
            if let Some(keeping) = keeping {
                keeping.tend(at, &self.catalogue, self.era).await;
            }
        }
    }
}

impl Keeping {
    async fn tend<R: Send + Sync + 'static>(&mut self, at: usize, catalogue: &Arc<Catalogue<R>>, era: Era) {
        if let Some(writing) = self.writing.take_if(|writing| writing.is_finished()) {
            // What could not be written is tried again with the next change, and at the next due time.
            self.changed |= !writing.await.unwrap_or(false);
        }
        let now = Instant::now();
        if self.writing.is_some() || now < self.next {
            return;
        }
        let keeper = Arc::clone(&self.keeper);
        if std::mem::take(&mut self.changed) {
            (self.next, self.touched, self.good) = (now + WRITTEN, now, false);
            let catalogue = Arc::clone(catalogue);
            self.writing = Some(tokio::task::spawn_blocking(move || {
                let Some(parts) = catalogue.kept(era, at) else { return true };
                let saved = keeper.save(&parts);
                if let Err(why) = &saved {
                    tracing::warn!(%why, "the last known good agents cannot be kept");
                }
                saved.is_ok()
            }));
        } else if self.good && now.duration_since(self.touched) >= TOUCHED {
            (self.touched, self.good) = (now, false);
            self.writing = Some(tokio::task::spawn_blocking(move || {
                // A file that is gone is written anew.
                keeper.touch(std::time::SystemTime::now()).is_ok()
            }));
        }
    }
}
