//! Writes an outcome to the shared state, and tries again while the server is away.

use super::{
    claim_table::PendingOutcome,
    outcome_encoding::encode_outcome,
    shard_history::LEASE,
    shared_keys::{BACKGROUND_DEADLINE, SharedKeys},
};
use crate::{
    idempotency::{config::IdempotencyConfig, first_outcome::FirstOutcome},
    store::{OutcomeReply, OutcomeRequest, StateError},
    values::{Backoff, jittered},
};
use std::{sync::Arc, time::Duration};
use tokio::time::Instant;

const MIN_DELAY: Duration = Duration::from_millis(100);
const MAX_DELAY: Duration = Duration::from_secs(2);
/// Requests in which the server may make room for one outcome.
const MAX_ROUNDS: u32 = 100;

/// Writes the outcome of a claim, for as long as its record lives. Then the claim ends in this gateway.
pub(super) async fn write_outcome(keys: Arc<SharedKeys>, mut pending: PendingOutcome) {
    let started = Instant::now();
    let mut backoff = Backoff::new(MIN_DELAY, MAX_DELAY);
    let mut rounds = 0;
    loop {
        let config = keys.config.load_full();
        // The first attempt of an outcome does not wait for those that failed.
        let permit = if backoff.is_reset() { None } else { keys.retries.acquire().await.ok() };
        let result = write_once(&keys, &pending, &config).await;
        drop(permit);
        match result {
            Ok(OutcomeReply::Stored) => break,
            Ok(OutcomeReply::Lost) => {
                tracing::warn!("the outcome of a call with an idempotency key came after its claim was lost");
                break;
            }
            Ok(OutcomeReply::MakingRoom) => {
                rounds += 1;
                if rounds == MAX_ROUNDS {
                    pending.outcome = FirstOutcome::NotStored;
                }
                continue;
            }
            Err(_) if started.elapsed() >= config.ttl.get() + LEASE => {
                tracing::error!(
                    "the outcome of a call with an idempotency key was not stored: the shared state was away"
                );
                break;
            }
            Err(_) => tokio::time::sleep(jittered(backoff.next_delay(), 0.5)).await,
        }
    }
    keys.claims.lock().remove(&pending.claim);
}

async fn write_once(
    keys: &SharedKeys,
    pending: &PendingOutcome,
    config: &IdempotencyConfig,
) -> Result<OutcomeReply, StateError> {
    let shard = keys.history.shard(keys.shard_of(pending.claim.client), config);
    let number = keys.history.next_number();
    let request = OutcomeRequest {
        claim: pending.claim,
        number,
        outcome: encode_outcome(&pending.outcome, config.max_response_size.get()),
        bounds: keys.history.bounds(shard.shard, config),
    };
    let reply = keys.records.complete(shard, &request, BACKGROUND_DEADLINE).await?;
    keys.history.learn(shard.shard, &reply, (reply.value == OutcomeReply::Stored).then_some(number));
    Ok(reply.value)
}
