//! Search over the served agents: filters, BM25 ranking and semantic ranking. It knows nothing of callers: visibility
//! to a caller is a predicate of each search.
//!
//! An update builds a new snapshot beside the current one, and swaps it in: searches never wait for an update, and each
//! sees all of an update or none of it. The index is our own, not an engine: filters, terms and vectors share one
//! numbering of agents, so that an update is one merge, a search is three passes over arrays, and the predicate runs
//! only for the agents that a result page may contain.

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

/// Filters of a search; an agent must match all of them (R22).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filters {
    /// Capabilities that the agent must have; compared case-insensitively.
    pub capabilities: Vec<String>,
    /// Tags that the agent must have; compared case-insensitively.
    pub tags: Vec<String>,
    /// Language ranges, all of which the agent must match; agents without languages match every range (R15).
    pub languages: Vec<String>,
    /// Statuses to include; empty means active and deprecated.
    pub status: Vec<Word>,
}

/// A status in a filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Word {
    /// `active`
    Active,
    /// `inactive`
    Inactive,
    /// `deprecated`
    Deprecated,
}

/// A search request.
#[derive(Clone, Debug, Default)]
pub struct Query {
    /// Filters that every hit matches.
    pub filters: Filters,
    /// Text that ranks the hits. If empty, hits are in the order of ids and have no scores.
    pub text: String,
    /// Number of hits to skip.
    pub skip: usize,
    /// Maximum number of hits.
    pub top: usize,
}

/// Result of a search.
#[derive(Debug, Default)]
pub struct Found {
    /// Hits, the best first.
    pub hits: Vec<Hit>,
    /// Whether there are more hits after these.
    pub more: bool,
}

/// One agent of a result.
#[derive(Clone, Debug)]
pub struct Hit {
    /// The agent.
    pub agent: Arc<Agent>,
    /// Score, 0 to 1; `None` if the query has no text to rank by.
    pub score: Option<f32>,
}

/// Search index of all agents. Searches never wait for updates.
///
/// [`SearchIndex::default`] has no embedding model: it ranks by BM25.
#[derive(Default)]
pub struct Index {
    state: ArcSwap<State>,
    /// Serializes updates.
    updating: Mutex<()>,
    model: Option<Arc<Model>>,
    ranking: Ranking,
}

impl Index {
    /// Creates an index without agents.
    ///
    /// # Errors
    /// Returns every invalid value of `config`, by its key in that section.
    pub fn new(config: &Config) -> Result<Self, Vec<String>> {
        let model = match &config.model {
            Source::Builtin => Model::builtin().map(Some),
            Source::Off => Ok(None),
            Source::Folder(folder) => Model::read(folder).map(Some),
        };
        let mut problems: Vec<String> = model.as_ref().err().map(|why| format!("model: {why}")).into_iter().collect();
        if config.model == Source::Off && matches!(config.ranking, Ranking::Semantic | Ranking::Hybrid) {
            problems.push("ranking: needs a model (write auto or text, or set model: builtin)".to_owned());
        }
        match model {
            Ok(model) if problems.is_empty() => Ok(Self { model, ranking: config.ranking, ..Self::default() }),
            _ => Err(problems),
        }
    }

    /// Replaces the indexed agents; unchanged agents cost next to nothing. This may take long: call it on a thread that
    /// may block.
    pub fn update(&self, agents: Vec<Arc<Agent>>) {
        let _alone = self.updating.lock().unwrap_or_else(PoisonError::into_inner);
        let next = self.state.load_full().next(agents, self.model.as_deref());
        self.state.store(Arc::new(next));
    }

    /// Returns the agents that match `query` and satisfy `visible`. Without a text to rank by, these are all agents
    /// that match the filters; with a text, only those that share a term or a meaning with it.
    ///
    /// `visible` is called for the best agents only, and at most once for each agent.
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
    /// Takes the first `top` hits.
    fn of(hits: impl Iterator<Item = Hit>, top: usize) -> Self {
        let mut hits: Vec<Hit> = hits.take(top.saturating_add(1)).collect();
        let more = hits.len() > top;
        hits.truncate(top);
        Self { hits, more }
    }
}

/// Returns the best `count` visible slots, the best first.
fn best(fits: Vec<Fit>, count: usize, seen: &dyn Fn(u32) -> bool) -> Vec<Fit> {
    let (mut heap, mut best) = (BinaryHeap::from(fits), Vec::new());
    let mut tries = count.saturating_mul(4).max(256);
    while best.len() < count && tries > 0 {
        let Some(fit) = heap.pop() else { return best };
        tries -= 1;
        best.extend(seen(fit.slot()).then_some(fit));
    }
    // If few agents are visible, popping would sort all of them: filter by visibility first.
    if best.len() < count {
        heap.retain(|fit| seen(fit.slot()));
        best.extend(iter::from_fn(|| heap.pop()).take(count - best.len()));
    }
    best
}

impl fmt::Debug for Index {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let agents = self.state.load().agents.len();
        to.debug_struct("SearchIndex").field("agents", &agents).field("ranking", &self.ranking).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
