//! Status messages: parses the topic and the payload, and builds the agent's document from them.
//! A message cannot name another agent or another address than its topic does.

use crate::{
    agent::AgentId,
    broker::{LARGEST, canonical},
    unit::json,
};
use bytes::Bytes;
use serde_json::{Map, Value};

/// Topic filters to subscribe to: the specification's, and the spelling that other clients use (R109).
pub(super) const FILTERS: [&str; 2] = ["/control/agents/+/status", "control/agents/+/status"];
/// Maximum nesting depth of arrays and objects in one message.
const DEEPEST: u16 = 60;

/// Availability of an agent.
#[derive(Debug, PartialEq)]
pub(super) enum Status {
    /// The agent takes calls; the fields of its status.
    Available(Map<String, Value>),
    /// The agent takes no calls, by its own status or its last will (R119).
    Unavailable,
    /// The retained message was cleared: the agent does not exist.
    Cleared,
}

/// A valid status message.
#[derive(Debug, PartialEq)]
pub(super) struct Told {
    pub(super) status: Status,
    /// Whether the timestamp is missing or not in RFC 3339 with Z (R114). Nothing depends on it.
    pub(super) odd_time: bool,
}

/// Returns the agent whose status is published on `topic`; `None` for any other topic.
pub(super) fn agent_of(topic: &str) -> Option<String> {
    let topic = canonical(topic);
    let id = topic.strip_prefix("/control/agents/")?.strip_suffix("/status")?;
    (!id.contains('/')).then(|| id.to_owned())
}

/// Parses a message of the status topic of `id`.
///
/// # Errors
/// Why the message is invalid.
pub(super) fn read(id: &str, payload: &[u8]) -> Result<Told, String> {
    if payload.is_empty() {
        return Ok(Told { status: Status::Cleared, odd_time: false });
    }
    if !AgentId::fits(id) {
        return Err("the agent id in the topic must be 1 to 128 of A-Z a-z 0-9 . _ - and not . or ..".to_owned());
    }
    if payload.len() > LARGEST {
        return Err(format!("the status has more than {LARGEST} bytes"));
    }
    let value = json::read(payload, DEEPEST).map_err(|why| format!("the status is not JSON: {why}"))?;
    let Value::Object(fields) = value else {
        return Err(format!("the status must be a JSON object, not {}", json::kind(&value)));
    };
    match fields.get("agent_id") {
        Some(Value::String(named)) if named == id => {}
        Some(Value::String(named)) => {
            return Err(format!("agent_id: must be '{id}', as in the topic, not '{}'", json::cut(named, 128)));
        }
        _ => return Err("agent_id: is required and must be a string".to_owned()),
    }
    let odd_time = !fields.get("timestamp").and_then(Value::as_str).is_some_and(is_moment);
    let status = match fields.get("status").and_then(Value::as_str) {
        Some("available") => Status::Available(fields),
        Some("unavailable") => Status::Unavailable,
        _ => return Err("status: must be available or unavailable".to_owned()),
    };
    Ok(Told { status, odd_time })
}

fn is_moment(text: &str) -> bool {
    let moment = time::OffsetDateTime::parse(text, &time::format_description::well_known::Rfc3339);
    text.ends_with('Z') && moment.is_ok()
}

/// Builds the document of an agent. Fields beyond the protocol are kept (R113, R114), except the timestamp, so that a
/// heartbeat does not change the document.
pub(super) fn document(mut fields: Map<String, Value>, id: &str, broker: &str, available: bool) -> Bytes {
    for own in ["agent_id", "timestamp"] {
        fields.remove(own);
    }
    fields.entry("name").or_insert_with(|| id.into());
    // The endpoint follows from the topic (R107): a message cannot send callers elsewhere.
    fields.insert("endpoint".to_owned(), format!("{broker}/control/agents/{id}/input").into());
    fields.insert("id".to_owned(), id.into());
    fields.insert("status".to_owned(), if available { "active" } else { "inactive" }.into());
    Value::Object(fields).to_string().into()
}
