//! Directory requests and their paths: the one table from which the gateway routes, and from which its own OpenAPI
//! document is built.

use super::query::Params;
use http::Method;

/// A request that the directory serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Face {
    /// The list of agents; publishing an agent.
    Agents,
    /// A structured search.
    Search,
    /// The agents that fit an intent.
    Resolve,
    /// Resolution of an `agent://` name.
    Name,
    /// The document of one agent; changing and removing it.
    Agent,
    /// The history of a document.
    History,
    /// The descriptor of one agent in JSON-LD.
    Descriptor,
    /// The A2A card of one agent.
    Card,
    /// The OpenAPI document of one agent.
    AgentApi,
    /// The list of Agent Framework.
    Framework,
    /// The document of one agent in Agent Framework.
    FrameworkAgent,
    /// The former path of Agent Framework's list.
    FrameworkMoved,
    /// The former path of Agent Framework's document of one agent.
    FrameworkAgentMoved,
    /// The map from agents to their descriptors, `agents.json`.
    Map,
    /// The gateway's own descriptor, or that of the only visible agent.
    HouseDescriptor,
    /// The gateway's own card, or that of the only visible agent.
    HouseCard,
    /// The keys that sign cards.
    Keys,
    /// The gateway's own OpenAPI document.
    HouseApi,
    /// The JSON Schema of agents' documents.
    Schema,
}

/// The path of each request, in the syntax of `matchit`. Aliases follow the path that links use.
pub const PATHS: &[(&str, Face)] = &[
    ("/agents", Face::Agents),
    ("/agents/search", Face::Search),
    ("/agents/resolve", Face::Resolve),
    ("/resolve", Face::Name),
    ("/agents/{id}", Face::Agent),
    ("/agents/{id}/history", Face::History),
    ("/agents/{id}/agent.json", Face::Descriptor),
    ("/agents/{id}/.well-known/agent.json", Face::Descriptor),
    ("/agents/{id}/agent-card.json", Face::Card),
    ("/agents/{id}/.well-known/agent-card.json", Face::Card),
    ("/agents/{id}/openapi.json", Face::AgentApi),
    ("/.well-known/agentframework/v1/agents", Face::Framework),
    ("/.agent-framework/v1/agents", Face::Framework),
    ("/.well-known/agentframework/v1/agents/{id}", Face::FrameworkAgent),
    ("/.agent-framework/v1/agents/{id}", Face::FrameworkAgent),
    ("/v1/agents", Face::FrameworkMoved),
    ("/v1/agents/{id}", Face::FrameworkAgentMoved),
    ("/.well-known/agents.json", Face::Map),
    ("/.well-known/agent.json", Face::HouseDescriptor),
    ("/.well-known/agent-card.json", Face::HouseCard),
    ("/.well-known/agent-card", Face::HouseCard),
    ("/v1/card", Face::HouseCard),
    ("/.well-known/jwks.json", Face::Keys),
    ("/openapi.json", Face::HouseApi),
    ("/schemas/agent-metadata.json", Face::Schema),
];

/// Paths that invoke agents. The directory does not serve them: it only describes them.
pub const CALLS: &[&str] = &[
    "/agents/{id}/invoke",
    "/agents/{id}/invoke/{operation}",
    "/agents/{id}/{operation}",
    // For clients that append to the URL of the descriptor.
    "/agents/{id}/agent.json/{operation}",
];

/// Path that invokes several agents in sequence. The directory only describes it.
pub const PIPELINES: &str = "/pipelines/invoke";

/// Paths of tasks, and their methods. The directory only describes them.
pub const TASKS: &[(&str, &[Method])] =
    &[("/tasks/{task}", &[Method::GET, Method::HEAD, Method::DELETE]), ("/tasks/{task}/events", &[Method::GET])];

const READ: &[Method] = &[Method::GET, Method::HEAD];

impl Face {
    /// Returns the allowed methods.
    pub fn methods(self) -> &'static [Method] {
        match self {
            Self::Agents => &[Method::GET, Method::HEAD, Method::POST],
            Self::Search | Self::Resolve | Self::Name => &[Method::POST],
            Self::Agent => &[Method::GET, Method::HEAD, Method::PUT, Method::PATCH, Method::DELETE],
            _ => READ,
        }
    }

    /// Returns the allowed methods as the value of `Allow`.
    pub fn allow(self) -> String {
        let names: Vec<&str> = self.methods().iter().map(Method::as_str).collect();
        names.join(", ")
    }

    /// Whether the request changes published documents.
    pub fn writes(self, method: &Method) -> bool {
        matches!(self, Self::Agents | Self::Agent) && !READ.contains(method)
    }

    /// Whether the response may need fetches from hosts that the caller chooses, which anonymous callers may not cause.
    pub fn asks_elsewhere(self) -> bool {
        self == Self::Name
    }

    /// Whether the request is a search, which costs more than reading and has a rate limit of its own (R5).
    pub fn is_search(self, query: Option<&str>) -> bool {
        match self {
            Self::Search | Self::Resolve | Self::Name => true,
            Self::Agents | Self::Framework => Params::read(query).is_ok_and(|params| params.names(&["q", "query"])),
            _ => false,
        }
    }
}
