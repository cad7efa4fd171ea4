//! Calls with an idempotency key: the first one is made in the background and goes on when its caller leaves, so that a
//! retry finds the response.

use super::{
    background_call::{BackgroundCall, BackgroundReply},
    idempotency_claim::{ClaimOutcome, ScopedKey, claim_key, replayed_reply},
};
use crate::{
    fault::{CallProgress, Fault, FaultCode},
    gateway::{
        admission::{CallInput, CheckedCall, owner_key},
        call::{CallError, CallResult},
        exchange::{AgentHeaders, Exchange},
        header_names::AGENT_VERSION,
        response::{CompleteReply, Responder},
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

/// The reply to an idempotency key.
pub(in crate::gateway) enum KeyedOutcome {
    /// This is the first call with the key.
    First(FirstCallClaim),
    /// The stored reply, marked as replayed.
    Stored(CompleteReply),
}

/// A call with an idempotency key.
#[derive(Clone, Copy)]
pub(in crate::gateway) struct KeyedCall<'a> {
    pub(in crate::gateway) checked: &'a CheckedCall,
    pub(in crate::gateway) key: &'a str,
    /// What distinguishes requests with the same input: the version in the path, or the form of the request.
    pub(in crate::gateway) form: &'a str,
}

/// What becomes of a failure that the body of a reply reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::gateway) enum ReportedFailures {
    /// The reply passes as it is.
    Pass,
    /// The call fails.
    Fail,
}

/// Claims the key of a call, or replays the stored response. The input, which is complete, is a part of the request
/// digest.
pub(in crate::gateway) async fn claim_or_replay(
    exchange: &mut Exchange<'_>,
    checked: &CheckedCall,
    key: &str,
) -> CallResult<KeyOutcome> {
    let form = path_version(exchange.session.head()).to_owned();
    match claim_or_find(exchange, KeyedCall { checked, key, form: &form }).await? {
        KeyedOutcome::First(claim) => Ok(KeyOutcome::First(claim)),
        KeyedOutcome::Stored(reply) => {
            let agent = AgentHeaders { route: checked.route(), rate_limit_status: checked.rate_limit_status() };
            exchange.respond_with_reply(reply, agent).await.map(KeyOutcome::Replayed)
        }
    }
}

/// Claims the key of a call, or returns the stored reply.
///
/// # Errors
/// The stored fault; `Conflict` if the reply was not stored, or the first call is still in progress at the deadline.
pub(in crate::gateway) async fn claim_or_find(
    exchange: &mut Exchange<'_>,
    call: KeyedCall<'_>,
) -> CallResult<KeyedOutcome> {
    let KeyedCall { checked, key, form } = call;
    let owner = owner_key(checked.caller(), exchange.connection.client_address());
    let target = checked.route().agent.id.to_shared_str();
    let digest = request_digest(exchange.session.head(), checked, form);
    let scoped_key = ScopedKey { owner: &owner, client: checked.client(), target: &target, key, digest };
    Ok(match claim_key(exchange, scoped_key, checked.deadline()).await? {
        ClaimOutcome::First(claim) => KeyedOutcome::First(claim),
        ClaimOutcome::Completed(outcome) => KeyedOutcome::Stored(replayed_reply(outcome)?),
    })
}

/// Makes the first call with its key in the background, and writes its response.
pub(in crate::gateway) async fn run_first_call(
    exchange: &mut Exchange<'_>,
    background: BackgroundCall,
    claim: FirstCallClaim,
) -> CallResult<ServeOutcome> {
    let admitted = Arc::clone(&background.admitted);
    let reply = make_first_call(exchange, background, claim, ReportedFailures::Pass).await?;
    let responder = Responder { exchange, admitted: &admitted };
    match reply {
        BackgroundReply::Complete { reply, .. } => responder.respond_complete(reply).await,
        BackgroundReply::Streamed(reply) => responder.respond(reply, BodyPump::without_body()).await,
    }
}

/// Makes the first call with its key in the background, and returns its reply.
///
/// # Errors
/// The fault of the call, or that its caller is gone.
pub(in crate::gateway) async fn make_first_call(
    exchange: &mut Exchange<'_>,
    background: BackgroundCall,
    mut claim: FirstCallClaim,
    reported_failures: ReportedFailures,
) -> CallResult<BackgroundReply> {
    let config = exchange.config;
    let max_bytes = config.idempotency.max_response_size().min(config.contract.max_body_size.get());
    let (sender, receiver) = oneshot::channel();
    let version = background.admitted.version().and_then(|version| version.label.clone());
    claim.begin()?;
    tokio::spawn(async move {
        let reply = match background.run(max_bytes).await {
            Ok(BackgroundReply::Complete { reported: Some(fault), .. })
                if reported_failures == ReportedFailures::Fail =>
            {
                Err(fault.with_progress(CallProgress::PossiblySent))
            }
            reply => reply,
        };
        store_outcome(claim, &reply, version).await;
        // If the caller is gone, a streamed reply ends here.
        drop(sender.send(reply));
    });
    let received = exchange.wait_unless_caller_leaves(receiver).await?;
    Ok(received.unwrap_or_else(|_| Err(Fault::from(FaultCode::Internal)))?)
}

/// Settles the key of a first call whose reply was streamed to its caller: nothing is stored.
pub(in crate::gateway) fn settle_streamed(
    claim: FirstCallClaim,
    result: &CallResult<ServeOutcome>,
) -> StoreAnswer<'static, ()> {
    match result {
        Err(CallError::Fault(fault)) if fault.is_never_executed() => claim.release(),
        Err(CallError::Fault(fault)) => claim.complete(FirstOutcome::Failed(fault.clone())),
        Ok(_) | Err(CallError::CallerGone) => claim.complete(FirstOutcome::NotStored),
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
        Err(fault) if fault.is_never_executed() => claim.release(),
        Err(fault) => claim.complete(FirstOutcome::Failed(fault.clone())),
    }
}

/// Returns the version in the path of a request.
fn path_version(head: &request::Parts) -> &str {
    head.uri.path().split_once('@').and_then(|(_, rest)| rest.split('/').next()).unwrap_or_default()
}

/// Hashes operation, version, query and body. The version is hashed as the caller wrote it: a range may match a newer
/// version later.
fn request_digest(head: &request::Parts, checked: &CheckedCall, form: &str) -> [u8; 32] {
    let version = head.headers.get(AGENT_VERSION).map(|version| version.as_bytes()).unwrap_or_default();
    let operation = &checked.operation().name;
    let query = head.uri.query().unwrap_or_default().as_bytes();
    let mut parts = vec![operation.as_bytes(), version, form.as_bytes(), query];
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
