//! Tests of the shares of clients: an agent's concurrency and wait queues, concurrent calls, memory for bodies and
//! WebSockets.

use super::*;

fn client(number: u64) -> ClientKey {
    ClientKey::new(number)
}

fn limits_with_share(mut concurrency: Value, max_share: f64) -> LimitFixture {
    concurrency.as_object_mut().unwrap().entry("adaptive").or_insert(json!(false));
    fixture(json!({"concurrency": concurrency, "max_share": max_share}))
}

#[track_caller]
fn assert_share_used_up<T: std::fmt::Debug>(result: Result<T, Fault>) {
    let fault = result.unwrap_err();
    assert_eq!((fault.code(), fault.http_status()), (FaultCode::RateLimited, 429));
    assert!(fault.message().contains("(limits.max_share)"), "{fault}");
    assert!(fault.retry_after_secs().is_some());
}

#[tokio::test(start_paused = true)]
async fn a_client_has_half_of_an_agents_slots_and_waits_for_its_own_calls() {
    let limits = limits_with_share(json!({"max_per_agent": 4, "max_queued": 2, "queue_timeout": "1s"}), 0.5);
    let agent = limits.agent("a");
    let acquire = |number| limits.limits.acquire_permit(&agent, client(number));
    let first = acquire(1).await.unwrap();
    let _second = acquire(1).await.unwrap();
    let started_at = tokio::time::Instant::now();
    assert_share_used_up(acquire(1).await);
    assert_eq!(started_at.elapsed(), Duration::from_secs(1), "the call waits for its own");
    assert!(limits.has_metric("gatepost_limited_requests_total{limit=\"share\",agent=\"-\"} 1"));
    let (waiting, ()) = tokio::join!(acquire(1), async {
        tokio::task::yield_now().await;
        // One of the two places in the queue is the client's: a further call is refused at once.
        let started_at = tokio::time::Instant::now();
        assert_share_used_up(acquire(1).await);
        assert_eq!(started_at.elapsed(), Duration::ZERO);
        drop(first);
    });
    let _third = waiting.unwrap();
    // Others have the rest.
    let _others = [acquire(2).await.unwrap(), acquire(3).await.unwrap()];
    assert_eq!(agent.in_flight(), 4);
    let fault = acquire(4).await.unwrap_err();
    assert_eq!((fault.code(), fault.http_status()), (FaultCode::Overloaded, 503));
}

#[tokio::test]
async fn a_client_has_at_least_one_slot_and_with_a_share_of_1_all_of_them() {
    let limits = limits_with_share(json!({"max_per_agent": 1, "max_queued": 0}), 0.5);
    let agent = limits.agent("a");
    let permit = limits.limits.acquire_permit(&agent, client(1)).await.unwrap();
    let fault = limits.limits.acquire_permit(&agent, client(1)).await.unwrap_err();
    assert_eq!(fault.http_status(), 503, "the share of one slot is the whole");
    drop(permit);
    assert!(limits.limits.try_acquire_permit(&agent, client(1)).is_some());

    let limits = limits_with_share(json!({"max_per_agent": 4, "max_queued": 0}), 1.0);
    let agent = limits.agent("a");
    let permits: Vec<_> =
        futures_util::future::join_all((0..4).map(|_| limits.limits.acquire_permit(&agent, client(1)))).await;
    assert!(permits.iter().all(Result::is_ok));
    let fault = limits.limits.acquire_permit(&agent, client(1)).await.unwrap_err();
    assert_eq!(fault.code(), FaultCode::Overloaded, "the whole is full");
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_call_that_waits_for_its_share_wakes_the_next_one() {
    let limits = limits_with_share(json!({"max_per_agent": 2, "max_queued": 8, "queue_timeout": "10s"}), 0.5);
    let agent = limits.agent("a");
    let permit = limits.limits.acquire_permit(&agent, client(1)).await.unwrap();
    let (limits, agent) = (Arc::new(limits), agent);
    let wait = || {
        let (limits, agent) = (Arc::clone(&limits), Arc::clone(&agent));
        tokio::spawn(async move { limits.limits.acquire_permit(&agent, client(1)).await.map(drop) })
    };
    let (cancelled, next) = (wait(), wait());
    tokio::task::yield_now().await;
    drop(permit);
    cancelled.abort();
    next.await.unwrap().unwrap();
    assert_eq!(agent.in_flight(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_client_has_half_of_the_wait_queue() {
    let limits = limits_with_share(json!({"max_per_agent": 8, "max_queued": 2, "queue_timeout": "10s"}), 0.5);
    let agent = limits.agent("a");
    let _full: Vec<_> = futures_util::future::join_all(
        [1, 1, 1, 2, 2, 2, 3, 3].map(|number| limits.limits.acquire_permit(&agent, client(number))),
    )
    .await;
    // Client 3 is below its share of the slots; the agent is full.
    let (limits, agent) = (Arc::new(limits), agent);
    let wait = |number| {
        let (limits, agent) = (Arc::clone(&limits), Arc::clone(&agent));
        tokio::spawn(async move { limits.limits.acquire_permit(&agent, client(number)).await.map(drop) })
    };
    let _waiting = wait(3);
    tokio::task::yield_now().await;
    assert_share_used_up(limits.limits.acquire_permit(&agent, client(3)).await);
    let _another = wait(1);
    tokio::task::yield_now().await;
    let fault = limits.limits.acquire_permit(&agent, client(2)).await.unwrap_err();
    assert_eq!(fault.code(), FaultCode::Overloaded, "the whole queue is full: {fault}");
}

#[tokio::test]
async fn clients_without_calls_are_swept_from_an_agents_table() {
    let limits = limits_with_share(json!({"max_per_agent": 100}), 0.5);
    let agent = limits.agent("a");
    let held = limits.limits.acquire_permit(&agent, client(0)).await.unwrap();
    for number in 1..10_000 {
        limits.limits.acquire_permit(&agent, client(number)).await.unwrap();
    }
    let count = agent.active.load().concurrency.as_ref().unwrap().client_count();
    assert!(count <= 65, "{count}");
    drop(held);
}

#[tokio::test]
async fn a_caller_has_at_most_max_per_caller_calls_at_once_over_all_agents() {
    let limits = fixture(json!({"concurrency": {"max_per_caller": 2}, "max_share": 0.5}));
    let (a, b) = (limits.agent("a"), limits.agent("b"));
    let _permits = [
        limits.limits.acquire_permit(&a, client(1)).await.unwrap(),
        limits.limits.acquire_permit(&b, client(1)).await.unwrap(),
    ];
    let fault = limits.limits.acquire_permit(&b, client(1)).await.unwrap_err();
    assert_eq!(fault.http_status(), 429);
    assert!(fault.message().contains("limits.concurrency.max_per_caller"), "{fault}");
    assert!(limits.limits.try_acquire_permit(&a, client(1)).is_none());
    assert!(limits.limits.acquire_permit(&b, client(2)).await.is_ok());
}

#[test]
fn bodies_of_one_client_take_at_most_its_share_of_the_memory_and_return_it() {
    let limits = fixture(json!({"max_buffered_bodies": "1MiB", "max_share": 0.5}));
    let mut bodies: Vec<_> = (0..8).map(|_| limits.limits.reserve_body(client(1))).collect();
    bodies.iter_mut().for_each(|body| body.grow_to(60 << 10).unwrap());
    // A step of 16 KiB is reserved already.
    bodies[0].grow_to(64 << 10).unwrap();
    assert_share_used_up(bodies[0].grow_to((64 << 10) + 1));
    assert!(limits.has_metric("gatepost_limited_requests_total{limit=\"bodies\",agent=\"-\"} 1"));
    let mut others: Vec<_> = (2..18).map(|number| limits.limits.reserve_body(client(number))).collect();
    others.iter_mut().for_each(|body| body.grow_to(32 << 10).unwrap());
    let mut last = limits.limits.reserve_body(client(99));
    let fault = last.grow_to(1).unwrap_err();
    assert_eq!((fault.code(), fault.http_status()), (FaultCode::Overloaded, 503));
    assert!(fault.message().contains("limits.max_buffered_bodies") && fault.retry_after_secs().is_some(), "{fault}");
    drop((bodies, others));
    // A refused growth, too, is returned with its body.
    drop(last);
    limits.limits.reserve_body(client(99)).grow_to(512 << 10).unwrap();
}

#[test]
fn unread_answers_of_one_client_take_its_share_and_a_lone_one_may_be_longer() {
    let limits = fixture(json!({"max_buffered_answers": "16MiB", "max_share": 0.25}));
    let reserve = |number, length| limits.limits.answers().reserve(client(number), length);
    let held: Vec<_> = (0..4).map(|_| reserve(1, 1 << 20).unwrap()).collect();
    assert_share_used_up(reserve(1, 1).map(drop));
    let lone = reserve(2, 10 << 20).unwrap();
    assert_share_used_up(reserve(2, 1).map(drop));
    let fault = reserve(3, 4 << 20).unwrap_err();
    assert_eq!((fault.code(), fault.http_status()), (FaultCode::Overloaded, 503));
    assert!(fault.message().contains("limits.max_buffered_answers"), "{fault}");
    assert!(limits.has_metric("gatepost_limited_requests_total{limit=\"answers\",agent=\"-\"} 3"));
    drop((held, lone));
    // Longer than everything, while nobody holds anything.
    drop(reserve(3, 20 << 20).unwrap());
    assert!(!AnswerLimits::are_for(16 << 10) && AnswerLimits::are_for((16 << 10) + 1));
}

#[test]
fn websockets_of_one_client_take_at_most_its_share() {
    let limits = fixture(json!({"max_share": 0.5}));
    let agent = limits.agent("ws");
    let open = |number| limits.limits.count_websocket(&agent, client(number), 4);
    let held = [open(1).unwrap(), open(1).unwrap()];
    assert_share_used_up(open(1));
    let _others = [open(2).unwrap(), open(3).unwrap()];
    assert_eq!(open(4).unwrap_err().http_status(), 503);
    drop(held);
    assert!(open(1).is_ok());
}
