//! What can be asked of the directory, and where: the one table from which the gateway routes and from which its own
//! OpenAPI document is made.

use super::query::Params;
use http::Method;

/// Something that can be asked of the directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Face {
    /// The list of agents; publishing one.
    Agents,
    /// A structured search.
    Search,
    /// From an intent to the agents that fit it.
    Resolve,
    /// From an `agent://` name to where it leads.
    Name,
    /// One agent's document; changing and removing it.
    Agent,
    /// What happened to a document.
    History,
    /// One agent's descriptor in JSON-LD.
    Descriptor,
    /// One agent's A2A card.
    Card,
    /// One agent's OpenAPI document.
    AgentApi,
    /// Agent Framework's list.
    Framework,
    /// Agent Framework's document of one agent.
    FrameworkAgent,
    /// Where Agent Framework's list was.
    FrameworkMoved,
    /// Where Agent Framework's document of one agent was.
    FrameworkAgentMoved,
    /// The map from names to descriptors.
    Map,
    /// The gateway's own descriptor, or that of its only agent.
    HouseDescriptor,
    /// The gateway's own card, or that of its only agent.
    HouseCard,
    /// The keys that sign cards.
    Keys,
    /// The gateway's own OpenAPI document.
    HouseApi,
    /// The JSON Schema of agents' documents.
    Schema,
}

/// Where each face is, in the syntax of `matchit`. Aliases stand after the path that links use.
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

/// Where agents are called. The directory answers none of these: it only describes them.
pub const CALLS: &[&str] = &[
    "/agents/{id}/invoke",
    "/agents/{id}/invoke/{operation}",
    "/agents/{id}/{operation}",
    // Where clients call that append to the address of the descriptor.
    "/agents/{id}/agent.json/{operation}",
];

/// Where several agents are called, one after the other. The directory only describes it.
pub const PIPELINES: &str = "/pipelines/invoke";

/// Where tasks are, and the methods that they take. The directory answers none of these either.
pub const TASKS: &[(&str, &[Method])] =
    &[("/tasks/{task}", &[Method::GET, Method::HEAD, Method::DELETE]), ("/tasks/{task}/events", &[Method::GET])];

const READ: &[Method] = &[Method::GET, Method::HEAD];

impl Face {
    /// The methods that it takes.
    pub fn methods(self) -> &'static [Method] {
        match self {
            Self::Agents => &[Method::GET, Method::HEAD, Method::POST],
            Self::Search | Self::Resolve | Self::Name => &[Method::POST],
            Self::Agent => &[Method::GET, Method::HEAD, Method::PUT, Method::PATCH, Method::DELETE],
            _ => READ,
        }
    }

    /// The same as `Allow` has them.
    pub fn allow(self) -> String {
        let names: Vec<&str> = self.methods().iter().map(Method::as_str).collect();
        names.join(", ")
    }

    /// Whether what is asked changes what is published.
    pub fn writes(self, method: &Method) -> bool {
        matches!(self, Self::Agents | Self::Agent) && !READ.contains(method)
    }

    /// Whether the answer may take asking places of the caller's choosing: that is done for nobody who is not known.
    pub fn asks_elsewhere(self) -> bool {
        self == Self::Name
    }

    /// Whether what is asked is a search, which costs more than reading and has a rate of its own (R5).
    pub fn is_search(self, query: Option<&str>) -> bool {
        match self {
            Self::Search | Self::Resolve | Self::Name => true,
            Self::Agents | Self::Framework => Params::read(query).is_ok_and(|params| params.names(&["q", "query"])),
            _ => false,
        }
    }
}
