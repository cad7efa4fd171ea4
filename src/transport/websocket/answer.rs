//! What an agent answers: messages taken apart by the agent's form, until the answer is over. Everything is bounded:
//! one message by its size, all before an answer by their number, waiting by the agent's bounds.

use super::{
    leg::{Came, Leg},
    lost::{closed, is_orderly},
    settings::{Frames, Manner},
};
use crate::{
    fault::{Code, Fault, Result},
    transport::Bounds,
};
use bytes::Bytes;
use http::StatusCode;
use serde_json::{Map, Value, json, value::RawValue};
use std::{borrow::Cow, collections::VecDeque};
use tokio::time::{Instant, timeout_at};

/// Members that may stand beside an `error` without being a result.
const BESIDE: [&str; 11] =
    ["error", "code", "message", "detail", "details", "status", "type", "request_id", "id", "task_id", "jsonrpc"];

/// A part of an answer.
pub(super) enum Part {
    /// One of several, with its name where it has one.
    One(Option<String>, Bytes),
    /// The last.
    Last(Bytes),
    /// The agent's own failure, as an agent over HTTP would tell it.
    Failure(StatusCode, Bytes),
    /// Nothing more.
    End,
}

/// The answer to one message.
pub(super) struct Answers {
    pub(super) leg: Leg,
    manner: Manner,
    id: String,
    bounds: Bounds,
    deadline: Instant,
    lines: VecDeque<String>,
    seen: u32,
    /// Messages that belong to nobody.
    skipped: u32,
}

impl Answers {
    pub(super) fn new(leg: Leg, manner: Manner, (id, bounds, deadline): (&str, Bounds, Instant)) -> Self {
        Self { leg, manner, id: id.to_owned(), bounds, deadline, lines: VecDeque::new(), seen: 0, skipped: 0 }
    }

    /// The next part.
    ///
    /// # Errors
    /// The agent does not answer in time, leaves before its answer is over, or answers what is none.
    pub(super) async fn part(&mut self) -> Result<Part> {
        loop {
            if let Some(line) = self.lines.pop_front() {
                self.seen = self.seen.saturating_add(1);
                match self.read(&line)? {
                    Some(part) => return Ok(part),
                    None => {
                        self.skipped += 1;
                        if self.skipped > self.manner.max_messages {
                            return Err(Fault::new(
                                Code::AgentError,
                                "The agent sent too many messages without an answer.",
                            ));
                        }
                        continue;
                    }
                }
            }
            let patience = if self.seen == 0 { self.bounds.first_byte } else { self.bounds.idle };
            let until = self.deadline.min(Instant::now() + patience);
            let came = timeout_at(until, self.leg.next()).await;
            match came.map_err(|_| Fault::new(Code::Timeout, "The agent did not answer in time."))? {
                Came::Text(text) if self.manner.frames == Frames::Ndjson => {
                    let lines = text.as_str().split('\n').map(str::trim).filter(|line| !line.is_empty());
                    self.lines.extend(lines.map(str::to_owned));
                }
                Came::Text(text) => self.lines.push_back(text.as_str().trim().to_owned()),
                Came::Binary(_) => {
                    return Err(Fault::new(Code::AgentError, "The agent's answer is not text."));
                }
                Came::Closed(close) if is_orderly(close.as_ref()) => return Ok(Part::End),
                Came::Closed(close) => return Err(closed(close.as_ref())),
                Came::Lost(lost) => {
                    let fault = lost.fault();
                    return Err(if self.seen > 0 {
                        fault.detail(format_args!("{lost:?}, in the middle"))
                    } else {
                        fault
                    });
                }
            }
        }
    }

    /// Whether more came before the answer than may.
    pub(super) fn is_too_much(&self) -> bool {
        self.seen > self.manner.max_messages
    }

    fn read(&self, line: &str) -> Result<Option<Part>> {
        if self.manner.frames == Frames::JsonRpc {
            return rpc(line, &self.id);
        }
        if self.manner.frames == Frames::Ndjson && self.manner.end.as_deref() == Some(line) {
            return Ok(Some(Part::End));
        }
        if serde_json::from_str::<&RawValue>(line).is_err() {
            return Err(garbage());
        }
        let line = Bytes::from(line.to_owned());
        Ok(Some(if self.manner.frames == Frames::Bare { Part::Last(line) } else { Part::One(None, line) }))
    }
}

fn garbage() -> Fault {
    Fault::new(Code::AgentError, "The agent's answer is not valid JSON.")
}

/// A message of JSON-RPC, as far as it matters here.
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

/// The response to `id`, or a notification; what belongs to neither is nobody's.
fn rpc(line: &str, id: &str) -> Result<Option<Part>> {
    let message: Rpc<'_> = serde_json::from_str(line).map_err(|_| garbage())?;
    let bytes = |raw: Option<&RawValue>| Bytes::from(raw.map_or("null", RawValue::get).to_owned());
    match message {
        Rpc { method: Some(method), id: None, params, .. } => {
            Ok(Some(Part::One(Some(method.into_owned()), bytes(params))))
        }
        Rpc { method: None, id: Some(Value::String(own)), error, result, .. } if own == id => {
            Ok(match (error, result) {
                (Some(error), _) => Some(failure(&error)),
                (None, Some(result)) => Some(Part::Last(bytes(Some(result)))),
                (None, None) => Some(Part::Last(bytes(None))),
            })
        }
        Rpc { .. } => Ok(None),
    }
}

/// An error of JSON-RPC in the form of HTTP, from which the gateway makes what its caller may read.
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

/// Whether a part of a stream is a failure: in a stream nobody looks at it again.
pub(super) fn is_failure(part: &[u8]) -> bool {
    let Ok(members) = serde_json::from_slice::<Map<String, Value>>(part) else {
        return false;
    };
    let told =
        members.get("error").is_some_and(|error| error.is_object() || error.as_str().is_some_and(|e| !e.is_empty()));
    told && members.keys().all(|name| BESIDE.contains(&name.as_str()))
}
