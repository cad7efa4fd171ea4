//! Directory requests and their paths: the one table from which the gateway routes, and from which its own OpenAPI
//! document is built.

use super::query_params::QueryParams;
use http::Method;

/// Path of the list of agents in the format of Agent Framework.
pub(super) const FRAMEWORK_LIST_PATH: &str = "/.well-known/agentframework/v1/agents";

/// A request that the directory serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DirectoryRequest {
    /// The list of agents; publishing an agent.
    Agents,
    /// A structured search.
    Search,
    /// The agents that fit an intent.
    ResolveIntent,
    /// Resolution of an `agent://` name.
    ResolveName,
    /// The document of one agent; changing and removing it.
    Agent,
    /// The history of a document.
    History,
    /// The descriptor of one agent in JSON-LD.
    Descriptor,
    /// The A2A card of one agent, or its descriptor for a caller that accepts JSON-LD: A2A 0.2 and `agent://` share the
    /// path (R58).
    CardOrDescriptor,
    /// The A2A card of one agent.
    Card,
    /// The OpenAPI document of one agent.
    AgentOpenApi,
    /// The list of Agent Framework.
    FrameworkList,
    /// The document of one agent in Agent Framework.
    FrameworkAgent,
    /// The former path of Agent Framework's list.
    FrameworkListRedirect,
    /// The former path of Agent Framework's document of one agent.
    FrameworkAgentRedirect,
    /// The map from agents to their descriptors, `agents.json`.
    WellKnownAgents,
    /// The gateway's own descriptor, or that of the only visible agent.
    WellKnownDescriptor,
    /// The gateway's own card, or that of the only visible agent; the descriptor for a caller that accepts JSON-LD.
    WellKnownCardOrDescriptor,
    /// The gateway's own card, or that of the only visible agent.
    WellKnownCard,
    /// The card of the gateway, or of the only visible agent, with the members of Agent Framework's document (R151).
    FrameworkCard,
    /// The keys that sign cards.
    Jwks,
    /// The gateway's own OpenAPI document.
    GatewayOpenApi,
    /// The JSON Schema of agents' documents.
    MetadataSchema,
    /// The page for callers that lists agents.
    CallerPages,
    /// The page for callers about one agent.
    CallerPage,
    /// A file that these pages load.
    CallerPageAsset,
}

/// What makes the response to a read long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadExtent {
    /// The number of agents.
    ManyAgents,
    /// The document of the agent.
    OneAgent,
    /// Nothing.
    Fixed,
}

/// The path of each request, in the syntax of `matchit`. Aliases follow the path that links use.
pub const DIRECTORY_PATHS: &[(&str, DirectoryRequest)] = &[
    ("/agents", DirectoryRequest::Agents),
    ("/agents/search", DirectoryRequest::Search),
    ("/agents/resolve", DirectoryRequest::ResolveIntent),
    ("/resolve", DirectoryRequest::ResolveName),
    ("/agents/{id}", DirectoryRequest::Agent),
    ("/agents/{id}/history", DirectoryRequest::History),
    ("/agents/{id}/agent.json", DirectoryRequest::Descriptor),
    ("/agents/{id}/.well-known/agent.json", DirectoryRequest::CardOrDescriptor),
    ("/agents/{id}/agent-card.json", DirectoryRequest::Card),
    ("/agents/{id}/.well-known/agent-card.json", DirectoryRequest::Card),
    ("/agents/{id}/openapi.json", DirectoryRequest::AgentOpenApi),
    (FRAMEWORK_LIST_PATH, DirectoryRequest::FrameworkList),
    ("/.agent-framework/v1/agents", DirectoryRequest::FrameworkList),
    ("/.well-known/agentframework/v1/agents/{id}", DirectoryRequest::FrameworkAgent),
    ("/.agent-framework/v1/agents/{id}", DirectoryRequest::FrameworkAgent),
    ("/v1/agents", DirectoryRequest::FrameworkListRedirect),
    ("/v1/agents/{id}", DirectoryRequest::FrameworkAgentRedirect),
    ("/.well-known/agents.json", DirectoryRequest::WellKnownAgents),
    // Clients of `agent://` read the descriptor of a whole domain here.
    ("/agent.json", DirectoryRequest::WellKnownDescriptor),
    ("/.well-known/agent.json", DirectoryRequest::WellKnownCardOrDescriptor),
    ("/.well-known/agent-card.json", DirectoryRequest::WellKnownCard),
    ("/.well-known/agent-card", DirectoryRequest::FrameworkCard),
    ("/v1/card", DirectoryRequest::FrameworkCard),
    ("/.well-known/jwks.json", DirectoryRequest::Jwks),
    ("/openapi.json", DirectoryRequest::GatewayOpenApi),
    ("/schemas/agent-metadata.json", DirectoryRequest::MetadataSchema),
];

/// Path of the first page for callers.
pub(super) const CALLER_PAGES_PATH: &str = "/docs";

/// The paths of the pages for callers, which are unknown paths unless the configuration turns the pages on. They are for
/// people, and no document describes them.
pub const CALLER_PAGE_PATHS: &[(&str, DirectoryRequest)] = &[
    (CALLER_PAGES_PATH, DirectoryRequest::CallerPages),
    ("/docs/{id}", DirectoryRequest::CallerPage),
    ("/docs/assets/{file}", DirectoryRequest::CallerPageAsset),
];

/// Parameter of the first page that makes the browser of a visitor without a credential ask for one.
pub(super) const LOGIN_PARAMETER: &str = "login";

/// Returns whether a path is one of a page for callers.
pub fn is_caller_page_path(path: &str) -> bool {
    path.strip_prefix(CALLER_PAGES_PATH).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Paths that invoke agents. The directory does not serve them: it only describes them.
pub const INVOKE_PATHS: &[&str] = &[
    "/agents/{id}/invoke",
    "/agents/{id}/invoke/{operation}",
    "/agents/{id}/{operation}",
    // For clients that append the path of a name to the URL of the descriptor: agent://host/{id}/{operation}.
    "/agents/{id}/agent.json/{operation}",
    "/agents/{id}/agent.json/{name}/{operation}",
];

/// Paths of Agent Framework that invoke an agent (R144). The directory only describes them.
pub const MESSAGE_PATHS: &[&str] = &["/agents/{id}/v1/message:send", "/agents/{id}/v1/message:stream"];

/// Path that invokes several agents in sequence. The directory only describes it.
pub const PIPELINE_PATH: &str = "/pipelines/invoke";

/// The path at which a web page is paired. The directory only describes it.
pub const PAIR_PATH: &str = "/pair";

/// Paths of tasks, and their methods. The directory only describes them.
pub const TASK_PATHS: &[(&str, &[Method])] = &[
    ("/tasks/{task}", &[Method::GET, Method::HEAD, Method::DELETE]),
    ("/tasks/{task}/events", &[Method::GET]),
    // Agent Framework's path (R144).
    ("/agents/{id}/v1/tasks/{task}", READ_METHODS),
];

const READ_METHODS: &[Method] = &[Method::GET, Method::HEAD];

impl DirectoryRequest {
    /// Returns the allowed methods.
    pub fn allowed_methods(self) -> &'static [Method] {
        match self {
            Self::Agents => &[Method::GET, Method::HEAD, Method::POST],
            Self::Search | Self::ResolveIntent | Self::ResolveName => &[Method::POST],
            Self::Agent => &[Method::GET, Method::HEAD, Method::PUT, Method::PATCH, Method::DELETE],
            _ => READ_METHODS,
        }
    }

    /// Returns the allowed methods as the value of `Allow`.
    pub fn allow_header(self) -> String {
        let names: Vec<&str> = self.allowed_methods().iter().map(Method::as_str).collect();
        names.join(", ")
    }

    /// Returns what makes the response to a read long.
    pub fn read_extent(self) -> ReadExtent {
        match self {
            Self::Agents
            | Self::Search
            | Self::ResolveIntent
            | Self::FrameworkList
            | Self::WellKnownAgents
            | Self::WellKnownDescriptor
            | Self::WellKnownCardOrDescriptor
            | Self::WellKnownCard
            | Self::FrameworkCard
            | Self::GatewayOpenApi
            | Self::CallerPages => ReadExtent::ManyAgents,
            Self::Agent
            | Self::History
            | Self::Descriptor
            | Self::CardOrDescriptor
            | Self::Card
            | Self::AgentOpenApi
            | Self::FrameworkAgent
            | Self::CallerPage => ReadExtent::OneAgent,
            Self::ResolveName
            | Self::FrameworkListRedirect
            | Self::FrameworkAgentRedirect
            | Self::Jwks
            | Self::MetadataSchema
            | Self::CallerPageAsset => ReadExtent::Fixed,
        }
    }

    /// Returns whether the request changes published documents.
    pub fn is_write(self, method: &Method) -> bool {
        matches!(self, Self::Agents | Self::Agent) && !READ_METHODS.contains(method)
    }

    /// Returns whether the request is for a page for callers, or a file of one.
    pub fn is_caller_page(self) -> bool {
        matches!(self, Self::CallerPages | Self::CallerPage | Self::CallerPageAsset)
    }

    /// Returns whether callers without a credential get the response, whatever agents they may see.
    pub fn is_public(self) -> bool {
        matches!(self, Self::Jwks | Self::CallerPageAsset)
    }

    /// Returns whether the request asks for a credential, whatever it can see without one.
    pub fn requires_credential(self, query: Option<&str>) -> bool {
        self == Self::CallerPages && QueryParams::parse(query).is_ok_and(|params| params.has_any(&[LOGIN_PARAMETER]))
    }

    /// Returns whether the response may need fetches from hosts that the caller chooses. Anonymous callers must not
    /// cause such fetches.
    pub fn may_fetch_remotely(self) -> bool {
        self == Self::ResolveName
    }

    /// Returns whether the request is a search, which costs more than reading and has a rate limit of its own (R5).
    pub fn is_search(self, query: Option<&str>) -> bool {
        match self {
            Self::Search | Self::ResolveIntent | Self::ResolveName => true,
            Self::Agents | Self::FrameworkList | Self::CallerPages => {
                QueryParams::parse(query).is_ok_and(|params| params.has_any(&["q", "query"]))
            }
            _ => false,
        }
    }
}
