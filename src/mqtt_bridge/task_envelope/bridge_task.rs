//! A valid task, and its result: the response, the error, or the task for the next agent.

use crate::{
    mqtt_bridge::{
        mqtt_topic::NextTarget,
        payload::{TaskError, TaskErrorCode},
    },
    mqtt_client::MAX_MESSAGE_BYTES,
};
use bytes::Bytes;
use serde_json::value::RawValue;
use uuid::Uuid;

/// A message to publish with QoS 1, not retained.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in super::super) struct OutgoingMessage {
    pub(in super::super) topic: String,
    pub(in super::super) payload: Vec<u8>,
    /// Whether this is a task for another agent, as opposed to a response.
    pub(in super::super) is_task: bool,
    /// The error to publish if the broker refuses this message.
    pub(in super::super) on_refusal: Option<Box<OutgoingMessage>>,
    /// The trace context of a task, as user properties.
    pub(in super::super) trace_context: Vec<(String, String)>,
}

impl OutgoingMessage {
    /// A response or an error.
    pub(in super::super) fn response(topic: String, payload: Vec<u8>) -> Self {
        Self { topic, payload, is_task: false, on_refusal: None, trace_context: Vec::new() }
    }
}

/// A valid task.
#[derive(Clone, Debug, PartialEq)]
pub(in super::super) struct BridgeTask {
    /// A UUID of version 4, in the sender's spelling.
    pub(in super::super) id: String,
    /// The same id, by which duplicates are recognised.
    pub(in super::super) uuid: Uuid,
    /// The session and the task of the call that the sender names (R78).
    pub(in super::super) call_ids: CallIds,
    /// Topic of the response if the task has no next step.
    pub(super) response_topic: String,
    pub(super) conversation: String,
    /// Instruction for the agent.
    pub(in super::super) instruction: Option<String>,
    /// The input: one JSON text, byte for byte.
    pub(in super::super) input: Bytes,
    pub(super) next: Option<NextStep>,
    /// The trace context of the message, as user properties.
    pub(in super::super) trace_context: Vec<(String, String)>,
}

/// Ids that a caller gave its call (R78), under the names that Matrix messages use. They are not those of the protocol.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in super::super) struct CallIds {
    pub(in super::super) session: Option<String>,
    pub(in super::super) task: Option<String>,
}

/// Next step of a task: its destination and instruction.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct NextStep {
    pub(super) target: NextTarget,
    pub(super) instruction: Option<String>,
    /// The steps after that, as raw JSON.
    pub(super) next: Option<String>,
}

impl BridgeTask {
    /// Builds the message to publish after the agent responded with this JSON text or failed: steps 8 and 9.
    pub(in super::super) fn result_message(&self, response: Result<&RawValue, TaskError>) -> OutgoingMessage {
        let outgoing = response.and_then(|response| {
            let (topic, payload) = match &self.next {
                Some(NextStep { target: NextTarget::Destination(topic), .. }) => {
                    (topic, Some(response.get().as_bytes().to_vec()))
                }
                Some(NextStep { target: NextTarget::Conversation(topic), next: None, .. }) => {
                    (topic, self.response_payload(response))
                }
                Some(next) => (next.target.topic(), self.next_task_payload(next, response)),
                None => (&self.response_topic, self.response_payload(response)),
            };
            let payload = payload.filter(|payload| payload.len() <= MAX_MESSAGE_BYTES).ok_or_else(|| {
                TaskError::new(TaskErrorCode::ToolExecutionFailed, "The agent's response is too large")
            })?;
            Ok(OutgoingMessage {
                is_task: self.next.as_ref().is_some_and(|next| matches!(next.target, NextTarget::Agent(_))),
                on_refusal: self.next.is_some().then(|| Box::new(self.refusal_message())),
                trace_context: if self.next.is_some() { self.trace_context.clone() } else { Vec::new() },
                ..OutgoingMessage::response(topic.clone(), payload)
            })
        });
        outgoing.unwrap_or_else(|error| self.error_message(&error))
    }

    /// The error of a result that the broker does not accept on the topic that the task names.
    fn refusal_message(&self) -> OutgoingMessage {
        let text = "The result could not be published on the topic of the next step";
        self.error_message(&TaskError::new(TaskErrorCode::InternalError, text))
    }

    fn error_message(&self, error: &TaskError) -> OutgoingMessage {
        OutgoingMessage::response(self.response_topic.clone(), error.payload(Some(&self.id)))
    }

    fn response_payload(&self, response: &RawValue) -> Option<Vec<u8>> {
        #[derive(serde::Serialize)]
        struct Response<'a> {
            response: &'a RawValue,
            task_id: &'a str,
        }
        serde_json::to_vec(&Response { response, task_id: &self.id }).ok()
    }

    /// Builds the next task: this task, with this agent's response as its input (R112). An agent executes it; a reader
    /// of a conversation goes on with it.
    fn next_task_payload(&self, step: &NextStep, input: &RawValue) -> Option<Vec<u8>> {
        #[derive(serde::Serialize)]
        struct NextTask<'a> {
            task_id: &'a str,
            conversation_id: &'a str,
            topic: &'a str,
            instruction: Option<&'a str>,
            input: &'a RawValue,
            next: Option<&'a RawValue>,
            #[serde(rename = "sessionId", skip_serializing_if = "Option::is_none")]
            session_id: Option<&'a str>,
            #[serde(rename = "taskId", skip_serializing_if = "Option::is_none")]
            caller_task_id: Option<&'a str>,
        }
        let next_task = NextTask {
            task_id: &self.id,
            conversation_id: &self.conversation,
            topic: step.target.topic(),
            instruction: step.instruction.as_deref(),
            input,
            next: step.next.as_deref().map(serde_json::from_str).transpose().ok()?,
            session_id: self.call_ids.session.as_deref(),
            caller_task_id: self.call_ids.task.as_deref(),
        };
        serde_json::to_vec(&next_task).ok()
    }
}
