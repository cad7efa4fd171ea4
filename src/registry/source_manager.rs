//! Runs the sources: polls each one in its own task, so that a slow or broken source delays neither startup nor the
//! other sources.

use super::{
    catalogue::Catalogue,
    feed::PollResult,
    ingest::SourcePoll,
    ingest_worker::{IngestWorker, PersistenceState, QUEUE_CAPACITY},
    open_sources::{OpenedSource, OpenedSources},
    poller::{Poller, QueuedPoll},
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
const STARTUP_TIMEOUT: Duration = Duration::from_secs(5);

/// The running pollers and their ingest worker. Dropping it stops them; the agents stay.
#[derive(Debug)]
pub struct SourceManager {
    _tasks: JoinSet<()>,
}

impl SourceManager {
    /// Polls every source once, and then repeatedly. On return the catalogue holds what was polled in time, the last
    /// known good agents of the other sources, and nothing of sources that are no longer configured.
    pub async fn start<R: Send + Sync + 'static>(catalogue: &Arc<Catalogue<R>>, sources: OpenedSources) -> Self {
        let (queue, mut polls) = mpsc::channel(QUEUE_CAPACITY);
        let mut tasks = JoinSet::new();
        let (mut origins, mut last_known_good, mut local) = (Vec::new(), Vec::new(), HashSet::new());
        for (at, opened) in sources.0.into_iter().enumerate() {
            let OpenedSource { spec: origin, feed, poll_interval: poll, last_known_good: keeper, is_local: waits } =
                opened;
            let name = Arc::clone(&origin.name);
            tasks.spawn(
                Poller { source_index: at, name, feed, interval: poll, prefix_parts: !waits, queue: queue.clone() }
                    .run(),
            );
            local.extend(waits.then_some(at));
            origins.push(origin);
            last_known_good.push(keeper);
        }
        let first = collect_first_polls(&mut polls, origins.len(), local).await;
        let names = origins.iter().map(|origin| Arc::clone(&origin.name));
        let sources = names
            .zip(&last_known_good)
            .map(|(name, keeper)| (name, keeper.clone().map(PersistenceState::new)))
            .collect();
        let source_indexes = first.iter().map(|told| told.poll.source).collect();
        let (looks, answers): (Vec<_>, Vec<_>) = first.into_iter().map(|told| (told.poll, told.outcome)).unzip();
        let beginning = Arc::clone(catalogue);
        let begun = tokio::task::spawn_blocking(move || {
            beginning.metrics().sources().set_sources(origins.iter().map(|origin| (&*origin.name).into()));
            let remembered = load_last_known_good(&beginning, &origins, &last_known_good);
            beginning.begin_generation(origins, remembered, looks)
        });
        match begun.await {
            Ok((era, verdicts)) => {
                let mut desk = IngestWorker { catalogue: Arc::clone(catalogue), generation: era, sources };
                desk.report_outcomes(source_indexes, answers, verdicts);
                desk.run_maintenance().await;
                tasks.spawn(desk.run(polls));
            }
            Err(_) => tracing::error!("ingesting agents panicked: those in force stay"),
        }
        Self { _tasks: tasks }
    }
}

/// Collects the first poll results: waits for local sources without limit, for the others until STARTUP_TIMEOUT.
async fn collect_first_polls(
    polls: &mut mpsc::Receiver<QueuedPoll>,
    count: usize,
    mut local: HashSet<usize>,
) -> Vec<QueuedPoll> {
    let end = Instant::now() + STARTUP_TIMEOUT;
    let mut found: Vec<QueuedPoll> = Vec::new();
    while found.len() < count {
        let next = match local.is_empty() {
            true => timeout_at(end, polls.recv()).await.ok().flatten(),
            false => polls.recv().await,
        };
        let Some(next) = next else { break };
        local.remove(&next.poll.source);
        found.push(next);
    }
    found
}

/// Loads the last known good agents of the sources that have not been polled successfully.
fn load_last_known_good<R: Send + Sync + 'static>(
    catalogue: &Catalogue<R>,
    specs: &[super::SourceSpec],
    files: &[Option<Arc<super::last_known_good::LastKnownGoodFile>>],
) -> Vec<SourcePoll> {
    let unknown = specs.iter().zip(files).enumerate().filter(|(_, (origin, _))| !catalogue.has_polled(origin));
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
        Some(SourcePoll { source, result: PollResult { parts, ..PollResult::default() }, stored_at: Some(good) })
    });
    loaded.collect()
}
