//! Step 10, idempotency: a repeated idempotency key receives the stored answer of the first call, or waits for it
//! (R45). A call with a key goes on when its caller leaves, so that a retry finds its answer.

use super::{
    CallError,
    admission::AuthorizedCall,
    background_call::{BackgroundCall, BackgroundReply},
    call::Call,
    http_server::ServeOutcome,
    input_validation::CallInput,
    request_handler::{CheckedInput, RequestContext},
    requested_version::AGENT_VERSION_HEADER,
    respond_async::owner_id,
    responder::{self, Responder},
    subrequest::CompleteReply,
    upstream_request::BodyPump,
};
use crate::{
    fault::{CallProgress, Fault, FaultCode},
    idempotency::{self, FirstCallClaim, FirstOutcome, KeyLookup},
    telemetry::Event,
    transport::{UpstreamReply, filter_reply_headers},
};
use http::HeaderValue;
use pingora_core::protocols::http::ServerSession;
use std::{
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::sync::oneshot;

/// The response header of a replayed answer.
const REPLAYED_HEADER: &str = "Idempotent-Replayed";

/// The result of looking up an idempotency key.
pub(super) enum KeyOutcome {
    /// This is the first call with the key.
    First(FirstCallClaim),
    /// The stored answer was replayed.
    Replayed(ServeOutcome),
}

impl RequestContext<'_> {
    /// Looks the key up, and replays a stored answer. Buffers the input, which is a part of the request digest.
    pub(super) async fn claim_or_replay(
        &self,
        session: &mut ServerSession,
        call: &mut Call,
        (authorized, key): (&AuthorizedCall, &str),
        checked_input: &mut CheckedInput<'_>,
    ) -> Result<KeyOutcome, CallError> {
        let Self { connection, .. } = self;
        let input = std::mem::replace(&mut checked_input.input, CallInput::Batch(Vec::new()));
        checked_input.input = self.buffer_input(session, call, input, checked_input.pace).await?;
        let owner = owner_id(&authorized.caller, connection.peer_address.ip());
        let agent = authorized.route.agent.id.to_shared_str();
        let digest = request_digest(session, authorized, checked_input);
        let claim = self.claim_key(session, (&owner, &agent), (key, digest), checked_input.pace.deadline).await?;
        let answer = match claim {
            Ok(ticket) => return Ok(KeyOutcome::First(ticket)),
            Err(answer) => answer,
        };
        let to = (&***connection, authorized.rate_limit_status.as_ref());
        responder::write_stored_reply(session, to, call, (&authorized.route, replayed(answer)?))
            .await
            .map(KeyOutcome::Replayed)
    }

    /// Claims the key, or waits for the answer of the first call with it. `whose` is the caller and the agent.
    pub(super) async fn claim_key(
        &self,
        session: &mut ServerSession,
        scope: (&Arc<str>, &Arc<str>),
        (key, digest): (&str, [u8; 32]),
        deadline: Instant,
    ) -> Result<Result<FirstCallClaim, FirstOutcome>, CallError> {
        let answer = loop {
            match self.config.idempotency.look_up_or_claim(scope, key, digest)? {
                KeyLookup::Claimed(ticket) => return Ok(Ok(ticket)),
                KeyLookup::Completed(answer) => break answer,
                KeyLookup::InProgress(waiting) => {
                    let waits = tokio::time::timeout_at(deadline.into(), waiting.wait());
                    match wait_unless_caller_leaves(session, waits).await? {
                        Ok(Some(answer)) => break answer,
                        // The first call never reached the agent, so this one becomes the first.
                        Ok(None) => {}
                        Err(_) => return Err(in_progress().into()),
                    }
                }
            }
        };
        self.gateway.metrics.record_event(Event::ResponseReplayed);
        Ok(Err(answer))
    }

    /// Makes the first call with its key in the background, and writes its answer.
    pub(super) async fn run_first(
        &self,
        session: &mut ServerSession,
        call: &mut Call,
        responder: Responder<'_>,
        (background, ticket): (BackgroundCall, FirstCallClaim),
    ) -> Result<ServeOutcome, CallError> {
        let max_bytes = self.config.idempotency.max_response_size().min(self.config.contract.max_body_size.get());
        let (back, got) = oneshot::channel();
        let version = responder.admitted.version().and_then(|version| version.label.clone());
        tokio::spawn(async move {
            let got = background.run(max_bytes).await;
            store_outcome(ticket, &got, version);
            // If the caller is gone, a streamed reply ends here.
            drop(back.send(got));
        });
        match wait_unless_caller_leaves(session, got).await? {
            Ok(Ok(BackgroundReply::Complete(CompleteReply { status, headers, body }))) => {
                let reply = UpstreamReply { status, headers, body: body.clone().into() };
                responder.respond_complete(session, call, &reply, body).await
            }
            Ok(Ok(BackgroundReply::Streamed(reply))) => {
                responder.respond(session, call, reply, BodyPump::without_body()).await
            }
            Ok(Err(fault)) => Err(fault.into()),
            Err(_) => Err(Fault::new(FaultCode::Internal, "The gateway failed").into()),
        }
    }
}

/// Returns the stored answer, marked as replayed.
pub(super) fn replayed(answer: FirstOutcome) -> Result<CompleteReply, Fault> {
    match answer {
        FirstOutcome::Response { status, mut headers, body } => {
            headers.insert("idempotent-replayed", HeaderValue::from_static("true"));
            Ok(CompleteReply { status, headers, body })
        }
        FirstOutcome::Failed(fault) => Err(fault.with_header(REPLAYED_HEADER, "true")),
        FirstOutcome::NotStored => {
            let text = "The first answer to this Idempotency-Key was a stream, was too large, or has expired";
            Err(Fault::new(FaultCode::Conflict, text))
        }
    }
}

/// Stores the answer for retries with the same key. If the agent certainly did not execute the call, the key is
/// released and a retry is made again; in every other case the agent may have executed it.
fn store_outcome(ticket: FirstCallClaim, outcome: &Result<BackgroundReply, Fault>, version: Option<HeaderValue>) {
    match outcome {
        Ok(BackgroundReply::Complete(whole)) => {
            let mut headers = filter_reply_headers(&whole.headers, whole.status);
            if let Some(version) = version {
                headers.entry(AGENT_VERSION_HEADER).or_insert(version);
            }
            ticket.complete(FirstOutcome::Response { status: whole.status, headers, body: whole.body.clone() });
        }
        Ok(BackgroundReply::Streamed(_)) => ticket.complete(FirstOutcome::NotStored),
        Err(fault) if is_never_executed(fault) => drop(ticket),
        Err(fault) => ticket.complete(FirstOutcome::Failed(fault.clone())),
    }
}

/// Returns whether the agent certainly did not execute the call.
pub(super) fn is_never_executed(fault: &Fault) -> bool {
    match fault.progress() {
        Some(CallProgress::NotSent) => true,
        Some(CallProgress::PossiblySent) => false,
        None => matches!(fault.code(), FaultCode::AgentUnavailable | FaultCode::Overloaded | FaultCode::RateLimited),
    }
}

/// Hashes operation, version, query and body. The version is hashed as the caller wrote it: a range may match a newer
/// version later.
fn request_digest(session: &ServerSession, authorized: &AuthorizedCall, checked_input: &CheckedInput<'_>) -> [u8; 32] {
    let head = session.req_header();
    let version = head.headers.get(AGENT_VERSION_HEADER).map(|version| version.as_bytes()).unwrap_or_default();
    let version_in_path =
        head.uri.path().split_once('@').and_then(|(_, rest)| rest.split('/').next()).unwrap_or_default();
    let operation = authorized.route.operations.get(checked_input.operation).map_or("", |operation| &*operation.name);
    let query = head.uri.query().unwrap_or_default().as_bytes();
    let mut parts = vec![operation.as_bytes(), version, version_in_path.as_bytes(), query];
    match &checked_input.input {
        CallInput::Complete(bytes) | CallInput::Streamed(bytes) => parts.push(bytes),
        CallInput::Batch(items) => {
            // A batch of one item differs from the item alone.
            parts.push(b"[");
            parts.extend(items.iter().map(|(item, _)| &**item));
        }
    }
    idempotency::request_digest(&parts)
}

fn in_progress() -> Fault {
    let text = "The first call with this Idempotency-Key is still in progress";
    Fault::new(FaultCode::Conflict, text).with_retry_after(Duration::from_secs(1))
}

/// Waits for `waits` while watching the caller; ends early if the caller leaves.
pub(super) async fn wait_unless_caller_leaves<T>(
    session: &mut ServerSession,
    waits: impl Future<Output = T>,
) -> Result<T, CallError> {
    tokio::pin!(waits);
    let mut pump = BodyPump::without_body();
    loop {
        tokio::select! {
            biased;
            done = &mut waits => return Ok(done),
            moved = pump.advance(session) => moved?,
        }
    }
}
