//! The contract of idempotency stores: for the store in this process, for one that answers later, and for the shared one.

use super::*;
use crate::{idempotency::shared::SharedIdempotencyStore, store::FakeServer, telemetry::Metrics};
use futures_util::FutureExt as _;
use parking_lot::Mutex;
use std::pin::pin;

/// A store that answers after its caller was suspended, as a store over the network does.
#[derive(Debug)]
struct DelayedStore {
    inner: Arc<InProcessIdempotencyStore>,
    /// Releases that the store has accepted and not yet applied.
    releases: Arc<Mutex<Vec<ClaimedKey>>>,
    is_available: bool,
}

impl IdempotencyStore for DelayedStore {
    fn look_up_or_claim(&self, key: NewKey) -> StoreAnswer<'_, std::result::Result<StoredKey, KeyRefusal>> {
        StoreAnswer::Pending(Box::pin(async move {
            tokio::task::yield_now().await;
            if !self.is_available {
                return Err(KeyRefusal::StoreUnavailable);
            }
            self.releases.lock().drain(..).for_each(|claimed| self.inner.release(claimed));
            self.inner.look_up_or_claim(key).await
        }))
    }

    fn complete(&self, claimed: ClaimedKey, outcome: FirstOutcome) -> StoreAnswer<'static, ()> {
        let inner = Arc::clone(&self.inner);
        StoreAnswer::Pending(Box::pin(async move {
            tokio::task::yield_now().await;
            inner.complete(claimed, outcome).await;
        }))
    }

    fn release(&self, claimed: ClaimedKey) {
        self.releases.lock().push(claimed);
    }

    fn reconfigure(&self, config: &IdempotencyConfig) {
        self.inner.reconfigure(config);
    }
}

fn delayed_store(is_available: bool) -> DelayedStore {
    let inner = Arc::new(InProcessIdempotencyStore::new(&config()));
    DelayedStore { inner, releases: Arc::default(), is_available }
}

async fn all_stores() -> [Arc<dyn IdempotencyStore>; 3] {
    let state = FakeServer::start().open().await;
    let shared = SharedIdempotencyStore::new(&config(), &state, &Metrics::new().unwrap());
    [Arc::new(InProcessIdempotencyStore::new(&config())), Arc::new(delayed_store(true)), Arc::new(shared)]
}

/// Claims the key as soon as it is released.
async fn claim_key(keys: &IdempotencyKeys) -> FirstCallClaim {
    loop {
        match keys.look_up_or_claim(&keyed_request("k", "a")).await.unwrap() {
            KeyLookup::Claimed(claim) => return claim,
            KeyLookup::InProgress(waiter) => assert!(waiter.wait().await.is_none()),
            KeyLookup::Completed(outcome) => panic!("{outcome:?}"),
        }
    }
}

#[tokio::test]
async fn one_of_many_calls_claims_a_key_and_the_others_wait_for_its_outcome() {
    for store in all_stores().await {
        // Two gateways that share the store.
        let gateways = [(); 2].map(|()| IdempotencyKeys::with_store(&config(), Arc::clone(&store)));
        let request = keyed_request("k", "a");
        let lookups =
            futures_util::future::join_all((0..10).map(|n| gateways[n % 2].look_up_or_claim(&request).into_future()))
                .await;
        let (mut claims, mut waiters) = (Vec::new(), Vec::new());
        for lookup in lookups {
            match lookup.unwrap() {
                KeyLookup::Claimed(claim) => claims.push(claim),
                KeyLookup::InProgress(waiter) => waiters.push(waiter.wait()),
                KeyLookup::Completed(outcome) => panic!("{outcome:?}"),
            }
        }
        assert_eq!((claims.len(), waiters.len()), (1, 9));
        claims.remove(0).complete(response("done")).await;
        for outcome in futures_util::future::join_all(waiters).await {
            assert!(matches!(outcome, Some(FirstOutcome::Response { body, .. }) if body == "done"));
        }
        let other_body = gateways[1].look_up_or_claim(&keyed_request("k", "b")).await;
        assert_eq!(other_body.unwrap_err().code(), FaultCode::IdempotencyMismatch);
        let replayed = gateways[1].look_up_or_claim(&request).await.unwrap();
        assert!(matches!(replayed, KeyLookup::Completed(FirstOutcome::Response { .. })), "{replayed:?}");
    }
}

#[tokio::test]
async fn a_dropped_claim_releases_its_key_and_a_late_release_does_not_touch_the_next_claim() {
    for store in all_stores().await {
        let keys = IdempotencyKeys::with_store(&config(), Arc::clone(&store));
        drop(claim_key(&keys).await);
        let request = keyed_request("k", "a");
        let lost_claim = ClaimedKey { key: KeyHash::new(request.owner, request.target, request.key), claim_number: 1 };
        let claim = claim_key(&keys).await;
        store.release(lost_claim);
        store.complete(lost_claim, response("late")).await;
        assert!(matches!(keys.look_up_or_claim(&request).await.unwrap(), KeyLookup::InProgress(_)));
        claim.complete(response("done")).await;
        let replayed = keys.look_up_or_claim(&request).await.unwrap();
        assert!(matches!(replayed, KeyLookup::Completed(FirstOutcome::Response { body, .. }) if body == "done"));
    }
}

#[tokio::test]
async fn a_claim_whose_completion_was_dropped_is_not_released() {
    let store = Arc::new(delayed_store(true));
    let keys = IdempotencyKeys::with_store(&config(), store.clone());
    let claim = claim_key(&keys).await;
    drop(claim.complete(response("done")));
    assert!(store.releases.lock().is_empty(), "the agent may have executed the call");
    let lookup = keys.look_up_or_claim(&keyed_request("k", "a")).await.unwrap();
    assert!(matches!(lookup, KeyLookup::InProgress(_)), "{lookup:?}");
}

#[tokio::test]
async fn a_look_up_waits_for_its_store_and_leaves_no_claim_if_it_is_dropped() {
    let keys = IdempotencyKeys::with_store(&config(), Arc::new(delayed_store(true)));
    let request = keyed_request("k", "a");
    let mut answer = pin!(keys.look_up_or_claim(&request).into_future());
    assert!(answer.as_mut().now_or_never().is_none(), "the store has not answered");
    assert!(matches!(answer.await.unwrap(), KeyLookup::Claimed(_)));
    {
        let mut dropped = pin!(keys.look_up_or_claim(&request).into_future());
        assert!(dropped.as_mut().now_or_never().is_none());
    }
    drop(claim_key(&keys).await);
}

#[tokio::test]
async fn a_key_that_cannot_be_looked_up_is_refused_with_503() {
    let keys = IdempotencyKeys::with_store(&config(), Arc::new(delayed_store(false)));
    let fault = keys.look_up_or_claim(&keyed_request("k", "a")).await.unwrap_err();
    assert_eq!((fault.code(), fault.http_status(), fault.retry_after_secs()), (FaultCode::Overloaded, 503, Some(1)));
}

#[test]
fn hashes_are_equal_in_every_gateway_process_and_release() {
    let hex = |bytes: &[u8; 32]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let key = KeyHash::new("key:alice", "agent", "k-1");
    assert_eq!(hex(key.as_bytes()), "18b11344cb16de17239c71e39150298c64d5af994cc9f56fe0300fcd9d7278ac");
    assert_eq!(
        hex(&request_digest(&[b"op", b"body"])),
        "5dac5c38959447501dfb977892f9195b8f6fdfa5216bf1f151cec31c03fac418"
    );
    assert_ne!(key, KeyHash::new("key:alicea", "gent", "k-1"), "the hash separates owner and target");
    assert_ne!(key, KeyHash::new("key:alice", "agentk", "-1"), "the hash separates target and key");
}
