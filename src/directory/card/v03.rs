//! Serialization of a card as A2A 0.3: one preferred URL, and additional interfaces.

use super::{
    super::{accepted_credentials::AcceptedCredentials, json_object_builder::JsonObjectBuilder},
    agent_card::{AgentCard, CardInterface},
    v1::skill_json,
};
use serde_json::{Map, Value, json};

pub(super) fn card_members(card: &AgentCard, credentials: &AcceptedCredentials) -> Map<String, Value> {
    let mut fields = JsonObjectBuilder::default();
    fields.set("name", card.name.as_str().into());
    fields.set("description", card.description.as_str().into());
    fields.set("version", card.version.as_str().into());
    // Prefer an interface of 0.3; else `protocolVersion` states the version of the interface.
    let is_v03 = |interface: &&CardInterface| interface.version.starts_with("0.");
    if let Some(preferred) = card.interfaces.iter().find(is_v03).or(card.interfaces.first()) {
        let version = match preferred.version.as_str() {
            "0.3" => "0.3.0",
            version => version,
        };
        fields.set("protocolVersion", version.into());
        fields.set("url", preferred.url.as_str().into());
        fields.set("preferredTransport", preferred.binding.as_str().into());
        let others = card.interfaces.iter().filter(|other| *other != preferred && other.version == preferred.version);
        let others: Vec<Value> = others.map(|other| json!({"url": other.url, "transport": other.binding})).collect();
        if !others.is_empty() {
            fields.set("additionalInterfaces", others.into());
        }
    }
    if let Some((organization, url)) = &card.provider {
        fields.set("provider", json!({"organization": organization, "url": url}));
    }
    for (name, text) in [("documentationUrl", &card.documentation), ("iconUrl", &card.icon)] {
        fields.set_optional(name, text.as_deref());
    }
    fields.set("capabilities", card.capabilities.clone().into());
    if !card.credentials.is_empty() {
        let schemes = card
            .credentials
            .iter()
            .map(|method| (method.document_type().to_owned(), credentials.openapi_scheme(*method)));
        fields.set("securitySchemes", schemes.collect::<Map<_, _>>().into());
        let requirement = |name: &str| Value::from(Map::from_iter([(name.to_owned(), card.scopes.as_slice().into())]));
        fields.set("security", card.credentials.iter().map(|method| requirement(method.document_type())).collect());
    }
    fields.set("defaultInputModes", card.inputs.as_slice().into());
    fields.set("defaultOutputModes", card.outputs.as_slice().into());
    fields.set("skills", card.skills.iter().map(skill_json).collect());
    fields.into_map()
}
