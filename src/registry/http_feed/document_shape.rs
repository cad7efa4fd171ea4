//! Recognises the shapes of documents, and unwraps envelopes.

use super::{
    json_members::{get_member, quote_name, text_member},
    slug::slug,
};
use serde_json::{Map, Value};

/// Returns whether the document is AIDIP metadata: it has an endpoint and describes itself in AIDIP's terms.
pub(super) fn is_aidip_document(members: &Map<String, Value>) -> bool {
    let has_capability_objects = match members.get("capabilities") {
        Some(Value::Array(entries)) => entries.iter().any(Value::is_object),
        _ => false,
    };
    let has_schemes = members
        .get("authentication")
        .is_some_and(|authentication| authentication.get("type").is_none() && authentication.is_object());
    members.contains_key("endpoint") && !has_capability_objects && !has_schemes && !members.contains_key("@context")
}

/// Returns whether this is a catalog entry: a type, and the card or its URL.
pub(super) fn is_catalog_entry(members: &Map<String, Value>) -> bool {
    let has_any = |fields: &[&str]| fields.iter().any(|field| members.contains_key(*field));
    let typed = text_member(members, "type").is_some() || text_member(members, "mediaType").is_some();
    let has_card =
        members.contains_key("identifier") || (typed && has_any(&["url", "href", "data", "card", "content"]));
    has_card && !has_any(&["skills", "endpoint", "endpoints", "supportedInterfaces"])
}

/// Returns whether catalogs use this media type for agents; without a type, the document decides.
pub(super) fn is_agent_media_type(media: &str) -> bool {
    let media = media.to_ascii_lowercase();
    media.is_empty() || media.contains("a2a") || media.contains("agent")
}

/// Returns the content of an envelope: agentregistry's, or a lone member `agent`.
///
/// # Errors
/// The envelope has another kind than Agent, or an agent without an endpoint.
pub(super) fn unwrap_envelope(members: &Map<String, Value>) -> Result<Option<Map<String, Value>>, String> {
    if members.contains_key("apiVersion") && members.get("spec").is_some_and(Value::is_object) {
        return unwrap_agentregistry_entry(members).map(Some);
    }
    let envelope = members.len() <= 3 && !members.contains_key("id");
    Ok(members.get("agent").and_then(Value::as_object).filter(|_| envelope).cloned())
}

/// Unwraps an entry of agentregistry: `spec` describes the agent, `metadata` has its name.
fn unwrap_agentregistry_entry(entry: &Map<String, Value>) -> Result<Map<String, Value>, String> {
    if let Some(other) = text_member(entry, "kind").filter(|kind| !kind.to_ascii_lowercase().contains("agent")) {
        return Err(format!("is of kind {}, not Agent", quote_name(other)));
    }
    let object_member = |name: &str| entry.get(name).and_then(Value::as_object).cloned().unwrap_or_default();
    let (metadata, mut spec) = (object_member("metadata"), object_member("spec"));
    if let Some(Value::Object(card)) = get_member(&spec, "agentCard").or_else(|| get_member(&spec, "card")) {
        return Ok(card.clone());
    }
    let name = text_member(&metadata, "name")
        .or_else(|| text_member(&spec, "name"))
        .ok_or("metadata.name: is required")?
        .to_owned();
    let title =
        ["title", "displayName"].into_iter().find_map(|field| text_member(&spec, field)).unwrap_or(&name).to_owned();
    let remote = get_member(&spec, "remote").or_else(|| get_member(&spec, "remotes")?.as_array()?.first());
    let remote = remote.and_then(|remote| remote.get("url")).cloned();
    let version = text_member(&metadata, "version").or_else(|| text_member(&metadata, "tag")).map(str::to_owned);
    spec.entry("id").or_insert_with(|| slug(&name).into());
    spec.entry("name").or_insert_with(|| title.into());
    for (field, value) in [("endpoint", remote), ("version", version.map(Value::from))] {
        if let Some(value) = value {
            spec.entry(field).or_insert(value);
        }
    }
    if !spec.contains_key("endpoint") {
        let url = spec.get("url").cloned().ok_or("spec: must have endpoint, url or remote.url")?;
        spec.insert("endpoint".to_owned(), url);
    }
    Ok(spec)
}
