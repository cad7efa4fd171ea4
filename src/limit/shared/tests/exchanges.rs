//! Gateways with their exchangers against a server in memory, in virtual time.

use crate::{
    limit::{AgentLimitSettings, AgentLimits, BucketKey, CallLimiter, LimitConfig, RateLimitKey, RateRule},
    store::{FakeBehavior, FakeServer, TokenLimit},
    telemetry::{LimitKind, Metrics},
};
use serde_json::{Value, json};
use std::{num::NonZeroU32, sync::Arc, time::Duration};
use tokio::time::sleep;

/// Long enough for several trips.
const SOON: Duration = Duration::from_millis(300);

/// One gateway.
struct Gateway {
    limits: CallLimiter,
    agent: Arc<AgentLimits>,
}

impl Gateway {
    async fn open(server: &Arc<FakeServer>, limits: Value) -> Self {
        let state = server.open().await;
        let limits = CallLimiter::with_shared_state(&config(limits), Metrics::new().unwrap(), &state).unwrap();
        let agent = limits.register_agent(&"a".parse().unwrap(), AgentLimitSettings::default());
        Self { limits, agent }
    }

    async fn call(&self, caller: &str, tier: Option<&str>) -> bool {
        let key = RateLimitKey::for_caller(caller, tier);
        self.limits.acquire_for_calls(&self.agent, &key, NonZeroU32::MIN).await.is_ok()
    }
}

fn config(limits: Value) -> LimitConfig {
    serde_json::from_value(limits).unwrap()
}

fn id_of(rate: &str, caller: &str) -> u128 {
    let rule = RateRule::new(LimitKind::Caller, rate.parse().unwrap());
    u128::from(rule.id) << 64 | u128::from(BucketKey::for_caller(caller).hash())
}

/// Returns how many calls of a caller the server has counted.
fn counted(server: &FakeServer, rate: &str, caller: &str) -> u64 {
    let rule = RateRule::new(LimitKind::Caller, rate.parse().unwrap());
    let limit = TokenLimit::Rate { refill_interval: rule.refill_interval, burst: rule.burst.get() };
    server.with_tokens(|tokens| tokens.used(id_of(rate, caller), limit, server.now()))
}

#[tokio::test(start_paused = true)]
async fn a_caller_with_keys_of_two_tiers_with_equal_rates_has_one_bucket() {
    let server = FakeServer::start();
    let tiers = json!({"gold": {"per_caller": "400/d"}, "silver": {"per_caller": "400/d"}});
    let gateway = Gateway::open(&server, json!({"per_caller": "400/d", "tiers": tiers})).await;
    for tier in [None, Some("gold"), Some("silver")] {
        for _ in 0..10 {
            assert!(gateway.call("c", tier).await);
        }
    }
    sleep(SOON).await;
    assert_eq!(counted(&server, "400/d", "c"), 30);
    assert_eq!(server.with_tokens(|tokens| tokens.trips().to_vec()), [1], "one account settled");
}

#[tokio::test(start_paused = true)]
async fn a_rate_that_is_removed_and_comes_back_is_counted_once() {
    let server = FakeServer::start();
    let gateway = Gateway::open(&server, json!({"per_caller": "400/d"})).await;
    for rate in ["400/d", "500/d", "400/d"] {
        gateway.limits.reconfigure(&config(json!({"per_caller": rate}))).unwrap();
        for _ in 0..10 {
            assert!(gateway.call("c", None).await);
        }
    }
    sleep(SOON).await;
    assert_eq!((counted(&server, "400/d", "c"), counted(&server, "500/d", "c")), (20, 10));
}

#[tokio::test(start_paused = true)]
async fn an_entry_that_the_server_refuses_does_not_stop_the_others() {
    let server = FakeServer::start();
    let gateway = Gateway::open(&server, json!({"per_caller": "400/d"})).await;
    server.with_tokens(|tokens| tokens.refuse(id_of("400/d", "caller-7")));
    for round in 1..=3 {
        for caller in 0..40 {
            assert!(gateway.call(&format!("caller-{caller}"), None).await);
        }
        sleep(SOON).await;
        for caller in (0..40).filter(|caller| *caller != 7) {
            assert_eq!(counted(&server, "400/d", &format!("caller-{caller}")), round, "caller {caller}");
        }
    }
    let trips = server.with_tokens(|tokens| tokens.trips().len());
    sleep(SOON).await;
    assert_eq!(server.with_tokens(|tokens| tokens.trips().len()), trips, "the refused entry is not repeated");
}

#[tokio::test(start_paused = true)]
async fn more_accounts_than_a_trip_has_room_for_are_settled_without_waiting_for_ticks() {
    let server = FakeServer::start();
    let gateway = Gateway::open(&server, json!({"per_caller": "400/d"})).await;
    for caller in 0..3_000 {
        assert!(gateway.call(&caller.to_string(), None).await);
    }
    sleep(Duration::from_millis(15)).await;
    assert!(server.with_tokens(|tokens| tokens.ids().len()) > 2_500);
}

/// Returns the count of the only quota.
fn quota_count(server: &FakeServer) -> u64 {
    let limit = TokenLimit::Quota { max: 0, lifetime: Duration::ZERO };
    server.with_tokens(|tokens| tokens.ids().iter().map(|id| tokens.used(*id, limit, server.now())).sum())
}

#[tokio::test(start_paused = true)]
async fn a_draw_whose_reply_is_lost_costs_nothing() {
    for behavior in [FakeBehavior::LosesReplies, FakeBehavior::Fails] {
        let server = FakeServer::start();
        let limits = json!({"quota": {"per_day": 20}, "on_error": {"default": "closed"}});
        let gateway = Gateway::open(&server, limits).await;
        let mut admitted = 0;
        for call in 0..60 {
            let is_lost = call % 3 == 2;
            server.behave(if is_lost { behavior } else { FakeBehavior::Answers });
            admitted += u64::from(gateway.call("c", None).await);
            server.behave(FakeBehavior::Answers);
            sleep(SOON).await;
            assert_eq!(quota_count(&server), admitted, "call {call}");
        }
        assert_eq!(admitted, 20);
    }
}

#[tokio::test(start_paused = true)]
async fn a_draw_whose_reply_is_lost_and_that_is_decided_locally_is_counted_once() {
    let server = FakeServer::start();
    let gateway = Gateway::open(&server, json!({"quota": {"per_day": 20}})).await;
    let mut admitted = 0;
    for call in 0..15 {
        server.behave(if call % 3 == 2 { FakeBehavior::LosesReplies } else { FakeBehavior::Answers });
        admitted += u64::from(gateway.call("c", None).await);
        server.behave(FakeBehavior::Answers);
        sleep(SOON).await;
        assert_eq!(quota_count(&server), admitted, "call {call}");
    }
    assert_eq!(admitted, 15);
}

#[tokio::test(start_paused = true)]
async fn a_promoted_replica_that_lacks_calls_learns_the_counts_of_all_accounts() {
    let server = FakeServer::start();
    let limits = json!({"quota": {"per_day": 100}});
    let gateways = [Gateway::open(&server, limits.clone()).await, Gateway::open(&server, limits).await];
    let mut admitted = 0;
    let mut call = async |times: u64| {
        for _ in 0..times {
            for gateway in &gateways {
                for caller in ["c", "d"] {
                    admitted += u64::from(gateway.call(caller, None).await);
                }
            }
        }
        sleep(SOON).await;
        admitted
    };
    call(30).await;
    let replica = server.with_tokens(|tokens| tokens.clone());
    assert_eq!(call(17).await, 2 * 94);
    server.with_tokens(|tokens| *tokens = replica);
    assert_eq!(quota_count(&server), 2 * 60);
    let in_all = call(60).await;
    assert!((2 * 94..=2 * (100 + 2)).contains(&in_all), "{in_all} of 200 calls, and one or two of each gateway");
}

#[tokio::test(start_paused = true)]
async fn a_slow_server_gets_smaller_trips_and_a_trip_that_is_too_large_gets_more_time() {
    let server = FakeServer::start();
    let gateway = Gateway::open(&server, json!({"per_caller": "400/d"})).await;
    // A trip of 1,024 accounts takes 205 ms; calls wait for 20 ms, and other trips at first for 40 ms.
    server.with_tokens(|tokens| tokens.slow_down(Duration::from_micros(200)));
    let call_all = async || {
        for caller in 0..1_500 {
            assert!(gateway.call(&caller.to_string(), None).await);
        }
    };
    call_all().await;
    sleep(Duration::from_secs(20)).await;
    for caller in 0..1_500 {
        assert_eq!(counted(&server, "400/d", &caller.to_string()), 1, "caller {caller}");
    }
    let trips = server.with_tokens(|tokens| tokens.trips().len());
    call_all().await;
    // The circuit breaker may open meanwhile, for two seconds at most.
    sleep(Duration::from_secs(10)).await;
    assert_eq!(counted(&server, "400/d", "1499"), 2);
    let later = server.with_tokens(|tokens| tokens.trips()[trips..].to_vec());
    assert!(later.iter().all(|entries| *entries <= 232), "{later:?}");
}
