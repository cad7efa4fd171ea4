//! Idempotency keys: one call a key, replayed responses, and a bounded store.

use super::*;
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, StatusCode};
use std::sync::Arc;

fn config() -> IdempotencyConfig {
    IdempotencyConfig::default()
}

fn names() -> (Arc<str>, Arc<str>) {
    ("key:one".into(), "agent".into())
}

fn look_up(store: &Arc<IdempotencyStore>, key: &str, body: &str) -> Result<KeyLookup> {
    let (caller, agent) = names();
    store.look_up_or_claim((&caller, &agent), key, request_digest(&[body.as_bytes()]))
}

fn claim(store: &Arc<IdempotencyStore>, key: &str, body: &str) -> FirstCallClaim {
    match look_up(store, key, body).unwrap() {
        KeyLookup::Claimed(claim) => claim,
        other => panic!("{key}: {other:?}"),
    }
}

fn response(body: &str) -> FirstOutcome {
    FirstOutcome::Response { status: StatusCode::OK, headers: HeaderMap::new(), body: Bytes::from(body.to_owned()) }
}

fn completed(store: &Arc<IdempotencyStore>, key: &str, body: &str) -> FirstOutcome {
    match look_up(store, key, body).unwrap() {
        KeyLookup::Completed(outcome) => outcome,
        other => panic!("{key}: {other:?}"),
    }
}

#[tokio::test]
async fn r45_the_first_response_is_replayed_and_delivered_to_waiting_calls() {
    let store = IdempotencyStore::new(&config());
    let first_claim = claim(&store, "k", "a");
    let KeyLookup::InProgress(waiter) = look_up(&store, "k", "a").unwrap() else { panic!("the call is in progress") };
    first_claim.complete(response("done"));
    assert!(matches!(waiter.wait().await, Some(FirstOutcome::Response { body, .. }) if body == "done"));
    assert!(matches!(completed(&store, "k", "a"), FirstOutcome::Response { body, .. } if body == "done"));
}

#[test]
fn r45_a_key_is_bound_to_its_body_and_separate_per_agent_and_caller() {
    let store = IdempotencyStore::new(&config());
    let first_claim = claim(&store, "k", "a");
    assert_eq!(look_up(&store, "k", "b").unwrap_err().code(), FaultCode::IdempotencyMismatch);
    first_claim.complete(response("done"));
    assert_eq!(look_up(&store, "k", "b").unwrap_err().code(), FaultCode::IdempotencyMismatch);
    let (caller, agent) = names();
    let (other, elsewhere): (Arc<str>, Arc<str>) = ("key:two".into(), "other".into());
    for scope in [(&other, &agent), (&caller, &elsewhere)] {
        assert!(matches!(store.look_up_or_claim(scope, "k", request_digest(&[b"b"])).unwrap(), KeyLookup::Claimed(_)));
    }
    assert_ne!(request_digest(&[b"ab", b"c"]), request_digest(&[b"a", b"bc"]), "the digest separates the parts");
}

#[tokio::test]
async fn r45_a_waiting_call_may_be_made_if_the_first_did_not_reach_the_agent() {
    let store = IdempotencyStore::new(&config());
    let first_claim = claim(&store, "k", "a");
    let KeyLookup::InProgress(waiter) = look_up(&store, "k", "a").unwrap() else { panic!("the call is in progress") };
    drop(first_claim);
    assert!(waiter.wait().await.is_none());
    claim(&store, "k", "other body").complete(response("done"));
    assert_eq!(store.entry_count_and_size().0, 1);
}

#[test]
fn r45_a_response_that_is_too_large_is_not_stored_but_its_key_is() {
    let store = IdempotencyStore::new(&IdempotencyConfig { max_response_size: "10B".parse().unwrap(), ..config() });
    claim(&store, "k", "a").complete(response("much longer than that"));
    assert!(matches!(completed(&store, "k", "a"), FirstOutcome::NotStored));
}

#[test]
fn the_store_is_bounded_in_number_and_bytes_and_keeps_calls_in_progress() {
    let store = IdempotencyStore::new(&IdempotencyConfig { max_keys: 3, ..config() });
    let running = claim(&store, "running", "a");
    for key in ["k1", "k2", "k3", "k4"] {
        claim(&store, key, "a").complete(response("done"));
    }
    assert_eq!(store.entry_count_and_size().0, 3);
    assert!(matches!(look_up(&store, "running", "a").unwrap(), KeyLookup::InProgress(_)));
    let (_one, _two) = (claim(&store, "r2", "a"), claim(&store, "r3", "a"));
    assert_eq!(look_up(&store, "r4", "a").unwrap_err().code(), FaultCode::Overloaded);
    running.complete(response("done"));
    assert!(
        matches!(completed(&store, "running", "a"), FirstOutcome::Response { .. }),
        "its own entry has room for its response"
    );

    let store = IdempotencyStore::new(&IdempotencyConfig { max_size: "8KiB".parse().unwrap(), ..config() });
    for number in 0..100 {
        claim(&store, &format!("k{number}"), "a").complete(response(&"x".repeat(1_000)));
        assert!(store.entry_count_and_size().1 <= 8 << 10);
    }
    assert!(store.entry_count_and_size().0 >= 4, "{:?}", store.entry_count_and_size());
}

#[test]
fn r45_one_callers_large_responses_cause_no_repeated_call_of_others() {
    let store = IdempotencyStore::new(&IdempotencyConfig { max_size: "64KiB".parse().unwrap(), ..config() });
    claim(&store, "early", "a").complete(response("done"));
    for number in 0..50 {
        claim(&store, &format!("k{number}"), "a").complete(response(&"x".repeat(10_000)));
        assert!(store.entry_count_and_size().1 <= 64 << 10);
    }
    assert!(
        matches!(completed(&store, "early", "a"), FirstOutcome::NotStored),
        "the key stays after its response was dropped"
    );
    assert_eq!(look_up(&store, "early", "b").unwrap_err().code(), FaultCode::IdempotencyMismatch);
    assert!(matches!(completed(&store, "k49", "a"), FirstOutcome::Response { .. }), "the newest responses are stored");
    let store = IdempotencyStore::new(&IdempotencyConfig { max_size: "2KiB".parse().unwrap(), ..config() });
    claim(&store, "early", "a").complete(response("done"));
    claim(&store, "large", "a").complete(response(&"x".repeat(10_000)));
    assert!(
        matches!(completed(&store, "early", "a"), FirstOutcome::Response { .. }),
        "a response that never fits displaces nothing"
    );
}

#[test]
fn expired_entries_are_dropped() {
    let store = IdempotencyStore::new(&config());
    claim(&store, "k", "a").complete(response("done"));
    store.reconfigure(&IdempotencyConfig { ttl: "0s".parse().unwrap(), ..config() });
    assert!(!store.is_enabled());
    assert!(matches!(look_up(&store, "k", "b").unwrap(), KeyLookup::Claimed(_)));
    assert_eq!(store.entry_count_and_size(), (0, 0));
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
