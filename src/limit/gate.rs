//! Concurrency limiter of one agent: a fixed maximum, a wait queue, and below the maximum an adaptive limit on calls
//! that wait for the first byte of a response (see `adaptive_concurrency`). A response that is streaming counts only
//! against the maximum. A call that is cancelled leaves the queue.

use super::{
    AgentLimits, Limits, Permit,
    clock::Clock,
    config::Concurrency,
    learn::{Learner, Range},
    line::Line,
};
use crate::{
    agent::AgentId,
    fault::{Code, Fault},
    telemetry::{Limit, Metrics},
};
use std::{
    num::NonZeroU32,
    sync::{
        Arc, OnceLock,
        atomic::{
            AtomicBool, AtomicU32,
            Ordering::{Relaxed, SeqCst},
        },
    },
    time::Duration,
};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Bounds of `Retry-After` for refused calls; the agent's usual latency is used in between.
const SOONEST: Duration = Duration::from_secs(1);
const LATEST: Duration = Duration::from_secs(30);

/// Limits the concurrent calls to one agent.
#[derive(Debug)]
pub(super) struct Gate {
    pub(super) most: NonZeroU32,
    /// Bounds of the adaptive limit; `None` if the limit is fixed.
    pub(super) range: Option<Range>,
    places: Arc<Semaphore>,
    waiting: AtomicU32,
    /// Calls that wait for the first byte of a response.
    asking: AtomicU32,
    /// Created by the first call: most agents are idle.
    learnt: OnceLock<Box<Learnt>>,
    clock: Clock,
}

/// The adaptive limit, and the calls that wait for it.
#[derive(Debug)]
struct Learnt {
    learner: Learner,
    line: Line,
}

/// One call's share of the agent's concurrency.
#[derive(Debug)]
pub(super) struct Place {
    gate: Arc<Gate>,
    /// Whether the call waits for the first byte of its response.
    asks: AtomicBool,
    _place: OwnedSemaphorePermit,
}

struct Waiting<'a>(&'a AtomicU32);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

impl Gate {
    pub(super) fn new(most: NonZeroU32, range: Option<Range>, clock: Clock) -> Self {
        let places = usize::try_from(most.get()).unwrap_or(usize::MAX).min(Semaphore::MAX_PERMITS);
        Self {
            most,
            range,
            places: Arc::new(Semaphore::new(places)),
            waiting: AtomicU32::new(0),
            asking: AtomicU32::new(0),
            learnt: OnceLock::new(),
            clock,
        }
    }

    /// Acquires a slot if one is free. Queued calls go first: the semaphore is fair.
    pub(super) fn try_enter(self: &Arc<Self>) -> Option<Place> {
        let place = Arc::clone(&self.places).try_acquire_owned().ok()?;
        self.try_ask(true).then(|| Place { gate: Arc::clone(self), asks: AtomicBool::new(true), _place: place })
    }

    /// Acquires a slot, or waits for one in the queue, in order of arrival.
    pub(super) async fn enter(
        self: &Arc<Self>,
        queue: &Concurrency,
        told: (&AgentId, &Metrics),
    ) -> Result<Place, Fault> {
        let place = self.place(queue, told).await?;
        if !self.try_ask(true) {
            self.line_up(queue, told).await?;
        }
        Ok(Place { gate: Arc::clone(self), asks: AtomicBool::new(true), _place: place })
    }

    async fn place(
        &self,
        queue: &Concurrency,
        (agent, metrics): (&AgentId, &Metrics),
    ) -> Result<OwnedSemaphorePermit, Fault> {
        if let Ok(place) = Arc::clone(&self.places).try_acquire_owned() {
            return Ok(place);
        }
        let refuse = |why: &str| {
            metrics.limited(Limit::Concurrency);
            overloaded("The agent is at its concurrency limit, which all callers share", queue.queue_wait.get())
                .detail(format_args!("agent {agent}: concurrency limit {} reached, {why}", self.most))
        };
        let before = self.waiting.fetch_add(1, Relaxed);
        let waiting = Waiting(&self.waiting);
        if before >= queue.queue {
            return Err(refuse("wait queue full"));
        }
        let place = tokio::time::timeout(queue.queue_wait.get(), Arc::clone(&self.places).acquire_owned()).await;
        drop(waiting);
        match place {
            Ok(Ok(place)) => Ok(place),
            // The semaphore is never closed.
            Ok(Err(_)) | Err(_) => Err(refuse("queue_wait elapsed")),
        }
    }

    /// Waits until a pending response frees the adaptive limit. A call that gets in wakes the next one if more is free.
    async fn line_up(&self, queue: &Concurrency, (agent, metrics): (&AgentId, &Metrics)) -> Result<(), Fault> {
        let Some(learnt) = self.learnt.get() else { return Ok(()) };
        let usual = || learnt.learner.usual().unwrap_or(Duration::ZERO);
        let refuse = |why: &str| {
            metrics.limited(Limit::Learnt);
            let text = "The agent is at its adaptive concurrency limit, which all callers share";
            let bound = learnt.learner.bound();
            overloaded(text, usual().min(LATEST))
                .detail(format_args!("agent {agent}: adaptive concurrency limit {bound} reached, {why}"))
        };
        let Some(mut turn) = learnt.line.join(queue, &self.clock, usual) else {
            return Err(refuse("wait queue full"));
        };
        if turn.wait(|| self.try_ask(false)).await {
            drop(turn);
            if self.asking.load(SeqCst) < learnt.learner.bound() {
                learnt.line.call_next();
            }
            return Ok(());
        }
        Err(refuse("wait timed out"))
    }

    /// Counts a call that waits for a response if the adaptive limit allows; with `behind`, only if no call is queued.
    fn try_ask(&self, behind: bool) -> bool {
        let before = self.asking.fetch_add(1, SeqCst);
        let Some(learnt) = self.learnt.get() else { return true };
        if before < learnt.learner.bound() && !(behind && learnt.line.is_waiting()) {
            return true;
        }
        self.asking.fetch_sub(1, SeqCst);
        false
    }

    fn answered(&self) {
        self.asking.fetch_sub(1, SeqCst);
        if let Some(learnt) = self.learnt.get()
            && learnt.line.is_waiting()
        {
            learnt.line.call_next();
        }
    }

    fn learnt(&self) -> Option<&Learnt> {
        let range = self.range?;
        let make = || Box::new(Learnt { learner: Learner::new(range, self.clock.elapsed()), line: Line::default() });
        Some(self.learnt.get_or_init(make))
    }
}

impl Place {
    /// Returns when the latency sample starts, or `None` if the call is not sampled.
    pub(super) fn asks(&self) -> Option<Duration> {
        let learnt = self.gate.learnt()?;
        learnt.learner.wants(self.gate.asking.load(Relaxed)).then(|| self.gate.clock.elapsed())
    }

    /// Returns the time since `began`.
    pub(super) fn since(&self, began: Duration) -> Duration {
        self.gate.clock.elapsed().saturating_sub(began)
    }

    /// Feeds a response or an overload signal to the adaptive limit; returns the limit if it changed.
    pub(super) fn learn(&self, began: Duration, good: bool) -> Option<u32> {
        let learnt = self.gate.learnt()?;
        let (now, waiting) = (self.gate.clock.elapsed(), self.gate.asking.load(Relaxed));
        let changed = match good {
            true => learnt.learner.answered((began, now), waiting),
            false => learnt.learner.failed(now, waiting),
        };
        if changed.is_some() && learnt.line.is_waiting() {
            learnt.line.call_next();
        }
        changed
    }

    /// Stops counting the call as waiting for a response.
    pub(super) fn rests(&self) {
        if self.asks.load(Relaxed) && self.asks.swap(false, Relaxed) {
            self.gate.answered();
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.rests();
    }
}

impl Limits {
    /// Acquires a concurrency permit for a call to the agent; waits in the queue if none is free.
    ///
    /// # Errors
    /// 503 when the queue is full or the wait times out.
    pub async fn enter(&self, agent: &Arc<AgentLimits>) -> Result<Permit, Fault> {
        let gate = agent.now.load().gate.clone();
        let Some(gate) = gate else {
            return Ok(agent.begin(None));
        };
        let plan = self.plan.load_full();
        let place = gate.enter(&plan.config().concurrency, (&agent.id, &self.metrics)).await?;
        Ok(agent.begin(Some(place)))
    }

    /// Acquires a concurrency permit if one is free and no call is queued for it.
    pub fn try_enter(&self, agent: &Arc<AgentLimits>) -> Option<Permit> {
        match &agent.now.load().gate {
            None => Some(agent.begin(None)),
            Some(gate) => gate.try_enter().map(|place| agent.begin(Some(place))),
        }
    }
}

/// Builds the 503 for a call that exceeds the agent's concurrency. It names the agent's limit, so that callers do not
/// search for a limit of their own.
fn overloaded(text: &'static str, again: Duration) -> Fault {
    Fault::new(Code::Overloaded, text).member("overloaded", "agent".into()).retry_after(again.max(SOONEST))
}
