//! A call, in order: the steps of the crate's documentation, one after the other.

use super::{
    Gateway, Stop, World, accept,
    admit::{Admitted, Entry, Shown},
    asks::{deadline, query, session_in_query, told_by_us},
    batch::Batch,
    body::{Incoming, Pace},
    call::{Call, Stage},
    forward::{Sending, Told, as_json},
    input::{self, Input, Reading},
    listen::{self, Connection, Outcome, Service},
    reply::{self, Out},
    route::Route,
    target::{self, Invoke, Target},
};
use crate::{
    fault::{Code, Fault},
    transport::Passage,
};
use futures_util::FutureExt;
use http::header;
use pingora_core::protocols::http::ServerSession;
use std::{panic::AssertUnwindSafe, sync::Arc, time::Instant};

impl Service for Gateway {
    /// The books are kept here; the work is done in `handle`.
    async fn serve(self: &Arc<Self>, session: &mut ServerSession, connection: &Arc<Connection>) -> Outcome {
        let world = self.world.load_full();
        let mut call = Call::arrive(self, Some(connection.peer.ip()));
        call.asks(session.req_header());
        let serving = Serving { gateway: self, world: &world, connection };
        let served = caught(serving.handle(session, &mut call)).await;
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

/// A panic ends its call, which is answered like any other failure, and nothing else.
pub(super) async fn caught<T>(
    work: impl Future<Output = std::result::Result<T, Stop>>,
) -> std::result::Result<T, Stop> {
    AssertUnwindSafe(work).catch_unwind().await.unwrap_or_else(|_| {
        let fault = Fault::new(Code::Internal, "the gateway failed").detail("a panic; its message is on stderr");
        Err(Stop::Fault(fault))
    })
}

/// What serving one request needs besides the session.
pub(super) struct Serving<'a> {
    pub(super) gateway: &'a Arc<Gateway>,
    pub(super) world: &'a World,
    pub(super) connection: &'a Connection,
}

impl Serving<'_> {
    async fn handle(&self, session: &mut ServerSession, call: &mut Call) -> std::result::Result<Outcome, Stop> {
        let Self { gateway, world, connection } = self;
        gateway.limits.address(connection.peer.ip())?;
        let head = session.req_header();
        let Invoke { agent, operation, from_query } = match target::read(&head.method, head.uri.path())? {
            Target::Invoke(invoke) => invoke,
            // Boxed, so that a call's future stays small.
            Target::Directory(face, id) => {
                let id = id.to_owned();
                return Box::pin(self.local(session, call, (face, &id))).await;
            }
        };
        let shown = Shown { headers: &head.headers, peer: connection.certificate(), address: connection.peer.ip() };
        let mut entry = gateway.enter(world, call, agent, shown).await?;
        entry.session = entry.session.or_else(|| session_in_query(head, &entry.caller));
        let named = input::named(&entry.route, operation, &head.headers)?;
        if declares_output(&entry.route, named) {
            accept::acceptable(&head.headers)?;
        }
        let until = deadline(call, &entry.route, &head.headers)?;
        let pace = Pace { connection, until };
        let reading = Reading { gateway, route: &entry.route, rules: &world.contract, named };
        let (operation, input) = match from_query {
            true => reading.bytes(query(head, &entry.route, named)?)?,
            false => {
                let mut incoming = Incoming::new(session, pace);
                reading.body(&mut incoming).await?
            }
        };
        call.operates(operation);
        self.forward(session, call, entry, Step { operation, input, pace, from_query }).await
    }

    /// Steps 9 to 11, for a call whose input is good.
    async fn forward(
        &self,
        session: &mut ServerSession,
        call: &mut Call,
        entry: Entry,
        step: Step<'_>,
    ) -> std::result::Result<Outcome, Stop> {
        let Self { gateway, world, connection } = self;
        let Step { operation, input, pace, from_query } = step;
        let caller = Arc::clone(&entry.caller);
        let standing = entry.standing;
        let admitted: Admitted = entry.admit(operation, pace.until);
        // A copy: the session goes on to be read from and watched while the agent is called.
        let mut headers = session.req_header().headers.clone();
        if from_query || matches!(input, Input::Batch(_)) {
            as_json(&mut headers);
        }
        let fields = told_by_us(call, &admitted, session.req_header());
        let host = session.req_header().uri.authority().map(|authority| authority.as_str().to_owned());
        let host = host.or_else(|| headers.get(header::HOST)?.to_str().ok().map(str::to_owned));
        let passage = Passage {
            peer: Some(connection.peer.ip()),
            secure: connection.secured.is_some(),
            host: host.as_deref(),
            key_header: world.key_header.as_ref(),
            trusted: false,
            fields: &fields,
        };
        let id = call.id().to_owned();
        let told = Told { id: &id, headers: &headers, passage };
        let out = Out { gateway, world, connection, admitted: &admitted, standing: standing.as_ref() };
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

struct Step<'a> {
    operation: usize,
    input: Input,
    pace: Pace<'a>,
    from_query: bool,
}

fn declares_output(route: &Route, named: Option<usize>) -> bool {
    named.and_then(|at| route.operations.get(at)).is_some_and(|operation| operation.contract.output.is_some())
}
