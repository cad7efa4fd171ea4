//! Token buckets of one rate: one per key, or a single one for an agent. Tokens can be refunded, so that a call that
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

/// Upper bound on the time to fill a bucket: beyond it the arithmetic in nanoseconds overflows.
const FULLEST: Duration = Duration::from_secs(100 * 366 * 86_400);

/// Reason why no tokens were acquired.
#[derive(Debug)]
pub(super) struct Empty {
    /// State of the limit that refused.
    pub(super) standing: Standing,
    /// Time until enough tokens are available; `None` if the limit never allows so many at once.
    pub(super) wait: Option<Duration>,
}

/// Something that tokens are acquired from.
pub(super) trait Draw {
    /// Acquires `n` tokens, or none.
    fn take(&self, key: u64, n: NonZeroU32) -> Result<Standing, Empty>;
    /// Refunds `n` acquired tokens.
    fn give_back(&self, key: u64, n: NonZeroU32);
}

/// Token buckets of one rate.
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

    /// Returns whether the bucket is full, as a new one is.
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

    /// Evicts some of the keys whose buckets are full.
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
            // Beyond the burst, the arithmetic of `governor` can overflow.
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
            // The closure returns `Some`, so the update succeeds. One nanosecond stays: zero means a new bucket.
            let _ = cell.fetch_update(AcqRel, Acquire, |full| Some(full.saturating_sub(nanos).max(1)));
        });
    }
}
