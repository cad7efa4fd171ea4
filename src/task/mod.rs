//! Asynchronous tasks and resumable event streams: a task's record and states, the buffer of its events, its callback,
//! and the cleanup after a gateway process that died. A task belongs to the caller that started it. This module calls
//! no agent and writes no response: `gateway` does.

mod callback;
mod callback_hosts;
mod callback_queue;
mod config;
mod event_buffer;
mod event_follower;
mod event_log;
mod event_reader;
mod found_task;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod maintenance;
mod remote_tasks;
mod running_task;
mod sse_splitter;
mod stream_commands;
mod task_builder;
mod task_listing;
mod task_manager;
mod task_record;
mod task_registry;
mod task_result;

pub use callback::CallbackConfig;
pub use config::{StreamResumeConfig, TaskConfig};
pub use event_follower::EventFollower;
pub use event_log::RemoteEventReader;
pub use event_reader::{EventReader, NextEvent};
pub use found_task::{FoundTask, TaskPlace};
pub use remote_tasks::RemoteFollow;
pub use running_task::RunningTask;
pub use sse_splitter::parse_event_id;
pub use task_builder::{NewTask, TaskServices, events_expired, no_such_task};
pub use task_listing::{TaskDetails, TaskError, TaskRow};
pub use task_manager::TaskManager;
pub use task_record::{AgentReply, Task, TaskOutcome, TaskOverview, TaskState};

#[cfg(test)]
mod tests;
