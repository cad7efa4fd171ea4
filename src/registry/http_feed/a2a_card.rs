//! Converts an A2A agent card, 0.3 or 1.0, into an AIDIP document: skills become operations, beside the operation
//! `message`, which is the default of a call that names no operation. Member `agent_card` keeps the original card.

use super::{
    conversion_error::ConversionError,
    document_location::DocumentLocation,
    json_members::{get_member, object_array, quote_name, string_array, text_member},
    security_schemes,
    slug::{MESSAGE_OPERATION, operation_name, slug},
};
use crate::resolver::endpoint_hints::{binding_names, card_interfaces};
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, HashSet};

/// The most skills of a card: an agent has at most 256 operations, one of which takes any message.
const MAX_SKILLS: usize = 255;

/// Converts the card that was read at `location`; its list calls it `listed_name`.
///
/// # Errors
/// Why the card's agent cannot be called through the gateway.
pub(super) fn convert_card(
    card: Map<String, Value>,
    listed_name: Option<&str>,
    location: DocumentLocation<'_>,
) -> Result<Value, ConversionError> {
    let name = text_member(&card, "name").ok_or("name: is required")?.to_owned();
    let (operations, tags) = skill_operations(&card)?;
    let capabilities: Vec<Value> = operations.iter().filter_map(|operation| operation.get("name").cloned()).collect();
    let mut document = Map::new();
    let mut put = |name: &str, value: Value| drop(document.insert(name.to_owned(), value));
    put("id", slug(listed_name.unwrap_or(&name)).into());
    put("name", name.into());
    put("endpoint", json_rpc_url(&card, location)?.into());
    for field in ["description", "version"] {
        if let Some(value) = get_member(&card, field) {
            put(field, value.clone());
        }
    }
    let provider = get_member(&card, "provider").and_then(Value::as_object);
    if let Some(publisher) = provider.and_then(|provider| text_member(provider, "organization")) {
        put("publisher", publisher.into());
    }
    if let Some(authentication) = security_schemes::authentication_of_card(&card)? {
        put("authentication", authentication);
    }
    let message_operation = json!({"name": MESSAGE_OPERATION, "description": "Takes an A2A message for any skill."});
    put("operations", operations.into_iter().chain([message_operation]).collect());
    put("default_operation", MESSAGE_OPERATION.into());
    put("capabilities", capabilities.into());
    put("tags", tags.into());
    put("agent_card", Value::Object(card));
    Ok(Value::Object(document))
}

/// Returns the URL of the card's first JSON-RPC interface.
fn json_rpc_url(card: &Map<String, Value>, location: DocumentLocation<'_>) -> Result<String, ConversionError> {
    let interfaces = card_interfaces(card)?;
    match interfaces.iter().find_map(|interface| interface.url_for("JSONRPC")) {
        Some(url) => location.resolve(url).map(String::from).map_err(|why| format!("url: {why}").into()),
        None if !interfaces.iter().any(|interface| interface.binding.is_some() && interface.url.is_some()) => {
            Err("supportedInterfaces: must have an interface with protocolBinding JSONRPC and a url".into())
        }
        None => Err(ConversionError::unsupported(format!(
            "is an A2A card with the interfaces {} only (the gateway calls JSONRPC)",
            binding_names(&interfaces)
        ))),
    }
}

/// Returns one operation for each skill, and the tags of all skills.
fn skill_operations(card: &Map<String, Value>) -> Result<(Vec<Value>, Vec<String>), String> {
    let (mut operations, mut ids_by_operation, mut tags) = (Vec::new(), BTreeMap::new(), Vec::new());
    let mut known_tags = HashSet::new();
    let skills = object_array(card, "skills")?;
    if skills.len() > MAX_SKILLS {
        return Err(format!("skills: has {} skills (at most {MAX_SKILLS})", skills.len()));
    }
    for (at, skill) in skills {
        let id = text_member(skill, "id").or_else(|| text_member(skill, "name"));
        let id = id.ok_or_else(|| format!("skills[{at}].id: is required"))?;
        let mut name = operation_name(id);
        if name == MESSAGE_OPERATION {
            name.push_str("-skill");
        }
        if let Some(earlier) = ids_by_operation.insert(name.clone(), id) {
            let both = format!("{} and {}", quote_name(earlier), quote_name(id));
            return Err(format!(
                "skills: {both} both become the operation {name} (ids must differ in more than punctuation)"
            ));
        }
        let description = text_member(skill, "description").or_else(|| text_member(skill, "name")).unwrap_or_default();
        operations.push(json!({"name": name, "description": description}));
        for tag in string_array(skill, "tags") {
            if known_tags.insert(tag) {
                tags.push(tag.to_owned());
            }
        }
    }
    Ok((operations, tags))
}
