//! The content of a card, independent of the version.

use crate::agent::AuthenticationMethod;
use serde_json::{Map, Value};

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

#[derive(Clone, Debug, PartialEq)]
pub(super) struct CardInterface {
    pub(super) url: String,
    pub(super) binding: String,
    pub(super) version: String,
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
