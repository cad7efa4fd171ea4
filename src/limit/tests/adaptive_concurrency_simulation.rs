//! Simulation of the adaptive concurrency limit with agents on a virtual clock: which calls it admits and refuses, and
//! how it recovers.

use crate::limit::{adaptive_concurrency::AdaptiveLimit, concurrency_range::ConcurrencyRange};
use std::{
    cmp::Reverse,
    collections::{BinaryHeap, VecDeque},
    time::Duration,
};

/// A simulated agent that works on `servers` calls at once and queues the others, and its callers.
struct SimulatedAgent {
    limit: AdaptiveLimit,
    /// Calls that the agent works on at once.
    servers: usize,
    now: u64,
    random: u64,
    /// Calls queued at the agent: when the agent received each, when it arrived, and its work.
    queue: VecDeque<(u64, u64, u64)>,
    /// Calls in progress: when each completes, when the agent received it, and when it arrived.
    busy: BinaryHeap<Reverse<(u64, u64, u64)>>,
    /// Calls in the wait queue: when each arrived, when it times out, and its work.
    wait_queue: VecDeque<(u64, u64, u64)>,
    /// When the queue became occupied, and when a call last left it.
    occupied_since: u64,
    last_departure: u64,
}

/// Outcomes of the calls of a period.
#[derive(Default)]
struct CallOutcomes {
    completed: usize,
    refused: usize,
    latencies: Vec<u64>,
}

impl CallOutcomes {
    fn percentile(&mut self, share: f64) -> f64 {
        self.latencies.sort_unstable();
        let last_index = self.latencies.len().saturating_sub(1);
        self.latencies[(last_index as f64 * share) as usize] as f64 / 1e3
    }
}

impl SimulatedAgent {
    fn new(servers: usize, max_concurrency: u32) -> Self {
        let range = ConcurrencyRange { min: 4, max: max_concurrency };
        Self {
            limit: AdaptiveLimit::new(range, Duration::ZERO),
            servers,
            now: 0,
            random: 7,
            queue: VecDeque::new(),
            busy: BinaryHeap::new(),
            wait_queue: VecDeque::new(),
            occupied_since: 0,
            last_departure: 0,
        }
    }

    fn random(&mut self) -> f64 {
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.random >> 11) as f64 / (1u64 << 53) as f64
    }

    fn waiting(&self) -> u32 {
        (self.queue.len() + self.busy.len()) as u32
    }

    /// Sends `rate` calls a second, at random times, for `duration` seconds; `work` returns the work of each call, in
    /// microseconds.
    fn send_calls(&mut self, (rate, duration): (f64, f64), mut work: impl FnMut(f64, f64) -> f64) -> CallOutcomes {
        let (mut outcomes, end) = (CallOutcomes::default(), self.now + (duration * 1e6) as u64);
        loop {
            let next = self.now + (-(1.0 - self.random()).ln() / rate * 1e6) as u64;
            self.run_until(next.min(end), &mut outcomes);
            if next >= end {
                return outcomes;
            }
            let call_work = work(self.random(), self.random()) as u64;
            let timeout = self.queue_timeout();
            if self.wait_queue.len() < 64 {
                self.wait_queue.push_back((self.now, self.now + timeout, call_work));
                self.start_calls(&mut outcomes);
            } else {
                outcomes.refused += 1;
            }
        }
    }

    /// Returns how long a call may wait: `queue_timeout`, or the baseline latency if the queue is permanently occupied.
    fn queue_timeout(&mut self) -> u64 {
        if self.wait_queue.is_empty() && self.now - self.last_departure >= 100_000 {
            self.occupied_since = self.now;
        }
        let baseline = self.limit.baseline_latency().map_or(0, |baseline| baseline.as_micros() as u64);
        if self.now - self.occupied_since >= 1_000_000 { baseline } else { 1_000_000 }
    }

    fn start_calls(&mut self, outcomes: &mut CallOutcomes) {
        if !self.wait_queue.is_empty() {
            self.last_departure = self.now;
        }
        self.wait_queue.retain(|(_, deadline, _)| {
            outcomes.refused += usize::from(*deadline < self.now);
            *deadline >= self.now
        });
        while self.waiting() < self.limit.current() {
            let Some((arrived_at, _, work)) = self.wait_queue.pop_front() else { break };
            self.queue.push_back((self.now, arrived_at, work));
        }
        while self.busy.len() < self.servers {
            let Some((received_at, arrived_at, work)) = self.queue.pop_front() else { return };
            self.busy.push(Reverse((self.now + work, received_at, arrived_at)));
        }
    }

    /// Runs the agent until `end`.
    fn run_until(&mut self, end: u64, outcomes: &mut CallOutcomes) {
        while let Some(Reverse((completed_at, received_at, arrived_at))) =
            self.busy.peek().copied().filter(|Reverse((completed_at, ..))| *completed_at <= end)
        {
            self.now = completed_at;
            if self.limit.select_for_sampling(self.waiting()) {
                let (started_at, now) = (Duration::from_micros(received_at), Duration::from_micros(completed_at));
                self.limit.record_response(started_at, now, self.waiting());
            }
            self.busy.pop();
            outcomes.completed += 1;
            outcomes.latencies.push(completed_at - arrived_at);
            self.start_calls(outcomes);
        }
        self.now = end;
        self.start_calls(outcomes);
    }
}

/// Returns work that varies little.
fn nearly_constant(micros: f64) -> impl FnMut(f64, f64) -> f64 {
    move |random, _| micros * (0.8 + 0.4 * random)
}

/// Returns exponentially distributed work.
fn exponential(micros: f64) -> impl FnMut(f64, f64) -> f64 {
    move |random, _| micros * (0.2 - 0.8 * (1.0 - random).ln())
}

#[test]
fn twice_the_capacity_of_an_agent_keeps_it_busy_and_its_responses_fast() {
    for (servers, micros) in [(10, 50_000.0), (2, 20_000.0), (16, 20_000.0), (100, 400_000.0)] {
        let capacity = servers as f64 / micros * 1e6;
        let mut agent = SimulatedAgent::new(servers, 1000);
        let mut before = agent.send_calls((capacity * 0.95, 60.0), exponential(micros));
        assert!(before.refused * 10 <= before.completed, "{servers}: {} of {}", before.refused, before.completed);
        agent.send_calls((capacity * 2.0, 60.0), exponential(micros));
        let mut after = agent.send_calls((capacity * 2.0, 60.0), exponential(micros));
        assert!(after.completed as f64 >= 0.9 * 60.0 * capacity);
        assert!(after.percentile(0.99) <= 1.5 * before.percentile(0.99));
    }
}

#[test]
fn overload_is_detected_long_before_the_configured_maximum() {
    let mut agent = SimulatedAgent::new(10, 1000);
    agent.send_calls((70.0, 5.0), nearly_constant(100_000.0));
    let mut last_second = CallOutcomes::default();
    for _ in 0..12 {
        last_second = agent.send_calls((200.0, 1.0), nearly_constant(100_000.0));
    }
    assert!(agent.limit.current() <= 20, "{}", agent.limit.current());
    let (completed, max_latency) = (last_second.completed, last_second.percentile(1.0));
    assert!(completed >= 90 && max_latency <= 1_500.0, "{completed} {max_latency}");
}

/// Returns work of two kinds: `long` for a share `slow_share` of the calls, and `short` for the others.
fn two_kinds(slow_share: f64, (short, long): (f64, f64)) -> impl FnMut(f64, f64) -> f64 {
    move |random, kind_random| (0.7 + 0.6 * random) * if kind_random < slow_share { long } else { short }
}

#[test]
fn a_slow_agent_without_overload_is_not_limited() {
    for (slow_share, kinds, rate, duration) in [
        (0.1, (50_000.0, 30e6), 200.0, 240.0),
        (0.5, (50_000.0, 30e6), 40.0, 600.0),
        (0.5, (1_000.0, 1e6), 1_200.0, 60.0),
        (0.9, (50_000.0, 30e6), 22.0, 1_200.0),
        (1.0, (50_000.0, 30e6), 20.0, 1_200.0),
        (0.05, (20_000.0, 10e6), 1_000.0, 80.0),
    ] {
        let mut agent = SimulatedAgent::new(usize::MAX, 1000);
        let outcomes = agent.send_calls((rate, duration), two_kinds(slow_share, kinds));
        assert!(
            outcomes.refused * 100 <= outcomes.completed,
            "{slow_share} {kinds:?} {} of {}",
            outcomes.refused,
            outcomes.completed
        );
    }
}

#[test]
fn an_agent_that_becomes_slower_without_overload_is_not_limited() {
    let mut agent = SimulatedAgent::new(usize::MAX, 100);
    let before = agent.send_calls((1_200.0, 60.0), exponential(50_000.0));
    assert!(before.refused * 50 <= before.completed, "{} of {}", before.refused, before.completed);
    agent.send_calls((1_200.0, 30.0), exponential(150_000.0));
    let after = agent.send_calls((1_200.0, 60.0), exponential(150_000.0));
    assert!(after.completed as f64 >= 0.85 * 60.0 * 100.0 / 0.15, "{}", after.completed);
    agent.send_calls((1_200.0, 30.0), exponential(50_000.0));
    let again = agent.send_calls((1_200.0, 60.0), exponential(50_000.0));
    assert!(again.refused * 50 <= again.completed, "{} of {}", again.refused, again.completed);
}

#[test]
fn the_limit_follows_an_agent_that_loses_and_regains_capacity() {
    let mut agent = SimulatedAgent::new(20, 1000);
    let capacity = 20.0 / 0.05;
    agent.send_calls((capacity * 1.5, 60.0), exponential(50_000.0));
    agent.servers = 5;
    agent.send_calls((capacity * 1.5, 60.0), exponential(50_000.0));
    let few = agent.send_calls((capacity * 1.5, 60.0), exponential(50_000.0));
    assert!(few.completed as f64 >= 0.9 * 60.0 * capacity / 4.0);
    assert!(agent.limit.current() <= 12, "{}", agent.limit.current());
    agent.servers = 20;
    agent.send_calls((capacity * 1.5, 30.0), exponential(50_000.0));
    let all = agent.send_calls((capacity * 1.5, 60.0), exponential(50_000.0));
    assert!(all.completed as f64 >= 0.9 * 60.0 * capacity);
}

#[test]
fn an_agent_that_stops_responding_gets_few_calls_and_all_of_them_after_it_recovers() {
    let mut agent = SimulatedAgent::new(usize::MAX, 1000);
    agent.send_calls((500.0, 30.0), nearly_constant(50_000.0));
    // Each call times out after 5 s; 500 a second would be 2500 at once.
    let mut now = agent.now;
    for _ in 0..20 {
        now += 5_000_000;
        for waiting in (0..agent.limit.current()).rev() {
            agent.limit.record_overload(Duration::from_micros(now), waiting + 1);
        }
    }
    agent.now = now;
    let limit = agent.limit.current();
    assert!(limit <= 10, "{limit}");
    agent.send_calls((500.0, 30.0), nearly_constant(50_000.0));
    let after = agent.send_calls((500.0, 30.0), nearly_constant(50_000.0));
    assert_eq!(after.refused, 0);
}

#[test]
fn a_limit_that_is_not_reached_does_not_change() {
    let mut agent = SimulatedAgent::new(10, 1000);
    agent.send_calls((400.0, 60.0), exponential(50_000.0));
    // A window that measures the baseline with fewer calls may be under way.
    agent.send_calls((2.0, 200.0), nearly_constant(50_000.0));
    let limit = agent.limit.current();
    assert!((8..30).contains(&limit), "{limit}");
    let outcomes = agent.send_calls((2.0, 600.0), nearly_constant(50_000.0));
    assert_eq!((agent.limit.current(), outcomes.refused), (limit, 0));
}

#[test]
fn an_agent_close_to_its_capacity_is_not_limited() {
    let mut agent = SimulatedAgent::new(64, 128);
    let outcomes = agent.send_calls((600.0, 120.0), exponential(100_000.0));
    assert!(outcomes.refused * 25 <= outcomes.completed, "{} of {}", outcomes.refused, outcomes.completed);
}

#[test]
fn long_latencies_fit_the_packed_window() {
    let limit = AdaptiveLimit::new(ConcurrencyRange { min: 1, max: 10 }, Duration::ZERO);
    for at in 0..4_000u64 {
        let now = Duration::from_secs(1_000_000_000 + at);
        limit.record_response(Duration::from_secs(at), now, 1);
    }
    assert_eq!(limit.current(), 10);
}
