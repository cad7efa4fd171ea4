//! Step 10, idempotency: a repeated idempotency key receives the stored answer of the first call, or waits for it
//! (R45). A call with a key goes on when its caller leaves, so that a retry finds its answer.

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
use std::{
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::sync::oneshot;

/// The response header of a replayed answer.
const REPLAYED: &str = "Idempotent-Replayed";

/// The result of looking up an idempotency key.
pub(super) enum Stood {
    /// This is the first call with the key.
    First(Ticket),
    /// The stored answer was replayed.
    Answered(Outcome),
}

impl Serving<'_> {
    /// Looks the key up, and replays a stored answer. Buffers the input, which is a part of the request digest.
    pub(super) async fn once(
        &self,
        session: &mut ServerSession,
        call: &mut Call,
        (known, key): (&Known, &str),
        step: &mut Step<'_>,
    ) -> Result<Stood, Stop> {
        let Self { connection, .. } = self;
        let input = std::mem::replace(&mut step.input, Input::Batch(Vec::new()));
        step.input = self.whole_input(session, call, input, step.pace).await?;
        let whose = owner(&known.caller, connection.peer.ip());
        let agent = known.route.agent.id.shared();
        let digest = digest(session, known, step);
        let stands = self.stands(session, (&whose, &agent), (key, digest), step.pace.until).await?;
        let answer = match stands {
            Ok(ticket) => return Ok(Stood::First(ticket)),
            Err(answer) => answer,
        };
        let to = (&***connection, known.standing.as_ref());
        reply::again(session, to, call, (&known.route, again(answer)?)).await.map(Stood::Answered)
    }

    /// Claims the key, or waits for the answer of the first call with it. `whose` is the caller and the agent.
    pub(super) async fn stands(
        &self,
        session: &mut ServerSession,
        whose: (&Arc<str>, &Arc<str>),
        (key, digest): (&str, [u8; 32]),
        until: Instant,
    ) -> Result<Result<Ticket, Answer>, Stop> {
        let answer = loop {
            match self.world.once.enter(whose, key, digest)? {
                Entered::First(ticket) => return Ok(Ok(ticket)),
                Entered::Known(answer) => break answer,
                Entered::Waits(waiting) => {
                    let waits = tokio::time::timeout_at(until.into(), waiting.answer());
                    match watched(session, waits).await? {
                        Ok(Some(answer)) => break answer,
                        // The first call never reached the agent, so this one becomes the first.
                        Ok(None) => {}
                        Err(_) => return Err(under_way().into()),
                    }
                }
            }
        };
        self.gateway.metrics.count(Event::Replayed);
        Ok(Err(answer))
    }

    /// Makes the first call with its key in the background, and writes its answer.
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
            // If the caller is gone, a streamed reply ends here.
            drop(back.send(got));
        });
        match watched(session, got).await? {
            Ok(Ok(Got::Whole(Whole { status, headers, body }))) => {
                let reply = Reply { status, headers, body: body.clone().into() };
                out.whole(session, call, &reply, body).await
            }
            Ok(Ok(Got::Passes(reply))) => out.answer(session, call, reply, Pump::done()).await,
            Ok(Err(fault)) => Err(fault.into()),
            Err(_) => Err(Fault::new(Code::Internal, "The gateway failed").into()),
        }
    }
}

/// Returns the stored answer, marked as replayed.
pub(super) fn again(answer: Answer) -> Result<Whole, Fault> {
    match answer {
        Answer::Whole { status, mut headers, body } => {
            headers.insert("idempotent-replayed", HeaderValue::from_static("true"));
            Ok(Whole { status, headers, body })
        }
        Answer::Failed(fault) => Err(fault.header(REPLAYED, "true")),
        Answer::Unkept => {
            let text = "The first answer to this Idempotency-Key was a stream, was too large, or has expired";
            Err(Fault::new(Code::Conflict, text))
        }
    }
}

/// Stores the answer for retries with the same key. If the agent certainly did not execute the call, the key is
/// released and a retry is made again; in every other case the agent may have executed it.
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

/// Returns whether the agent certainly did not execute the call.
pub(super) fn is_undone(fault: &Fault) -> bool {
    match fault.reach() {
        Some(Reach::Nowhere) => true,
        Some(Reach::Unsure) => false,
        None => matches!(fault.code(), Code::AgentUnavailable | Code::Overloaded | Code::RateLimited),
    }
}

/// Hashes operation, version, query and body. The version is hashed as the caller wrote it: a range may match a newer
/// version later.
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
            // A batch of one item differs from the item alone.
            parts.push(b"[");
            parts.extend(items.iter().map(|(item, _)| &**item));
        }
    }
    once::digest(&parts)
}

fn under_way() -> Fault {
    let text = "The first call with this Idempotency-Key is still in progress";
    Fault::new(Code::Conflict, text).retry_after(Duration::from_secs(1))
}

/// Waits for `waits` while watching the caller; ends early if the caller leaves.
pub(super) async fn watched<T>(session: &mut ServerSession, waits: impl Future<Output = T>) -> Result<T, Stop> {
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
