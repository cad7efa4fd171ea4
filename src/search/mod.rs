//! Search over the served agents: filters, BM25 ranking and semantic ranking. It knows no callers: a search has a mask
//! of the agents that its caller may see, and every result, score and statistic comes from these agents only.
//!
//! An update builds a new snapshot beside the current one, and swaps it in: searches never wait for an update, and each
//! sees all of an update or none of it. The module has its own index instead of a search engine: filters, terms and
//! vectors share one numbering of agents, so that an update is one merge, and a search is three passes over arrays.

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
mod visibility_mask;

pub use config::{ModelSource, Ranking, SearchConfig};
pub use search_query::{SearchFilters, SearchQuery, StatusFilter};
pub use visibility_mask::VisibilityMask;

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

    /// Returns the index as it is now, for callers that see the same agents. `cached` is the mask of an earlier view of
    /// these callers. `is_visible` must depend on the agent's document only, and is called for the agents that are new
    /// or changed since then; without a mask for all agents.
    pub fn view(&self, cached: Option<&Arc<VisibilityMask>>, is_visible: &dyn Fn(&Agent) -> bool) -> IndexView<'_> {
        let snapshot = self.snapshot.load_full();
        let mask = match cached {
            Some(mask) if mask.is_current(&snapshot) => Arc::clone(mask),
            _ => Arc::new(VisibilityMask::new(&snapshot, cached.map(|mask| &**mask), is_visible)),
        };
        IndexView { index: self, snapshot, mask }
    }

    fn scoring_mode(&self) -> ScoringMode {
        match (self.ranking, &self.model) {
            (Ranking::Text, _) | (_, None) => ScoringMode::Text,
            (Ranking::Semantic, _) => ScoringMode::Semantic,
            (Ranking::Auto | Ranking::Hybrid, _) => ScoringMode::Hybrid,
        }
    }
}

/// One state of the index, as its callers see it.
#[derive(Debug)]
pub struct IndexView<'a> {
    index: &'a SearchIndex,
    snapshot: Arc<IndexSnapshot>,
    mask: Arc<VisibilityMask>,
}

impl IndexView<'_> {
    /// Returns the mask, for the next view.
    pub fn mask(&self) -> &Arc<VisibilityMask> {
        &self.mask
    }

    /// Returns the visible agents that match `query`. Without a text to rank by, all agents that match the filters are
    /// hits; with a text, only those that share a term or a meaning with it.
    pub fn search(&self, query: &SearchQuery) -> SearchResults {
        let snapshot = &*self.snapshot;
        let mut matching = facet_filter::matching_slots(snapshot, &query.filters);
        matching.intersect(self.mask.slots());
        let agent = |slot: u32| snapshot.agents.get(slot as usize).map(Arc::clone);
        let model = self.index.model.as_deref();
        let Some(prepared) = PreparedQuery::new(&query.text, model, self.index.scoring_mode()) else {
            let hits = matching.iter().skip(query.skip).filter_map(agent);
            return SearchResults::from_hits(hits.map(|agent| SearchHit { agent, score: None }), query.top);
        };
        let mut heap = BinaryHeap::from(prepared.score_slots(snapshot, &self.mask, &matching));
        let best_first = iter::from_fn(|| heap.pop()).skip(query.skip);
        let hit = |scored: ScoredSlot| Some(SearchHit { agent: agent(scored.slot())?, score: Some(scored.score()) });
        SearchResults::from_hits(best_first.filter_map(hit), query.top)
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

impl fmt::Debug for SearchIndex {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let agents = self.snapshot.load().agents.len();
        to.debug_struct("SearchIndex").field("agents", &agents).field("ranking", &self.ranking).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
