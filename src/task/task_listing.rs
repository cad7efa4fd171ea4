//! What operators see of tasks: who owns them, which agent they call and how they ended. Inputs and results are the
//! callers' and are not part of it.

use super::task_record::{Task, TaskOverview, TaskState};
use crate::store::ListedTask;
use serde_json::Value;
use std::sync::Arc;
use time::OffsetDateTime;

/// A task in a list of operators.
#[derive(Clone, Debug)]
pub struct TaskRow {
    /// Id of the task.
    pub id: Arc<str>,
    /// The owner key of the caller.
    pub owner: Arc<str>,
    /// Time of the next attempt to deliver its callback; `None` if no callback is pending.
    pub callback_due: Option<OffsetDateTime>,
    /// What else is known; `None` if an earlier gateway stored the task.
    pub overview: Option<TaskOverview>,
}

impl From<ListedTask> for TaskRow {
    fn from(listed: ListedTask) -> Self {
        let overview = serde_json::from_str(&listed.text).ok();
        Self { id: listed.id, owner: listed.owner, callback_due: listed.callback_due, overview }
    }
}

/// One task, for operators.
#[derive(Clone, Debug)]
pub struct TaskDetails {
    /// The task in a list.
    pub row: TaskRow,
    /// Id of the call that started it.
    pub request_id: Box<str>,
    /// Time at which the record is deleted.
    pub expires: OffsetDateTime,
    /// Number of its events; `None` if it is not in the memory of this gateway.
    pub events: Option<u64>,
    /// Attempts to deliver its callback; `None` without a callback.
    pub callback_attempts: Option<u32>,
    /// Why it failed: the code and the message, as the caller reads them.
    pub error: Option<TaskError>,
}

impl TaskDetails {
    /// Builds the details of a stored task.
    pub(super) fn of(task: &Task, row: TaskRow, events: Option<u64>) -> Self {
        Self {
            row,
            request_id: task.request.clone(),
            expires: task.expires,
            events,
            callback_attempts: task.callback.as_ref().map(|(_, attempts)| *attempts),
            error: TaskError::of(task),
        }
    }
}

/// Why a task failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskError {
    /// The code.
    pub code: String,
    /// The message.
    pub message: String,
}

impl TaskError {
    /// Returns the error of a task that failed.
    pub(super) fn of(task: &Task) -> Option<Self> {
        let error = task.end.get("error").filter(|_| task.state == TaskState::Failed)?;
        let text = |member: &str| error.get(member).and_then(Value::as_str).unwrap_or_default().to_owned();
        Some(Self { code: text("code"), message: text("message") })
    }
}
