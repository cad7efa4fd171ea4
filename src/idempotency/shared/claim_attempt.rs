//! The request for one key: looked up, and claimed if it is new.

use super::{outcome_encoding::decode_outcome, outcome_poll::OutcomePolls, shared_keys::SharedKeys};
use crate::{
    idempotency::{
        config::{IdempotencyConfig, OnDataLoss},
        first_outcome::FirstOutcome,
        idempotency_store::{ClaimedKey, KeyRefusal, NewKey, StoredKey},
    },
    store::{ClaimReply, ClaimRequest, KeyClaim, StateError},
};
use std::{sync::Arc, time::Duration};
use tokio::time::Instant;

/// How long after the deadline of its caller a claim may still be made, because the server's clock is known only roughly.
const CLOCK_TOLERANCE: Duration = Duration::from_secs(1);

/// A claim that was requested. If it is dropped before the server has answered, it is released.
struct RequestedClaim<'a> {
    keys: &'a SharedKeys,
    claim: KeyClaim,
    not_after: Duration,
    is_settled: bool,
}

impl Drop for RequestedClaim<'_> {
    fn drop(&mut self) {
        if !self.is_settled {
            self.keys.release_later(self.claim, self.not_after);
        }
    }
}

/// Looks up a key, and claims it if it is new.
///
/// # Errors
/// Why it was neither.
pub(super) async fn look_up_or_claim(
    keys: &Arc<SharedKeys>,
    polls: &Arc<OutcomePolls>,
    new_key: NewKey,
) -> Result<StoredKey, KeyRefusal> {
    if let Some(found) = keys.claims.lock().find(&new_key) {
        return found;
    }
    let config = keys.config.load_full();
    let client = new_key.client.to_database_number().cast_unsigned();
    let number = keys.history.next_number();
    let claim = KeyClaim { key: *new_key.key.as_bytes(), digest: new_key.digest, client, number };
    let (sent_at, reply) = request_claim(keys, claim, &config).await?;
    match reply {
        ClaimReply::Claimed => {
            keys.claims.lock().add(new_key.key, claim, sent_at);
            Ok(StoredKey::Claimed(ClaimedKey { key: new_key.key, claim_number: number }))
        }
        ClaimReply::Running { own_number } => {
            let own = own_number.and_then(|number| keys.claims.lock().waiter(&new_key.key, number));
            Ok(StoredKey::InProgress(own.unwrap_or_else(|| polls.wait_for(keys, claim))))
        }
        ClaimReply::Completed(stored) => Ok(StoredKey::Completed(decode_outcome(stored))),
        ClaimReply::Unknown => Ok(StoredKey::Completed(FirstOutcome::Unknown)),
        ClaimReply::DifferentRequest => Err(KeyRefusal::DifferentRequest),
        ClaimReply::TooManyOfClient if !config.max_share.is_unlimited() => Err(KeyRefusal::TooManyOfClient),
        ClaimReply::TooManyOfClient | ClaimReply::TooManyInProgress => Err(KeyRefusal::TooManyInProgress),
        ClaimReply::TooLate => Err(KeyRefusal::StoreUnavailable),
        ClaimReply::DataLost { remaining } => Err(KeyRefusal::DataLost { retry_after: remaining }),
    }
}

/// Requests a claim; returns when the request was sent, and the reply.
async fn request_claim(
    keys: &SharedKeys,
    claim: KeyClaim,
    config: &IdempotencyConfig,
) -> Result<(Instant, ClaimReply), KeyRefusal> {
    let deadline = config.store_timeout.get();
    let not_after = keys.records.state().server_time() + deadline + CLOCK_TOLERANCE;
    let shard = keys.history.shard(keys.shard_of(claim.client), config);
    let request = ClaimRequest {
        claim,
        not_after,
        refuses_after_loss: config.on_data_loss == OnDataLoss::Refuse,
        bounds: keys.history.bounds(shard.shard, config),
    };
    let mut requested = RequestedClaim { keys, claim, not_after, is_settled: false };
    let sent_at = Instant::now();
    let result = keys.records.claim(shard, &request, deadline).await;
    // Without a request there is no claim; after another error there may be one.
    requested.is_settled = matches!(result, Ok(_) | Err(StateError::Unavailable));
    let reply = result.map_err(|_| KeyRefusal::StoreUnavailable)?;
    let confirmed = matches!(reply.value, ClaimReply::Claimed).then_some(claim.number);
    keys.history.learn(shard.shard, &reply, confirmed);
    Ok((sent_at, reply.value))
}
