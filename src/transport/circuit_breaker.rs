//! Circuit breakers: after several consecutive failures an endpoint receives no calls, except one probe per interval;
//! any reply to the probe closes the breaker.
//! A breaker takes no lock, never waits, and needs no reset after a probe that never ends. It does not judge replies.

use super::{config::CircuitBreakerConfig, timeouts::UpstreamTimeouts};
use crate::fault::{CallProgress, Fault, FaultCode};
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
pub(super) struct BreakerPolicy {
    /// Consecutive failures that open the breaker; 0 disables it.
    pub(super) consecutive_failures: u32,
    /// How long the breaker stays open before a probe, and between two probes.
    pub(super) open_duration: Duration,
}

impl BreakerPolicy {
    /// Reads the policy from `settings`.
    ///
    /// # Errors
    /// Every value that is out of bounds.
    pub(super) fn from_settings(settings: &CircuitBreakerConfig) -> Result<Self, Vec<String>> {
        let consecutive_failures = settings.consecutive_failures.unwrap_or(5);
        let open_duration = settings.open_duration.map_or(Duration::from_secs(2), |duration| duration.get());
        let mut problems = Vec::new();
        if consecutive_failures > 1_000 {
            problems
                .push(format!("circuit_breaker.consecutive_failures: is {consecutive_failures} (must be 0 to 1000)"));
        }
        if !(Duration::from_millis(100)..=Duration::from_secs(3_600)).contains(&open_duration) {
            problems.push(format!("circuit_breaker.open_duration: is {open_duration:?} (must be 100ms to 1h)"));
        }
        if problems.is_empty() { Ok(Self { consecutive_failures, open_duration }) } else { Err(problems) }
    }
}

/// The circuit breaker of one endpoint, shared by all upstream sets and configurations that contain the endpoint.
#[derive(Debug)]
pub(super) struct CircuitBreaker {
    created: Instant,
    failures: AtomicU32,
    /// Milliseconds after `created` at which the next probe is allowed; 0 while the breaker is closed.
    next_probe: AtomicU64,
    in_flight: AtomicU32,
}

/// The state of a circuit breaker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BreakerState {
    /// Calls pass.
    Closed,
    /// No call passes.
    Open,
    /// The next call passes, as a probe.
    HalfOpen,
}

impl BreakerState {
    /// The name in logs and on admin pages.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::Open => "open",
            Self::HalfOpen => "half-open",
        }
    }
}

impl CircuitBreaker {
    pub(super) fn new() -> Self {
        Self {
            created: Instant::now(),
            failures: AtomicU32::new(0),
            next_probe: AtomicU64::new(0),
            in_flight: AtomicU32::new(0),
        }
    }

    fn now_millis(&self) -> u64 {
        // Never 0, which means closed.
        u64::try_from(self.created.elapsed().as_millis()).unwrap_or(u64::MAX - 1).saturating_add(1)
    }

    /// Admits a call, or refuses it while the breaker is open.
    ///
    /// # Errors
    /// The time until the next probe is allowed.
    pub(super) fn admit_call(&self, policy: &BreakerPolicy) -> Result<(), Duration> {
        let until = self.next_probe.load(Relaxed);
        if until == 0 || policy.consecutive_failures == 0 {
            return Ok(());
        }
        let now = self.now_millis();
        if now < until {
            return Err(Duration::from_millis(until - now));
        }
        // One of the concurrent calls becomes the probe. If its caller leaves or it hangs, a later call probes again.
        let next = now.saturating_add(millis(policy.open_duration));
        let is_probe = self.next_probe.compare_exchange(until, next, Relaxed, Relaxed).is_ok();
        if is_probe { Ok(()) } else { Err(policy.open_duration) }
    }

    /// Records a reply of the endpoint. Returns whether that closed the breaker.
    pub(super) fn record_success(&self) -> bool {
        if self.failures.load(Relaxed) != 0 {
            self.failures.store(0, Relaxed);
        }
        self.next_probe.load(Relaxed) != 0 && self.next_probe.swap(0, Relaxed) != 0
    }

    /// Records a failure of the endpoint. Returns the number of consecutive failures if that opened the breaker.
    pub(super) fn record_failure(&self, policy: &BreakerPolicy) -> Option<u32> {
        let failures = self.failures.fetch_add(1, Relaxed).saturating_add(1);
        if policy.consecutive_failures == 0 || failures < policy.consecutive_failures {
            return None;
        }
        // An open breaker keeps its time: calls that began earlier add no information.
        let until = self.now_millis().saturating_add(millis(policy.open_duration));
        self.next_probe.compare_exchange(0, until, Relaxed, Relaxed).is_ok().then_some(failures)
    }

    /// Decides as [`CircuitBreaker::admit_call`] would, and starts no probe.
    ///
    /// # Errors
    /// The time until the next probe is allowed.
    pub(super) fn inspect(&self, policy: &BreakerPolicy) -> Result<(), Duration> {
        let (until, now) = (self.next_probe.load(Relaxed), self.now_millis());
        let is_refused = until != 0 && policy.consecutive_failures != 0 && now < until;
        if is_refused { Err(Duration::from_millis(until - now)) } else { Ok(()) }
    }

    pub(super) fn state(&self) -> BreakerState {
        match self.next_probe.load(Relaxed) {
            0 => BreakerState::Closed,
            until if self.now_millis() < until => BreakerState::Open,
            _ => BreakerState::HalfOpen,
        }
    }

    /// The number of calls whose replies have not ended; counted only for upstream sets with several endpoints.
    pub(super) fn in_flight(&self) -> u32 {
        self.in_flight.load(Relaxed)
    }
}

/// The fault of a call that the open breaker refuses.
pub(super) fn breaker_open_fault(retry_after: Duration) -> Fault {
    Fault::new(FaultCode::AgentUnavailable, "The agent is temporarily unavailable after repeated failures")
        .with_detail("circuit breaker open")
        .with_setting("agents.defaults.circuit_breaker")
        .with_retry_after(retry_after)
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// Counts a call as in flight at an endpoint until it is dropped.
#[derive(Debug)]
pub(super) struct InFlightGuard(Arc<CircuitBreaker>);

impl InFlightGuard {
    pub(super) fn new(breaker: &Arc<CircuitBreaker>) -> Self {
        breaker.in_flight.fetch_add(1, Relaxed);
        Self(Arc::clone(breaker))
    }
}

impl Drop for InFlightGuard {
    fn drop(&mut self) {
        self.0.in_flight.fetch_sub(1, Relaxed);
    }
}

/// The circumstances of one attempt at an endpoint.
#[derive(Clone, Copy, Debug)]
pub(super) struct CallAttempt {
    pub(super) started: Instant,
    pub(super) deadline: Instant,
    /// The caller streams the body, so a slow caller may be the cause of a timeout.
    pub(super) streamed: bool,
    /// The endpoint's own timeouts.
    pub(super) timeouts: UpstreamTimeouts,
}

impl CallAttempt {
    /// Whether the attempt lasted the endpoint's full timeout. A timeout that the caller shortened
    /// (`X-Request-Timeout`) says nothing about the agent; otherwise any caller could open the breaker.
    fn lasted_full_timeout(&self, timeout: Duration) -> bool {
        let shortened_by_caller =
            self.deadline.saturating_duration_since(self.started) < self.timeouts.total.mul_f32(0.9);
        self.started.elapsed() >= timeout || !shortened_by_caller
    }

    /// Classifies the outcome: `Some(true)` if the endpoint is up, `Some(false)` if it is down, `None` if unknown.
    pub(super) fn classify_outcome<T>(&self, outcome: &Result<T, Fault>) -> Option<bool> {
        let fault = match outcome {
            Ok(_) => return Some(true),
            Err(fault) => fault,
        };
        match (fault.progress(), fault.code()) {
            (Some(CallProgress::NotSent), FaultCode::Timeout) => {
                self.lasted_full_timeout(self.timeouts.connect).then_some(false)
            }
            (Some(CallProgress::NotSent), _) => Some(false),
            (_, FaultCode::Timeout) => {
                (!self.streamed && self.lasted_full_timeout(self.timeouts.first_byte)).then_some(false)
            }
            (Some(CallProgress::PossiblySent), _) => (!self.streamed).then_some(false),
            // The endpoint replied, although the reply was invalid.
            (None, FaultCode::AgentError) => Some(true),
            (None, _) => None,
        }
    }
}
