//! Whether an endpoint is worth a call now. After so many failures in a row it is left alone, but for one call in a
//! while that tries it; whatever it answers lets everybody in again.
//! It takes no lock, never waits, and keeps nothing for a try that is never finished. It judges no answer.

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

/// When a breaker opens, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Rules {
    /// Failures in a row; 0 for never.
    pub(super) failures: u32,
    pub(super) open_for: Duration,
}

impl Rules {
    /// The rules of `settings`.
    ///
    /// # Errors
    /// Every value out of its bounds.
    pub(super) fn of(settings: &BreakerSettings) -> Result<Self, Vec<String>> {
        let failures = settings.failures.unwrap_or(5);
        let open_for = settings.open_for.map_or(Duration::from_secs(2), |span| span.get());
        let mut problems = Vec::new();
        if failures > 1_000 {
            problems.push(format!("breaker.failures: must be 0 to 1000, not {failures}"));
        }
        if !(Duration::from_millis(100)..=Duration::from_secs(3_600)).contains(&open_for) {
            problems.push(format!("breaker.open_for: must be 100ms to 1h, not {open_for:?}"));
        }
        if problems.is_empty() { Ok(Self { failures, open_for }) } else { Err(problems) }
    }
}

/// What is known of one endpoint. Shared by every route to it, under whichever configuration.
#[derive(Debug)]
pub(super) struct Breaker {
    since: Instant,
    failures: AtomicU32,
    /// In milliseconds after `since`, when the next try may be made; 0 while it is closed.
    until: AtomicU64,
    in_flight: AtomicU32,
}

/// How a breaker stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Calls pass.
    Closed,
    /// No call passes.
    Open,
    /// The next call passes, to try it.
    HalfOpen,
}

impl Standing {
    /// The word in logs and on pages.
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
        // Never 0, which stands for closed.
        u64::try_from(self.since.elapsed().as_millis()).unwrap_or(u64::MAX - 1).saturating_add(1)
    }

    /// Whether a call may pass now.
    ///
    /// # Errors
    /// When the next try may be made.
    pub(super) fn admit(&self, rules: &Rules) -> Result<(), Duration> {
        let until = self.until.load(Relaxed);
        if until == 0 || rules.failures == 0 {
            return Ok(());
        }
        let now = self.now();
        if now < until {
            return Err(Duration::from_millis(until - now));
        }
        // One of those who come now tries it. Should its caller leave, or it take long, another will.
        let next = now.saturating_add(millis(rules.open_for));
        let mine = self.until.compare_exchange(until, next, Relaxed, Relaxed).is_ok();
        if mine { Ok(()) } else { Err(rules.open_for) }
    }

    /// The endpoint has answered; whether that closes the breaker.
    pub(super) fn answered(&self) -> bool {
        if self.failures.load(Relaxed) != 0 {
            self.failures.store(0, Relaxed);
        }
        self.until.load(Relaxed) != 0 && self.until.swap(0, Relaxed) != 0
    }

    /// The endpoint has failed; how often in a row, where that opens the breaker.
    pub(super) fn failed(&self, rules: &Rules) -> Option<u32> {
        let failures = self.failures.fetch_add(1, Relaxed).saturating_add(1);
        if rules.failures == 0 || failures < rules.failures {
            return None;
        }
        // What is open already stays so only until its time: calls that began before say nothing new.
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

    /// Calls whose answers have not ended; counted only where there are several endpoints to choose from.
    pub(super) fn in_flight(&self) -> u32 {
        self.in_flight.load(Relaxed)
    }
}

/// The refusal while it is open.
pub(super) fn shut(wait: Duration) -> Fault {
    Fault::new(Code::AgentUnavailable, "The agent has failed too often and is left alone for a moment.")
        .detail("its breaker is open")
        .retry_after(wait)
}

fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

/// A call's place at an endpoint, until this goes.
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

/// What a call gave its endpoint.
#[derive(Clone, Copy, Debug)]
pub(super) struct Given {
    pub(super) began: Instant,
    pub(super) deadline: Instant,
    /// The body comes as the caller sends it, who may be the slow one.
    pub(super) streamed: bool,
    /// The endpoint's own bounds.
    pub(super) bounds: Bounds,
}

impl Given {
    /// Whether silence was the agent's: its own bound was waited for. What a caller cut short (`X-Request-Timeout`)
    /// says nothing of the agent, or any caller could have it taken for dead.
    fn has_waited(&self, bound: Duration) -> bool {
        let asked_for_less = self.deadline.saturating_duration_since(self.began) < self.bounds.total.mul_f32(0.9);
        self.began.elapsed() >= bound || !asked_for_less
    }

    /// What `made` says of the endpoint: that it is there, that it is not, or nothing.
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
            // It has answered, if only badly.
            (None, Code::AgentError) => Some(true),
            (None, _) => None,
        }
    }
}
