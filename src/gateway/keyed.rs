//! Step 10, *once*: the first answer to an idempotency key is given again, and whoever sends the key meanwhile waits for
//! it (R45). A call with a key goes on when its caller leaves, so that whoever asks again finds its answer.

use super::{
    Stop,
    admit::Known,
    call::Call,
    errand::Whole,
    forward::Pump,
    input::Input,
    later::owner,
    listen::Outcome,
    reply::{self, Out},
    serve::{Serving, Step},
    versions::FIELD,
    work::{Got, Work},
};
use crate::{
    fault::{Code, Fault, Reach},
    once::{self, Answer, Entered, Ticket},
    telemetry::Event,
    transport::{Reply, incoming_headers},
};
use http::HeaderValue;
use pingora_core::protocols::http::ServerSession;
use std::time::Duration;
use tokio::sync::oneshot;

/// The field that marks an answer as the first one.
const REPLAYED: &str = "Idempotent-Replayed";

/// Where a call with a key stands.
pub(super) enum Stood {
    /// It is the first.
    First(Ticket),
    /// It was answered as the first was.
    Answered(Outcome),
}

impl Serving<'_> {
    /// Looks the key up; the input is made whole, because it counts.
    pub(super) async fn once(
        &self,
        session: &mut ServerSession,
        call: &mut Call,
        (known, key): (&Known, &str),
        step: &mut Step<'_>,
    ) -> Result<Stood, Stop> {
        let Self { gateway, world, connection } = self;
        let input = std::mem::replace(&mut step.input, Input::Batch(Vec::new()));
        step.input = self.whole_input(session, call, input, step.pace).await?;
        let whose = owner(&known.caller, connection.peer.ip());
        let agent = known.route.agent.id.shared();
        let digest = digest(session, known, step);
        let answer = loop {
            match world.once.enter((&whose, &agent), key, digest)? {
                Entered::First(ticket) => return Ok(Stood::First(ticket)),
                Entered::Known(answer) => break answer,
                Entered::Waits(waiting) => {
                    let waits = tokio::time::timeout_at(step.pace.until.into(), waiting.answer());
                    match watched(session, waits).await? {
                        Ok(Some(answer)) => break answer,
                        // The first never reached the agent: this is the first now.
                        Ok(None) => {}
                        Err(_) => return Err(under_way().into()),
                    }
                }
            }
        };
        gateway.metrics.count(Event::Replayed);
        match answer {
            Answer::Whole { status, mut headers, body } => {
                headers.insert("idempotent-replayed", HeaderValue::from_static("true"));
                let whole = Whole { status, headers, body };
                let to = (&**self.connection, known.standing.as_ref());
                reply::again(session, to, call, (&known.route, whole)).await.map(Stood::Answered)
            }
            Answer::Failed(fault) => Err(fault.header(REPLAYED, "true").into()),
            Answer::Unkept => {
                let text = "the first answer to this Idempotency-Key was a stream or too large, or is no longer kept";
                Err(Fault::new(Code::Conflict, text).into())
            }
        }
    }

    /// Makes the first call with its key, apart from its caller.
    pub(super) async fn first(
        &self,
        session: &mut ServerSession,
        call: &mut Call,
        out: Out<'_>,
        (work, ticket): (Work, Ticket),
    ) -> Result<Outcome, Stop> {
        let most = self.world.once.max_answer().min(self.world.contract.max_body.get());
        let (back, got) = oneshot::channel();
        let version = out.admitted.version().and_then(|version| version.label.clone());
        tokio::spawn(async move {
            let got = work.run(most).await;
            keep(ticket, &got, version);
            // Nobody may be waiting: then what is passed on piece by piece ends here.
            drop(back.send(got));
        });
        match watched(session, got).await? {
            Ok(Ok(Got::Whole(Whole { status, headers, body }))) => {
                let reply = Reply { status, headers, body: body.clone().into() };
                out.whole(session, call, &reply, body).await
            }
            Ok(Ok(Got::Passes(reply))) => out.answer(session, call, reply, Pump::done()).await,
            Ok(Err(fault)) => Err(fault.into()),
            Err(_) => Err(Fault::new(Code::Internal, "the gateway failed").into()),
        }
    }
}

/// What the answer says to whoever sends the key again. What never reached the agent, or what it said it did not do,
/// may be tried again with the same key; everything else might have been done.
fn keep(ticket: Ticket, got: &Result<Got, Fault>, version: Option<HeaderValue>) {
    match got {
        Ok(Got::Whole(whole)) => {
            let mut headers = incoming_headers(&whole.headers, whole.status);
            if let Some(version) = version {
                headers.entry(FIELD).or_insert(version);
            }
            ticket.answered(Answer::Whole { status: whole.status, headers, body: whole.body.clone() });
        }
        Ok(Got::Passes(_)) => ticket.answered(Answer::Unkept),
        Err(fault) if is_undone(fault) => drop(ticket),
        Err(fault) => ticket.answered(Answer::Failed(fault.clone())),
    }
}

/// Whether the agent has certainly not done what it was asked.
fn is_undone(fault: &Fault) -> bool {
    match fault.reach() {
        Some(Reach::Nowhere) => true,
        Some(Reach::Unsure) => false,
        None => matches!(fault.code(), Code::AgentUnavailable | Code::Overloaded | Code::RateLimited),
    }
}

/// Operation, version, query and body; the version in the caller's words, which mean another when there is a later one.
fn digest(session: &ServerSession, known: &Known, step: &Step<'_>) -> [u8; 32] {
    let head = session.req_header();
    let version = head.headers.get(FIELD).map(|version| version.as_bytes()).unwrap_or_default();
    let behind = head.uri.path().split_once('@').and_then(|(_, rest)| rest.split('/').next()).unwrap_or_default();
    let operation = known.route.operations.get(step.operation).map_or("", |operation| &*operation.name);
    let query = head.uri.query().unwrap_or_default().as_bytes();
    let mut parts = vec![operation.as_bytes(), version, behind.as_bytes(), query];
    match &step.input {
        Input::Whole(bytes) | Input::Stream(bytes) => parts.push(bytes),
        Input::Batch(items) => {
            // A batch of one is not its item.
            parts.push(b"[");
            parts.extend(items.iter().map(|(item, _)| &**item));
        }
    }
    once::digest(&parts)
}

fn under_way() -> Fault {
    let text = "the first call with this Idempotency-Key is under way";
    Fault::new(Code::Conflict, text).retry_after(Duration::from_secs(1))
}

/// Waits while the caller is watched.
async fn watched<T>(session: &mut ServerSession, waits: impl Future<Output = T>) -> Result<T, Stop> {
    tokio::pin!(waits);
    let mut pump = Pump::done();
    loop {
        tokio::select! {
            biased;
            done = &mut waits => return Ok(done),
            moved = pump.step(session) => moved?,
        }
    }
}
