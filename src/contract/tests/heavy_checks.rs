//! Tests of the threads for heavy checks: bounds, deadlines, callers that leave, and checks that panic.

use super::*;
use crate::values::{ClientKey, MaxShare};
use parking_lot::Mutex;
use std::{
    sync::{
        atomic::{AtomicUsize, Ordering},
        mpsc,
    },
    time::{Duration, Instant},
};
use tokio::task::JoinHandle;

fn limits(max_per_agent: u16, max_queued: u16) -> HeavyCheckConfig {
    HeavyCheckConfig { max_per_agent, max_queued }
}

fn request<'a>(agent: &'a AgentHeavyChecks, config: &'a HeavyCheckConfig) -> HeavyCheckRequest<'a> {
    HeavyCheckRequest { agent, client: ClientKey::new(1), config, max_share: MaxShare::UNLIMITED, deadline: soon() }
}

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(10)
}

/// Starts a check that runs until the sender is dropped. Returns once the check runs.
async fn start_blocked(
    pool: &HeavyCheckPool,
    agent: &AgentHeavyChecks,
    config: HeavyCheckConfig,
) -> (mpsc::Sender<()>, JoinHandle<Result<(), Fault>>) {
    let (release, released) = mpsc::channel::<()>();
    let (started, has_started) = tokio::sync::oneshot::channel();
    let (pool, agent) = (pool.clone(), agent.clone());
    let task = tokio::spawn(async move {
        let check = move || {
            let _ = started.send(());
            let _ = released.recv();
        };
        pool.run(request(&agent, &config), check).await
    });
    has_started.await.unwrap();
    (release, task)
}

#[tokio::test]
async fn r127_an_agent_has_a_bound_on_its_heavy_checks_and_others_go_on() {
    let (pool, agent, other) = (HeavyCheckPool::default(), AgentHeavyChecks::default(), AgentHeavyChecks::default());
    let (release, task) = start_blocked(&pool, &agent, limits(1, 64)).await;
    let fault = pool.run(request(&agent, &limits(1, 64)), || 1).await.unwrap_err();
    assert_eq!(fault.code(), FaultCode::Overloaded);
    assert!(fault.message().contains("of this agent"), "{fault}");
    if std::thread::available_parallelism().is_ok_and(|cores| cores.get() > 1) {
        assert_eq!(pool.run(request(&other, &limits(1, 64)), || 2).await.unwrap(), 2);
    }
    drop(release);
    task.await.unwrap().unwrap();
    // The slot is free a moment after the result has arrived.
    let deadline = soon();
    while pool.run(request(&agent, &limits(1, 64)), || 3).await.is_err() {
        assert!(Instant::now() < deadline);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn r127_few_heavy_checks_wait_and_no_longer_than_their_deadline() {
    let (pool, config) = (HeavyCheckPool::default(), limits(64, 1));
    let agent = AgentHeavyChecks::default();
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let mut blocked = Vec::new();
    for _ in 0..cores {
        blocked.push(start_blocked(&pool, &agent, config.clone()).await);
    }
    let runs = Arc::new(AtomicUsize::new(0));
    let count_run = || {
        let runs = Arc::clone(&runs);
        move || runs.fetch_add(1, Ordering::SeqCst)
    };
    let fault = pool
        .run(
            HeavyCheckRequest { deadline: Instant::now() + Duration::from_millis(50), ..request(&agent, &config) },
            count_run(),
        )
        .await
        .unwrap_err();
    assert_eq!(fault.code(), FaultCode::Timeout);
    let fault = pool.run(request(&agent, &config), count_run()).await.unwrap_err();
    assert!(fault.code() == FaultCode::Overloaded && fault.message().contains("waiting"), "{fault}");
    for (release, task) in blocked {
        drop(release);
        task.await.unwrap().unwrap();
    }
    pool.run(request(&AgentHeavyChecks::default(), &limits(1, 64)), || ()).await.unwrap();
    assert_eq!(runs.load(Ordering::SeqCst), 0, "a check whose caller has left does not run");
}

fn panicking_check() {
    panic!("a check that panics");
}

#[tokio::test]
async fn r127_a_check_that_panics_ends_neither_its_thread_nor_its_agents_slot() {
    let (pool, agent) = (HeavyCheckPool::default(), AgentHeavyChecks::default());
    for _ in 0..20 {
        let fault = pool.run(request(&agent, &limits(2, 64)), panicking_check).await.unwrap_err();
        assert!([FaultCode::Internal, FaultCode::Overloaded].contains(&fault.code()), "{fault}");
    }
    let deadline = soon();
    while pool.run(request(&agent, &limits(2, 64)), || ()).await.is_err() {
        assert!(Instant::now() < deadline);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn r5_a_client_has_half_of_an_agents_heavy_checks_and_of_the_queue() {
    let (pool, config) = (HeavyCheckPool::default(), limits(4, 2));
    let agents = [(); 6].map(|()| AgentHeavyChecks::default());
    let of_client = |agent, client| HeavyCheckRequest {
        client: ClientKey::new(client),
        max_share: MaxShare::default(),
        ..request(agent, &config)
    };
    let (release, released) = mpsc::channel::<()>();
    let released = Arc::new(Mutex::new(released));
    let start = |agent: usize, client: u64| {
        let (pool, released) = (pool.clone(), Arc::clone(&released));
        let (agent, config) = (agents[agent].clone(), config.clone());
        tokio::spawn(async move {
            let request = HeavyCheckRequest {
                client: ClientKey::new(client),
                max_share: MaxShare::default(),
                ..request(&agent, &config)
            };
            let wait = move || {
                let _ = released.lock().recv();
            };
            pool.run(request, wait).await
        })
    };
    let mut running = vec![start(0, 1), start(0, 1)];
    tokio::time::sleep(Duration::from_millis(50)).await;
    let fault = pool.run(of_client(&agents[0], 1), || ()).await.unwrap_err();
    assert_eq!((fault.code(), fault.http_status()), (FaultCode::RateLimited, 429), "{fault}");
    // Of the threads and the queue, too, the client has half. Another client still finds a place.
    let places = std::thread::available_parallelism().map_or(1, usize::from) + 2;
    for place in 2..places / 2 {
        running.push(start(place, 1));
    }
    tokio::time::sleep(Duration::from_millis(50)).await;
    let fault = pool.run(of_client(&agents[5], 1), || ()).await.unwrap_err();
    assert_eq!(fault.code(), FaultCode::RateLimited, "{fault}");
    let other = start(1, 2);
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert!(!other.is_finished(), "it runs or waits");
    drop(release);
    for task in running.into_iter().chain([other]) {
        task.await.unwrap().unwrap();
    }
}

#[tokio::test]
async fn r5_a_waiting_client_comes_before_one_that_has_a_check_running() {
    let (pool, config) = (HeavyCheckPool::default(), limits(64, 64));
    let agent = AgentHeavyChecks::default();
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let mut blocked = Vec::new();
    for _ in 0..cores {
        blocked.push(start_blocked(&pool, &agent, config.clone()).await);
    }
    let order = Arc::new(Mutex::new(Vec::new()));
    let waiting: Vec<_> = [1, 1, 2]
        .map(|client| {
            let (pool, agent, config, order) = (pool.clone(), agent.clone(), config.clone(), Arc::clone(&order));
            async move {
                let request = HeavyCheckRequest { client: ClientKey::new(client), ..request(&agent, &config) };
                pool.run(request, move || order.lock().push(client)).await.unwrap();
            }
        })
        .into_iter()
        .map(tokio::spawn)
        .collect();
    tokio::time::sleep(Duration::from_millis(50)).await;
    // One thread becomes free, while client 1 has checks on the others.
    let (release, task) = blocked.pop().unwrap();
    drop(release);
    task.await.unwrap().unwrap();
    for task in waiting {
        task.await.unwrap();
    }
    let first = order.lock().first().copied();
    assert!(cores == 1 || first == Some(2), "{:?}", order.lock());
    for (release, task) in blocked {
        drop(release);
        task.await.unwrap().unwrap();
    }
}
