//! Concurrency limits of the resolver, of which one caller may use a part, so that no caller starves the others.

use crate::fault::{Fault, FaultCode, Result};
use parking_lot::Mutex;
use std::{
    collections::HashMap,
    sync::{Arc, Weak},
    time::Duration,
};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// How long a request waits for a permit.
const MAX_WAIT: Duration = Duration::from_secs(1);

/// The limiter: permits in total and for each caller.
#[derive(Debug)]
pub(super) struct ResolutionLimiter {
    permits: Arc<Semaphore>,
    max_per_caller: usize,
    max_wait: Duration,
    callers: Mutex<HashMap<Box<str>, Weak<Semaphore>>>,
}

/// A permit, released when dropped.
#[derive(Debug)]
pub(super) struct ResolutionPermit {
    _share: OwnedSemaphorePermit,
    _permit: OwnedSemaphorePermit,
}

impl ResolutionLimiter {
    /// Creates a limiter of resolutions: one caller may have half of them in progress.
    pub(super) fn new(permits: usize) -> Self {
        Self::with_share(permits, permits.div_ceil(2), MAX_WAIT)
    }

    /// Creates a limiter with a maximum for each caller, whose requests wait for `max_wait`.
    pub(super) fn with_share(permits: usize, max_per_caller: usize, max_wait: Duration) -> Self {
        Self { permits: Arc::new(Semaphore::new(permits)), max_per_caller, max_wait, callers: Mutex::default() }
    }

    /// Waits for a permit: within the caller's share first, and only then beside others.
    ///
    /// # Errors
    /// `Overloaded`: no permit is free, or the caller has its share.
    pub(super) async fn acquire(&self, caller: &str) -> Result<ResolutionPermit> {
        let share = self.caller_semaphore(caller);
        let permit = async {
            let share = share.acquire_owned().await.ok()?;
            Some(ResolutionPermit { _share: share, _permit: Arc::clone(&self.permits).acquire_owned().await.ok()? })
        };
        tokio::time::timeout(self.max_wait, permit).await.ok().flatten().ok_or_else(overloaded_fault)
    }

    fn caller_semaphore(&self, caller: &str) -> Arc<Semaphore> {
        let mut callers = self.callers.lock();
        if let Some(share) = callers.get(caller).and_then(Weak::upgrade) {
            return share;
        }
        // Callers that neither hold nor await a permit are removed: the map never exceeds the active callers.
        callers.retain(|_, share| share.strong_count() > 0);
        let share = Arc::new(Semaphore::new(self.max_per_caller));
        callers.insert(caller.into(), Arc::downgrade(&share));
        share
    }
}

#[cold]
fn overloaded_fault() -> Fault {
    Fault::new(FaultCode::Overloaded, "Too many names are being resolved").with_retry_after(MAX_WAIT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn one_caller_leaves_half_of_the_permits_to_others_and_is_forgotten() {
        let limiter = ResolutionLimiter::new(4);
        let own_permits = [limiter.acquire("a").await.unwrap(), limiter.acquire("a").await.unwrap()];
        assert_eq!(limiter.acquire("a").await.unwrap_err().code(), FaultCode::Overloaded);
        let other_permits = [limiter.acquire("b").await.unwrap(), limiter.acquire("c").await.unwrap()];
        assert_eq!(limiter.acquire("d").await.unwrap_err().code(), FaultCode::Overloaded);
        let (freed, acquired) = tokio::join!(async { drop(own_permits) }, limiter.acquire("a"));
        assert!(acquired.is_ok(), "{freed:?}");
        drop((acquired, other_permits));
        limiter.acquire("e").await.unwrap();
        assert_eq!(limiter.callers.lock().len(), 1);
        assert!(ResolutionLimiter::new(1).acquire("a").await.is_ok());
    }
}
