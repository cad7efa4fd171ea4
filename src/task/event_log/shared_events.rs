//! The event logs of the gateways that share a state, as the task manager uses them.

use super::{
    event_log_writer::{EventLogWriter, NewEventLog},
    log_flusher::flush_logs,
    log_header::LogHeader,
    log_names::{commands_to_gateway, events_of_task},
    log_queue::LogQueue,
    stream_command_sender::{RegisteredReader, StreamCommandSender, StreamCommands, send_commands},
};
use crate::{
    fault::{Fault, FaultCode, Result},
    store::{LogPage, SharedState, StateError},
    task::task_record::Task,
    telemetry::Metrics,
};
use std::{fmt, sync::Arc, time::Duration};
use tokio::{task::JoinSet, time::sleep};

/// Maximum bytes of the events of one trip, which a reader holds in memory.
const MAX_PAGE_BYTES: u32 = 64 << 10;
/// Maximum bytes of the commands of one trip.
const MAX_COMMAND_BYTES: u32 = 256 << 10;
/// How long after the start of a task its log may be missing: it is on its way.
const WRITE_DELAY: Duration = Duration::from_millis(150);
/// `Retry-After` while the shared state is unavailable.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// The event logs.
pub(in crate::task) struct SharedEvents {
    shared_state: Arc<SharedState>,
    queue: Arc<LogQueue<EventLogWriter>>,
    readers: Arc<StreamCommandSender>,
    /// Ends with the logs.
    _background: JoinSet<()>,
}

/// A stream that runs at another gateway, or ran there.
#[derive(Debug)]
pub(in crate::task) struct RemoteStream {
    pub(in crate::task) gateway: String,
    pub(in crate::task) task: Task,
}

impl SharedEvents {
    /// Starts to append events to logs. Requires a tokio runtime.
    pub(in crate::task) fn start(shared_state: &Arc<SharedState>, metrics: &Arc<Metrics>) -> Self {
        let (queue, readers) = (Arc::new(LogQueue::new(metrics)), Arc::<StreamCommandSender>::default());
        let mut background = JoinSet::new();
        background.spawn(flush_logs(Arc::clone(&queue), Arc::clone(shared_state)));
        background.spawn(send_commands(Arc::clone(&readers), Arc::clone(shared_state)));
        Self { shared_state: Arc::clone(shared_state), queue, readers, _background: background }
    }

    /// Begins the log of a task of `owner`, or of a stream: its limits are lossless. It is kept for `window` after the end.
    pub(in crate::task) fn start_log(&self, owner: &str, new: NewEventLog<'_>) -> Arc<EventLogWriter> {
        let stream = new.limits.lossless.then(|| new.task.clone());
        let header = LogHeader::new(self.shared_state.gateway_id(), owner, stream);
        EventLogWriter::start(new, header, &self.queue)
    }

    /// Finds a stream of `owner` that runs at another gateway, or ran there a short time ago.
    ///
    /// # Errors
    /// `Overloaded` if the shared state is unavailable: whether there is such a stream is unknown then.
    pub(in crate::task) async fn find_stream(&self, owner: &str, id: &str) -> Result<Option<RemoteStream>> {
        let Some((header, _)) = self.read_new(owner, id, u64::MAX).await? else { return Ok(None) };
        let LogHeader { gateway, stream, .. } = header;
        Ok(stream.map(|task| RemoteStream { gateway, task }))
    }

    /// As [`SharedEvents::read`], for a task that may have begun a moment ago: a log that is missing is looked for again.
    pub(super) async fn read_new(&self, owner: &str, id: &str, from: u64) -> Result<Option<(LogHeader, LogPage)>> {
        let found = self.read(owner, id, from).await?;
        if found.is_some() {
            return Ok(found);
        }
        // Also if the log belongs to another caller: the response time must not reveal it.
        sleep(WRITE_DELAY).await;
        self.read(owner, id, from).await
    }

    /// Reads the log of a task of `owner` from an index; `None` if there is none, or it belongs to another owner.
    pub(super) async fn read(&self, owner: &str, id: &str, from: u64) -> Result<Option<(LogHeader, LogPage)>> {
        let page = self.read_page(id, from).await.map_err(|why| events_unavailable().with_detail(why))?;
        let header = page.as_ref().and_then(|page| LogHeader::decode(&page.header));
        Ok(header.filter(|header| header.belongs_to(owner)).zip(page))
    }

    pub(super) async fn read_page(&self, id: &str, from: u64) -> std::result::Result<Option<LogPage>, StateError> {
        self.shared_state.read_log(events_of_task(id), from, MAX_PAGE_BYTES).await
    }

    /// Returns whether a gateway has sent a heartbeat in the last seconds.
    pub(super) async fn check_gateway(&self, gateway: &str) -> std::result::Result<bool, StateError> {
        self.shared_state.check_gateway(gateway).await
    }

    /// Registers a reader of a stream of `gateway`.
    pub(super) fn register_reader(&self, gateway: &str, id: &str) -> RegisteredReader {
        self.readers.register(gateway, id)
    }

    /// Sends a command to another gateway to cancel a stream. The command may be lost.
    pub(in crate::task) fn cancel_stream(&self, gateway: &str, id: &str) {
        self.readers.cancel(gateway, id);
    }

    /// Reads commands to this gateway after `position`, and moves it. Nothing can be read while the shared state is unavailable.
    pub(in crate::task) async fn read_commands(&self, position: &mut u64) -> Vec<StreamCommands> {
        if !self.shared_state.is_available() {
            return Vec::new();
        }
        let log = commands_to_gateway(self.shared_state.gateway_id());
        match self.shared_state.read_log(log, *position, MAX_COMMAND_BYTES).await {
            Ok(Some(page)) => {
                // Less than before after the shared state has lost its data.
                let from =
                    if page.next_index < *position { page.first_index } else { (*position).max(page.first_index) };
                let is_new = from >= *position;
                *position = if is_new { from + page.entries.len() as u64 } else { page.first_index };
                let entries = page.entries.iter().filter(|_| is_new);
                entries.filter_map(|entry| serde_json::from_slice(entry).ok()).collect()
            }
            Ok(None) => {
                *position = 0;
                Vec::new()
            }
            Err(_) => Vec::new(),
        }
    }

    /// Waits until all events are in their logs, for at most `limit`.
    pub(in crate::task) async fn finish(&self, limit: Duration) {
        if self.shared_state.is_available() {
            self.queue.wait_until_written(limit).await;
        }
    }
}

impl fmt::Debug for SharedEvents {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.debug_struct("SharedEvents").finish_non_exhaustive()
    }
}

/// Returns the fault while the shared state is unavailable: whether there is such a task is unknown then.
#[cold]
pub(super) fn events_unavailable() -> Fault {
    Fault::new(FaultCode::Overloaded, "The task cannot be read at the moment").with_retry_after(RETRY_AFTER)
}
