//! The catalogue: every agent that can be reached, by id, in a snapshot that is swapped whole.
//! A call takes the snapshot without a lock and keeps the route it began with; a change builds the next snapshot aside.

use super::{
    Refusal, Snapshot,
    health::SourceHealth,
    intake::{Look, State, Verdict},
    merge::merge,
    settle::{Compile, spread},
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
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};
use tokio::sync::watch;

/// Refusals that are logged one by one for one change.
const LOGGED: usize = 20;

/// All agents of all feeds.
pub struct Catalogue<R> {
    snapshot: ArcSwap<Snapshot<R>>,
    state: Mutex<State<R>>,
    health: ArcSwap<Vec<SourceHealth>>,
    changed: watch::Sender<u64>,
    metrics: Arc<Metrics>,
}

/// One set of feeds, between two changes of which feeds there are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Era(pub(super) u64);

/// The agents of one part, for keeping them.
pub(super) type Kept = (Arc<str>, Vec<Arc<Agent>>);

impl<R: Send + Sync + 'static> Catalogue<R> {
    /// A catalogue without agents, whose routes `compiler` will make.
    pub fn new(compiler: Arc<dyn Compile<Route = R>>, metrics: Arc<Metrics>) -> Self {
        let state = State::new(compiler);
        let (empty, _) = merge(&state.sources);
        Self {
            snapshot: ArcSwap::from_pointee(empty),
            state: Mutex::new(state),
            health: ArcSwap::default(),
            changed: watch::Sender::new(0),
            metrics,
        }
    }

    /// The agents of this moment, for the span of a lookup.
    pub fn load(&self) -> Guard<Arc<Snapshot<R>>> {
        self.snapshot.load()
    }

    /// The agents of this moment, to keep.
    pub fn snapshot(&self) -> Arc<Snapshot<R>> {
        self.snapshot.load_full()
    }

    /// Ticks after each new snapshot.
    pub fn changed(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    /// How each source is, in the order of their precedence.
    pub fn sources(&self) -> Arc<Vec<SourceHealth>> {
        self.health.load_full()
    }

    /// Whether this very source was well since the start.
    pub(super) fn knows(&self, origin: &Origin) -> bool {
        self.state().sources.iter().any(|source| source.is(origin))
    }

    pub(super) fn metrics(&self) -> &Arc<Metrics> {
        &self.metrics
    }

    /// Begins another set of sources, the first of which wins, with what is remembered of them and their first looks.
    /// A source that was there before, by its name and place, keeps its agents until it is looked at; the others are
    /// forgotten, and what the feeds before still say is no longer heard. It may take long, as [`Catalogue::apply`].
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
        // First, so that what a source says anew is known by its digest, and a great loss is seen.
        state.take(remembered);
        let verdicts = state.take(first);
        drop(before);
        self.publish(&mut state);
        (state.era, verdicts)
    }

    /// Takes in what looks of this era found. It may take long, and belongs on a thread that may block.
    pub fn apply(&self, era: Era, looks: Vec<Look>) -> Vec<Verdict> {
        let mut state = self.state();
        if state.era != era {
            return vec![Verdict::Late; looks.len()];
        }
        // A part that cannot be read any more, or can again, is told in the snapshot.
        let spoken = looks.iter().any(|look| !look.change.parts.is_empty());
        let verdicts = state.take(looks);
        let changed = verdicts.contains(&Verdict::Taken { changed: true });
        self.settled(&mut state, spoken || changed);
        verdicts
    }

    /// Takes out the agents of sources that were not well for too long.
    pub fn expire(&self, era: Era) {
        // Whoever holds the state is about to change it anyway, and asks again.
        let Ok(mut state) = self.state.try_lock() else { return };
        if state.era != era {
            return;
        }
        let mut stale = false;
        for source in &mut state.sources {
            if source.goes_stale() {
                tracing::warn!(feed = %source.origin.name, "was not well for too long: its agents are taken out");
                stale = true;
            }
        }
        if stale {
            self.settled(&mut state, true);
        }
    }

    /// Puts in force what the source called `name` holds back; `None` if there is no such source, and whether there
    /// was anything. It may take long, as [`Catalogue::apply`].
    pub fn confirm(&self, name: &str) -> Option<bool> {
        let mut state = self.state();
        let source = state.sources.iter_mut().find(|source| &*source.origin.name == name)?;
        let waited = source.waits();
        if waited {
            source.commit();
            tracing::info!(feed = name, "an operator confirmed the loss of agents");
            self.publish(&mut state);
        }
        Some(waited)
    }

    /// Puts another compiler in force: every agent is kept, every route is made anew.
    pub fn recompile(&self, compiler: Arc<dyn Compile<Route = R>>) {
        let mut state = self.state();
        for source in &mut state.sources {
            source.remake(|held| spread(held, |held| held.again(&compiler).map_or(held, Arc::new)));
        }
        state.compiler = compiler;
        self.publish(&mut state);
    }

    /// The agents of a source, to be kept on disk; none where the era is over.
    pub(super) fn kept(&self, era: Era, source: usize) -> Option<Vec<Kept>> {
        let state = self.state();
        let source = state.sources.get(source).filter(|_| state.era == era)?;
        let agents = |held: &[Arc<super::settle::Held<R>>]| held.iter().filter_map(|held| held.agent.clone()).collect();
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

    /// Puts the next snapshot in force and tells what is new.
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
                tracing::warn!(document = %refusal, "an agent's document is refused");
            }
        }
        let known: HashSet<_, RandomState> = before.troubles.iter().collect();
        for (part, why) in next.troubles.iter().filter(|trouble| !known.contains(trouble)) {
            tracing::warn!(%part, %why, "agents cannot be read; those read before stay");
        }
        tracing::info!(agents = next.len(), refused = next.refused.len(), "a new snapshot of agents is in force");
        self.metrics.count(Event::CatalogueSwapped);
        self.snapshot.store(Arc::new(next));
        self.tell(state);
        self.changed.send_modify(|count| *count += 1);
    }
}
