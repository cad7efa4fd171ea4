//! Asynchronous calls (`Prefer: respond-async`): the task is stored before its caller receives it, and runs without the
//! caller (R79).

use super::event_publishing::publish_events;
use crate::{
    directory::DirectoryResponse,
    fault::{Fault, FaultCode, Result},
    gateway::{
        admission::{AdmissionRecorder as _, owner_key},
        background::{BackgroundCall, BackgroundReply, run_isolated},
        call::{Call, CallResult, CallState},
        exchange::{AgentHeaders, Exchange, append_if_valid},
        header_names::{AGENT_VERSION, PREFER, TASK_ID},
        prefer::{self, Preferences},
        response::{CompleteReply, is_event_stream},
    },
    http_server::ServeOutcome,
    idempotency::{FirstCallClaim, FirstOutcome},
    task::{AgentReply, NewTask, RunningTask, TaskManager, TaskOutcome},
    transport::{Admission as _, BodyPrefix},
};
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, StatusCode, header, request};
use std::sync::Arc;

/// Where the task runs, and how its caller wants to receive the result.
pub(in crate::gateway) struct TaskOptions {
    manager: Arc<TaskManager>,
    preferences: Preferences,
    callback_url: Option<String>,
}

/// A call that becomes a task.
pub(in crate::gateway) struct TaskCall {
    pub(in crate::gateway) background: BackgroundCall,
    pub(in crate::gateway) options: TaskOptions,
    /// The claim of the call's idempotency key, if it has one.
    pub(in crate::gateway) claim: Option<FirstCallClaim>,
}

impl TaskOptions {
    /// Returns the task options if the call becomes a task: its caller prefers that, its caller names a callback URL,
    /// or the agent is configured so. `None` without tasks.
    ///
    /// # Errors
    /// `InvalidInput` for two different callback URLs.
    pub(in crate::gateway) fn requested(
        manager: Option<&Arc<TaskManager>>,
        head: &request::Parts,
        runs_as_task: bool,
    ) -> Result<Option<Self>> {
        let Some(manager) = manager else { return Ok(None) };
        let preferences = Preferences::from_headers(&head.headers);
        let callback_url = prefer::callback_url(head)?;
        let becomes_task = runs_as_task || preferences.allows_async() || callback_url.is_some();
        Ok(becomes_task.then(|| Self { manager: Arc::clone(manager), preferences, callback_url }))
    }
}

/// Starts a task and responds with 202, or with the result if it is available within the caller's `wait`.
pub(in crate::gateway) async fn respond_with_task(
    exchange: &mut Exchange<'_>,
    TaskCall { mut background, options, mut claim }: TaskCall,
) -> CallResult<ServeOutcome> {
    let TaskOptions { manager, preferences, callback_url } = options;
    let admitted = Arc::clone(&background.admitted);
    let agent = AgentHeaders::of(&admitted);
    let version = admitted.version().and_then(|version| version.label.clone());
    let new_task = NewTask {
        owner: owner_key(admitted.caller(), admitted.peer()),
        client: admitted.client(),
        agent: agent.route.agent.id.as_str(),
        operation: &admitted.operation().name,
        request_id: exchange.call.id(),
        time_limit: admitted.deadline().saturating_duration_since(tokio::time::Instant::now()),
        callback_url: callback_url.as_deref(),
        metrics: Some(&agent.route.metrics),
        traceparent: exchange.call.trace_scope().and_then(|trace| Some(trace.traceparent().to_str().ok()?.to_owned())),
    };
    if let Some(claim) = &mut claim {
        claim.begin()?;
    }
    let task = match manager.start_task(new_task).await {
        Ok(task) => task,
        Err(fault) => {
            if let Some(claim) = claim {
                claim.release().await;
            }
            return Err(fault.into());
        }
    };
    let record = exchange.call.background_record();
    // The task may outlive the call, and has a span of its own below it.
    background.trace = record.trace_scope().cloned();
    background.attempts = record.stats.background_attempts();
    tokio::spawn(run_task(Arc::clone(&manager), Arc::clone(&task), background, record));
    let mut response = accepted_response(&manager, &task, preferences);
    // R68, in the 202 and in the result.
    response.headers.extend(version.clone().map(|version| (AGENT_VERSION, version)));
    if let Some(claim) = claim {
        // A retry with the same key gets the same task, even if this caller leaves now.
        let (headers, body) = (response.headers.clone(), response.body.clone());
        claim.complete(FirstOutcome::Response { status: response.status, headers, body }).await;
    }
    let wait = preferences.wait.unwrap_or_default().min(manager.config().max_wait.get());
    let ended = tokio::time::timeout(wait, task.wait_until_ended());
    if !wait.is_zero() && exchange.wait_unless_caller_leaves(ended).await?.is_ok() {
        match task.outcome() {
            Some(TaskOutcome::Completed(agent_reply) | TaskOutcome::FailedWithReply { reply: agent_reply, .. })
                if !agent_reply.truncated =>
            {
                let mut reply = complete_reply(agent_reply, &task);
                reply.headers.extend(version.map(|version| (AGENT_VERSION, version)));
                return exchange.respond_with_reply(reply, agent).await;
            }
            Some(TaskOutcome::Failed(fault)) => return Err(fault.into()),
            _ => {}
        }
    }
    exchange.respond_locally(response, agent.rate_limit_status).await
}

/// Runs a task until it ends or is cancelled.
async fn run_task(manager: Arc<TaskManager>, task: Arc<RunningTask>, mut background: BackgroundCall, mut record: Call) {
    let _running = background.gateway.metrics.tasks().track_running();
    // The agent must respond with the result, not with a task of its own.
    background.headers.remove(PREFER);
    let max_bytes = manager.config().max_result_size.get();
    let started_at = std::time::Instant::now();
    let outcome = tokio::select! {
        biased;
        () = task.wait_until_canceled() => TaskOutcome::Canceled,
        outcome = run_call(background, &task, max_bytes) => outcome,
    };
    record.stats.upstream_duration = Some(started_at.elapsed());
    // A task that the end of the drain cancels has failed already.
    let outcome = match outcome {
        TaskOutcome::Canceled => task.outcome().unwrap_or(TaskOutcome::Canceled),
        outcome => outcome,
    };
    record.state = match &outcome {
        TaskOutcome::Completed(reply) => {
            record.stats.bytes_out = reply.body.len() as u64;
            CallState::Answered(reply.status)
        }
        TaskOutcome::FailedWithReply { fault, reply } => {
            record.record_agent_error(Some(fault.clone()));
            record.stats.bytes_out = reply.body.len() as u64;
            CallState::Answered(reply.status)
        }
        TaskOutcome::Failed(fault) => CallState::Refused(fault.clone()),
        TaskOutcome::Canceled => CallState::CallerGone(0),
    };
    drop(record);
    manager.end_and_save(&task, &outcome).await;
}

/// Makes the call of a task. The events of a stream go to the task's followers as they arrive.
async fn run_call(mut background: BackgroundCall, task: &RunningTask, max_bytes: usize) -> TaskOutcome {
    let (deadline, timeout) = (background.admitted.deadline(), background.admitted.deadline_timeout());
    let outcome = run_isolated(deadline, read_outcome(&mut background, task, max_bytes)).await;
    outcome.unwrap_or_else(|fault| TaskOutcome::Failed(timeout.name_in(fault)))
}

async fn read_outcome(background: &mut BackgroundCall, task: &RunningTask, max_bytes: usize) -> Result<TaskOutcome> {
    let mut reply = match background.read_reply(max_bytes).await? {
        BackgroundReply::Complete { reply, reported } => return Ok(outcome_of(stored_reply(reply, false), reported)),
        BackgroundReply::Streamed(reply) => reply,
    };
    let mut reported = None;
    if !reply.status.is_success() {
        reported = background.validator().read_and_judge(&mut reply).await?.1;
    }
    let (body, truncated) = if is_event_stream(&reply.headers) {
        let published = publish_events(&mut reply, task, max_bytes).await?;
        let validator = background.validator();
        reported = reported.or_else(|| validator.find_error_event(&published.text, !published.truncated));
        (published.text, published.truncated)
    } else {
        let BodyPrefix { bytes, complete } = reply.body.peek(max_bytes).await?;
        if !complete {
            return Err(Fault::new(FaultCode::AgentError, "The agent's answer is too large to be stored"));
        }
        (bytes, false)
    };
    let reply = CompleteReply { status: reply.status, headers: reply.headers, body };
    Ok(outcome_of(stored_reply(reply, truncated), reported))
}

fn outcome_of(reply: AgentReply, reported: Option<Fault>) -> TaskOutcome {
    match reported {
        Some(fault) => TaskOutcome::FailedWithReply { fault, reply },
        None => TaskOutcome::Completed(reply),
    }
}

fn stored_reply(reply: CompleteReply, truncated: bool) -> AgentReply {
    let media_type = reply.headers.get(header::CONTENT_TYPE).and_then(|media| media.to_str().ok()).unwrap_or_default();
    AgentReply { status: reply.status.as_u16(), media_type: media_type.into(), body: reply.body, truncated }
}

fn complete_reply(reply: AgentReply, task: &RunningTask) -> CompleteReply {
    let mut headers = HeaderMap::new();
    if let Ok(media) = HeaderValue::from_str(&reply.media_type)
        && !media.is_empty()
    {
        headers.insert(header::CONTENT_TYPE, media);
    }
    append_if_valid(&mut headers, TASK_ID, &task.id());
    let status = StatusCode::from_u16(reply.status).unwrap_or(StatusCode::OK);
    CompleteReply { status, headers, body: reply.body }
}

/// Builds the 202 response: the task's URL, and when to poll it (R79).
fn accepted_response(manager: &TaskManager, running_task: &RunningTask, preferences: Preferences) -> DirectoryResponse {
    let poll_interval = manager.config().poll_interval.get();
    let task = running_task.record();
    let mut headers = HeaderMap::new();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    append_if_valid(&mut headers, header::LOCATION, &format!("/tasks/{}", task.id));
    append_if_valid(&mut headers, header::RETRY_AFTER, &poll_interval.as_secs().max(1).to_string());
    append_if_valid(&mut headers, TASK_ID, &task.id);
    append_if_valid(&mut headers, header::LINK, &format!("</tasks/{}/events>; rel=\"monitor\"", task.id));
    if let Some(applied) = preferences.applied_value() {
        append_if_valid(&mut headers, "preference-applied", &applied);
    }
    DirectoryResponse { status: StatusCode::ACCEPTED, headers, body: Bytes::from(task.to_json(poll_interval)) }
}
