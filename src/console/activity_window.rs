//! The calls of the last quarter of an hour, in intervals: those of all agents together, and those of each agent that was
//! called. Pure data: [`super::activity`] reads the counters.

use crate::telemetry::{CallBlame, CallCounts, DurationCounts, count_since};
use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
    time::Duration,
};

/// Number of intervals that are kept.
pub(super) const MAX_INTERVALS: usize = 90;

/// Maximum number of agents whose intervals are kept. An agent that is called all the time needs 2 KiB.
const MAX_AGENTS: usize = 10_000;

/// What the counters say at one moment.
#[derive(Debug, Default)]
pub(super) struct CounterReading {
    /// The time since the reading before.
    pub(super) elapsed: Duration,
    /// The calls of all agents, since the start.
    pub(super) totals: CallCounts,
    /// The calls of each agent that was ever called, by its label.
    pub(super) agents: Vec<(Arc<str>, AgentCalls)>,
    /// The calls in flight.
    pub(super) in_flight: usize,
    /// The access-log entries that were dropped since the start.
    pub(super) dropped_log_entries: u64,
}

/// The calls of one agent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct AgentCalls {
    pub(super) calls: u64,
    /// The calls that the agent failed.
    pub(super) failures: u64,
}

impl AgentCalls {
    pub(super) fn new(counts: &CallCounts) -> Self {
        Self { calls: counts.calls(), failures: counts.of(CallBlame::Agent) }
    }

    fn since(self, earlier: Self) -> Self {
        Self { calls: count_since(self.calls, earlier.calls), failures: count_since(self.failures, earlier.failures) }
    }

    fn plus(self, other: Self) -> Self {
        Self { calls: self.calls + other.calls, failures: self.failures + other.failures }
    }
}

/// One interval of all agents together.
#[derive(Clone, Debug)]
pub(super) struct Interval {
    /// How long it was.
    pub(super) length: Duration,
    /// The calls that ended in it.
    pub(super) counts: CallCounts,
    /// The calls in flight at its end.
    pub(super) in_flight: usize,
    /// The access-log entries that were dropped in it.
    pub(super) dropped_log_entries: u64,
}

impl Interval {
    /// Returns a number of the interval per second.
    pub(super) fn per_second(&self, count: u64) -> f64 {
        count as f64 / self.length.as_secs_f64().max(0.001)
    }
}

/// The calls of one agent in one interval in which it was called.
#[derive(Clone, Copy, Debug)]
struct AgentInterval {
    number: u64,
    calls: AgentCalls,
}

/// What is kept of one agent. Without a call in the window, that is the last reading only.
#[derive(Debug, Default)]
struct AgentIntervals {
    latest: AgentCalls,
    intervals: VecDeque<AgentInterval>,
}

/// The calls of one agent in the window.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct AgentActivity {
    /// Calls per second in each interval, the oldest first.
    pub(super) calls: Vec<f64>,
    /// Failures per second in each interval.
    pub(super) failures: Vec<f64>,
    /// All calls of the window.
    pub(super) total: AgentCalls,
}

impl AgentActivity {
    /// Returns the calls per second in the newest interval.
    pub(super) fn current_rate(&self) -> f64 {
        self.calls.last().copied().unwrap_or_default()
    }
}

/// The window.
#[derive(Debug, Default)]
pub(super) struct ActivityWindow {
    /// Number of the newest interval; the first is 1.
    number: u64,
    intervals: VecDeque<Interval>,
    totals: CallCounts,
    dropped_log_entries: u64,
    agents: HashMap<Arc<str>, AgentIntervals>,
}

impl ActivityWindow {
    /// Adds the interval that a reading ends.
    pub(super) fn record(&mut self, reading: CounterReading) {
        self.number += 1;
        if self.intervals.len() >= MAX_INTERVALS {
            self.intervals.pop_front();
        }
        self.intervals.push_back(Interval {
            length: reading.elapsed,
            counts: reading.totals.since(&self.totals),
            in_flight: reading.in_flight,
            dropped_log_entries: count_since(reading.dropped_log_entries, self.dropped_log_entries),
        });
        self.totals = reading.totals;
        self.dropped_log_entries = reading.dropped_log_entries;
        // Agents that are gone are in no reading, and are forgotten.
        let mut previous = std::mem::take(&mut self.agents);
        let (mut called, oldest) = (0, self.number.saturating_sub(MAX_INTERVALS as u64));
        self.agents.reserve(reading.agents.len());
        for (label, calls) in reading.agents {
            let mut agent = previous.remove(&label).unwrap_or_default();
            let new = calls.since(agent.latest);
            agent.latest = calls;
            while agent.intervals.front().is_some_and(|interval| interval.number <= oldest) {
                agent.intervals.pop_front();
            }
            if new.calls > 0 && called < MAX_AGENTS {
                agent.intervals.push_back(AgentInterval { number: self.number, calls: new });
            }
            if agent.intervals.is_empty() {
                agent.intervals = VecDeque::new();
            } else {
                called += 1;
            }
            self.agents.insert(label, agent);
        }
    }

    /// Returns the intervals, the oldest first.
    pub(super) fn intervals(&self) -> impl DoubleEndedIterator<Item = &Interval> {
        self.intervals.iter()
    }

    /// Returns the durations of the newest `count` intervals.
    pub(super) fn newest_durations(&self, count: usize) -> WindowDurations {
        let mut durations = WindowDurations::default();
        for interval in self.intervals.iter().rev().take(count) {
            durations.calls.add(&interval.counts.durations);
            durations.gateway.add(&interval.counts.gateway_durations);
        }
        durations
    }

    /// Returns the calls of an agent; none for an agent that was not called in the window.
    pub(super) fn of_agent(&self, label: &str) -> AgentActivity {
        let mut activity = AgentActivity {
            calls: vec![0.0; self.intervals.len()],
            failures: vec![0.0; self.intervals.len()],
            total: AgentCalls::default(),
        };
        let first = self.number.saturating_sub(self.intervals.len() as u64) + 1;
        for AgentInterval { number, calls } in self.agents.get(label).into_iter().flat_map(|agent| &agent.intervals) {
            let Some(at) = number.checked_sub(first).and_then(|at| usize::try_from(at).ok()) else { continue };
            let places = activity.calls.get_mut(at).zip(activity.failures.get_mut(at));
            if let (Some((rate, failure_rate)), Some(interval)) = (places, self.intervals.get(at)) {
                (*rate, *failure_rate) = (interval.per_second(calls.calls), interval.per_second(calls.failures));
                activity.total = activity.total.plus(*calls);
            }
        }
        activity
    }

    /// Returns the agents that were called in the window, with their calls.
    pub(super) fn called_agents(&self) -> HashMap<Arc<str>, AgentCalls> {
        let oldest = self.number.saturating_sub(MAX_INTERVALS as u64);
        let sum = |agent: &AgentIntervals| {
            let current = agent.intervals.iter().filter(|interval| interval.number > oldest);
            current.fold(AgentCalls::default(), |sum, interval| sum.plus(interval.calls))
        };
        let called = self.agents.iter().filter(|(_, agent)| !agent.intervals.is_empty());
        called.map(|(label, agent)| (Arc::clone(label), sum(agent))).collect()
    }

    /// Returns the agents that failed calls in the window, with their calls.
    pub(super) fn failing_agents(&self) -> HashMap<Arc<str>, AgentCalls> {
        self.called_agents().into_iter().filter(|(_, calls)| calls.failures > 0).collect()
    }
}

/// The durations of some intervals.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct WindowDurations {
    /// How long calls took.
    pub(super) calls: DurationCounts,
    /// The gateway's own time.
    pub(super) gateway: DurationCounts,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(total: u64, agents: &[(&str, u64, u64)]) -> CounterReading {
        let mut totals = CallCounts::default();
        totals.by_blame[CallBlame::None as usize] = total;
        let agents = agents
            .iter()
            .map(|(label, calls, failures)| (Arc::from(*label), AgentCalls { calls: *calls, failures: *failures }));
        CounterReading { elapsed: Duration::from_secs(10), totals, agents: agents.collect(), ..Default::default() }
    }

    #[test]
    fn the_window_has_the_newest_ninety_intervals_and_counts_what_happened_in_each() {
        let mut window = ActivityWindow::default();
        for total in 1..=200 {
            window.record(reading(total * total, &[]));
        }
        let calls: Vec<u64> = window.intervals().map(|interval| interval.counts.calls()).collect();
        let expected: Vec<u64> = (111..=200).map(|total: u64| total * total - (total - 1) * (total - 1)).collect();
        assert_eq!(calls, expected);
        assert!((window.intervals().next().unwrap().per_second(30) - 3.0).abs() < 1e-9);
    }

    #[test]
    fn an_agent_takes_memory_only_while_it_was_called_in_the_window() {
        let mut window = ActivityWindow::default();
        window.record(reading(0, &[("busy", 10, 1), ("idle", 5, 5)]));
        assert_eq!(window.of_agent("idle").total, AgentCalls { calls: 5, failures: 5 });
        for at in 2..=91 {
            window.record(reading(0, &[("busy", 10 * at, at), ("idle", 5, 5)]));
        }
        assert_eq!(window.of_agent("busy").calls, vec![1.0; MAX_INTERVALS]);
        assert_eq!(window.of_agent("busy").total, AgentCalls { calls: 900, failures: 90 });
        assert!((window.of_agent("busy").current_rate() - 1.0).abs() < 1e-9);
        assert_eq!(window.of_agent("idle").total, AgentCalls::default(), "its calls left the window");
        assert_eq!(window.agents["idle"].intervals.capacity(), 0);
        assert_eq!(window.failing_agents().keys().map(|label| &**label).collect::<Vec<_>>(), ["busy"]);
        window.record(reading(0, &[("busy", 910, 91), ("idle", 6, 5)]));
        assert_eq!(window.of_agent("idle").total, AgentCalls { calls: 1, failures: 0 }, "only the new call counts");
        assert_eq!(window.of_agent("never").calls, vec![0.0; MAX_INTERVALS]);
    }

    #[test]
    fn an_agent_that_is_removed_is_forgotten_and_one_that_comes_back_begins_again() {
        let mut window = ActivityWindow::default();
        window.record(reading(100, &[("a", 100, 50)]));
        window.record(reading(100, &[]));
        assert_eq!(window.of_agent("a").total, AgentCalls::default());
        assert!(window.agents.is_empty() && window.failing_agents().is_empty());
        window.record(reading(103, &[("a", 3, 0)]));
        assert_eq!(window.of_agent("a").total, AgentCalls { calls: 3, failures: 0 });
        // Between two readings, the agent was removed and served again.
        window.record(reading(105, &[("a", 2, 1)]));
        assert_eq!(window.of_agent("a").calls, [0.0, 0.0, 0.3, 0.2]);
        assert_eq!(window.intervals().map(|interval| interval.counts.calls()).collect::<Vec<_>>(), [100, 0, 3, 2]);
    }

    #[test]
    fn not_more_agents_are_kept_than_the_bound() {
        let mut window = ActivityWindow::default();
        let labels: Vec<String> = (0..MAX_AGENTS + 10).map(|at| format!("agent-{at}")).collect();
        let agents: Vec<(&str, u64, u64)> = labels.iter().map(|label| (&**label, 1, 1)).collect();
        window.record(reading(0, &agents));
        assert_eq!(window.failing_agents().len(), MAX_AGENTS);
    }
}
