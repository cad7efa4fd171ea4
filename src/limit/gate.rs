//! How many calls an agent has at once: a bound, and a short queue before it. A place in the queue is given up
//! when the call is.

use super::config::Concurrency;
use crate::{
    agent::AgentId,
    fault::{Code, Fault},
    telemetry::{Limit, Metrics},
};
use std::{
    num::NonZeroU32,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The bound of one agent.
#[derive(Debug)]
pub(super) struct Gate {
    pub(super) most: NonZeroU32,
    places: Arc<Semaphore>,
    waiting: AtomicU32,
}

struct Waiting<'a>(&'a AtomicU32);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

impl Gate {
    pub(super) fn new(most: NonZeroU32) -> Self {
        let places = usize::try_from(most.get()).unwrap_or(usize::MAX).min(Semaphore::MAX_PERMITS);
        Self { most, places: Arc::new(Semaphore::new(places)), waiting: AtomicU32::new(0) }
    }

    /// A place now, or none. Whoever waits goes first: the semaphore is fair.
    pub(super) fn try_enter(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.places).try_acquire_owned().ok()
    }

    /// A place now or soon. Those who wait come in their order, before those who come later.
    pub(super) async fn enter(
        &self,
        queue: &Concurrency,
        (agent, metrics): (&AgentId, &Metrics),
    ) -> Result<OwnedSemaphorePermit, Fault> {
        if let Ok(place) = Arc::clone(&self.places).try_acquire_owned() {
            return Ok(place);
        }
        let refuse = |why: &str| {
            metrics.limited(Limit::Concurrency);
            Fault::new(Code::Overloaded, "The agent has as many calls as it may have at once.")
                .detail(format_args!("{agent} has {} calls at once and {why}", self.most))
                .retry_after(queue.queue_wait.get())
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
}
