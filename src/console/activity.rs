//! Reads the counters of calls every ten seconds for as long as the gateway runs, so that pages show how much happened,
//! and when. Calls pay nothing for it: their counters exist for the metrics.

use super::activity_window::{
    ActivityWindow, AgentActivity, AgentCalls, CounterReading, Interval, MAX_INTERVALS, WindowDurations,
};
use crate::telemetry::Metrics;
use parking_lot::Mutex;
use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::time::{MissedTickBehavior, interval};

/// The time between two readings.
const INTERVAL: Duration = Duration::from_secs(10);

/// How many intervals the quantiles on the overview are of: one minute.
const RECENT_INTERVALS: usize = 6;

/// The calls of the last quarter of an hour.
#[derive(Debug)]
pub(super) struct Activity {
    window: Mutex<ActivityWindow>,
    read_at: Mutex<Instant>,
}

impl Activity {
    /// Returns an activity without readings.
    pub(super) fn new() -> Self {
        Self { window: Mutex::default(), read_at: Mutex::new(Instant::now()) }
    }

    /// Starts to read the counters, on the runtime of the current thread, until the activity is dropped.
    pub(super) fn start(metrics: Arc<Metrics>) -> Arc<Self> {
        let activity = Arc::new(Self::new());
        let weak = Arc::downgrade(&activity);
        tokio::spawn(async move {
            let mut ticks = interval(INTERVAL);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            // The first one is immediate.
            ticks.tick().await;
            loop {
                ticks.tick().await;
                let (Some(activity), metrics) = (weak.upgrade(), Arc::clone(&metrics)) else { return };
                if tokio::task::spawn_blocking(move || activity.read_counters(&metrics)).await.is_err() {
                    tracing::error!("console: reading the counters of calls failed");
                    return;
                }
            }
        });
        activity
    }

    fn read_counters(&self, metrics: &Metrics) {
        let mut agents = Vec::new();
        let totals =
            metrics.read_call_counts(|label, counts| agents.push((Arc::clone(label), AgentCalls::new(counts))));
        let elapsed = std::mem::replace(&mut *self.read_at.lock(), Instant::now()).elapsed();
        let reading = CounterReading {
            elapsed,
            totals,
            agents,
            in_flight: metrics.calls_in_flight(),
            dropped_log_entries: metrics.dropped_log_entries(),
        };
        self.window.lock().record(reading);
    }

    /// Returns the intervals, the oldest first; empty in the first ten seconds.
    pub(super) fn intervals(&self) -> Vec<Interval> {
        self.window.lock().intervals().cloned().collect()
    }

    /// Returns the durations of the last minute.
    pub(super) fn recent_durations(&self) -> WindowDurations {
        self.window.lock().newest_durations(RECENT_INTERVALS)
    }

    /// Returns the calls of the agent with this label.
    pub(super) fn of_agent(&self, label: &str) -> AgentActivity {
        self.window.lock().of_agent(label)
    }

    /// Returns the agents that were called, with their calls.
    pub(super) fn called_agents(&self) -> HashMap<Arc<str>, AgentCalls> {
        self.window.lock().called_agents()
    }

    /// Returns the agents that failed calls, with their calls.
    pub(super) fn failing_agents(&self) -> HashMap<Arc<str>, AgentCalls> {
        self.window.lock().failing_agents()
    }
}

/// Returns the length of the window in words.
pub(super) fn window_text() -> String {
    format!("{} minutes", INTERVAL.as_secs() * MAX_INTERVALS as u64 / 60)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        agent::{Agent, AuthenticationMethod},
        fault::FaultCode,
        telemetry::{CallBlame, CallOutcome, CallerClass},
    };
    use serde_json::json;

    fn outcome(code: Option<FaultCode>) -> CallOutcome {
        CallOutcome {
            operation: None,
            caller_class: CallerClass::of_method(AuthenticationMethod::ApiKey),
            code,
            blame: code.map(|code| code.row().blame),
            status: code.map_or(200, |code| code.row().status),
            duration: Duration::from_millis(7),
            upstream_duration: None,
            gateway_duration: Some(Duration::from_micros(200)),
            bytes_in: 0,
            bytes_out: 0,
            trace_id: None,
        }
    }

    #[test]
    fn the_counters_of_calls_become_intervals_and_totals_survive_the_removal_of_an_agent() {
        let metrics = Metrics::new().unwrap();
        let document = |id: &str| json!({"id": id, "name": id, "endpoint": "https://agent.example/"});
        let handle = |id: &str| metrics.for_agent(&Agent::from_document(&document(id), [0; 32]).unwrap());
        let (one, two) = (handle("one"), handle("two"));
        let activity = Activity::new();
        for code in [None, None, Some(FaultCode::InvalidInput), Some(FaultCode::AgentError)] {
            one.record(&outcome(code));
        }
        two.record(&outcome(None));
        metrics.for_unknown_agent().record(&outcome(Some(FaultCode::NotFound)));
        activity.read_counters(&metrics);
        let counts = activity.intervals()[0].counts;
        let by_blame = [CallBlame::None, CallBlame::Caller, CallBlame::Agent].map(|blame| counts.of(blame));
        assert_eq!(by_blame, [3, 2, 1]);
        assert_eq!(activity.of_agent("one").total, AgentCalls { calls: 4, failures: 1 });
        let recent = activity.recent_durations();
        let p50 = recent.calls.quantile(0.5).unwrap();
        assert!(p50 > Duration::from_millis(5) && p50 < Duration::from_millis(10), "{p50:?}");
        assert!(recent.gateway.quantile(0.5).unwrap() < Duration::from_micros(250));
        metrics.retain_agents(|id| id.as_str() == "two");
        two.record(&outcome(None));
        activity.read_counters(&metrics);
        assert_eq!(activity.intervals()[1].counts.calls(), 1, "the calls of the removed agent are no new calls");
        assert_eq!(activity.of_agent("one").total, AgentCalls::default());
        assert!(activity.failing_agents().is_empty());
    }
}
