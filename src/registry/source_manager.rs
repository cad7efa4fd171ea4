//! Runs the sources: polls each one in its own task, so that a slow or broken source delays neither startup nor the
//! other sources.

use super::{
    catalogue::Catalogue,
    feed::PollResult,
    ingest_worker::{FlushRequest, IngestWorker, PersistenceState, QUEUE_CAPACITY},
    open_sources::{OpenedSource, OpenedSources},
    poller::{Poller, QueuedPoll},
    source_poll::SourcePoll,
};
use std::{
    collections::HashSet,
    sync::Arc,
    time::{Duration, SystemTime},
};
use tokio::{
    sync::{mpsc, oneshot},
    task::JoinSet,
    time::{Instant, timeout, timeout_at},
};

/// How long startup waits for remote sources. A source that responds later is ingested then.
const STARTUP_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a shutdown waits until the last known good agents are stored.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(10);

/// The running pollers and their ingest worker. Dropping it stops them; the agents stay.
#[derive(Debug)]
pub struct SourceManager {
    _tasks: JoinSet<()>,
    flushes: mpsc::Sender<FlushRequest>,
}

impl SourceManager {
    /// Polls every source once, and then repeatedly. On return the catalogue holds the agents of the sources that
    /// responded in time, the last known good agents of the others, and no agents of sources that are no longer
    /// configured.
    pub async fn start<R: Send + Sync + 'static>(catalogue: &Arc<Catalogue<R>>, sources: OpenedSources) -> Self {
        let (queue, mut polls) = mpsc::channel(QUEUE_CAPACITY);
        let (flushes, flush_requests) = mpsc::channel(1);
        let mut tasks = JoinSet::new();
        let (mut specs, mut files, mut local_indexes) = (Vec::new(), Vec::new(), HashSet::new());
        for (index, opened) in sources.0.into_iter().enumerate() {
            let OpenedSource { spec, feed, poll_interval, max_backoff, last_known_good: file, is_local } = opened;
            let name = Arc::clone(&spec.name);
            tasks.spawn(
                Poller {
                    source_index: index,
                    name,
                    feed,
                    interval: poll_interval,
                    max_backoff,
                    refresh: Arc::clone(&spec.refresh),
                    prefix_parts: !is_local,
                    queue: queue.clone(),
                }
                .run(),
            );
            local_indexes.extend(is_local.then_some(index));
            specs.push(spec);
            files.push(file);
        }
        let first_polls = collect_first_polls(&mut polls, specs.len(), local_indexes).await;
        let names = specs.iter().map(|spec| Arc::clone(&spec.name));
        let sources = names.zip(&files).map(|(name, file)| (name, file.clone().map(PersistenceState::new))).collect();
        let source_indexes = first_polls.iter().map(|queued| queued.poll.source).collect();
        let (source_polls, outcome_senders): (Vec<_>, Vec<_>) =
            first_polls.into_iter().map(|queued| (queued.poll, queued.outcome)).unzip();
        let shared_catalogue = Arc::clone(catalogue);
        let started = tokio::task::spawn_blocking(move || {
            shared_catalogue.metrics().sources().set_sources(specs.iter().map(|spec| (&*spec.name).into()));
            let last_known_good = load_last_known_good(&shared_catalogue, &specs, &files);
            shared_catalogue.begin_generation(specs, last_known_good, source_polls)
        });
        match started.await {
            Ok((generation, outcomes)) => {
                let mut worker = IngestWorker { catalogue: Arc::clone(catalogue), generation, sources };
                worker.report_outcomes(source_indexes, outcome_senders, outcomes);
                worker.run_maintenance().await;
                tasks.spawn(worker.run(polls, flush_requests));
            }
            Err(_) => tracing::error!("ingesting agents panicked: the agents in force stay (a defect of the gateway)"),
        }
        Self { _tasks: tasks, flushes }
    }

    /// Stores the last known good agents of every source that changed, within some seconds.
    pub async fn flush(&self) {
        let (done, finished) = oneshot::channel();
        let flush = async {
            // The worker is gone only after a defect, which it has reported.
            if self.flushes.send(done).await.is_ok() {
                drop(finished.await);
            }
        };
        if timeout(FLUSH_TIMEOUT, flush).await.is_err() {
            tracing::warn!("last known good agents were not stored in time");
        }
    }
}

/// Collects the first poll results: waits for local sources without limit, for the others until STARTUP_TIMEOUT.
async fn collect_first_polls(
    polls: &mut mpsc::Receiver<QueuedPoll>,
    count: usize,
    mut local: HashSet<usize>,
) -> Vec<QueuedPoll> {
    let deadline = Instant::now() + STARTUP_TIMEOUT;
    let mut first_polls: Vec<QueuedPoll> = Vec::new();
    while first_polls.len() < count {
        let next =
            if local.is_empty() { timeout_at(deadline, polls.recv()).await.ok().flatten() } else { polls.recv().await };
        let Some(next) = next else { break };
        local.remove(&next.poll.source);
        first_polls.push(next);
    }
    first_polls
}

/// Loads the last known good agents of the sources that have not been polled successfully.
fn load_last_known_good<R: Send + Sync + 'static>(
    catalogue: &Catalogue<R>,
    specs: &[super::SourceSpec],
    files: &[Option<Arc<super::last_known_good::LastKnownGoodFile>>],
) -> Vec<SourcePoll> {
    let never_polled = specs.iter().zip(files).enumerate().filter(|(_, (spec, _))| !catalogue.has_polled(spec));
    let loaded = never_polled.filter_map(|(source, (spec, file))| {
        let (last_success, parts) = match file.as_ref()?.load() {
            Ok(stored) => stored?,
            Err(why) => {
                tracing::warn!(source = %spec.name, error = %why, "last known good agents not used");
                return None;
            }
        };
        let age = SystemTime::now().duration_since(last_success).unwrap_or_default();
        if spec.max_staleness.is_some_and(|max_staleness| age > max_staleness) {
            tracing::warn!(source = %spec.name, age_seconds = age.as_secs(), "last known good agents are too old");
            return None;
        }
        // The parts of a source that has lists are stored in their order.
        let lists = parts.iter().filter(|_| spec.has_lists()).map(|part| Arc::clone(&part.name)).collect();
        Some(SourcePoll {
            source,
            result: PollResult { parts, lists, ..PollResult::default() },
            stored_at: Some(last_success),
        })
    });
    loaded.collect()
}
