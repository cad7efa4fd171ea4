//! The gateway's own card: whose skills are the agents that the caller sees, with a pointer to all of them.

use super::{
    super::{Ask, Directory, address::Veil, summary::first_sentence},
    Card, Interface, PLAIN_POST, Skill,
};
use crate::{
    agent::Agent,
    search::{Filters, Found},
};
use serde_json::{Map, Value, json};

/// Agents on the gateway's own card.
const MOST: usize = 100;

impl Directory {
    /// The agents that the gateway's own documents name.
    pub(in super::super) fn shown(&self, ask: &Ask<'_>) -> Found {
        self.find(ask, Filters::default(), "", (0, MOST))
    }

    pub(super) fn own_card(&self, base: &str, found: &Found) -> Card {
        // An extension is how a card says what the format has no member for.
        let all = json!([{
            "uri": format!("{base}/.well-known/agents.json"),
            "description": "The agents behind this gateway, each with its descriptor.",
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
        let veil = Veil::over(agent, base, self.config.endpoints);
        let description = veil.text(&agent.description);
        let description = first_sentence(&description);
        let tags: Vec<String> =
            agent.capabilities.iter().chain(&agent.tags).take(20).map(|word| word.to_string()).collect();
        Skill {
            id: agent.id.to_string(),
            name: veil.text(&agent.name).into_owned(),
            description: if description.is_empty() { agent.name.clone() } else { description.to_owned() },
            tags: if tags.is_empty() { vec![agent.id.to_string()] } else { tags },
            ..Skill::default()
        }
    }
}
