//! Parses an agent's reply: splits messages by the agent's framing, until the reply is complete. Everything is bounded:
//! a message by its size, the messages before a reply by their number, waiting by the agent's timeouts.

use super::{
    leg::{Came, Leg},
    lost::{Lost, closed},
    settings::{Frames, Manner},
};
use crate::{
    fault::{Code, Fault, Reach, Result},
    transport::Bounds,
};
use bytes::{Buf, Bytes};
use http::StatusCode;
use serde_json::{Map, Value, json, value::RawValue};
use std::borrow::Cow;
use tokio::time::{Instant, timeout_at};

/// Members that may accompany an `error` without being a result.
const BESIDE: [&str; 11] =
    ["error", "code", "message", "detail", "details", "status", "type", "request_id", "id", "task_id", "jsonrpc"];

/// A part of a reply.
pub(super) enum Part {
    /// One of several, with its event name if it has one.
    One(Option<String>, Bytes),
    /// The last one.
    Last(Bytes),
    /// The agent's own failure, in the form of an agent over HTTP.
    Failure(StatusCode, Bytes),
    /// The reply is complete.
    End,
}

/// Reads the reply to one message.
pub(super) struct Answers {
    pub(super) leg: Leg,
    manner: Manner,
    id: String,
    bounds: Bounds,
    deadline: Instant,
    /// The unread rest of a message. It is split when it is read, so that a message of line breaks uses no more memory.
    held: Option<Bytes>,
    seen: u32,
    /// The number of messages that belong to no call.
    skipped: u32,
}

impl Answers {
    pub(super) fn new(leg: Leg, manner: Manner, (id, bounds, deadline): (&str, Bounds, Instant)) -> Self {
        Self { leg, manner, id: id.to_owned(), bounds, deadline, held: None, seen: 0, skipped: 0 }
    }

    /// Returns the next part.
    ///
    /// # Errors
    /// The agent does not reply in time, closes before the reply is complete, or sends an invalid reply.
    pub(super) async fn part(&mut self) -> Result<Part> {
        loop {
            while let Some(line) = self.line() {
                self.seen = self.seen.saturating_add(1);
                if let Some(part) = self.read(line)? {
                    return Ok(part);
                }
                self.skipped += 1;
                if self.skipped > self.manner.max_messages {
                    return Err(Fault::new(Code::AgentError, "The agent sent too many messages without a reply"));
                }
            }
            let patience = if self.seen == 0 { self.bounds.first_byte } else { self.bounds.idle };
            let until = self.deadline.min(Instant::now() + patience);
            let came = timeout_at(until, self.leg.next()).await;
            match came.map_err(|_| Fault::new(Code::Timeout, "The agent did not answer in time"))? {
                Came::Text(text) => self.held = Some(text.into()),
                Came::Binary(_) => {
                    return Err(Fault::new(Code::AgentError, "The agent's reply is not text"));
                }
                Came::Closed(close) => return closed(close).map_or(Ok(Part::End), Err),
                Came::Lost(lost) => {
                    let fault = lost.fault();
                    return Err(match (self.seen, lost) {
                        // As with an agent over HTTP that closes without a reply.
                        (0, Lost::Gone) => fault.reached(Reach::Unsure),
                        (0, _) => fault,
                        (_, lost) => fault.detail(format_args!("{lost:?}, within the reply")),
                    });
                }
            }
        }
    }

    /// Whether more messages arrived before the reply than allowed.
    pub(super) fn is_too_much(&self) -> bool {
        self.seen > self.manner.max_messages
    }

    /// Takes the next line of a message, or the whole message where the framing has no lines.
    fn line(&mut self) -> Option<Bytes> {
        loop {
            let mut rest = self.held.take()?;
            if self.manner.frames != Frames::Ndjson {
                return Some(rest.slice_ref(rest.trim_ascii()));
            }
            let line = match rest.iter().position(|byte| *byte == b'\n') {
                None => std::mem::take(&mut rest),
                Some(end) => {
                    let line = rest.split_to(end);
                    rest.advance(1);
                    line
                }
            };
            self.held = Some(rest).filter(|rest| !rest.is_empty());
            let line = line.slice_ref(line.trim_ascii());
            if !line.is_empty() {
                return Some(line);
            }
        }
    }

    fn read(&self, line: Bytes) -> Result<Option<Part>> {
        if self.manner.frames == Frames::JsonRpc {
            return rpc(&line, &self.id);
        }
        let end = self.manner.end.as_deref().filter(|_| self.manner.frames == Frames::Ndjson);
        if end.is_some_and(|end| *end.as_bytes() == *line) {
            return Ok(Some(Part::End));
        }
        if serde_json::from_slice::<&RawValue>(&line).is_err() {
            return Err(garbage());
        }
        Ok(Some(if self.manner.frames == Frames::Bare { Part::Last(line) } else { Part::One(None, line) }))
    }
}

fn garbage() -> Fault {
    Fault::new(Code::AgentError, "The agent's reply is not valid JSON")
}

/// The members of a JSON-RPC message that are used here.
#[derive(serde::Deserialize)]
struct Rpc<'a> {
    #[serde(borrow, default)]
    method: Option<Cow<'a, str>>,
    #[serde(default)]
    id: Option<Value>,
    #[serde(borrow, default)]
    params: Option<&'a RawValue>,
    #[serde(borrow, default)]
    result: Option<&'a RawValue>,
    #[serde(default)]
    error: Option<Value>,
}

/// Parses the response to `id`, or a notification; other messages are skipped. An error without an id is a response,
/// too: the agent could not read the only request that it was sent (JSON-RPC 2.0 §5).
fn rpc(line: &Bytes, id: &str) -> Result<Option<Part>> {
    let object = line.first() == Some(&b'{');
    let message: Rpc<'_> = serde_json::from_slice(line).ok().filter(|_| object).ok_or_else(garbage)?;
    let bytes =
        |raw: Option<&RawValue>| raw.map_or(Bytes::from_static(b"null"), |raw| line.slice_ref(raw.get().as_bytes()));
    Ok(match message {
        Rpc { method: Some(method), id: None, params, .. } => Some(Part::One(Some(method.into_owned()), bytes(params))),
        Rpc { method: None, id: None, error: Some(error), .. } => Some(failure(&error)),
        Rpc { method: None, id: Some(Value::String(own)), error, result, .. } if own == id => Some(match error {
            Some(error) => failure(&error),
            None => Part::Last(bytes(result)),
        }),
        Rpc { .. } => None,
    })
}

/// Maps a JSON-RPC error to the form of an HTTP error, which the gateway redacts for its caller.
fn failure(error: &Value) -> Part {
    let status = match error.get("code").and_then(Value::as_i64) {
        Some(-32600 | -32602) => StatusCode::BAD_REQUEST,
        Some(-32601) => StatusCode::NOT_FOUND,
        Some(-32603) => StatusCode::INTERNAL_SERVER_ERROR,
        _ => StatusCode::BAD_GATEWAY,
    };
    let told = json!({"error": {"message": error.get("message"), "details": error.pointer("/data/details")}});
    Part::Failure(status, Bytes::from(told.to_string()))
}

/// Whether a part of a stream is a failure; parts of streams are not inspected again later.
pub(super) fn is_failure(part: &[u8]) -> bool {
    let Ok(members) = serde_json::from_slice::<Map<String, Value>>(part) else {
        return false;
    };
    let told =
        members.get("error").is_some_and(|error| error.is_object() || error.as_str().is_some_and(|e| !e.is_empty()));
    told && members.keys().all(|name| BESIDE.contains(&name.as_str()))
}
