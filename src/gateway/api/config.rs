//! The setting `api` of a rule: which requests of an agent's own API pass to it.

use super::{openapi::OpenApiLocation, preset::ApiPreset};
use crate::{
    agent::AgentProtocol,
    values::{ByteSize, ConfigDuration, Glob},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Passes requests below `/agents/{id}/api` to the agent's own API, if `routes`, `openapi` or `preset` lists them.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ApiConfig {
    /// URL of the API, below which paths continue: `https://planner.internal/prefix`. It may be at another server than the
    /// endpoint, whose credential it gets only if the credential's `destinations` list that server. Default: where the
    /// preset has it, else the root of the endpoint's server.
    pub base: Option<String>,
    /// Routes of a framework or protocol: `langgraph`, `adk`, `agentcore`, `agent_framework`, `openai`, `mcp` or `a2a`.
    /// Default: none.
    pub preset: Option<ApiPreset>,
    /// Further routes; at most 256. The first one that matches path and method decides. They precede the operations
    /// of `openapi` and the routes of the preset, and nothing is validated there. Default: none.
    pub routes: Vec<ApiRouteConfig>,
    /// An OpenAPI 3.0 or 3.1 document, in JSON or YAML: a file, or an https URL. Its operations pass, and their parameters
    /// and JSON bodies are validated by its schemas as `contract.input` says. A document has at most 8 MiB and 1000
    /// operations, and no references beyond itself. A file that is unusable is refused; one that becomes unusable later,
    /// and a URL, leave the last usable document in force. Until the document at a URL is known, requests that no route
    /// of `routes` lets pass get 503. Default: none.
    pub openapi: Option<OpenApiLocation>,
    /// How often a document at a URL is fetched again, 1s to 1d. Default: 5m.
    pub openapi_interval: ConfigDuration,
    /// Maximum size of a JSON body that is validated by `openapi`, 1KiB to 64MiB; a larger one gets 413. Default: 1MiB.
    pub max_checked_body: ByteSize,
    /// What names the caller's session, so that its requests reach one endpoint of several. Default: that of the preset.
    pub session: Option<ApiSessionConfig>,
    /// Host names at which the API has the root: `planner.agents.example.com`. The rule names one agent then. At such a host
    /// nothing else of the gateway is served. Default: none.
    pub hosts: Vec<String>,
    /// JSON Pointers to absolute URLs in JSON responses, with `*` for every member: `/items/*/url`. A URL below `base`
    /// becomes one below the gateway; at most 32 pointers. Default: those of the preset.
    pub rewrite: Vec<String>,
    /// Maximum size of a JSON response whose URLs are rewritten, 1KiB to 16MiB; a larger card or OpenAPI document is an
    /// `AgentError`, another response passes as it is. With the URLs of the gateway it may have twice that; a longer one is
    /// an `AgentError`. Default: 1MiB.
    pub max_rewrite: ByteSize,
    /// Maximum size of a request body. Default: `agents.max_streamed_body_size`.
    pub max_body_size: Option<ByteSize>,
}

impl ApiConfig {
    /// Returns whether messages of this protocol pass.
    pub(in crate::gateway) fn passes(&self, protocol: AgentProtocol) -> bool {
        let preset = match protocol {
            AgentProtocol::Mcp => ApiPreset::Mcp,
        };
        self.preset == Some(preset) || !self.routes.is_empty()
    }
}

/// Returns why an agent of a protocol is not served without an API that passes.
pub(in crate::gateway) fn protocol_without_api(protocol: AgentProtocol) -> String {
    let protocol = protocol.as_str();
    format!(
        "protocol: is {protocol}, which the gateway only passes on through the agent's own API (let it pass with api: \
         {{preset: {protocol}}} in a rule of agents.rules for this agent)"
    )
}

/// A route of an API.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ApiRouteConfig {
    /// Methods, in capitals. `GET` includes `HEAD`. Required, at least one.
    #[schemars(length(min = 1))]
    pub methods: Vec<String>,
    /// Pattern of the path below the base: literal segments, `{name}` for one segment, `**` at the end for the path itself
    /// and everything below: `/threads/**`. Required.
    pub path: String,
    /// Callers by their full id, or patterns, as in grants. Default: every caller that may call the agent.
    #[serde(default)]
    pub callers: Vec<Glob>,
    /// Groups, or patterns; callers in any of them may use the route as well. Default: none.
    #[serde(default)]
    pub groups: Vec<Glob>,
}

/// What names a session: one of its members is set.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ApiSessionConfig {
    /// A header field.
    pub header: Option<String>,
    /// A parameter of the query.
    pub query: Option<String>,
    /// A parameter in the patterns of routes: `thread_id` for `/threads/{thread_id}/**`.
    pub path: Option<String>,
}

impl Default for ApiConfig {
    fn default() -> Self {
        Self {
            base: None,
            preset: None,
            routes: Vec::new(),
            openapi: None,
            openapi_interval: ConfigDuration::from_secs(300),
            max_checked_body: ByteSize::from_kib(1_024),
            session: None,
            hosts: Vec::new(),
            rewrite: Vec::new(),
            max_rewrite: ByteSize::from_kib(1_024),
            max_body_size: None,
        }
    }
}
