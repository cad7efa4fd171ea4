//! Tests of the adaptive concurrency limit as calls meet it, and of load shedding.

use super::*;
use crate::limit::shed::{Ranks, Shed};
use futures_util::FutureExt;

const BASE: Duration = Duration::from_millis(100);
/// The adaptive limit that [`overloaded_agent`] yields.
const LEARNT: usize = 6;

/// Returns an agent that was overloaded: the limit fell from 100 to [`ADAPTIVE_LIMIT`].
async fn learnt(queue: Value) -> (Fixture, Arc<AgentLimits>) {
    let mut concurrency = json!({"per_agent": 100});
    concurrency.as_object_mut().unwrap().extend(queue.as_object().unwrap().clone());
    let limits = fixture(json!({ "concurrency": concurrency }));
    let agent = limits.agent("a");
    for took in [BASE, 10 * BASE] {
        let calls: Vec<_> =
            (0..50).map(|_| limits.limits.enter(&agent).now_or_never().expect("a free permit").unwrap()).collect();
        let questions: Vec<_> = calls.iter().map(Permit::asks).collect();
        limits.clock.advance(took);
        questions.into_iter().for_each(|question| question.ended(Said::Answer));
    }
    (limits, agent)
}

fn enter(limits: &Fixture, agent: &Arc<AgentLimits>) -> Option<Result<Permit, Fault>> {
    limits.limits.enter(agent).now_or_never()
}

fn held(limits: &Fixture, agent: &Arc<AgentLimits>, count: usize) -> Vec<Permit> {
    (0..count).map(|_| enter(limits, agent).expect("a free permit").unwrap()).collect()
}

#[track_caller]
fn is_overloaded(fault: &Fault, by: &str) {
    assert_eq!((fault.code(), fault.http_status()), (Code::Overloaded, 503));
    assert_eq!(fault.retry_after_secs(), Some(1));
    let error = &fault.error_object("id")["error"];
    assert_eq!(error["overloaded"], by, "{error}");
    assert!(error["message"].as_str().unwrap().contains("all callers"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_call_beyond_the_adaptive_limit_is_refused_at_once_without_a_queue() {
    let (limits, agent) = learnt(json!({"queue": 0})).await;
    let calls = held(&limits, &agent, LEARNT);
    let fault = enter(&limits, &agent).expect("at once").unwrap_err();
    is_overloaded(&fault, "agent");
    assert!(fault.internal().unwrap().contains("agent a: adaptive concurrency limit 6 reached"), "{fault}");
    assert!(limits.counts("gatepost_limited_requests_total{limit=\"adaptive\"} 1"));
    assert!(limits.limits.try_enter(&agent).is_none());
    drop(calls);
    assert!(limits.limits.try_enter(&agent).is_some());
    // Other agents are not limited.
    assert_eq!(held(&limits, &limits.agent("b"), 60).len(), 60);
}

#[tokio::test(start_paused = true)]
async fn the_first_byte_of_a_response_frees_the_adaptive_limit_while_the_stream_continues() {
    let (limits, agent) = learnt(json!({"queue": 0})).await;
    let streams = held(&limits, &agent, LEARNT);
    streams.iter().for_each(|stream| stream.asks().ended(Said::Nothing));
    let sockets = held(&limits, &agent, LEARNT);
    sockets.iter().for_each(Permit::rests);
    let calls = held(&limits, &agent, LEARNT);
    assert_eq!(
        (agent.in_flight(), enter(&limits, &agent).is_some_and(|entered| entered.is_err())),
        (3 * LEARNT as u32, true)
    );
    // A cancelled call frees the limit once.
    drop(calls);
    drop((streams, sockets));
    let _again = held(&limits, &agent, LEARNT);
    assert!(enter(&limits, &agent).unwrap().is_err());
}

#[tokio::test(start_paused = true)]
async fn queued_calls_get_the_freed_limit_in_order_of_arrival() {
    let (limits, agent) = learnt(json!({"queue": 2, "queue_wait": "1h"})).await;
    let mut calls = held(&limits, &agent, LEARNT);
    let (limits, order) = (Arc::new(limits), Arc::new(Mutex::new(Vec::new())));
    let mut waiting = Vec::new();
    for name in ["first", "second"] {
        let (limits, agent, order) = (Arc::clone(&limits), Arc::clone(&agent), Arc::clone(&order));
        waiting.push(tokio::spawn(async move {
            let call = limits.limits.enter(&agent).await.unwrap();
            order.lock().unwrap().push(name);
            call
        }));
        tokio::task::yield_now().await;
    }
    is_overloaded(&enter(&limits, &agent).expect("the queue is full").unwrap_err(), "agent");
    calls.truncate(LEARNT - 2);
    let mut entered = Vec::new();
    for waits in waiting {
        entered.push(waits.await.unwrap());
    }
    assert_eq!(*order.lock().unwrap(), ["first", "second"]);
    drop(entered);
    // A cancelled call leaves the queue.
    let (others, agent) = (Arc::clone(&limits), Arc::clone(&agent));
    let _two = held(&limits, &agent, 2);
    let leaves = tokio::spawn({
        let agent = Arc::clone(&agent);
        async move { others.limits.enter(&agent).await.map(drop) }
    });
    tokio::task::yield_now().await;
    leaves.abort();
    assert!(leaves.await.unwrap_err().is_cancelled());
    drop(calls);
    assert!(enter(&limits, &agent).expect("a free permit").is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_permanently_occupied_queue_shortens_the_wait() {
    let (limits, agent) = learnt(json!({"queue": 64, "queue_wait": "1s"})).await;
    let limits = Arc::new(limits);
    let _calls = held(&limits, &agent, LEARNT);
    let wait = {
        let (limits, agent) = (Arc::clone(&limits), Arc::clone(&agent));
        move || {
            let (limits, agent) = (Arc::clone(&limits), Arc::clone(&agent));
            tokio::spawn(async move {
                let begun = tokio::time::Instant::now();
                is_overloaded(&limits.limits.enter(&agent).await.unwrap_err(), "agent");
                begun.elapsed()
            })
        }
    };
    let first = wait();
    tokio::task::yield_now().await;
    limits.clock.advance(Duration::from_millis(1_050));
    // The usual latency.
    let short = wait().await.unwrap();
    assert!((BASE / 2..2 * BASE).contains(&short), "{short:?}");
    assert!(first.await.unwrap() >= Duration::from_secs(1));
    limits.clock.advance(Duration::from_millis(150));
    assert!(wait().await.unwrap() >= Duration::from_secs(1));
}

#[tokio::test(start_paused = true)]
async fn a_fixed_limit_does_not_adapt() {
    for (limits, own) in [
        (json!({"per_agent": 100, "adaptive": false, "queue": 0}), Bounds::default()),
        (json!({"per_agent": 100, "queue": 0}), Bounds { adaptive: Some(false), ..Bounds::default() }),
        (json!({"per_agent": null, "queue": 0}), Bounds::default()),
        (json!({"least": 100, "per_agent": 100, "queue": 0}), Bounds::default()),
    ] {
        let limits = fixture(json!({ "concurrency": limits }));
        let agent = limits.limits.agent(&"a".parse().unwrap(), own);
        for took in [BASE, 10 * BASE, 10 * BASE] {
            let calls = held(&limits, &agent, 100);
            let questions: Vec<_> = calls.iter().map(Permit::asks).collect();
            limits.clock.advance(took);
            questions.into_iter().for_each(|question| question.ended(Said::Answer));
        }
        assert_eq!(held(&limits, &agent, 100).len(), 100);
    }
}

#[test]
fn the_lowest_priority_is_refused_first_and_the_highest_never_completely() {
    let (shed, above) = (Shed::default(), Some(Duration::from_millis(10)));
    let refused = |rank| (0..1_000).filter(|_| shed.refuses(rank)).count();
    assert_eq!((refused(0), refused(1)), (0, 0));
    shed.step(Duration::from_millis(11), above, 2);
    assert!((50..80).contains(&refused(0)), "{}", refused(0));
    assert_eq!(refused(1), 0);
    for _ in 0..4 {
        shed.step(Duration::from_secs(1), above, 2);
    }
    assert_eq!(refused(0), 1_000);
    assert!((30..100).contains(&refused(1)), "{}", refused(1));
    for _ in 0..100 {
        shed.step(Duration::from_secs(1), above, 2);
    }
    assert!((900..960).contains(&refused(1)), "{}", refused(1));
    for _ in 0..200 {
        shed.step(Duration::from_millis(10), above, 2);
    }
    assert_eq!((refused(0), shed.level()), (0, 0.0));
    shed.step(Duration::from_secs(1), above, 2);
    shed.step(Duration::from_secs(1), None, 2);
    assert_eq!(refused(0), 0, "load shedding was disabled");
}

#[test]
fn load_shedding_is_reported_in_the_fault_and_uses_no_tokens_of_the_caller() {
    let limits = fixture(json!({
        "per_caller": "1/h",
        "tiers": {"gold": {"priority": 9}, "tin": {"priority": 1}, "plain": {}},
    }));
    let shed = |tier| limits.limits.let_in(tier).is_err();
    let tiers = [Some("tin"), None, Some("plain"), Some("unheard of"), Some("gold")];
    assert_eq!(tiers.map(shed), [false; 5]);
    for _ in 0..4 {
        limits.limits.shed.step(Duration::from_secs(1), Some(Duration::from_millis(10)), 3);
    }
    assert!(limits.limits.is_shedding());
    assert_eq!(tiers.map(shed), [true, false, false, false, false]);
    is_overloaded(&limits.limits.let_in(Some("tin")).unwrap_err(), "gateway");
    assert!(limits.counts("gatepost_limited_requests_total{limit=\"gateway\"} 2"));
    assert!(limits.counts("gatepost_load_shed_requests_total{priority=\"1\"} 2"));
    for _ in 0..4 {
        limits.limits.shed.step(Duration::from_secs(1), Some(Duration::from_millis(10)), 3);
    }
    assert_eq!(tiers.map(shed), [true, true, true, true, false]);
}

#[test]
fn repeated_credentials_on_a_connection_are_refused_before_authentication() {
    let limits = fixture(json!({"tiers": {"gold": {"priority": 9}, "tin": {"priority": 1}}}));
    let (limits, last) = (limits.limits, std::sync::atomic::AtomicU64::new(0));
    for _ in 0..4 {
        limits.shed.step(Duration::from_secs(1), Some(Duration::from_millis(10)), 3);
    }
    assert!(matches!(limits.turn_away(&last, "a key"), Ok(false)), "no call yet");
    limits.remember(&last, "a key", Some("tin"));
    is_overloaded(&limits.turn_away(&last, "a key").unwrap_err(), "gateway");
    assert!(matches!(limits.turn_away(&last, "another"), Ok(false)));
    limits.remember(&last, "another", Some("gold"));
    assert!(matches!(limits.turn_away(&last, "another"), Ok(true)));
    assert!(matches!(limits.turn_away(&last, "a key"), Ok(false)));
}

#[test]
fn ranks_count_only_the_priorities_in_use() {
    let tiers: Vec<config::Tier> =
        [9, 2, 9].map(|priority| config::Tier { priority: Some(priority), ..Default::default() }).into();
    let ranks = Ranks::new(tiers.iter());
    assert_eq!(([2, 5, 9].map(|priority| ranks.of(priority)), ranks.count()), ([0, 1, 2], 3));
}
