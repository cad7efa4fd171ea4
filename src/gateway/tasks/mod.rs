//! Tasks: calls that are answered asynchronously (R79), the requests about them, and streams that can be resumed (R80).

mod event_publishing;
mod respond_async;
mod resumable_stream;
mod task_handler;

pub(super) use respond_async::{TaskCall, TaskOptions, respond_with_task};
pub(super) use resumable_stream::{FollowerResponse, detach_stream};
pub(super) use task_handler::handle_task_request;
