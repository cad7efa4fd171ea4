//! Result of a task: the response, the error, or the task for the next agent.

use super::{Next, Task, Told};
use crate::{
    bridge::{
        topic::Onward,
        words::{Failure, Kind},
    },
    broker::LARGEST,
};
use serde_json::value::RawValue;

impl Task {
    /// Builds the message to publish after the agent responded with this JSON text or failed: steps 8 and 9.
    pub(in super::super) fn done(&self, answer: Result<&RawValue, Failure>) -> Told {
        let outgoing = answer.and_then(|answer| {
            let (topic, payload) = match &self.next {
                Some(Next { to: Onward::Agent(topic), instruction, next }) => {
                    (topic.clone(), self.onward(topic, instruction.as_deref(), answer, next.as_deref()))
                }
                Some(Next { to, .. }) => (to.topic().to_owned(), self.response(answer)),
                None => (self.answers.clone(), self.response(answer)),
            };
            match payload {
                Some(payload) if payload.len() <= LARGEST => Ok(Told { topic, payload }),
                _ => Err(Failure::new(Kind::ToolExecutionFailed, "The agent's response is too large")),
            }
        });
        outgoing
            .unwrap_or_else(|failure| Told { topic: self.answers.clone(), payload: failure.payload(Some(&self.id)) })
    }

    fn response(&self, answer: &RawValue) -> Option<Vec<u8>> {
        #[derive(serde::Serialize)]
        struct Response<'a> {
            response: &'a RawValue,
            task_id: &'a str,
        }
        serde_json::to_vec(&Response { response: answer, task_id: &self.id }).ok()
    }

    /// Builds the task for the next agent: this task, with this agent's response as its input (R112).
    fn onward(&self, topic: &str, instruction: Option<&str>, input: &RawValue, next: Option<&str>) -> Option<Vec<u8>> {
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
