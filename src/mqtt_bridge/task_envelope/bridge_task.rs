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

/// A message to publish with QoS 1, not retained.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in super::super) struct OutgoingMessage {
    pub(in super::super) topic: String,
    pub(in super::super) payload: Vec<u8>,
}

impl OutgoingMessage {
    /// Whether this is a response to a conversation, as opposed to a task for another agent.
    pub(in super::super) fn is_response(&self) -> bool {
        self.topic.starts_with("/conversations/")
    }
}

/// A valid task.
#[derive(Clone, Debug, PartialEq)]
pub(in super::super) struct BridgeTask {
    /// A UUID of version 4, in the sender's spelling.
    pub(in super::super) id: String,
    /// Topic of the response if the task has no next step.
    pub(super) response_topic: String,
    pub(super) conversation: String,
    /// Instruction for the agent.
    pub(in super::super) instruction: Option<String>,
    /// The input: one JSON text, byte for byte.
    pub(in super::super) input: Bytes,
    pub(super) next: Option<NextStep>,
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
                Some(NextStep { target: NextTarget::Agent(topic), instruction, next }) => {
                    (topic.clone(), self.next_task_payload(topic, instruction.as_deref(), response, next.as_deref()))
                }
                Some(NextStep { target, .. }) => (target.topic().to_owned(), self.response_payload(response)),
                None => (self.response_topic.clone(), self.response_payload(response)),
            };
            match payload {
                Some(payload) if payload.len() <= MAX_MESSAGE_BYTES => Ok(OutgoingMessage { topic, payload }),
                _ => Err(TaskError::new(TaskErrorCode::ToolExecutionFailed, "The agent's response is too large")),
            }
        });
        outgoing.unwrap_or_else(|error| OutgoingMessage {
            topic: self.response_topic.clone(),
            payload: error.payload(Some(&self.id)),
        })
    }

    fn response_payload(&self, response: &RawValue) -> Option<Vec<u8>> {
        #[derive(serde::Serialize)]
        struct Response<'a> {
            response: &'a RawValue,
            task_id: &'a str,
        }
        serde_json::to_vec(&Response { response, task_id: &self.id }).ok()
    }

    /// Builds the task for the next agent: this task, with this agent's response as its input (R112).
    fn next_task_payload(
        &self,
        topic: &str,
        instruction: Option<&str>,
        input: &RawValue,
        next: Option<&str>,
    ) -> Option<Vec<u8>> {
        #[derive(serde::Serialize)]
        struct NextTask<'a> {
            task_id: &'a str,
            conversation_id: &'a str,
            topic: &'a str,
            instruction: Option<&'a str>,
            input: &'a RawValue,
            next: Option<&'a RawValue>,
        }
        let conversation_id = &self.conversation;
        let next: Option<&RawValue> = next.map(serde_json::from_str).transpose().ok()?;
        serde_json::to_vec(&NextTask { task_id: &self.id, conversation_id, topic, instruction, input, next }).ok()
    }
}
