//! Concurrency limit of the resolver, of which one caller may use half, so that no caller starves the others.

use crate::fault::{Code, Fault, Result};
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError, Weak},
    time::Duration,
};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, SemaphorePermit};

/// How long a request waits for a permit.
const WAIT: Duration = Duration::from_secs(1);

/// The limiter: permits in total and for each caller.
#[derive(Debug)]
pub(super) struct Turns {
    places: Semaphore,
    share: usize,
    askers: Mutex<HashMap<Box<str>, Weak<Semaphore>>>,
}

/// A permit, released when dropped.
#[derive(Debug)]
pub(super) struct Turn<'a> {
    _share: OwnedSemaphorePermit,
    _place: SemaphorePermit<'a>,
}

impl Turns {
    pub(super) fn new(places: usize) -> Self {
        Self { places: Semaphore::new(places), share: places.div_ceil(2), askers: Mutex::default() }
    }

    /// Waits briefly for a permit.
    ///
    /// # Errors
    /// `Overloaded`: no permit is free, or the caller has its share.
    pub(super) async fn take(&self, whose: &str) -> Result<Turn<'_>> {
        let share = self.share_of(whose);
        let turn = async {
            let share = share.acquire_owned().await.ok()?;
            Some(Turn { _share: share, _place: self.places.acquire().await.ok()? })
        };
        tokio::time::timeout(WAIT, turn).await.ok().flatten().ok_or_else(busy)
    }

    fn share_of(&self, whose: &str) -> Arc<Semaphore> {
        let mut askers = self.askers.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(share) = askers.get(whose).and_then(Weak::upgrade) {
            return share;
        }
        // Callers that neither hold nor await a permit are removed: the map never exceeds the active callers.
        askers.retain(|_, share| share.strong_count() > 0);
        let share = Arc::new(Semaphore::new(self.share));
        askers.insert(whose.into(), Arc::downgrade(&share));
        share
    }
}

#[cold]
fn busy() -> Fault {
    Fault::new(Code::Overloaded, "Too many names are being resolved").retry_after(WAIT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn one_caller_leaves_half_of_the_permits_to_others_and_is_forgotten() {
        let turns = Turns::new(4);
        let mine = [turns.take("a").await.unwrap(), turns.take("a").await.unwrap()];
        assert_eq!(turns.take("a").await.unwrap_err().code(), Code::Overloaded);
        let others = [turns.take("b").await.unwrap(), turns.take("c").await.unwrap()];
        assert_eq!(turns.take("d").await.unwrap_err().code(), Code::Overloaded);
        let (freed, waited) = tokio::join!(async { drop(mine) }, turns.take("a"));
        assert!(waited.is_ok(), "{freed:?}");
        drop((waited, others));
        turns.take("e").await.unwrap();
        assert_eq!(turns.askers.lock().unwrap().len(), 1);
        assert!(Turns::new(1).take("a").await.is_ok());
    }
}
