//! The content of a card, independent of the version.

use super::super::AcceptedCredentials;
use crate::agent::{Agent, AuthenticationMethod};
use serde_json::{Map, Value};

/// Protocol binding of agents that do not speak A2A: a JSON body by POST, as AIDIP defines it.
const AIDIP_BINDING: &str = "AIDIP";
/// Media type of agents whose card names none.
const DEFAULT_MODE: &str = "application/json";

/// A card, independent of the version.
#[derive(Debug, Default)]
pub(super) struct AgentCard {
    pub(super) name: String,
    pub(super) description: String,
    pub(super) version: String,
    /// Name and URL: readers require both.
    pub(super) provider: Option<(String, String)>,
    pub(super) documentation: Option<String>,
    pub(super) icon: Option<String>,
    /// At least one; the first is the preferred one.
    pub(super) interfaces: Vec<CardInterface>,
    pub(super) capabilities: Map<String, Value>,
    pub(super) credentials: Vec<AuthenticationMethod>,
    pub(super) scopes: Vec<String>,
    pub(super) inputs: Vec<String>,
    pub(super) outputs: Vec<String>,
    pub(super) skills: Vec<CardSkill>,
    /// Other members of an agent's own card.
    pub(super) extra_members: Map<String, Value>,
}

impl AgentCard {
    /// Adds the credentials that an agent, or the gateway itself, accepts, and defaults for the members that readers
    /// require.
    pub(super) fn with_credentials_and_defaults(
        mut self,
        credentials: &AcceptedCredentials,
        agent: Option<&Agent>,
    ) -> Self {
        self.credentials = credentials.accepted_methods(agent);
        self.scopes = agent.map(|agent| agent.authentication.scopes.clone()).unwrap_or_default();
        for modes in [&mut self.inputs, &mut self.outputs].into_iter().filter(|modes| modes.is_empty()) {
            modes.push(DEFAULT_MODE.to_owned());
        }
        if self.version.is_empty() {
            // A2A requires a version, and none is known.
            self.version = "0.0.0".to_owned();
        }
        self
    }
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct CardInterface {
    pub(super) url: String,
    pub(super) binding: String,
    pub(super) version: String,
}

impl CardInterface {
    /// Returns the interface of AIDIP at `url`.
    pub(super) fn aidip(url: String) -> Self {
        Self { url, binding: AIDIP_BINDING.to_owned(), version: "1.0".to_owned() }
    }
}

#[derive(Debug, Default)]
pub(super) struct CardSkill {
    pub(super) id: String,
    pub(super) name: String,
    pub(super) description: String,
    pub(super) tags: Vec<String>,
    pub(super) examples: Vec<String>,
    pub(super) inputs: Vec<String>,
    pub(super) outputs: Vec<String>,
}
