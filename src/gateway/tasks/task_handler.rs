//! Requests about tasks: state, events, cancellation. A task of another caller, an unknown id and a malformed id get
//! the same response (R76, R79).

use super::resumable_stream::{FollowerResponse, events_expired};
use crate::{
    directory::DirectoryResponse,
    fault::{Fault, FaultCode},
    gateway::{
        admission::{LocalAccess, owner_key},
        call::{CallError, CallResult},
        exchange::{Exchange, add_call_headers, append_if_valid},
        header_names::TASK_ID,
        path_router::{self, TaskRequest, TaskTarget},
    },
    http_server::{ResponseHead, ServeOutcome},
    limit::RateLimitStatus,
    task::{EventReader, RunningTask, Task, TaskManager, TaskState, no_such_task, parse_event_id},
    telemetry::Event,
};
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, StatusCode, header};
use std::{sync::Arc, time::Duration};

/// How often a task that runs in another gateway is polled for its followers.
const REMOTE_POLL_INTERVAL: Duration = Duration::from_secs(1);

/// Handles a request about a task (steps 6 to 13).
pub(in crate::gateway) async fn handle_task_request(
    exchange: &mut Exchange<'_>,
    request: TaskRequest,
    target: TaskTarget<'_>,
) -> CallResult<ServeOutcome> {
    let Some(manager) = &exchange.config.tasks else { return Err(path_router::path_not_found().into()) };
    exchange.call.mark_directory_request();
    // Tasks of anonymous callers belong to their address.
    let access = LocalAccess {
        allow_anonymous: exchange.config.auth.anonymous_caller().grants.has_grant(),
        is_search: false,
        changes_state: request == TaskRequest::Cancel,
    };
    let local = exchange.authenticate_and_limit(access).await?;
    let rate_limit_status = local.rate_limit_status.as_ref();
    let owner = owner_key(&local.caller, exchange.connection.client_address());
    let id = target.task;
    match request {
        TaskRequest::State => {
            let (task, _) = manager.find(&owner, id).await?;
            if target.agent.is_some_and(|agent| *agent != *task.agent) {
                return Err(no_such_task().into());
            }
            exchange.respond_locally(task_response(manager, &task), rate_limit_status).await
        }
        TaskRequest::Cancel => {
            let response = task_response(manager, &manager.cancel(&owner, id).await?);
            exchange.respond_locally(response, rate_limit_status).await
        }
        TaskRequest::Events => {
            let task_ref = TaskRef { manager, owner: &owner, id };
            respond_with_task_events(exchange, task_ref, rate_limit_status).await
        }
    }
}

async fn respond_with_task_events(
    exchange: &mut Exchange<'_>,
    task_ref: TaskRef<'_>,
    rate_limit_status: Option<&RateLimitStatus>,
) -> CallResult<ServeOutcome> {
    let (mut task, running) = task_ref.find().await?;
    let after = last_event_id(&exchange.session.head().headers)?;
    // A client that already has the last event gets 204; with an empty stream it would reconnect forever.
    let running = running.filter(|_| !(task.has_ended() && after == Some(task.last.max(1))));
    let Some(running) = running else {
        // The task runs in another gateway or has ended: only its final state is available here.
        if !task.has_ended() {
            task = poll_remote_task(exchange, task_ref).await?;
        }
        let response = final_event_response(task_ref.manager, &task, after.unwrap_or_default())?;
        return exchange.respond_locally(response, rate_limit_status).await;
    };
    let follower = match after {
        Some(after) => EventReader::after(&running, after),
        // Without `Last-Event-ID` the client gets every event that is stored.
        None => EventReader::from_oldest(&running),
    };
    let follower = follower.ok_or_else(events_expired)?;
    if after.is_some() {
        exchange.gateway.metrics.record_event(Event::StreamResumed);
    }
    let mut headers = event_stream_headers(&running);
    add_call_headers(&mut headers, exchange.call, rate_limit_status);
    let response = FollowerResponse { exchange, follower, original_call: None };
    Ok(response.run(ResponseHead { status: StatusCode::OK, headers }).await)
}

/// Polls a task that runs in another gateway until it ends or the longest wait is over.
async fn poll_remote_task(exchange: &mut Exchange<'_>, task_ref: TaskRef<'_>) -> CallResult<Task> {
    let deadline = tokio::time::Instant::now() + task_ref.manager.config().max_wait.get();
    loop {
        let (task, _) = task_ref.find().await?;
        if task.has_ended() || exchange.connection.is_draining() || tokio::time::Instant::now() >= deadline {
            return Ok(task);
        }
        tokio::select! {
            () = exchange.session.wait_for_disconnect() => return Err(CallError::CallerGone),
            () = tokio::time::sleep(REMOTE_POLL_INTERVAL) => {}
        }
    }
}

/// The task that a request names, and the caller that must own it.
#[derive(Clone, Copy)]
struct TaskRef<'a> {
    manager: &'a TaskManager,
    owner: &'a str,
    id: &'a str,
}

impl TaskRef<'_> {
    /// Returns the task's record, and the task if it runs in this gateway.
    async fn find(self) -> Result<(Task, Option<Arc<RunningTask>>), Fault> {
        self.manager.find(self.owner, self.id).await
    }
}

/// Parses `Last-Event-ID`: the position after which the client needs events; `None` for all events.
fn last_event_id(headers: &HeaderMap) -> Result<Option<u64>, Fault> {
    let Some(id) = headers.get("last-event-id").filter(|id| !id.is_empty()) else { return Ok(None) };
    let position = parse_event_id(id.to_str().unwrap_or("?"));
    let refuse = || Fault::new(FaultCode::InvalidInput, "Last-Event-ID is not the id of an event of this task");
    position.map(Some).ok_or_else(refuse)
}

fn event_stream_headers(task: &RunningTask) -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    append_if_valid(&mut headers, TASK_ID, &task.id());
    headers
}

/// Returns the response with a task's state as JSON.
fn task_response(manager: &TaskManager, task: &Task) -> DirectoryResponse {
    let poll_interval = manager.config().poll_interval.get();
    let mut headers = HeaderMap::new();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    append_if_valid(&mut headers, TASK_ID, &task.id);
    if task.state == TaskState::Working {
        append_if_valid(&mut headers, header::RETRY_AFTER, &poll_interval.as_secs().max(1).to_string());
    }
    DirectoryResponse { status: StatusCode::OK, headers, body: Bytes::from(task.to_json(poll_interval)) }
}

/// Returns the last event of a task whose other events are not stored here. If the client has that event already, the
/// response is 204, at which clients of event streams stop reconnecting.
fn final_event_response(manager: &TaskManager, task: &Task, after: u64) -> Result<DirectoryResponse, Fault> {
    let mut response = task_response(manager, task);
    response.headers.remove(header::RETRY_AFTER);
    if task.has_ended() && after >= task.last.max(1) {
        response.status = StatusCode::NO_CONTENT;
        response.headers.remove(header::CONTENT_TYPE);
        response.body = Bytes::new();
        return Ok(response);
    }
    if task.streamed && after > 0 && after + 1 < task.last {
        return Err(events_expired());
    }
    response.headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    // For a task that has not ended, the id is the client's position, so that it reconnects for the rest.
    let id = if task.has_ended() { task.last.max(1) } else { after.max(1) };
    let state = task.to_json(manager.config().poll_interval.get());
    response.body = Bytes::from(format!("id: {id}\nevent: status\ndata: {state}\n\n"));
    Ok(response)
}
