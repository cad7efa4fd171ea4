//! Handles one HTTP request: the steps of the crate's documentation, in order.

use super::{
    Gateway, Stop, World, accept,
    admit::{Entry, Known, Shown},
    asks::{deadline, query, session_in_query, told_by_us},
    batch::Batch,
    body::{Incoming, Pace},
    call::{Call, Stage},
    forward::{Sending, Told, as_json},
    input::{self, Input, Reading},
    keyed::Stood,
    later::Later,
    listen::{self, Connection, Outcome, Service},
    reply::{self, Out},
    route::Route,
    socket,
    target::{self, Invoke, Target},
    versions,
};
use crate::{
    fault::{Code, Fault},
    limit::Permit,
    once,
    task::Desk,
    transport::Passage,
};
use futures_util::FutureExt;
use http::{header, uri::Authority};
use pingora_core::protocols::http::ServerSession;
use pingora_http::RequestHeader;
use std::{panic::AssertUnwindSafe, sync::Arc, time::Instant};

impl Service for Gateway {
    /// Records and logs the call, and writes faults; `handle` does the work.
    async fn serve(self: &Arc<Self>, session: &mut ServerSession, connection: &Arc<Connection>) -> Outcome {
        let world = self.world.load_full();
        let mut call = Call::arrive(self, Some(connection.peer.ip()));
        call.asks(session.req_header());
        let serving = Serving { gateway: self, world: &world, connection };
        let served = caught(serving.handle(session, &mut call)).await;
        self.remember(&call, (session.req_header(), &connection.last));
        call.count.bytes_in = session.body_bytes_read() as u64;
        let stop = match served {
            Ok(outcome) => return outcome,
            Err(stop) => stop,
        };
        let written = session.response_written().map(|head| head.status.as_u16()).filter(|status| *status >= 200);
        match (stop, written) {
            (Stop::Gone, _) => {
                call.stage = Stage::Gone(0);
                Outcome::Aborted
            }
            (Stop::Fault(fault), Some(status)) => {
                call.stage = Stage::Broken(status, fault);
                Outcome::Aborted
            }
            (Stop::Fault(fault), None) => {
                let format = accept::error_format(&session.req_header().headers, world.format);
                reply::refuse(session, connection, &mut call, fault, format).await
            }
        }
    }

    async fn refuse(self: &Arc<Self>, session: &mut ServerSession, connection: &Arc<Connection>, fault: Fault) {
        let mut call = Call::arrive(self, Some(connection.peer.ip()));
        call.ensure_id();
        let format = self.world.load().format;
        reply::refuse(session, connection, &mut call, fault, format).await;
    }
}

/// Turns a panic into a fault, so that it ends only its own call.
///
/// Not an `async fn`: its future would hold `work` twice, as the argument and as the awaited value.
pub(super) fn caught<T>(
    work: impl Future<Output = std::result::Result<T, Stop>>,
) -> impl Future<Output = std::result::Result<T, Stop>> {
    AssertUnwindSafe(work).catch_unwind().map(|done| {
        done.unwrap_or_else(|_| {
            let fault = Fault::new(Code::Internal, "The gateway failed").detail("a panic; its message is on stderr");
            Err(Stop::Fault(fault))
        })
    })
}

/// What handling one request needs besides the session.
pub(super) struct Serving<'a> {
    pub(super) gateway: &'a Arc<Gateway>,
    pub(super) world: &'a Arc<World>,
    pub(super) connection: &'a Arc<Connection>,
}

impl Serving<'_> {
    async fn handle(&self, session: &mut ServerSession, call: &mut Call) -> std::result::Result<Outcome, Stop> {
        let Self { gateway, world, connection } = self;
        gateway.limits.address(connection.peer.ip())?;
        let head = session.req_header();
        gateway.turn_away(call, (head, &connection.last))?;
        if let Some(cors) = &world.cors {
            call.page = Some(cors.origin(&head.headers).cloned());
            if let Some(method) = cors.preflight(&head.method, &head.headers) {
                target::read(&method, head.uri.path())?;
                return Box::pin(self.permit(session, call, cors)).await;
            }
        }
        let Invoke { agent, version, operation, from_query } = match target::read(&head.method, head.uri.path())? {
            Target::Invoke(invoke) if socket::is_asked(head) => {
                let target = socket::Asked::from(&invoke);
                return Box::pin(self.socket(session, call, target)).await;
            }
            Target::Invoke(invoke) => invoke,
            Target::Pair => return Box::pin(self.pair(session, call)).await,
            // Boxed, so that the future of a call stays small.
            Target::Directory(face, id) => {
                let id = id.to_owned();
                return Box::pin(self.local(session, call, (face, &id))).await;
            }
            Target::Pipeline => return Box::pin(self.pipeline(session, call)).await,
            Target::Task(request, id) => {
                let id = id.to_owned();
                return Box::pin(self.task(session, call, (request, &id))).await;
            }
        };
        let shown = Shown { headers: &head.headers, peer: connection.certificate(), address: connection.peer.ip() };
        let mut known = gateway.known(world, call, agent, shown).await?;
        known.session = known.session.or_else(|| session_in_query(head, &known.caller));
        let key = if world.once.is_on() { once::key(&head.headers)?.map(str::to_owned) } else { None };
        // A caller that waits for the answer of another call with its key needs no concurrency permit.
        let permit = if key.is_none() { Some(gateway.limits.enter(&known.route.limits).await?) } else { None };
        let named = input::named(&known.route, operation, &head.headers)?;
        // Schemas are only read if there is a query.
        let declared = head.uri.query().is_some() && versions::declared(&known.route, named);
        let requested = versions::Asked::of(version, head.uri.query(), &head.headers, declared)?;
        known.version = known.route.versions.choose(&requested)?;
        if declares_output(&known.route, named) {
            accept::acceptable(&head.headers)?;
        }
        let until = deadline(call, &known.route, &head.headers)?;
        let pace = Pace { connection, until };
        let reading = Reading { gateway, route: &known.route, rules: &world.contract, named, read: &call.read };
        let (operation, input) = match from_query {
            true => reading.bytes(query(head, &known.route, named)?)?,
            false => {
                let mut incoming = Incoming::new(session, pace);
                reading.body(&mut incoming).await?
            }
        };
        call.operates(operation);
        let step = Step { operation, input, pace, from_query };
        let later = self.wants_task(session, known.route.slow)?;
        match (permit, key, later) {
            (Some(permit), None, None) => self.forward(session, call, known.with(permit), step).await,
            (permit, key, later) => Box::pin(self.apart(session, call, (known, permit, key), (step, later))).await,
        }
    }

    /// Handles steps 9 to 12 of a call that outlives its caller: one with an idempotency key, or one that becomes a
    /// task.
    async fn apart(
        &self,
        session: &mut ServerSession,
        call: &mut Call,
        (known, permit, key): (Known, Option<Permit>, Option<String>),
        (mut step, later): (Step<'_>, Option<(Arc<Desk>, Later)>),
    ) -> std::result::Result<Outcome, Stop> {
        let Self { gateway, world, connection } = self;
        let ticket = match key {
            None => None,
            Some(key) => match self.once(session, call, (&known, &key), &mut step).await? {
                Stood::First(ticket) => Some(ticket),
                Stood::Answered(outcome) => return Ok(outcome),
            },
        };
        let permit = match permit {
            Some(permit) => permit,
            None => gateway.limits.enter(&known.route.limits).await?,
        };
        let entry = known.with(permit);
        let (caller, standing) = (Arc::clone(&entry.known.caller), entry.known.standing);
        let admitted = Arc::new(entry.admit(step.operation, step.pace.until));
        let work = self.work(session, call, (Arc::clone(&admitted), Arc::clone(&caller)), step).await?;
        if let Some((desk, later)) = later {
            return self.later(session, call, (work, standing), (desk, later, ticket)).await;
        }
        let Some(ticket) = ticket else {
            return Err(Fault::new(Code::Internal, "The gateway failed").detail("neither a task nor a key").into());
        };
        let standing = standing.as_ref();
        let out = Out { gateway, world, connection, admitted: &admitted, caller: &caller, standing };
        let asked = Instant::now();
        let answer = self.first(session, call, out, (work, ticket)).await;
        call.count.agent_took = Some(asked.elapsed());
        answer
    }

    /// Forwards a call with valid input to its agent and writes the response (steps 9 to 12).
    async fn forward(
        &self,
        session: &mut ServerSession,
        call: &mut Call,
        entry: Entry,
        step: Step<'_>,
    ) -> std::result::Result<Outcome, Stop> {
        let Self { gateway, world, connection } = self;
        let Step { operation, input, pace, from_query } = step;
        let caller = Arc::clone(&entry.known.caller);
        let standing = entry.known.standing;
        let admitted = Arc::new(entry.admit(operation, pace.until));
        let fields = told_by_us(call, &admitted, session.req_header());
        let forwarded = connection.forwarded(host(session.req_header()));
        // Cloned, because the session is still read from and watched while the agent is called.
        let mut headers = session.req_header().headers.clone();
        if from_query || matches!(input, Input::Batch(_)) {
            as_json(&mut headers);
        }
        let passage = Passage { forwarded: Some(&forwarded), key_header: world.key_header.as_ref(), fields: &fields };
        let told = Told { id: call.id(), headers: &headers, passage, instruction: None };
        let standing = standing.as_ref();
        let out = Out { gateway, world, connection, admitted: &admitted, caller: &caller, standing };
        let asked = Instant::now();
        if let Input::Batch(items) = input {
            let account = gateway.account(&caller, connection.peer.ip());
            let (rules, own) = (&world.contract, tokio::sync::Mutex::default());
            let batch = Batch { gateway, admitted: &admitted, account, told, rules, own };
            let answer = tokio::select! {
                biased;
                answer = batch.run(items, call.id()) => answer,
                () = listen::gone(session) => return Err(Stop::Gone),
            };
            call.count.agent_took = Some(asked.elapsed());
            return out.json(session, call, answer).await;
        }
        let sending = Sending { told, input, pace, most: world.max_stream.get() };
        let answer = match gateway.exchange(session, &admitted, sending).await {
            Ok((reply, pump)) => out.answer(session, call, reply, pump).await,
            Err(stop) => Err(stop),
        };
        call.count.agent_took = Some(asked.elapsed());
        answer
    }
}

/// A validated input, and the operation that it is for.
pub(super) struct Step<'a> {
    pub(super) operation: usize,
    pub(super) input: Input,
    pub(super) pace: Pace<'a>,
    pub(super) from_query: bool,
}

/// Returns the host that the caller requested.
pub(super) fn host(head: &RequestHeader) -> Option<&str> {
    let named = head.uri.authority().map(Authority::as_str);
    named.or_else(|| head.headers.get(header::HOST)?.to_str().ok())
}

fn declares_output(route: &Route, named: Option<usize>) -> bool {
    named.and_then(|at| route.operations.get(at)).is_some_and(|operation| operation.contract.output.is_some())
}
