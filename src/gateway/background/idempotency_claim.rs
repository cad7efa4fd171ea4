//! Step 9: a call with a repeated idempotency key gets the stored response of the first call, or waits for it (R45).

use crate::{
    fault::{Fault, FaultCode},
    gateway::{call::CallResult, exchange::Exchange, header_names::IDEMPOTENT_REPLAYED, response::CompleteReply},
    idempotency::{FirstCallClaim, FirstOutcome, KeyLookup, KeyedRequest},
    telemetry::{Event, LimitKind},
    values::ClientKey,
};
use http::HeaderValue;
use std::{
    sync::Arc,
    time::{Duration, Instant},
};

/// The name of the header of a replayed fault, as faults hold it.
const REPLAYED: &str = "Idempotent-Replayed";

/// An idempotency key, and what makes it unique.
pub(in crate::gateway) struct ScopedKey<'a> {
    /// The caller.
    pub(in crate::gateway) owner: &'a Arc<str>,
    /// The client whose share the key counts against.
    pub(in crate::gateway) client: ClientKey,
    /// The agent, or the path of pipelines.
    pub(in crate::gateway) target: &'a Arc<str>,
    pub(in crate::gateway) key: &'a str,
    pub(in crate::gateway) digest: [u8; 32],
}

/// The result of claiming an idempotency key.
pub(in crate::gateway) enum ClaimOutcome {
    /// This is the first call with the key.
    First(FirstCallClaim),
    /// The outcome of the first call.
    Completed(FirstOutcome),
}

/// Claims the key, or waits for the outcome of the first call with it until `deadline`.
///
/// # Errors
/// `Conflict` if the first call is still in progress then; `IdempotencyMismatch` if it was another request.
pub(in crate::gateway) async fn claim_key(
    exchange: &mut Exchange<'_>,
    scoped_key: ScopedKey<'_>,
    deadline: Instant,
) -> CallResult<ClaimOutcome> {
    let ScopedKey { owner, client, target, key, digest } = scoped_key;
    let outcome = loop {
        let request = KeyedRequest { owner, client, target, key, digest };
        let lookup = exchange.config.idempotency.look_up_or_claim(&request).await;
        if lookup.as_ref().is_err_and(|fault| fault.code() == FaultCode::RateLimited) {
            exchange.call.agent_metrics().record_limited_request(LimitKind::IdempotencyKeys);
        }
        match lookup? {
            KeyLookup::Claimed(claim) => return Ok(ClaimOutcome::First(claim)),
            KeyLookup::Completed(outcome) => break outcome,
            KeyLookup::InProgress(first_call) => {
                let outcome = tokio::time::timeout_at(deadline.into(), first_call.wait());
                match exchange.wait_unless_caller_leaves(outcome).await? {
                    Ok(Some(outcome)) => break outcome,
                    // The first call never reached the agent, so this one becomes the first.
                    Ok(None) => {}
                    Err(_) => return Err(first_call_in_progress().into()),
                }
            }
        }
    };
    if !matches!(outcome, FirstOutcome::Unknown) {
        exchange.gateway.metrics.record_event(Event::ResponseReplayed);
    }
    Ok(ClaimOutcome::Completed(outcome))
}

/// Returns the stored reply, marked as replayed.
///
/// # Errors
/// The stored fault, marked as replayed; `Conflict` if the reply was not stored, or the outcome is unknown.
pub(in crate::gateway) fn replayed_reply(outcome: FirstOutcome) -> Result<CompleteReply, Fault> {
    match outcome {
        FirstOutcome::Response { status, mut headers, body } => {
            headers.insert(IDEMPOTENT_REPLAYED, HeaderValue::from_static("true"));
            Ok(CompleteReply { status, headers, body })
        }
        FirstOutcome::Failed(fault) => Err(fault.with_header(REPLAYED, "true")),
        FirstOutcome::NotStored => {
            let text = "The first answer to this Idempotency-Key was a stream, was too large, or has expired";
            Err(Fault::new(FaultCode::Conflict, text))
        }
        FirstOutcome::Unknown => {
            let text = "The outcome of the first call with this Idempotency-Key is unknown: its gateway stopped before it \
                        stored an answer, and the agent may have executed the call";
            Err(Fault::new(FaultCode::Conflict, text))
        }
    }
}

fn first_call_in_progress() -> Fault {
    let message = "The first call with this Idempotency-Key is still in progress";
    Fault::new(FaultCode::Conflict, message).with_retry_after(Duration::from_secs(1))
}
