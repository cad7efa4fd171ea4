//! Status messages: parses the topic and the payload, and builds the agent's document from them.
//! A message cannot name another agent or another address than its topic does.

use crate::{
    agent::AgentId,
    mqtt_client::{MAX_MESSAGE_BYTES, canonical_topic},
    values::json,
};
use bytes::Bytes;
use serde_json::{Map, Value};

/// Topic filters to subscribe to: the specification's, and the spelling that other clients use (R109).
pub(super) const STATUS_TOPIC_FILTERS: [&str; 2] = ["/control/agents/+/status", "control/agents/+/status"];
/// Maximum nesting depth of arrays and objects in one message.
const MAX_DEPTH: u16 = 60;

/// Availability of an agent.
#[derive(Debug, PartialEq)]
pub(super) enum Availability {
    /// The agent takes calls; the fields of its status.
    Available(Map<String, Value>),
    /// The agent takes no calls, by its own status or its last will (R119).
    Unavailable,
    /// The retained message was cleared: the agent does not exist.
    Cleared,
}

/// A valid status message.
#[derive(Debug, PartialEq)]
pub(super) struct StatusMessage {
    pub(super) availability: Availability,
    /// Whether the timestamp is missing or not in RFC 3339 with Z (R114). Nothing depends on it.
    pub(super) invalid_timestamp: bool,
}

/// Returns the agent whose status is published on `topic`; `None` for any other topic.
pub(super) fn agent_id_of_topic(topic: &str) -> Option<String> {
    let topic = canonical_topic(topic);
    let id = topic.strip_prefix("/control/agents/")?.strip_suffix("/status")?;
    (!id.contains('/')).then(|| id.to_owned())
}

/// Parses a message of the status topic of `id`.
///
/// # Errors
/// Why the message is invalid.
pub(super) fn parse_status(id: &str, payload: &[u8]) -> Result<StatusMessage, String> {
    if payload.is_empty() {
        return Ok(StatusMessage { availability: Availability::Cleared, invalid_timestamp: false });
    }
    if !AgentId::is_valid(id) {
        return Err("the agent id in the topic must be 1 to 128 of A-Z a-z 0-9 . _ - and not . or ..".to_owned());
    }
    if payload.len() > MAX_MESSAGE_BYTES {
        return Err(format!("the status has more than {MAX_MESSAGE_BYTES} bytes"));
    }
    let value = json::parse(payload, MAX_DEPTH).map_err(|why| format!("the status is not JSON: {why}"))?;
    let Value::Object(fields) = value else {
        return Err(format!("the status must be a JSON object, not {}", json::type_name(&value)));
    };
    match fields.get("agent_id") {
        Some(Value::String(agent_id)) if agent_id == id => {}
        Some(Value::String(agent_id)) => {
            return Err(format!("agent_id: must be '{id}', as in the topic, not '{}'", json::truncate(agent_id, 128)));
        }
        _ => return Err("agent_id: is required and must be a string".to_owned()),
    }
    let invalid_timestamp = !fields.get("timestamp").and_then(Value::as_str).is_some_and(is_rfc3339_utc);
    let availability = match fields.get("status").and_then(Value::as_str) {
        Some("available") => Availability::Available(fields),
        Some("unavailable") => Availability::Unavailable,
        _ => return Err("status: must be available or unavailable".to_owned()),
    };
    Ok(StatusMessage { availability, invalid_timestamp })
}

fn is_rfc3339_utc(text: &str) -> bool {
    let parsed = time::OffsetDateTime::parse(text, &time::format_description::well_known::Rfc3339);
    text.ends_with('Z') && parsed.is_ok()
}

/// Builds the document of an agent. Fields beyond the protocol are kept (R113, R114), except the timestamp, so that a
/// heartbeat does not change the document.
pub(super) fn build_document(mut fields: Map<String, Value>, id: &str, broker: &str, available: bool) -> Bytes {
    for field in ["agent_id", "timestamp"] {
        fields.remove(field);
    }
    fields.entry("name").or_insert_with(|| id.into());
    // The endpoint follows from the topic (R107): a message cannot send callers elsewhere.
    fields.insert("endpoint".to_owned(), format!("{broker}/control/agents/{id}/input").into());
    fields.insert("id".to_owned(), id.into());
    fields.insert("status".to_owned(), if available { "active" } else { "unavailable" }.into());
    Value::Object(fields).to_string().into()
}
