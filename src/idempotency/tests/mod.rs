//! Idempotency keys: one call a key, replayed responses, and a bounded store.

mod store_contract;

use super::{in_process::InProcessIdempotencyStore, *};
use crate::{
    fault::{FaultCode, Result},
    values::{ClientKey, MaxShare, StoreAnswer},
};
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, StatusCode};
use std::sync::Arc;

/// Keys in a store of this process.
struct KeysFixture {
    keys: IdempotencyKeys,
    store: Arc<InProcessIdempotencyStore>,
}

fn fixture(config: &IdempotencyConfig) -> KeysFixture {
    let store = Arc::new(InProcessIdempotencyStore::new(config));
    KeysFixture { keys: IdempotencyKeys::with_store(config, store.clone()), store }
}

/// Returns the answer of a store in this process, which is always ready.
#[track_caller]
fn ready<T>(answer: StoreAnswer<'_, T>) -> T {
    match answer {
        StoreAnswer::Ready(value) => value,
        StoreAnswer::Pending(_) => panic!("a store in this process answers at once"),
    }
}

/// A configuration in which one client may have all keys.
fn config() -> IdempotencyConfig {
    IdempotencyConfig::default().with_max_share(MaxShare::UNLIMITED)
}

const CLIENT: ClientKey = ClientKey::new(1);

fn keyed_request<'a>(key: &'a str, body: &str) -> KeyedRequest<'a> {
    KeyedRequest { owner: "key:one", client: CLIENT, target: "agent", key, digest: request_digest(&[body.as_bytes()]) }
}

fn look_up(store: &KeysFixture, key: &str, body: &str) -> Result<KeyLookup> {
    ready(store.keys.look_up_or_claim(&keyed_request(key, body)))
}

fn claim(store: &KeysFixture, key: &str, body: &str) -> FirstCallClaim {
    match look_up(store, key, body).unwrap() {
        KeyLookup::Claimed(claim) => claim,
        other => panic!("{key}: {other:?}"),
    }
}

fn response(body: &str) -> FirstOutcome {
    FirstOutcome::Response { status: StatusCode::OK, headers: HeaderMap::new(), body: Bytes::from(body.to_owned()) }
}

fn completed(store: &KeysFixture, key: &str, body: &str) -> FirstOutcome {
    match look_up(store, key, body).unwrap() {
        KeyLookup::Completed(outcome) => outcome,
        other => panic!("{key}: {other:?}"),
    }
}

#[tokio::test]
async fn r45_the_first_response_is_replayed_and_delivered_to_waiting_calls() {
    let store = fixture(&config());
    let first_claim = claim(&store, "k", "a");
    let KeyLookup::InProgress(waiter) = look_up(&store, "k", "a").unwrap() else { panic!("the call is in progress") };
    ready(first_claim.complete(response("done")));
    assert!(matches!(waiter.wait().await, Some(FirstOutcome::Response { body, .. }) if body == "done"));
    assert!(matches!(completed(&store, "k", "a"), FirstOutcome::Response { body, .. } if body == "done"));
}

#[test]
fn r45_a_key_is_bound_to_its_body_and_separate_per_agent_and_caller() {
    let store = fixture(&config());
    let first_claim = claim(&store, "k", "a");
    assert_eq!(look_up(&store, "k", "b").unwrap_err().code(), FaultCode::IdempotencyMismatch);
    ready(first_claim.complete(response("done")));
    assert_eq!(look_up(&store, "k", "b").unwrap_err().code(), FaultCode::IdempotencyMismatch);
    let request = keyed_request("k", "b");
    for other in [KeyedRequest { owner: "key:two", ..request }, KeyedRequest { target: "other", ..request }] {
        assert!(matches!(ready(store.keys.look_up_or_claim(&other)).unwrap(), KeyLookup::Claimed(_)), "{other:?}");
    }
    assert_ne!(request_digest(&[b"ab", b"c"]), request_digest(&[b"a", b"bc"]), "the digest separates the parts");
}

#[tokio::test]
async fn r45_a_waiting_call_may_be_made_if_the_first_did_not_reach_the_agent() {
    let store = fixture(&config());
    let first_claim = claim(&store, "k", "a");
    let KeyLookup::InProgress(waiter) = look_up(&store, "k", "a").unwrap() else { panic!("the call is in progress") };
    drop(first_claim);
    assert!(waiter.wait().await.is_none());
    ready(claim(&store, "k", "other body").complete(response("done")));
    assert_eq!(store.store.entry_count_and_size().0, 1);
}

#[test]
fn r45_a_response_that_is_too_large_is_not_stored_but_its_key_is() {
    let store = fixture(&IdempotencyConfig { max_response_size: "10B".parse().unwrap(), ..config() });
    ready(claim(&store, "k", "a").complete(response("much longer than that")));
    assert!(matches!(completed(&store, "k", "a"), FirstOutcome::NotStored));
}

#[test]
fn the_store_is_bounded_in_number_and_bytes_and_keeps_calls_in_progress() {
    let store = fixture(&IdempotencyConfig { max_keys: 3, ..config() });
    let running = claim(&store, "running", "a");
    for key in ["k1", "k2", "k3", "k4"] {
        ready(claim(&store, key, "a").complete(response("done")));
    }
    assert_eq!(store.store.entry_count_and_size().0, 3);
    assert!(matches!(look_up(&store, "running", "a").unwrap(), KeyLookup::InProgress(_)));
    let (_one, _two) = (claim(&store, "r2", "a"), claim(&store, "r3", "a"));
    assert_eq!(look_up(&store, "r4", "a").unwrap_err().code(), FaultCode::Overloaded);
    ready(running.complete(response("done")));
    assert!(
        matches!(completed(&store, "running", "a"), FirstOutcome::Response { .. }),
        "its own entry has room for its response"
    );

    let store = fixture(&IdempotencyConfig { max_size: "8KiB".parse().unwrap(), ..config() });
    for number in 0..100 {
        ready(claim(&store, &format!("k{number}"), "a").complete(response(&"x".repeat(1_000))));
        assert!(store.store.entry_count_and_size().1 <= 8 << 10);
    }
    assert!(store.store.entry_count_and_size().0 >= 4, "{:?}", store.store.entry_count_and_size());
}

#[test]
fn r45_one_callers_large_responses_cause_no_repeated_call_of_others() {
    let store = fixture(&IdempotencyConfig { max_size: "64KiB".parse().unwrap(), ..config() });
    ready(claim(&store, "early", "a").complete(response("done")));
    for number in 0..50 {
        ready(claim(&store, &format!("k{number}"), "a").complete(response(&"x".repeat(10_000))));
        assert!(store.store.entry_count_and_size().1 <= 64 << 10);
    }
    assert!(
        matches!(completed(&store, "early", "a"), FirstOutcome::NotStored),
        "the key stays after its response was dropped"
    );
    assert_eq!(look_up(&store, "early", "b").unwrap_err().code(), FaultCode::IdempotencyMismatch);
    assert!(matches!(completed(&store, "k49", "a"), FirstOutcome::Response { .. }), "the newest responses are stored");
    let store = fixture(&IdempotencyConfig { max_size: "2KiB".parse().unwrap(), ..config() });
    ready(claim(&store, "early", "a").complete(response("done")));
    ready(claim(&store, "large", "a").complete(response(&"x".repeat(10_000))));
    assert!(
        matches!(completed(&store, "early", "a"), FirstOutcome::Response { .. }),
        "a response that never fits displaces nothing"
    );
}

/// Claims a key of a client; returns whether there was room.
fn claim_of(store: &KeysFixture, client: u64, key: &str) -> Result<KeyLookup> {
    let (owner, client) = (format!("key:{client}"), ClientKey::new(client));
    ready(store.keys.look_up_or_claim(&KeyedRequest { owner: &owner, client, ..keyed_request(key, "a") }))
}

fn complete_of(store: &KeysFixture, client: u64, key: &str, body: &str) {
    match claim_of(store, client, key).unwrap() {
        KeyLookup::Claimed(claim) => ready(claim.complete(response(body))),
        other => panic!("{key}: {other:?}"),
    }
}

#[test]
fn r45_a_callers_keys_and_responses_push_out_its_own_and_none_of_another_caller() {
    let config =
        IdempotencyConfig { max_keys: 100, max_size: "200KiB".parse().unwrap(), ..IdempotencyConfig::default() };
    let store = fixture(&config);
    for number in 0..10 {
        complete_of(&store, 2, &format!("payment-{number}"), &"x".repeat(1_000));
    }
    for number in 0..1_000 {
        complete_of(&store, 1, &format!("k{number}"), &"x".repeat(1_000));
    }
    for number in 0..10 {
        let lookup = claim_of(&store, 2, &format!("payment-{number}")).unwrap();
        assert!(matches!(lookup, KeyLookup::Completed(FirstOutcome::Response { .. })), "{number}: {lookup:?}");
    }
    assert!(matches!(claim_of(&store, 1, "k999").unwrap(), KeyLookup::Completed(FirstOutcome::Response { .. })));
    // Two callers fill the store; a third one takes the place of theirs, and not of the caller with few keys.
    for number in 0..1_000 {
        complete_of(&store, 3, &format!("k{number}"), "y");
    }
    assert_eq!(store.store.entry_count_and_size().0, 100);
    for number in 0..20 {
        complete_of(&store, 4, &format!("k{number}"), "z");
    }
    assert!(store.store.entry_count_and_size().0 <= 100 && store.store.entry_count_and_size().1 <= 200 << 10);
    for number in 0..10 {
        let lookup = claim_of(&store, 2, &format!("payment-{number}")).unwrap();
        assert!(matches!(lookup, KeyLookup::Completed(_)), "{number}: {lookup:?}");
    }
}

#[test]
fn r45_a_callers_calls_in_progress_leave_room_for_those_of_others() {
    let store = fixture(&IdempotencyConfig { max_keys: 4, ..IdempotencyConfig::default() });
    let _running = [claim_of(&store, 1, "one").unwrap(), claim_of(&store, 1, "two").unwrap()];
    let fault = claim_of(&store, 1, "three").unwrap_err();
    assert_eq!((fault.code(), fault.http_status()), (FaultCode::RateLimited, 429));
    assert!(fault.message().contains("limits.max_share") && fault.retry_after_secs().is_some(), "{fault}");
    let _others = [claim_of(&store, 2, "one").unwrap(), claim_of(&store, 3, "one").unwrap()];
    assert_eq!(claim_of(&store, 4, "one").unwrap_err().code(), FaultCode::Overloaded);
}

#[test]
fn r45_a_caller_drops_no_key_of_one_that_has_fewer() {
    let store = fixture(&IdempotencyConfig { max_keys: 6, ..config() });
    complete_of(&store, 2, "payment", "done");
    let _running = ["one", "two", "three"].map(|key| claim_of(&store, 1, key).unwrap());
    let _others = ["four", "five"].map(|key| claim_of(&store, 3, key).unwrap());
    assert_eq!(claim_of(&store, 1, "four").unwrap_err().code(), FaultCode::Overloaded);
    assert_eq!(claim_of(&store, 3, "six").unwrap_err().code(), FaultCode::Overloaded);
    assert!(matches!(claim_of(&store, 2, "payment").unwrap(), KeyLookup::Completed(FirstOutcome::Response { .. })));
    // A caller that has no key yet takes the place of a completed call.
    assert!(matches!(claim_of(&store, 4, "first").unwrap(), KeyLookup::Claimed(_)));
    assert!(matches!(claim_of(&store, 1, "one").unwrap(), KeyLookup::InProgress(_)));
}

#[test]
fn expired_entries_are_dropped() {
    let store = fixture(&config());
    ready(claim(&store, "k", "a").complete(response("done")));
    store.keys.reconfigure(&IdempotencyConfig { ttl: "0s".parse().unwrap(), ..config() });
    assert!(!store.keys.is_enabled());
    assert!(matches!(look_up(&store, "k", "b").unwrap(), KeyLookup::Claimed(_)));
    assert_eq!(store.store.entry_count_and_size(), (0, 0));
}

#[test]
fn r45_a_key_is_1_to_255_visible_characters_in_one_header() {
    let with = |values: &[&[u8]]| {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(IDEMPOTENCY_KEY, HeaderValue::from_bytes(value).unwrap());
        }
        headers
    };
    assert_eq!(parse_key(&with(&[])).unwrap(), None);
    assert_eq!(parse_key(&with(&[b"a-1"])).unwrap(), Some("a-1"));
    assert!(parse_key(&with(&["x".repeat(255).as_bytes()])).is_ok());
    let long = "x".repeat(256);
    let bad: [&[&[u8]]; 6] = [&[b""], &[b"a b"], &[b"\xff"], &[b"a\tb"], &[long.as_bytes()], &[b"a", b"a"]];
    for values in bad {
        assert_eq!(parse_key(&with(values)).unwrap_err().code(), FaultCode::InvalidInput, "{values:?}");
    }
}
