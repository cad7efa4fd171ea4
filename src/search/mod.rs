//! Search over the served agents: filters, BM25 ranking and semantic ranking. It is independent of callers: visibility
//! to a caller is a predicate of each search.
//!
//! An update builds a new snapshot beside the current one, and swaps it in: searches never wait for an update, and each
//! sees all of an update or none of it. The module has its own index instead of a search engine: filters, terms and
//! vectors share one numbering of agents, so that an update is one merge, a search is three passes over arrays, and the
//! predicate runs only for the agents that a result page may contain.

mod agent_indexer;
mod bitset;
mod config;
mod embedding;
mod embedding_table;
mod facet_filter;
mod facet_term;
mod fuzzy_match;
mod index_snapshot;
mod inverted_index;
mod scoring;
mod search_query;
mod term_tokenizer;
mod text_truncation;

pub use config::{ModelSource, Ranking, SearchConfig};
pub use search_query::{SearchFilters, SearchQuery, StatusFilter};

use crate::agent::Agent;
use arc_swap::ArcSwap;
use embedding::EmbeddingModel;
use index_snapshot::IndexSnapshot;
use parking_lot::Mutex;
use scoring::{PreparedQuery, ScoredSlot, ScoringMode};
use std::{collections::BinaryHeap, fmt, iter, sync::Arc};

/// Result of a search.
#[derive(Debug, Default)]
pub struct SearchResults {
    /// Hits, the best first.
    pub hits: Vec<SearchHit>,
    /// Whether there are more hits after these.
    pub has_more: bool,
}

/// One agent of a result.
#[derive(Clone, Debug)]
pub struct SearchHit {
    /// The agent.
    pub agent: Arc<Agent>,
    /// Score, 0 to 1; `None` if the query has no text to rank by.
    pub score: Option<f32>,
}

/// Search index of all agents. Searches never wait for updates.
///
/// [`SearchIndex::default`] has no embedding model: it ranks by BM25.
#[derive(Default)]
pub struct SearchIndex {
    snapshot: ArcSwap<IndexSnapshot>,
    /// Serializes updates.
    update_lock: Mutex<()>,
    model: Option<Arc<EmbeddingModel>>,
    ranking: Ranking,
}

impl SearchIndex {
    /// Creates an index without agents.
    ///
    /// # Errors
    /// Returns every invalid value of `config`, by its key in that section.
    pub fn new(config: &SearchConfig) -> Result<Self, Vec<String>> {
        let model = match &config.model {
            ModelSource::Builtin => EmbeddingModel::builtin().map(Some),
            ModelSource::Off => Ok(None),
            ModelSource::Folder(folder) => EmbeddingModel::load(folder).map(Some),
        };
        let mut problems: Vec<String> = model.as_ref().err().map(|why| format!("model: {why}")).into_iter().collect();
        if config.model == ModelSource::Off && matches!(config.ranking, Ranking::Semantic | Ranking::Hybrid) {
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
        let _guard = self.update_lock.lock();
        let next = self.snapshot.load_full().rebuild(agents, self.model.as_deref());
        self.snapshot.store(Arc::new(next));
    }

    /// Returns the agents that match `query` and satisfy `visible`. Without a text to rank by, all agents that match
    /// the filters are hits; with a text, only those that share a term or a meaning with it.
    ///
    /// `visible` is called for the best agents only, and at most once for each agent.
    pub fn search(&self, query: &SearchQuery, visible: &dyn Fn(&Agent) -> bool) -> SearchResults {
        let snapshot = self.snapshot.load_full();
        let matching = facet_filter::matching_slots(&snapshot, &query.filters);
        let visible_agent = |slot: u32| snapshot.agents.get(slot as usize).filter(|agent| visible(agent));
        let end = query.skip.saturating_add(query.top).saturating_add(1);
        let Some(prepared) = PreparedQuery::new(&query.text, self.model.as_deref(), self.scoring_mode()) else {
            let hits = matching.iter().filter_map(visible_agent).skip(query.skip).take(end - query.skip);
            return SearchResults::from_hits(
                hits.map(|agent| SearchHit { agent: Arc::clone(agent), score: None }),
                query.top,
            );
        };
        let best = best_visible(prepared.score_slots(&snapshot, &matching), end, &|slot| visible_agent(slot).is_some());
        let agent_and_score =
            |scored: &ScoredSlot| Some((snapshot.agents.get(scored.slot() as usize)?, scored.score()));
        let hits = best.iter().skip(query.skip).filter_map(agent_and_score);
        SearchResults::from_hits(
            hits.map(|(agent, score)| SearchHit { agent: Arc::clone(agent), score: Some(score) }),
            query.top,
        )
    }

    fn scoring_mode(&self) -> ScoringMode {
        match (self.ranking, &self.model) {
            (Ranking::Text, _) | (_, None) => ScoringMode::Text,
            (Ranking::Semantic, _) => ScoringMode::Semantic,
            (Ranking::Auto | Ranking::Hybrid, _) => ScoringMode::Hybrid,
        }
    }
}

impl SearchResults {
    /// Takes the first `top` hits.
    fn from_hits(hits: impl Iterator<Item = SearchHit>, top: usize) -> Self {
        let mut hits: Vec<SearchHit> = hits.take(top.saturating_add(1)).collect();
        let has_more = hits.len() > top;
        hits.truncate(top);
        Self { hits, has_more }
    }
}

/// Returns the best `count` visible slots, the best first.
fn best_visible(scored: Vec<ScoredSlot>, count: usize, visible: &dyn Fn(u32) -> bool) -> Vec<ScoredSlot> {
    let (mut heap, mut best) = (BinaryHeap::from(scored), Vec::new());
    let mut checks_left = count.saturating_mul(4).max(256);
    while best.len() < count && checks_left > 0 {
        let Some(candidate) = heap.pop() else { return best };
        checks_left -= 1;
        best.extend(visible(candidate.slot()).then_some(candidate));
    }
    // If few agents are visible, popping would sort all of them: filter by visibility first.
    if best.len() < count {
        heap.retain(|candidate| visible(candidate.slot()));
        best.extend(iter::from_fn(|| heap.pop()).take(count - best.len()));
    }
    best
}

impl fmt::Debug for SearchIndex {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let agents = self.snapshot.load().agents.len();
        to.debug_struct("SearchIndex").field("agents", &agents).field("ranking", &self.ranking).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
