//! The store of idempotency keys on a real server, as several gateways use it: claims, outcomes, bounds, losses.

use super::servers;
use crate::{
    external::support::{redis_cluster::RedisCluster, state_server::StateServer},
    support::{eventually, eventually_within},
};
use bytes::Bytes;
use futures_util::future::join_all;
use gatepost::{
    fault::{Fault, FaultCode, Result},
    idempotency::{
        FirstCallClaim, FirstOutcome, IdempotencyConfig, IdempotencyKeys, KeyLookup, KeyedRequest, OnDataLoss,
        request_digest,
    },
    store::{
        ClaimReply, ClaimRequest, IdempotencyRecords, KeyBounds, KeyClaim, KeyShard, OutcomeReply, OutcomeRequest,
        SharedState, StateConfig,
    },
    telemetry::Metrics,
    values::{ClientKey, MaxShare},
};
use http::{HeaderMap, HeaderValue, StatusCode};
use std::{
    sync::Arc,
    time::{Duration, Instant},
};

/// A gateway's keys, and its connection to the server.
struct TestGateway {
    keys: IdempotencyKeys,
    state: Arc<SharedState>,
    metrics: Arc<Metrics>,
}

impl TestGateway {
    async fn start(server: &StateServer, config: &IdempotencyConfig) -> Self {
        Self::connect(&server.section(), config).await
    }

    async fn connect(section: &serde_json::Value, config: &IdempotencyConfig) -> Self {
        let metrics = Metrics::new().unwrap();
        let state: StateConfig = serde_json::from_value(section.clone()).unwrap();
        let state = SharedState::open(&state, &metrics).await.unwrap();
        let keys = IdempotencyKeys::shared(config, &state, &metrics);
        Self { keys, state, metrics }
    }

    async fn look_up(&self, key: &str, body: &str) -> Result<KeyLookup> {
        self.look_up_of(1, key, body).await
    }

    async fn look_up_of(&self, client: u64, key: &str, body: &str) -> Result<KeyLookup> {
        let (owner, client) = (format!("key:{client}"), ClientKey::new(client));
        let digest = request_digest(&[body.as_bytes()]);
        self.keys.look_up_or_claim(&KeyedRequest { owner: &owner, client, target: "agent", key, digest }).await
    }

    async fn claim(&self, key: &str) -> FirstCallClaim {
        self.claim_of(1, key).await
    }

    async fn claim_of(&self, client: u64, key: &str) -> FirstCallClaim {
        match self.look_up_of(client, key, "a").await.unwrap() {
            KeyLookup::Claimed(claim) => claim,
            other => panic!("{key}: {other:?}"),
        }
    }

    async fn complete_of(&self, client: u64, key: &str, body: &str) {
        self.claim_of(client, key).await.complete(response(body)).await;
    }

    /// Returns the body of the stored response; `None` for another outcome.
    async fn stored_of(&self, client: u64, key: &str) -> Option<Bytes> {
        match self.look_up_of(client, key, "a").await.unwrap() {
            KeyLookup::Completed(FirstOutcome::Response { body, .. }) => Some(body),
            KeyLookup::Completed(_) => None,
            other => panic!("{key}: {other:?}"),
        }
    }

    fn losses(&self) -> usize {
        let page = self.metrics.render(gatepost::telemetry::ExpositionFormat::Text);
        let line = page.lines().find(|line| line.contains("event=\"idempotency_keys_lost\"")).unwrap();
        line.rsplit(' ').next().unwrap().parse().unwrap()
    }
}

fn config() -> IdempotencyConfig {
    let mut config = IdempotencyConfig::default().with_max_share(MaxShare::UNLIMITED);
    config.store_timeout = "5s".parse().unwrap();
    config
}

/// Returns [`config`] with a change.
fn config_with(change: impl FnOnce(&mut IdempotencyConfig)) -> IdempotencyConfig {
    let mut config = config();
    change(&mut config);
    config
}

fn response(body: &str) -> FirstOutcome {
    let headers = HeaderMap::from_iter([(http::header::CONTENT_TYPE, HeaderValue::from_static("text/plain"))]);
    FirstOutcome::Response { status: StatusCode::CREATED, headers, body: Bytes::from(body.to_owned()) }
}

async fn two_gateways(server: &StateServer, config: &IdempotencyConfig) -> [TestGateway; 2] {
    [TestGateway::start(server, config).await, TestGateway::start(server, config).await]
}

#[tokio::test]
async fn r45_one_of_many_calls_at_two_gateways_claims_a_key_and_the_others_get_its_outcome() {
    for server in servers().await {
        let gateways = two_gateways(&server, &config()).await;
        let lookups = (0..40).map(|n| gateways[n % 2].look_up("k", "a"));
        let (mut claims, mut waiters) = (Vec::new(), Vec::new());
        for lookup in futures_util::future::join_all(lookups).await {
            match lookup.unwrap() {
                KeyLookup::Claimed(claim) => claims.push(claim),
                KeyLookup::InProgress(waiter) => waiters.push(waiter.wait()),
                KeyLookup::Completed(outcome) => panic!("{outcome:?}"),
            }
        }
        assert_eq!((claims.len(), waiters.len()), (1, 39));
        let waiting = tokio::spawn(futures_util::future::join_all(waiters));
        claims.remove(0).complete(response("done")).await;
        for outcome in waiting.await.unwrap() {
            assert!(matches!(outcome, Some(FirstOutcome::Response { body, .. }) if body == "done"));
        }
        for gateway in &gateways {
            let other_body = gateway.look_up("k", "b").await.unwrap_err();
            assert_eq!(other_body.code(), FaultCode::IdempotencyMismatch);
            match gateway.look_up("k", "a").await.unwrap() {
                KeyLookup::Completed(FirstOutcome::Response { status, headers, body }) => {
                    assert_eq!(
                        (status, &headers["content-type"], &*body),
                        (StatusCode::CREATED, &HeaderValue::from_static("text/plain"), &b"done"[..])
                    );
                }
                other => panic!("{other:?}"),
            }
        }
    }
}

#[tokio::test]
async fn r45_every_outcome_is_replayed_by_every_gateway() {
    for server in servers().await {
        let gateways = two_gateways(&server, &config()).await;
        let fault = Fault::new(FaultCode::AgentError, "The agent failed").with_header("x-test", "1");
        gateways[0].claim("fault").await.complete(FirstOutcome::Failed(fault)).await;
        gateways[0].claim("stream").await.complete(FirstOutcome::NotStored).await;
        let mut begun = gateways[0].claim("begun").await;
        begun.begin().unwrap();
        drop(begun);
        gateways[0].keys.settle().await;
        for gateway in &gateways {
            let outcome = async |key| match gateway.look_up(key, "a").await.unwrap() {
                KeyLookup::Completed(outcome) => outcome,
                other => panic!("{other:?}"),
            };
            assert!(matches!(outcome("fault").await, FirstOutcome::Failed(fault)
                if fault.code() == FaultCode::AgentError && fault.headers().eq([("x-test", "1")])));
            assert!(matches!(outcome("stream").await, FirstOutcome::NotStored));
            assert!(matches!(outcome("begun").await, FirstOutcome::Unknown));
        }
    }
}

#[tokio::test]
async fn r45_a_released_key_is_claimed_by_a_call_that_waits_at_another_gateway() {
    for server in servers().await {
        let [one, other] = two_gateways(&server, &config()).await;
        let claim = one.claim("k").await;
        let KeyLookup::InProgress(waiter) = other.look_up("k", "a").await.unwrap() else { panic!("it is in progress") };
        let waiting = tokio::spawn(waiter.wait());
        drop(claim);
        assert!(waiting.await.unwrap().is_none());
        other.claim("k").await.complete(response("second")).await;
        assert_eq!(one.stored_of(1, "k").await.unwrap(), "second");
    }
}

#[tokio::test]
async fn r45_a_response_that_is_too_large_is_not_stored_but_its_key_is() {
    for server in servers().await {
        let config = config_with(|config| config.max_response_size = "1KiB".parse().unwrap());
        let [one, other] = two_gateways(&server, &config).await;
        one.complete_of(1, "k", &"x".repeat(2_000)).await;
        assert_eq!(other.stored_of(1, "k").await, None);
    }
}

#[tokio::test]
async fn r45_a_client_that_repeats_a_key_with_a_large_response_delays_no_claim_of_another_one() {
    for server in servers().await {
        let [one, other] = two_gateways(&server, &config()).await;
        let large = "x".repeat(1_000_000);
        one.complete_of(1, "large", &large).await;
        assert_eq!(other.stored_of(1, "large").await.unwrap(), large);
        let repeats = async || join_all((0..40).map(|_| other.look_up_of(1, "large", "a"))).await;
        let claims = async {
            let mut slowest = Duration::ZERO;
            for number in 0..10 {
                let started = Instant::now();
                other.claim_of(2, &format!("k{number}")).await.complete(response("done")).await;
                slowest = slowest.max(started.elapsed());
            }
            slowest
        };
        let (repeated, slowest) = tokio::join!(repeats(), claims);
        assert!(slowest < Duration::from_secs(2), "{slowest:?}");
        // Some are read; the others are told that the key cannot be looked up now.
        assert!(repeated.iter().any(Result::is_ok));
        for refused in repeated.iter().filter_map(|result| result.as_ref().err()) {
            assert_eq!((refused.code(), refused.http_status()), (FaultCode::Overloaded, 503), "{refused:?}");
        }
        assert_eq!(other.stored_of(1, "large").await.unwrap(), large, "it was held against the server");
    }
}

#[tokio::test]
async fn r45_the_store_is_bounded_in_number_and_bytes_over_all_gateways_and_keeps_calls_in_progress() {
    for server in servers().await {
        let [one, other] = two_gateways(&server, &config_with(|config| config.max_keys = 3)).await;
        let running = one.claim("running").await;
        for key in ["k1", "k2", "k3", "k4"] {
            other.complete_of(1, key, "done").await;
        }
        assert!(matches!(other.look_up("running", "a").await.unwrap(), KeyLookup::InProgress(_)));
        let _running = (one.claim("r2").await, other.claim("r3").await);
        assert_eq!(one.look_up("r4", "a").await.unwrap_err().code(), FaultCode::Overloaded);
        running.complete(response("done")).await;
        assert_eq!(other.stored_of(1, "running").await.unwrap(), "done");
    }
    for server in servers().await {
        let [one, other] =
            two_gateways(&server, &config_with(|config| config.max_size = "64KiB".parse().unwrap())).await;
        one.complete_of(1, "early", "done").await;
        for number in 0..30 {
            other.complete_of(1, &format!("k{number}"), &"x".repeat(10_000)).await;
        }
        assert_eq!(one.stored_of(1, "early").await, None, "the key stays after its response was dropped");
        assert_eq!(one.look_up("early", "b").await.unwrap_err().code(), FaultCode::IdempotencyMismatch);
        assert!(one.stored_of(1, "k29").await.is_some(), "the newest responses are stored");
        other.complete_of(1, "large", &"x".repeat(70_000)).await;
        assert!(one.stored_of(1, "k29").await.is_some(), "a response that never fits displaces nothing");
    }
}

#[tokio::test]
async fn r45_a_callers_keys_and_responses_push_out_its_own_and_none_of_another_caller() {
    for server in servers().await {
        let config = config_with(|config| {
            config.max_keys = 100;
            config.max_size = "200KiB".parse().unwrap();
        })
        .with_max_share(MaxShare::default());
        let [one, other] = two_gateways(&server, &config).await;
        for number in 0..10 {
            one.complete_of(2, &format!("payment-{number}"), &"x".repeat(1_000)).await;
        }
        for number in 0..300 {
            let gateway = if number % 2 == 0 { &one } else { &other };
            gateway.complete_of(1, &format!("k{number}"), &"x".repeat(1_000)).await;
        }
        for number in 0..10 {
            assert!(other.stored_of(2, &format!("payment-{number}")).await.is_some(), "{number}");
        }
        assert!(one.stored_of(1, "k299").await.is_some());
        // Two callers fill the store; a third one takes the place of theirs, and not of the caller with few keys.
        for number in 0..300 {
            one.complete_of(3, &format!("k{number}"), "y").await;
        }
        for number in 0..20 {
            other.complete_of(4, &format!("k{number}"), "z").await;
        }
        for number in 0..10 {
            let lookup = one.look_up_of(2, &format!("payment-{number}"), "a").await.unwrap();
            assert!(matches!(lookup, KeyLookup::Completed(_)), "{number}: {lookup:?}");
        }
    }
}

#[tokio::test]
async fn r45_a_callers_calls_in_progress_leave_room_for_those_of_others_at_every_gateway() {
    for server in servers().await {
        let [one, other] =
            two_gateways(&server, &config_with(|config| config.max_keys = 4).with_max_share(MaxShare::default())).await;
        let _running = (one.claim_of(1, "one").await, other.claim_of(1, "two").await);
        let fault = one.look_up_of(1, "three", "a").await.unwrap_err();
        assert_eq!((fault.code(), fault.http_status()), (FaultCode::RateLimited, 429));
        let _others = (one.claim_of(2, "one").await, other.claim_of(3, "one").await);
        assert_eq!(other.look_up_of(4, "one", "a").await.unwrap_err().code(), FaultCode::Overloaded);
    }
}

#[tokio::test]
async fn r45_a_caller_drops_no_key_of_one_that_has_fewer_at_any_gateway() {
    for server in servers().await {
        let [one, other] = two_gateways(&server, &config_with(|config| config.max_keys = 6)).await;
        one.complete_of(2, "payment", "done").await;
        let _running = (one.claim_of(1, "one").await, other.claim_of(1, "two").await, one.claim_of(1, "three").await);
        let _others = (one.claim_of(3, "four").await, other.claim_of(3, "five").await);
        assert_eq!(one.look_up_of(1, "four", "a").await.unwrap_err().code(), FaultCode::Overloaded);
        assert_eq!(other.look_up_of(3, "six", "a").await.unwrap_err().code(), FaultCode::Overloaded);
        assert!(other.stored_of(2, "payment").await.is_some());
        // A caller that has no key yet takes the place of a completed call.
        let _first = one.claim_of(4, "first").await;
        assert!(matches!(other.look_up_of(1, "one", "a").await.unwrap(), KeyLookup::InProgress(_)));
    }
}

#[tokio::test]
async fn r45_a_key_is_new_again_after_its_ttl_and_expired_keys_are_removed() {
    for server in servers().await {
        let config = config_with(|config| config.ttl = "1s".parse().unwrap());
        let [one, other] = two_gateways(&server, &config).await;
        for number in 0..50 {
            one.complete_of(1, &format!("k{number}"), "done").await;
        }
        assert!(server.idempotency_keys().await > 0);
        eventually("maintenance removes the keys", async || server.idempotency_keys().await == 0).await;
        drop(other.claim("k0").await);
    }
}

#[tokio::test]
async fn r45_a_claim_is_extended_for_as_long_as_its_call_runs() {
    for server in servers().await {
        let config = config_with(|config| config.ttl = "1s".parse().unwrap());
        let [one, other] = two_gateways(&server, &config).await;
        let claim = one.claim("k").await;
        let started = Instant::now();
        // Longer than a lease and the lifetime after it.
        while started.elapsed() < Duration::from_secs(8) {
            assert!(matches!(other.look_up("k", "a").await.unwrap(), KeyLookup::InProgress(_)));
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        claim.complete(response("done")).await;
        assert_eq!(other.stored_of(1, "k").await.unwrap(), "done");
    }
}

/// Claims the key `k` at a gateway that ends at once: nothing is extended, completed or released.
async fn claim_and_die(server: &StateServer, config: &IdempotencyConfig) {
    let (section, config) = (server.section(), config.clone());
    let dead = std::thread::spawn(move || {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        runtime.block_on(async {
            let gateway = TestGateway::connect(&section, &config).await;
            std::mem::forget(gateway.claim("k").await);
        });
        runtime.shutdown_background();
    });
    tokio::task::spawn_blocking(|| dead.join().unwrap()).await.unwrap();
}

#[tokio::test]
async fn r45_the_outcome_is_unknown_after_a_lost_lease_and_the_key_is_not_claimed_before_its_ttl() {
    for server in servers().await {
        let config = config_with(|config| config.ttl = "2s".parse().unwrap());
        let other = TestGateway::start(&server, &config).await;
        claim_and_die(&server, &config).await;
        let started = Instant::now();
        let mut unknown = 0;
        loop {
            match other.look_up("k", "a").await.unwrap() {
                KeyLookup::InProgress(_) => assert_eq!(unknown, 0),
                KeyLookup::Completed(FirstOutcome::Unknown) => unknown += 1,
                KeyLookup::Claimed(_) => break,
                other => panic!("{other:?}"),
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        assert!(unknown > 10, "{unknown}");
        assert!(started.elapsed() > Duration::from_secs(5), "{:?}", started.elapsed());
    }
}

#[tokio::test]
async fn r45_a_paused_server_refuses_keys_and_a_claim_that_arrives_late_is_not_made() {
    for server in servers().await {
        let config = config_with(|config| config.store_timeout = "100ms".parse().unwrap());
        let [one, other] = two_gateways(&server, &config).await;
        eventually("the server answers", async || one.look_up("warm", "a").await.is_ok()).await;
        server.pause();
        let started = Instant::now();
        let fault = one.look_up("k", "a").await.unwrap_err();
        assert_eq!((fault.http_status(), fault.retry_after_secs()), (503, Some(1)));
        assert!(started.elapsed() < Duration::from_secs(1), "{:?}", started.elapsed());
        server.resume();
        // The request may still arrive, and is released then.
        let mut claim = None;
        eventually("the key is claimed", async || {
            claim = match other.look_up("k", "a").await {
                Ok(KeyLookup::Claimed(claim)) => Some(claim),
                Ok(KeyLookup::InProgress(_)) | Err(_) => None,
                Ok(KeyLookup::Completed(outcome)) => panic!("{outcome:?}"),
            };
            claim.is_some()
        })
        .await;
        claim.unwrap().complete(response("done")).await;
        eventually("the outcome is stored", async || {
            matches!(one.look_up("k", "a").await, Ok(KeyLookup::Completed(FirstOutcome::Response { .. })))
        })
        .await;
    }
}

#[tokio::test]
async fn r45_an_outcome_is_stored_when_the_server_is_back_and_meanwhile_replayed_by_its_gateway() {
    for mut server in servers().await {
        let config = config_with(|config| config.store_timeout = "100ms".parse().unwrap());
        let [one, other] = two_gateways(&server, &config).await;
        let claim = one.claim("k").await;
        server.stop();
        let started = Instant::now();
        claim.complete(response("done")).await;
        assert!(started.elapsed() < Duration::from_secs(1), "the caller does not wait: {:?}", started.elapsed());
        assert_eq!(one.stored_of(1, "k").await.unwrap(), "done");
        assert_eq!(other.look_up("k", "a").await.unwrap_err().http_status(), 503);
        assert_eq!(one.look_up("new", "a").await.unwrap_err().http_status(), 503);
        server.restart().await;
        eventually("the other gateway has the outcome", async || {
            matches!(other.look_up("k", "a").await, Ok(KeyLookup::Completed(FirstOutcome::Response { .. })))
        })
        .await;
    }
}

#[tokio::test]
async fn r45_after_a_loss_of_data_new_keys_are_refused_for_a_ttl_at_every_gateway() {
    for mut server in servers().await {
        let config = config_with(|config| config.ttl = "3s".parse().unwrap());
        let [one, other] = two_gateways(&server, &config).await;
        one.complete_of(1, "before", "done").await;
        let running = one.claim("running").await;
        eventually("the other gateway knows the epoch", async || other.look_up("before", "a").await.is_ok()).await;
        server.lose_data().await;
        let lost_at = Instant::now();
        // A gateway that starts now knows nothing of the loss.
        let mut late = None;
        eventually("the loss is found", async || one.losses() == 1 && other.losses() == 1).await;
        late.replace(TestGateway::start(&server, &config).await);
        let late = late.unwrap();
        let refused = async |gateway: &TestGateway| {
            let fault = gateway.look_up("before", "a").await.unwrap_err();
            assert_eq!((fault.http_status(), fault.code()), (503, FaultCode::Overloaded));
            assert!((1..=9).contains(&fault.retry_after_secs().unwrap()), "{:?}", fault.retry_after_secs());
        };
        for gateway in [&one, &other, &late] {
            refused(gateway).await;
        }
        // The running call is known again, and its outcome is replayed.
        eventually("the claim is restored", async || {
            matches!(other.look_up("running", "a").await, Ok(KeyLookup::InProgress(_)))
        })
        .await;
        running.complete(response("done")).await;
        assert_eq!(late.stored_of(1, "running").await.unwrap(), "done");
        eventually_within(Duration::from_secs(15), "keys are claimed again", async || {
            late.look_up("before", "a").await.is_ok()
        })
        .await;
        assert!(lost_at.elapsed() > Duration::from_secs(7), "{:?}", lost_at.elapsed());
        assert_eq!((one.losses(), other.losses()), (1, 1));
    }
}

#[tokio::test]
async fn r45_after_a_loss_of_data_new_keys_are_claimed_where_the_operator_wants_it() {
    for mut server in servers().await {
        let config = config_with(|config| config.on_data_loss = OnDataLoss::Open);
        let [one, other] = two_gateways(&server, &config).await;
        one.complete_of(1, "before", "done").await;
        server.lose_data().await;
        eventually("a key is claimed", async || {
            matches!(other.look_up("before", "a").await, Ok(KeyLookup::Claimed(_)))
        })
        .await;
        eventually("the loss is reported", async || one.losses() == 1).await;
        assert!(one.state.is_available());
    }
}

#[tokio::test]
async fn r45_the_nodes_of_a_cluster_hold_the_keys_of_different_clients_within_common_bounds() {
    let cluster = RedisCluster::start().await;
    let section = cluster.section();
    let mut config = IdempotencyConfig::default();
    config.max_keys = 200;
    config.store_timeout = "5s".parse().unwrap();
    let (one, other) = (TestGateway::connect(&section, &config).await, TestGateway::connect(&section, &config).await);
    for client in 2..62 {
        one.complete_of(client, "payment", &client.to_string()).await;
    }
    // One client takes its share, and then its own oldest keys make room.
    for number in 0..300 {
        other.complete_of(1, &format!("k{number}"), "done").await;
    }
    for client in 2..62 {
        assert_eq!(other.stored_of(client, "payment").await.unwrap(), client.to_string());
    }
    assert!(one.stored_of(1, "k299").await.is_some());
    drop(one.claim_of(1, "k0").await);
}

#[tokio::test]
async fn r45_a_request_that_was_sent_again_after_a_lost_reply_is_no_loss_of_data() {
    for server in servers().await {
        let records = IdempotencyRecords::new(&server.open().await);
        let deadline = Duration::from_secs(5);
        let shard = |confirmed| KeyShard {
            shard: 0,
            epoch: None,
            new_epoch: 7,
            confirmed,
            ttl: Duration::from_secs(60),
            lease: Duration::from_secs(5),
        };
        let bounds = KeyBounds {
            max_keys: 10,
            max_size: 10_000,
            max_client_keys: 10,
            max_client_size: 10_000,
            record_size: 512,
        };
        let claim = |key, number| KeyClaim { key: [key; 32], digest: [2; 32], client: u64::MAX, number };
        let request = |key, number| ClaimRequest {
            claim: claim(key, number),
            not_after: records.state().server_time() + deadline,
            refuses_after_loss: true,
            bounds,
        };
        for confirmed in [0, 1] {
            let reply = records.claim(shard(confirmed), &request(1, 1), deadline).await.unwrap();
            assert_eq!((reply.value, reply.lost_for), (ClaimReply::Claimed, Duration::ZERO));
        }
        for number in [2, 3] {
            let outcome = OutcomeRequest { claim: claim(1, 1), number, outcome: Bytes::from_static(b"x"), bounds };
            let reply = records.complete(shard(number - 1), &outcome, deadline).await.unwrap();
            assert_eq!((reply.value, reply.lost_for), (OutcomeReply::Stored, Duration::ZERO));
        }
        let reply = records.claim(shard(3), &request(9, 4), deadline).await.unwrap();
        assert_eq!((reply.value, reply.lost_for), (ClaimReply::Claimed, Duration::ZERO));
        // A number that the server has never confirmed is one that it has lost.
        let reply = records.claim(shard(99), &request(8, 5), deadline).await.unwrap();
        assert!(matches!(reply.value, ClaimReply::DataLost { remaining } if remaining > Duration::from_secs(60)));
    }
}
