//! Tests of calls at the adaptive concurrency limit, and of load shedding.

use super::*;
use crate::limit::{limit_policy::PriorityRanks, load_shedding::LoadShedder};
use futures_util::FutureExt;

const BASE_LATENCY: Duration = Duration::from_millis(100);
/// The adaptive limit that [`overloaded_agent`] yields.
const ADAPTIVE_LIMIT: usize = 6;

/// Returns an agent that was overloaded: the limit fell from 100 to [`ADAPTIVE_LIMIT`].
async fn overloaded_agent(queue_settings: Value) -> (LimitFixture, Arc<AgentLimits>) {
    let mut concurrency = json!({"max_per_agent": 100});
    concurrency.as_object_mut().unwrap().extend(queue_settings.as_object().unwrap().clone());
    let limits = fixture(json!({ "concurrency": concurrency }));
    let agent = limits.agent("a");
    for latency in [BASE_LATENCY, 10 * BASE_LATENCY] {
        let calls: Vec<_> = (0..50)
            .map(|_| limits.limits.acquire_permit(&agent, CLIENT).now_or_never().expect("a free permit").unwrap())
            .collect();
        let samples: Vec<_> = calls.iter().map(Permit::start_latency_sample).collect();
        limits.clock.advance(latency);
        samples.into_iter().for_each(|sample| sample.finish(SampleOutcome::Responded));
    }
    (limits, agent)
}

fn try_acquire_now(limits: &LimitFixture, agent: &Arc<AgentLimits>) -> Option<Result<Permit, Fault>> {
    limits.limits.acquire_permit(agent, CLIENT).now_or_never()
}

fn acquire_permits(limits: &LimitFixture, agent: &Arc<AgentLimits>, count: usize) -> Vec<Permit> {
    (0..count).map(|_| try_acquire_now(limits, agent).expect("a free permit").unwrap()).collect()
}

#[track_caller]
fn assert_overloaded_by(fault: &Fault, by: &str) {
    assert_eq!((fault.code(), fault.http_status()), (FaultCode::Overloaded, 503));
    assert_eq!(fault.retry_after_secs(), Some(1));
    let error = &fault.to_error_object("id")["error"];
    assert_eq!(error["overloaded"], by, "{error}");
    assert!(error["message"].as_str().unwrap().contains("all callers"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_call_beyond_the_adaptive_limit_is_refused_at_once_without_a_queue() {
    let (limits, agent) = overloaded_agent(json!({"max_queued": 0})).await;
    let calls = acquire_permits(&limits, &agent, ADAPTIVE_LIMIT);
    let fault = try_acquire_now(&limits, &agent).expect("at once").unwrap_err();
    assert_overloaded_by(&fault, "agent");
    assert!(fault.detail().unwrap().contains("agent a: adaptive concurrency limit 6 reached"), "{fault}");
    assert!(limits.has_metric("gatepost_limited_requests_total{limit=\"adaptive\",agent=\"-\"} 1"));
    assert!(limits.limits.try_acquire_permit(&agent, CLIENT).is_none());
    drop(calls);
    assert!(limits.limits.try_acquire_permit(&agent, CLIENT).is_some());
    // Other agents are not limited.
    assert_eq!(acquire_permits(&limits, &limits.agent("b"), 60).len(), 60);
}

#[tokio::test(start_paused = true)]
async fn the_first_byte_of_a_response_frees_the_adaptive_limit_while_the_stream_continues() {
    let (limits, agent) = overloaded_agent(json!({"max_queued": 0})).await;
    let streams = acquire_permits(&limits, &agent, ADAPTIVE_LIMIT);
    streams.iter().for_each(|stream| stream.start_latency_sample().finish(SampleOutcome::Ignored));
    let sockets = acquire_permits(&limits, &agent, ADAPTIVE_LIMIT);
    sockets.iter().for_each(Permit::stop_awaiting_response);
    let calls = acquire_permits(&limits, &agent, ADAPTIVE_LIMIT);
    assert_eq!(
        (agent.in_flight(), try_acquire_now(&limits, &agent).is_some_and(|result| result.is_err())),
        (3 * ADAPTIVE_LIMIT as u32, true)
    );
    // A cancelled call frees the limit once.
    drop(calls);
    drop((streams, sockets));
    let _again = acquire_permits(&limits, &agent, ADAPTIVE_LIMIT);
    assert!(try_acquire_now(&limits, &agent).unwrap().is_err());
}

#[tokio::test(start_paused = true)]
async fn a_client_that_takes_the_whole_adaptive_limit_delays_no_other_client() {
    let queue_settings = json!({"max_queued": 64, "queue_timeout": "1h"});
    let (limits, agent) = overloaded_agent(queue_settings).await;
    let shares = json!({"concurrency": {"max_per_agent": 100, "max_queued": 64, "queue_timeout": "1h"}});
    limits.limits.reconfigure(&config(shares)).unwrap();
    let limits = Arc::new(limits);
    // Alone, a client may use all of it. Its further calls wait.
    let _calls = acquire_permits(&limits, &agent, ADAPTIVE_LIMIT);
    for _ in 0..20 {
        let (limits, agent) = (Arc::clone(&limits), Arc::clone(&agent));
        tokio::spawn(async move { limits.limits.acquire_permit(&agent, CLIENT).await.map(drop) });
    }
    tokio::task::yield_now().await;
    let acquire = |client| limits.limits.acquire_permit(&agent, ClientKey::new(client)).now_or_never();
    let _others: Vec<_> =
        [2, 2, 3].map(|client| acquire(client).expect("no call of the client is queued").unwrap()).into();
    assert!(acquire(4).is_none(), "the limit is reached without the excess of the first client");
}

#[tokio::test(start_paused = true)]
async fn queued_calls_get_the_freed_limit_in_order_of_arrival() {
    let (limits, agent) = overloaded_agent(json!({"max_queued": 2, "queue_timeout": "1h"})).await;
    let mut calls = acquire_permits(&limits, &agent, ADAPTIVE_LIMIT);
    let (limits, order) = (Arc::new(limits), Arc::new(Mutex::new(Vec::new())));
    let mut tasks = Vec::new();
    for name in ["first", "second"] {
        let (limits, agent, order) = (Arc::clone(&limits), Arc::clone(&agent), Arc::clone(&order));
        tasks.push(tokio::spawn(async move {
            let call = limits.limits.acquire_permit(&agent, CLIENT).await.unwrap();
            order.lock().push(name);
            call
        }));
        tokio::task::yield_now().await;
    }
    assert_overloaded_by(&try_acquire_now(&limits, &agent).expect("the queue is full").unwrap_err(), "agent");
    calls.truncate(ADAPTIVE_LIMIT - 2);
    let mut permits = Vec::new();
    for task in tasks {
        permits.push(task.await.unwrap());
    }
    assert_eq!(*order.lock(), ["first", "second"]);
    drop(permits);
    // A cancelled call leaves the queue.
    let (others, agent) = (Arc::clone(&limits), Arc::clone(&agent));
    let _two = acquire_permits(&limits, &agent, 2);
    let cancelled = tokio::spawn({
        let agent = Arc::clone(&agent);
        async move { others.limits.acquire_permit(&agent, CLIENT).await.map(drop) }
    });
    tokio::task::yield_now().await;
    cancelled.abort();
    assert!(cancelled.await.unwrap_err().is_cancelled());
    drop(calls);
    assert!(try_acquire_now(&limits, &agent).expect("a free permit").is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_permanently_occupied_queue_shortens_the_wait() {
    let (limits, agent) = overloaded_agent(json!({"max_queued": 64, "queue_timeout": "1s"})).await;
    let limits = Arc::new(limits);
    let _calls = acquire_permits(&limits, &agent, ADAPTIVE_LIMIT);
    let wait = {
        let (limits, agent) = (Arc::clone(&limits), Arc::clone(&agent));
        move || {
            let (limits, agent) = (Arc::clone(&limits), Arc::clone(&agent));
            tokio::spawn(async move {
                let started_at = tokio::time::Instant::now();
                assert_overloaded_by(&limits.limits.acquire_permit(&agent, CLIENT).await.unwrap_err(), "agent");
                started_at.elapsed()
            })
        }
    };
    let first = wait();
    tokio::task::yield_now().await;
    limits.clock.advance(Duration::from_millis(1_050));
    // The baseline latency.
    let shortened = wait().await.unwrap();
    assert!((BASE_LATENCY / 2..2 * BASE_LATENCY).contains(&shortened), "{shortened:?}");
    assert!(first.await.unwrap() >= Duration::from_secs(1));
    limits.clock.advance(Duration::from_millis(150));
    assert!(wait().await.unwrap() >= Duration::from_secs(1));
}

#[tokio::test(start_paused = true)]
async fn a_fixed_limit_does_not_adapt() {
    for (limits, settings) in [
        (json!({"max_per_agent": 100, "adaptive": false, "max_queued": 0}), AgentLimitSettings::default()),
        (
            json!({"max_per_agent": 100, "max_queued": 0}),
            AgentLimitSettings { adaptive_concurrency: Some(false), ..AgentLimitSettings::default() },
        ),
        (json!({"max_per_agent": null, "max_queued": 0}), AgentLimitSettings::default()),
        (json!({"min_concurrency": 100, "max_per_agent": 100, "max_queued": 0}), AgentLimitSettings::default()),
    ] {
        let limits = fixture(json!({ "concurrency": limits }));
        let agent = limits.limits.register_agent(&"a".parse().unwrap(), settings);
        for latency in [BASE_LATENCY, 10 * BASE_LATENCY, 10 * BASE_LATENCY] {
            let calls = acquire_permits(&limits, &agent, 100);
            let samples: Vec<_> = calls.iter().map(Permit::start_latency_sample).collect();
            limits.clock.advance(latency);
            samples.into_iter().for_each(|sample| sample.finish(SampleOutcome::Responded));
        }
        assert_eq!(acquire_permits(&limits, &agent, 100).len(), 100);
    }
}

#[tokio::test(start_paused = true)]
async fn a_gateway_without_calls_is_not_probed_and_one_with_few_calls_seldom() {
    let metrics = Metrics::new().unwrap();
    let shedder = LoadShedder::new(Arc::clone(&metrics));
    let measure = async || {
        let start = tokio::time::Instant::now();
        assert!(shedder.measure_run_queue_delay().await < Duration::from_millis(2));
        start.elapsed().as_millis() / 10 * 10
    };
    assert_eq!(measure().await, 500);
    let mut calls = vec![metrics.track_call()];
    assert_eq!(measure().await, 1_000);
    calls.resize_with(31, || metrics.track_call());
    assert_eq!(measure().await, 1_000);
    calls.push(metrics.track_call());
    assert_eq!(measure().await, 100);
    calls.clear();
    assert_eq!(measure().await, 500);
    // What is shed ends as soon as before, also where no call is left.
    shedder.update_level(Duration::from_secs(1), Some(Duration::from_millis(10)), 2);
    assert_eq!(measure().await, 100);
}

#[test]
fn the_lowest_priority_is_refused_first_and_the_highest_never_completely() {
    let (shedder, threshold) = (LoadShedder::new(Metrics::new().unwrap()), Some(Duration::from_millis(10)));
    let refused_count = |rank| (0..1_000).filter(|_| shedder.decide_refusal(rank)).count();
    assert_eq!((refused_count(0), refused_count(1)), (0, 0));
    shedder.update_level(Duration::from_millis(11), threshold, 2);
    assert!((50..80).contains(&refused_count(0)), "{}", refused_count(0));
    assert_eq!(refused_count(1), 0);
    for _ in 0..4 {
        shedder.update_level(Duration::from_secs(1), threshold, 2);
    }
    assert_eq!(refused_count(0), 1_000);
    assert!((30..100).contains(&refused_count(1)), "{}", refused_count(1));
    assert!((1.03..1.1).contains(&shedder.level()), "{}", shedder.level());
    for _ in 0..100 {
        shedder.update_level(Duration::from_secs(1), threshold, 2);
    }
    assert!((900..960).contains(&refused_count(1)), "{}", refused_count(1));
    for _ in 0..200 {
        shedder.update_level(Duration::from_millis(10), threshold, 2);
    }
    assert_eq!((refused_count(0), shedder.level()), (0, 0.0));
    shedder.update_level(Duration::from_secs(1), threshold, 2);
    shedder.update_level(Duration::from_secs(1), None, 2);
    assert_eq!(refused_count(0), 0, "load shedding was disabled");
}

#[test]
fn load_shedding_is_reported_in_the_fault_and_uses_no_tokens_of_the_caller() {
    let limits = fixture(json!({
        "per_caller": "1/h",
        "tiers": {"gold": {"priority": 9}, "tin": {"priority": 1}, "plain": {}},
    }));
    let is_shed = |tier| limits.limits.shed_by_tier(tier).is_err();
    let tiers = [Some("tin"), None, Some("plain"), Some("unheard of"), Some("gold")];
    assert_eq!(tiers.map(is_shed), [false; 5]);
    for _ in 0..4 {
        limits.limits.load_shedder.update_level(Duration::from_secs(1), Some(Duration::from_millis(10)), 3);
    }
    assert!(limits.limits.is_shedding());
    assert_eq!(tiers.map(is_shed), [true, false, false, false, false]);
    assert_overloaded_by(&limits.limits.shed_by_tier(Some("tin")).unwrap_err(), "gateway");
    assert!(limits.has_metric("gatepost_limited_requests_total{limit=\"gateway\",agent=\"-\"} 2"));
    assert!(limits.has_metric("gatepost_load_shed_requests_total{priority=\"1\"} 2"));
    for _ in 0..4 {
        limits.limits.load_shedder.update_level(Duration::from_secs(1), Some(Duration::from_millis(10)), 3);
    }
    assert_eq!(tiers.map(is_shed), [true, true, true, true, false]);
}

#[test]
fn repeated_credentials_on_a_connection_are_refused_before_authentication() {
    let limits = fixture(json!({"tiers": {"gold": {"priority": 9}, "tin": {"priority": 1}}}));
    let (limits, last_caller) = (limits.limits, std::sync::atomic::AtomicU64::new(0));
    for _ in 0..4 {
        limits.load_shedder.update_level(Duration::from_secs(1), Some(Duration::from_millis(10)), 3);
    }
    assert!(matches!(limits.shed_before_authentication(&last_caller, "a key"), Ok(false)), "no call yet");
    limits.remember_connection_caller(&last_caller, "a key", Some("tin"));
    assert_overloaded_by(&limits.shed_before_authentication(&last_caller, "a key").unwrap_err(), "gateway");
    assert!(matches!(limits.shed_before_authentication(&last_caller, "another"), Ok(false)));
    limits.remember_connection_caller(&last_caller, "another", Some("gold"));
    assert!(matches!(limits.shed_before_authentication(&last_caller, "another"), Ok(true)));
    assert!(matches!(limits.shed_before_authentication(&last_caller, "a key"), Ok(false)));
}

#[test]
fn ranks_count_only_the_priorities_in_use() {
    let tiers: Vec<config::TierConfig> =
        [9, 2, 9].map(|priority| config::TierConfig { priority: Some(priority), ..Default::default() }).into();
    let ranks = PriorityRanks::new(tiers.iter());
    assert_eq!(([2, 5, 9].map(|priority| ranks.rank_of(priority)), ranks.count()), ([0, 1, 2], 3));
}
