//! A rule of the configuration, as routes are compiled from it: the settings of the agents that match.

use super::{
    a2a_config::A2aConfig,
    api::{ApiConfig, OpenApiSource},
    openai::OpenAiConfig,
    response::ErrorDetails,
};
use crate::{
    agent::{Agent, AuthenticationMethod},
    contract::ContractRule,
    transport::{EndpointConfig, TransportConfig},
    values::{Glob, Rate},
};
use std::{num::NonZeroU32, sync::Arc};

/// Settings for the agents that match. Rules apply in order; a later one overrides.
#[derive(Clone, Debug)]
pub struct RouteRule {
    /// The agent ids that match.
    pub agents: Vec<Glob>,
    /// The transport settings.
    pub settings: TransportConfig,
    /// The calls per period to each agent.
    pub rate_limit: Option<Rate>,
    /// The concurrent calls to each agent.
    pub max_concurrency: Option<NonZeroU32>,
    /// The concurrent calls to each agent of all gateways.
    pub shared_max_concurrency: Option<NonZeroU32>,
    /// Whether the concurrency limit of each agent is adaptive.
    pub adaptive_concurrency: Option<bool>,
    /// Whether calls of the agents become tasks.
    pub runs_as_task: Option<bool>,
    /// Whether the agents can be called with `GET`.
    pub allows_get: Option<bool>,
    /// Which credentials the agents accept.
    pub authentication: Option<CallerAuthentication>,
    /// What happens with the query of a `POST`.
    pub query: Option<QueryPolicy>,
    /// Which parts of the agents' errors callers read.
    pub error_details: Option<ErrorDetails>,
    /// The agents' own APIs.
    pub api: Option<Arc<ApiConfig>>,
    /// The OpenAPI document that `api` names.
    pub openapi: Option<Arc<OpenApiSource>>,
    /// How clients of OpenAI's API call the agents.
    pub openai: Option<Arc<OpenAiConfig>>,
    /// Bounds for calls to agents with an A2A card.
    pub a2a: Option<A2aConfig>,
    /// How inputs and outputs are validated, where it differs.
    pub contract: Option<ContractRule>,
    /// What the agents' servers speak, if they do not take calls as they are.
    pub endpoint: Option<Arc<EndpointConfig>>,
}

/// What happens with the query of a `POST` that does not only repeat the body.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize, serde::Serialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum QueryPolicy {
    /// The agent receives it.
    #[default]
    Forward,
    /// The call is refused with 400.
    Refuse,
}

/// Which credential an agent accepts from its callers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize, serde::Serialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CallerAuthentication {
    /// The kind that the agent's document declares (R12, R28).
    #[default]
    Declared,
    /// Every kind that the gateway accepts; the document's declaration does not count.
    Any,
}

impl CallerAuthentication {
    /// Returns the agent as its callers see it. Its scopes still apply to tokens.
    pub(super) fn apply(self, agent: Arc<Agent>) -> Arc<Agent> {
        if self == Self::Declared || agent.authentication.method == AuthenticationMethod::Anonymous {
            return agent;
        }
        let mut agent = Arc::unwrap_or_clone(agent);
        agent.authentication.method = AuthenticationMethod::Anonymous;
        agent.authentication.refuses_anonymous = true;
        Arc::new(agent)
    }
}
