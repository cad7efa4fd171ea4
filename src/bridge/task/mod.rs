//! Validation of a task envelope and the messages that result from a task, in the order of the protocol's steps (R120).
//! The members of an envelope stay raw JSON until their step, so that a malformed or deeply nested member does not
//! prevent the validation of the others.

mod task_result;

use super::{
    DEEPEST,
    memory::Memory,
    topic::{self, Onward},
    words::{Failure, Kind},
};
use crate::{
    broker::{LARGEST, canonical},
    unit::json,
};
use bytes::Bytes;
use serde_json::{Value, value::RawValue};
use std::time::Instant;
use uuid::Uuid;

/// Maximum nesting of arrays and objects in an input; the agent's contract may demand less.
const NESTED: u16 = json::DEEPEST - 10;

/// Result of validating a message.
#[derive(Debug, PartialEq)]
pub(super) enum Verdict {
    /// Publish nothing; the reason goes to the log.
    Discard(&'static str),
    /// Publish an error.
    Refuse(Told),
    /// Call the agent.
    Process(Box<Task>),
}

/// A message to publish with QoS 1, not retained.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Told {
    pub(super) topic: String,
    pub(super) payload: Vec<u8>,
}

impl Told {
    /// Whether this is a response to a conversation, as opposed to a task for another agent.
    pub(super) fn is_answer(&self) -> bool {
        self.topic.starts_with("/conversations/")
    }
}

/// A valid task.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Task {
    /// A UUID of version 4, in the sender's spelling.
    pub(super) id: String,
    /// Topic of the response if the task has no next step.
    answers: String,
    conversation: String,
    /// Instruction for the agent.
    pub(super) instruction: Option<String>,
    /// The input: one JSON text, byte for byte.
    pub(super) input: Bytes,
    next: Option<Next>,
}

/// Next step of a task: its destination and instruction.
#[derive(Clone, Debug, PartialEq)]
struct Next {
    to: Onward,
    instruction: Option<String>,
    /// The steps after that, as raw JSON.
    next: Option<String>,
}

/// An envelope, or a `next` member of one: its members as raw JSON. Unknown members are ignored (R114).
#[derive(serde::Deserialize)]
struct Envelope<'a> {
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
}

/// Validates the messages of one agent on its broker and discards duplicates.
#[derive(Debug)]
pub(super) struct Desk {
    agent: String,
    topic: String,
    memory: Memory,
}

impl Desk {
    pub(super) fn new(agent: &str, memory: Memory) -> Self {
        Self { agent: agent.to_owned(), topic: topic::input(agent), memory }
    }

    /// Id of the agent.
    pub(super) fn agent(&self) -> &str {
        &self.agent
    }

    /// Executes steps 1 to 6 of the protocol and records the id of the task.
    pub(super) fn judge(&mut self, arrived: &Arrived<'_>, now: Instant) -> Verdict {
        if arrived.retained {
            return Verdict::Discard("retained message");
        }
        if canonical(arrived.topic) != self.topic {
            return Verdict::Discard("received on another topic");
        }
        if arrived.payload.len() > LARGEST {
            return Verdict::Discard("longer than 256 KiB");
        }
        let Some(envelope) = std::str::from_utf8(arrived.payload).ok().and_then(Envelope::read) else {
            return Verdict::Discard("not a task envelope");
        };
        // R120: no error is published for a task whose topic belongs to another agent.
        if text(envelope.topic).is_none_or(|topic| canonical(&topic) != self.topic) {
            return Verdict::Discard("its topic differs from the topic it was received on");
        }
        let id = text(envelope.task_id).filter(|id| is_task(id));
        if let Some(id) = id.as_deref().and_then(|id| Uuid::parse_str(id).ok())
            && !self.memory.is_first(id, now)
        {
            return Verdict::Discard("duplicate task");
        }
        let conversation = text(envelope.conversation_id).filter(|id| topic::is_conversation(id));
        let depth = envelope.depth();
        let read = match depth {
            Ok(depth) if depth > DEEPEST => {
                let message = format!("The pipeline has more than {DEEPEST} further steps");
                Err(Failure::new(Kind::PipelineDepthExceeded, message))
            }
            Ok(_) => self.parse(&envelope, id.as_deref(), conversation.as_deref()),
            Err(failure) => Err(failure),
        };
        match (read, conversation) {
            (Ok(task), _) => Verdict::Process(Box::new(task)),
            (Err(failure), Some(conversation)) => Verdict::Refuse(Told {
                topic: topic::conversation(&conversation, &self.agent),
                payload: failure.payload(id.as_deref()),
            }),
            // R123
            (Err(_), None) => Verdict::Discard("invalid, and without a conversation for the error"),
        }
    }

    /// Validates the whole envelope: step 6 (R110–R112).
    fn parse(&self, envelope: &Envelope<'_>, id: Option<&str>, conversation: Option<&str>) -> Result<Task, Failure> {
        let id = id.ok_or_else(|| invalid("task_id must be a UUID of version 4"))?;
        let conversation = conversation.ok_or_else(|| invalid("conversation_id must name a conversation"))?;
        let instruction = instruction(envelope.instruction, "instruction")?;
        let raw = envelope.input.ok_or_else(|| invalid("input is required"))?.get();
        let input = json::read(raw.as_bytes(), NESTED).map_err(|_| invalid("input is not valid JSON"))?;
        if !matches!(input, Value::String(_) | Value::Object(_)) {
            return Err(invalid("input must be a string or an object"));
        }
        let next = present(envelope.next).map(next).transpose()?;
        Ok(Task {
            id: id.to_owned(),
            answers: topic::conversation(conversation, &self.agent),
            conversation: conversation.to_owned(),
            instruction,
            input: Bytes::copy_from_slice(raw.as_bytes()),
            next,
        })
    }
}

/// A message, as received.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arrived<'a> {
    pub(super) topic: &'a str,
    pub(super) payload: &'a [u8],
    pub(super) retained: bool,
}

impl<'a> Envelope<'a> {
    /// Reads an object. Its members stay unparsed, so that no nesting exhausts the stack.
    fn read(text: &'a str) -> Option<Self> {
        text.trim_start().starts_with('{').then(|| serde_json::from_str(text).ok())?
    }

    /// Counts the steps that follow, up to one more than allowed (R121).
    fn depth(&self) -> Result<usize, Failure> {
        let (mut depth, mut at) = (0, present(self.next));
        while let Some(next) = at.filter(|_| depth <= DEEPEST) {
            let next = Envelope::read(next.get()).ok_or_else(|| invalid("next must be an object or null"))?;
            depth += 1;
            at = present(next.next);
        }
        Ok(depth)
    }
}

fn next(raw: &RawValue) -> Result<Next, Failure> {
    let envelope = Envelope::read(raw.get()).ok_or_else(|| invalid("next must be an object or null"))?;
    let to = text(envelope.topic).as_deref().and_then(Onward::read);
    let to = to.ok_or_else(|| invalid("next.topic must be an agent's input topic or a conversation"))?;
    let further = present(envelope.next);
    if further.is_some() && matches!(to, Onward::Conversation(_)) {
        return Err(invalid("next.next cannot follow a conversation"));
    }
    Ok(Next {
        to,
        instruction: instruction(envelope.instruction, "next.instruction")?,
        next: further.map(|raw| raw.get().to_owned()),
    })
}

fn invalid(message: &str) -> Failure {
    Failure::new(Kind::InvalidInput, message)
}

/// Filters out a member that is absent or null.
fn present(raw: Option<&RawValue>) -> Option<&RawValue> {
    raw.filter(|raw| raw.get() != "null")
}

fn text(raw: Option<&RawValue>) -> Option<String> {
    serde_json::from_str(raw?.get()).ok()
}

fn instruction(raw: Option<&RawValue>, name: &str) -> Result<Option<String>, Failure> {
    let wrong = |_| invalid(&format!("{name} must be a string or null"));
    present(raw).map(|raw| serde_json::from_str(raw.get()).map_err(wrong)).transpose()
}

/// Whether `id` is a UUID of version 4 in its usual spelling.
fn is_task(id: &str) -> bool {
    id.len() == 36 && Uuid::parse_str(id).is_ok_and(|id| id.get_version_num() == 4)
}

#[cfg(test)]
mod tests;
