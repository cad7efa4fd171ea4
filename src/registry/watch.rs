//! Drives the feeds: all are looked at, each in its own time and by itself, and a slow or broken one holds up neither
//! the start nor the others.

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

/// How long the start waits for sources beyond this machine. Those that answer later are taken in then.
const START: Duration = Duration::from_secs(5);

/// Feeds being watched; they stop when this is dropped, and the agents stay.
#[derive(Debug)]
pub struct Watch {
    _tasks: JoinSet<()>,
}

impl Watch {
    /// Looks once at every source, and then again and again. When this returns, the catalogue holds what could be
    /// read in time, what was remembered of the others, and nothing from sources that are no longer named.
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
            Err(_) => tracing::error!("agents could not be taken in; those in force stay"),
        }
        Self { _tasks: tasks }
    }
}

/// The first look of each source: of those at hand whenever it comes, of the others if it comes in time.
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

/// What is on disk of the sources of which nothing is known yet.
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
                tracing::warn!(feed = %origin.name, %why, "the last known good agents are not used");
                return None;
            }
        };
        let age = SystemTime::now().duration_since(good).unwrap_or_default();
        if origin.stale_after.is_some_and(|bound| age > bound) {
            tracing::warn!(feed = %origin.name, age_seconds = age.as_secs(), "the last known good agents are too old");
            return None;
        }
        Some(Look { source, change: Change { parts, ..Change::default() }, remembered: Some(good) })
    });
    loaded.collect()
}
