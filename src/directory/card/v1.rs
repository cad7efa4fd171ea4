//! Serialization of a card as A2A 1.0. Empty members are omitted, as in its canonical form.

use super::{
    super::{accepted_credentials::AcceptedCredentials, json_object_builder::JsonObjectBuilder},
    agent_card::{AgentCard, CardSkill},
};
use serde_json::{Map, Value, json};

pub(super) fn card_members(card: &AgentCard, credentials: &AcceptedCredentials) -> Map<String, Value> {
    let mut fields = JsonObjectBuilder::default();
    fields.set("name", card.name.as_str().into());
    fields.set("description", card.description.as_str().into());
    fields.set("version", card.version.as_str().into());
    if let Some((organization, url)) = &card.provider {
        fields.set("provider", json!({"organization": organization, "url": url}));
    }
    for (name, text) in [("documentationUrl", &card.documentation), ("iconUrl", &card.icon)] {
        fields.set_optional(name, text.as_deref());
    }
    let interfaces = card.interfaces.iter().map(|interface| {
        json!({
            "url": interface.url,
            "protocolBinding": interface.binding,
            "protocolVersion": interface.version,
        })
    });
    fields.set("supportedInterfaces", interfaces.collect());
    let capabilities = card.capabilities.iter().filter(|(name, _)| *name != "stateTransitionHistory");
    fields.set(
        "capabilities",
        capabilities.map(|(name, value)| (name.clone(), value.clone())).collect::<Map<_, _>>().into(),
    );
    if !card.credentials.is_empty() {
        let schemes = card
            .credentials
            .iter()
            .map(|method| (method.document_type().to_owned(), credentials.a2a_v1_scheme(*method)));
        fields.set("securitySchemes", schemes.collect::<Map<_, _>>().into());
        let scopes = if card.scopes.is_empty() { json!({}) } else { json!({"list": card.scopes}) };
        let requirement = |name: &str| json!({"schemes": Map::from_iter([(name.to_owned(), scopes.clone())])});
        fields.set(
            "securityRequirements",
            card.credentials.iter().map(|method| requirement(method.document_type())).collect(),
        );
    }
    fields.set("defaultInputModes", card.inputs.as_slice().into());
    fields.set("defaultOutputModes", card.outputs.as_slice().into());
    fields.set("skills", card.skills.iter().map(skill_json).collect());
    fields.into_map()
}

/// Serializes a skill, equally for both versions.
pub(super) fn skill_json(skill: &CardSkill) -> Value {
    let mut fields = JsonObjectBuilder::default();
    fields.set("id", skill.id.as_str().into());
    fields.set("name", skill.name.as_str().into());
    fields.set("description", skill.description.as_str().into());
    fields.set("tags", skill.tags.as_slice().into());
    let lists = [("examples", &skill.examples), ("inputModes", &skill.inputs), ("outputModes", &skill.outputs)];
    for (name, list) in lists.into_iter().filter(|(_, list)| !list.is_empty()) {
        fields.set(name, list.as_slice().into());
    }
    fields.into_value()
}
