//! Who owns the agents that are in force, which the built-in registry asks before it accepts a document.

use crate::agent::{AgentEndpoint, AgentId, AgentSource};
use std::sync::Arc;

/// The owners of the agents in force.
pub trait AgentOwnership: Send + Sync {
    /// Returns whether there is an agent with this id.
    fn has_agent(&self, id: &AgentId) -> bool;

    /// Returns the owner of the agents at the server of `endpoint`; `None` if no agent is there.
    fn endpoint_owner(&self, endpoint: &AgentEndpoint) -> Option<Arc<AgentSource>>;
}
