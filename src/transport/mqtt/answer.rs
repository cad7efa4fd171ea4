//! What an agent publishes, read: an answer, an error or progress, and for which task. Everything in it is hostile
//! until it is read; an agent's own words about its failures go to the log alone (R41, R117).
//!
//! The caller gets what `response` holds: a string that is a JSON object or array is that, another string is a JSON
//! string. A JSON value that is no envelope is the answer as it is.

use crate::{
    broker::LARGEST,
    fault::{Code, Fault},
    unit::json,
};
use bytes::Bytes;
use serde::Deserialize;
use serde_json::{Map, Value, value::RawValue};

/// Nested arrays and objects in a message.
const DEEPEST: u16 = 100;
/// Characters of an agent's own words that the log keeps.
const LOGGED: usize = 2_000;

/// What a message on a conversation's topic says.
#[derive(Debug)]
pub(super) enum Said {
    /// The answer, as JSON text.
    Answer(Bytes),
    /// The agent has failed.
    Error(Fault),
    /// It belongs to another task.
    Foreign,
}

#[derive(Deserialize)]
struct Response<'a> {
    #[serde(borrow)]
    response: &'a RawValue,
}

/// Reads a message on the conversation of `task`. What cannot be read is a failure of the agent: nobody else knows
/// the conversation.
pub(super) fn read(payload: &Bytes, task: &str) -> Said {
    let broken = |why: &dyn std::fmt::Display| {
        Said::Error(Fault::new(Code::AgentError, "The agent's answer cannot be read.").detail(why))
    };
    if payload.len() > LARGEST {
        return broken(&format_args!("it has more than {LARGEST} bytes"));
    }
    let value = match json::read(payload, DEEPEST) {
        Ok(value) => value,
        Err(why) => return broken(&format_args!("it is not JSON: {why}")),
    };
    let Value::Object(members) = &value else {
        return Said::Answer(payload.clone());
    };
    let envelope = members.contains_key("response") || is_error(members, task);
    match members.get("task_id") {
        // A bare value may have a member of that name that means something else; one that is a UUID means a task.
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
        // The text as the agent wrote it: a number too long for a machine stays what it is.
        _ => match serde_json::from_slice::<Response<'_>>(payload) {
            Ok(told) => Said::Answer(Bytes::copy_from_slice(told.response.get().as_bytes())),
            Err(why) => broken(&why),
        },
    }
}

/// Whether the members are those of an error message (R115): one that names the task and has no response beside it,
/// whatever else it has (R114), or one in which nothing else could be an answer.
fn is_error(members: &Map<String, Value>, task: &str) -> bool {
    let error = members.get("error").is_some_and(|error| error.is_object() || error.is_string());
    let named = || members.get("task_id").is_some_and(|told| told == task);
    let bare = || members.get("response").is_none_or(Value::is_null);
    let known =
        |name: &String| matches!(name.as_str(), "error" | "task_id" | "conversation_id" | "agent_id" | "timestamp");
    error && ((named() && bare()) || members.keys().all(known))
}

/// Whether a string holds an object or an array, and nothing else.
fn is_json(text: &str) -> bool {
    text.trim_start().starts_with(['{', '[']) && json::read(text.trim().as_bytes(), DEEPEST).is_ok()
}

/// The five codes (R115) as ours; a code beyond them is a failure of the agent.
fn failure(error: Option<&Value>) -> Fault {
    let code = error.and_then(|error| error.get("code")).and_then(Value::as_str).unwrap_or_default();
    let fault = match code {
        "invalid_input" => Fault::new(Code::InvalidInput, "The agent refused the input."),
        "pipeline_depth_exceeded" => Fault::new(Code::InvalidInput, "The pipeline is deeper than the agent takes."),
        _ => Fault::new(Code::AgentError, "The agent failed."),
    };
    let told = error.map(Value::to_string).unwrap_or_default();
    fault.detail(format_args!("the agent published an error: {}", json::cut(&told, LOGGED)))
}

/// A message of progress: for which conversation and task, and its text in one line.
#[derive(Debug, PartialEq)]
pub(super) struct Progress {
    pub(super) conversation: String,
    pub(super) task: String,
    pub(super) text: String,
}

/// Reads a message on a topic of progress; `None` where it does not say for which call it is.
pub(super) fn progress(payload: &[u8]) -> Option<Progress> {
    if payload.len() > LARGEST {
        return None;
    }
    let value = json::read(payload, DEEPEST).ok()?;
    let text = |name: &str| Some(value.get(name)?.as_str()?.to_owned());
    Some(Progress { conversation: text("conversation_id")?, task: text("task_id")?, text: value.to_string() })
}
