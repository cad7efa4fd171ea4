//! Resumable streams: the agent's event stream is read independently of its caller, who follows the buffered events and
//! may resume after a disconnect (R80).

use super::{
    Stop, World,
    admit::Admitted,
    call::{Call, Stage},
    forward::Pump,
    later::owner,
    listen::{self, Connection, Outcome},
    reply::Out,
    work::pour,
};
use crate::{
    fault::{Code, Fault},
    task::{self, Desk, Follower, Live, New, Next},
    transport::Reply,
};
use bytes::Bytes;
use http::{HeaderName, HeaderValue, header};
use pingora_core::protocols::http::ServerSession;
use pingora_http::ResponseHeader;
use serde_json::Value;
use std::{sync::Arc, time::Duration};

/// The most bytes of buffered events that one write takes.
const AT_ONCE: usize = 16 << 10;

const TASK_ID: HeaderName = HeaderName::from_static("x-task-id");

impl Out<'_> {
    /// Detaches the reply from the caller if streams are resumable and the stream buffer has space; otherwise returns
    /// the reply.
    pub(super) fn detach(&self, call: &Call, head: &mut ResponseHeader, reply: Reply) -> Result<Follower, Box<Reply>> {
        let Some(desk) = &self.world.tasks else { return Err(Box::new(reply)) };
        let new = New {
            owner: owner(self.caller, self.connection.peer.ip()),
            agent: self.admitted.agent().agent.id.as_str(),
            operation: &self.admitted.operation().name,
            request: call.id(),
            time: Duration::ZERO,
            callback: None,
        };
        let Some(live) = desk.stream(&new) else { return Err(Box::new(reply)) };
        let Some(follower) = live.follow(0) else { return Err(Box::new(reply)) };
        let id = live.id();
        // An agent that sets a task id of its own keeps it.
        if !head.headers.contains_key(&TASK_ID) {
            insert(head, TASK_ID, &id);
        }
        if let Ok(link) = HeaderValue::try_from(format!("</tasks/{id}/events>; rel=\"monitor\"")) {
            let _ = head.append_header(header::LINK, link);
        }
        head.remove_header(&header::CONTENT_LENGTH);
        let apart = Apart { desk: Arc::clone(desk), live, admitted: Arc::clone(self.admitted), rpc: call.rpc_id() };
        tokio::spawn(apart.read_on(reply));
        Ok(follower)
    }
}

/// An event stream that is read independently of its caller.
struct Apart {
    desk: Arc<Desk>,
    live: Arc<Live>,
    admitted: Arc<Admitted>,
    /// The id of the JSON-RPC request that the stream answers, if it answers one.
    rpc: Option<Value>,
}

impl Apart {
    /// Reads the reply until it ends, is cancelled, or has had no follower for the resume window.
    async fn read_on(self, mut reply: Reply) {
        let Self { desk, live, admitted, rpc } = self;
        let window = desk.config().resume.as_ref().map_or(Duration::ZERO, |resume| resume.window.get());
        let outcome = tokio::select! {
            biased;
            () = live.canceled() => task::Outcome::Canceled,
            () = live.abandoned(window) => task::Outcome::Canceled,
            poured = pour(&mut reply, &live, 0) => match poured {
                Ok(_) => {
                    let body = Bytes::new();
                    let media = "text/event-stream".into();
                    task::Outcome::Answered(task::Answer { status: reply.status.as_u16(), media, body, cut: true })
                }
                Err(fault) => task::Outcome::Failed(fault),
            },
        };
        // Release the concurrency permit before followers see the end.
        drop((reply, admitted));
        desk.close(&live, &outcome, rpc.as_ref());
    }
}

fn insert(head: &mut ResponseHeader, name: HeaderName, value: &str) {
    if let Ok(value) = HeaderValue::from_str(value) {
        let _ = head.insert_header(name, value);
    }
}

/// A response that follows buffered events.
pub(super) struct Following<'a> {
    pub(super) world: &'a World,
    pub(super) connection: &'a Connection,
    pub(super) follower: Follower,
    /// Whether this is the original call, whose access-log entry records how the stream ended.
    pub(super) first: bool,
}

impl Following<'_> {
    /// Writes the head, then events until the stream ends.
    pub(super) async fn run(
        mut self,
        session: &mut ServerSession,
        call: &mut Call,
        mut head: ResponseHeader,
    ) -> Outcome {
        let status = head.status.as_u16();
        if session.req_header().version == http::Version::HTTP_11 {
            let _ = head.insert_header(header::TRANSFER_ENCODING, "chunked");
        }
        listen::before_answer(session, self.connection).await;
        listen::write_through(session);
        session.set_write_timeout(Some(self.connection.limits.body_idle_timeout.get()));
        if session.write_response_header(Box::new(head)).await.is_err() {
            call.stage = Stage::Gone(status);
            return Outcome::Aborted;
        }
        let (mut between, mut pump) = (true, Pump::done());
        loop {
            let next = match self.next(session, &mut pump, between).await {
                Ok(next) => next,
                Err(_) => {
                    call.stage = Stage::Gone(status);
                    return Outcome::Aborted;
                }
            };
            let bytes = match next {
                Some(Next::Bytes(bytes, ends)) => {
                    let (bytes, ends) = self.follower.gather((bytes, ends), AT_ONCE);
                    between = ends;
                    bytes
                }
                None => Bytes::from_static(b": keep-alive\n\n"),
                Some(Next::End) => return self.end(session, call, status, between).await,
                Some(Next::Lost) => return lost(session, call, status, between).await,
            };
            call.count.bytes_out += bytes.len() as u64;
            if session.write_response_body(bytes, false).await.is_err() {
                call.stage = Stage::Gone(status);
                return Outcome::Aborted;
            }
        }
    }

    /// Returns what comes next; `None` when a keep-alive comment is due.
    async fn next(
        &mut self,
        session: &mut ServerSession,
        pump: &mut Pump<'_>,
        between: bool,
    ) -> Result<Option<Next>, Stop> {
        let keep_alive = self.world.stream_keep_alive;
        let comments = between && !keep_alive.is_zero();
        let idle = tokio::time::sleep(if comments { keep_alive } else { Duration::from_secs(86_400) });
        tokio::pin!(idle);
        loop {
            tokio::select! {
                biased;
                next = self.follower.next() => return Ok(Some(next)),
                () = &mut idle, if comments => return Ok(None),
                moved = pump.step(session) => {
                    moved?;
                    // Writing a comment finds out whether a silent caller is still connected.
                    if comments && pump.is_silent() {
                        return Ok(None);
                    }
                }
            }
        }
    }

    async fn end(&self, session: &mut ServerSession, call: &mut Call, status: u16, between: bool) -> Outcome {
        call.stage = match self.follower.live().outcome() {
            Some(task::Outcome::Failed(fault)) if self.first => Stage::Broken(status, fault),
            _ => Stage::Answered(status),
        };
        // Abort inside an event, so that the client does not take half an event for the end of the stream.
        if !between {
            return Outcome::Aborted;
        }
        match session.write_response_body(Bytes::new(), true).await {
            Ok(()) => Outcome::Complete,
            Err(_) => {
                call.stage = Stage::Gone(status);
                Outcome::Aborted
            }
        }
    }
}

/// Ends the response of a follower that was too slow with a `Gone` event.
async fn lost(session: &mut ServerSession, call: &mut Call, status: u16, between: bool) -> Outcome {
    let fault = gone();
    let event = Bytes::from(fault.event(call.id(), call.rpc_id().as_ref()));
    call.stage = Stage::Broken(status, fault);
    match between && session.write_response_body(event, true).await.is_ok() {
        true => Outcome::Complete,
        false => Outcome::Aborted,
    }
}

/// The fault for events that are no longer buffered.
pub(super) fn gone() -> Fault {
    Fault::new(Code::Gone, "The events after this one are no longer stored (start again, or poll the task)")
}
