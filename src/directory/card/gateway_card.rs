//! The gateway's own card: its skills are the agents visible to the caller, with a link to the list of all of them.

use super::{
    super::{
        AgentDirectory, DirectoryCall, address_redaction::AddressRedactor, agent_list::HitRange,
        agent_summary::first_sentence,
    },
    AIDIP_BINDING, AgentCard, CardInterface, CardSkill,
};
use crate::{
    agent::Agent,
    search::{SearchFilters, SearchResults},
};
use serde_json::{Map, Value, json};

/// Maximum number of agents on the gateway's own card.
const MAX_LISTED_AGENTS: usize = 100;

impl AgentDirectory {
    /// Returns the agents that the gateway's own documents list.
    pub(in super::super) fn listed_agents(&self, call: &DirectoryCall<'_>) -> SearchResults {
        self.find_agents(call, SearchFilters::default(), "", HitRange { skip: 0, top: MAX_LISTED_AGENTS })
    }

    pub(super) fn gateway_card(&self, base: &str, agents: &SearchResults) -> AgentCard {
        // A2A has no member for this; an extension is its way to add one.
        let extensions = json!([{
            "uri": format!("{base}/.well-known/agents.json"),
            "description": "List of all agents behind this gateway, with their descriptors.",
        }]);
        let mut card = AgentCard {
            name: self.config.name.clone(),
            description: self.config.description.clone(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            provider: self
                .config
                .provider
                .as_ref()
                .map(|provider| (provider.organization.clone(), provider.url.clone())),
            documentation: Some(format!("{base}/openapi.json")),
            interfaces: vec![CardInterface {
                url: format!("{base}/agents"),
                binding: AIDIP_BINDING.to_owned(),
                version: "1.0".to_owned(),
            }],
            capabilities: Map::from_iter([("extensions".to_owned(), Value::clone(&extensions))]),
            skills: agents.hits.iter().map(|hit| self.agent_skill(base, &hit.agent)).collect(),
            ..AgentCard::default()
        };
        self.add_credentials_and_defaults(&mut card, None);
        card
    }

    fn agent_skill(&self, base: &str, agent: &Agent) -> CardSkill {
        let redactor = AddressRedactor::new(agent, base, self.config.advertised_endpoints);
        let description = redactor.redact_text(&agent.description);
        let description = first_sentence(&description);
        let tags: Vec<String> =
            agent.capabilities.iter().chain(&agent.tags).take(20).map(|value| value.to_string()).collect();
        CardSkill {
            id: agent.id.to_string(),
            name: redactor.redact_text(&agent.name).into_owned(),
            description: if description.is_empty() { agent.name.clone() } else { description.to_owned() },
            tags: if tags.is_empty() { vec![agent.id.to_string()] } else { tags },
            ..CardSkill::default()
        }
    }
}
