//! Tasks and streams that run at other gateways: finding, following and canceling them through the shared state.

use super::{
    config::TaskConfig,
    event_log::{RemoteEventReader, RemoteRead, RemoteReaderLimits, RemoteStream, SharedEvents},
    found_task::{FoundTask, TaskPlace},
    task_builder::no_such_task,
    task_record::Task,
};
use crate::{
    fault::{Fault, FaultCode, Result},
    telemetry::{LimitKind, Metrics},
    values::ClientKey,
};
use std::{sync::Arc, time::Duration};
use tokio::time::{sleep, timeout};

/// How long the cancellation of a stream may take, how often its end is looked for, and after how many times the command
/// is repeated.
const CANCEL_TIMEOUT: Duration = Duration::from_secs(5);
const CANCEL_INTERVAL: Duration = Duration::from_millis(100);
const CANCEL_REPETITION: u32 = 10;

/// The tasks and streams of other gateways.
#[derive(Debug)]
pub(super) struct RemoteTasks {
    events: Arc<SharedEvents>,
    limits: RemoteReaderLimits,
    metrics: Arc<Metrics>,
}

/// Which events of another gateway are followed.
#[derive(Clone, Copy, Debug)]
pub struct RemoteFollow<'a> {
    /// The caller, to whom the task belongs.
    pub owner: &'a str,
    /// The client whose share the reader counts against.
    pub client: ClientKey,
    /// The task or stream.
    pub found: &'a FoundTask,
    /// The number of the last event that the caller has; `None` if it needs all events.
    pub after: Option<u64>,
}

impl RemoteTasks {
    /// Allows as many readers as tasks and streams may run in this gateway.
    pub(super) fn new(events: &Arc<SharedEvents>, config: &TaskConfig, metrics: &Arc<Metrics>) -> Self {
        let max_streams = config.resume.as_ref().map_or(0, |resume| resume.max_streams);
        let limits = RemoteReaderLimits::new(config.max_running as usize + max_streams as usize);
        Self { events: Arc::clone(events), limits, metrics: Arc::clone(metrics) }
    }

    /// Finds a stream of `owner` that runs at another gateway, or ran there a short time ago.
    ///
    /// # Errors
    /// `NotFound`; `Overloaded` if the shared state is unavailable.
    pub(super) async fn find_stream(&self, owner: &str, id: &str) -> Result<FoundTask> {
        let RemoteStream { gateway, task } = self.events.find_stream(owner, id).await?.ok_or_else(no_such_task)?;
        Ok(FoundTask { task, place: TaskPlace::Stream { gateway: gateway.into() } })
    }

    /// Follows the events of a task or stream. `None` for a task whose state in the task store says as much as can be
    /// known.
    ///
    /// # Errors
    /// `Gone` if the events after the caller's are not known any more, `RateLimited` or `Overloaded` if there are too many
    /// readers, `Overloaded` if the shared state is unavailable and the task is a stream.
    pub(super) async fn follow(
        &self,
        follow: RemoteFollow<'_>,
        config: &TaskConfig,
    ) -> Result<Option<RemoteEventReader>> {
        let RemoteFollow { owner, client, found: FoundTask { task, place }, after } = follow;
        let permit = self.limits.acquire(client, &task.id, config.max_share).map_err(|refusal| {
            self.metrics.record_limited_request(LimitKind::Tasks);
            refusal.with_retry_after(config.poll_interval.get())
        })?;
        let read = RemoteRead { owner, id: &task.id, after, has_ended: task.has_ended(), permit };
        let reader = RemoteEventReader::open(&self.events, read).await;
        match place {
            TaskPlace::Stream { .. } => reader?.ok_or_else(no_such_task).map(Some),
            // The task store has the end, or will have it.
            _ => match reader {
                Err(_) if task.has_ended() => Ok(None),
                Err(fault) if fault.code() == FaultCode::Overloaded => Ok(None),
                reader => reader,
            },
        }
    }

    /// Has `gateway` cancel the stream `id` of `owner`, and waits until the log of the stream has ended.
    ///
    /// # Errors
    /// `Overloaded` if the gateway does not end the stream in time, or the shared state is unavailable; `NotFound`.
    pub(super) async fn cancel_stream(&self, owner: &str, id: &str, gateway: &str) -> Result<Task> {
        let canceled = async {
            for attempt in 0_u32.. {
                // A command may be lost.
                if attempt.is_multiple_of(CANCEL_REPETITION) {
                    self.events.cancel_stream(gateway, id);
                }
                sleep(CANCEL_INTERVAL).await;
                let current = self.find_stream(owner, id).await?;
                if current.task.has_ended() {
                    return Ok(current.task);
                }
            }
            Err(not_canceled())
        };
        timeout(CANCEL_TIMEOUT, canceled).await.unwrap_or_else(|_| Err(not_canceled()))
    }
}

#[cold]
fn not_canceled() -> Fault {
    let text = "The gateway that runs the stream does not end it; whether the agent finished is unknown";
    Fault::new(FaultCode::Overloaded, text)
}
