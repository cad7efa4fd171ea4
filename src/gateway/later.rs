//! Asynchronous calls (`Prefer: respond-async`): the task is stored before its caller receives it, and runs without the
//! caller (R79).

use super::{
    Stop,
    admit::Admitted,
    asks::told_by_us,
    body::{Incoming, Pace},
    call::{Call, Stage},
    errand::Whole,
    fields::append,
    forward::as_json,
    input::Input,
    keyed::watched,
    listen::Outcome,
    prefer::{self, CALLBACK_FIELD, Prefer},
    reply,
    serve::{Serving, Step},
    versions::FIELD,
    work::Work,
};
use crate::{
    auth::{Caller, CallerKind},
    directory,
    fault::Fault,
    limit::Standing,
    once::{Answer, Ticket},
    task::{self, Desk, Live, New},
};
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, StatusCode, header};
use pingora_core::protocols::http::ServerSession;
use std::{net::IpAddr, sync::Arc};

/// How the caller wants to receive the result of its task.
pub(super) struct Later {
    pub(super) prefer: Prefer,
    pub(super) callback: Option<String>,
}

impl Serving<'_> {
    /// Returns the task options if the call becomes a task: its caller prefers that, its caller names a callback URL,
    /// or the agent is configured so.
    pub(super) fn wants_task(&self, session: &ServerSession, slow: bool) -> Result<Option<(Arc<Desk>, Later)>, Fault> {
        let Some(desk) = &self.world.tasks else { return Ok(None) };
        let head = session.req_header();
        let prefer = Prefer::read(&head.headers);
        let callback = prefer::callback(head)?;
        let wanted = slow || prefer.wants_task() || callback.is_some();
        Ok(wanted.then(|| (Arc::clone(desk), Later { prefer, callback })))
    }

    /// Starts a task and answers 202, or the result if it is available within the caller's `wait`.
    pub(super) async fn later(
        &self,
        session: &mut ServerSession,
        call: &mut Call,
        (work, standing): (Work, Option<Standing>),
        (desk, options, ticket): (Arc<Desk>, Later, Option<Ticket>),
    ) -> Result<Outcome, Stop> {
        let Later { prefer, callback } = options;
        let owner = owner(&work.caller, work.peer);
        let operation = Arc::clone(&work.admitted.operation().name);
        let route = Arc::clone(work.admitted.shared());
        let version = work.admitted.version().and_then(|version| version.label.clone());
        let new = New {
            owner,
            agent: route.agent.id.as_str(),
            operation: &operation,
            request: call.id(),
            time: work.admitted.until().saturating_duration_since(tokio::time::Instant::now()),
            callback: callback.as_deref(),
        };
        let live = desk.begin(new).await?;
        let record = call.beside();
        tokio::spawn(go_on((Arc::clone(&desk), Arc::clone(&live)), work, record));
        let mut answer = accepted(&desk, &live, prefer);
        // R68, in the 202 and in the result.
        answer.headers.extend(version.clone().map(|version| (FIELD, version)));
        if let Some(ticket) = ticket {
            // A retry with the same key gets the same task, even if this caller leaves now.
            let (headers, body) = (answer.headers.clone(), answer.body.clone());
            ticket.answered(Answer::Whole { status: answer.status, headers, body });
        }
        let wait = prefer.wait.unwrap_or_default().min(desk.config().max_wait.get());
        if !wait.is_zero() && watched(session, tokio::time::timeout(wait, live.ended())).await?.is_ok() {
            match live.outcome() {
                Some(task::Outcome::Answered(answer)) if !answer.cut => {
                    let mut whole = whole(answer, &live);
                    whole.headers.extend(version.map(|version| (FIELD, version)));
                    return reply::again(session, (self.connection, standing.as_ref()), call, (&route, whole)).await;
                }
                Some(task::Outcome::Failed(fault)) => return Err(fault.into()),
                _ => {}
            }
        }
        reply::local(session, self.connection, call, (answer, standing)).await
    }

    /// Builds the background call; reads the rest of the input.
    pub(super) async fn work(
        &self,
        session: &mut ServerSession,
        call: &Call,
        (admitted, caller): (Arc<Admitted>, Arc<Caller>),
        step: Step<'_>,
    ) -> Result<Work, Stop> {
        let Self { gateway, world, connection } = self;
        let mut headers = session.req_header().headers.clone();
        if step.from_query || matches!(step.input, Input::Batch(_)) {
            as_json(&mut headers);
        }
        headers.remove(CALLBACK_FIELD);
        let fields = told_by_us(call, &admitted, session.req_header());
        let input = self.whole_input(session, call, step.input, step.pace).await?;
        Ok(Work {
            forwarded: connection.forwarded(super::serve::host(session.req_header())),
            gateway: Arc::clone(gateway),
            world: Arc::clone(world),
            admitted,
            caller,
            peer: connection.peer.ip(),
            headers,
            fields,
            id: call.id().to_owned(),
            input,
        })
    }

    /// Reads an input that was to be streamed. A call that outlives its caller cannot stream the input from it.
    pub(super) async fn whole_input(
        &self,
        session: &mut ServerSession,
        call: &Call,
        input: Input,
        pace: Pace<'_>,
    ) -> Result<Input, Stop> {
        let Input::Stream(first) = input else { return Ok(input) };
        if first.is_empty() && session.is_body_empty() {
            return Ok(Input::Whole(first));
        }
        let mut incoming = Incoming::new(session, pace);
        if !first.is_empty() {
            incoming.put_back(first);
        }
        let whole = incoming.whole(self.world.contract.max_body.get()).await?;
        let _ = call.read.set(whole.clone());
        Ok(Input::Whole(whole))
    }
}

/// Returns the owner of the caller's tasks and idempotency keys. Anonymous callers are distinguished by their address.
pub(super) fn owner(caller: &Caller, address: IpAddr) -> Arc<str> {
    match caller.kind {
        CallerKind::Anonymous => format!("{} at {address}", caller.id).into(),
        _ => Arc::clone(&caller.id),
    }
}

/// Runs a task until it ends or is cancelled.
async fn go_on((desk, live): (Arc<Desk>, Arc<Live>), mut work: Work, mut record: Call) {
    let _running = work.gateway.metrics.task_begins();
    // The agent shall answer itself, not with a task of its own.
    work.headers.remove("prefer");
    let most = desk.config().max_result.get();
    let began = std::time::Instant::now();
    let outcome = tokio::select! {
        biased;
        () = live.canceled() => task::Outcome::Canceled,
        outcome = work.run_as_task(&live, most) => outcome,
    };
    record.count.agent_took = Some(began.elapsed());
    record.stage = match &outcome {
        task::Outcome::Answered(answer) => {
            record.count.bytes_out = answer.body.len() as u64;
            Stage::Answered(answer.status)
        }
        task::Outcome::Failed(fault) => Stage::Refused(fault.clone()),
        task::Outcome::Canceled => Stage::Gone(0),
    };
    drop(record);
    desk.end(&live, &outcome).await;
}

fn whole(answer: task::Answer, live: &Live) -> Whole {
    let mut headers = HeaderMap::new();
    if let Ok(media) = HeaderValue::from_str(&answer.media)
        && !media.is_empty()
    {
        headers.insert(header::CONTENT_TYPE, media);
    }
    append(&mut headers, "x-task-id", &live.id());
    let status = StatusCode::from_u16(answer.status).unwrap_or(StatusCode::OK);
    Whole { status, headers, body: answer.body }
}

/// Builds the 202 response: the task's URL, and when to poll it (R79).
fn accepted(desk: &Desk, live: &Live, prefer: Prefer) -> directory::Answer {
    let poll = desk.config().poll.get();
    let task = live.task();
    let mut headers = HeaderMap::new();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    append(&mut headers, "location", &format!("/tasks/{}", task.id));
    append(&mut headers, "retry-after", &poll.as_secs().max(1).to_string());
    append(&mut headers, "x-task-id", &task.id);
    append(&mut headers, "link", &format!("</tasks/{}/events>; rel=\"monitor\"", task.id));
    if let Some(applied) = prefer.applied() {
        append(&mut headers, "preference-applied", &applied);
    }
    directory::Answer { status: StatusCode::ACCEPTED, headers, body: Bytes::from(task.view(poll)) }
}
