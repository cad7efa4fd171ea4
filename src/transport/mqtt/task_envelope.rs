//! The task envelope (R110–R112). It is written once, with ids that belong to this call alone.
//!
//! `instruction` is the first of these: the instruction of the request (a pipeline step), a string member `instruction`
//! of the input, the operation's name, null. The input is forwarded unchanged. The ids that the caller gave its call have
//! the names that Matrix messages use (R78); `task_id` is the protocol's own.

use crate::{
    fault::{Fault, FaultCode},
    mqtt_client::MAX_MESSAGE_BYTES,
    transport::HeaderMutations,
    values::json,
};
use bytes::Bytes;
use http::{HeaderMap, HeaderValue};
use serde::Serialize;
use serde_json::{Value, value::RawValue};

/// The maximum nesting of arrays and objects in an input.
const MAX_DEPTH: u16 = 100;

/// The validated input of a task, with its instruction.
#[derive(Debug)]
pub(super) struct TaskInput {
    input: Box<RawValue>,
    instruction: Option<String>,
    pub(super) call_ids: CallIds,
    /// The trace context, as user properties of the message.
    pub(super) trace_context: Vec<(String, String)>,
}

/// The session and the task that the caller named, if it did (R78).
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct CallIds {
    session: Option<String>,
    task: Option<String>,
}

impl CallIds {
    /// Reads the ids from the fields that the gateway sets, which include those of the query, and from the caller's.
    pub(super) fn from_fields(mutations: &HeaderMutations<'_>, headers: &HeaderMap) -> Self {
        let read = |name: &str| {
            let set = mutations.set.iter().find_map(|(set, value)| (set == name).then_some(value));
            set.or_else(|| headers.get(name)).and_then(|value: &HeaderValue| value.to_str().ok()).map(str::to_owned)
        };
        Self { session: read("x-session-id"), task: read("x-task-id") }
    }
}

#[derive(Serialize)]
struct TaskEnvelope<'a> {
    task_id: &'a str,
    conversation_id: &'a str,
    topic: &'a str,
    instruction: Option<&'a str>,
    input: &'a RawValue,
    next: Option<()>,
    #[serde(rename = "sessionId", skip_serializing_if = "Option::is_none")]
    session_id: Option<&'a str>,
    #[serde(rename = "taskId", skip_serializing_if = "Option::is_none")]
    caller_task_id: Option<&'a str>,
}

impl TaskInput {
    /// Parses an input: an object, or a string (R111); an empty body is an empty object.
    ///
    /// # Errors
    /// 400 for anything else.
    pub(super) fn parse(body: &[u8], operation: &str, request_instruction: Option<&str>) -> Result<Self, Fault> {
        let is_empty = body.iter().all(|byte| b" \t\r\n".contains(byte));
        let body = if is_empty { b"{}" } else { body };
        let refuse = |message: String| Fault::new(FaultCode::InvalidInput, message);
        let value =
            json::parse(body, MAX_DEPTH).map_err(|error| refuse(format!("The body is not valid JSON: {error}")))?;
        if !matches!(value, Value::Object(_) | Value::String(_)) {
            let kind = json::type_name(&value);
            return Err(refuse(format!("This agent takes a JSON object or a string, not {kind}")));
        }
        let input =
            serde_json::from_slice(body).map_err(|error| refuse(format!("The body is not valid JSON: {error}")))?;
        let input_instruction = || value.get("instruction").and_then(Value::as_str);
        let instruction =
            request_instruction.or_else(input_instruction).or(Some(operation).filter(|name| !name.is_empty()));
        Ok(Self {
            input,
            instruction: instruction.map(str::to_owned),
            call_ids: CallIds::default(),
            trace_context: Vec::new(),
        })
    }

    /// Serializes the envelope for the agent at `topic`.
    ///
    /// # Errors
    /// 413 where the envelope is longer than agents accept (R116).
    pub(super) fn serialize_envelope(&self, topic: &str, task: &str, conversation: &str) -> Result<Bytes, Fault> {
        let envelope = TaskEnvelope {
            task_id: task,
            conversation_id: conversation,
            topic,
            instruction: self.instruction.as_deref(),
            input: &self.input,
            // The gateway calls the next step itself, so that it checks and counts every step.
            next: None,
            session_id: self.call_ids.session.as_deref(),
            caller_task_id: self.call_ids.task.as_deref(),
        };
        let text =
            serde_json::to_vec(&envelope).map_err(|error| Fault::from(FaultCode::Internal).with_detail(error))?;
        if text.len() > MAX_MESSAGE_BYTES { Err(too_large_fault(MAX_MESSAGE_BYTES)) } else { Ok(text.into()) }
    }
}

/// The fault of a message that is longer than the agent or the broker accepts.
pub(super) fn too_large_fault(max_bytes: usize) -> Fault {
    let kib = max_bytes >> 10;
    Fault::new(
        FaultCode::PayloadTooLarge,
        format!("The input is too large for this agent (at most {kib} KiB with its envelope)"),
    )
}

/// Returns the agent whose input topic `topic` is, in any spelling (R109).
pub(super) fn agent_from_topic(topic: &str) -> Option<String> {
    let topic = crate::mqtt_client::canonical_topic(topic);
    let id = topic.strip_prefix("/control/agents/")?.strip_suffix("/input")?;
    (!id.contains('/')).then(|| id.to_owned())
}
