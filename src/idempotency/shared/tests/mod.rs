//! The shared store with a server in memory that misbehaves; time is that of the runtime.

use super::{
    outcome_encoding::{decode_outcome, encode_outcome},
    shared_idempotency_store::SharedIdempotencyStore,
};
use crate::{
    fault::{Fault, FaultCode, Result},
    idempotency::{
        FirstCallClaim, FirstOutcome, IdempotencyConfig, IdempotencyKeys, KeyLookup, KeyedRequest, request_digest,
    },
    store::{FakeBehavior, FakeServer},
    telemetry::Metrics,
    values::{ClientKey, MaxShare},
};
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, StatusCode, header};
use std::{sync::Arc, time::Duration};
use tokio::time::Instant;

fn config() -> IdempotencyConfig {
    IdempotencyConfig::default().with_max_share(MaxShare::UNLIMITED)
}

async fn gateway(server: &Arc<FakeServer>) -> IdempotencyKeys {
    gateway_with(server, &config()).await
}

async fn gateway_with(server: &Arc<FakeServer>, config: &IdempotencyConfig) -> IdempotencyKeys {
    let store = SharedIdempotencyStore::new(config, &server.open().await, &Metrics::new().unwrap());
    IdempotencyKeys::with_store(config, Arc::new(store))
}

async fn look_up(gateway: &IdempotencyKeys, key: &str) -> Result<KeyLookup> {
    let digest = request_digest(&[b"body"]);
    let request = KeyedRequest { owner: "key:one", client: ClientKey::new(7), target: "agent", key, digest };
    gateway.look_up_or_claim(&request).await
}

/// Looks a key up again while the gateway knows the server as unavailable: each probes it at a time of its own.
async fn look_up_when_available(gateway: &IdempotencyKeys, key: &str) -> KeyLookup {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        match look_up(gateway, key).await {
            Err(fault) if fault.http_status() == 503 && Instant::now() < deadline => {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            result => return result.unwrap(),
        }
    }
}

async fn claim(gateway: &IdempotencyKeys, key: &str) -> FirstCallClaim {
    match look_up_when_available(gateway, key).await {
        KeyLookup::Claimed(claim) => claim,
        other => panic!("{key}: {other:?}"),
    }
}

async fn outcome(gateway: &IdempotencyKeys, key: &str) -> FirstOutcome {
    match look_up_when_available(gateway, key).await {
        KeyLookup::Completed(outcome) => outcome,
        other => panic!("{key}: {other:?}"),
    }
}

fn response(body: &str) -> FirstOutcome {
    let headers = HeaderMap::from_iter([(header::CONTENT_TYPE, HeaderValue::from_static("text/plain"))]);
    FirstOutcome::Response { status: StatusCode::CREATED, headers, body: Bytes::from(body.to_owned()) }
}

fn has_body(outcome: &FirstOutcome, expected: &str) -> bool {
    matches!(outcome, FirstOutcome::Response { body, .. } if body == expected)
}

/// Waits until `condition` holds; the clock of the runtime advances meanwhile.
async fn eventually(mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !condition() {
        assert!(Instant::now() < deadline, "did not happen in time");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[test]
fn every_outcome_is_read_as_it_was_written() {
    let round_trip = |outcome: &FirstOutcome| decode_outcome(Some(encode_outcome(outcome, 1 << 20)));
    let mut headers = HeaderMap::new();
    headers.append("set-cookie", HeaderValue::from_static("a"));
    headers.append("set-cookie", HeaderValue::from_bytes(b"\xff").unwrap());
    let body = Bytes::from_static(b"\0body");
    let written = FirstOutcome::Response { status: StatusCode::ACCEPTED, headers: headers.clone(), body: body.clone() };
    match round_trip(&written) {
        FirstOutcome::Response { status, headers: read, body: read_body } => {
            assert_eq!((status, read, read_body), (StatusCode::ACCEPTED, headers, body));
        }
        other => panic!("{other:?}"),
    }
    let fault = Fault::new(FaultCode::Timeout, "The agent did not finish in time");
    assert!(matches!(round_trip(&FirstOutcome::Failed(fault)), FirstOutcome::Failed(fault)
        if fault.code() == FaultCode::Timeout && fault.message() == "The agent did not finish in time"));
    assert!(matches!(round_trip(&FirstOutcome::Unknown), FirstOutcome::Unknown));
    assert!(encode_outcome(&FirstOutcome::NotStored, 100).is_empty());
    assert!(encode_outcome(&response("longer than that"), 10).is_empty(), "a response that is too large is not stored");
    let large_fault = Fault::new(FaultCode::AgentError, "x".repeat(100_000));
    assert!(encode_outcome(&FirstOutcome::Failed(large_fault), 1 << 20).is_empty());
}

#[test]
fn bytes_that_are_no_outcome_of_this_version_count_as_not_stored() {
    let written = encode_outcome(&response("body"), 1 << 20);
    let mut damaged: Vec<Bytes> = (0..written.len()).map(|end| written.slice(..end)).collect();
    damaged.push([&*written, b"x"].concat().into());
    damaged.push([&[9], &*written.slice(1..)].concat().into());
    damaged.push([&[1, 9], &*written.slice(2..)].concat().into());
    damaged.push(Bytes::from_static(b"\x01\x01\x00\x07\x00\x00\x00\x00\x00\x00"));
    damaged.push(Bytes::from_static(b"\x01\x01\x00\xc8\xff\xff"));
    damaged.push(Bytes::from_static(b"\x01\x01\x00\xc8\x00\x01\x00\x01\n\x00\x00\x00\x00\x00\x00\x00\x00"));
    damaged.push(Bytes::from_static(b"\x01\x02{}"));
    damaged.push(Bytes::from_static(b"\x01\x03x"));
    for bytes in damaged {
        assert!(matches!(decode_outcome(Some(bytes.clone())), FirstOutcome::NotStored), "{bytes:?}");
    }
    assert!(matches!(decode_outcome(None), FirstOutcome::NotStored));
}

#[tokio::test(start_paused = true)]
async fn a_claim_whose_reply_is_lost_is_not_used_and_is_released() {
    let server = FakeServer::start();
    let gateway = gateway(&server).await;
    server.behave(FakeBehavior::LosesReplies);
    let fault = look_up(&gateway, "k").await.unwrap_err();
    assert_eq!((fault.http_status(), fault.retry_after_secs()), (503, Some(1)));
    assert_eq!(server.key_counts(), (1, 0), "the server made the claim");
    server.behave(FakeBehavior::Answers);
    eventually(|| server.key_counts() == (0, 0)).await;
    drop(claim(&gateway, "k").await);
}

#[tokio::test(start_paused = true)]
async fn a_release_that_overtakes_its_claim_is_repeated_until_the_claim_cannot_arrive_any_more() {
    let server = FakeServer::start();
    let gateway = gateway(&server).await;
    server.behave(FakeBehavior::DelaysClaims(Duration::from_millis(900)));
    assert_eq!(look_up(&gateway, "k").await.unwrap_err().http_status(), 503);
    server.behave(FakeBehavior::Answers);
    eventually(|| server.claims() == 1).await;
    eventually(|| server.key_counts() == (0, 0)).await;
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_arrives_long_after_its_caller_has_left_is_not_made() {
    let server = FakeServer::start();
    let gateway = gateway(&server).await;
    server.behave(FakeBehavior::DelaysClaims(Duration::from_secs(3)));
    assert_eq!(look_up(&gateway, "k").await.unwrap_err().http_status(), 503);
    server.behave(FakeBehavior::Answers);
    tokio::time::sleep(Duration::from_secs(4)).await;
    assert_eq!(server.key_counts(), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_look_up_that_its_caller_gives_up_leaves_no_claim() {
    let server = FakeServer::start();
    let gateway = gateway(&server).await;
    server.behave(FakeBehavior::DelaysClaims(Duration::from_millis(100)));
    assert!(tokio::time::timeout(Duration::from_millis(10), look_up(&gateway, "k")).await.is_err());
    // The claim is there after 100 ms, and may be released at once.
    tokio::time::sleep(Duration::from_millis(150)).await;
    eventually(|| server.key_counts() == (0, 0)).await;
}

#[tokio::test(start_paused = true)]
async fn an_outcome_is_written_when_the_server_is_back_and_its_gateway_replays_it_meanwhile() {
    let server = FakeServer::start();
    let (one, other) = (gateway(&server).await, gateway(&server).await);
    let claim = claim(&one, "k").await;
    server.behave(FakeBehavior::Fails);
    let started = Instant::now();
    claim.complete(response("done")).await;
    assert!(started.elapsed() <= Duration::from_millis(250), "the caller waits for store_timeout at most");
    assert!(has_body(&outcome(&one, "k").await, "done"));
    assert_eq!(look_up(&other, "k").await.unwrap_err().http_status(), 503);
    tokio::time::sleep(Duration::from_secs(100)).await;
    server.behave(FakeBehavior::Answers);
    eventually(|| server.key_counts() == (0, 1)).await;
    one.settle().await;
    assert!(has_body(&outcome(&other, "k").await, "done"));
}

#[tokio::test(start_paused = true)]
async fn outcomes_that_wait_for_the_server_are_bounded_for_each_client() {
    let server = FakeServer::start();
    let config = IdempotencyConfig { max_response_size: "16MiB".parse().unwrap(), ..IdempotencyConfig::default() };
    let gateway = gateway_with(&server, &config).await;
    let mut claims = Vec::new();
    for number in 0..5 {
        claims.push(claim(&gateway, &format!("k{number}")).await);
    }
    server.behave(FakeBehavior::Fails);
    let body = "x".repeat(10 << 20);
    for claim in claims {
        claim.complete(response(&body)).await;
    }
    for number in 0..5 {
        let is_kept = matches!(outcome(&gateway, &format!("k{number}")).await, FirstOutcome::Response { .. });
        assert_eq!(is_kept, number < 3, "{number}: a client may keep half of 64 MiB");
    }
}

#[tokio::test(start_paused = true)]
async fn a_lease_is_extended_while_the_call_runs_and_a_late_outcome_replaces_an_unknown_one() {
    let server = FakeServer::start();
    let (one, other) = (gateway(&server).await, gateway(&server).await);
    let claim = claim(&one, "k").await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    let KeyLookup::InProgress(waiter) = look_up(&other, "k").await.unwrap() else { panic!("the call runs") };
    // The first gateway cannot reach the server.
    server.behave(FakeBehavior::Fails);
    tokio::time::sleep(Duration::from_secs(6)).await;
    server.behave(FakeBehavior::Answers);
    // Both gateways try again within two seconds.
    tokio::time::sleep(Duration::from_secs(3)).await;
    let waited = waiter.wait();
    claim.complete(response("done")).await;
    one.settle().await;
    assert!(has_body(&outcome(&other, "k").await, "done"));
    assert!(waited.await.is_some());
}

#[tokio::test(start_paused = true)]
async fn a_call_may_begin_only_while_its_claim_is_certainly_its_own() {
    let server = FakeServer::start();
    let config = IdempotencyConfig { ttl: "10s".parse().unwrap(), ..config() };
    let gateway = gateway_with(&server, &config).await;
    let (mut in_time, mut late) = (claim(&gateway, "one").await, claim(&gateway, "two").await);
    server.behave(FakeBehavior::Fails);
    tokio::time::sleep(Duration::from_secs(13)).await;
    in_time.begin().unwrap();
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(late.begin().unwrap_err().http_status(), 503);
}

#[tokio::test(start_paused = true)]
async fn a_dropped_call_that_has_begun_is_unknown_and_one_that_has_not_is_released() {
    let server = FakeServer::start();
    let (one, other) = (gateway(&server).await, gateway(&server).await);
    let mut begun = claim(&one, "begun").await;
    begun.begin().unwrap();
    drop((begun, claim(&one, "not begun").await));
    let mut released = claim(&one, "released").await;
    released.begin().unwrap();
    released.release().await;
    one.settle().await;
    assert!(matches!(outcome(&other, "begun").await, FirstOutcome::Unknown));
    for key in ["not begun", "released"] {
        drop(claim(&other, key).await);
    }
}

#[tokio::test(start_paused = true)]
async fn calls_that_wait_for_another_gateway_poll_its_key_together_and_ever_more_rarely() {
    let server = FakeServer::start();
    let (one, other) = (gateway(&server).await, gateway(&server).await);
    let claim = claim(&one, "k").await;
    let mut waiters = Vec::new();
    for _ in 0..50 {
        let KeyLookup::InProgress(waiter) = look_up(&other, "k").await.unwrap() else { panic!("the call runs") };
        waiters.push(tokio::spawn(waiter.wait()));
    }
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert!((15..=35).contains(&server.lookups()), "{}", server.lookups());
    claim.complete(response("done")).await;
    for waiter in waiters {
        assert!(has_body(&waiter.await.unwrap().unwrap(), "done"));
    }
    let lookups = server.lookups();
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(server.lookups(), lookups, "nobody waits any more");
}

#[tokio::test(start_paused = true)]
async fn a_running_claim_that_the_server_lost_is_restored_and_a_released_one_is_not() {
    let server = FakeServer::start();
    let gateway = gateway(&server).await;
    let claim = claim(&gateway, "k").await;
    server.lose_keys();
    eventually(|| server.key_counts() == (1, 0)).await;
    drop(claim);
    eventually(|| server.key_counts() == (0, 0)).await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(server.key_counts(), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_reload_keeps_keys_and_applies_the_new_timeout() {
    let server = FakeServer::start();
    let gateway = gateway(&server).await;
    claim(&gateway, "k").await.complete(response("done")).await;
    gateway.reconfigure(&IdempotencyConfig { store_timeout: "2s".parse().unwrap(), ..config() });
    assert!(has_body(&outcome(&gateway, "k").await, "done"));
    server.behave(FakeBehavior::LosesReplies);
    let started = Instant::now();
    assert_eq!(look_up(&gateway, "other").await.unwrap_err().http_status(), 503);
    assert!(started.elapsed() >= Duration::from_secs(2), "{:?}", started.elapsed());
}
