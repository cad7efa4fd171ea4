//! The tasks of the shared store: they extend the leases of claims, remove expired records, and release claims.

use super::{
    release_queue::PendingRelease,
    shared_keys::{BACKGROUND_DEADLINE, SharedKeys},
};
use crate::{
    store::{ClaimRelease, ExtensionReply, KeyClaim, StateError, TripKind, UpkeepReply, UpkeepRequest},
    values::{Backoff, jittered},
};
use futures_util::future::join_all;
use std::{sync::Arc, time::Duration};
use tokio::time::Instant;

/// Time between two extensions of a lease.
const EXTENSION_INTERVAL: Duration = Duration::from_secs(1);
/// How often an unavailable server is looked at, so that leases are extended as soon as it is back.
const RECOVERY_INTERVAL: Duration = Duration::from_millis(50);
/// Deadline of one request for upkeep. A late extension is worth less than a new one.
const UPKEEP_DEADLINE: Duration = Duration::from_secs(2);
/// Claims that one request extends or releases.
const BATCH: usize = 200;
/// Requests that remove expired records of a shard, one after the other.
const MAX_REMOVALS: usize = 20;
const MIN_RELEASE_DELAY: Duration = Duration::from_millis(100);
const MAX_RELEASE_DELAY: Duration = Duration::from_secs(2);

/// Looks after the shards about once a second. Never ends.
pub(super) async fn keep_claims(keys: Arc<SharedKeys>) {
    loop {
        let started = Instant::now();
        if keys.records.state().is_available_for(TripKind::Keys) {
            // Without a lifetime, keys are not in use.
            if keys.config.load().is_enabled() || !keys.claims.lock().is_empty() {
                maintain_shards(&keys).await;
            }
            let rest = jittered(EXTENSION_INTERVAL, 0.1).saturating_sub(started.elapsed());
            let deadline = Instant::now() + rest;
            while Instant::now() < deadline && keys.records.state().is_available_for(TripKind::Keys) {
                tokio::time::sleep(RECOVERY_INTERVAL.min(deadline.saturating_duration_since(Instant::now()))).await;
            }
        } else {
            tokio::time::sleep(RECOVERY_INTERVAL).await;
        }
    }
}

async fn maintain_shards(keys: &SharedKeys) {
    let due = Instant::now().checked_sub(EXTENSION_INTERVAL * 4 / 5);
    let claims = due.map(|due| keys.claims.lock().due_claims(due)).unwrap_or_default();
    let shards = 0..keys.records.state().shards();
    join_all(shards.map(|shard| {
        let claims: Vec<KeyClaim> =
            claims.iter().filter(|claim| keys.shard_of(claim.client) == shard).copied().collect();
        maintain_shard(keys, shard, claims)
    }))
    .await;
}

/// Extends the claims in batches, and goes on while there are expired records.
async fn maintain_shard(keys: &SharedKeys, shard: u8, claims: Vec<KeyClaim>) {
    let mut batches = claims.chunks(BATCH);
    for _ in 0..MAX_REMOVALS.max(claims.len() / BATCH + 1) {
        let batch = batches.next().unwrap_or_default().to_vec();
        let sent_at = Instant::now();
        // A server that does not answer is asked again at the next time.
        let Ok(reply) = maintain_once(keys, shard, batch.clone()).await else { return };
        record_extensions(keys, &batch, &reply, sent_at);
        if batches.len() == 0 && !reply.has_more {
            return;
        }
    }
}

async fn maintain_once(keys: &SharedKeys, shard: u8, claims: Vec<KeyClaim>) -> Result<UpkeepReply, StateError> {
    let config = keys.config.load_full();
    let key_shard = keys.history.shard(shard, &config);
    let request = UpkeepRequest { claims, bounds: keys.history.bounds(shard, &config) };
    let reply = keys.records.maintain(key_shard, &request, UPKEEP_DEADLINE).await?;
    keys.history.learn(shard, &reply, None);
    keys.history.record_totals(shard, reply.value.keys, reply.value.size);
    Ok(reply.value)
}

fn record_extensions(keys: &SharedKeys, batch: &[KeyClaim], reply: &UpkeepReply, sent_at: Instant) {
    let mut restored = 0;
    for (claim, extension) in batch.iter().zip(&reply.extensions) {
        match extension {
            ExtensionReply::Extended => {
                keys.claims.lock().record_extension(claim, sent_at);
            }
            ExtensionReply::Restored if keys.claims.lock().record_extension(claim, sent_at) => restored += 1,
            // The claim was released or completed meanwhile, and should not be there again.
            ExtensionReply::Restored => keys.release_later(*claim, Duration::ZERO),
            ExtensionReply::Lost => keys.claims.lock().record_loss(claim),
            ExtensionReply::Completed => {}
        }
    }
    if restored > 0 {
        tracing::warn!(
            claims = restored,
            "the shared state had lost idempotency keys of running calls; they are restored"
        );
    }
}

/// Releases claims until the server has answered for each. Never ends.
pub(super) async fn release_claims(keys: Arc<SharedKeys>) {
    let mut backoff = Backoff::new(MIN_RELEASE_DELAY, MAX_RELEASE_DELAY);
    loop {
        let batch = keys.releases.take(BATCH);
        if batch.is_empty() {
            keys.releases.wait_for_release().await;
            continue;
        }
        if release_batch(&keys, batch).await {
            backoff.reset();
        } else {
            tokio::time::sleep(jittered(backoff.next_delay(), 0.5)).await;
        }
    }
}

/// Returns whether every claim is settled; the others wait again.
async fn release_batch(keys: &SharedKeys, batch: Vec<PendingRelease>) -> bool {
    let Some(shard) = batch.first().map(|release| release.shard) else { return true };
    let releases: Vec<ClaimRelease> =
        batch.iter().map(|release| ClaimRelease { claim: release.claim, not_after: release.not_after }).collect();
    let settled = keys.records.release(shard, &releases, BACKGROUND_DEADLINE).await.unwrap_or_default();
    let is_unsettled = |at: usize| settled.get(at) != Some(&true);
    let unsettled: Vec<PendingRelease> =
        batch.into_iter().enumerate().filter(|(at, _)| is_unsettled(*at)).map(|(_, release)| release).collect();
    let are_all_settled = unsettled.is_empty();
    keys.releases.finish(unsettled);
    are_all_settled
}
