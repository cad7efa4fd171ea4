//! Tests of the suspended checks: bounds, turns, deadlines, callers that leave, and checks that panic.

use super::*;
use crate::values::{ClientKey, MaxShare};
use parking_lot::Mutex;
use std::{
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    time::{Duration, Instant},
};

/// Work that ends when it is told to, and counts its slices.
#[derive(Clone, Default)]
struct Endless {
    slices: Arc<AtomicU64>,
    may_end: Arc<AtomicBool>,
}

impl SuspendedWork for Endless {
    type Output = ();

    #[expect(clippy::disallowed_methods, reason = "the work of a slice takes time")]
    fn resume(&mut self, _: u64) -> Poll<()> {
        self.slices.fetch_add(1, Ordering::SeqCst);
        std::thread::sleep(Duration::from_millis(1));
        if self.may_end.load(Ordering::SeqCst) { Poll::Ready(()) } else { Poll::Pending }
    }
}

impl Endless {
    fn slices(&self) -> u64 {
        self.slices.load(Ordering::SeqCst)
    }

    async fn wait_until_it_runs(&self) {
        let (before, deadline) = (self.slices(), soon());
        while self.slices() == before {
            assert!(Instant::now() < deadline, "it does not run");
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    /// Waits until no slice runs any more.
    async fn wait_until_it_has_ended(&self) {
        let deadline = soon();
        loop {
            let before = self.slices();
            tokio::time::sleep(Duration::from_millis(50)).await;
            if self.slices() == before {
                return;
            }
            assert!(Instant::now() < deadline, "it does not end");
        }
    }
}

/// Work of so many slices, which notes its end.
struct Short {
    slices_left: u32,
    name: u32,
    ended: Arc<Mutex<Vec<u32>>>,
}

impl SuspendedWork for Short {
    type Output = u32;

    #[expect(clippy::disallowed_methods, reason = "the work of a slice takes time")]
    fn resume(&mut self, _: u64) -> Poll<u32> {
        std::thread::sleep(Duration::from_millis(1));
        match self.slices_left.checked_sub(1) {
            Some(left) => {
                self.slices_left = left;
                Poll::Pending
            }
            None => {
                self.ended.lock().push(self.name);
                Poll::Ready(self.name)
            }
        }
    }
}

struct Panicking;

impl SuspendedWork for Panicking {
    type Output = ();

    fn resume(&mut self, _: u64) -> Poll<()> {
        panic!("a check that panics");
    }
}

fn limits(max_per_agent: u16, max_total: u16) -> SuspendedCheckConfig {
    SuspendedCheckConfig { max_per_agent, max_total }
}

fn request<'a>(agent: &'a AgentSuspendedChecks, config: &'a SuspendedCheckConfig, client: u64) -> SuspendRequest<'a> {
    SuspendRequest { agent, client: ClientKey::new(client), config, max_share: MaxShare::UNLIMITED, deadline: soon() }
}

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(20)
}

/// Starts work for a client, of which the future waits in a task.
fn start<W: SuspendedWork>(
    scheduler: &CheckScheduler,
    agent: &AgentSuspendedChecks,
    config: &SuspendedCheckConfig,
    client: u64,
    work: W,
) -> tokio::task::JoinHandle<Result<W::Output, Fault>> {
    let (scheduler, agent, config) = (scheduler.clone(), agent.clone(), config.clone());
    tokio::spawn(async move { scheduler.run(request(&agent, &config, client), work).await })
}

#[tokio::test]
async fn r127_agents_and_all_of_them_have_a_bound_on_their_suspended_checks() {
    let (scheduler, agent, other) =
        (CheckScheduler::default(), AgentSuspendedChecks::default(), AgentSuspendedChecks::default());
    let (config, work) = (limits(1, 2), Endless::default());
    let task = start(&scheduler, &agent, &config, 1, work.clone());
    work.wait_until_it_runs().await;
    let fault = scheduler.run(request(&agent, &config, 1), Endless::default()).await.unwrap_err();
    assert!(fault.code() == FaultCode::Overloaded && fault.message().contains("of this agent"), "{fault}");
    let second = start(&scheduler, &other, &config, 1, work.clone());
    work.wait_until_it_runs().await;
    tokio::time::sleep(Duration::from_millis(20)).await;
    let third = AgentSuspendedChecks::default();
    let fault = scheduler.run(request(&third, &config, 1), Endless::default()).await.unwrap_err();
    assert!(fault.code() == FaultCode::Overloaded && fault.message().contains("Too many long"), "{fault}");
    work.may_end.store(true, Ordering::SeqCst);
    task.await.unwrap().unwrap();
    second.await.unwrap().unwrap();
    // The places are free when the result has arrived.
    scheduler.run(request(&agent, &config, 1), work).await.unwrap();
}

#[tokio::test]
async fn r127_no_check_waits_for_the_end_of_another_one() {
    let (scheduler, agent, config) = (CheckScheduler::default(), AgentSuspendedChecks::default(), limits(64, 64));
    let attackers: Vec<Endless> = (0..8).map(|_| Endless::default()).collect();
    let tasks: Vec<_> =
        (0..32).map(|at| start(&scheduler, &agent, &config, at % 8, attackers[at as usize % 8].clone())).collect();
    attackers[7].wait_until_it_runs().await;
    let ended = Arc::default();
    let work = Short { slices_left: 5, name: 1, ended };
    assert_eq!(scheduler.run(request(&agent, &config, 99), work).await.unwrap(), 1);
    // Between two slices of one client, each other client has had at most a few.
    let slices: Vec<u64> = attackers.iter().map(Endless::slices).collect();
    let (fewest, most) = (slices.iter().min().unwrap(), slices.iter().max().unwrap());
    assert!(most - fewest <= 8 + most / 2, "{slices:?}");
    attackers.iter().for_each(|work| work.may_end.store(true, Ordering::SeqCst));
    for task in tasks {
        task.await.unwrap().unwrap();
    }
}

#[tokio::test]
async fn r127_the_deadline_ends_a_suspended_check() {
    let (scheduler, agent, config) = (CheckScheduler::default(), AgentSuspendedChecks::default(), limits(1, 64));
    let work = Endless::default();
    let deadline = Instant::now() + Duration::from_millis(50);
    let request_with_deadline = SuspendRequest { deadline, ..request(&agent, &config, 1) };
    let fault = scheduler.run(request_with_deadline, work.clone()).await.unwrap_err();
    assert!(fault.code() == FaultCode::Timeout && fault.is_of_deadline(), "{fault}");
    work.wait_until_it_has_ended().await;
    work.may_end.store(true, Ordering::SeqCst);
    scheduler.run(request(&agent, &config, 1), work).await.unwrap();
}

#[tokio::test]
async fn r127_a_check_ends_when_its_caller_has_left() {
    let (scheduler, agent, config) = (CheckScheduler::default(), AgentSuspendedChecks::default(), limits(1, 64));
    let work = Endless::default();
    let task = start(&scheduler, &agent, &config, 1, work.clone());
    work.wait_until_it_runs().await;
    task.abort();
    assert!(task.await.unwrap_err().is_cancelled());
    work.wait_until_it_has_ended().await;
    work.may_end.store(true, Ordering::SeqCst);
    scheduler.run(request(&agent, &config, 1), work).await.unwrap();
}

#[tokio::test]
async fn r127_a_check_that_panics_ends_neither_its_thread_nor_its_agents_place() {
    let (scheduler, agent, config) = (CheckScheduler::default(), AgentSuspendedChecks::default(), limits(2, 64));
    for _ in 0..20 {
        let fault = scheduler.run(request(&agent, &config, 1), Panicking).await.unwrap_err();
        assert!([FaultCode::Internal, FaultCode::Overloaded].contains(&fault.code()), "{fault}");
    }
    let work = Short { slices_left: 1, name: 2, ended: Arc::default() };
    assert_eq!(scheduler.run(request(&agent, &config, 1), work).await.unwrap(), 2);
}

#[tokio::test]
async fn r5_a_client_has_half_of_the_suspended_checks_of_an_agent_and_of_all() {
    let (scheduler, config) = (CheckScheduler::default(), limits(4, 6));
    let agents = [(); 4].map(|()| AgentSuspendedChecks::default());
    let of_client = |agent: usize, client| SuspendRequest {
        max_share: MaxShare::default(),
        ..request(&agents[agent], &config, client)
    };
    let work = Endless::default();
    let mut running = Vec::new();
    for agent in [0, 0] {
        let mut future = Box::pin(scheduler.run(of_client(agent, 1), work.clone()));
        assert!(poll_once(&mut future).await.is_none());
        running.push(future);
    }
    let fault = scheduler.run(of_client(0, 1), work.clone()).await.unwrap_err();
    assert_eq!((fault.code(), fault.http_status()), (FaultCode::RateLimited, 429), "{fault}");
    let mut third = Box::pin(scheduler.run(of_client(1, 1), work.clone()));
    assert!(poll_once(&mut third).await.is_none());
    let fault = scheduler.run(of_client(2, 1), work.clone()).await.unwrap_err();
    assert!(fault.code() == FaultCode::RateLimited && fault.message().contains("all agents"), "{fault}");
    let mut other = Box::pin(scheduler.run(of_client(0, 2), work.clone()));
    assert!(poll_once(&mut other).await.is_none(), "another client has a place");
    work.may_end.store(true, Ordering::SeqCst);
    for future in running {
        future.await.unwrap();
    }
    third.await.unwrap();
    other.await.unwrap();
}

/// Polls a future once; returns its result if it is ready.
async fn poll_once<F: Future + Unpin>(future: &mut F) -> Option<F::Output> {
    std::future::poll_fn(|context| match std::pin::Pin::new(&mut *future).poll(context) {
        Poll::Ready(output) => Poll::Ready(Some(output)),
        Poll::Pending => Poll::Ready(None),
    })
    .await
}

fn checks<'a>(
    scheduler: &'a CheckScheduler,
    agent: &'a AgentSuspendedChecks,
    config: &'a SuspendedCheckConfig,
) -> CallChecks<'a> {
    CallChecks::new(scheduler, owner(agent, config), &())
}

fn owner<'a>(agent: &'a AgentSuspendedChecks, config: &'a SuspendedCheckConfig) -> CheckOwner<'a> {
    CheckOwner { agent, client: ClientKey::new(1), config, deadline: soon() }
}

#[tokio::test]
async fn r127_a_large_body_is_parsed_and_checked_in_slices() {
    let (scheduler, agent, config) = (CheckScheduler::default(), AgentSuspendedChecks::default(), limits(4, 64));
    let schema = json!({"items": {"type": "integer"}});
    let contract =
        OperationContract::compile_input(&Arc::new(schema), &ContractConfig::default(), &DocumentBudget::unlimited())
            .unwrap();
    let text = |last: &str| format!("[{}{last}]", "0,".repeat(400_000));
    for (last, violations) in [("0", 0), ("\"x\"", 1)] {
        let mut checks = checks(&scheduler, &agent, &config);
        let body = checks.parse(text(last).into(), JsonBounds::default()).await.unwrap();
        assert!(body.memory() <= 4 * text(last).len() + 64, "{}", body.memory());
        let result = checks.check_input(&contract, body, Tape::ROOT).await;
        let found = result.err().map_or(0, |fault| fault.violations().len());
        assert_eq!(found, violations, "{last}");
    }
    let mut checks = checks(&scheduler, &agent, &config);
    let failure = checks.parse(text("x").into(), JsonBounds::default()).await.unwrap_err();
    assert!(matches!(failure, ParseFailure::NotJson(_)), "{failure:?}");
}

#[tokio::test]
async fn r44_the_items_of_a_batch_share_the_fuel_of_one_body() {
    let (scheduler, agent, config) = (CheckScheduler::default(), AgentSuspendedChecks::default(), limits(4, 64));
    let mut alternatives: Vec<Value> = (0..300).map(|at| json!({"const": at.to_string()})).collect();
    alternatives.push(json!({"type": "integer"}));
    let slow = json!({"items": {"anyOf": alternatives}});
    let contract_config =
        ContractConfig { fuel: CheckFuel { floor: 1_000_000, per_byte: 0 }, ..ContractConfig::default() };
    let contract =
        OperationContract::compile_input(&Arc::new(slow), &contract_config, &DocumentBudget::unlimited()).unwrap();
    let item = format!("[{}0]", "0,".repeat(3_000));
    let mut checks = checks(&scheduler, &agent, &config);
    let text = format!("[[],{item},{item},{item},[]]");
    let body = checks.parse(text.into(), JsonBounds::default()).await.unwrap();
    let items = body.items(Tape::ROOT).collect();
    let results = checks.check_items(&contract, body, items).await.unwrap();
    assert_eq!(results.len(), 5);
    assert!(results[0].is_ok());
    let last = results[3].as_ref().unwrap_err();
    assert_eq!((last.http_status(), last.code()), (413, FaultCode::PayloadTooLarge), "{last}");
}

/// An account that is used up at once.
struct NoMemory;

impl MemoryAccounts for NoMemory {
    fn open(&self) -> Box<dyn MemoryAccount> {
        Box::new(Self)
    }

    fn max_share(&self) -> MaxShare {
        MaxShare::UNLIMITED
    }
}

impl MemoryAccount for NoMemory {
    fn grow_to(&mut self, _: usize) -> Result<(), Fault> {
        Err(Fault::new(FaultCode::RateLimited, "no memory"))
    }
}

#[tokio::test]
async fn r5_the_memory_of_a_parsed_body_counts_against_the_callers_share() {
    let (scheduler, agent, config) = (CheckScheduler::default(), AgentSuspendedChecks::default(), limits(4, 64));
    for (items, is_counted) in [(100, false), (10_000, true), (400_000, true)] {
        let mut checks = CallChecks::new(&scheduler, owner(&agent, &config), &NoMemory);
        let text = format!("[{}0]", "0,".repeat(items));
        let result = checks.parse(text.into(), JsonBounds::default()).await;
        assert_eq!(matches!(result, Err(ParseFailure::Refused(_))), is_counted, "{items}");
    }
}
