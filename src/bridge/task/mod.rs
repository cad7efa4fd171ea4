//! A task from its message to what is published for it: the protocol's steps in its order (R120). An envelope is taken
//! apart without being trusted: its parts stay text until their turn comes, so that nothing in one keeps the others
//! from being judged, however deep or odd it is.

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

/// Nested arrays and objects in an input; the agent's contract may ask for less.
const NESTED: u16 = json::DEEPEST - 10;

/// What becomes of a message.
#[derive(Debug, PartialEq)]
pub(super) enum Verdict {
    /// Nothing is published; why, for the log.
    Discard(&'static str),
    /// A failure is published.
    Refuse(Told),
    /// The agent is called.
    Process(Box<Task>),
}

/// Something to publish, QoS 1 and not retained.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Told {
    pub(super) topic: String,
    pub(super) payload: Vec<u8>,
}

impl Told {
    /// Whether it is for whoever asked, and no task for another agent.
    pub(super) fn is_answer(&self) -> bool {
        self.topic.starts_with("/conversations/")
    }
}

/// A task that may be processed.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Task {
    /// A UUID of version 4, as it was written.
    pub(super) id: String,
    /// Where the answer goes unless the task goes on.
    answers: String,
    conversation: String,
    /// What the agent is to do with it, if told.
    pub(super) instruction: Option<String>,
    /// One JSON text, as it came.
    pub(super) input: Bytes,
    next: Option<Next>,
}

/// Where a task goes on, and as what.
#[derive(Clone, Debug, PartialEq)]
struct Next {
    to: Onward,
    instruction: Option<String>,
    /// The steps after that, as they came.
    next: Option<String>,
}

/// An envelope, or a `next` in one: its members as they came. Members that are not known are passed over (R114).
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

/// One agent at its broker: who it is, and which tasks it has had.
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

    /// The agent.
    pub(super) fn agent(&self) -> &str {
        &self.agent
    }

    /// Steps 1 to 6.
    pub(super) fn judge(&mut self, arrived: &Arrived<'_>, now: Instant) -> Verdict {
        if arrived.retained {
            return Verdict::Discard("it is retained");
        }
        if canonical(arrived.topic) != self.topic {
            return Verdict::Discard("it came on another topic");
        }
        if arrived.payload.len() > LARGEST {
            return Verdict::Discard("it is longer than 256 KiB");
        }
        let Some(envelope) = std::str::from_utf8(arrived.payload).ok().and_then(Envelope::read) else {
            return Verdict::Discard("it is no task envelope");
        };
        // R120: a task whose topic is another's is nobody's.
        if text(envelope.topic).is_none_or(|topic| canonical(&topic) != self.topic) {
            return Verdict::Discard("its topic is not the one on which it came");
        }
        let id = text(envelope.task_id).filter(|id| is_task(id));
        if let Some(id) = id.as_deref().and_then(|id| Uuid::parse_str(id).ok())
            && !self.memory.is_first(id, now)
        {
            return Verdict::Discard("it came before");
        }
        let conversation = text(envelope.conversation_id).filter(|id| topic::is_conversation(id));
        let depth = envelope.depth();
        let read = match depth {
            Ok(depth) if depth > DEEPEST => {
                let message = format!("the pipeline has more than {DEEPEST} further steps");
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
            (Err(_), None) => Verdict::Discard("it is not valid, and names no conversation that could be told"),
        }
    }

    /// Step 6: the whole envelope (R110–R112).
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

/// A message as it came.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arrived<'a> {
    pub(super) topic: &'a str,
    pub(super) payload: &'a [u8],
    pub(super) retained: bool,
}

impl Task {
    /// Steps 8 and 9: what is published once the agent has answered with this JSON text, or has failed.
    pub(super) fn done(&self, answer: Result<&RawValue, Failure>) -> Told {
        let told = answer.and_then(|answer| {
            let (topic, payload) = match &self.next {
                Some(Next { to: Onward::Agent(topic), instruction, next }) => {
                    (topic.clone(), self.onward(topic, instruction.as_deref(), answer, next.as_deref()))
                }
                Some(Next { to, .. }) => (to.topic().to_owned(), self.response(answer)),
                None => (self.answers.clone(), self.response(answer)),
            };
            match payload {
                Some(payload) if payload.len() <= LARGEST => Ok(Told { topic, payload }),
                _ => Err(Failure::new(Kind::ToolExecutionFailed, "the agent's answer is larger than a message may be")),
            }
        });
        told.unwrap_or_else(|failure| Told { topic: self.answers.clone(), payload: failure.payload(Some(&self.id)) })
    }

    fn response(&self, answer: &RawValue) -> Option<Vec<u8>> {
        #[derive(serde::Serialize)]
        struct Response<'a> {
            response: &'a RawValue,
            task_id: &'a str,
        }
        serde_json::to_vec(&Response { response: answer, task_id: &self.id }).ok()
    }

    /// The task for the next agent: the same, with this agent's answer as its input (R112).
    fn onward(&self, topic: &str, instruction: Option<&str>, input: &RawValue, next: Option<&str>) -> Option<Vec<u8>> {
        #[derive(serde::Serialize)]
        struct Onward<'a> {
            task_id: &'a str,
            conversation_id: &'a str,
            topic: &'a str,
            instruction: Option<&'a str>,
            input: &'a RawValue,
            next: Option<&'a RawValue>,
        }
        let conversation_id = &self.conversation;
        let next: Option<&RawValue> = next.map(serde_json::from_str).transpose().ok()?;
        serde_json::to_vec(&Onward { task_id: &self.id, conversation_id, topic, instruction, input, next }).ok()
    }
}

impl<'a> Envelope<'a> {
    /// Reads an object; nothing in it is looked at yet, so that no depth can do harm.
    fn read(text: &'a str) -> Option<Self> {
        text.trim_start().starts_with('{').then(|| serde_json::from_str(text).ok())?
    }

    /// How many steps follow, counted to one more than may (R121).
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

/// A member that is there and not null.
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
