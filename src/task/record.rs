//! What is known of a task, as its caller reads it and as it is kept.

use crate::{fault::Fault, store::KeptTask};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json, value::RawValue};
use std::{sync::Arc, time::Duration};
use time::{OffsetDateTime, format_description::well_known::Rfc3339};

/// The greatest number of an event, as ids are read: that of the end where it is not known which came before.
const LAST: u64 = 999_999_999_999_999_999;

/// How a task stands; the words are A2A's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// The agent is called.
    Working,
    /// The agent has answered.
    Completed,
    /// The call failed; the task says with which error.
    Failed,
    /// Its caller did not want it any longer.
    Canceled,
}

impl State {
    /// The word.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Working => "working",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Canceled => "canceled",
        }
    }
}

/// How a call ended.
#[derive(Clone, Debug)]
pub enum Outcome {
    /// With an answer.
    Answered(Answer),
    /// With a failure.
    Failed(Fault),
    /// It was cancelled.
    Canceled,
}

/// An agent's answer, whole and judged.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The status.
    pub status: u16,
    /// The media type; empty where the agent named none.
    pub media: Box<str>,
    /// The body.
    pub body: Bytes,
    /// Whether it was too long to be kept whole.
    pub cut: bool,
}

/// A task.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Task {
    /// Its id.
    pub id: Arc<str>,
    /// The agent.
    pub agent: Box<str>,
    /// The operation; empty for the implied one.
    pub operation: Box<str>,
    /// The id of the call that began it.
    pub request: Box<str>,
    /// How it stands.
    pub state: State,
    /// When it began.
    #[serde(with = "time::serde::rfc3339")]
    pub created: OffsetDateTime,
    /// When its state changed last.
    #[serde(with = "time::serde::rfc3339")]
    pub updated: OffsetDateTime,
    /// When it is forgotten.
    #[serde(with = "time::serde::rfc3339")]
    pub expires: OffsetDateTime,
    /// The error, or what there is to say of the result, as the members that the caller reads.
    #[serde(default)]
    pub end: Value,
    /// The result, as the agent wrote it: nothing of it is read twice, however deep it is or long its numbers are.
    #[serde(default)]
    pub result: Option<Box<RawValue>>,
    /// The number of its last event.
    #[serde(default)]
    pub last: u64,
    /// Whether the agent sent events of its own.
    #[serde(default)]
    pub streamed: bool,
    /// Where its end is to be told, and how often that was tried.
    #[serde(default)]
    pub callback: Option<(Box<str>, u32)>,
}

impl Task {
    /// What its caller reads (R79, R83, R86), as one line of JSON.
    pub fn view(&self, poll: Duration) -> String {
        let mut view = self.brief(poll).to_string();
        // A result that is null is read as none.
        let result = self.result.as_deref().map(RawValue::get);
        if let Some(result) = result.or_else(|| (self.state == State::Completed).then_some("null")) {
            view.pop();
            view.push_str(",\"result\":");
            view.push_str(result);
            view.push('}');
        }
        view
    }

    /// The same, without the result.
    pub(super) fn brief(&self, poll: Duration) -> Value {
        let date = |at: OffsetDateTime| at.format(&Rfc3339).unwrap_or_default();
        let mut view = json!({
            "taskId": &*self.id,
            "status": self.state.as_str(),
            "sourceAgent": &*self.agent,
            "createdAt": date(self.created),
            "updatedAt": date(self.updated),
            "expiresAt": date(self.expires),
            "url": format!("/tasks/{}", self.id),
            "eventsUrl": format!("/tasks/{}/events", self.id),
        });
        let Some(members) = view.as_object_mut() else { return view };
        if !self.operation.is_empty() {
            members.insert("operation".to_owned(), (*self.operation).into());
        }
        match self.state {
            State::Working => members.insert("pollInterval".to_owned(), poll.as_secs().into()),
            _ => members.insert("timeTaken".to_owned(), (self.updated - self.created).as_seconds_f64().into()),
        };
        if let Value::Object(end) = &self.end {
            members.extend(end.clone());
        }
        view
    }

    /// Ends it.
    pub fn ends(&mut self, outcome: &Outcome, keep: Duration) {
        self.updated = OffsetDateTime::now_utc();
        self.expires = self.updated + keep;
        // Whoever follows elsewhere has come no further than this.
        self.last = LAST;
        (self.state, self.end, self.result) = match outcome {
            Outcome::Answered(answer) => {
                let (end, result) = answer.members();
                (State::Completed, end, result)
            }
            Outcome::Failed(fault) => (State::Failed, fault.error_object(&self.request), None),
            Outcome::Canceled => (State::Canceled, Value::Null, None),
        };
    }

    /// As it is kept; `due` is when its end is to be told.
    pub(super) fn kept(&self, owner: &Arc<str>, keeper: &Arc<str>, due: Option<OffsetDateTime>) -> KeptTask {
        KeptTask {
            id: Arc::clone(&self.id),
            owner: Arc::clone(owner),
            keeper: Arc::clone(keeper),
            open: self.state == State::Working,
            expires: self.expires,
            due,
            record: serde_json::to_string(self).unwrap_or_default().into(),
        }
    }

    /// From what is kept; `None` where another program wrote it.
    pub(super) fn read(kept: &KeptTask) -> Option<Self> {
        serde_json::from_str(&kept.record).ok()
    }
}

impl Answer {
    /// The result: JSON as it is, text as a string, anything else in Base64. And what there is to say of it.
    fn members(&self) -> (Value, Option<Box<RawValue>>) {
        use base64::Engine as _;
        let mut object = serde_json::Map::new();
        object.insert("statusCode".to_owned(), self.status.into());
        if !self.media.is_empty() {
            object.insert("resultType".to_owned(), (*self.media).into());
        }
        if self.cut {
            object.insert("truncated".to_owned(), true.into());
        }
        let text = std::str::from_utf8(&self.body);
        let is_json = self.media.contains("json") && !self.media.contains("ndjson");
        let json = text.ok().filter(|_| is_json).and_then(one_line);
        let string = |text: &str| serde_json::value::to_raw_value(text).ok();
        let result = match (json, text) {
            (Some(json), _) => Some(json),
            (None, Ok("")) => None,
            (None, Ok(text)) => string(text),
            (None, Err(_)) => {
                object.insert("resultEncoding".to_owned(), "base64".into());
                string(&base64::engine::general_purpose::STANDARD.encode(&self.body))
            }
        };
        (object.into(), result)
    }
}

/// JSON on one line: outside of strings, which hold no line end, they mean nothing (RFC 8259 §2, §7).
fn one_line(text: &str) -> Option<Box<RawValue>> {
    let text = text.trim().to_owned();
    let text = if text.contains(['\n', '\r']) { text.replace(['\n', '\r'], " ") } else { text };
    RawValue::from_string(text).ok()
}
