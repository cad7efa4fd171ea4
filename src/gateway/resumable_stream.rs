//! Resumable streams: the gateway reads an agent's event stream independently of its caller. The caller follows the
//! buffered events, and may resume after a disconnect (R80).

use super::{
    CallError, ConfigSnapshot,
    admission::Admitted,
    background_call::publish_events,
    call::{Call, CallState},
    http_server::{self, CallerConnection, ServeOutcome},
    respond_async::owner_id,
    responder::Responder,
    upstream_request::BodyPump,
};
use crate::{
    fault::{Fault, FaultCode},
    task::{self, EventReader, NewTask, NextEvent, RunningTask, TaskManager},
    transport::UpstreamReply,
};
use bytes::Bytes;
use http::{HeaderName, HeaderValue, header};
use pingora_core::protocols::http::ServerSession;
use pingora_http::ResponseHeader;
use serde_json::Value;
use std::{sync::Arc, time::Duration};

/// Maximum bytes of buffered events in one write.
const MAX_WRITE: usize = 16 << 10;

const TASK_ID: HeaderName = HeaderName::from_static("x-task-id");

impl Responder<'_> {
    /// Detaches the reply from the caller if streams are resumable and the stream buffer has space; otherwise returns
    /// the reply.
    pub(super) fn detach_stream(
        &self,
        call: &Call,
        head: &mut ResponseHeader,
        reply: UpstreamReply,
    ) -> Result<EventReader, Box<UpstreamReply>> {
        let Some(manager) = &self.config.tasks else { return Err(Box::new(reply)) };
        let new_task = NewTask {
            owner: owner_id(self.caller, self.connection.peer_address.ip()),
            agent: self.admitted.agent_route().agent.id.as_str(),
            operation: &self.admitted.operation().name,
            request_id: call.id(),
            time_limit: Duration::ZERO,
            callback_url: None,
        };
        let Some(task) = manager.start_stream(&new_task) else { return Err(Box::new(reply)) };
        let Some(follower) = EventReader::after(&task, 0) else { return Err(Box::new(reply)) };
        let id = task.id();
        // A task id that the agent set itself is kept.
        if !head.headers.contains_key(&TASK_ID) {
            insert(head, TASK_ID, &id);
        }
        if let Ok(link) = HeaderValue::try_from(format!("</tasks/{id}/events>; rel=\"monitor\"")) {
            let _ = head.append_header(header::LINK, link);
        }
        head.remove_header(&header::CONTENT_LENGTH);
        let stream = DetachedStream {
            manager: Arc::clone(manager),
            task,
            admitted: Arc::clone(self.admitted),
            json_rpc_id: call.json_rpc_id(),
        };
        tokio::spawn(stream.read_to_end(reply));
        Ok(follower)
    }
}

/// An event stream that is read independently of its caller.
struct DetachedStream {
    manager: Arc<TaskManager>,
    task: Arc<RunningTask>,
    admitted: Arc<Admitted>,
    /// The id of the JSON-RPC request that the stream answers, if it answers one.
    json_rpc_id: Option<Value>,
}

impl DetachedStream {
    /// Reads the reply until it ends, is cancelled, or has had no follower for the resume window.
    async fn read_to_end(self, mut reply: UpstreamReply) {
        let Self { manager, task, admitted, json_rpc_id } = self;
        let resume_window = manager.config().resume.as_ref().map_or(Duration::ZERO, |resume| resume.window.get());
        let outcome = tokio::select! {
            biased;
            () = task.wait_until_canceled() => task::TaskOutcome::Canceled,
            () = task.wait_until_abandoned(resume_window) => task::TaskOutcome::Canceled,
            published = publish_events(&mut reply, &task, 0) => match published {
                Ok(_) => {
                    let body = Bytes::new();
                    let media_type = "text/event-stream".into();
                    task::TaskOutcome::Completed(task::AgentReply { status: reply.status.as_u16(), media_type, body, truncated: true })
                }
                Err(fault) => task::TaskOutcome::Failed(fault),
            },
        };
        // Release the concurrency permit before followers see the end.
        drop((reply, admitted));
        manager.end_stream(&task, &outcome, json_rpc_id.as_ref());
    }
}

fn insert(head: &mut ResponseHeader, name: HeaderName, value: &str) {
    if let Ok(value) = HeaderValue::from_str(value) {
        let _ = head.insert_header(name, value);
    }
}

/// A response that follows buffered events.
pub(super) struct FollowerResponse<'a> {
    pub(super) config: &'a ConfigSnapshot,
    pub(super) connection: &'a CallerConnection,
    pub(super) follower: EventReader,
    /// Whether this is the original call, whose access-log entry records how the stream ended.
    pub(super) is_original_caller: bool,
}

impl FollowerResponse<'_> {
    /// Writes the head, then events until the stream ends.
    pub(super) async fn run(
        mut self,
        session: &mut ServerSession,
        call: &mut Call,
        mut head: ResponseHeader,
    ) -> ServeOutcome {
        let status = head.status.as_u16();
        if session.req_header().version == http::Version::HTTP_11 {
            let _ = head.insert_header(header::TRANSFER_ENCODING, "chunked");
        }
        http_server::prepare_keep_alive(session, self.connection).await;
        http_server::disable_write_buffering(session);
        session.set_write_timeout(Some(self.connection.limits.body_idle_timeout.get()));
        if session.write_response_header(Box::new(head)).await.is_err() {
            call.state = CallState::CallerGone(status);
            return ServeOutcome::Aborted;
        }
        let (mut between_events, mut pump) = (true, BodyPump::without_body());
        loop {
            let next = match self.next_event(session, &mut pump, between_events).await {
                Ok(next) => next,
                Err(_) => {
                    call.state = CallState::CallerGone(status);
                    return ServeOutcome::Aborted;
                }
            };
            let bytes = match next {
                Some(NextEvent::Bytes(bytes, ends_event)) => {
                    let (bytes, ends_event) = self.follower.coalesce(bytes, ends_event, MAX_WRITE);
                    between_events = ends_event;
                    bytes
                }
                None => Bytes::from_static(b": keep-alive\n\n"),
                Some(NextEvent::End) => return self.finish(session, call, status, between_events).await,
                Some(NextEvent::Evicted) => return end_lagging_follower(session, call, status, between_events).await,
            };
            call.stats.bytes_out += bytes.len() as u64;
            if session.write_response_body(bytes, false).await.is_err() {
                call.state = CallState::CallerGone(status);
                return ServeOutcome::Aborted;
            }
        }
    }

    /// Returns the next event of the task; `None` when a keep-alive comment is due.
    async fn next_event(
        &mut self,
        session: &mut ServerSession,
        pump: &mut BodyPump<'_>,
        between_events: bool,
    ) -> Result<Option<NextEvent>, CallError> {
        let keep_alive = self.config.sse_keep_alive_interval;
        let sends_comments = between_events && !keep_alive.is_zero();
        let idle = tokio::time::sleep(if sends_comments { keep_alive } else { Duration::from_secs(86_400) });
        tokio::pin!(idle);
        loop {
            tokio::select! {
                biased;
                next = self.follower.next() => return Ok(Some(next)),
                () = &mut idle, if sends_comments => return Ok(None),
                result = pump.advance(session) => {
                    result?;
                    // The write of a comment fails if a half-closed caller has disconnected.
                    if sends_comments && pump.is_caller_half_closed() {
                        return Ok(None);
                    }
                }
            }
        }
    }

    async fn finish(
        &self,
        session: &mut ServerSession,
        call: &mut Call,
        status: u16,
        between_events: bool,
    ) -> ServeOutcome {
        call.state = match self.follower.task().outcome() {
            Some(task::TaskOutcome::Failed(fault)) if self.is_original_caller => {
                CallState::FailedMidResponse(status, fault)
            }
            _ => CallState::Answered(status),
        };
        // Abort inside an event, so that the client does not take half an event for the end of the stream.
        if !between_events {
            return ServeOutcome::Aborted;
        }
        match session.write_response_body(Bytes::new(), true).await {
            Ok(()) => ServeOutcome::Complete,
            Err(_) => {
                call.state = CallState::CallerGone(status);
                ServeOutcome::Aborted
            }
        }
    }
}

/// Ends the response of a follower that was too slow: with a `Gone` event, if it is between events.
async fn end_lagging_follower(
    session: &mut ServerSession,
    call: &mut Call,
    status: u16,
    between_events: bool,
) -> ServeOutcome {
    let fault = events_expired();
    let event = Bytes::from(fault.to_event(call.id(), call.json_rpc_id().as_ref()));
    call.state = CallState::FailedMidResponse(status, fault);
    match between_events && session.write_response_body(event, true).await.is_ok() {
        true => ServeOutcome::Complete,
        false => ServeOutcome::Aborted,
    }
}

/// The fault for events that are no longer buffered.
pub(super) fn events_expired() -> Fault {
    Fault::new(FaultCode::Gone, "The events after this one are no longer stored (start again, or poll the task)")
}
