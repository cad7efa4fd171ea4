//! What the built-in registry asks about the agents in force before it accepts a document: who owns them, and how much
//! memory a publisher's schemas may still take.

use crate::{
    agent::{Agent, AgentEndpoint, AgentId, AgentSource},
    contract::{ContractConfig, DocumentChecks, SchemaBudget, SchemaLimits},
};
use std::sync::Arc;

/// What the schemas of a publisher's next document may take.
pub struct PublisherBudget {
    /// The limits in force.
    pub limits: SchemaLimits,
    /// The publisher's budget.
    pub budget: SchemaBudget,
    /// Which findings about the document matter.
    pub checks: DocumentChecks,
    /// Why the agent cannot be called here although its document is valid.
    pub unsupported: Option<String>,
}

impl Default for PublisherBudget {
    /// The default limits for one document, where the agents in force are not known.
    fn default() -> Self {
        let limits = ContractConfig::default().schema_limits();
        let budget = SchemaBudget::of_publisher(limits);
        Self { limits, budget, checks: DocumentChecks::default(), unsupported: None }
    }
}

/// The owners of the agents in force.
pub trait AgentOwnership: Send + Sync {
    /// Returns whether there is an agent with this id.
    fn has_agent(&self, id: &AgentId) -> bool;

    /// Returns the owner of the agents at the server of `endpoint`; `None` if no agent is there.
    fn endpoint_owner(&self, endpoint: &AgentEndpoint) -> Option<Arc<AgentSource>>;

    /// Returns the limits of the schemas of an agent that `publisher` sends, and the publisher's budget, charged with its
    /// documents in force except the one that the agent replaces. May wait for documents that are being compiled, so it is
    /// called from a thread that may block.
    fn publisher_budget(&self, publisher: &str, agent: &Agent) -> PublisherBudget;
}
