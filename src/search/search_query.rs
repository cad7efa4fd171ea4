//! What a search asks for.

/// Filters of a search; an agent must match all of them (R22).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SearchFilters {
    /// Capabilities that the agent must have; compared case-insensitively.
    pub capabilities: Vec<String>,
    /// Tags that the agent must have; compared case-insensitively.
    pub tags: Vec<String>,
    /// Language ranges, all of which the agent must match; agents without languages match every range (R15).
    pub languages: Vec<String>,
    /// Statuses to include; empty means active and deprecated.
    pub status: Vec<StatusFilter>,
}

/// A status in a filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatusFilter {
    /// `active`
    Active,
    /// `inactive`
    Inactive,
    /// `deprecated`
    Deprecated,
}

/// A search request.
#[derive(Clone, Debug, Default)]
pub struct SearchQuery {
    /// Filters that every hit matches.
    pub filters: SearchFilters,
    /// Text that ranks the hits. If empty, hits are in the order of ids and have no scores.
    pub text: String,
    /// Number of hits to skip.
    pub skip: usize,
    /// Maximum number of hits.
    pub top: usize,
}
