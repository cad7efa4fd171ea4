//! Step 10, idempotency: a call with a repeated idempotency key gets the stored response of the first call, or waits
//! for it (R45). A call with a key goes on when its caller leaves, so that a retry finds the response.

use super::{
    CallError,
    admission::AuthorizedCall,
    background_call::{BackgroundCall, BackgroundReply, BackgroundRequest},
    call::Call,
    http_server::ServeOutcome,
    input_validation::CallInput,
    request_handler::{CheckedInput, RequestContext},
    requested_version::AGENT_VERSION_HEADER,
    respond_async::owner_id,
    responder::Responder,
    response_writer::{self, StoredReply},
    subrequest::CompleteReply,
    upstream_request::BodyPump,
};
use crate::{
    fault::{CallProgress, Fault, FaultCode},
    idempotency::{self, FirstCallClaim, FirstOutcome, KeyLookup, KeyedRequest},
    telemetry::Event,
    transport::{UpstreamReply, filter_reply_headers},
    values::StoreAnswer,
};
use http::HeaderValue;
use pingora_core::protocols::http::ServerSession;
use std::{
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::sync::oneshot;

/// The header of a replayed response.
const REPLAYED_HEADER: &str = "Idempotent-Replayed";

/// An idempotency key, and what makes it unique.
pub(super) struct ScopedKey<'a> {
    /// The caller.
    pub(super) owner: &'a Arc<str>,
    /// The agent, or the path of pipelines.
    pub(super) target: &'a Arc<str>,
    pub(super) key: &'a str,
    pub(super) digest: [u8; 32],
}

/// The result of looking up an idempotency key.
pub(super) enum KeyOutcome {
    /// This is the first call with the key.
    First(FirstCallClaim),
    /// The stored response was replayed.
    Replayed(ServeOutcome),
}

impl RequestContext<'_> {
    /// Claims the request's key, or replays the stored response. Buffers the input, which is a part of the request
    /// digest.
    pub(super) async fn claim_or_replay(
        &self,
        session: &mut ServerSession,
        call: &mut Call,
        key: &str,
        request: &mut BackgroundRequest<'_>,
    ) -> Result<KeyOutcome, CallError> {
        let body_timeout = request.input.body_timeout;
        let input = std::mem::replace(&mut request.input.input, CallInput::Batch(Vec::new()));
        request.input.input = self.buffer_input(session, call, input, body_timeout).await?;
        let authorized = &request.authorized;
        let owner = owner_id(&authorized.caller, self.connection.peer_address.ip());
        let target = authorized.route.agent.id.to_shared_str();
        let digest = request_digest(session, authorized, &request.input);
        let scoped_key = ScopedKey { owner: &owner, target: &target, key, digest };
        let outcome = match self.claim_key(session, scoped_key, body_timeout.deadline).await? {
            Ok(claim) => return Ok(KeyOutcome::First(claim)),
            Err(outcome) => outcome,
        };
        let stored = StoredReply {
            route: &authorized.route,
            reply: replayed_reply(outcome)?,
            rate_limit_status: authorized.rate_limit_status.as_ref(),
        };
        response_writer::write_stored_reply(session, self.connection, call, stored).await.map(KeyOutcome::Replayed)
    }

    /// Claims the key, or waits for the outcome of the first call with it.
    pub(super) async fn claim_key(
        &self,
        session: &mut ServerSession,
        scoped_key: ScopedKey<'_>,
        deadline: Instant,
    ) -> Result<Result<FirstCallClaim, FirstOutcome>, CallError> {
        let ScopedKey { owner, target, key, digest } = scoped_key;
        let outcome = loop {
            match self.config.idempotency.look_up_or_claim(&KeyedRequest { owner, target, key, digest }).await? {
                KeyLookup::Claimed(claim) => return Ok(Ok(claim)),
                KeyLookup::Completed(outcome) => break outcome,
                KeyLookup::InProgress(first_call) => {
                    let outcome = tokio::time::timeout_at(deadline.into(), first_call.wait());
                    match wait_unless_caller_leaves(session, outcome).await? {
                        Ok(Some(outcome)) => break outcome,
                        // The first call never reached the agent, so this one becomes the first.
                        Ok(None) => {}
                        Err(_) => return Err(first_call_in_progress().into()),
                    }
                }
            }
        };
        self.gateway.metrics.record_event(Event::ResponseReplayed);
        Ok(Err(outcome))
    }
}

/// Makes the first call with its key in the background, and writes its response.
pub(super) async fn run_first_call(
    session: &mut ServerSession,
    call: &mut Call,
    responder: Responder<'_>,
    background: BackgroundCall,
    claim: FirstCallClaim,
) -> Result<ServeOutcome, CallError> {
    let config = responder.config;
    let max_bytes = config.idempotency.max_response_size().min(config.contract.max_body_size.get());
    let (sender, receiver) = oneshot::channel();
    let version = responder.admitted.version().and_then(|version| version.label.clone());
    tokio::spawn(async move {
        let reply = background.run(max_bytes).await;
        store_outcome(claim, &reply, version).await;
        // If the caller is gone, a streamed reply ends here.
        drop(sender.send(reply));
    });
    match wait_unless_caller_leaves(session, receiver).await? {
        Ok(Ok(BackgroundReply::Complete(CompleteReply { status, headers, body }))) => {
            let reply = UpstreamReply { status, headers, body: body.clone().into() };
            responder.respond_complete(session, call, &reply, body).await
        }
        Ok(Ok(BackgroundReply::Streamed(reply))) => {
            responder.respond(session, call, reply, BodyPump::without_body()).await
        }
        Ok(Err(fault)) => Err(fault.into()),
        Err(_) => Err(Fault::from(FaultCode::Internal).into()),
    }
}

/// Returns the stored reply, marked as replayed.
///
/// # Errors
/// The stored fault, marked as replayed; `Conflict` if the reply was not stored.
pub(super) fn replayed_reply(outcome: FirstOutcome) -> Result<CompleteReply, Fault> {
    match outcome {
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

/// Stores the outcome for retries with the key. If the agent certainly did not execute the call, the key is released
/// and a retry calls the agent; in every other case the agent may have executed the call.
fn store_outcome(
    claim: FirstCallClaim,
    result: &Result<BackgroundReply, Fault>,
    version: Option<HeaderValue>,
) -> StoreAnswer<'static, ()> {
    match result {
        Ok(BackgroundReply::Complete(reply)) => {
            let mut headers = filter_reply_headers(&reply.headers, reply.status);
            if let Some(version) = version {
                headers.entry(AGENT_VERSION_HEADER).or_insert(version);
            }
            claim.complete(FirstOutcome::Response { status: reply.status, headers, body: reply.body.clone() })
        }
        Ok(BackgroundReply::Streamed(_)) => claim.complete(FirstOutcome::NotStored),
        Err(fault) if is_never_executed(fault) => claim.release(),
        Err(fault) => claim.complete(FirstOutcome::Failed(fault.clone())),
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

fn first_call_in_progress() -> Fault {
    let message = "The first call with this Idempotency-Key is still in progress";
    Fault::new(FaultCode::Conflict, message).with_retry_after(Duration::from_secs(1))
}

/// Waits for `work` while watching the caller; ends early if the caller leaves.
pub(super) async fn wait_unless_caller_leaves<T>(
    session: &mut ServerSession,
    work: impl Future<Output = T>,
) -> Result<T, CallError> {
    tokio::pin!(work);
    let mut pump = BodyPump::without_body();
    loop {
        tokio::select! {
            biased;
            output = &mut work => return Ok(output),
            result = pump.advance(session) => result?,
        }
    }
}
