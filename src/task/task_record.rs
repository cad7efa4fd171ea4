//! Record of a task: its JSON for the caller, and its form in the store.

use super::task_result::{ReplyResult, TaskResult};
use crate::{
    fault::Fault,
    store::{StoredTask, TaskSummary},
};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::{sync::Arc, time::Duration};
use time::{OffsetDateTime, format_description::well_known::Rfc3339};

/// The greatest event number that an event id can have: used when a task ends and its last event number is unknown.
const MAX_EVENT_NUMBER: u64 = 999_999_999_999_999_999;

/// State of a task, named as in A2A.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum TaskState {
    /// The agent is being called.
    Working,
    /// The agent responded.
    Completed,
    /// The call failed; the task has the error.
    Failed,
    /// The caller canceled the task.
    Canceled,
}

impl TaskState {
    /// Every state.
    pub const ALL: [Self; 4] = [Self::Working, Self::Completed, Self::Failed, Self::Canceled];

    /// The state's name in JSON.
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
pub enum TaskOutcome {
    /// The agent responded.
    Completed(AgentReply),
    /// The call failed.
    Failed(Fault),
    /// The agent responded with a failure in its protocol's own form, such as an error of JSON-RPC (R40).
    FailedWithReply {
        /// The failure.
        fault: Fault,
        /// The response, which clients of the protocol read.
        reply: AgentReply,
    },
    /// The caller canceled it.
    Canceled,
}

/// An agent's complete, validated response.
#[derive(Clone, Debug)]
pub struct AgentReply {
    /// HTTP status.
    pub status: u16,
    /// Media type; empty if the agent sent none.
    pub media_type: Box<str>,
    /// Body.
    pub body: Bytes,
    /// Whether the body was truncated because it exceeded the size limit.
    pub truncated: bool,
}

/// The record of a task.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Task {
    /// Id of the task.
    pub id: Arc<str>,
    /// Id of the agent.
    pub agent: Box<str>,
    /// Operation; empty for the agent's default operation.
    pub operation: Box<str>,
    /// Id of the call that started the task.
    pub request: Box<str>,
    /// Current state.
    pub state: TaskState,
    /// Time of the start.
    #[serde(with = "time::serde::rfc3339")]
    pub created: OffsetDateTime,
    /// Time of the last change of state.
    #[serde(with = "time::serde::rfc3339")]
    pub updated: OffsetDateTime,
    /// Time at which the record is deleted.
    #[serde(with = "time::serde::rfc3339")]
    pub expires: OffsetDateTime,
    /// The error, or the description of the result, as members of the caller's JSON.
    #[serde(default)]
    pub end: Value,
    /// The result; it follows the other members in a stored record.
    #[serde(skip)]
    pub result: Option<TaskResult>,
    /// Number of the last event.
    #[serde(default)]
    pub last: u64,
    /// Whether the agent sent events.
    #[serde(default)]
    pub streamed: bool,
    /// URL of the callback, and the number of attempts to deliver it.
    #[serde(default)]
    pub callback: Option<(Box<str>, u32)>,
    /// The trace context of the call that started the task, for its callback; the caller does not read it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traceparent: Option<Box<str>>,
}

/// What lists show of a task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskOverview {
    /// Id of the agent.
    pub agent: Box<str>,
    /// Operation; empty for the agent's default operation.
    pub operation: Box<str>,
    /// Current state.
    pub state: TaskState,
    /// Time of the start.
    #[serde(with = "time::serde::rfc3339")]
    pub created: OffsetDateTime,
    /// Time of the last change of state.
    #[serde(with = "time::serde::rfc3339")]
    pub updated: OffsetDateTime,
}

impl TaskOverview {
    /// Converts the overview for the store.
    fn to_summary(&self) -> TaskSummary {
        TaskSummary {
            created: self.created,
            agent: (*self.agent).into(),
            state: self.state.as_str().into(),
            text: serde_json::to_string(self).unwrap_or_default().into(),
        }
    }

    /// Returns when the task ended; `None` while it runs.
    pub fn ended(&self) -> Option<OffsetDateTime> {
        (self.state != TaskState::Working).then_some(self.updated)
    }
}

impl Task {
    /// Returns the time from the start of the task to its last change.
    pub(super) fn age(&self) -> Duration {
        Duration::try_from(self.updated - self.created).unwrap_or_default()
    }

    /// Returns the JSON for the caller (R79, R83, R86), on one line.
    pub fn to_json(&self, poll_interval: Duration) -> String {
        let mut json = self.to_json_without_result(poll_interval).to_string();
        json.reserve(self.result.as_ref().map_or(0, TaskResult::len) + 16);
        let result = self.result.as_ref().map(TaskResult::as_str);
        if let Some(result) = result.or_else(|| (self.state == TaskState::Completed).then_some("null")) {
            json.pop();
            json.push_str(",\"result\":");
            json.push_str(result);
            json.push('}');
        }
        json
    }

    /// Returns the JSON for the caller, without the result.
    pub(super) fn to_json_without_result(&self, poll_interval: Duration) -> Value {
        let date = |time: OffsetDateTime| time.format(&Rfc3339).unwrap_or_default();
        let mut json = json!({
            "taskId": &*self.id,
            "status": self.state.as_str(),
            "sourceAgent": &*self.agent,
            "createdAt": date(self.created),
            "updatedAt": date(self.updated),
            "expiresAt": date(self.expires),
            "url": format!("/tasks/{}", self.id),
            "eventsUrl": format!("/tasks/{}/events", self.id),
        });
        let Some(members) = json.as_object_mut() else { return json };
        if !self.operation.is_empty() {
            members.insert("operation".to_owned(), (*self.operation).into());
        }
        match self.state {
            TaskState::Working => members.insert("pollInterval".to_owned(), poll_interval.as_secs().into()),
            _ => members.insert("timeTaken".to_owned(), (self.updated - self.created).as_seconds_f64().into()),
        };
        if let Value::Object(end) = &self.end {
            members.extend(end.clone());
        }
        json
    }

    /// Records how the task ended and sets its expiry.
    pub fn record_outcome(&mut self, outcome: &TaskOutcome, retention: Duration) {
        self.updated = OffsetDateTime::now_utc();
        self.expires = self.updated + retention;
        // Greater than any event number that a caller may have read from another gateway.
        self.last = MAX_EVENT_NUMBER;
        (self.state, self.end, self.result) = match outcome {
            TaskOutcome::Completed(reply) => {
                let (end, result) = reply.result_members();
                (TaskState::Completed, end, result)
            }
            TaskOutcome::Failed(fault) => (TaskState::Failed, fault.to_error_object(&self.request), None),
            TaskOutcome::FailedWithReply { fault, reply } => {
                let (mut end, result) = reply.result_members();
                if let (Some(end), Value::Object(error)) = (end.as_object_mut(), fault.to_error_object(&self.request)) {
                    end.extend(error);
                }
                (TaskState::Failed, end, result)
            }
            TaskOutcome::Canceled => (TaskState::Canceled, Value::Null, None),
        };
    }

    /// Returns what lists show.
    pub(super) fn overview(&self) -> TaskOverview {
        TaskOverview {
            agent: self.agent.clone(),
            operation: self.operation.clone(),
            state: self.state,
            created: self.created,
            updated: self.updated,
        }
    }

    /// Converts the record for the store.
    pub(super) fn to_stored(
        &self,
        owner: &Arc<str>,
        gateway_id: &Arc<str>,
        callback_due: Option<OffsetDateTime>,
    ) -> StoredTask {
        StoredTask {
            id: Arc::clone(&self.id),
            owner: Arc::clone(owner),
            gateway_id: Arc::clone(gateway_id),
            is_running: self.state == TaskState::Working,
            expires: self.expires,
            callback_due,
            record: self.to_record().into(),
            summary: Some(self.overview().to_summary()),
        }
    }

    /// Returns the members of the record on one line, and on the next one the result.
    fn to_record(&self) -> String {
        let mut record = serde_json::to_string(self).unwrap_or_default();
        if let Some(result) = &self.result {
            record.reserve_exact(1 + result.len());
            record.push('\n');
            record.push_str(result.as_str());
        }
        record
    }

    /// Parses a stored task; `None` if another program wrote it.
    pub(super) fn from_stored(stored: &StoredTask) -> Option<Self> {
        let members = stored.record.split('\n').next()?;
        let mut task: Self = serde_json::from_str(members).ok()?;
        let result = members.len() + 1;
        if result < stored.record.len() {
            task.result = Some(TaskResult::from_record(Arc::clone(&stored.record), result));
        }
        Some(task)
    }

    /// Whether the task has ended.
    pub fn has_ended(&self) -> bool {
        self.state != TaskState::Working
    }
}

impl AgentReply {
    /// Returns the members that describe the result, and the result.
    fn result_members(&self) -> (Value, Option<TaskResult>) {
        let mut object = serde_json::Map::new();
        object.insert("statusCode".to_owned(), self.status.into());
        if !self.media_type.is_empty() {
            object.insert("resultType".to_owned(), (*self.media_type).into());
        }
        if self.truncated {
            object.insert("truncated".to_owned(), true.into());
        }
        let ReplyResult { json, is_base64 } = ReplyResult::of(&self.media_type, &self.body);
        if is_base64 {
            object.insert("resultEncoding".to_owned(), "base64".into());
        }
        (object.into(), json)
    }
}
