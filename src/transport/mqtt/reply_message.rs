//! Parses the messages that an agent publishes: a reply, an error or progress, and the task that each belongs to. Every
//! message is untrusted; the agent's description of a failure goes to the log only (R41, R117).
//!
//! The caller receives the member `response`: a string that contains a JSON object or array becomes that value, any
//! other string stays a JSON string. A JSON value that is not an envelope is the reply itself.

use crate::{
    fault::{Fault, FaultCode},
    mqtt_client::MAX_MESSAGE_BYTES,
    values::json,
};
use bytes::Bytes;
use serde::Deserialize;
use serde_json::{Map, Value, value::RawValue};

/// The maximum nesting of arrays and objects in a message.
const MAX_DEPTH: u16 = 100;
/// The maximum number of characters of an agent's error that are logged.
const MAX_LOGGED_CHARS: usize = 2_000;

/// A message on a conversation topic.
#[derive(Debug)]
pub(super) enum ReplyMessage {
    /// The reply, as JSON text.
    Output(Bytes),
    /// The agent's failure.
    Error(Fault),
    /// A message for another task.
    OtherTask,
}

#[derive(Deserialize)]
struct ResponseMember<'a> {
    #[serde(borrow)]
    response: &'a RawValue,
}

/// Parses a message on the conversation of `task`. A message that cannot be parsed is a failure of the agent: only the
/// agent knows the conversation.
pub(super) fn parse_reply(payload: &Bytes, task: &str) -> ReplyMessage {
    let unreadable = |reason: &dyn std::fmt::Display| {
        ReplyMessage::Error(Fault::new(FaultCode::AgentError, "The agent's reply cannot be read").with_detail(reason))
    };
    if payload.len() > MAX_MESSAGE_BYTES {
        return unreadable(&format_args!("the message is longer than {MAX_MESSAGE_BYTES} bytes"));
    }
    let value = match json::parse(payload, MAX_DEPTH) {
        Ok(value) => value,
        Err(error) => return unreadable(&format_args!("the message is not valid JSON: {error}")),
    };
    let Value::Object(members) = &value else {
        return ReplyMessage::Output(payload.clone());
    };
    let is_envelope = members.contains_key("response") || is_error_message(members, task);
    match members.get("task_id") {
        // A bare value may use this member for something else; a UUID, however, is the id of a task.
        Some(Value::String(task_id)) if task_id != task && (is_envelope || uuid::Uuid::try_parse(task_id).is_ok()) => {
            return ReplyMessage::OtherTask;
        }
        _ => {}
    }
    if is_error_message(members, task) {
        return ReplyMessage::Error(error_fault(members.get("error")));
    }
    let Some(response) = members.get("response") else {
        return ReplyMessage::Output(payload.clone());
    };
    match response {
        Value::String(text) if is_json_container(text) => {
            ReplyMessage::Output(Bytes::copy_from_slice(text.trim().as_bytes()))
        }
        // The agent's own text, so that numbers beyond machine precision are not changed.
        _ => match serde_json::from_slice::<ResponseMember<'_>>(payload) {
            Ok(message) => ReplyMessage::Output(Bytes::copy_from_slice(message.response.get().as_bytes())),
            Err(error) => unreadable(&error),
        },
    }
}

/// Whether the members form an error message (R115): an error that names the task and has no response beside it,
/// whatever its other members are (R114), or an error without a member that could be the reply.
fn is_error_message(members: &Map<String, Value>, task: &str) -> bool {
    let has_error = members.get("error").is_some_and(|error| error.is_object() || error.is_string());
    let names_task = || members.get("task_id").is_some_and(|task_id| task_id == task);
    let has_no_response = || members.get("response").is_none_or(Value::is_null);
    let is_error_member =
        |name: &String| matches!(name.as_str(), "error" | "task_id" | "conversation_id" | "agent_id" | "timestamp");
    has_error && ((names_task() && has_no_response()) || members.keys().all(is_error_member))
}

/// Whether the string contains a JSON object or array, and nothing else.
fn is_json_container(text: &str) -> bool {
    text.trim_start().starts_with(['{', '[']) && json::parse(text.trim().as_bytes(), MAX_DEPTH).is_ok()
}

/// Maps the five error codes (R115) to faults; any other code is a failure of the agent.
fn error_fault(error: Option<&Value>) -> Fault {
    let code = error.and_then(|error| error.get("code")).and_then(Value::as_str).unwrap_or_default();
    let fault = match code {
        "invalid_input" => Fault::new(FaultCode::InvalidInput, "The agent refused the input"),
        "pipeline_depth_exceeded" => Fault::new(FaultCode::InvalidInput, "The pipeline is too deep for the agent"),
        _ => Fault::from(FaultCode::AgentError),
    };
    let text = error.map(Value::to_string).unwrap_or_default();
    fault.with_detail(format_args!("the agent published an error: {}", json::truncate(&text, MAX_LOGGED_CHARS)))
}

/// A progress message: its conversation, its task, and its text on one line.
#[derive(Debug, PartialEq)]
pub(super) struct ProgressMessage {
    pub(super) conversation: String,
    pub(super) task: String,
    pub(super) text: String,
}

/// Parses a message on a progress topic; `None` where it does not name its conversation and task.
pub(super) fn parse_progress(payload: &[u8]) -> Option<ProgressMessage> {
    if payload.len() > MAX_MESSAGE_BYTES {
        return None;
    }
    let value = json::parse(payload, MAX_DEPTH).ok()?;
    let text = |name: &str| Some(value.get(name)?.as_str()?.to_owned());
    Some(ProgressMessage { conversation: text("conversation_id")?, task: text("task_id")?, text: value.to_string() })
}
