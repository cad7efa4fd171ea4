//! Searches of the agents that a caller sees (R3), for every list and every document of several agents.

use super::{DirectoryCall, VisibilityMaskCache};
use crate::search::{SearchFilters, SearchIndex, SearchQuery, SearchResults};

/// Maximum number of characters of a query's text.
pub(super) const MAX_QUERY_CHARS: usize = 2_000;
/// Maximum number of agents in the gateway's own documents.
const MAX_LISTED_AGENTS: usize = 100;

/// The hits of a search that a page shows.
pub(super) struct HitRange {
    /// The number of hits before them.
    pub(super) skip: usize,
    /// The maximum number of hits.
    pub(super) top: usize,
}

/// Searches the index, and finds only agents that are visible to the caller.
#[derive(Clone, Copy, Debug)]
pub(super) struct VisibleAgentSearch<'a> {
    pub(super) index: &'a SearchIndex,
    pub(super) masks: &'a VisibilityMaskCache,
}

impl VisibleAgentSearch<'_> {
    /// Returns the hits of `range` among the agents that pass the filters and match the text.
    pub(super) fn find_agents(
        self,
        call: &DirectoryCall<'_>,
        filters: SearchFilters,
        text: &str,
        range: HitRange,
    ) -> SearchResults {
        let query = SearchQuery { filters, text: text.to_owned(), skip: range.skip, top: range.top };
        let mut results = self.masks.view(self.index, call).search(&query);
        // The index may be behind: an agent that was removed, or that the caller may no longer see, is not shown.
        results.hits.retain(|hit| call.visibility.visible_agent(hit.agent.id.as_str()).is_some());
        results
    }

    /// Returns the agents that the gateway's own documents list.
    pub(super) fn listed_agents(self, call: &DirectoryCall<'_>) -> SearchResults {
        self.find_agents(call, SearchFilters::default(), "", HitRange { skip: 0, top: MAX_LISTED_AGENTS })
    }
}
