//! The gateway's own card: its skills are the agents visible to the caller, with a link to the list of all of them.

use super::{
    super::{Ask, Directory, address::Veil, summary::first_sentence},
    Card, Interface, PLAIN_POST, Skill,
};
use crate::{
    agent::Agent,
    search::{Filters, Found},
};
use serde_json::{Map, Value, json};

/// Maximum number of agents on the gateway's own card.
const MOST: usize = 100;

impl Directory {
    /// Returns the agents that the gateway's own documents list.
    pub(in super::super) fn shown(&self, call: &Ask<'_>) -> Found {
        self.find(call, Filters::default(), "", (0, MOST))
    }

    pub(super) fn own_card(&self, base: &str, found: &Found) -> Card {
        // A2A has no member for this; an extension is its way to add one.
        let all = json!([{
            "uri": format!("{base}/.well-known/agents.json"),
            "description": "List of all agents behind this gateway, with their descriptors.",
        }]);
        let mut card = Card {
            name: self.config.name.clone(),
            description: self.config.description.clone(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            provider: self.config.provider.as_ref().map(|one| (one.organization.clone(), one.url.clone())),
            documentation: Some(format!("{base}/openapi.json")),
            interfaces: vec![Interface {
                url: format!("{base}/agents"),
                binding: PLAIN_POST.to_owned(),
                version: "1.0".to_owned(),
            }],
            capabilities: Map::from_iter([("extensions".to_owned(), Value::clone(&all))]),
            skills: found.hits.iter().map(|hit| self.agent_skill(base, &hit.agent)).collect(),
            ..Card::default()
        };
        self.guard(&mut card, None);
        card
    }

    fn agent_skill(&self, base: &str, agent: &Agent) -> Skill {
        let redactor = Veil::over(agent, base, self.config.advertised_endpoints);
        let description = redactor.text(&agent.description);
        let description = first_sentence(&description);
        let tags: Vec<String> =
            agent.capabilities.iter().chain(&agent.tags).take(20).map(|word| word.to_string()).collect();
        Skill {
            id: agent.id.to_string(),
            name: redactor.text(&agent.name).into_owned(),
            description: if description.is_empty() { agent.name.clone() } else { description.to_owned() },
            tags: if tags.is_empty() { vec![agent.id.to_string()] } else { tags },
            ..Skill::default()
        }
    }
}
