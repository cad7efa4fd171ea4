//! The task envelope (R110–R112). It is written once, with ids that belong to this call alone.
//!
//! `instruction` is the first of these: the instruction of the request (a pipeline step), a string member `instruction`
//! of the input, the operation's name, null. The input is forwarded unchanged.

use crate::{
    broker::LARGEST,
    fault::{Code, Fault},
    unit::json,
};
use bytes::Bytes;
use serde::Serialize;
use serde_json::{Value, value::RawValue};

/// The maximum nesting of arrays and objects in an input.
const DEEPEST: u16 = 100;

/// The validated input of a task, with its instruction.
#[derive(Debug)]
pub(super) struct Asked {
    input: Box<RawValue>,
    instruction: Option<String>,
}

#[derive(Serialize)]
struct Envelope<'a> {
    task_id: &'a str,
    conversation_id: &'a str,
    topic: &'a str,
    instruction: Option<&'a str>,
    input: &'a RawValue,
    next: Option<()>,
}

impl Asked {
    /// Parses an input: an object, or a string (R111); an empty body is an empty object.
    ///
    /// # Errors
    /// 400 for anything else.
    pub(super) fn read(body: &[u8], operation: &str, brought: Option<&str>) -> Result<Self, Fault> {
        let body = if body.trim_ascii().is_empty() { b"{}" } else { body.trim_ascii() };
        let refuse = |why: String| Fault::new(Code::InvalidInput, why);
        let value = json::read(body, DEEPEST).map_err(|why| refuse(format!("The body is not valid JSON: {why}")))?;
        if !matches!(value, Value::Object(_) | Value::String(_)) {
            let kind = json::kind(&value);
            return Err(refuse(format!("This agent takes a JSON object or a string, not {kind}")));
        }
        let input = serde_json::from_slice(body).map_err(|why| refuse(format!("The body is not valid JSON: {why}")))?;
        let named = || value.get("instruction").and_then(Value::as_str);
        let instruction = brought.or_else(named).or(Some(operation).filter(|name| !name.is_empty()));
        Ok(Self { input, instruction: instruction.map(str::to_owned) })
    }

    /// Serializes the envelope for the agent at `topic`.
    ///
    /// # Errors
    /// 413 where the envelope is longer than agents accept (R116).
    pub(super) fn write(&self, topic: &str, task: &str, conversation: &str) -> Result<Bytes, Fault> {
        let envelope = Envelope {
            task_id: task,
            conversation_id: conversation,
            topic,
            instruction: self.instruction.as_deref(),
            input: &self.input,
            // The gateway calls the next step itself, so that it checks and counts every step.
            next: None,
        };
        let text = serde_json::to_vec(&envelope)
            .map_err(|why| Fault::new(Code::Internal, "The gateway failed").detail(why))?;
        match text.len() > LARGEST {
            true => Err(too_large(LARGEST)),
            false => Ok(text.into()),
        }
    }
}

/// The fault of a message that is longer than the agent or the broker accepts.
pub(super) fn too_large(most: usize) -> Fault {
    let kib = most >> 10;
    Fault::new(
        Code::PayloadTooLarge,
        format!("The input is too large for this agent (at most {kib} KiB with its envelope)"),
    )
}

/// Returns the agent whose input topic `topic` is, in any spelling (R109).
pub(super) fn agent_of(topic: &str) -> Option<String> {
    let topic = crate::broker::canonical(topic);
    let id = topic.strip_prefix("/control/agents/")?.strip_suffix("/input")?;
    (!id.contains('/')).then(|| id.to_owned())
}
