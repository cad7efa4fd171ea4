//! Parameters of tasks, and builders for their parts: the record, the limits of the event buffer, the final event.

use super::{
    callback::CallbackSender,
    config::TaskConfig,
    event_buffer::EventLimits,
    task_record::{Task, TaskOutcome, TaskState},
};
use crate::{
    fault::{Fault, FaultCode},
    net::{self, AddressPolicy, FetchClient},
    store::{SharedState, StoredTask},
    telemetry::{AgentMetrics, Metrics},
    trace::Tracer,
    values::ClientKey,
};
use serde_json::Value;
use std::{sync::Arc, time::Duration};
use time::OffsetDateTime;

/// Maximum size of a result that the final event includes, in bytes.
const MAX_RESULT_IN_EVENT: usize = 64 << 10;

/// Dependencies of the task manager.
#[derive(Clone, Debug)]
pub struct TaskServices<'a> {
    /// Network configuration, for callbacks.
    pub network: &'a net::NetworkConfig,
    /// Addresses that callbacks may reach.
    pub policy: Arc<AddressPolicy>,
    /// Metrics.
    pub metrics: Arc<Metrics>,
    /// Traces of callbacks.
    pub tracer: Option<Arc<Tracer>>,
    /// The state that gateways share, for the events of tasks. It is that of the start.
    pub shared_state: Option<Arc<SharedState>>,
}

/// Parameters of a new task.
#[derive(Debug)]
pub struct NewTask<'a> {
    /// The caller that owns it.
    pub owner: Arc<str>,
    /// The client whose share it counts against.
    pub client: ClientKey,
    /// Id of the agent.
    pub agent: &'a str,
    /// Operation; empty for the agent's default operation.
    pub operation: &'a str,
    /// Id of the call.
    pub request_id: &'a str,
    /// Total timeout of the agent.
    pub time_limit: Duration,
    /// URL of the callback.
    pub callback_url: Option<&'a str>,
    /// Metrics of the agent.
    pub metrics: Option<&'a AgentMetrics>,
    /// The trace context of the call.
    pub traceparent: Option<String>,
}

/// Builds the callback sender, if callbacks are configured.
///
/// # Errors
/// Returns every value of `config` that cannot be used.
pub(super) fn build_callback_sender(
    config: &TaskConfig,
    services: &TaskServices<'_>,
) -> std::result::Result<Option<Arc<CallbackSender>>, Vec<String>> {
    let problems = config.problems();
    if !problems.is_empty() {
        return Err(problems);
    }
    let Some(callbacks) = &config.callbacks else { return Ok(None) };
    // Callers choose callback URLs, so these are https even if documents may be fetched over http.
    let network = net::NetworkConfig { allow_plaintext: false, ..services.network.clone() };
    let client = FetchClient::build(&network, Arc::new(services.policy.for_callers(&callbacks.allowed_addresses)))?;
    CallbackSender::new(callbacks, client, services.tracer.clone()).map(|sender| Some(Arc::new(sender)))
}

/// Returns the fault for a task that does not exist or belongs to another caller.
pub fn no_such_task() -> Fault {
    Fault::new(FaultCode::NotFound, "There is no such task")
}

/// Returns the fault for events that are no longer buffered.
pub fn events_expired() -> Fault {
    Fault::new(FaultCode::Gone, "The events after this one are no longer stored (start again, or poll the task)")
}

/// Builds the record of a new task.
pub(super) fn new_record(new: &NewTask<'_>, now: OffsetDateTime) -> Task {
    Task {
        // 122 random bits: the id cannot be guessed.
        id: uuid::Uuid::new_v4().simple().to_string().into(),
        agent: new.agent.into(),
        operation: new.operation.into(),
        request: new.request_id.into(),
        state: TaskState::Working,
        created: now,
        updated: now,
        expires: now + new.time_limit,
        end: Value::Null,
        result: None,
        last: 0,
        streamed: false,
        callback: new.callback_url.map(|url| (url.into(), 0)),
        traceparent: new.callback_url.and(new.traceparent.as_deref()).map(Box::from),
    }
}

/// Returns the limits of a task's event buffer.
pub(super) fn event_limits(config: &TaskConfig, lossless: bool) -> EventLimits {
    let resume = config.resume.clone().unwrap_or_default();
    EventLimits { max_bytes: resume.max_size.get(), max_events: resume.max_events as usize, lossless }
}

/// Returns the data of the final event: the task, without its result if that is long.
pub(super) fn final_event_data(task: &Task, poll_interval: Duration) -> String {
    let is_long = task.result.as_ref().is_some_and(|result| result.len() > MAX_RESULT_IN_EVENT);
    if is_long { task.to_json_without_result(poll_interval).to_string() } else { task.to_json(poll_interval) }
}

/// Builds the final record of a task whose gateway died.
pub(super) fn fail_orphaned_record(stored: &StoredTask, retention: Duration) -> Option<Task> {
    let mut task = Task::from_stored(stored)?;
    let fault = Fault::new(
        FaultCode::Overloaded,
        "The gateway that ran this task stopped; whether the agent finished is unknown",
    );
    task.record_outcome(&TaskOutcome::Failed(fault), retention);
    Some(task)
}
