//! The catalogue: the routes of all agents by id, in an immutable snapshot that is swapped atomically.
//! A call loads the snapshot without a lock and keeps its route; a change builds the next snapshot off to the side.

use super::{
    Refusal, Snapshot,
    feed::Document,
    health::SourceHealth,
    intake::{Look, State, Verdict},
    merge::merge,
    settle::{Compile, Held, Known, Schemas, settle, spread},
    source::{Origin, SourceState},
};
use crate::{
    agent::Agent,
    telemetry::{AgentState, Event, Metrics},
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
const LOGGED: usize = 20;

/// The agents of all sources.
pub struct Catalogue<R> {
    snapshot: ArcSwap<Snapshot<R>>,
    state: Mutex<State<R>>,
    health: ArcSwap<Vec<SourceHealth>>,
    changed: watch::Sender<u64>,
    compilers: AtomicU64,
    metrics: Arc<Metrics>,
}

/// Generation of the set of sources; each change of the configured sources begins another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Era(pub(super) u64);

/// The agents of one part, for the last-known-good file.
pub(super) type Kept = (Arc<str>, Vec<Arc<Agent>>);

impl<R: Send + Sync + 'static> Catalogue<R> {
    /// Creates a catalogue without agents, whose routes `compiler` will compile.
    pub fn new(compiler: Arc<dyn Compile<Route = R>>, metrics: Arc<Metrics>) -> Self {
        let state = State::new(compiler);
        let (empty, _) = merge(&state.sources);
        Self {
            snapshot: ArcSwap::from_pointee(empty),
            state: Mutex::new(state),
            health: ArcSwap::default(),
            changed: watch::Sender::new(0),
            compilers: AtomicU64::new(0),
            metrics,
        }
    }

    /// Returns the current snapshot, for the duration of a lookup.
    pub fn load(&self) -> Guard<Arc<Snapshot<R>>> {
        self.snapshot.load()
    }

    /// Returns the current snapshot, to keep.
    pub fn snapshot(&self) -> Arc<Snapshot<R>> {
        self.snapshot.load_full()
    }

    /// Returns a receiver that is notified after each new snapshot.
    pub fn changed(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    /// Returns the health of each source, in order of precedence.
    pub fn sources(&self) -> Arc<Vec<SourceHealth>> {
        self.health.load_full()
    }

    /// Returns whether this source has been polled successfully since startup.
    pub(super) fn knows(&self, origin: &Origin) -> bool {
        self.state().sources.iter().any(|source| source.is(origin))
    }

    pub(super) fn metrics(&self) -> &Arc<Metrics> {
        &self.metrics
    }

    /// Begins a generation with another set of sources in order of precedence, their last known good agents and their
    /// first poll results. A source that existed before, by its name and location, keeps its agents until it is polled;
    /// other sources are dropped, and updates of earlier generations ignored. May take long, as [`Catalogue::ingest`].
    pub fn begin(&self, origins: Vec<Origin>, remembered: Vec<Look>, first: Vec<Look>) -> (Era, Vec<Verdict>) {
        let mut state = self.state();
        state.era.0 += 1;
        let mut before: HashMap<_, _> =
            std::mem::take(&mut state.sources).into_iter().map(|source| (source.origin.identity(), source)).collect();
        let again = origins.into_iter().map(|origin| match before.remove(&origin.identity()) {
            Some(source) => source.again(origin),
            None => SourceState::new(origin),
        });
        state.sources = again.collect();
        // First, so that first polls reuse compiled documents and the loss guard has something to compare with.
        state.take(remembered);
        let verdicts = state.take(first);
        drop(before);
        self.publish(&mut state);
        (state.era, verdicts)
    }

    /// Ingests poll results of this generation. May take long: call it from a thread that may block.
    pub fn apply(&self, era: Era, looks: Vec<Look>) -> Vec<Verdict> {
        let mut state = self.state();
        if state.era != era {
            return vec![Verdict::Late; looks.len()];
        }
        // The snapshot also lists the parts that cannot be read, so it changes with them.
        let spoken = looks.iter().any(|look| !look.change.parts.is_empty());
        let verdicts = state.take(looks);
        let changed = verdicts.contains(&Verdict::Taken { changed: true });
        self.settled(&mut state, spoken || changed);
        verdicts
    }

    /// Removes the agents of sources whose last successful poll is too long ago.
    pub fn expire(&self, era: Era) {
        // The holder of the lock is changing the state; the next call checks again.
        let Ok(mut state) = self.state.try_lock() else { return };
        if state.era != era {
            return;
        }
        let mut stale = false;
        for source in &mut state.sources {
            if source.goes_stale() {
                tracing::warn!(source = %source.origin.name, "agents removed: no successful poll within stale_after");
                stale = true;
            }
        }
        if stale {
            self.settled(&mut state, true);
        }
    }

    /// Accepts the withheld update of the source called `name`. Returns `None` if there is no such source, else whether
    /// there was a withheld update. May take long, as [`Catalogue::ingest`].
    pub fn confirm(&self, name: &str) -> Option<bool> {
        let mut state = self.state();
        let source = state.sources.iter_mut().find(|source| &*source.origin.name == name)?;
        let waited = source.waits();
        if waited {
            source.commit();
            tracing::info!(source = name, "loss of agents confirmed by an operator");
            self.publish(&mut state);
        }
        Some(waited)
    }

    /// Replaces the compiler: every agent is kept, every route is compiled again.
    pub fn recompile(&self, compiler: Arc<dyn Compile<Route = R>>) {
        let mut state = self.state();
        for source in &mut state.sources {
            source.remake(|held| spread(held, |held| held.again(&compiler).map_or(held, Arc::new)));
        }
        state.compiler = compiler;
        self.compilers.fetch_add(1, AcqRel);
        self.publish(&mut state);
    }

    /// Returns the agents of a source, to be stored on disk; `None` where the generation is over.
    pub(super) fn kept(&self, era: Era, source: usize) -> Option<Vec<Kept>> {
        let state = self.state();
        let source = state.sources.get(source).filter(|_| state.era == era)?;
        let agents = |held: &[Arc<Held<R>>]| held.iter().filter_map(|held| held.agent.clone()).collect();
        Some(source.parts.iter().map(|(name, entries)| (Arc::clone(name), agents(&entries.held))).collect())
    }

    fn state(&self) -> MutexGuard<'_, State<R>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn settled(&self, state: &mut State<R>, changed: bool) {
        match changed {
            true => self.publish(state),
            false => self.tell(state),
        }
    }

    fn tell(&self, state: &State<R>) {
        self.health.store(Arc::new(state.sources.iter().map(SourceState::health).collect()));
    }

    /// Puts the next snapshot in force, and records and logs what changed.
    fn publish(&self, state: &mut State<R>) {
        let (next, states) = merge(&state.sources);
        for (state, count) in states {
            self.metrics.agents(state, count);
        }
        self.metrics.agents(AgentState::Refused, next.refused.len());
        let before = self.snapshot.load_full();
        let known: HashSet<&Refusal, RandomState> = before.refused.iter().collect();
        for (at, refusal) in next.refused.iter().filter(|refusal| !known.contains(refusal)).enumerate() {
            self.metrics.count(Event::AgentRefused);
            if at < LOGGED {
                tracing::warn!(document = %refusal, "agent document rejected");
            }
        }
        let known: HashSet<_, RandomState> = before.troubles.iter().collect();
        for (part, why) in next.troubles.iter().filter(|trouble| !known.contains(trouble)) {
            tracing::warn!(%part, error = %why, "agents cannot be read: those read before stay in force");
        }
        tracing::info!(agents = next.len(), rejected = next.refused.len(), "agent snapshot published");
        self.metrics.count(Event::CatalogueSwapped);
        self.snapshot.store(Arc::new(next));
        self.tell(state);
        self.changed.send_modify(|count| *count += 1);
    }
}

/// For agents that are looked up individually and are in no snapshot.
impl<R: Send + Sync + 'static> Catalogue<R> {
    /// Returns the number of the compiler in force.
    pub(super) fn compiler(&self) -> u64 {
        self.compilers.load(Acquire)
    }

    /// Compiles one document. Blocks meanwhile.
    pub(super) fn judge(&self, document: Document) -> Arc<Held<R>> {
        let compiler = Arc::clone(&self.state().compiler);
        let judged = settle(vec![document], &Known::default(), &compiler, &Schemas::default()).pop();
        judged.unwrap_or_else(|| unreachable!("one document was given"))
    }

    /// Compiles an agent again with the compiler in force. Blocks meanwhile.
    pub(super) fn again(&self, held: &Held<R>) -> Option<Arc<Held<R>>> {
        let compiler = Arc::clone(&self.state().compiler);
        held.again(&compiler).map(Arc::new)
    }
}
