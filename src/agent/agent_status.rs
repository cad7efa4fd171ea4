//! Whether an agent is served (R15).

use super::AgentId;

/// `status` (R15).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum AgentStatus {
    /// Served normally.
    #[default]
    Active,
    /// Listed but not served; calls get 503.
    Inactive,
    /// Served, with a `Deprecation` response header (RFC 9745).
    Deprecated(Deprecation),
}

/// Details of a deprecation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Deprecation {
    /// When the deprecation took effect, in Unix seconds.
    pub deprecated_at: Option<i64>,
    /// When the agent will be withdrawn, in Unix seconds (RFC 8594).
    pub sunset: Option<i64>,
    /// The id of the successor.
    pub successor: Option<AgentId>,
}
