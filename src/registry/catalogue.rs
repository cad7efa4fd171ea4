//! The catalogue: the routes of all agents by id, in an immutable snapshot that is swapped atomically.
//! A call loads the snapshot without a lock and keeps its route; a change builds the next snapshot off to the side.

use super::{
    AgentOwnership, AgentSnapshot, DocumentRejection,
    agent_ownership::PublisherBudget,
    ingest::CatalogueState,
    merge_sources::merge_sources,
    route_compilation::{
        CompileRoute, CompiledByIdentity, CompiledDocument, PendingDocument, SchemaInterner, SourceBudgets,
        SourcedDocument, compile_documents, parallel_map,
    },
    source_health::SourceHealth,
    source_poll::{Generation, IngestOutcome, SourcePoll},
    source_spec::SourceSpec,
    source_state::SourceState,
};
use crate::{
    agent::{Agent, AgentEndpoint, AgentId, AgentSource},
    contract::SchemaBudget,
    telemetry::{Event, Metrics, redact},
};
use arc_swap::{ArcSwap, Guard};
use foldhash::fast::RandomState;
use parking_lot::{Mutex, MutexGuard};
use std::{
    collections::{HashMap, HashSet},
    sync::{
        Arc,
        atomic::{
            AtomicBool, AtomicU64,
            Ordering::{AcqRel, Acquire, Release},
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
    /// Whether a required source was never read, so that an unknown id may be one of its agents.
    is_incomplete: AtomicBool,
    /// Whether every required source was read once since startup. Never becomes false again.
    is_ready: AtomicBool,
    /// Whether the gateway drains. Then it is not reported as ready any more.
    is_draining: Mutex<bool>,
    snapshot_counter: watch::Sender<u64>,
    compiler_counter: AtomicU64,
    metrics: Arc<Metrics>,
}

/// The agents of one part, for the last-known-good file.
pub(super) type PartAgents = (Arc<str>, Vec<Arc<Agent>>);

impl<R: Send + Sync + 'static> Catalogue<R> {
    /// Creates a catalogue without agents, whose routes `compiler` will compile.
    pub fn new(compiler: Arc<dyn CompileRoute<Route = R>>, metrics: Arc<Metrics>) -> Self {
        let state = CatalogueState::new(compiler);
        let (empty, _) = merge_sources(&state.sources, &state.compiler);
        Self {
            snapshot: ArcSwap::from_pointee(empty),
            state: Mutex::new(state),
            health: ArcSwap::default(),
            is_incomplete: AtomicBool::new(true),
            is_ready: AtomicBool::new(false),
            is_draining: Mutex::new(false),
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

    /// Returns whether a required source was never read, so that an id that the snapshot lacks may be one of its agents.
    /// If the result is false, a snapshot that is loaded afterwards has the agents of every required source.
    pub fn is_incomplete(&self) -> bool {
        self.is_incomplete.load(Acquire)
    }

    /// Returns whether every required source was read once since startup. A source that fails later, and one that a
    /// reload adds, do not change the result.
    pub fn is_ready(&self) -> bool {
        self.is_ready.load(Acquire)
    }

    /// Reports that the gateway is not ready, also if the last required source is read later.
    pub fn report_draining(&self) {
        let mut is_draining = self.is_draining.lock();
        *is_draining = true;
        self.metrics.set_ready(false);
    }

    /// Returns the names of the required sources that were never read.
    pub fn awaited_sources(&self) -> Vec<Arc<str>> {
        let health = self.health.load();
        health.iter().filter(|source| source.is_awaited()).map(|source| Arc::clone(&source.name)).collect()
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
        last_known_good: Vec<SourcePoll>,
        first_polls: Vec<SourcePoll>,
    ) -> (Generation, Vec<IngestOutcome>) {
        let mut state = self.lock_state();
        state.generation.0 += 1;
        let mut previous: HashMap<_, _> =
            std::mem::take(&mut state.sources).into_iter().map(|source| (source.spec.identity(), source)).collect();
        let sources = specs.into_iter().map(|spec| match previous.remove(&spec.identity()) {
            Some(source) => source.with_spec(spec),
            None => SourceState::new(spec),
        });
        state.sources = sources.collect();
        // First, so that first polls reuse compiled documents and the loss guard has something to compare with.
        state.ingest(last_known_good);
        let outcomes = state.ingest(first_polls);
        drop(previous);
        self.publish(&mut state);
        let awaited = self.awaited_sources();
        if !awaited.is_empty() {
            tracing::warn!(
                sources = ?awaited,
                ready = self.is_ready(),
                "required sources were not read yet: calls to unknown agents get 503"
            );
        }
        (state.generation, outcomes)
    }

    /// Ingests poll results of this generation. May take long: call it from a thread that may block.
    pub fn ingest(&self, generation: Generation, polls: Vec<SourcePoll>) -> Vec<IngestOutcome> {
        self.ingest_locked(&mut self.lock_state(), generation, polls)
    }

    /// Ingests the results of polls that change no source, which takes no time in a small catalogue; gives others back, and
    /// all while the state is being changed.
    pub(super) fn ingest_unchanged(
        &self,
        generation: Generation,
        polls: Vec<SourcePoll>,
    ) -> Result<Vec<IngestOutcome>, Vec<SourcePoll>> {
        match self.state.try_lock() {
            Some(mut state) if state.is_small() && state.is_unchanged_by(&polls) => {
                Ok(self.ingest_locked(&mut state, generation, polls))
            }
            _ => Err(polls),
        }
    }

    fn ingest_locked(
        &self,
        state: &mut CatalogueState<R>,
        generation: Generation,
        polls: Vec<SourcePoll>,
    ) -> Vec<IngestOutcome> {
        if state.generation != generation {
            return vec![IngestOutcome::Outdated; polls.len()];
        }
        // The snapshot also lists the parts that cannot be read, so it changes with them.
        let has_parts = polls.iter().any(|poll| !poll.result.parts.is_empty());
        let outcomes = state.ingest(polls);
        let changed = outcomes.contains(&IngestOutcome::Accepted { changed: true });
        self.publish_or_update_health(state, has_parts || changed);
        outcomes
    }

    /// Removes the agents of sources whose last successful poll is too long ago.
    pub fn remove_stale_agents(&self, generation: Generation) {
        // The holder of the lock is changing the state; the next call checks again.
        let Some(mut state) = self.state.try_lock() else { return };
        if state.generation != generation {
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
        let was_withheld = source.is_withholding();
        if was_withheld {
            source.accept_withheld();
            tracing::info!(source = name, "loss of agents confirmed by an operator");
            self.publish(&mut state);
        }
        Some(was_withheld)
    }

    /// Ends the delay before the next poll of the source called `name`; returns whether there is such a source.
    pub fn refresh_source(&self, name: &str) -> bool {
        let state = self.lock_state();
        let source = state.sources.iter().find(|source| &*source.spec.name == name);
        source.inspect(|source| source.spec.refresh.notify_one()).is_some()
    }

    /// Ends the delays before the next polls of all sources.
    pub fn refresh_all_sources(&self) {
        self.lock_state().sources.iter().for_each(|source| source.spec.refresh.notify_one());
    }

    /// Replaces the compiler: every agent is kept, every route is compiled again.
    pub fn recompile(&self, compiler: Arc<dyn CompileRoute<Route = R>>) {
        let mut state = self.lock_state();
        for source in &mut state.sources {
            let budgets = SourceBudgets::new(compiler.schema_limits());
            source.map_documents(|documents| {
                parallel_map(documents, |document| document.recompile(&compiler, &budgets).map_or(document, Arc::new))
            });
        }
        state.compiler = compiler;
        self.compiler_counter.fetch_add(1, AcqRel);
        self.publish(&mut state);
    }

    /// Returns the agents of a source in order of precedence, to be stored on disk; `None` where the generation is over.
    pub(super) fn agents_of_source(&self, generation: Generation, source: usize) -> Option<Vec<PartAgents>> {
        let state = self.lock_state();
        let source = state.sources.get(source).filter(|_| state.generation == generation)?;
        let agents = |documents: &[Arc<CompiledDocument<R>>]| {
            documents.iter().filter_map(|document| document.agent.clone()).collect()
        };
        let parts = source.parts_by_precedence();
        Some(parts.into_iter().map(|part| (Arc::clone(part.name), agents(&part.content.documents))).collect())
    }

    fn lock_state(&self) -> MutexGuard<'_, CatalogueState<R>> {
        self.state.lock()
    }

    fn publish_or_update_health(&self, state: &mut CatalogueState<R>, changed: bool) {
        if changed { self.publish(state) } else { self.update_health(state) }
    }

    fn update_health(&self, state: &CatalogueState<R>) {
        let health: Vec<SourceHealth> = state.sources.iter().map(SourceState::health).collect();
        let is_incomplete = health.iter().any(SourceHealth::is_awaited);
        self.health.store(Arc::new(health));
        // After the snapshot, as `is_incomplete` promises.
        self.is_incomplete.store(is_incomplete, Release);
        if !is_incomplete && !self.is_ready.swap(true, AcqRel) {
            self.report_ready();
        }
    }

    fn report_ready(&self) {
        // Held until the metric is set, so that a drain that begins meanwhile sets it afterwards.
        let is_draining = self.is_draining.lock();
        if !*is_draining {
            self.metrics.set_ready(true);
            tracing::info!("ready: every required source was read");
        }
    }

    /// Puts the next snapshot in force, and records and logs what changed.
    fn publish(&self, state: &mut CatalogueState<R>) {
        let (next, counts) = merge_sources(&state.sources, &state.compiler);
        for (state, count) in counts.states {
            self.metrics.set_agent_count(state, count);
        }
        self.metrics.set_partly_checked_agents(counts.partly_checked);
        let previous = self.snapshot.load_full();
        let previous_rejections: HashSet<&DocumentRejection, RandomState> = previous.rejected.iter().collect();
        for (at, rejection) in
            next.rejected.iter().filter(|rejection| !previous_rejections.contains(rejection)).enumerate()
        {
            self.metrics.record_event(Event::AgentRejected);
            if at < MAX_LOGGED_REJECTIONS {
                tracing::warn!(document = %rejection, "agent document rejected");
            }
        }
        let previously_unreadable: HashSet<_, RandomState> = previous.unreadable_parts.iter().collect();
        for (part, reason) in next.unreadable_parts.iter().filter(|entry| !previously_unreadable.contains(entry)) {
            tracing::warn!(part = %redact(part), error = %reason, "source part cannot be read: its previous agents stay in force");
        }
        let (rejected, unsupported) = (next.rejected.len(), next.unsupported.len());
        tracing::info!(agents = next.len(), rejected, unsupported, "agent snapshot published");
        self.metrics.record_event(Event::SnapshotPublished);
        self.snapshot.store(Arc::new(next));
        self.update_health(state);
        self.snapshot_counter.send_modify(|count| *count += 1);
    }
}

impl<R: Send + Sync + 'static> AgentOwnership for Catalogue<R> {
    fn has_agent(&self, id: &AgentId) -> bool {
        self.load().get(id.as_str()).is_some()
    }

    fn endpoint_owner(&self, endpoint: &AgentEndpoint) -> Option<Arc<AgentSource>> {
        self.load().endpoint_owner(endpoint).cloned()
    }

    fn publisher_budget(&self, publisher: &str, agent: &Agent) -> PublisherBudget {
        let state = self.lock_state();
        let unsupported = state.compiler.unsupported_reason(agent);
        let (limits, checks) = (state.compiler.schema_limits(), state.compiler.document_checks());
        let budget = SchemaBudget::of_publisher(limits);
        let documents = state.sources.iter().flat_map(SourceState::all_documents);
        let owned = documents
            .filter(|document| document.identity.source.publisher().is_some_and(|owner| **owner == *publisher));
        for document in owned.filter(|document| document.callable_id() != Some(&agent.id)) {
            document.charges.iter().for_each(|charge| budget.record(*charge));
        }
        PublisherBudget { limits, budget, checks, unsupported }
    }
}

/// For agents that are looked up individually and are in no snapshot.
impl<R: Send + Sync + 'static> Catalogue<R> {
    /// Returns the number of the compiler in force.
    pub(super) fn compiler_number(&self) -> u64 {
        self.compiler_counter.load(Acquire)
    }

    /// Compiles one document. Blocks the thread.
    pub(super) fn compile_document(&self, document: SourcedDocument) -> Arc<CompiledDocument<R>> {
        let compiler = Arc::clone(&self.lock_state().compiler);
        let budgets = Arc::new(SourceBudgets::new(compiler.schema_limits()));
        let pending = PendingDocument { document, budgets };
        let compiled =
            compile_documents(vec![pending], &CompiledByIdentity::default(), &compiler, &SchemaInterner::default())
                .pop();
        compiled.unwrap_or_else(|| unreachable!("one document was compiled"))
    }

    /// Compiles an agent again with the compiler in force. Blocks the thread.
    pub(super) fn recompile_document(&self, document: &CompiledDocument<R>) -> Option<Arc<CompiledDocument<R>>> {
        let compiler = Arc::clone(&self.lock_state().compiler);
        document.recompile(&compiler, &SourceBudgets::new(compiler.schema_limits())).map(Arc::new)
    }
}
