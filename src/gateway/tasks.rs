//! What callers ask of their tasks: how one stands, its events, that it ends. Another's, an unknown and a malformed id
//! are the same (R76, R79).

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

/// How often a task that runs in another gateway is looked at for those who follow it.
const LOOK: Duration = Duration::from_secs(1);

impl Serving<'_> {
    /// Steps 6 to 13 for a request about a task.
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
        // Tasks of callers without a credential are theirs by their address.
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
        // Whoever has the last event already need not be given a stream with nothing in it, again and again.
        let live = live.filter(|_| !(task.has_ended() && after == Some(task.last.max(1))));
        let Some(live) = live else {
            // It runs elsewhere, or has ended: only its end is known here.
            if !task.has_ended() {
                task = self.wait_elsewhere(session, (desk, owner, id)).await?;
            }
            let answer = ended(desk, &task, after.unwrap_or_default())?;
            return reply::local(session, self.connection, call, (answer, standing)).await;
        };
        let follower = match after {
            Some(after) => live.follow(after),
            // Nobody can name a place in events of which it has none.
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

    /// Waits for the end of a task that runs in another gateway.
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

/// The place behind which events are wanted; none for all that there are.
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

/// How a task stands, as JSON.
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

/// The last event of a task whose others are not here. Whoever has it already is told that nothing follows: 204 is the
/// word at which readers of events stop coming back.
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
    // One that has not ended is told of where its reader is: it will come back for the rest.
    let id = if task.has_ended() { task.last.max(1) } else { after.max(1) };
    let view = task.view(desk.config().poll.get());
    answer.body = Bytes::from(format!("id: {id}\nevent: status\ndata: {view}\n\n"));
    Ok(answer)
}
