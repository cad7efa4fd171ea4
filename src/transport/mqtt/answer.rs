//! Parses what an agent publishes: a reply, an error or progress, and the task that it belongs to. Every message is
//! untrusted; an agent's own words about its failures go to the log only (R41, R117).
//!
//! The caller receives the member `response`: a string that contains a JSON object or array becomes that value, any
//! other string stays a JSON string. A JSON value that is not an envelope is the reply itself.

use crate::{
    broker::LARGEST,
    fault::{Code, Fault},
    unit::json,
};
use bytes::Bytes;
use serde::Deserialize;
use serde_json::{Map, Value, value::RawValue};

/// The maximum nesting of arrays and objects in a message.
const DEEPEST: u16 = 100;
/// The maximum number of characters of an agent's error that are logged.
const LOGGED: usize = 2_000;

/// A message on a conversation topic.
#[derive(Debug)]
pub(super) enum Said {
    /// The reply, as JSON text.
    Answer(Bytes),
    /// The agent's failure.
    Error(Fault),
    /// A message for another task.
    Foreign,
}

#[derive(Deserialize)]
struct Response<'a> {
    #[serde(borrow)]
    response: &'a RawValue,
}

/// Parses a message on the conversation of `task`. A message that cannot be parsed is a failure of the agent: only the
/// agent knows the conversation.
pub(super) fn read(payload: &Bytes, task: &str) -> Said {
    let broken = |why: &dyn std::fmt::Display| {
        Said::Error(Fault::new(Code::AgentError, "The agent's reply cannot be read").detail(why))
    };
    if payload.len() > LARGEST {
        return broken(&format_args!("the message is longer than {LARGEST} bytes"));
    }
    let value = match json::read(payload, DEEPEST) {
        Ok(value) => value,
        Err(why) => return broken(&format_args!("the message is not valid JSON: {why}")),
    };
    let Value::Object(members) = &value else {
        return Said::Answer(payload.clone());
    };
    let envelope = members.contains_key("response") || is_error(members, task);
    match members.get("task_id") {
        // A bare value may use this member for something else; a UUID, however, is the id of a task.
        Some(Value::String(told)) if told != task && (envelope || uuid::Uuid::try_parse(told).is_ok()) => {
            return Said::Foreign;
        }
        _ => {}
    }
    if is_error(members, task) {
        return Said::Error(failure(members.get("error")));
    }
    let Some(response) = members.get("response") else {
        return Said::Answer(payload.clone());
    };
    match response {
        Value::String(text) if is_json(text) => Said::Answer(Bytes::copy_from_slice(text.trim().as_bytes())),
        // The agent's own text, so that numbers beyond machine precision are not changed.
        _ => match serde_json::from_slice::<Response<'_>>(payload) {
            Ok(told) => Said::Answer(Bytes::copy_from_slice(told.response.get().as_bytes())),
            Err(why) => broken(&why),
        },
    }
}

/// Whether the members form an error message (R115): an error that names the task and has no response beside it,
/// whatever other members there are (R114), or an error without a member that could be the reply.
fn is_error(members: &Map<String, Value>, task: &str) -> bool {
    let error = members.get("error").is_some_and(|error| error.is_object() || error.is_string());
    let named = || members.get("task_id").is_some_and(|told| told == task);
    let bare = || members.get("response").is_none_or(Value::is_null);
    let known =
        |name: &String| matches!(name.as_str(), "error" | "task_id" | "conversation_id" | "agent_id" | "timestamp");
    error && ((named() && bare()) || members.keys().all(known))
}

/// Whether the string contains a JSON object or array, and nothing else.
fn is_json(text: &str) -> bool {
    text.trim_start().starts_with(['{', '[']) && json::read(text.trim().as_bytes(), DEEPEST).is_ok()
}

/// Maps the five error codes (R115) to faults; any other code is a failure of the agent.
fn failure(error: Option<&Value>) -> Fault {
    let code = error.and_then(|error| error.get("code")).and_then(Value::as_str).unwrap_or_default();
    let fault = match code {
        "invalid_input" => Fault::new(Code::InvalidInput, "The agent refused the input"),
        "pipeline_depth_exceeded" => Fault::new(Code::InvalidInput, "The pipeline is too deep for the agent"),
        _ => Fault::new(Code::AgentError, "The agent failed"),
    };
    let told = error.map(Value::to_string).unwrap_or_default();
    fault.detail(format_args!("the agent published an error: {}", json::cut(&told, LOGGED)))
}

/// A progress message: its conversation, its task, and its text on one line.
#[derive(Debug, PartialEq)]
pub(super) struct Progress {
    pub(super) conversation: String,
    pub(super) task: String,
    pub(super) text: String,
}

/// Parses a message on a progress topic; `None` where it does not name its conversation and task.
pub(super) fn progress(payload: &[u8]) -> Option<Progress> {
    if payload.len() > LARGEST {
        return None;
    }
    let value = json::read(payload, DEEPEST).ok()?;
    let text = |name: &str| Some(value.get(name)?.as_str()?.to_owned());
    Some(Progress { conversation: text("conversation_id")?, task: text("task_id")?, text: value.to_string() })
}
