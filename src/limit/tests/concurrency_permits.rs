//! Tests of the concurrency limit: calls that are admitted, queued and refused, and permits that are returned.

use super::*;

fn limits_with_queue(max_per_agent: u32, max_queued: u32, queue_timeout: &str) -> LimitFixture {
    fixture(
        json!({"concurrency": {"max_per_agent": max_per_agent, "max_queued": max_queued, "queue_timeout": queue_timeout}}),
    )
}

#[track_caller]
fn assert_overloaded(result: Result<Permit, Fault>) -> Fault {
    let fault = result.unwrap_err();
    assert_eq!((fault.code(), fault.http_status()), (FaultCode::Overloaded, 503));
    assert!(fault.retry_after_secs().is_some());
    fault
}

#[tokio::test(start_paused = true)]
async fn a_call_beyond_the_limit_waits_and_is_refused_when_queue_timeout_elapses() {
    let limits = limits_with_queue(1, 1, "1s");
    let agent = limits.agent("a");
    let permit = limits.limits.acquire_permit(&agent, CLIENT).await.unwrap();
    assert_eq!(agent.in_flight(), 1);
    assert_overloaded(limits.limits.acquire_permit(&agent, CLIENT).await);
    assert!(limits.has_metric("gatepost_limited_requests_total{limit=\"concurrency\",agent=\"-\"} 1"));
    drop(permit);
    assert_eq!(agent.in_flight(), 0);
    assert!(limits.limits.acquire_permit(&agent, CLIENT).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn queued_calls_get_a_free_permit_in_order_of_arrival() {
    let limits = Arc::new(limits_with_queue(1, 2, "10s"));
    let agent = limits.agent("a");
    let permit = limits.limits.acquire_permit(&agent, CLIENT).await.unwrap();
    let order = Arc::new(Mutex::new(Vec::new()));
    let mut queued_calls = Vec::new();
    for name in ["first", "second"] {
        let (limits, agent, order) = (Arc::clone(&limits), Arc::clone(&agent), Arc::clone(&order));
        queued_calls.push(tokio::spawn(async move {
            let _permit = limits.limits.acquire_permit(&agent, CLIENT).await.unwrap();
            order.lock().push(name);
        }));
        tokio::task::yield_now().await;
    }
    drop(permit);
    for task in queued_calls {
        task.await.unwrap();
    }
    assert_eq!(*order.lock(), ["first", "second"]);
}

#[tokio::test(start_paused = true)]
async fn a_full_queue_refuses_at_once() {
    let limits = Arc::new(limits_with_queue(1, 1, "3600s"));
    let agent = limits.agent("a");
    let _permit = limits.limits.acquire_permit(&agent, CLIENT).await.unwrap();
    let queued_calls = tokio::spawn({
        let (limits, agent) = (Arc::clone(&limits), Arc::clone(&agent));
        async move { limits.limits.acquire_permit(&agent, CLIENT).await.map(drop) }
    });
    tokio::task::yield_now().await;
    let started_at = tokio::time::Instant::now();
    let fault = assert_overloaded(limits.limits.acquire_permit(&agent, CLIENT).await);
    assert!(fault.detail().unwrap().contains("wait queue full"), "{fault}");
    assert_eq!(started_at.elapsed(), Duration::ZERO);

    // A cancelled call leaves the queue.
    queued_calls.abort();
    assert!(queued_calls.await.unwrap_err().is_cancelled());
    let queued = tokio::time::timeout(Duration::from_secs(1), limits.limits.acquire_permit(&agent, CLIENT)).await;
    assert!(queued.is_err(), "the call waits");
}

#[tokio::test]
async fn each_agent_has_its_own_limit_and_its_settings_may_lower_it() {
    let limits = limits_with_queue(2, 0, "0s");
    let settings = AgentLimitSettings { max_concurrency: NonZeroU32::new(1), ..AgentLimitSettings::default() };
    let (a, b) = (limits.agent("a"), limits.limits.register_agent(&"b".parse().unwrap(), settings));
    let _permits = [
        limits.limits.acquire_permit(&a, CLIENT).await.unwrap(),
        limits.limits.acquire_permit(&a, CLIENT).await.unwrap(),
        limits.limits.acquire_permit(&b, CLIENT).await.unwrap(),
    ];
    assert_overloaded(limits.limits.acquire_permit(&a, CLIENT).await);
    assert_overloaded(limits.limits.acquire_permit(&b, CLIENT).await);
}

#[tokio::test]
async fn a_panic_returns_the_permit() {
    let limits = Arc::new(limits_with_queue(1, 0, "0s"));
    let agent = limits.agent("a");
    let permit = limits.limits.acquire_permit(&agent, CLIENT).await.unwrap();
    let task = tokio::spawn(async move {
        let _permit = permit;
        std::panic::resume_unwind(Box::new("x"));
    });
    assert!(task.await.is_err());
    assert!(limits.limits.acquire_permit(&agent, CLIENT).await.is_ok());
}

#[tokio::test]
async fn a_reload_changes_the_limit_and_null_removes_it() {
    let limits = limits_with_queue(1, 0, "0s");
    let agent = limits.agent("a");
    let _permit = limits.limits.acquire_permit(&agent, CLIENT).await.unwrap();
    let set_max_per_agent = |max: Value| {
        limits.limits.reconfigure(&config(json!({"concurrency": {"max_per_agent": max, "max_queued": 0}}))).unwrap()
    };
    set_max_per_agent(json!(1));
    assert_overloaded(limits.limits.acquire_permit(&agent, CLIENT).await);
    set_max_per_agent(json!(null));
    let permits: Vec<_> =
        futures_util::future::join_all((0..100).map(|_| limits.limits.acquire_permit(&agent, CLIENT))).await;
    assert!(permits.iter().all(Result::is_ok));
    assert_eq!(agent.in_flight(), 101);
}

#[tokio::test]
async fn an_inspection_of_the_concurrency_decides_as_a_call_would_and_takes_no_slot() {
    let fixture = fixture(
        json!({"max_share": 0.5, "concurrency": {"max_per_agent": 4, "max_queued": 0, "adaptive": false, "max_per_caller": 3}}),
    );
    let agent = fixture.limits.register_agent(&"a".parse().unwrap(), AgentLimitSettings::default());
    let mut held = Vec::new();
    for client in [1, 1, 1, 2, 2, 3].map(ClientKey::new) {
        let inspect = || fixture.limits.inspect_permit(&agent, client).map_err(|fault| fault.rule());
        let inspected = inspect();
        assert_eq!(inspect(), inspected);
        let acquired = fixture.limits.acquire_permit(&agent, client).await;
        assert_eq!(inspected.is_ok(), acquired.is_ok(), "{client:?}");
        if let Err(fault) = &acquired {
            assert_eq!(inspected, Err(fault.rule()));
        }
        held.extend(acquired);
    }
    assert_eq!(held.len(), 4);
    assert_eq!(agent.in_flight(), 4);
    held.clear();
    assert!(matches!(fixture.limits.inspect_permit(&agent, ClientKey::new(3)), Ok(None)));
}
