//! Requests about tasks: state, events, cancellation. A task of another caller, an unknown id and a malformed id get
//! the same response (R76, R79).

use super::resumable_stream::FollowerResponse;
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
    task::{
        EventFollower, EventReader, FoundTask, RemoteFollow, RunningTask, Task, TaskManager, TaskPlace, TaskState,
        events_expired, no_such_task, parse_event_id,
    },
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
            let FoundTask { task, .. } = manager.find(&owner, id).await?;
            if target.agent.is_some_and(|agent| *agent != *task.agent) {
                return Err(no_such_task().into());
            }
            let response = task_response(manager, &task);
            // The answer alone is held until the caller has read it.
            drop(task);
            exchange.respond_locally(response, rate_limit_status).await
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
    let found = task_ref.manager.find(task_ref.owner, task_ref.id).await?;
    let after = last_event_id(&exchange.session.head().headers)?;
    // A client that already has the last event gets 204; with an empty stream it would reconnect forever.
    let has_everything = found.task.has_ended() && after == Some(found.task.last.max(1));
    let follower = match &found.place {
        _ if has_everything => None,
        TaskPlace::Here(running) => Some(EventFollower::Local(follow_locally(running, after)?)),
        TaskPlace::Stored | TaskPlace::Stream { .. } => {
            let client = exchange.client();
            let follow = RemoteFollow { owner: task_ref.owner, client, found: &found, after };
            let reader = task_ref.manager.follow_elsewhere(follow).await?;
            reader.map(|reader| EventFollower::Remote(Box::new(reader)))
        }
    };
    if let Some(follower) = follower {
        let target = FollowTarget { id: &found.task.id, is_resumed: after.is_some(), rate_limit_status };
        return follow_events(exchange, target, follower).await;
    }
    // Other events are not known: the task ended too long ago, or gateways share no state.
    let task = if found.task.has_ended() { found.task } else { poll_remote_task(exchange, task_ref).await? };
    let response = final_event_response(task_ref.manager, &task, after.unwrap_or_default())?;
    drop(task);
    exchange.respond_locally(response, rate_limit_status).await
}

/// Returns a reader of the events after one, or of all that are stored.
fn follow_locally(running: &Arc<RunningTask>, after: Option<u64>) -> Result<EventReader, Fault> {
    let reader = match after {
        Some(after) => EventReader::after(running, after),
        None => EventReader::from_oldest(running),
    };
    reader.ok_or_else(events_expired)
}

/// A task whose events are followed.
struct FollowTarget<'a> {
    id: &'a str,
    /// Whether the caller has read events before.
    is_resumed: bool,
    rate_limit_status: Option<&'a RateLimitStatus>,
}

async fn follow_events(
    exchange: &mut Exchange<'_>,
    target: FollowTarget<'_>,
    follower: EventFollower,
) -> CallResult<ServeOutcome> {
    if target.is_resumed {
        exchange.gateway.metrics.record_event(Event::StreamResumed);
    }
    let mut headers = task_headers(target.id, "text/event-stream");
    add_call_headers(&mut headers, exchange.call, target.rate_limit_status);
    let response = FollowerResponse { exchange, follower, original_call: None };
    Ok(response.run(ResponseHead { status: StatusCode::OK, headers }).await)
}

/// Polls a task that runs in another gateway until it ends or the longest wait is over.
async fn poll_remote_task(exchange: &mut Exchange<'_>, task_ref: TaskRef<'_>) -> CallResult<Task> {
    let deadline = tokio::time::Instant::now() + task_ref.manager.config().max_wait.get();
    loop {
        let FoundTask { task, .. } = task_ref.manager.find(task_ref.owner, task_ref.id).await?;
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

/// Parses `Last-Event-ID`: the position after which the client needs events; `None` for all events.
fn last_event_id(headers: &HeaderMap) -> Result<Option<u64>, Fault> {
    let Some(id) = headers.get("last-event-id").filter(|id| !id.is_empty()) else { return Ok(None) };
    let position = parse_event_id(id.to_str().unwrap_or("?"));
    let refuse = || Fault::new(FaultCode::InvalidInput, "Last-Event-ID is not the id of an event of this task");
    position.map(Some).ok_or_else(refuse)
}

/// Returns the response with a task's state as JSON.
fn task_response(manager: &TaskManager, task: &Task) -> DirectoryResponse {
    let poll_interval = manager.config().poll_interval.get();
    let mut headers = task_headers(&task.id, "application/json");
    if task.state == TaskState::Working {
        append_if_valid(&mut headers, header::RETRY_AFTER, &poll_interval.as_secs().max(1).to_string());
    }
    DirectoryResponse { status: StatusCode::OK, headers, body: Bytes::from(task.to_json(poll_interval)) }
}

/// Returns the last event of a task whose other events are not stored here. If the client has that event already, the
/// response is 204, at which clients of event streams stop reconnecting.
fn final_event_response(manager: &TaskManager, task: &Task, after: u64) -> Result<DirectoryResponse, Fault> {
    let mut headers = task_headers(&task.id, "text/event-stream");
    if task.has_ended() && after >= task.last.max(1) {
        headers.remove(header::CONTENT_TYPE);
        return Ok(DirectoryResponse { status: StatusCode::NO_CONTENT, headers, body: Bytes::new() });
    }
    if task.streamed && after > 0 && after + 1 < task.last {
        return Err(events_expired());
    }
    // For a task that has not ended, the id is the client's position, so that it reconnects for the rest.
    let id = if task.has_ended() { task.last.max(1) } else { after.max(1) };
    let state = task.to_json(manager.config().poll_interval.get());
    let body = Bytes::from(format!("id: {id}\nevent: status\ndata: {state}\n\n"));
    Ok(DirectoryResponse { status: StatusCode::OK, headers, body })
}

fn task_headers(task: &str, media_type: &'static str) -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(media_type));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    append_if_valid(&mut headers, TASK_ID, task);
    headers
}
