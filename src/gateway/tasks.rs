//! Requests about tasks: state, events, cancellation. A task of another caller, an unknown id and a malformed id get
//! the same answer (R76, R79).

use super::{
    Stop,
    call::Call,
    fields::{append, head_of, tell},
    follow::{Following, gone},
    later::owner,
    listen::Outcome,
    reply,
    serve::Serving,
    target::{self, Asked},
};
use crate::{
    auth::Presented,
    directory,
    fault::{Code, Fault},
    limit::Standing,
    task::{Desk, Live, State, Task, position},
    telemetry::Event,
};
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, StatusCode, header};
use pingora_core::protocols::http::ServerSession;
use std::{sync::Arc, time::Duration};

/// How often a task that runs in another gateway is polled for its followers.
const LOOK: Duration = Duration::from_secs(1);

impl Serving<'_> {
    /// Handles a request about a task (steps 6 to 13).
    pub(super) async fn task(
        &self,
        session: &mut ServerSession,
        call: &mut Call,
        (asked, id): (Asked, &str),
    ) -> Result<Outcome, Stop> {
        let Self { gateway, world, connection } = self;
        let Some(desk) = &world.tasks else { return Err(target::nothing().into()) };
        call.browses();
        let presented = Presented { headers: &session.req_header().headers, peer: connection.certificate() };
        // The tasks of anonymous callers are theirs by address.
        let open = !world.auth.anonymous().grants.is_empty();
        let caller = world.auth.visit(&presented, open).await?;
        call.is_from(&caller);
        let address = connection.peer.ip();
        let standing = gateway.limits.browse(&gateway.account(&caller, address), false)?;
        let owner = owner(&caller, address);
        match asked {
            Asked::State => {
                let (task, _) = desk.find(&owner, id).await?;
                let answer = shown(desk, &task);
                reply::local(session, connection, call, (answer, standing)).await
            }
            Asked::Cancel => {
                let answer = shown(desk, &desk.cancel(&owner, id).await?);
                reply::local(session, connection, call, (answer, standing)).await
            }
            Asked::Events => self.events(session, call, (desk, &owner, id), standing).await,
        }
    }

    async fn events(
        &self,
        session: &mut ServerSession,
        call: &mut Call,
        (desk, owner, id): (&Arc<Desk>, &Arc<str>, &str),
        standing: Option<Standing>,
    ) -> Result<Outcome, Stop> {
        let (mut task, live) = desk.find(owner, id).await?;
        let after = after(&session.req_header().headers)?;
        // A client that has the last event already gets 204, not an empty stream again and again.
        let live = live.filter(|_| !(task.has_ended() && after == Some(task.last.max(1))));
        let Some(live) = live else {
            // The task runs in another gateway or has ended: only its final state is available here.
            if !task.has_ended() {
                task = self.wait_elsewhere(session, (desk, owner, id)).await?;
            }
            let answer = ended(desk, &task, after.unwrap_or_default())?;
            return reply::local(session, self.connection, call, (answer, standing)).await;
        };
        let follower = match after {
            Some(after) => live.follow(after),
            // Without `Last-Event-ID` the client gets every event that is stored.
            None => Some(live.follow_all()),
        };
        let follower = follower.ok_or_else(gone)?;
        if after.is_some() {
            self.gateway.metrics.count(Event::StreamResumed);
        }
        let mut head = event_fields(&live);
        tell(&mut head, call, standing.as_ref());
        let following = Following { world: self.world, connection: self.connection, follower, first: false };
        Ok(following.run(session, call, head_of(StatusCode::OK, head)).await)
    }

    /// Polls a task that runs in another gateway until it ends or the longest wait is over.
    async fn wait_elsewhere(
        &self,
        session: &mut ServerSession,
        (desk, owner, id): (&Arc<Desk>, &Arc<str>, &str),
    ) -> Result<Task, Stop> {
        let until = tokio::time::Instant::now() + desk.config().max_wait.get();
        loop {
            let (task, _) = desk.find(owner, id).await?;
            if task.has_ended() || self.connection.draining() || tokio::time::Instant::now() >= until {
                return Ok(task);
            }
            tokio::select! {
                () = super::listen::gone(session) => return Err(Stop::Gone),
                () = tokio::time::sleep(LOOK) => {}
            }
        }
    }
}

/// Parses `Last-Event-ID`: the position after which events are wanted; `None` for all events.
fn after(headers: &HeaderMap) -> Result<Option<u64>, Fault> {
    let Some(id) = headers.get("last-event-id").filter(|id| !id.is_empty()) else { return Ok(None) };
    let place = position(id.to_str().unwrap_or("?"));
    let refuse = || Fault::new(Code::InvalidInput, "Last-Event-ID is not the id of an event of this task");
    place.map(Some).ok_or_else(refuse)
}

fn event_fields(live: &Live) -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    append(&mut headers, "x-task-id", &live.id());
    headers
}

/// Returns the response with a task's state as JSON.
fn shown(desk: &Desk, task: &Task) -> directory::Answer {
    let poll = desk.config().poll.get();
    let mut headers = HeaderMap::new();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    append(&mut headers, "x-task-id", &task.id);
    if task.state == State::Working {
        append(&mut headers, "retry-after", &poll.as_secs().max(1).to_string());
    }
    directory::Answer { status: StatusCode::OK, headers, body: Bytes::from(task.view(poll)) }
}

/// Returns the last event of a task whose other events are not stored here; 204, at which clients of event streams stop
/// reconnecting, if the client has it already.
fn ended(desk: &Desk, task: &Task, after: u64) -> Result<directory::Answer, Fault> {
    let mut answer = shown(desk, task);
    answer.headers.remove(header::RETRY_AFTER);
    if task.has_ended() && after >= task.last.max(1) {
        answer.status = StatusCode::NO_CONTENT;
        answer.headers.remove(header::CONTENT_TYPE);
        answer.body = Bytes::new();
        return Ok(answer);
    }
    if task.streamed && after > 0 && after + 1 < task.last {
        return Err(gone());
    }
    answer.headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    // For a task that has not ended, the id stays the client's position: it reconnects for the rest.
    let id = if task.has_ended() { task.last.max(1) } else { after.max(1) };
    let view = task.view(desk.config().poll.get());
    answer.body = Bytes::from(format!("id: {id}\nevent: status\ndata: {view}\n\n"));
    Ok(answer)
}
