//! The catalogue: the routes of all agents by id, in an immutable snapshot that is swapped atomically.
//! A call loads the snapshot without a lock and keeps its route; a change builds the next snapshot off to the side.

use super::{
    AgentSnapshot, DocumentRejection,
    compile_documents::{
        CompileRoute, CompiledByDigest, CompiledDocument, SchemaInterner, compile_documents, parallel_map,
    },
    feed::RawDocument,
    ingest::{CatalogueState, IngestOutcome, SourcePoll},
    merge_sources::merge_sources,
    source_health::SourceHealth,
    source_state::{SourceSpec, SourceState},
};
use crate::{
    agent::Agent,
    telemetry::{AgentDocumentState, Event, Metrics},
};
use arc_swap::{ArcSwap, Guard};
use foldhash::fast::RandomState;
use std::{
    collections::{HashMap, HashSet},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{
            AtomicU64,
            Ordering::{AcqRel, Acquire},
        },
    },
};
use tokio::sync::watch;

/// Maximum number of rejected documents that are logged individually for one snapshot.
const MAX_LOGGED_REJECTIONS: usize = 20;

/// The agents of all sources.
pub struct Catalogue<R> {
    snapshot: ArcSwap<AgentSnapshot<R>>,
    state: Mutex<CatalogueState<R>>,
    health: ArcSwap<Vec<SourceHealth>>,
    snapshot_counter: watch::Sender<u64>,
    compiler_counter: AtomicU64,
    metrics: Arc<Metrics>,
}

/// Generation of the set of sources; each change of the configured sources begins another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Generation(pub(super) u64);

/// The agents of one part, for the last-known-good file.
pub(super) type PartAgents = (Arc<str>, Vec<Arc<Agent>>);

impl<R: Send + Sync + 'static> Catalogue<R> {
    /// Creates a catalogue without agents, whose routes `compiler` will compile.
    pub fn new(compiler: Arc<dyn CompileRoute<Route = R>>, metrics: Arc<Metrics>) -> Self {
        let state = CatalogueState::new(compiler);
        let (empty, _) = merge_sources(&state.sources);
        Self {
            snapshot: ArcSwap::from_pointee(empty),
            state: Mutex::new(state),
            health: ArcSwap::default(),
            snapshot_counter: watch::Sender::new(0),
            compiler_counter: AtomicU64::new(0),
            metrics,
        }
    }

    /// Returns the current snapshot, for the duration of a lookup.
    pub fn load(&self) -> Guard<Arc<AgentSnapshot<R>>> {
        self.snapshot.load()
    }

    /// Returns the current snapshot, to keep.
    pub fn snapshot(&self) -> Arc<AgentSnapshot<R>> {
        self.snapshot.load_full()
    }

    /// Returns a receiver that is notified after each new snapshot.
    pub fn subscribe(&self) -> watch::Receiver<u64> {
        self.snapshot_counter.subscribe()
    }

    /// Returns the health of each source, in order of precedence.
    pub fn source_health(&self) -> Arc<Vec<SourceHealth>> {
        self.health.load_full()
    }

    /// Returns whether this source has been polled successfully since startup.
    pub(super) fn has_polled(&self, spec: &SourceSpec) -> bool {
        self.lock_state().sources.iter().any(|source| source.matches(spec))
    }

    pub(super) fn metrics(&self) -> &Arc<Metrics> {
        &self.metrics
    }

    /// Begins a generation with another set of sources in order of precedence, their last known good agents and their
    /// first poll results. A source that existed before, by its name and location, keeps its agents until it is polled;
    /// other sources are dropped, and updates of earlier generations ignored. May take long, as [`Catalogue::ingest`].
    pub fn begin_generation(
        &self,
        specs: Vec<SourceSpec>,
        stored: Vec<SourcePoll>,
        first_polls: Vec<SourcePoll>,
    ) -> (Generation, Vec<IngestOutcome>) {
        let mut state = self.lock_state();
        state.generation.0 += 1;
        let mut before: HashMap<_, _> =
            std::mem::take(&mut state.sources).into_iter().map(|source| (source.spec.identity(), source)).collect();
        let again = specs.into_iter().map(|origin| match before.remove(&origin.identity()) {
            Some(source) => source.with_spec(origin),
            None => SourceState::new(origin),
        });
        state.sources = again.collect();
        // First, so that first polls reuse compiled documents and the loss guard has something to compare with.
        state.ingest(stored);
        let verdicts = state.ingest(first_polls);
        drop(before);
        self.publish(&mut state);
        (state.generation, verdicts)
    }

    /// Ingests poll results of this generation. May take long: call it from a thread that may block.
    pub fn ingest(&self, era: Generation, polls: Vec<SourcePoll>) -> Vec<IngestOutcome> {
        let mut state = self.lock_state();
        if state.generation != era {
            return vec![IngestOutcome::Outdated; polls.len()];
        }
        // The snapshot also lists the parts that cannot be read, so it changes with them.
        let has_parts = polls.iter().any(|look| !look.result.parts.is_empty());
        let verdicts = state.ingest(polls);
        let changed = verdicts.contains(&IngestOutcome::Accepted { changed: true });
        self.publish_or_update_health(&mut state, has_parts || changed);
        verdicts
    }

    /// Removes the agents of sources whose last successful poll is too long ago.
    pub fn remove_stale_agents(&self, era: Generation) {
        // The holder of the lock is changing the state; the next call checks again.
        let Ok(mut state) = self.state.try_lock() else { return };
        if state.generation != era {
            return;
        }
        let mut stale = false;
        for source in &mut state.sources {
            if source.mark_stale_if_expired() {
                tracing::warn!(source = %source.spec.name, "agents removed: no successful poll within max_staleness");
                stale = true;
            }
        }
        if stale {
            self.publish_or_update_health(&mut state, true);
        }
    }

    /// Accepts the withheld update of the source called `name`. Returns `None` if there is no such source, else whether
    /// there was a withheld update. May take long, as [`Catalogue::ingest`].
    pub fn confirm_withheld_update(&self, name: &str) -> Option<bool> {
        let mut state = self.lock_state();
        let source = state.sources.iter_mut().find(|source| &*source.spec.name == name)?;
        let waited = source.is_withholding();
        if waited {
            source.accept_withheld();
            tracing::info!(source = name, "loss of agents confirmed by an operator");
            self.publish(&mut state);
        }
        Some(waited)
    }

    /// Replaces the compiler: every agent is kept, every route is compiled again.
    pub fn recompile(&self, compiler: Arc<dyn CompileRoute<Route = R>>) {
        let mut state = self.lock_state();
        for source in &mut state.sources {
            source.map_documents(|held| parallel_map(held, |held| held.recompile(&compiler).map_or(held, Arc::new)));
        }
        state.compiler = compiler;
        self.compiler_counter.fetch_add(1, AcqRel);
        self.publish(&mut state);
    }

    /// Returns the agents of a source, to be stored on disk; `None` where the generation is over.
    pub(super) fn agents_of_source(&self, era: Generation, source: usize) -> Option<Vec<PartAgents>> {
        let state = self.lock_state();
        let source = state.sources.get(source).filter(|_| state.generation == era)?;
        let agents = |held: &[Arc<CompiledDocument<R>>]| held.iter().filter_map(|held| held.agent.clone()).collect();
        Some(source.parts.iter().map(|(name, entries)| (Arc::clone(name), agents(&entries.documents))).collect())
    }

    fn lock_state(&self) -> MutexGuard<'_, CatalogueState<R>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn publish_or_update_health(&self, state: &mut CatalogueState<R>, changed: bool) {
        match changed {
            true => self.publish(state),
            false => self.update_health(state),
        }
    }

    fn update_health(&self, state: &CatalogueState<R>) {
        self.health.store(Arc::new(state.sources.iter().map(SourceState::health).collect()));
    }

    /// Puts the next snapshot in force, and records and logs what changed.
    fn publish(&self, state: &mut CatalogueState<R>) {
        let (next, states) = merge_sources(&state.sources);
        for (state, count) in states {
            self.metrics.set_agent_count(state, count);
        }
        self.metrics.set_agent_count(AgentDocumentState::Rejected, next.rejected.len());
        let before = self.snapshot.load_full();
        let known: HashSet<&DocumentRejection, RandomState> = before.rejected.iter().collect();
        for (at, refusal) in next.rejected.iter().filter(|refusal| !known.contains(refusal)).enumerate() {
            self.metrics.record_event(Event::AgentRejected);
            if at < MAX_LOGGED_REJECTIONS {
                tracing::warn!(document = %refusal, "agent document rejected");
            }
        }
        let known: HashSet<_, RandomState> = before.unreadable_parts.iter().collect();
        for (part, why) in next.unreadable_parts.iter().filter(|trouble| !known.contains(trouble)) {
            tracing::warn!(%part, error = %why, "agents cannot be read: those read before stay in force");
        }
        tracing::info!(agents = next.len(), rejected = next.rejected.len(), "agent snapshot published");
        self.metrics.record_event(Event::SnapshotPublished);
        self.snapshot.store(Arc::new(next));
        self.update_health(state);
        self.snapshot_counter.send_modify(|count| *count += 1);
    }
}

/// For agents that are looked up individually and are in no snapshot.
impl<R: Send + Sync + 'static> Catalogue<R> {
    /// Returns the number of the compiler in force.
    pub(super) fn compiler_number(&self) -> u64 {
        self.compiler_counter.load(Acquire)
    }

    /// Compiles one document. Blocks meanwhile.
    pub(super) fn compile_document(&self, document: RawDocument) -> Arc<CompiledDocument<R>> {
        let compiler = Arc::clone(&self.lock_state().compiler);
        let judged =
            compile_documents(vec![document], &CompiledByDigest::default(), &compiler, &SchemaInterner::default())
                .pop();
        judged.unwrap_or_else(|| unreachable!("one document was given"))
    }

    /// Compiles an agent again with the compiler in force. Blocks meanwhile.
    pub(super) fn recompile_document(&self, held: &CompiledDocument<R>) -> Option<Arc<CompiledDocument<R>>> {
        let compiler = Arc::clone(&self.lock_state().compiler);
        held.recompile(&compiler).map(Arc::new)
    }
}
