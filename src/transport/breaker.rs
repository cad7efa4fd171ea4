//! Circuit breakers: after several consecutive failures an endpoint receives no calls, except one probe per interval;
//! any reply to the probe closes the breaker.
//! A breaker takes no lock, never waits, and keeps no state for a probe that never ends. It does not judge replies.

use super::settings::{Bounds, BreakerSettings};
use crate::fault::{Code, Fault, Reach};
use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};
use tokio::time::Instant;

/// When a circuit breaker opens, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Rules {
    /// Consecutive failures that open the breaker; 0 disables it.
    pub(super) failures: u32,
    pub(super) open_for: Duration,
}

impl Rules {
    /// Reads the policy from `settings`.
    ///
    /// # Errors
    /// Every value that is out of bounds.
    pub(super) fn of(settings: &BreakerSettings) -> Result<Self, Vec<String>> {
        let failures = settings.consecutive_failures.unwrap_or(5);
        let open_for = settings.open_duration.map_or(Duration::from_secs(2), |span| span.get());
        let mut problems = Vec::new();
        if failures > 1_000 {
            problems.push(format!("breaker.failures: is {failures} (must be 0 to 1000)"));
        }
        if !(Duration::from_millis(100)..=Duration::from_secs(3_600)).contains(&open_for) {
            problems.push(format!("breaker.open_for: is {open_for:?} (must be 100ms to 1h)"));
        }
        if problems.is_empty() { Ok(Self { failures, open_for }) } else { Err(problems) }
    }
}

/// The circuit breaker of one endpoint, shared by all upstream sets and configurations that contain the endpoint.
#[derive(Debug)]
pub(super) struct Breaker {
    since: Instant,
    failures: AtomicU32,
    /// Milliseconds after `since` at which the next probe is allowed; 0 while the breaker is closed.
    until: AtomicU64,
    in_flight: AtomicU32,
}

/// The state of a circuit breaker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Calls pass.
    Closed,
    /// No call passes.
    Open,
    /// The next call passes, as a probe.
    HalfOpen,
}

impl Standing {
    /// The name in logs and on admin pages.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::Open => "open",
            Self::HalfOpen => "half-open",
        }
    }
}

impl Breaker {
    pub(super) fn new() -> Self {
        Self {
            since: Instant::now(),
            failures: AtomicU32::new(0),
            until: AtomicU64::new(0),
            in_flight: AtomicU32::new(0),
        }
    }

    fn now(&self) -> u64 {
        // Never 0, which means closed.
        u64::try_from(self.since.elapsed().as_millis()).unwrap_or(u64::MAX - 1).saturating_add(1)
    }

    /// Admits a call, or refuses it while the breaker is open.
    ///
    /// # Errors
    /// The time until the next probe is allowed.
    pub(super) fn admit(&self, rules: &Rules) -> Result<(), Duration> {
        let until = self.until.load(Relaxed);
        if until == 0 || rules.failures == 0 {
            return Ok(());
        }
        let now = self.now();
        if now < until {
            return Err(Duration::from_millis(until - now));
        }
        // One of the concurrent calls becomes the probe. If its caller leaves or it hangs, a later call probes again.
        let next = now.saturating_add(millis(rules.open_for));
        let mine = self.until.compare_exchange(until, next, Relaxed, Relaxed).is_ok();
        if mine { Ok(()) } else { Err(rules.open_for) }
    }

    /// Records a reply of the endpoint. Returns whether that closed the breaker.
    pub(super) fn answered(&self) -> bool {
        if self.failures.load(Relaxed) != 0 {
            self.failures.store(0, Relaxed);
        }
        self.until.load(Relaxed) != 0 && self.until.swap(0, Relaxed) != 0
    }

    /// Records a failure of the endpoint. Returns the number of consecutive failures if that opened the breaker.
    pub(super) fn failed(&self, rules: &Rules) -> Option<u32> {
        let failures = self.failures.fetch_add(1, Relaxed).saturating_add(1);
        if rules.failures == 0 || failures < rules.failures {
            return None;
        }
        // An open breaker keeps its time: calls that began earlier add no information.
        let until = self.now().saturating_add(millis(rules.open_for));
        self.until.compare_exchange(0, until, Relaxed, Relaxed).is_ok().then_some(failures)
    }

    pub(super) fn standing(&self) -> Standing {
        match self.until.load(Relaxed) {
            0 => Standing::Closed,
            until if self.now() < until => Standing::Open,
            _ => Standing::HalfOpen,
        }
    }

    /// The number of calls whose replies have not ended; counted only for upstream sets with several endpoints.
    pub(super) fn in_flight(&self) -> u32 {
        self.in_flight.load(Relaxed)
    }
}

/// The fault of a call that the open breaker refuses.
pub(super) fn shut(wait: Duration) -> Fault {
    Fault::new(Code::AgentUnavailable, "The agent is temporarily unavailable after repeated failures")
        .detail("circuit breaker open")
        .retry_after(wait)
}

fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

/// Counts a call as in flight at an endpoint until it is dropped.
#[derive(Debug)]
pub(super) struct InFlight(Arc<Breaker>);

impl InFlight {
    pub(super) fn at(breaker: &Arc<Breaker>) -> Self {
        breaker.in_flight.fetch_add(1, Relaxed);
        Self(Arc::clone(breaker))
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.in_flight.fetch_sub(1, Relaxed);
    }
}

/// The circumstances of one attempt at an endpoint.
#[derive(Clone, Copy, Debug)]
pub(super) struct Given {
    pub(super) began: Instant,
    pub(super) deadline: Instant,
    /// The caller streams the body, so a slow caller may be the cause of a timeout.
    pub(super) streamed: bool,
    /// The endpoint's own timeouts.
    pub(super) bounds: Bounds,
}

impl Given {
    /// Whether the attempt lasted the endpoint's full timeout. A timeout that the caller shortened
    /// (`X-Request-Timeout`) says nothing of the agent; otherwise any caller could open the breaker.
    fn has_waited(&self, bound: Duration) -> bool {
        let asked_for_less = self.deadline.saturating_duration_since(self.began) < self.bounds.total.mul_f32(0.9);
        self.began.elapsed() >= bound || !asked_for_less
    }

    /// Classifies the outcome: `Some(true)` if the endpoint is up, `Some(false)` if it is down, `None` if unknown.
    pub(super) fn verdict<T>(&self, made: &Result<T, Fault>) -> Option<bool> {
        let fault = match made {
            Ok(_) => return Some(true),
            Err(fault) => fault,
        };
        match (fault.reach(), fault.code()) {
            (Some(Reach::Nowhere), Code::Timeout) => self.has_waited(self.bounds.connect).then_some(false),
            (Some(Reach::Nowhere), _) => Some(false),
            (_, Code::Timeout) => (!self.streamed && self.has_waited(self.bounds.first_byte)).then_some(false),
            (Some(Reach::Unsure), _) => (!self.streamed).then_some(false),
            // The endpoint replied, although the reply was invalid.
            (None, Code::AgentError) => Some(true),
            (None, _) => None,
        }
    }
}
