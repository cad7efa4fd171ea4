//! Events of tasks and streams that other gateways read. The gateway that runs a task or stream appends its events to a log
//! in the shared state, in batches and in the background: a slow or unavailable server delays no local reader. Other
//! gateways read the log and follow it. They report to the gateway that runs a stream how far its readers have come,
//! because a stream without readers ends.

mod event_log_writer;
mod log_entry;
mod log_flusher;
mod log_header;
mod log_names;
mod log_queue;
mod read_start;
mod remote_event_reader;
mod remote_reader_limits;
mod shared_events;
mod stream_command_sender;

#[cfg(test)]
mod tests;

pub(super) use event_log_writer::{EventLogWriter, NewEventLog};
pub use remote_event_reader::RemoteEventReader;
pub(super) use remote_event_reader::RemoteRead;
pub(super) use remote_reader_limits::RemoteReaderLimits;
pub(super) use shared_events::{RemoteStream, SharedEvents};
