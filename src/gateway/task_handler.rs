//! Requests about tasks: state, events, cancellation. A task of another caller, an unknown id and a malformed id get
//! the same response (R76, R79).

use super::{
    CallError,
    call::Call,
    http_server::ServeOutcome,
    path_router::{self, TaskRequest},
    request_handler::RequestContext,
    respond_async::owner_id,
    response_headers::{add_call_headers, append_if_valid, response_head},
    response_writer,
    resumable_stream::{FollowerResponse, events_expired},
};
use crate::{
    auth::PresentedCredentials,
    directory,
    fault::{Fault, FaultCode},
    limit::RateLimitStatus,
    task::{RunningTask, Task, TaskManager, TaskState, parse_event_id},
    telemetry::Event,
};
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, StatusCode, header};
use pingora_core::protocols::http::ServerSession;
use std::{sync::Arc, time::Duration};

/// How often a task that runs in another gateway is polled for its followers.
const REMOTE_POLL_INTERVAL: Duration = Duration::from_secs(1);

impl RequestContext<'_> {
    /// Handles a request about a task (steps 6 to 13).
    pub(super) async fn handle_task_request(
        &self,
        session: &mut ServerSession,
        call: &mut Call,
        request: TaskRequest,
        id: &str,
    ) -> Result<ServeOutcome, CallError> {
        let Self { gateway, config, connection } = self;
        let Some(manager) = &config.tasks else { return Err(path_router::path_not_found().into()) };
        call.mark_directory_request();
        let presented = PresentedCredentials {
            headers: &session.req_header().headers,
            client_certificate: connection.client_identity(),
        };
        // Tasks of anonymous callers belong to their address.
        let allow_anonymous = !config.auth.anonymous_caller().grants.is_empty();
        let caller = config.auth.authenticate_or_anonymous(&presented, allow_anonymous).await?;
        call.set_caller(&caller);
        let address = connection.peer_address.ip();
        let rate_limit_status =
            gateway.limits.acquire_for_directory(&gateway.rate_limit_account(&caller, address), false).await?;
        let owner = owner_id(&caller, address);
        match request {
            TaskRequest::State => {
                let (task, _) = manager.find(&owner, id).await?;
                let response = task_response(manager, &task);
                response_writer::write_local_response(session, connection, call, response, rate_limit_status).await
            }
            TaskRequest::Cancel => {
                let response = task_response(manager, &manager.cancel(&owner, id).await?);
                response_writer::write_local_response(session, connection, call, response, rate_limit_status).await
            }
            TaskRequest::Events => {
                let task_ref = TaskRef { manager, owner: &owner, id };
                self.respond_with_task_events(session, call, task_ref, rate_limit_status).await
            }
        }
    }

    async fn respond_with_task_events(
        &self,
        session: &mut ServerSession,
        call: &mut Call,
        task_ref: TaskRef<'_>,
        rate_limit_status: Option<RateLimitStatus>,
    ) -> Result<ServeOutcome, CallError> {
        let (mut task, running) = task_ref.find().await?;
        let after = last_event_id(&session.req_header().headers)?;
        // A client that already has the last event gets 204; with an empty stream it would reconnect forever.
        let running = running.filter(|_| !(task.has_ended() && after == Some(task.last.max(1))));
        let Some(running) = running else {
            // The task runs in another gateway or has ended: only its final state is available here.
            if !task.has_ended() {
                task = self.poll_remote_task(session, task_ref).await?;
            }
            let response = final_event_response(task_ref.manager, &task, after.unwrap_or_default())?;
            return response_writer::write_local_response(session, self.connection, call, response, rate_limit_status)
                .await;
        };
        let follower = match after {
            Some(after) => running.read_after(after),
            // Without `Last-Event-ID` the client gets every event that is stored.
            None => Some(running.read_all()),
        };
        let follower = follower.ok_or_else(events_expired)?;
        if after.is_some() {
            self.gateway.metrics.record_event(Event::StreamResumed);
        }
        let mut head = event_stream_headers(&running);
        add_call_headers(&mut head, call, rate_limit_status.as_ref());
        let response =
            FollowerResponse { config: self.config, connection: self.connection, follower, is_original_caller: false };
        Ok(response.run(session, call, response_head(StatusCode::OK, head)).await)
    }

    /// Polls a task that runs in another gateway until it ends or the longest wait is over.
    async fn poll_remote_task(&self, session: &mut ServerSession, task_ref: TaskRef<'_>) -> Result<Task, CallError> {
        let deadline = tokio::time::Instant::now() + task_ref.manager.config().max_wait.get();
        loop {
            let (task, _) = task_ref.find().await?;
            if task.has_ended() || self.connection.is_draining() || tokio::time::Instant::now() >= deadline {
                return Ok(task);
            }
            tokio::select! {
                () = super::http_server::wait_for_disconnect(session) => return Err(CallError::CallerGone),
                () = tokio::time::sleep(REMOTE_POLL_INTERVAL) => {}
            }
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
    append_if_valid(&mut headers, "x-task-id", &task.id());
    headers
}

/// Returns the response with a task's state as JSON.
fn task_response(manager: &TaskManager, task: &Task) -> directory::DirectoryResponse {
    let poll_interval = manager.config().poll_interval.get();
    let mut headers = HeaderMap::new();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    append_if_valid(&mut headers, "x-task-id", &task.id);
    if task.state == TaskState::Working {
        append_if_valid(&mut headers, "retry-after", &poll_interval.as_secs().max(1).to_string());
    }
    directory::DirectoryResponse { status: StatusCode::OK, headers, body: Bytes::from(task.to_json(poll_interval)) }
}

/// Returns the last event of a task whose other events are not stored here. If the client has that event already, the
/// response is 204, at which clients of event streams stop reconnecting.
fn final_event_response(manager: &TaskManager, task: &Task, after: u64) -> Result<directory::DirectoryResponse, Fault> {
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
