//! Sends what accounts have spent, and what calls draw, to the server: one trip at a time, for all accounts that are
//! queued. Calls that wait start a trip at once; accounts that only settle wait for the next ten milliseconds.

use super::{
    shard_progress::ShardProgress,
    store_context::StoreContext,
    token_account::QueueState,
    trip::{MAX_BATCH, PreparedEntry, SentAccount, ShardTable, Trip},
};
use crate::{
    limit::trip_size::TripSize,
    store::{StateError, TripKind},
};
use std::{
    collections::VecDeque,
    convert::Infallible,
    sync::{Arc, mpsc::SyncSender},
    time::Duration,
};
use tokio::time::{MissedTickBehavior, interval};

/// Time between two exchanges of accounts that no call waits for.
const SETTLE_INTERVAL: Duration = Duration::from_millis(10);
/// Maximum number of accounts of one trip.
const MAX_ACCOUNTS: usize = 1_024;
/// Trips after which threads that wait for a flush are looked at.
const MAX_TRIPS_IN_A_ROW: usize = 16;

/// The task that makes the trips.
pub(super) struct Exchanger {
    context: Arc<StoreContext>,
    shards: ShardTable,
    /// Trips that are sent before others: those without a reply, which the server may have applied, and the parts of one
    /// that it refused.
    backlog: VecDeque<Trip>,
    has_reported_refusal: bool,
    trip_size: TripSize,
}

impl Exchanger {
    pub(super) fn new(context: &Arc<StoreContext>) -> Self {
        Self {
            context: Arc::clone(context),
            shards: ShardTable::new(),
            backlog: VecDeque::new(),
            has_reported_refusal: false,
            trip_size: TripSize::new(MAX_ACCOUNTS.min(MAX_BATCH * usize::from(context.state.shards()))),
        }
    }

    /// Makes trips for as long as it is polled.
    pub(super) async fn run(mut self) -> Infallible {
        let mut ticks = interval(SETTLE_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let context = Arc::clone(&self.context);
        loop {
            let is_tick = tokio::select! {
                _ = ticks.tick() => true,
                () = context.queue.woken() => false,
            };
            let flushes = context.queue.take_flushes();
            self.make_trips(is_tick || !flushes.is_empty()).await;
            self.flush(flushes).await;
        }
    }

    /// Makes a trip, and further ones while calls wait, or so many accounts that they fill a trip.
    async fn make_trips(&mut self, with_settling: bool) {
        for _ in 0..MAX_TRIPS_IN_A_ROW {
            // An error leaves everything in the queue.
            let is_answered = self.exchange(with_settling).await.is_ok();
            if !is_answered || !self.context.queue.has_calls_or(self.trip_size.get()) {
                return;
            }
        }
    }

    /// Settles everything, if the server answers, and tells the threads that wait for it.
    async fn flush(&mut self, flushes: Vec<SyncSender<()>>) {
        if flushes.is_empty() {
            return;
        }
        while !self.is_done() && self.exchange(true).await.is_ok() {}
        if self.is_done() {
            for done in flushes {
                // A thread that waits no more needs no answer.
                let _ = done.try_send(());
            }
        }
    }

    fn is_done(&self) -> bool {
        self.backlog.is_empty() && self.context.queue.is_empty()
    }

    /// Makes one trip, if there is anything to send; before it, those of the backlog.
    async fn exchange(&mut self, with_settling: bool) -> Result<(), StateError> {
        if !self.context.state.is_available_for(TripKind::Tokens) {
            self.abandon_draws();
            return Err(StateError::Unavailable);
        }
        self.send_backlog().await?;
        let trip = self.next_trip(with_settling);
        if !trip.is_empty() {
            self.backlog.push_back(trip);
        }
        self.send_backlog().await
    }

    async fn send_backlog(&mut self) -> Result<(), StateError> {
        while let Some(trip) = self.backlog.pop_front() {
            self.make_trip(trip).await?;
        }
        Ok(())
    }

    async fn make_trip(&mut self, mut trip: Trip) -> Result<(), StateError> {
        trip.prepare(&mut self.shards, self.context.now().now);
        let deadline = trip.deadline(self.context.state.limit_timeout());
        match self.context.state.exchange_tokens(trip.batches(), deadline).await {
            Ok(replies) => {
                self.trip_size.record_reply(trip.entry_count());
                trip.finish(replies, &mut self.shards);
                Ok(())
            }
            Err(StateError::Refused(why)) => {
                self.divide(trip, &why);
                Ok(())
            }
            Err(why) => {
                if why == StateError::Timeout {
                    self.trip_size.record_timeout(trip.entry_count());
                }
                trip.record_failure();
                self.backlog.push_front(trip);
                Err(why)
            }
        }
    }

    /// Sends the parts of a trip that the server refused, until the entry is found that it does not accept. That one is
    /// dropped, so that it does not stop the others.
    fn divide(&mut self, trip: Trip, why: &str) {
        if trip.entry_count() > 1 {
            trip.divide().into_iter().rev().for_each(|part| self.backlog.push_front(part));
            return;
        }
        for SentAccount { account: (accounts, key), .. } in trip.into_accounts() {
            if !std::mem::replace(&mut self.has_reported_refusal, true) {
                tracing::error!(
                    error = why,
                    entry = format_args!("{:032x}", key.id),
                    "the shared state refused the count of a limit: some calls of it are not counted (report this error; \
                     it is logged once)"
                );
            }
            accounts.revisit(key, |account| account.abandon_exchange());
        }
    }

    /// Takes accounts from the queue, and makes batches of what they have to send.
    fn next_trip(&mut self, with_settling: bool) -> Trip {
        let now = self.context.now().now;
        let mut trip = Trip::default();
        for account in self.context.queue.take(self.trip_size.get(), with_settling) {
            let (accounts, key) = &account;
            let shard = self.context.state.shard_of(key.hash);
            if !trip.accepts(shard, key.id) {
                // The next trip takes it. An id can occur twice: an account is queued again while its calls go on, and that
                // of a rate that was removed and came back has a successor.
                accounts.revisit(*key, |account| account.queue_state = QueueState::Idle);
                continue;
            }
            let losses = self.shards.get(&shard).map_or(0, ShardProgress::losses);
            let begun = accounts.visit_existing(*key, |account| {
                account.queue_state = QueueState::Idle;
                account.begin_exchange(now, losses)
            });
            if let Some((entry, draws)) = begun.flatten() {
                trip.push(shard, PreparedEntry { entry, sent: SentAccount { account, draws } });
            }
        }
        trip
    }

    /// Tells the calls that wait that there will be no reply. Their accounts settle later.
    fn abandon_draws(&self) {
        for (accounts, key) in self.context.queue.take(usize::MAX, false) {
            accounts.revisit(key, |account| {
                account.queue_state = QueueState::Idle;
                account.abandon_draws();
            });
        }
    }
}
