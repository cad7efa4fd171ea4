//! Calls with an idempotency key: the first one is made in the background and goes on when its caller leaves, so that a
//! retry finds the response.

use super::{
    background_call::{BackgroundCall, BackgroundReply},
    idempotency_claim::{ClaimOutcome, ScopedKey, claim_key, is_never_executed, replayed_reply},
};
use crate::{
    fault::{Fault, FaultCode},
    gateway::{
        admission::{CallInput, CheckedCall, owner_key},
        call::CallResult,
        exchange::{AgentHeaders, Exchange},
        header_names::AGENT_VERSION,
        response::Responder,
        upstream::BodyPump,
    },
    http_server::ServeOutcome,
    idempotency::{self, FirstCallClaim, FirstOutcome},
    transport::filter_reply_headers,
    values::StoreAnswer,
};
use http::{HeaderValue, request};
use std::sync::Arc;
use tokio::sync::oneshot;

/// The result of looking up an idempotency key.
pub(in crate::gateway) enum KeyOutcome {
    /// This is the first call with the key.
    First(FirstCallClaim),
    /// The stored response was replayed.
    Replayed(ServeOutcome),
}

/// Claims the key of a call, or replays the stored response. The input, which is complete, is a part of the request
/// digest.
pub(in crate::gateway) async fn claim_or_replay(
    exchange: &mut Exchange<'_>,
    checked: &CheckedCall,
    key: &str,
) -> CallResult<KeyOutcome> {
    let owner = owner_key(checked.caller(), exchange.connection.client_address());
    let target = checked.route().agent.id.to_shared_str();
    let digest = request_digest(exchange.session.head(), checked);
    let scoped_key = ScopedKey { owner: &owner, client: checked.client(), target: &target, key, digest };
    let outcome = match claim_key(exchange, scoped_key, checked.deadline()).await? {
        ClaimOutcome::First(claim) => return Ok(KeyOutcome::First(claim)),
        ClaimOutcome::Completed(outcome) => outcome,
    };
    let agent = AgentHeaders { route: checked.route(), rate_limit_status: checked.rate_limit_status() };
    exchange.respond_with_reply(replayed_reply(outcome)?, agent).await.map(KeyOutcome::Replayed)
}

/// Makes the first call with its key in the background, and writes its response.
pub(in crate::gateway) async fn run_first_call(
    exchange: &mut Exchange<'_>,
    background: BackgroundCall,
    mut claim: FirstCallClaim,
) -> CallResult<ServeOutcome> {
    let config = exchange.config;
    let max_bytes = config.idempotency.max_response_size().min(config.contract.max_body_size.get());
    let (sender, receiver) = oneshot::channel();
    let admitted = Arc::clone(&background.admitted);
    let version = admitted.version().and_then(|version| version.label.clone());
    claim.begin()?;
    tokio::spawn(async move {
        let reply = background.run(max_bytes).await;
        store_outcome(claim, &reply, version).await;
        // If the caller is gone, a streamed reply ends here.
        drop(sender.send(reply));
    });
    let received = exchange.wait_unless_caller_leaves(receiver).await?;
    let reply = received.unwrap_or_else(|_| Err(Fault::from(FaultCode::Internal)))?;
    let responder = Responder { exchange, admitted: &admitted };
    match reply {
        BackgroundReply::Complete { reply, .. } => responder.respond_complete(reply).await,
        BackgroundReply::Streamed(reply) => responder.respond(reply, BodyPump::without_body()).await,
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
        Ok(BackgroundReply::Complete { reply, .. }) => {
            let mut headers = filter_reply_headers(&reply.headers, reply.status);
            if let Some(version) = version {
                headers.entry(AGENT_VERSION).or_insert(version);
            }
            claim.complete(FirstOutcome::Response { status: reply.status, headers, body: reply.body.clone() })
        }
        Ok(BackgroundReply::Streamed(_)) => claim.complete(FirstOutcome::NotStored),
        Err(fault) if is_never_executed(fault) => claim.release(),
        Err(fault) => claim.complete(FirstOutcome::Failed(fault.clone())),
    }
}

/// Hashes operation, version, query and body. The version is hashed as the caller wrote it: a range may match a newer
/// version later.
fn request_digest(head: &request::Parts, checked: &CheckedCall) -> [u8; 32] {
    let version = head.headers.get(AGENT_VERSION).map(|version| version.as_bytes()).unwrap_or_default();
    let version_in_path =
        head.uri.path().split_once('@').and_then(|(_, rest)| rest.split('/').next()).unwrap_or_default();
    let operation = &checked.operation().name;
    let query = head.uri.query().unwrap_or_default().as_bytes();
    let mut parts = vec![operation.as_bytes(), version, version_in_path.as_bytes(), query];
    match &checked.input {
        CallInput::Complete(bytes) | CallInput::Streamed(bytes) => parts.push(bytes),
        CallInput::Batch(items) => {
            // A batch of one item differs from the item alone.
            parts.push(b"[");
            parts.extend(items.iter().map(|(item, _)| &**item));
        }
    }
    idempotency::request_digest(&parts)
}
