//! The part of a draw that concerns one bucket or quota.

use super::{
    account_decision::AccountDecision,
    token_account::{AccountLimit, DecisionContext, DrawOutcome, TokenAccount},
    token_accounts::{AccountKey, TokenAccounts},
};
use crate::{
    limit::{
        limit_refusal::LimitExceeded,
        on_error::OnError,
        rate_rule::{RateLimitStatus, RateRule},
    },
    telemetry::{Event, LimitKind},
};
use std::{borrow::Borrow, sync::Arc, time::Duration};
use tokio::sync::oneshot;

/// The part of a draw that concerns one bucket or quota. `A` holds its accounts: a reference while this gateway decides, so
/// that a call that needs no server counts no references.
#[derive(Clone, Debug)]
pub(super) struct LimitPart<A = Arc<TokenAccounts>> {
    pub(super) accounts: A,
    pub(super) key: AccountKey,
    pub(super) limit: AccountLimit,
    pub(super) status: PartStatus,
}

impl LimitPart<&Arc<TokenAccounts>> {
    /// Returns the part with accounts of its own.
    pub(super) fn to_owned_part(&self) -> LimitPart {
        let &Self { accounts, key, limit, status } = self;
        LimitPart { accounts: Arc::clone(accounts), key, limit, status }
    }
}

/// What this gateway decides of a part.
#[derive(Debug)]
pub(super) enum LocalDecision {
    /// The tokens are acquired.
    Granted(RateLimitStatus),
    /// There are fewer tokens.
    Refused(LimitExceeded),
    /// Only the server knows. Nothing is acquired.
    Undecided,
    /// The server does not answer, and the limit lets calls pass then.
    Uncounted,
    /// The server does not answer, and the limit refuses calls then.
    Unavailable,
}

/// How callers are told of the part.
#[derive(Clone, Copy, Debug)]
pub(super) enum PartStatus {
    /// A bucket of a rule.
    Rate(RateRule),
    /// A quota, the time until its period ends, and the length of the period.
    Quota { limit: LimitKind, max: u64, reset: Duration, window: Duration },
}

impl PartStatus {
    fn limit(&self) -> LimitKind {
        match self {
            Self::Rate(rule) => rule.limit,
            Self::Quota { limit, .. } => *limit,
        }
    }

    fn with_remaining(&self, remaining: u64, reset: Option<Duration>) -> RateLimitStatus {
        match *self {
            Self::Rate(rule) => rule.status(u32::try_from(remaining).unwrap_or(u32::MAX), reset),
            Self::Quota { limit, max, reset, window } => {
                RateLimitStatus { limit, quota: max, remaining, reset, window }
            }
        }
    }
}

impl<A: Borrow<Arc<TokenAccounts>>> LimitPart<A> {
    /// Acquires `count` tokens, if this gateway can decide it. The server is expected to answer.
    pub(super) fn acquire(&self, count: u32, context: DecisionContext) -> LocalDecision {
        self.decide(|account| account.acquire(count, context))
    }

    /// Decides as [`LimitPart::acquire`] would, and takes nothing.
    pub(super) fn inspect(&self, count: u32, context: DecisionContext) -> LocalDecision {
        self.decide(|account| account.inspect(count, context))
    }

    /// Decides as `on_error` says, because the server does not answer.
    pub(super) fn acquire_without_server(
        &self,
        count: u32,
        context: DecisionContext,
        on_error: OnError,
    ) -> LocalDecision {
        self.accounts.borrow().record_event(Event::LimitDecidedLocally);
        match on_error {
            OnError::Open => LocalDecision::Uncounted,
            OnError::Closed => LocalDecision::Unavailable,
            OnError::Local => self.decide(|account| account.acquire_locally(count, context)),
        }
    }

    /// Decides as [`LimitPart::acquire_without_server`] would, and takes nothing.
    pub(super) fn inspect_without_server(
        &self,
        count: u32,
        context: DecisionContext,
        on_error: OnError,
    ) -> LocalDecision {
        match on_error {
            OnError::Open => LocalDecision::Uncounted,
            OnError::Closed => LocalDecision::Unavailable,
            OnError::Local => self.inspect(count, context),
        }
    }

    /// Gives back acquired tokens.
    pub(super) fn refund(&self, count: u32) {
        self.accounts.borrow().visit(self.key, self.limit, |account| account.refund(count));
    }

    /// Draws `count` tokens from the server; 0 only reads the level.
    pub(super) fn draw(&self, count: u32) -> oneshot::Receiver<DrawOutcome> {
        self.accounts.borrow().draw(self.key, self.limit, count)
    }

    /// Returns what the server decided.
    pub(super) fn drawn(&self, outcome: DrawOutcome) -> LocalDecision {
        match outcome {
            DrawOutcome::Granted { remaining } => LocalDecision::Granted(self.status.with_remaining(remaining, None)),
            DrawOutcome::Refused { remaining, retry_after } => self.refused(remaining, retry_after),
        }
    }

    /// Returns the limit.
    pub(super) fn limit(&self) -> LimitKind {
        self.status.limit()
    }

    fn decide(&self, decide: impl FnOnce(&mut TokenAccount) -> AccountDecision) -> LocalDecision {
        // An account always exists; without one the server would have to decide.
        let decision = self.accounts.borrow().visit(self.key, self.limit, decide).unwrap_or(AccountDecision::Undecided);
        match decision {
            AccountDecision::Granted { remaining } => {
                LocalDecision::Granted(self.status.with_remaining(remaining, None))
            }
            AccountDecision::Refused { remaining, retry_after } => self.refused(remaining, retry_after),
            AccountDecision::Undecided => LocalDecision::Undecided,
        }
    }

    fn refused(&self, remaining: u64, retry_after: Option<Duration>) -> LocalDecision {
        // A rate tells when it allows the call. Tokens that are left, but too few for a batch, are none for it.
        let remaining = if matches!(self.status, PartStatus::Rate(_)) { 0 } else { remaining };
        LocalDecision::Refused(LimitExceeded {
            status: self.status.with_remaining(remaining, retry_after),
            retry_after,
        })
    }
}
