//! The gateway's own card: its skills are the agents visible to the caller, with a link to the list of all of them.

use super::{
    super::{
        AcceptedCredentials, DirectoryConfig,
        address_redaction::AddressRedactor,
        agent_summary::{entry_text, entry_words, first_sentence},
    },
    agent_card::{AgentCard, CardInterface, CardSkill},
};
use crate::{agent::Agent, search::SearchResults};
use serde_json::{Map, Value, json};

/// Builder of the gateway's own card.
pub(super) struct GatewayCardBuilder<'a> {
    pub(super) base_url: &'a str,
    pub(super) credentials: &'a AcceptedCredentials,
    pub(super) config: &'a DirectoryConfig,
}

impl GatewayCardBuilder<'_> {
    /// Builds the card that lists these agents.
    pub(super) fn build(&self, agents: &SearchResults) -> AgentCard {
        let base = self.base_url;
        // A2A has no member for this; an extension is its way to add one.
        let extensions = json!([{
            "uri": format!("{base}/.well-known/agents.json"),
            "description": "List of all agents behind this gateway, with their descriptors.",
        }]);
        let card = AgentCard {
            name: self.config.name.clone(),
            description: self.config.description.clone(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            provider: self
                .config
                .provider
                .as_ref()
                .map(|provider| (provider.organization.clone(), provider.url.clone())),
            documentation: Some(format!("{base}/openapi.json")),
            interfaces: vec![CardInterface::aidip(format!("{base}/agents"))],
            capabilities: Map::from_iter([("extensions".to_owned(), Value::clone(&extensions))]),
            skills: agents.hits.iter().map(|hit| self.agent_skill(&hit.agent)).collect(),
            ..AgentCard::default()
        };
        card.with_credentials_and_defaults(self.credentials, None)
    }

    fn agent_skill(&self, agent: &Agent) -> CardSkill {
        let redactor = AddressRedactor::for_list_entry(agent, self.base_url, self.config.advertised_endpoints);
        let description = redactor.redact_text(first_sentence(&agent.description));
        let name = redactor.redact_text(entry_text(&agent.name));
        let tags = entry_words(&agent.capabilities).iter().chain(entry_words(&agent.tags)).take(20);
        let tags: Vec<String> = tags.map(|tag| redactor.redact_text(tag).into_owned()).collect();
        CardSkill {
            id: agent.id.to_string(),
            description: if description.is_empty() { name.to_string() } else { description.into_owned() },
            name: name.into_owned(),
            tags: if tags.is_empty() { vec![agent.id.to_string()] } else { tags },
            ..CardSkill::default()
        }
    }
}
