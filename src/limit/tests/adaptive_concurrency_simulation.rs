//! Simulation of the adaptive concurrency limit against agents on a virtual clock: what it refuses and admits, and how
//! it recovers.

use crate::limit::adaptive_concurrency::{AdaptiveLimit, ConcurrencyRange};
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
    answered: usize,
    refused: usize,
    latencies: Vec<u64>,
}

impl CallOutcomes {
    fn percentile(&mut self, share: f64) -> f64 {
        self.latencies.sort_unstable();
        let last = self.latencies.len().saturating_sub(1);
        self.latencies[(last as f64 * share) as usize] as f64 / 1e3
    }
}

impl SimulatedAgent {
    fn new(servers: usize, most: u32) -> Self {
        let range = ConcurrencyRange { min: 4, max: most };
        let learner = AdaptiveLimit::new(range, Duration::ZERO);
        Self {
            limit: learner,
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

    /// Sends `rate` calls a second, at random times, for `lasts` seconds; `work` returns the work of each, in
    /// microseconds.
    fn send_calls(&mut self, (rate, lasts): (f64, f64), mut work: impl FnMut(f64, f64) -> f64) -> CallOutcomes {
        let (mut came, end) = (CallOutcomes::default(), self.now + (lasts * 1e6) as u64);
        loop {
            let next = self.now + (-(1.0 - self.random()).ln() / rate * 1e6) as u64;
            self.run_until(next.min(end), &mut came);
            if next >= end {
                return came;
            }
            let one = work(self.random(), self.random()) as u64;
            let patience = self.queue_timeout();
            if self.wait_queue.len() < 64 {
                self.wait_queue.push_back((self.now, self.now + patience, one));
                self.start_calls(&mut came);
            } else {
                came.refused += 1;
            }
        }
    }

    /// Returns how long a call may wait: `queue_wait`, or the usual latency once the queue is permanently occupied.
    fn queue_timeout(&mut self) -> u64 {
        if self.wait_queue.is_empty() && self.now - self.last_departure >= 100_000 {
            self.occupied_since = self.now;
        }
        let usual = self.limit.baseline_latency().map_or(0, |usual| usual.as_micros() as u64);
        if self.now - self.occupied_since >= 1_000_000 { usual } else { 1_000_000 }
    }

    fn start_calls(&mut self, counted: &mut CallOutcomes) {
        if !self.wait_queue.is_empty() {
            self.last_departure = self.now;
        }
        self.wait_queue.retain(|(_, until, _)| {
            counted.refused += usize::from(*until < self.now);
            *until >= self.now
        });
        while self.waiting() < self.limit.current() {
            let Some((came, _, work)) = self.wait_queue.pop_front() else { break };
            self.queue.push_back((self.now, came, work));
        }
        while self.busy.len() < self.servers {
            let Some((had, came, work)) = self.queue.pop_front() else { return };
            self.busy.push(Reverse((self.now + work, had, came)));
        }
    }

    /// Runs the agent until `then`.
    fn run_until(&mut self, then: u64, counted: &mut CallOutcomes) {
        while let Some(Reverse((done, had, came))) =
            self.busy.peek().copied().filter(|Reverse((done, ..))| *done <= then)
        {
            self.now = done;
            let span = (Duration::from_micros(had), Duration::from_micros(done));
            if self.limit.should_sample(self.waiting()) {
                self.limit.record_response(span, self.waiting());
            }
            self.busy.pop();
            counted.answered += 1;
            counted.latencies.push(done - came);
            self.start_calls(counted);
        }
        self.now = then;
        self.start_calls(counted);
    }
}

/// Returns work that varies little.
fn nearly_constant(micros: f64) -> impl FnMut(f64, f64) -> f64 {
    move |a, _| micros * (0.8 + 0.4 * a)
}

/// Returns exponentially distributed work.
fn exponential(micros: f64) -> impl FnMut(f64, f64) -> f64 {
    move |a, _| micros * (0.2 - 0.8 * (1.0 - a).ln())
}

#[test]
fn twice_the_capacity_of_an_agent_keeps_it_busy_and_its_responses_fast() {
    for (servers, micros) in [(10, 50_000.0), (2, 20_000.0), (16, 20_000.0), (100, 400_000.0)] {
        let capacity = servers as f64 / micros * 1e6;
        let mut world = SimulatedAgent::new(servers, 1000);
        let mut before = world.send_calls((capacity * 0.95, 60.0), exponential(micros));
        assert!(before.refused * 10 <= before.answered, "{servers}: {} of {}", before.refused, before.answered);
        world.send_calls((capacity * 2.0, 60.0), exponential(micros));
        let mut after = world.send_calls((capacity * 2.0, 60.0), exponential(micros));
        assert!(after.answered as f64 >= 0.9 * 60.0 * capacity);
        assert!(after.percentile(0.99) <= 1.5 * before.percentile(0.99));
    }
}

#[test]
fn overload_is_detected_long_before_the_configured_maximum() {
    let mut world = SimulatedAgent::new(10, 1000);
    world.send_calls((70.0, 5.0), nearly_constant(100_000.0));
    let mut first = CallOutcomes::default();
    for _ in 0..12 {
        first = world.send_calls((200.0, 1.0), nearly_constant(100_000.0));
    }
    assert!(world.limit.current() <= 20, "{}", world.limit.current());
    let (answered, late) = (first.answered, first.percentile(1.0));
    assert!(answered >= 90 && late <= 1_500.0, "{answered} {late}");
}

/// Returns work of two kinds: a share `slow` takes a thousand times as long as the rest.
fn two_kinds(slow: f64, (fast, long): (f64, f64)) -> impl FnMut(f64, f64) -> f64 {
    move |a, b| (0.7 + 0.6 * a) * if b < slow { long } else { fast }
}

#[test]
fn a_slow_agent_without_overload_is_not_limited() {
    for (slow, kinds, rate, lasts) in [
        (0.1, (50_000.0, 30e6), 200.0, 240.0),
        (0.5, (50_000.0, 30e6), 40.0, 600.0),
        (0.5, (1_000.0, 1e6), 1_200.0, 60.0),
        (0.9, (50_000.0, 30e6), 22.0, 1_200.0),
        (1.0, (50_000.0, 30e6), 20.0, 1_200.0),
        (0.05, (20_000.0, 10e6), 1_000.0, 80.0),
    ] {
        let mut world = SimulatedAgent::new(usize::MAX, 1000);
        let came = world.send_calls((rate, lasts), two_kinds(slow, kinds));
        assert!(came.refused * 100 <= came.answered, "{slow} {kinds:?} {} of {}", came.refused, came.answered);
    }
}

#[test]
fn an_agent_that_becomes_slower_without_overload_is_not_limited() {
    let mut world = SimulatedAgent::new(usize::MAX, 100);
    let before = world.send_calls((1_200.0, 60.0), exponential(50_000.0));
    assert!(before.refused * 50 <= before.answered, "{} of {}", before.refused, before.answered);
    world.send_calls((1_200.0, 30.0), exponential(150_000.0));
    let after = world.send_calls((1_200.0, 60.0), exponential(150_000.0));
    assert!(after.answered as f64 >= 0.85 * 60.0 * 100.0 / 0.15, "{}", after.answered);
    world.send_calls((1_200.0, 30.0), exponential(50_000.0));
    let again = world.send_calls((1_200.0, 60.0), exponential(50_000.0));
    assert!(again.refused * 50 <= again.answered, "{} of {}", again.refused, again.answered);
}

#[test]
fn the_limit_follows_an_agent_that_loses_and_regains_capacity() {
    let mut world = SimulatedAgent::new(20, 1000);
    let capacity = 20.0 / 0.05;
    world.send_calls((capacity * 1.5, 60.0), exponential(50_000.0));
    world.servers = 5;
    world.send_calls((capacity * 1.5, 60.0), exponential(50_000.0));
    let few = world.send_calls((capacity * 1.5, 60.0), exponential(50_000.0));
    assert!(few.answered as f64 >= 0.9 * 60.0 * capacity / 4.0);
    assert!(world.limit.current() <= 12, "{}", world.limit.current());
    world.servers = 20;
    world.send_calls((capacity * 1.5, 30.0), exponential(50_000.0));
    let all = world.send_calls((capacity * 1.5, 60.0), exponential(50_000.0));
    assert!(all.answered as f64 >= 0.9 * 60.0 * capacity);
}

#[test]
fn an_agent_that_stops_responding_gets_few_calls_and_all_of_them_after_it_recovers() {
    let mut world = SimulatedAgent::new(usize::MAX, 1000);
    world.send_calls((500.0, 30.0), nearly_constant(50_000.0));
    // Each call times out after 5 s; 500 a second would be 2500 at once.
    let mut now = world.now;
    for _ in 0..20 {
        now += 5_000_000;
        for waiting in (0..world.limit.current()).rev() {
            world.limit.record_overload(Duration::from_micros(now), waiting + 1);
        }
    }
    world.now = now;
    let bound = world.limit.current();
    assert!(bound <= 10, "{bound}");
    world.send_calls((500.0, 30.0), nearly_constant(50_000.0));
    let after = world.send_calls((500.0, 30.0), nearly_constant(50_000.0));
    assert_eq!(after.refused, 0);
}

#[test]
fn a_limit_that_is_not_reached_does_not_change() {
    let mut world = SimulatedAgent::new(10, 1000);
    world.send_calls((400.0, 60.0), exponential(50_000.0));
    // A window that measures the baseline with fewer calls may be under way.
    world.send_calls((2.0, 200.0), nearly_constant(50_000.0));
    let learnt = world.limit.current();
    assert!((8..30).contains(&learnt), "{learnt}");
    let quiet = world.send_calls((2.0, 600.0), nearly_constant(50_000.0));
    assert_eq!((world.limit.current(), quiet.refused), (learnt, 0));
}

#[test]
fn an_agent_close_to_its_capacity_is_not_limited() {
    let mut world = SimulatedAgent::new(64, 128);
    let came = world.send_calls((600.0, 120.0), exponential(100_000.0));
    assert!(came.refused * 25 <= came.answered, "{} of {}", came.refused, came.answered);
}

#[test]
fn long_latencies_fit_the_packed_window() {
    let learner = AdaptiveLimit::new(ConcurrencyRange { min: 1, max: 10 }, Duration::ZERO);
    for at in 0..4_000u64 {
        let now = Duration::from_secs(1_000_000_000 + at);
        learner.record_response((Duration::from_secs(at), now), 1);
    }
    assert_eq!(learner.current(), 10);
}
