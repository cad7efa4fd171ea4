//! Recognises the shapes of documents, and unwraps envelopes.

use super::{
    conversion_error::ConversionError,
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

/// What the type of a catalogue's entry says about its document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CatalogEntryType {
    /// An agent's document, of the form that its members show; so is an entry without a type.
    Agent,
    /// An AI Catalog.
    Catalog,
    /// The card of an MCP server.
    McpServer,
    /// Something else, such as a skill or a data set.
    Other,
}

impl CatalogEntryType {
    /// Returns what this media type means in catalogues.
    pub(super) fn of_media_type(media: &str) -> Self {
        let media = media.to_ascii_lowercase();
        let has = |word: &str| media.contains(word);
        if has("ai-catalog") {
            Self::Catalog
        } else if has("mcp") {
            Self::McpServer
        } else if media.is_empty() || has("a2a") || has("agent") || has("openapi") {
            Self::Agent
        } else {
            Self::Other
        }
    }
}

/// How a document is read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) enum DocumentForm {
    /// In the form that its members show.
    #[default]
    OfMembers,
    /// As the card of an MCP server, because its list says so.
    McpServer,
}

/// The content of an envelope.
#[derive(Debug)]
pub(super) struct Unwrapped {
    pub(super) members: Map<String, Value>,
    pub(super) form: DocumentForm,
}

/// Returns the content of an envelope: agentregistry's, or a lone member `agent`.
///
/// # Errors
/// The envelope has neither an agent nor an MCP server, or an agent without an endpoint.
pub(super) fn unwrap_envelope(members: &Map<String, Value>) -> Result<Option<Unwrapped>, ConversionError> {
    if members.contains_key("apiVersion") && members.get("spec").is_some_and(Value::is_object) {
        return unwrap_agentregistry_entry(members).map(Some);
    }
    let envelope = members.len() <= 3 && !members.contains_key("id");
    let agent = members.get("agent").and_then(Value::as_object).filter(|_| envelope).cloned();
    Ok(agent.map(|members| Unwrapped { members, form: DocumentForm::OfMembers }))
}

/// Unwraps an entry of agentregistry: `spec` describes the agent, `metadata` has its name.
fn unwrap_agentregistry_entry(entry: &Map<String, Value>) -> Result<Unwrapped, ConversionError> {
    let kind = text_member(entry, "kind").unwrap_or("Agent");
    let is_mcp_server = kind.to_ascii_lowercase().contains("mcp");
    if !is_mcp_server && !kind.to_ascii_lowercase().contains("agent") {
        return Err(ConversionError::unsupported(format!("is of kind {}, which is not an agent", quote_name(kind))));
    }
    let object_member = |name: &str| entry.get(name).and_then(Value::as_object).cloned().unwrap_or_default();
    let (metadata, mut spec) = (object_member("metadata"), object_member("spec"));
    if let Some(Value::Object(card)) = get_member(&spec, "agentCard").or_else(|| get_member(&spec, "card")) {
        return Ok(Unwrapped { members: card.clone(), form: DocumentForm::OfMembers });
    }
    let name = text_member(&metadata, "name")
        .or_else(|| text_member(&spec, "name"))
        .ok_or("metadata.name: is required")?
        .to_owned();
    let version = text_member(&metadata, "version").or_else(|| text_member(&metadata, "tag")).map(str::to_owned);
    if is_mcp_server {
        spec.insert("name".to_owned(), name.into());
        if let Some(version) = version {
            spec.entry("version").or_insert_with(|| version.into());
        }
        return Ok(Unwrapped { members: spec, form: DocumentForm::McpServer });
    }
    let title =
        ["title", "displayName"].into_iter().find_map(|field| text_member(&spec, field)).unwrap_or(&name).to_owned();
    let remote = get_member(&spec, "remote").or_else(|| get_member(&spec, "remotes")?.as_array()?.first());
    let remote = remote.and_then(|remote| remote.get("url")).cloned();
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
    Ok(Unwrapped { members: spec, form: DocumentForm::OfMembers })
}
