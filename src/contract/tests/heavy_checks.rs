//! Tests of the threads for heavy checks: bounds, deadlines, callers that leave, and checks that panic.

use super::*;
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
        pool.run(&agent, &config, soon(), check).await
    });
    has_started.await.unwrap();
    (release, task)
}

#[tokio::test]
async fn r127_an_agent_has_a_bound_on_its_heavy_checks_and_others_go_on() {
    let (pool, agent, other) = (HeavyCheckPool::default(), AgentHeavyChecks::default(), AgentHeavyChecks::default());
    let (release, task) = start_blocked(&pool, &agent, limits(1, 64)).await;
    let fault = pool.run(&agent, &limits(1, 64), soon(), || 1).await.unwrap_err();
    assert_eq!(fault.code(), FaultCode::Overloaded);
    assert!(fault.message().contains("of this agent"), "{fault}");
    if std::thread::available_parallelism().is_ok_and(|cores| cores.get() > 1) {
        assert_eq!(pool.run(&other, &limits(1, 64), soon(), || 2).await.unwrap(), 2);
    }
    drop(release);
    task.await.unwrap().unwrap();
    // The slot is free a moment after the result has arrived.
    let deadline = soon();
    while pool.run(&agent, &limits(1, 64), soon(), || 3).await.is_err() {
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
    let fault = pool.run(&agent, &config, Instant::now() + Duration::from_millis(50), count_run()).await.unwrap_err();
    assert_eq!(fault.code(), FaultCode::Timeout);
    let fault = pool.run(&agent, &config, soon(), count_run()).await.unwrap_err();
    assert!(fault.code() == FaultCode::Overloaded && fault.message().contains("waiting"), "{fault}");
    for (release, task) in blocked {
        drop(release);
        task.await.unwrap().unwrap();
    }
    pool.run(&AgentHeavyChecks::default(), &limits(1, 64), soon(), || ()).await.unwrap();
    assert_eq!(runs.load(Ordering::SeqCst), 0, "a check whose caller has left does not run");
}

fn panicking_check() {
    panic!("a check that panics");
}

#[tokio::test]
async fn r127_a_check_that_panics_ends_neither_its_thread_nor_its_agents_slot() {
    let (pool, agent) = (HeavyCheckPool::default(), AgentHeavyChecks::default());
    for _ in 0..20 {
        let fault = pool.run(&agent, &limits(2, 64), soon(), panicking_check).await.unwrap_err();
        assert!([FaultCode::Internal, FaultCode::Overloaded].contains(&fault.code()), "{fault}");
    }
    let deadline = soon();
    while pool.run(&agent, &limits(2, 64), soon(), || ()).await.is_err() {
        assert!(Instant::now() < deadline);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
