//! Validation of a task envelope and the messages that result from a task, in the order of the protocol's steps (R120).
//! The members of an envelope stay raw JSON until their step, so that a malformed or deeply nested member does not
//! prevent the validation of the others.

mod bridge_task;

use bridge_task::NextStep;
pub(super) use bridge_task::{BridgeTask, CallIds, OutgoingMessage};

use super::{
    MAX_PIPELINE_STEPS,
    deduplication::RecentTaskIds,
    mqtt_topic::{self, NextTarget},
    payload::{TaskError, TaskErrorCode},
};
use crate::{
    mqtt_client::{MAX_MESSAGE_BYTES, canonical_topic},
    values::{json, sha256},
};
use bytes::Bytes;
use serde_json::{Value, value::RawValue};
use std::time::Instant;
use uuid::Uuid;

/// Maximum nesting of arrays and objects in an input; the agent's contract may demand less.
const MAX_INPUT_DEPTH: u16 = json::MAX_DEPTH - 10;
/// Maximum length of a session id and of a task id that a caller gave its call, as in the header fields of HTTP calls.
const MAX_CALL_ID_BYTES: usize = 256;
/// Maximum number of remembered ids of refused tasks.
const MAX_REFUSED_IDS: usize = 1_000;

/// Result of validating a message.
#[derive(Debug, PartialEq)]
pub(super) enum TaskVerdict {
    /// Publish nothing; the reason goes to the log.
    Discard(&'static str),
    /// Publish nothing: a task with this id was received before.
    Duplicate(Uuid),
    /// Publish an error.
    Refuse(OutgoingMessage),
    /// Call the agent.
    Process(Box<BridgeTask>),
}

/// An envelope, or a `next` member of one: its members as raw JSON. Unknown members are ignored (R114).
#[derive(serde::Deserialize)]
struct ReceivedEnvelope<'a> {
    #[serde(borrow, default)]
    task_id: Option<&'a RawValue>,
    #[serde(borrow, default)]
    conversation_id: Option<&'a RawValue>,
    #[serde(borrow, default)]
    topic: Option<&'a RawValue>,
    #[serde(borrow, default)]
    instruction: Option<&'a RawValue>,
    #[serde(borrow, default)]
    input: Option<&'a RawValue>,
    #[serde(borrow, default)]
    next: Option<&'a RawValue>,
    #[serde(borrow, default, rename = "sessionId")]
    session_id: Option<&'a RawValue>,
    #[serde(borrow, default, rename = "taskId")]
    caller_task_id: Option<&'a RawValue>,
}

/// The id of a task.
struct TaskId {
    uuid: Uuid,
    /// The id in the sender's spelling.
    text: String,
}

/// Validates the messages to one agent, and discards duplicates.
#[derive(Debug)]
pub(super) struct TaskValidator {
    agent: String,
    topic: String,
    recent_ids: RecentTaskIds,
    /// The ids of refused tasks, apart: they must not replace those of tasks that were executed.
    refused_ids: RecentTaskIds,
    /// Topic filters of the destinations that a task may name.
    final_destinations: Vec<String>,
}

impl TaskValidator {
    pub(super) fn new(agent: &str, recent_ids: RecentTaskIds, final_destinations: Vec<String>) -> Self {
        let refused_ids = recent_ids.with_capacity(MAX_REFUSED_IDS);
        let topic = mqtt_topic::input_topic(agent);
        Self { agent: agent.to_owned(), topic, recent_ids, refused_ids, final_destinations }
    }

    /// Id of the agent.
    pub(super) fn agent(&self) -> &str {
        &self.agent
    }

    /// Forgets tasks whose results could not be published, so that the broker may deliver them again.
    pub(super) fn forget(&mut self, tasks: &[Uuid]) {
        for task in tasks {
            self.recent_ids.remove(task);
        }
    }

    /// Executes steps 1 to 6 of the protocol and records the id of the task.
    pub(super) fn validate_and_deduplicate(&mut self, message: &IncomingTask<'_>, now: Instant) -> TaskVerdict {
        if message.retained {
            return TaskVerdict::Discard("retained message");
        }
        if canonical_topic(message.topic) != self.topic {
            return TaskVerdict::Discard("received on another topic");
        }
        if message.payload.len() > MAX_MESSAGE_BYTES {
            return TaskVerdict::Discard("longer than 256 KiB");
        }
        let Some(envelope) = std::str::from_utf8(message.payload).ok().and_then(ReceivedEnvelope::parse) else {
            return TaskVerdict::Discard("not a task envelope");
        };
        // R120: no error is published for a task whose topic belongs to another agent.
        if parse_string(envelope.topic).is_none_or(|topic| canonical_topic(&topic) != self.topic) {
            return TaskVerdict::Discard("its topic differs from the topic it was received on");
        }
        let id = parse_string(envelope.task_id).filter(|id| is_task_id(id));
        let id = id.and_then(|text| Some(TaskId { uuid: Uuid::parse_str(&text).ok()?, text }));
        let recognised_by = id.as_ref().map_or_else(|| message.payload_id(), |id| id.uuid);
        // Without an id, only the broker can say that the message is the same.
        if (id.is_some() || message.repeated)
            && (self.recent_ids.contains(&recognised_by, now) || self.refused_ids.contains(&recognised_by, now))
        {
            return TaskVerdict::Duplicate(recognised_by);
        }
        let conversation = parse_string(envelope.conversation_id);
        if conversation.as_ref().is_some_and(|id| !mqtt_topic::has_only_mqtt_characters(id)) {
            return TaskVerdict::Discard("its conversation_id has a control character or a noncharacter");
        }
        let conversation = conversation.filter(|id| mqtt_topic::is_conversation_id(id));
        let step_count = envelope.count_steps();
        let task = match step_count {
            Ok(step_count) if step_count > MAX_PIPELINE_STEPS => {
                let message = format!("The pipeline has more than {MAX_PIPELINE_STEPS} further steps");
                Err(TaskError::new(TaskErrorCode::PipelineDepthExceeded, message))
            }
            Ok(_) => self.parse_task(&envelope, id.as_ref(), conversation.as_deref()),
            Err(error) => Err(error),
        };
        match (task, conversation) {
            (Ok(task), _) => {
                self.recent_ids.insert_if_new(task.uuid, now);
                TaskVerdict::Process(Box::new(task))
            }
            (Err(error), Some(conversation)) => {
                let topic = mqtt_topic::conversation_topic(&conversation, &self.agent);
                self.refused_ids.insert_if_new(recognised_by, now);
                let id = id.as_ref().map(|id| id.text.as_str());
                TaskVerdict::Refuse(OutgoingMessage::response(topic, error.payload(id)))
            }
            // R123: without a conversation, no error is published.
            (Err(_), None) => TaskVerdict::Discard("invalid, and without a conversation for the error"),
        }
    }

    /// Validates the whole envelope: step 6 (R110–R112).
    fn parse_task(
        &self,
        envelope: &ReceivedEnvelope<'_>,
        id: Option<&TaskId>,
        conversation: Option<&str>,
    ) -> Result<BridgeTask, TaskError> {
        let TaskId { uuid, text: id } = id.ok_or_else(|| invalid_input("task_id must be a UUID of version 4"))?;
        let conversation = conversation.ok_or_else(|| invalid_input("conversation_id must name a conversation"))?;
        let instruction = parse_instruction(envelope.instruction, "instruction")?;
        let raw = envelope.input.ok_or_else(|| invalid_input("input is required"))?.get();
        let input =
            json::parse(raw.as_bytes(), MAX_INPUT_DEPTH).map_err(|_| invalid_input("input is not valid JSON"))?;
        if !matches!(input, Value::String(_) | Value::Object(_)) {
            return Err(invalid_input("input must be a string or an object"));
        }
        let call_ids = CallIds {
            session: parse_call_id(envelope.session_id, "sessionId")?,
            task: parse_call_id(envelope.caller_task_id, "taskId")?,
        };
        let next = non_null(envelope.next).map(|next| parse_next(next, &self.final_destinations)).transpose()?;
        Ok(BridgeTask {
            id: id.clone(),
            uuid: *uuid,
            call_ids,
            response_topic: mqtt_topic::conversation_topic(conversation, &self.agent),
            conversation: conversation.to_owned(),
            instruction,
            input: Bytes::copy_from_slice(raw.as_bytes()),
            next,
            trace_context: Vec::new(),
        })
    }
}

/// A message, as received.
#[derive(Clone, Copy, Debug)]
pub(super) struct IncomingTask<'a> {
    pub(super) topic: &'a str,
    pub(super) payload: &'a [u8],
    pub(super) retained: bool,
    /// Whether the broker says that it delivered the message before.
    pub(super) repeated: bool,
}

impl IncomingTask<'_> {
    /// An id by which a further delivery of a message without a task id is recognised.
    fn payload_id(&self) -> Uuid {
        let [id @ .., _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _] = sha256(self.payload);
        Uuid::from_bytes(id)
    }
}

impl<'a> ReceivedEnvelope<'a> {
    /// Reads an object. Its members stay unparsed, so that no nesting exhausts the stack.
    fn parse(text: &'a str) -> Option<Self> {
        text.trim_start().starts_with('{').then(|| serde_json::from_str(text).ok())?
    }

    /// Counts the steps that follow, up to one more than allowed (R121).
    fn count_steps(&self) -> Result<usize, TaskError> {
        let (mut count, mut current) = (0, non_null(self.next));
        while let Some(next) = current.filter(|_| count <= MAX_PIPELINE_STEPS) {
            let next =
                ReceivedEnvelope::parse(next.get()).ok_or_else(|| invalid_input("next must be an object or null"))?;
            count += 1;
            current = non_null(next.next);
        }
        Ok(count)
    }
}

fn parse_next(raw: &RawValue, final_destinations: &[String]) -> Result<NextStep, TaskError> {
    let envelope = ReceivedEnvelope::parse(raw.get()).ok_or_else(|| invalid_input("next must be an object or null"))?;
    let topic = parse_string(envelope.topic);
    if topic.as_ref().is_some_and(|topic| !mqtt_topic::has_only_mqtt_characters(topic)) {
        return Err(invalid_input("next.topic must not have control characters or noncharacters"));
    }
    let target = topic.as_deref().and_then(|topic| NextTarget::parse(topic, final_destinations));
    let target = target.ok_or_else(|| {
        invalid_input("next.topic must be an agent's input topic, a conversation or a permitted destination")
    })?;
    let later_steps = non_null(envelope.next);
    if later_steps.is_some() && matches!(target, NextTarget::Destination(_)) {
        return Err(invalid_input("next.next can only follow an agent's input topic or a conversation"));
    }
    Ok(NextStep {
        target,
        instruction: parse_instruction(envelope.instruction, "next.instruction")?,
        next: later_steps.map(|raw| raw.get().to_owned()),
    })
}

fn invalid_input(message: &str) -> TaskError {
    TaskError::new(TaskErrorCode::InvalidInput, message)
}

/// Filters out a member that is absent or null.
fn non_null(raw: Option<&RawValue>) -> Option<&RawValue> {
    raw.filter(|raw| raw.get() != "null")
}

fn parse_string(raw: Option<&RawValue>) -> Option<String> {
    serde_json::from_str(raw?.get()).ok()
}

fn parse_instruction(raw: Option<&RawValue>, name: &str) -> Result<Option<String>, TaskError> {
    let invalid = |_| invalid_input(&format!("{name} must be a string or null"));
    non_null(raw).map(|raw| serde_json::from_str(raw.get()).map_err(invalid)).transpose()
}

/// Parses an id that the sender's caller gave its call; null is the same as none.
fn parse_call_id(raw: Option<&RawValue>, name: &str) -> Result<Option<String>, TaskError> {
    let Some(raw) = non_null(raw) else { return Ok(None) };
    let is_call_id =
        |id: &String| (1..=MAX_CALL_ID_BYTES).contains(&id.len()) && id.bytes().all(|byte| byte.is_ascii_graphic());
    parse_string(Some(raw)).filter(is_call_id).map(Some).ok_or_else(|| {
        invalid_input(&format!("{name} must be a string of 1 to {MAX_CALL_ID_BYTES} visible ASCII characters"))
    })
}

/// Whether `id` is a UUID of version 4 in its usual spelling.
fn is_task_id(id: &str) -> bool {
    id.len() == 36 && Uuid::parse_str(id).is_ok_and(|id| id.get_version_num() == 4)
}

#[cfg(test)]
mod tests;
