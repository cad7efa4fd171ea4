//! Limits that several gateways share: how exact they are, and what callers see while the server of the shared state is
//! down, hangs, comes back empty or fails over.

use super::support::{
    redis_cluster::RedisCluster,
    sentinel::RedisWithSentinel,
    state_server::{StateServer, open_state},
};
use crate::support::{
    agent::Agent,
    eventually, eventually_within,
    gateway::{Gateway, GatewayBuilder, gateway},
    gateway_response::GatewayResponse,
};
use gatepost::{
    limit::{AgentLimitSettings, AgentLimits, CallLimiter, LimitConfig, RateLimitKey},
    store::SharedState,
    telemetry::Metrics,
};
use rustix::process::Signal;
use serde_json::{Value, json};
use std::{
    num::NonZeroU32,
    sync::Arc,
    time::{Duration, Instant},
};

const GATEWAYS: usize = 3;
/// How long a gateway may take to notice that the server is back.
const RECOVERY_TIME: Duration = Duration::from_secs(15);

/// The limits of one gateway, without the gateway.
struct Limiter {
    limits: CallLimiter,
    agent: Arc<AgentLimits>,
    state: Arc<SharedState>,
}

impl Limiter {
    async fn open(state: &Value, limits: &Value) -> Self {
        let state = open_state(state).await;
        let config: LimitConfig = serde_json::from_value(limits.clone()).unwrap();
        let limits = CallLimiter::with_shared_state(&config, Metrics::new().unwrap(), &state).unwrap();
        let agent = limits.register_agent(&"a".parse().unwrap(), AgentLimitSettings::default());
        Self { limits, agent, state }
    }

    async fn open_all(state: &Value, limits: &Value) -> [Self; GATEWAYS] {
        let all = [(); GATEWAYS].map(|()| Self::open(state, limits));
        let [one, two, three] = all;
        let all = [one.await, two.await, three.await];
        for gateway in &all {
            eventually("the gateways know each other", async || gateway.state.gateway_count() == 3).await;
        }
        all
    }

    async fn call(&self, caller: &str) -> bool {
        let key = RateLimitKey::for_caller(caller, None);
        self.limits.acquire_for_calls(&self.agent, &key, NonZeroU32::MIN).await.is_ok()
    }
}

/// Tokens by which a gateway may exceed a limit.
const fn allowance(max: u64) -> u64 {
    let part = max / (4 * GATEWAYS as u64);
    if part > 1 { part } else { 1 }
}

const CALLERS: usize = 8;

/// Makes calls at random gateways for random callers, more than the limits admit; returns how many were admitted for each
/// caller.
async fn random_load(gateways: &[Limiter; GATEWAYS], time: Duration) -> [u64; CALLERS] {
    let until = Instant::now() + time;
    let load = |gateway: &'static str, limiter: usize| async move {
        let (limiter, _) = (&gateways[limiter], gateway);
        let mut admitted = [0; CALLERS];
        while Instant::now() < until {
            for _ in 0..fastrand::u32(1..60) {
                let caller = fastrand::usize(..CALLERS);
                admitted[caller] += u64::from(limiter.call(&format!("caller-{caller}")).await);
            }
            tokio::time::sleep(Duration::from_millis(fastrand::u64(..8))).await;
        }
        admitted
    };
    let (one, two, three) = tokio::join!(load("one", 0), load("two", 1), load("three", 2));
    std::array::from_fn(|caller| one[caller] + two[caller] + three[caller])
}

async fn a_rate_is_exact_within_the_allowance(state: &Value, per_second: u64) {
    let limits = json!({"per_caller": format!("{per_second}/s")});
    let gateways = Limiter::open_all(state, &limits).await;
    let started = Instant::now();
    let admitted = random_load(&gateways, Duration::from_secs(3)).await;
    let refilled = per_second as f64 * started.elapsed().as_secs_f64();
    let most = per_second as f64 + refilled + (GATEWAYS as u64 * allowance(per_second)) as f64;
    for count in admitted {
        assert!(count as f64 <= most, "{admitted:?} of {most}");
    }
    if per_second <= 10 {
        // The load of this test is more than a small rate, so that none of it is lost.
        let least = per_second as f64 + refilled - 2.0 - (GATEWAYS as u64 * allowance(per_second)) as f64;
        assert!(admitted.iter().all(|count| *count as f64 >= least), "{admitted:?} of {least}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r5_redis_three_gateways_exceed_10_calls_a_second_by_at_most_their_allowance() {
    a_rate_is_exact_within_the_allowance(&StateServer::redis().await.section(), 10).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r5_redis_three_gateways_exceed_1000_calls_a_second_by_at_most_their_allowance() {
    a_rate_is_exact_within_the_allowance(&StateServer::redis().await.section(), 1_000).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r5_postgresql_three_gateways_exceed_10_calls_a_second_by_at_most_their_allowance() {
    a_rate_is_exact_within_the_allowance(&StateServer::postgres().await.section(), 10).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r5_a_redis_cluster_has_the_buckets_at_all_nodes_and_is_as_exact_as_one_server() {
    let cluster = RedisCluster::start().await;
    for per_second in [10, 1_000] {
        a_rate_is_exact_within_the_allowance(&cluster.section(), per_second).await;
    }
    let counts = cluster.key_counts().await;
    assert!(counts.iter().all(|count| *count > 0), "{counts:?}");
}

async fn a_quota_is_exact_within_the_allowance(server: StateServer) {
    const QUOTA: u64 = 60;
    let gateways =
        Limiter::open_all(&server.section(), &json!({"quota": {"per_day": QUOTA, "per_month": 10_000}})).await;
    let admitted = random_load(&gateways, Duration::from_secs(2)).await;
    for count in admitted {
        let bounds = QUOTA..=QUOTA + GATEWAYS as u64 * allowance(QUOTA);
        assert!(bounds.contains(&count), "{admitted:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r5_redis_three_gateways_share_a_quota() {
    a_quota_is_exact_within_the_allowance(StateServer::redis().await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r5_postgresql_three_gateways_share_a_quota() {
    a_quota_is_exact_within_the_allowance(StateServer::postgres().await).await;
}

/// A gateway process with shared state, and an agent `echo`.
fn process(state: &Value, echo: &Agent, limits: &str) -> GatewayBuilder {
    gateway().agent("echo", echo).section(&format!("state: {state}\nlimits: {limits}\n"))
}

async fn call(gate: &Gateway) -> GatewayResponse {
    gate.invoke("echo", &json!({})).await
}

/// Makes calls, and returns how many were answered with 200, 429 and 503.
async fn calls(gate: &Gateway, count: usize) -> [usize; 3] {
    let mut answers = [0; 3];
    for _ in 0..count {
        let answer = call(gate).await;
        match answer.status {
            200 => answers[0] += 1,
            429 => answers[1] += 1,
            503 => answers[2] += 1,
            other => panic!("{other}: {}", answer.text()),
        }
    }
    answers
}

async fn is_up(gate: &Gateway) -> bool {
    gate.metric("gatepost_store_up{store=\"state\"}").await == Some(1.0)
}

#[tokio::test]
async fn r5_a_caller_has_one_rate_at_three_gateway_processes() {
    for server in [StateServer::redis().await, StateServer::postgres().await] {
        let echo = Agent::echo().await;
        let start = || process(&server.section(), &echo, "{per_caller: 24/h}").start();
        let gates = [start().await, start().await, start().await];
        for gate in &gates {
            eventually("the gateways know each other", async || {
                gate.metric("gatepost_state_gateways").await == Some(3.0)
            })
            .await;
        }
        let mut admitted = 0;
        for round in 0..20 {
            admitted += calls(&gates[round % 3], 3).await[0];
        }
        assert!((24..=24 + 3 * 2).contains(&admitted), "{admitted}");
        for gate in &gates {
            let refused = call(gate).await;
            refused.expect_fault(429, "RateLimited");
            assert!(refused.header("ratelimit").unwrap().starts_with("\"caller\";r=0;t="), "{:?}", refused.headers);
        }
        assert_eq!(echo.call_count(), admitted);
    }
}

#[tokio::test]
async fn r5_without_the_server_each_limit_does_what_on_error_says_and_the_gateway_stays_ready() {
    for mut server in [StateServer::redis().await, StateServer::postgres().await] {
        let echo = Agent::echo().await;
        let start = |on_error: &str| {
            let limits = format!(
                "{{per_address: null, per_caller: 60/h, on_error: {{default: closed, per_caller: {on_error}}}}}"
            );
            process(&server.section(), &echo, &limits).start()
        };
        let (local, open, closed) = (start("local").await, start("open").await, start("closed").await);
        for gate in [&local, &open, &closed] {
            eventually("the gateways know each other", async || {
                gate.metric("gatepost_state_gateways").await == Some(3.0)
            })
            .await;
            assert_eq!(calls(gate, 2).await, [2, 0, 0]);
        }
        server.stop();
        // A heartbeat that the server answered before its end may close a breaker that timeouts have opened.
        for _ in 0..3 {
            for gate in [&local, &open, &closed] {
                eventually("the gateway notices", async || !is_up(gate).await).await;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        assert_eq!(calls(&open, 70).await, [70, 0, 0], "open: every call passes");
        let [passed, limited, failed] = calls(&local, 30).await;
        assert!((17..=20).contains(&passed) && failed == 0, "local: a third of the limit: {passed} {limited} {failed}");
        assert_eq!(calls(&closed, 3).await, [0, 0, 3], "closed: every call is refused");
        let refused = call(&closed).await;
        refused.expect_fault(503, "Overloaded");
        assert_eq!(refused.header("retry-after"), Some("1"));
        for gate in [&local, &open, &closed] {
            assert_eq!(gate.admin_page("/readyz").await.status, 200, "readiness does not depend on the server");
        }
        server.restart().await;
        for gate in [&local, &open, &closed] {
            eventually_within(RECOVERY_TIME, "the gateway uses the server again", async || is_up(gate).await).await;
        }
        eventually("what was spent locally is counted", async || call(&local).await.status == 200).await;
        let [passed, ..] = calls(&closed, 70).await;
        assert!((25..=45).contains(&passed), "60, without the 6 of before and the 20 of the part: {passed}");
        assert!(local.metric("gatepost_events_total{event=\"limit_decided_locally\"}").await >= Some(30.0));
    }
}

#[tokio::test]
async fn r5_a_server_that_hangs_delays_a_few_calls_and_then_none() {
    for server in [StateServer::redis().await, StateServer::postgres().await] {
        let echo = Agent::echo().await;
        let mut state = server.section();
        state["timeout"] = json!("100ms");
        // A burst of 1 draws each call from the server.
        let gate = process(&state, &echo, "{per_caller: 1000/s burst 1, per_address: null}").start().await;
        call(&gate).await.expect_ok();
        server.pause();
        let mut slow = 0;
        let started = Instant::now();
        while started.elapsed() < Duration::from_secs(3) {
            let before = Instant::now();
            let answer = call(&gate).await;
            assert!([200, 429].contains(&answer.status), "{}", answer.text());
            slow += usize::from(before.elapsed() > Duration::from_millis(90));
        }
        assert!(slow <= 6, "{slow} calls waited for a server that hangs");
        server.resume();
        eventually_within(RECOVERY_TIME, "the gateway uses the server again", async || is_up(&gate).await).await;
        eventually("calls are admitted", async || call(&gate).await.status == 200).await;
    }
}

#[tokio::test]
async fn r5_a_server_that_comes_back_empty_learns_the_quotas_from_the_gateways() {
    for mut server in [StateServer::redis().await, StateServer::postgres().await] {
        let echo = Agent::echo().await;
        let start = || process(&server.section(), &echo, "{quota: {per_day: 20}}").start();
        let (one, two) = (start().await, start().await);
        let before = calls(&one, 8).await[0] + calls(&two, 8).await[0];
        assert_eq!(before, 16);
        server.lose_data().await;
        for gate in [&one, &two] {
            eventually_within(RECOVERY_TIME, "the gateway uses the server again", async || is_up(gate).await).await;
        }
        let after = calls(&one, 15).await[0] + calls(&two, 15).await[0];
        // Each gateway knew of all calls but those that the other made since its own last call.
        assert!((4..=12 + 2 * 2).contains(&after), "{after}");
    }
}

#[tokio::test]
async fn r5_a_failover_of_redis_keeps_limits_and_gateways() {
    let mut redis = RedisWithSentinel::start().await;
    let echo = Agent::echo().await;
    let state = json!({"redis": redis.section(), "timeout": "500ms"});
    let start = || process(&state, &echo, "{quota: {per_day: 20}}").start();
    let (one, two) = (start().await, start().await);
    assert_eq!(calls(&one, 8).await[0] + calls(&two, 8).await[0], 16);
    redis.fail_over().await;
    for gate in [&one, &two] {
        eventually_within(Duration::from_secs(30), "the gateway uses the new primary", async || is_up(gate).await)
            .await;
    }
    let after = calls(&one, 10).await[0] + calls(&two, 10).await[0];
    assert!((4..=4 + 2 * 3).contains(&after), "{after}");
}

#[tokio::test]
async fn r5_while_a_cluster_lacks_a_node_each_gateway_counts_for_itself() {
    let mut cluster = RedisCluster::start().await;
    let echo = Agent::echo().await;
    let start = || process(&cluster.section(), &echo, "{quota: {per_day: 20}, per_address: null}").start();
    let (one, two) = (start().await, start().await);
    for gate in [&one, &two] {
        eventually("the gateways know each other", async || gate.metric("gatepost_state_gateways").await == Some(2.0))
            .await;
    }
    assert_eq!(calls(&one, 4).await[0] + calls(&two, 4).await[0], 8);
    cluster.stop_node(1).await;
    let without = calls(&one, 10).await[0] + calls(&two, 10).await[0];
    assert!((8..=12 + 2 * 2).contains(&without), "{without}");
    cluster.restart_node(1).await;
    for gate in [&one, &two] {
        eventually_within(RECOVERY_TIME, "the gateway uses the cluster again", async || is_up(gate).await).await;
    }
    let after = calls(&one, 10).await[0] + calls(&two, 10).await[0];
    assert!(8 + without + after <= 20 + 2 * 3, "{without} {after}");
}

#[tokio::test]
async fn r5_a_killed_gateway_loses_at_most_its_allowance_of_a_quota() {
    const QUOTA: usize = 400;
    let server = StateServer::redis().await;
    let echo = Agent::echo().await;
    let start =
        || process(&server.section(), &echo, &format!("{{quota: {{per_day: {QUOTA}}}, per_address: null}}")).start();
    let mut admitted = 0;
    for _ in 0..5 {
        let gate = start().await;
        admitted += calls(&gate, 40).await[0];
        gate.send_signal(Signal::KILL);
    }
    let last = start().await;
    admitted += calls(&last, QUOTA).await[0];
    // One gateway lives at a time, so that each loses at most a quarter of the quota; what is settled within ten
    // milliseconds makes it a few calls.
    assert!((QUOTA..=QUOTA + 5 * QUOTA / 4).contains(&admitted), "{admitted}");
    assert!(admitted <= QUOTA + 50, "{admitted}");
}

#[tokio::test]
async fn r5_gateways_whose_clocks_differ_by_a_day_count_in_one_day() {
    let library =
        ["/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1", "/usr/lib/aarch64-linux-gnu/faketime/libfaketime.so.1"]
            .into_iter()
            .find(|path| std::path::Path::new(path).exists())
            .unwrap_or_else(|| panic!("libfaketime is missing: run: sudo apt-get install libfaketime"));
    let server = StateServer::redis().await;
    let echo = Agent::echo().await;
    let start = |shift: &str| {
        process(&server.section(), &echo, "{quota: {per_day: 20}, per_caller: 100/h}")
            .env("LD_PRELOAD", library)
            .env("FAKETIME", shift)
            .env("FAKETIME_DONT_FAKE_MONOTONIC", "1")
            .start()
    };
    let (one, two) = (start("+0").await, start("+25h").await);
    let admitted = calls(&one, 15).await[0] + calls(&two, 15).await[0];
    assert!((20..=20 + 2 * 2).contains(&admitted), "{admitted}");
    for gate in [&one, &two] {
        call(gate).await.expect_fault(429, "RateLimited");
    }
}
