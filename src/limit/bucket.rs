//! One rate: a bucket for each key, or for one agent. What was taken can be given back, so that a call which
//! another bucket refuses costs nothing here.

use super::{
    clock::Clock,
    standing::Standing,
    store::{Cells, Keyed, Shared, Single},
};
use crate::{
    telemetry::{Limit, Metrics},
    unit::Rate,
};
use governor::{Quota, RateLimiter, clock::Clock as _, middleware::StateInformationMiddleware};
use std::{
    num::NonZeroU32,
    sync::{Arc, atomic::Ordering::AcqRel, atomic::Ordering::Acquire},
    time::Duration,
};

/// A bucket cannot be filled for longer than this: beyond it the arithmetic of nanoseconds would end.
const FULLEST: Duration = Duration::from_secs(100 * 366 * 86_400);

/// Why nothing was taken.
#[derive(Debug)]
pub(super) struct Empty {
    /// How the bucket stands.
    pub(super) standing: Standing,
    /// When it would do; `None` if so much at once never will.
    pub(super) wait: Option<Duration>,
}

/// Something to take from.
pub(super) trait Draw {
    /// Takes `n` at once, or nothing.
    fn take(&self, key: u64, n: NonZeroU32) -> Result<Standing, Empty>;
    /// Gives back what was taken.
    fn give_back(&self, key: u64, n: NonZeroU32);
}

/// Buckets of one rate.
#[derive(Debug)]
pub(super) struct Bucket<C: Cells> {
    pub(super) limit: Limit,
    pub(super) rate: Rate,
    burst: NonZeroU32,
    step: Duration,
    cells: Arc<C>,
    limiter: RateLimiter<u64, Shared<C>, Clock, StateInformationMiddleware>,
}

impl Bucket<Keyed> {
    pub(super) fn keyed(limit: Limit, rate: Rate, most: usize, (clock, metrics): (&Clock, &Arc<Metrics>)) -> Self {
        Self::new(limit, rate, clock, Keyed::new(most, Arc::clone(metrics)))
    }

    pub(super) fn cells(&self) -> &Keyed {
        &self.cells
    }
}

impl Bucket<Single> {
    pub(super) fn single(limit: Limit, rate: Rate, clock: &Clock) -> Self {
        Self::new(limit, rate, clock, Single::default())
    }

    /// Whether it is as good as new.
    pub(super) fn is_full(&self) -> bool {
        let probe = self.take(0, NonZeroU32::MIN);
        if probe.is_ok() {
            self.give_back(0, NonZeroU32::MIN);
        }
        probe.is_ok_and(|standing| standing.remaining + 1 >= u64::from(self.burst.get()))
    }
}

impl<C: Cells> Bucket<C> {
    fn new(limit: Limit, rate: Rate, clock: &Clock, cells: C) -> Self {
        let step = (rate.period / rate.count.get()).max(Duration::from_nanos(1));
        let most = u32::try_from(FULLEST.as_nanos() / step.as_nanos()).unwrap_or(u32::MAX);
        let burst = rate.burst.min(NonZeroU32::new(most).unwrap_or(NonZeroU32::MIN));
        let quota = Quota::with_period(step).unwrap_or(Quota::per_second(rate.count)).allow_burst(burst);
        let cells = Arc::new(cells);
        let limiter = RateLimiter::new(quota, Shared(Arc::clone(&cells)), clock.clone());
        Self { limit, rate, burst, step, cells, limiter }
    }

    /// Drops some of the keys that are idle.
    pub(super) fn sweep(&self) {
        self.limiter.retain_recent();
    }

    fn standing(&self, remaining: u32, reset: Option<Duration>) -> Standing {
        let missing = self.burst.get().saturating_sub(remaining);
        Standing {
            limit: self.limit,
            quota: u64::from(self.burst.get()),
            remaining: u64::from(remaining),
            reset: reset.unwrap_or(self.step.saturating_mul(missing)),
            window: self.step.saturating_mul(self.burst.get()),
        }
    }
}

impl<C: Cells> Draw for Bucket<C> {
    fn take(&self, key: u64, n: NonZeroU32) -> Result<Standing, Empty> {
        let taken = match n.get() {
            1 => Ok(self.limiter.check_key(&key)),
            // Asked for so many, the crate's arithmetic could end.
            _ if n > self.burst => {
                return Err(Empty { standing: self.standing(0, None), wait: None });
            }
            _ => self.limiter.check_key_n(&key, n),
        };
        match taken {
            Ok(Ok(state)) => Ok(self.standing(state.remaining_burst_capacity(), None)),
            Ok(Err(not)) => {
                let wait = not.wait_time_from(self.limiter.clock().now());
                Err(Empty { standing: self.standing(0, Some(wait)), wait: Some(wait) })
            }
            Err(_) => Err(Empty { standing: self.standing(0, None), wait: None }),
        }
    }

    fn give_back(&self, key: u64, n: NonZeroU32) {
        let nanos = self.step.as_nanos().saturating_mul(u128::from(n.get()));
        let nanos = u64::try_from(nanos).unwrap_or(u64::MAX);
        self.cells.cell(key, false, |cell| {
            // Always `Some`, so it always succeeds. One nanosecond stays: zero means a new cell.
            let _ = cell.fetch_update(AcqRel, Acquire, |full| Some(full.saturating_sub(nanos).max(1)));
        });
    }
}
