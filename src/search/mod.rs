//! Finding agents: filters, words and meaning over every agent that is served. It knows nothing of callers: whoever
//! asks says which agents may be found.
//!
//! An update makes a new state beside the one that is searched, and swaps it in: no search waits for one, and each sees
//! all of an update or nothing of it. The index is our own and not an engine's: filters, words and vectors share one
//! numbering of agents, so that a change is one merge, a search three passes over arrays, and whoever asks is consulted
//! only for the agents that would be shown.

mod bits;
mod config;
mod filter;
mod lexicon;
mod model;
mod near;
mod rank;
mod read;
mod state;
mod vectors;
mod words;

pub use config::{Config, Ranking, Source};

use crate::agent::Agent;
use arc_swap::ArcSwap;
use model::Model;
use rank::{Asked, Fit, Rule};
use state::State;
use std::{
    collections::BinaryHeap,
    fmt, iter,
    sync::{Arc, Mutex, PoisonError},
};

/// What an agent must have: all of it, and at least the listed values (R22).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filters {
    /// Capabilities; compared without regard to case.
    pub capabilities: Vec<String>,
    /// Tags; likewise.
    pub tags: Vec<String>,
    /// Languages; an agent that names none has all (R15).
    pub languages: Vec<String>,
    /// `active`, `inactive`, `deprecated`; none stands for active and deprecated.
    pub status: Vec<Word>,
}

/// A status as a filter names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Word {
    /// `active`
    Active,
    /// `inactive`
    Inactive,
    /// `deprecated`
    Deprecated,
}

/// What is looked for.
#[derive(Clone, Debug, Default)]
pub struct Query {
    /// What every agent found has.
    pub filters: Filters,
    /// What it should be about, in words; ranks what is found. Empty: in the order of ids, without scores.
    pub text: String,
    /// Agents to leave out at the beginning.
    pub skip: usize,
    /// Agents at most.
    pub top: usize,
}

/// What was found.
#[derive(Debug, Default)]
pub struct Found {
    /// The best first.
    pub hits: Vec<Hit>,
    /// Whether there are more after these.
    pub more: bool,
}

/// One agent that was found.
#[derive(Clone, Debug)]
pub struct Hit {
    /// The agent.
    pub agent: Arc<Agent>,
    /// How well it fits, 0 to 1; none where nothing was ranked.
    pub score: Option<f32>,
}

/// Every agent, ready to be found. Searching waits for no update.
///
/// [`Index::default`] has no model: it ranks by words.
#[derive(Default)]
pub struct Index {
    state: ArcSwap<State>,
    /// Held by whoever makes the next state.
    updating: Mutex<()>,
    model: Option<Arc<Model>>,
    ranking: Ranking,
}

impl Index {
    /// An index without agents.
    ///
    /// # Errors
    /// Every value of `config` that cannot be used, by its path in that section.
    pub fn new(config: &Config) -> Result<Self, Vec<String>> {
        let model = match &config.model {
            Source::Builtin => Model::builtin().map(Some),
            Source::Off => Ok(None),
            Source::Folder(folder) => Model::read(folder).map(Some),
        };
        let mut problems: Vec<String> = model.as_ref().err().map(|why| format!("model: {why}")).into_iter().collect();
        if config.model == Source::Off && matches!(config.ranking, Ranking::Semantic | Ranking::Hybrid) {
            problems.push("ranking: needs a model (write auto or text, or model: builtin)".to_owned());
        }
        match model {
            Ok(model) if problems.is_empty() => Ok(Self { model, ranking: config.ranking, ..Self::default() }),
            _ => Err(problems),
        }
    }

    /// Takes in that these are the agents now; what did not change costs next to nothing. It may take long, and belongs
    /// on a thread that may block.
    pub fn update(&self, agents: Vec<Arc<Agent>>) {
        let _alone = self.updating.lock().unwrap_or_else(PoisonError::into_inner);
        let next = self.state.load_full().next(agents, self.model.as_deref());
        self.state.store(Arc::new(next));
    }

    /// What fits `query` among the agents that `visible` lets be found. Without a text that could rank, that is every
    /// agent that the filters let pass; with one, only those that share a word or a meaning with it.
    ///
    /// `visible` is asked about the best agents only, and about each agent at most once.
    pub fn search(&self, query: &Query, visible: &dyn Fn(&Agent) -> bool) -> Found {
        let state = self.state.load_full();
        let wanted = filter::pass(&state, &query.filters);
        let sees = |slot: u32| state.agents.get(slot as usize).filter(|agent| visible(agent));
        let end = query.skip.saturating_add(query.top).saturating_add(1);
        let Some(asked) = Asked::new(&query.text, self.model.as_deref(), self.rule()) else {
            let seen = wanted.iter().filter_map(sees).skip(query.skip).take(end - query.skip);
            return Found::of(seen.map(|agent| Hit { agent: Arc::clone(agent), score: None }), query.top);
        };
        let best = best(asked.fits(&state, &wanted), end, &|slot| sees(slot).is_some());
        let agent = |fit: &Fit| Some((state.agents.get(fit.slot() as usize)?, fit.score()));
        let hits = best.iter().skip(query.skip).filter_map(agent);
        Found::of(hits.map(|(agent, score)| Hit { agent: Arc::clone(agent), score: Some(score) }), query.top)
    }

    fn rule(&self) -> Rule {
        match (self.ranking, &self.model) {
            (Ranking::Text, _) | (_, None) => Rule::Text,
            (Ranking::Semantic, _) => Rule::Semantic,
            (Ranking::Auto | Ranking::Hybrid, _) => Rule::Hybrid,
        }
    }
}

impl Found {
    /// Of hits that may be more than `top`.
    fn of(hits: impl Iterator<Item = Hit>, top: usize) -> Self {
        let mut hits: Vec<Hit> = hits.take(top.saturating_add(1)).collect();
        let more = hits.len() > top;
        hits.truncate(top);
        Self { hits, more }
    }
}

/// The best `count` that can be seen, the best first.
fn best(fits: Vec<Fit>, count: usize, seen: &dyn Fn(u32) -> bool) -> Vec<Fit> {
    let (mut heap, mut best) = (BinaryHeap::from(fits), Vec::new());
    let mut tries = count.saturating_mul(4).max(256);
    while best.len() < count && tries > 0 {
        let Some(fit) = heap.pop() else { return best };
        tries -= 1;
        best.extend(seen(fit.slot()).then_some(fit));
    }
    // Whoever sees few of them would have all of them put in order: who is seen is settled first.
    if best.len() < count {
        heap.retain(|fit| seen(fit.slot()));
        best.extend(iter::from_fn(|| heap.pop()).take(count - best.len()));
    }
    best
}

impl fmt::Debug for Index {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let agents = self.state.load().agents.len();
        to.debug_struct("Index").field("agents", &agents).field("ranking", &self.ranking).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
