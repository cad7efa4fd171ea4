//! Requests about tasks: state, events, cancellation. A task of another caller, an unknown id and a malformed id get
//! the same answer (R76, R79).

use super::{
    CallError,
    call::Call,
    http_server::ServeOutcome,
    path_router::{self, TaskRequest},
    request_handler::RequestContext,
    respond_async::owner_id,
    responder,
    response_headers::{add_call_headers, append_if_valid, response_head},
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
        (request, id): (TaskRequest, &str),
    ) -> Result<ServeOutcome, CallError> {
        let Self { gateway, config, connection } = self;
        let Some(desk) = &config.tasks else { return Err(path_router::path_not_found().into()) };
        call.mark_directory_request();
        let presented = PresentedCredentials {
            headers: &session.req_header().headers,
            client_certificate: connection.client_identity(),
        };
        // The tasks of anonymous callers are theirs by address.
        let open = !config.auth.anonymous_caller().grants.is_empty();
        let caller = config.auth.authenticate_or_anonymous(&presented, open).await?;
        call.set_caller(&caller);
        let address = connection.peer_address.ip();
        let standing = gateway.limits.acquire_for_directory(&gateway.rate_limit_account(&caller, address), false)?;
        let owner = owner_id(&caller, address);
        match request {
            TaskRequest::State => {
                let (task, _) = desk.find(&owner, id).await?;
                let answer = task_response(desk, &task);
                responder::write_local_response(session, connection, call, (answer, standing)).await
            }
            TaskRequest::Cancel => {
                let answer = task_response(desk, &desk.cancel(&owner, id).await?);
                responder::write_local_response(session, connection, call, (answer, standing)).await
            }
            TaskRequest::Events => self.respond_task_events(session, call, (desk, &owner, id), standing).await,
        }
    }

    async fn respond_task_events(
        &self,
        session: &mut ServerSession,
        call: &mut Call,
        (desk, owner, id): (&Arc<TaskManager>, &Arc<str>, &str),
        standing: Option<RateLimitStatus>,
    ) -> Result<ServeOutcome, CallError> {
        let (mut task, live) = desk.find(owner, id).await?;
        let after = last_event_id(&session.req_header().headers)?;
        // A client that has the last event already gets 204, not an empty stream again and again.
        let live = live.filter(|_| !(task.has_ended() && after == Some(task.last.max(1))));
        let Some(live) = live else {
            // The task runs in another gateway or has ended: only its final state is available here.
            if !task.has_ended() {
                task = self.poll_remote_task(session, (desk, owner, id)).await?;
            }
            let answer = final_event_response(desk, &task, after.unwrap_or_default())?;
            return responder::write_local_response(session, self.connection, call, (answer, standing)).await;
        };
        let follower = match after {
            Some(after) => live.read_after(after),
            // Without `Last-Event-ID` the client gets every event that is stored.
            None => Some(live.read_all()),
        };
        let follower = follower.ok_or_else(events_expired)?;
        if after.is_some() {
            self.gateway.metrics.record_event(Event::StreamResumed);
        }
        let mut head = event_stream_headers(&live);
        add_call_headers(&mut head, call, standing.as_ref());
        let following =
            FollowerResponse { config: self.config, connection: self.connection, follower, is_original_caller: false };
        Ok(following.run(session, call, response_head(StatusCode::OK, head)).await)
    }

    /// Polls a task that runs in another gateway until it ends or the longest wait is over.
    async fn poll_remote_task(
        &self,
        session: &mut ServerSession,
        (desk, owner, id): (&Arc<TaskManager>, &Arc<str>, &str),
    ) -> Result<Task, CallError> {
        let deadline = tokio::time::Instant::now() + desk.config().max_wait.get();
        loop {
            let (task, _) = desk.find(owner, id).await?;
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

/// Parses `Last-Event-ID`: the position after which events are wanted; `None` for all events.
fn last_event_id(headers: &HeaderMap) -> Result<Option<u64>, Fault> {
    let Some(id) = headers.get("last-event-id").filter(|id| !id.is_empty()) else { return Ok(None) };
    let position_after = parse_event_id(id.to_str().unwrap_or("?"));
    let refuse = || Fault::new(FaultCode::InvalidInput, "Last-Event-ID is not the id of an event of this task");
    position_after.map(Some).ok_or_else(refuse)
}

fn event_stream_headers(live: &RunningTask) -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    append_if_valid(&mut headers, "x-task-id", &live.id());
    headers
}

/// Returns the response with a task's state as JSON.
fn task_response(desk: &TaskManager, task: &Task) -> directory::DirectoryResponse {
    let poll = desk.config().poll_interval.get();
    let mut headers = HeaderMap::new();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    append_if_valid(&mut headers, "x-task-id", &task.id);
    if task.state == TaskState::Working {
        append_if_valid(&mut headers, "retry-after", &poll.as_secs().max(1).to_string());
    }
    directory::DirectoryResponse { status: StatusCode::OK, headers, body: Bytes::from(task.to_json(poll)) }
}

/// Returns the last event of a task whose other events are not stored here; 204, at which clients of event streams stop
/// reconnecting, if the client has it already.
fn final_event_response(desk: &TaskManager, task: &Task, after: u64) -> Result<directory::DirectoryResponse, Fault> {
    let mut answer = task_response(desk, task);
    answer.headers.remove(header::RETRY_AFTER);
    if task.has_ended() && after >= task.last.max(1) {
        answer.status = StatusCode::NO_CONTENT;
        answer.headers.remove(header::CONTENT_TYPE);
        answer.body = Bytes::new();
        return Ok(answer);
    }
    if task.streamed && after > 0 && after + 1 < task.last {
        return Err(events_expired());
    }
    answer.headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    // For a task that has not ended, the id stays the client's position: it reconnects for the rest.
    let id = if task.has_ended() { task.last.max(1) } else { after.max(1) };
    let view = task.to_json(desk.config().poll_interval.get());
    answer.body = Bytes::from(format!("id: {id}\nevent: status\ndata: {view}\n\n"));
    Ok(answer)
}
