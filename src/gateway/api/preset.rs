//! Presets: the routes of APIs that many agents have, as their servers document them.

use crate::transport::TimeoutPreset;
use http::Method;

/// The API of a framework or protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize, serde::Serialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ApiPreset {
    /// LangGraph servers (`langgraph_sdk`, `RemoteGraph`).
    Langgraph,
    /// The API server of Google's Agent Development Kit.
    Adk,
    /// The runtime contract of Amazon Bedrock AgentCore.
    Agentcore,
    /// Hosted agents of Microsoft Agent Framework (`/invocations`).
    AgentFramework,
    /// Servers of OpenAI's API.
    Openai,
    /// A server of the Model Context Protocol (Streamable HTTP). Its messages pass unread.
    Mcp,
    /// A server of A2A with its card. Its messages pass unread.
    A2a,
}

/// What a preset says.
pub(super) struct PresetRoutes {
    /// Methods and patterns.
    pub(super) routes: &'static [(&'static [Method], &'static str)],
    /// Where the API is, seen from the agent's endpoint.
    pub(super) base: PresetBase,
    /// What names the caller's session.
    pub(super) session: Option<PresetSession>,
    /// Pointers to absolute URLs in JSON documents.
    pub(super) url_pointers: &'static [&'static str],
    /// Header fields of the framework's own clients that reach the agent.
    pub(super) forwarded_headers: &'static [&'static str],
}

/// What names the session of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PresetSession {
    Header(&'static str),
    /// A parameter of the query.
    Query(&'static str),
}

/// Where an API is, seen from the agent's endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PresetBase {
    /// At the root of the endpoint's server.
    Root,
    /// Below this path of the endpoint's server.
    Path(&'static str),
    /// At the endpoint itself.
    Endpoint,
}

const GET: &[Method] = &[Method::GET];
const POST: &[Method] = &[Method::POST];
const ALL: &[Method] = &[Method::GET, Method::POST, Method::PUT, Method::PATCH, Method::DELETE];

impl ApiPreset {
    /// Returns the timeouts of requests to such an API, where the settings of the agent have none: behind each of them may
    /// be a model that thinks, and its own clients wait for minutes.
    pub const fn timeouts(self) -> TimeoutPreset {
        match self {
            Self::Langgraph
            | Self::Adk
            | Self::Agentcore
            | Self::AgentFramework
            | Self::Openai
            | Self::Mcp
            | Self::A2a => TimeoutPreset::Thinking,
        }
    }

    pub(super) fn routes(self) -> PresetRoutes {
        match self {
            Self::Langgraph => PresetRoutes {
                routes: &[
                    (GET, "/ok"),
                    (GET, "/info"),
                    (ALL, "/assistants/**"),
                    (ALL, "/threads/{thread_id}/**"),
                    (ALL, "/threads"),
                    (ALL, "/runs/**"),
                    (ALL, "/store/**"),
                ],
                base: PresetBase::Root,
                session: None,
                url_pointers: &[],
                forwarded_headers: &[],
            },
            Self::Adk => PresetRoutes {
                routes: &[
                    (GET, "/list-apps"),
                    (ALL, "/apps/{app}/users/{user}/sessions/**"),
                    (ALL, "/apps/{app}/users/{user}/memory/**"),
                    (POST, "/run"),
                    (POST, "/run_sse"),
                    (GET, "/run_live"),
                ],
                base: PresetBase::Root,
                session: None,
                url_pointers: &[],
                forwarded_headers: &[],
            },
            Self::Agentcore => PresetRoutes {
                routes: &[(POST, "/invocations"), (GET, "/ping"), (GET, "/ws")],
                base: PresetBase::Root,
                session: Some(PresetSession::Header("x-amzn-bedrock-agentcore-runtime-session-id")),
                url_pointers: &[],
                // Not `…-user-id`, which names a user.
                forwarded_headers: &["x-amzn-bedrock-agentcore-runtime-custom-*"],
            },
            Self::AgentFramework => PresetRoutes {
                routes: &[
                    (POST, "/invocations"),
                    (GET, "/invocations/{invocation_id}"),
                    (POST, "/invocations/{invocation_id}/cancel"),
                    (GET, "/invocations/docs/**"),
                    (GET, "/readiness"),
                    (GET, "/invocations_ws"),
                ],
                base: PresetBase::Root,
                session: Some(PresetSession::Query("agent_session_id")),
                url_pointers: &[],
                // Not `x-agent-user-id`, which names a user.
                forwarded_headers: &["x-agent-invocation-id", "x-client-*"],
            },
            Self::Openai => PresetRoutes {
                routes: &[
                    (&[Method::GET, Method::DELETE], "/models/**"),
                    (ALL, "/chat/completions/**"),
                    (POST, "/completions"),
                    (ALL, "/responses/**"),
                    (ALL, "/conversations/**"),
                    (POST, "/embeddings"),
                    (POST, "/moderations"),
                    (ALL, "/files/**"),
                    (ALL, "/batches/**"),
                    (POST, "/images/**"),
                    (ALL, "/audio/**"),
                ],
                base: PresetBase::Path("/v1"),
                session: None,
                url_pointers: &[],
                forwarded_headers: &["openai-beta", "x-stainless-*"],
            },
            Self::Mcp => PresetRoutes {
                routes: &[(&[Method::GET, Method::POST, Method::DELETE], "/")],
                base: PresetBase::Endpoint,
                session: Some(PresetSession::Header("mcp-session-id")),
                url_pointers: &[],
                forwarded_headers: &[],
            },
            Self::A2a => PresetRoutes {
                routes: &[
                    (POST, "/"),
                    (GET, "/.well-known/agent-card.json"),
                    (GET, "/.well-known/agent.json"),
                    (GET, "/extendedAgentCard"),
                    (POST, "/message:send"),
                    (POST, "/message:stream"),
                    (ALL, "/tasks/**"),
                    (ALL, "/v1/**"),
                ],
                base: PresetBase::Endpoint,
                session: None,
                url_pointers: &[
                    "/url",
                    "/supportedInterfaces/*/url",
                    "/additionalInterfaces/*/url",
                    // The extended card, as JSON-RPC returns it.
                    "/result/url",
                    "/result/supportedInterfaces/*/url",
                    "/result/additionalInterfaces/*/url",
                ],
                forwarded_headers: &[],
            },
        }
    }
}
