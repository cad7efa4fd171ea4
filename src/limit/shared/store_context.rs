//! What all accounts of a shared store have in common.

use super::{
    token_account::DecisionContext,
    token_accounts::{AccountQueue, TokenAccounts},
};
use crate::{
    limit::{
        clock::{CalendarTime, LimitClock},
        on_error::{OnError, OnErrorConfig},
    },
    store::{SharedState, TripKind},
    telemetry::{LimitKind, Metrics},
};
use arc_swap::ArcSwap;
use std::sync::Arc;

/// The shared state, the clock, the queue of the exchanger, and what limits do without the server.
#[derive(Debug)]
pub(super) struct StoreContext {
    pub(super) state: Arc<SharedState>,
    pub(super) clock: LimitClock,
    pub(super) queue: Arc<AccountQueue>,
    pub(super) metrics: Arc<Metrics>,
    on_error: ArcSwap<OnErrorConfig>,
}

impl StoreContext {
    pub(super) fn new(
        state: &Arc<SharedState>,
        clock: LimitClock,
        metrics: &Arc<Metrics>,
        on_error: OnErrorConfig,
    ) -> Self {
        Self {
            state: Arc::clone(state),
            clock,
            queue: Arc::default(),
            metrics: Arc::clone(metrics),
            on_error: ArcSwap::from_pointee(on_error),
        }
    }

    /// Returns the circumstances of a decision now.
    pub(super) fn now(&self) -> DecisionContext {
        DecisionContext {
            now: u64::try_from(self.clock.elapsed().as_nanos()).unwrap_or(u64::MAX),
            gateways: self.state.gateway_count(),
            is_available: self.state.is_available_for(TripKind::Tokens),
        }
    }

    /// Returns the day and the month by the server's clock, so that all gateways begin them together.
    pub(super) fn calendar_now(&self) -> CalendarTime {
        let seconds = self.state.server_time().as_secs();
        CalendarTime::from_unix(i64::try_from(seconds).unwrap_or_default())
    }

    /// Returns what a limit does without the server.
    pub(super) fn on_error(&self, limit: LimitKind) -> OnError {
        self.on_error.load().of(limit)
    }

    pub(super) fn set_on_error(&self, on_error: OnErrorConfig) {
        self.on_error.store(Arc::new(on_error));
    }

    /// Creates accounts for at most `max_keys` keys.
    pub(super) fn new_accounts(&self, max_keys: usize) -> Arc<TokenAccounts> {
        TokenAccounts::new(max_keys, &self.queue, &self.metrics)
    }
}
