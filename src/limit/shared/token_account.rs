//! What one gateway knows of one bucket or quota, and what it has spent of it. No I/O, no lock: arithmetic.
//!
//! Levels are in units: nanoseconds until a bucket is full, where a token is its refill interval; calls of a quota, where
//! a token is one.

use super::{
    account_decision::AccountDecision,
    local_part::{DividedBucket, LocalPart, UnsettledTokens},
};
use crate::store::{TokenEntry, TokenLimit, TokenReply};
use std::time::Duration;
use tokio::sync::oneshot;

/// The limit of an account.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AccountLimit {
    /// A bucket.
    Rate {
        /// Nanoseconds in which the bucket gains a token; at least 1.
        refill_interval: u64,
        /// Tokens of a full bucket.
        burst: u32,
    },
    /// A count of calls.
    Quota {
        /// Maximum of the count.
        max: u64,
        /// When the period ends, in nanoseconds of the clock.
        ends_at: u64,
    },
}

/// The circumstances of a decision.
#[derive(Clone, Copy, Debug)]
pub(super) struct DecisionContext {
    /// Nanoseconds of the clock.
    pub(super) now: u64,
    /// Gateways that were alive at the last heartbeat; at least 1.
    pub(super) gateways: u32,
    /// Whether the server answers, as far as is known.
    pub(super) is_available: bool,
}

/// What became of a draw from the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DrawOutcome {
    Granted { remaining: u64 },
    Refused { remaining: u64, retry_after: Option<Duration> },
}

/// A call that waits for the server.
#[derive(Debug)]
pub(super) struct WaitingDraw {
    pub(super) count: u32,
    pub(super) outcome: oneshot::Sender<DrawOutcome>,
}

/// A reply of the server, and its circumstances.
#[derive(Clone, Copy, Debug)]
pub(super) struct ExchangeReply {
    pub(super) reply: TokenReply,
    /// When the exchange was sent last, in nanoseconds of the clock.
    pub(super) sent_at: u64,
    /// When it was sent first; the server may have granted tokens since.
    pub(super) first_sent_at: u64,
    /// How often the shard has lost data until then.
    pub(super) losses: u32,
}

/// Why an account is in the queue of the exchanger.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum QueueState {
    /// It is not.
    #[default]
    Idle,
    /// It has tokens to settle.
    Settling,
    /// Calls wait for it.
    Drawing,
}

/// The account of one bucket or quota.
#[derive(Debug)]
pub(super) struct TokenAccount {
    id: u128,
    limit: AccountLimit,
    /// The level that the server reported: the time at which the bucket is full, or the count.
    known: u64,
    /// When the server was asked for it.
    known_at: u64,
    /// How often the shard had lost data before the server reported `known`.
    losses: u32,
    /// Tokens that were spent and not sent; negative if more were refunded.
    pending: i64,
    /// Tokens that were sent and are not confirmed.
    in_flight: i64,
    /// This gateway's part of a bucket while the server is away. A part of a quota needs no state of its own.
    fallback: Option<Box<LocalPart>>,
    waiting: Vec<WaitingDraw>,
    pub(super) queue_state: QueueState,
}

impl AccountLimit {
    /// Units of one token.
    const fn unit(self) -> i128 {
        match self {
            Self::Rate { refill_interval, .. } => refill_interval as i128,
            Self::Quota { .. } => 1,
        }
    }

    /// Tokens in all.
    const fn max(self) -> u64 {
        match self {
            Self::Rate { burst, .. } => burst as u64,
            Self::Quota { max, .. } => max,
        }
    }

    /// Units in all.
    const fn capacity(self) -> i128 {
        self.unit() * self.max() as i128
    }

    /// Tokens of which a gateway may be ahead of the server.
    fn allowance(self, gateways: u32) -> i64 {
        i64::try_from((self.max() / (4 * u64::from(gateways))).max(1)).unwrap_or(i64::MAX)
    }
}

impl TokenAccount {
    /// Creates the account of a full bucket, or of an unused quota, as far as is known.
    pub(super) fn new(id: u128, limit: AccountLimit) -> Self {
        Self {
            id,
            limit,
            known: 0,
            known_at: 0,
            losses: 0,
            pending: 0,
            in_flight: 0,
            fallback: None,
            waiting: Vec::new(),
            queue_state: QueueState::Idle,
        }
    }

    /// Sets the limit, which differs between the tiers of a quota.
    pub(super) fn set_limit(&mut self, limit: AccountLimit) {
        self.limit = limit;
    }

    /// Returns the level that the server reported, as it is now: a lower bound.
    fn known_level(&self, now: u64) -> i128 {
        match self.limit {
            AccountLimit::Rate { .. } => self.known.saturating_sub(now).into(),
            AccountLimit::Quota { .. } => self.known.into(),
        }
    }

    /// Returns the level with what this gateway has spent since.
    fn level(&self, now: u64) -> i128 {
        let unsettled = i128::from(self.pending) + i128::from(self.in_flight);
        (self.known_level(now) + unsettled * self.limit.unit()).max(0)
    }

    /// Spends `count` tokens, if this gateway can decide it.
    pub(super) fn acquire(&mut self, count: u32, context: DecisionContext) -> AccountDecision {
        if !context.is_available {
            return self.acquire_locally(count, context);
        }
        self.leave_fallback(context.now);
        let (level, capacity) = (self.level(context.now), self.limit.capacity());
        let after = level + self.limit.unit() * i128::from(count);
        if after > capacity {
            return if self.may_be_outdated(context.now) {
                AccountDecision::Undecided
            } else {
                self.refuse(count, level, context.now)
            };
        }
        let unsettled = self.pending.max(0) + self.in_flight.max(0) + i64::from(count);
        let is_ahead =
            self.waiting.is_empty() && 2 * after <= capacity && unsettled <= self.limit.allowance(context.gateways);
        if !is_ahead {
            return AccountDecision::Undecided;
        }
        self.pending += i64::from(count);
        AccountDecision::Granted { remaining: self.remaining(after) }
    }

    /// Returns whether a count that refuses a call has not been asked for in a while: others may have given back calls. A
    /// bucket needs no such question, because it gains tokens.
    fn may_be_outdated(&self, now: u64) -> bool {
        let age = Duration::from_nanos(now.saturating_sub(self.known_at));
        matches!(self.limit, AccountLimit::Quota { .. }) && self.waiting.is_empty() && age >= QUOTA_RECHECK_INTERVAL
    }

    /// Decides with what is known, as the server would if nothing has changed, and spends nothing.
    pub(super) fn inspect(&self, count: u32, context: DecisionContext) -> AccountDecision {
        if !context.is_available {
            return Self { waiting: Vec::new(), fallback: self.fallback.clone(), ..*self }
                .acquire_locally(count, context);
        }
        let level = self.level(context.now);
        let after = level + self.limit.unit() * i128::from(count);
        if after > self.limit.capacity() {
            return self.refuse(count, level, context.now);
        }
        AccountDecision::Granted { remaining: self.remaining(after) }
    }

    /// Spends `count` tokens of this gateway's part of the limit, without the server.
    pub(super) fn acquire_locally(&mut self, count: u32, context: DecisionContext) -> AccountDecision {
        let DecisionContext { now, gateways, .. } = context;
        let AccountLimit::Rate { refill_interval, burst } = self.limit else {
            return self.acquire_local_quota(count, context);
        };
        let known_level = self.known_level(now);
        let part = self.fallback.get_or_insert_with(|| {
            let unsettled = UnsettledTokens { pending: self.pending, in_flight: self.in_flight };
            // The part counts them from now on.
            self.pending = self.pending.min(0);
            let bucket = DividedBucket { refill_interval, burst, gateways };
            Box::new(LocalPart::new(bucket, known_level, unsettled, now))
        });
        part.acquire(count, now)
    }

    fn acquire_local_quota(&mut self, count: u32, context: DecisionContext) -> AccountDecision {
        let part = (self.limit.capacity() - i128::from(self.known)).max(0) / i128::from(context.gateways);
        let used = i128::from(self.pending) + i128::from(self.in_flight);
        let remaining = (part - used).max(0);
        if remaining < i128::from(count) {
            return self.refuse(count, self.limit.capacity() - remaining, context.now);
        }
        self.pending += i64::from(count);
        AccountDecision::Granted { remaining: to_u64(remaining - i128::from(count)) }
    }

    /// Counts again for all gateways: what was spent of this gateway's part and is not refilled is to be settled.
    fn leave_fallback(&mut self, now: u64) {
        if let Some(part) = self.fallback.take() {
            self.pending += part.unsettled(now);
        }
    }

    /// Adds a call that waits for the server.
    pub(super) fn wait(&mut self, draw: WaitingDraw) {
        self.waiting.push(draw);
    }

    /// Drops the calls that wait: there will be no reply.
    pub(super) fn abandon_draws(&mut self) {
        self.waiting.clear();
    }

    /// Gives back tokens that were spent.
    pub(super) fn refund(&mut self, count: u32) {
        match &mut self.fallback {
            Some(part) => part.refund(count),
            None => self.pending -= i64::from(count),
        }
    }

    /// Returns the state in which the account has to be queued, unless it is already queued so.
    pub(super) fn raise_queue_state(&mut self) -> Option<QueueState> {
        let needed = self.needed_queue_state();
        let is_raised = needed > self.queue_state;
        is_raised.then(|| {
            self.queue_state = needed;
            needed
        })
    }

    fn needed_queue_state(&self) -> QueueState {
        match self {
            Self { waiting, .. } if !waiting.is_empty() => QueueState::Drawing,
            Self { pending: 0, fallback: None, .. } => QueueState::Idle,
            _ => QueueState::Settling,
        }
    }

    /// Returns what to send to the server, and the calls that wait for the reply. `None` if there is nothing.
    pub(super) fn begin_exchange(&mut self, now: u64, losses: u32) -> Option<(TokenEntry, Vec<WaitingDraw>)> {
        self.leave_fallback(now);
        if self.pending == 0 && self.waiting.is_empty() {
            return None;
        }
        let draws = std::mem::take(&mut self.waiting);
        let drawn = draws.iter().fold(0_u32, |sum, draw| sum.saturating_add(draw.count));
        let (limit, known_level) = match self.limit {
            AccountLimit::Rate { refill_interval, burst } => {
                let limit = TokenLimit::Rate { refill_interval: Duration::from_nanos(refill_interval), burst };
                (limit, to_u64(self.known_level(now)) / 1_000)
            }
            AccountLimit::Quota { max, ends_at } => {
                let lifetime = Duration::from_nanos(ends_at.saturating_sub(now));
                (TokenLimit::Quota { max, lifetime: lifetime + QUOTA_GRACE }, self.known)
            }
        };
        let settled = std::mem::take(&mut self.pending);
        self.in_flight = settled;
        let restores = self.losses != losses;
        Some((TokenEntry { id: self.id, limit, settled, drawn, known_level, restores }, draws))
    }

    /// Applies the reply to an exchange, and tells the calls that wait for it.
    pub(super) fn finish_exchange(&mut self, reply: ExchangeReply, draws: Vec<WaitingDraw>) {
        let ExchangeReply { reply, sent_at, first_sent_at, losses } = reply;
        self.in_flight = 0;
        (self.known_at, self.losses) = (sent_at, losses);
        self.known = match self.limit {
            // The server decided after `sent_at`, so that this is a lower bound.
            AccountLimit::Rate { .. } => sent_at.saturating_add(reply.level.saturating_mul(1_000)),
            AccountLimit::Quota { .. } => reply.level,
        };
        let mut tokens = reply.granted;
        let level = self.level(sent_at);
        for draw in draws {
            let is_granted = draw.count <= tokens;
            let outcome = match self.refuse(draw.count, level, sent_at) {
                AccountDecision::Refused { remaining, retry_after } if !is_granted => {
                    DrawOutcome::Refused { remaining, retry_after }
                }
                _ => DrawOutcome::Granted { remaining: self.remaining(level) },
            };
            // A call that has left leaves its tokens here.
            if draw.outcome.send(outcome).is_ok() && is_granted {
                tokens -= draw.count;
            }
        }
        self.pending -= self.returnable(tokens, sent_at.saturating_sub(first_sent_at));
    }

    /// Returns how many of the tokens that no call waits for are to be given back, `age` nanoseconds after the server
    /// granted them. The bucket may have gained them since, so that they would be given back twice.
    fn returnable(&self, tokens: u32, age: u64) -> i64 {
        let AccountLimit::Rate { refill_interval, .. } = self.limit else { return tokens.into() };
        let gained = age.saturating_add(refill_interval / 2) / refill_interval;
        i64::from(tokens).saturating_sub_unsigned(gained).max(0)
    }

    /// Gives up an exchange that the server refused. Its calls are decided without the server.
    pub(super) fn abandon_exchange(&mut self) {
        self.in_flight = 0;
    }

    /// Returns whether nothing is lost if the account is dropped: the bucket is full, or the quota's period is over.
    pub(super) fn is_idle(&self, now: u64) -> bool {
        let is_over = match self.limit {
            AccountLimit::Rate { .. } => self.known <= now,
            AccountLimit::Quota { ends_at, .. } => ends_at <= now,
        };
        is_over && self.pending == 0 && self.in_flight == 0 && self.fallback.is_none() && self.waiting.is_empty()
    }

    fn remaining(&self, level: i128) -> u64 {
        to_u64((self.limit.capacity() - level).max(0) / self.limit.unit())
    }

    fn refuse(&self, count: u32, level: i128, now: u64) -> AccountDecision {
        let missing = level + self.limit.unit() * i128::from(count) - self.limit.capacity();
        let delay = match self.limit {
            AccountLimit::Rate { .. } => to_duration(missing.max(0)),
            AccountLimit::Quota { ends_at, .. } => Duration::from_nanos(ends_at.saturating_sub(now)),
        };
        let retry_after = (u64::from(count) <= self.limit.max()).then_some(delay);
        AccountDecision::Refused { remaining: self.remaining(level), retry_after }
    }

    #[cfg(test)]
    pub(super) fn unsettled(&self) -> i64 {
        self.pending + self.in_flight
    }
}

/// How long calls are refused because of a count that the server reported, without asking again.
const QUOTA_RECHECK_INTERVAL: Duration = Duration::from_secs(5);

/// How long a quota is kept after its period, for gateways whose clock is behind.
const QUOTA_GRACE: Duration = Duration::from_secs(3_600);

fn to_u64(value: i128) -> u64 {
    u64::try_from(value.max(0)).unwrap_or(u64::MAX)
}

fn to_duration(nanos: i128) -> Duration {
    Duration::from_nanos(to_u64(nanos))
}
