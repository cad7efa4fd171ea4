//! A task that was found, and where it runs.

use super::{running_task::RunningTask, task_record::Task};
use std::sync::Arc;

/// A task or stream that was found.
#[derive(Debug)]
pub struct FoundTask {
    /// Its record.
    pub task: Task,
    /// Where it runs.
    pub place: TaskPlace,
}

/// Where a task or stream runs, or ran.
#[derive(Debug)]
pub enum TaskPlace {
    /// In this gateway, where it may have ended a short time ago.
    Here(Arc<RunningTask>),
    /// Only its record was found, in the task store: it runs at another gateway, or has ended.
    Stored,
    /// It is a stream of another gateway, and not in the task store.
    Stream {
        /// The id of that gateway in the shared state.
        gateway: Box<str>,
    },
}
