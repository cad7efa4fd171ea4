//! The catalogue: every agent that can be reached, by id, in a snapshot that is swapped whole.
//! A call takes the snapshot without a lock and keeps the route it began with; a change builds the next snapshot aside.
//! It refuses to guess between two documents of one id: neither is served.

use super::{
    MOST_AGENTS, Refusal, Snapshot,
    feed::{Document, News, Part},
    settle::{Compile, Compiler, Held, Known, Schemas, settle, spread},
};
use crate::{
    agent::{AgentId, Status},
    telemetry::{AgentState, Event, Metrics},
};
use arc_swap::{ArcSwap, Guard};
use foldhash::fast::RandomState;
use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{
            AtomicU64,
            Ordering::{AcqRel, Acquire},
        },
    },
    time::SystemTime,
};
use tokio::sync::watch;

/// Refusals that are logged one by one for one change.
const LOGGED: usize = 20;

/// All agents of all feeds.
pub struct Catalogue<R> {
    snapshot: ArcSwap<Snapshot<R>>,
    state: Mutex<State<R>>,
    metrics: Arc<Metrics>,
    changed: watch::Sender<u64>,
    compilers: AtomicU64,
}

/// One set of feeds, between two changes of which feeds there are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Era(u64);

struct State<R> {
    era: Era,
    compiler: Compiler<R>,
    schemas: Schemas,
    parts: BTreeMap<Arc<str>, Entries<R>>,
}

struct Entries<R> {
    held: Vec<Arc<Held<R>>>,
    trouble: Option<String>,
}

impl<R> Default for Entries<R> {
    fn default() -> Self {
        Self { held: Vec::new(), trouble: None }
    }
}

impl<R: Send + Sync + 'static> Catalogue<R> {
    /// A catalogue without agents, whose routes `compiler` will make.
    pub fn new(compiler: Arc<dyn Compile<Route = R>>, metrics: Arc<Metrics>) -> Self {
        let empty =
            Snapshot { routes: HashMap::default(), at: SystemTime::now(), refused: Vec::new(), troubles: Vec::new() };
        let state = State { era: Era::default(), compiler, schemas: Schemas::default(), parts: BTreeMap::new() };
        Self {
            snapshot: ArcSwap::from_pointee(empty),
            state: Mutex::new(state),
            metrics,
            changed: watch::channel(0).0,
            compilers: AtomicU64::new(0),
        }
    }

    /// The agents of this moment, for the span of a lookup.
    pub fn load(&self) -> Guard<Arc<Snapshot<R>>> {
        self.snapshot.load()
    }

    /// Counts the snapshots that were put in force.
    pub fn changed(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    /// The agents of this moment, to keep.
    pub fn snapshot(&self) -> Arc<Snapshot<R>> {
        self.snapshot.load_full()
    }

    /// Begins another set of feeds: parts that `keep` does not name are forgotten, and what the feeds before still say
    /// is no longer heard.
    pub fn begin(&self, keep: impl Fn(&str) -> bool) -> Era {
        let mut state = self.state();
        state.era.0 += 1;
        let before = state.parts.len();
        state.parts.retain(|name, _| keep(name));
        if state.parts.len() < before {
            self.publish(&state, None);
        }
        state.era
    }

    /// Takes in what feeds of this era say changed. It may take long, and belongs on a thread that may block.
    pub fn apply(&self, era: Era, changed: Vec<Part>) {
        let mut state = self.state();
        if changed.is_empty() || state.era != era {
            return;
        }
        let touched = changed.iter().map(|part| Arc::clone(&part.name)).collect();
        state.take(changed);
        self.publish(&state, Some(&touched));
    }

    /// Puts another compiler in force: every agent is kept, every route is made anew.
    pub fn recompile(&self, compiler: Arc<dyn Compile<Route = R>>) {
        let mut state = self.state();
        for entries in state.parts.values_mut() {
            let held = std::mem::take(&mut entries.held);
            entries.held = spread(held, |held| held.again(&compiler).map_or(held, Arc::new));
        }
        state.compiler = compiler;
        self.compilers.fetch_add(1, AcqRel);
        self.publish(&state, None);
    }

    fn state(&self) -> MutexGuard<'_, State<R>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts the next snapshot in force and tells what is new: what concerns the touched parts, or all.
    fn publish(&self, state: &State<R>, touched: Option<&HashSet<Arc<str>>>) {
        let (next, states) = state.snapshot();
        for (state, count) in states {
            self.metrics.agents(state, count);
        }
        self.metrics.agents(AgentState::Refused, next.refused.len());
        let new = |part: &Arc<str>| touched.is_none_or(|parts| parts.contains(part));
        for (at, refusal) in next.refused.iter().filter(|refusal| new(&refusal.source)).enumerate() {
            self.metrics.count(Event::AgentRefused);
            if at < LOGGED {
                tracing::warn!(document = %refusal, "an agent's document is refused");
            }
        }
        for (part, why) in next.troubles.iter().filter(|(part, _)| new(part)) {
            tracing::warn!(%part, %why, "agents cannot be read; those read before stay");
        }
        tracing::info!(agents = next.len(), refused = next.refused.len(), "a new snapshot of agents is in force");
        self.metrics.count(Event::CatalogueSwapped);
        self.snapshot.store(Arc::new(next));
        self.changed.send_modify(|count| *count += 1);
    }
}

/// For agents that are looked up one by one and are in no snapshot.
impl<R: Send + Sync + 'static> Catalogue<R> {
    /// Which compiler is in force, as a number.
    pub(super) fn compiler(&self) -> u64 {
        self.compilers.load(Acquire)
    }

    /// What becomes of a document. Blocks while it is compiled.
    pub(super) fn judge(&self, document: Document) -> Arc<Held<R>> {
        let compiler = Arc::clone(&self.state().compiler);
        let judged = settle(vec![document], &Known::default(), &compiler, &Schemas::default()).pop();
        judged.unwrap_or_else(|| unreachable!("one document was given"))
    }

    /// The same document under the compiler in force.
    pub(super) fn again(&self, held: &Held<R>) -> Option<Arc<Held<R>>> {
        let compiler = Arc::clone(&self.state().compiler);
        held.again(&compiler).map(Arc::new)
    }
}

impl<R: Send + Sync + 'static> State<R> {
    fn known(&self) -> Known<R> {
        let held = self.parts.values().flat_map(|entries| &entries.held);
        held.map(|held| (held.digest, Arc::clone(held))).collect()
    }

    fn take(&mut self, changed: Vec<Part>) {
        let (mut documents, mut sizes) = (Vec::new(), Vec::new());
        let whole = changed.iter().any(|part| matches!(part.news, News::Whole(_)));
        // Taken before any part goes: a document that moves from one file to another is the same document.
        let known = if whole { self.known() } else { Known::default() };
        let mut room = MOST_AGENTS.saturating_sub(self.parts.values().map(|entries| entries.held.len()).sum());
        for part in changed {
            let before = self.parts.get(&part.name).map_or(0, |entries| entries.held.len());
            match part.news {
                News::Whole(found) if found.len() > room + before => {
                    let why = format!("with it there would be more than {MOST_AGENTS} agents");
                    self.parts.entry(part.name).or_default().trouble = Some(why);
                }
                News::Whole(found) => {
                    room = room + before - found.len();
                    sizes.push((part.name, found.len()));
                    documents.extend(found);
                }
                News::Kept(why) => self.parts.entry(part.name).or_default().trouble = Some(why),
                News::Steady => {
                    if let Some(entries) = self.parts.get_mut(&part.name) {
                        entries.trouble = None;
                    }
                }
                News::Gone => {
                    room += before;
                    self.parts.remove(&part.name);
                }
            }
        }
        // All at once, so that a folder of many small files is spread over the cores as one large file is.
        let mut held = settle(documents, &known, &self.compiler, &self.schemas).into_iter();
        for (name, size) in sizes {
            let held = held.by_ref().take(size).collect();
            self.parts.insert(name, Entries { held, trouble: None });
        }
        drop(known);
        self.schemas.sweep();
    }

    /// The next snapshot, and how many of its agents are in which state.
    fn snapshot(&self) -> (Snapshot<R>, [(AgentState, usize); 3]) {
        let (mut served, mut inactive, mut deprecated) = (0, 0, 0);
        let count = self.parts.values().map(|entries| entries.held.len()).sum();
        let mut claims: HashMap<&AgentId, u32, RandomState> =
            HashMap::with_capacity_and_hasher(count, RandomState::default());
        for agent in self.held().filter_map(|(_, _, held)| held.agent.as_ref()) {
            *claims.entry(&agent.id).or_default() += 1;
        }
        let mut routes = HashMap::with_capacity_and_hasher(count, RandomState::default());
        let mut refused = Vec::new();
        for (source, index, held) in self.held() {
            let agent = held.agent.as_deref();
            let id = agent.map(|agent| &agent.id);
            let twice = id.is_some_and(|id| claims.get(id).is_some_and(|claims| *claims > 1));
            let reasons = match (&held.route, agent) {
                (Ok(route), Some(agent)) if !twice => {
                    routes.insert(agent.id.clone(), Arc::clone(route));
                    *match agent.status {
                        Status::Active => &mut served,
                        Status::Inactive => &mut inactive,
                        Status::Deprecated(_) => &mut deprecated,
                    } += 1;
                    continue;
                }
                (Err(reasons), _) if !twice => reasons.clone(),
                _ => vec!["id: another document has the same id; neither is served".to_owned()],
            };
            let id = id.map(ToString::to_string).or_else(|| held.id.as_deref().map(str::to_owned));
            refused.push(Refusal { source: Arc::clone(source), index, id, reasons });
        }
        let troubles =
            self.parts.iter().filter_map(|(name, entries)| Some((Arc::clone(name), entries.trouble.clone()?)));
        let states =
            [(AgentState::Served, served), (AgentState::Inactive, inactive), (AgentState::Deprecated, deprecated)];
        (Snapshot { routes, at: SystemTime::now(), refused, troubles: troubles.collect() }, states)
    }

    fn held(&self) -> impl Iterator<Item = (&Arc<str>, usize, &Arc<Held<R>>)> {
        self.parts
            .iter()
            .flat_map(|(name, entries)| entries.held.iter().enumerate().map(move |(index, held)| (name, index, held)))
    }
}
