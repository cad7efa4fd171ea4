//! Runs the sources: polls each one in its own task, so that a slow or broken source delays neither startup nor the
//! other sources.

use super::{
    catalogue::Catalogue,
    desk::{Desk, Keeping, WAITING},
    feed::Change,
    intake::Look,
    looker::{Looker, Told},
    open::{Opened, Sources},
};
use std::{
    collections::HashSet,
    sync::Arc,
    time::{Duration, SystemTime},
};
use tokio::{
    sync::mpsc,
    task::JoinSet,
    time::{Instant, timeout_at},
};

/// How long startup waits for remote sources. A source that responds later is ingested then.
const START: Duration = Duration::from_secs(5);

/// The running pollers and their ingest worker. Dropping it stops them; the agents stay.
#[derive(Debug)]
pub struct Watch {
    _tasks: JoinSet<()>,
}

impl Watch {
    /// Polls every source once, and then repeatedly. On return the catalogue holds what was polled in time, the last
    /// known good agents of the other sources, and nothing of sources that are no longer configured.
    pub async fn start<R: Send + Sync + 'static>(catalogue: &Arc<Catalogue<R>>, sources: Sources) -> Self {
        let (to, mut told) = mpsc::channel(WAITING);
        let mut tasks = JoinSet::new();
        let (mut origins, mut kept, mut at_hand) = (Vec::new(), Vec::new(), HashSet::new());
        for (at, opened) in sources.0.into_iter().enumerate() {
            let Opened { origin, feed, poll, keeper, at_hand: waits } = opened;
            let name = Arc::clone(&origin.name);
            tasks.spawn(Looker { at, name, feed, poll, prefix: !waits, to: to.clone() }.run());
            at_hand.extend(waits.then_some(at));
            origins.push(origin);
            kept.push(keeper);
        }
        let first = first_looks(&mut told, origins.len(), at_hand).await;
        let names = origins.iter().map(|origin| Arc::clone(&origin.name));
        let sources = names.zip(&kept).map(|(name, keeper)| (name, keeper.clone().map(Keeping::new))).collect();
        let of = first.iter().map(|told| told.look.source).collect();
        let (looks, answers): (Vec<_>, Vec<_>) = first.into_iter().map(|told| (told.look, told.answer)).unzip();
        let begun = Arc::clone(catalogue);
        let begun = tokio::task::spawn_blocking(move || {
            begun.metrics().feeds().name(origins.iter().map(|origin| (&*origin.name).into()));
            let remembered = remembered(&begun, &origins, &kept);
            begun.begin(origins, remembered, looks)
        });
        match begun.await {
            Ok((era, verdicts)) => {
                let mut desk = Desk { catalogue: Arc::clone(catalogue), era, sources };
                desk.answer(of, answers, verdicts);
                desk.tend().await;
                tasks.spawn(desk.run(told));
            }
            Err(_) => tracing::error!("ingesting agents panicked: those in force stay"),
        }
        Self { _tasks: tasks }
    }
}

/// Collects the first poll results: waits for local sources without limit, for the others until STARTUP_TIMEOUT.
async fn first_looks(told: &mut mpsc::Receiver<Told>, count: usize, mut at_hand: HashSet<usize>) -> Vec<Told> {
    let end = Instant::now() + START;
    let mut found: Vec<Told> = Vec::new();
    while found.len() < count {
        let next = match at_hand.is_empty() {
            true => timeout_at(end, told.recv()).await.ok().flatten(),
            false => told.recv().await,
        };
        let Some(next) = next else { break };
        at_hand.remove(&next.look.source);
        found.push(next);
    }
    found
}

/// Loads the last known good agents of the sources that have not been polled successfully.
fn remembered<R: Send + Sync + 'static>(
    catalogue: &Catalogue<R>,
    origins: &[super::Origin],
    kept: &[Option<Arc<super::keep::Keeper>>],
) -> Vec<Look> {
    let unknown = origins.iter().zip(kept).enumerate().filter(|(_, (origin, _))| !catalogue.knows(origin));
    let loaded = unknown.filter_map(|(source, (origin, keeper))| {
        let (good, parts) = match keeper.as_ref()?.load() {
            Ok(found) => found?,
            Err(why) => {
                tracing::warn!(source = %origin.name, error = %why, "last known good agents not used");
                return None;
            }
        };
        let age = SystemTime::now().duration_since(good).unwrap_or_default();
        if origin.stale_after.is_some_and(|bound| age > bound) {
            tracing::warn!(source = %origin.name, age_seconds = age.as_secs(), "last known good agents are too old");
            return None;
        }
        Some(Look { source, change: Change { parts, ..Change::default() }, remembered: Some(good) })
    });
    loaded.collect()
}
