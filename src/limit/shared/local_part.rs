//! One gateway's part of a bucket while the server is away. No I/O, no lock: arithmetic.

use super::account_decision::AccountDecision;
use std::time::Duration;

/// The bucket that is divided.
#[derive(Clone, Copy, Debug)]
pub(super) struct DividedBucket {
    /// Nanoseconds in which the whole bucket gains a token.
    pub(super) refill_interval: u64,
    /// Tokens of the full bucket.
    pub(super) burst: u32,
    /// Gateways among which it is divided.
    pub(super) gateways: u32,
}

/// What a gateway has spent when a bucket is divided.
#[derive(Clone, Copy, Debug)]
pub(super) struct UnsettledTokens {
    /// Tokens that were not sent to the server.
    pub(super) pending: i64,
    /// Tokens that were sent and are not confirmed.
    pub(super) in_flight: i64,
}

/// A gateway's part of a bucket. It holds the tokens of the bucket divided by the number of gateways, and gains a token in
/// the time in which the whole bucket gains one for each gateway.
#[derive(Clone, Copy, Debug)]
pub(super) struct LocalPart {
    /// The bucket as it was divided. When the server is back, the number of gateways that is known differs for some
    /// seconds, and the levels of the part mean nothing with another number.
    bucket: DividedBucket,
    /// When the part is full, in nanoseconds of the clock.
    full_at: u64,
    /// When it would be full without the tokens that this gateway has spent and not settled.
    settled_full_at: u64,
    in_flight: i64,
}

impl LocalPart {
    /// Makes a part that is as full as the whole bucket, whose level the server reported, without what this gateway has
    /// spent since.
    pub(super) fn new(bucket: DividedBucket, level: i128, unsettled: UnsettledTokens, now: u64) -> Self {
        let mut part = Self { bucket, full_at: now, settled_full_at: now, in_flight: unsettled.in_flight.max(0) };
        part.settled_full_at = now.saturating_add(to_u64(level.min(part.capacity())));
        let spent = part.unit() * i128::from(unsettled.pending.max(0) + part.in_flight);
        part.full_at = part.settled_full_at.saturating_add(to_u64(spent));
        part
    }

    /// Nanoseconds in which the part gains a token.
    fn unit(&self) -> i128 {
        i128::from(self.bucket.refill_interval) * i128::from(self.bucket.gateways)
    }

    fn tokens(&self) -> u32 {
        (self.bucket.burst / self.bucket.gateways).max(1)
    }

    fn capacity(&self) -> i128 {
        self.unit() * i128::from(self.tokens())
    }

    /// Spends `count` tokens, if the part has so many.
    pub(super) fn acquire(&mut self, count: u32, now: u64) -> AccountDecision {
        let level = i128::from(self.full_at.saturating_sub(now));
        let (unit, capacity) = (self.unit(), self.capacity());
        let after = level + unit * i128::from(count);
        let remaining = |level: i128| to_u64((capacity - level) / unit);
        if after > capacity {
            let delay = Duration::from_nanos(to_u64(after - capacity));
            let retry_after = (count <= self.tokens()).then_some(delay);
            return AccountDecision::Refused { remaining: remaining(level), retry_after };
        }
        self.full_at = now.saturating_add(to_u64(after));
        AccountDecision::Granted { remaining: remaining(after) }
    }

    /// Gives back tokens that were spent.
    pub(super) fn refund(&mut self, count: u32) {
        self.full_at = self.full_at.saturating_sub(to_u64(self.unit() * i128::from(count)));
    }

    /// Returns the tokens that were spent, and neither sent nor refilled.
    pub(super) fn unsettled(&self, now: u64) -> i64 {
        let [level, settled_level] = [self.full_at, self.settled_full_at].map(|at| i128::from(at.saturating_sub(now)));
        let unsettled = (level - settled_level).div_euclid(self.unit()) - i128::from(self.in_flight);
        i64::try_from(unsettled.max(0)).unwrap_or(i64::MAX)
    }
}

fn to_u64(value: i128) -> u64 {
    u64::try_from(value.max(0)).unwrap_or(u64::MAX)
}
