//! Resumable streams: the gateway reads an agent's event stream independently of its caller. The caller follows the
//! buffered events, and may resume after a disconnect (R80).

use super::event_publishing::publish_events;
use crate::{
    agent::DeclaredMembers,
    fault::{Fault, FaultCode},
    gateway::{
        admission::{Admitted, owner_key},
        call::{CallResult, CallState},
        exchange::Exchange,
        header_names::TASK_ID,
        response::ErrorEventDetector,
        upstream::BodyPump,
    },
    http_server::{ResponseHead, ServeOutcome},
    task::{
        AgentReply, EventFollower, EventReader, NewTask, NextEvent, RunningTask, TaskManager, TaskOutcome,
        events_expired,
    },
    transport::UpstreamReply,
};
use bytes::Bytes;
use http::{HeaderValue, Version, header};
use serde_json::Value;
use std::{sync::Arc, time::Duration};

/// Maximum bytes of buffered events in one write.
const MAX_WRITE: usize = 16 << 10;

/// Detaches the reply from the caller if streams are resumable and the stream buffer has space; otherwise returns the
/// reply.
pub(in crate::gateway) fn detach_stream(
    exchange: &Exchange<'_>,
    admitted: &Arc<Admitted>,
    head: &mut ResponseHead,
    reply: UpstreamReply,
) -> Result<EventReader, Box<UpstreamReply>> {
    let Some(manager) = &exchange.config.tasks else { return Err(Box::new(reply)) };
    let new_task = NewTask {
        owner: owner_key(admitted.caller(), admitted.peer()),
        client: admitted.client(),
        agent: admitted.agent_route().agent.id.as_str(),
        operation: &admitted.operation().name,
        request_id: exchange.call.id(),
        time_limit: Duration::ZERO,
        callback_url: None,
        metrics: None,
        traceparent: None,
    };
    let Some(task) = manager.start_stream(&new_task) else { return Err(Box::new(reply)) };
    let Some(follower) = EventReader::after(&task, 0) else { return Err(Box::new(reply)) };
    let id = task.id();
    // A task id that the agent set itself is kept.
    if let Ok(value) = HeaderValue::from_str(&id) {
        head.headers.entry(TASK_ID).or_insert(value);
    }
    if let Ok(link) = HeaderValue::try_from(format!("</tasks/{id}/events>; rel=\"monitor\"")) {
        head.headers.append(header::LINK, link);
    }
    head.headers.remove(header::CONTENT_LENGTH);
    let stream = DetachedStream {
        manager: Arc::clone(manager),
        task,
        admitted: Arc::clone(admitted),
        json_rpc_id: exchange.call.json_rpc_id(),
    };
    tokio::spawn(stream.read_to_end(reply));
    Ok(follower)
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
            () = task.wait_until_canceled() => TaskOutcome::Canceled,
            () = task.wait_until_abandoned(resume_window) => TaskOutcome::Canceled,
            published = publish_events(&mut reply, &task, 0) => match published {
                Ok(_) => {
                    let body = Bytes::new();
                    let media_type = "text/event-stream".into();
                    TaskOutcome::Completed(AgentReply { status: reply.status.as_u16(), media_type, body, truncated: true })
                }
                Err(fault) => TaskOutcome::Failed(fault),
            },
        };
        // Release the concurrency permit before followers see the end.
        drop((reply, admitted));
        manager.end_stream(&task, &outcome, json_rpc_id.as_ref());
    }
}

/// A response that follows buffered events.
pub(in crate::gateway) struct FollowerResponse<'r, 'a> {
    pub(in crate::gateway) exchange: &'r mut Exchange<'a>,
    pub(in crate::gateway) follower: EventFollower,
    /// The output members that are data, for the original call, whose access-log entry records how the stream ended.
    pub(in crate::gateway) original_call: Option<DeclaredMembers>,
}

impl FollowerResponse<'_, '_> {
    /// Writes the head, then events until the stream ends.
    pub(in crate::gateway) async fn run(mut self, mut head: ResponseHead) -> ServeOutcome {
        let status = head.status.as_u16();
        if self.exchange.session.head().version == Version::HTTP_11 {
            head.headers.insert(header::TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
        }
        self.exchange.session.prepare_keep_alive(self.exchange.connection).await;
        if self.exchange.start_stream(head).await.is_err() {
            return ServeOutcome::Aborted;
        }
        self.exchange.call.can_append_event = true;
        let (mut between_events, mut pump) = (true, BodyPump::without_body());
        let mut detector = self.original_call.map(ErrorEventDetector::new);
        loop {
            let Ok(next) = self.next_event(&mut pump, between_events).await else {
                self.exchange.call.state = CallState::CallerGone(status);
                return ServeOutcome::Aborted;
            };
            let bytes = match next {
                Some(NextEvent::Bytes(bytes, ends_event)) => {
                    let (bytes, ends_event) = self.follower.coalesce(bytes, ends_event, MAX_WRITE);
                    between_events = ends_event;
                    bytes
                }
                None => Bytes::from_static(b": keep-alive\n\n"),
                Some(NextEvent::End) => {
                    let found = detector.and_then(|detector| detector.finish());
                    self.exchange.call.record_agent_error(found);
                    return self.finish(status, between_events).await;
                }
                // The follower was too slow.
                Some(NextEvent::Evicted) => return self.exchange.end_response(status, events_expired()).await,
                Some(NextEvent::Lost) => return self.exchange.end_response(status, gateway_gone()).await,
                Some(NextEvent::Unavailable) => {
                    return self.exchange.end_response(status, events_unavailable()).await;
                }
            };
            if let Some(detector) = detector.as_mut().filter(|_| !self.exchange.call.has_agent_error()) {
                self.exchange.call.record_agent_error(detector.push(&bytes));
            }
            self.exchange.call.stats.bytes_out += bytes.len() as u64;
            // A part that is written by half must not be followed by an event.
            self.exchange.call.can_append_event = false;
            if self.exchange.session.write_body(bytes, false).await.is_err() {
                self.exchange.call.state = CallState::CallerGone(status);
                return ServeOutcome::Aborted;
            }
            self.exchange.call.can_append_event = between_events;
        }
    }

    /// Returns the next event of the task; `None` when a keep-alive comment is due.
    async fn next_event(&mut self, pump: &mut BodyPump, between_events: bool) -> CallResult<Option<NextEvent>> {
        let keep_alive = self.exchange.config.sse_keep_alive_interval;
        let sends_comments = between_events && !keep_alive.is_zero();
        let idle = tokio::time::sleep(if sends_comments { keep_alive } else { Duration::from_secs(86_400) });
        tokio::pin!(idle);
        loop {
            tokio::select! {
                biased;
                next = self.follower.next() => return Ok(Some(next)),
                () = &mut idle, if sends_comments => return Ok(None),
                result = pump.advance(self.exchange.session) => {
                    result?;
                    // The write of a comment fails if a half-closed caller has disconnected.
                    if sends_comments && pump.is_caller_half_closed() {
                        return Ok(None);
                    }
                }
            }
        }
    }

    async fn finish(&mut self, status: u16, between_events: bool) -> ServeOutcome {
        self.exchange.call.state = match self.follower.outcome() {
            Some(TaskOutcome::Failed(fault)) if self.original_call.is_some() => {
                CallState::FailedMidResponse(status, fault)
            }
            _ => CallState::Answered(status),
        };
        self.exchange.call.can_append_event = false;
        // Abort inside an event, so that the client does not take half an event for the end of the stream.
        if !between_events {
            return ServeOutcome::Aborted;
        }
        match self.exchange.session.write_body(Bytes::new(), true).await {
            Ok(()) => ServeOutcome::Complete,
            Err(_) => {
                self.exchange.call.state = CallState::CallerGone(status);
                ServeOutcome::Aborted
            }
        }
    }
}

/// Returns the fault for a stream whose gateway is gone.
fn gateway_gone() -> Fault {
    let message = "The gateway that ran the call stopped; whether the agent finished is unknown";
    Fault::new(FaultCode::Overloaded, message)
}

/// Returns the fault for events of another gateway that cannot be read.
fn events_unavailable() -> Fault {
    Fault::new(FaultCode::Overloaded, "The events cannot be read at the moment (resume with Last-Event-ID)")
}
