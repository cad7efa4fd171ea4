//! How many calls an agent has at once: a bound, and a short queue before it. A place in the queue is given up
//! when the call is. Within the bound a lower one may be learnt, of calls that wait for the first byte of an answer: see
//! `learn`. A stream that has begun counts for the bound only.

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

/// When a refused caller is to come again, at the earliest; and at the latest, where an agent's usual time says it.
const SOONEST: Duration = Duration::from_secs(1);
const LATEST: Duration = Duration::from_secs(30);

/// The bound of one agent.
#[derive(Debug)]
pub(super) struct Gate {
    pub(super) most: NonZeroU32,
    /// What may be learnt; nothing where the bound is fixed.
    pub(super) range: Option<Range>,
    places: Arc<Semaphore>,
    waiting: AtomicU32,
    /// Calls that wait for the first byte of an answer.
    asking: AtomicU32,
    /// Made with the first call: most agents are idle.
    learnt: OnceLock<Box<Learnt>>,
    clock: Clock,
}

/// What was learnt, and who waits for that.
#[derive(Debug)]
struct Learnt {
    learner: Learner,
    line: Line,
}

/// A call's place.
#[derive(Debug)]
pub(super) struct Place {
    gate: Arc<Gate>,
    /// Whether it waits for an answer.
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

    /// A place now, or none. Whoever waits goes first: the semaphore is fair.
    pub(super) fn try_enter(self: &Arc<Self>) -> Option<Place> {
        let place = Arc::clone(&self.places).try_acquire_owned().ok()?;
        self.try_ask(true).then(|| Place { gate: Arc::clone(self), asks: AtomicBool::new(true), _place: place })
    }

    /// A place now or soon. Those who wait come in their order, before those who come later.
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
            overloaded(
                "The agent has as many calls at once as it may have, of all callers together.",
                queue.queue_wait.get(),
            )
            .detail(format_args!("{agent} has {} calls at once and {why}", self.most))
        };
        let before = self.waiting.fetch_add(1, Relaxed);
        let waiting = Waiting(&self.waiting);
        if before >= queue.queue {
            return Err(refuse("a full queue"));
        }
        let place = tokio::time::timeout(queue.queue_wait.get(), Arc::clone(&self.places).acquire_owned()).await;
        drop(waiting);
        match place {
            Ok(Ok(place)) => Ok(place),
            // The semaphore is never closed.
            Ok(Err(_)) | Err(_) => Err(refuse("none ended in time")),
        }
    }

    /// Waits until one of those who wait for an answer has it. Whoever takes what is free tells the next of the rest.
    async fn line_up(&self, queue: &Concurrency, (agent, metrics): (&AgentId, &Metrics)) -> Result<(), Fault> {
        let Some(learnt) = self.learnt.get() else { return Ok(()) };
        let usual = || learnt.learner.usual().unwrap_or(Duration::ZERO);
        let refuse = |why: &str| {
            metrics.limited(Limit::Learnt);
            let text = "The agent has as many calls as it answers in good time, of all callers together.";
            let bound = learnt.learner.bound();
            overloaded(text, usual().min(LATEST))
                .detail(format_args!("{agent} answers {bound} calls at once in good time, has them, and {why}"))
        };
        let Some(mut turn) = learnt.line.join(queue, &self.clock, usual) else {
            return Err(refuse("others wait already"));
        };
        if turn.wait(|| self.try_ask(false)).await {
            drop(turn);
            if self.asking.load(SeqCst) < learnt.learner.bound() {
                learnt.line.call_next();
            }
            return Ok(());
        }
        Err(refuse("answered none of them in time"))
    }

    /// Counts a call that asks, if there is room; not before others where they wait and `behind` is set.
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
    /// When its question began, if the answer is to be looked at.
    pub(super) fn asks(&self) -> Option<Duration> {
        let learnt = self.gate.learnt()?;
        learnt.learner.wants(self.gate.asking.load(Relaxed)).then(|| self.gate.clock.elapsed())
    }

    /// How long the question has been with the agent.
    pub(super) fn since(&self, began: Duration) -> Duration {
        self.gate.clock.elapsed().saturating_sub(began)
    }

    /// Learns from an answer, or from a failure. The bound, where that changes it.
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

    /// It waits for no answer any more.
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
    /// A place among the calls that the agent may have at once; waits a little if there is none.
    ///
    /// # Errors
    /// 503, at once if too many wait already.
    pub async fn enter(&self, agent: &Arc<AgentLimits>) -> Result<Permit, Fault> {
        let gate = agent.now.load().gate.clone();
        let Some(gate) = gate else {
            return Ok(agent.begin(None));
        };
        let plan = self.plan.load_full();
        let place = gate.enter(&plan.config().concurrency, (&agent.id, &self.metrics)).await?;
        Ok(agent.begin(Some(place)))
    }

    /// A place among the calls that the agent may have at once, if one is free now and nobody waits for it.
    pub fn try_enter(&self, agent: &Arc<AgentLimits>) -> Option<Permit> {
        match &agent.now.load().gate {
            None => Some(agent.begin(None)),
            Some(gate) => gate.try_enter().map(|place| agent.begin(Some(place))),
        }
    }
}

/// The refusal of a call that its agent has no room for. It says whose bound it is: no caller shall look for its own.
fn overloaded(text: &'static str, again: Duration) -> Fault {
    Fault::new(Code::Overloaded, text).member("overloaded", "agent".into()).retry_after(again.max(SOONEST))
}
