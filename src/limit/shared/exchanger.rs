//! Sends what accounts have spent, and what calls draw, to the server: one trip at a time, for all accounts that are
//! queued. Calls that wait start a trip at once; accounts that only settle wait for the next ten milliseconds.

use super::{
    store_context::StoreContext,
    token_account::{QueueState, WaitingDraw},
    token_accounts::QueuedAccount,
};
use crate::store::{StateError, TokenBatch, TokenEntry, TokenReply, TripKind};
use std::{
    collections::HashMap,
    convert::Infallible,
    sync::{Arc, mpsc::SyncSender},
    time::Duration,
};
use tokio::time::{MissedTickBehavior, interval};

/// Time between two exchanges of accounts that no call waits for.
const SETTLE_INTERVAL: Duration = Duration::from_millis(10);
/// Maximum number of accounts of one trip.
const MAX_ACCOUNTS: usize = 1_024;
/// Maximum number of accounts that the server handles without a break for others.
const MAX_BATCH: usize = 256;

/// An account in a trip, with the calls that wait for its reply.
struct SentAccount {
    account: QueuedAccount,
    draws: Vec<WaitingDraw>,
}

/// The batches of a trip, and their accounts in the same order.
#[derive(Default)]
struct Trip {
    batches: Vec<TokenBatch>,
    accounts: Vec<Vec<SentAccount>>,
}

/// What one account sends.
struct PreparedEntry {
    shard: u8,
    entry: TokenEntry,
    account: SentAccount,
}

impl Trip {
    /// Adds an entry to the last batch, or to a new one if that is full or of another shard.
    fn push(&mut self, prepared: PreparedEntry, next_sequence: impl FnOnce(u8) -> u64) {
        let PreparedEntry { shard, entry, account } = prepared;
        let fits = |batch: &&mut TokenBatch| batch.shard == shard && batch.entries.len() < MAX_BATCH;
        if let (Some(batch), Some(accounts)) = (self.batches.last_mut().filter(fits), self.accounts.last_mut()) {
            batch.entries.push(entry);
            accounts.push(account);
            return;
        }
        self.batches.push(TokenBatch { sequence: next_sequence(shard), shard, entries: vec![entry] });
        self.accounts.push(vec![account]);
    }
}

/// The task that makes the trips.
pub(super) struct Exchanger {
    context: Arc<StoreContext>,
    /// Number of the last batch of each shard.
    sequences: HashMap<u8, u64>,
    /// A trip without a reply, which is sent again before others: the server may have applied it.
    unanswered: Option<Trip>,
}

impl Exchanger {
    pub(super) fn new(context: &Arc<StoreContext>) -> Self {
        Self { context: Arc::clone(context), sequences: HashMap::new(), unanswered: None }
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
            // An error leaves everything in the queue.
            let _ = self.exchange(is_tick || !flushes.is_empty()).await;
            self.flush(flushes).await;
        }
    }

    /// Settles everything, if the server answers, and tells the threads that wait for it.
    async fn flush(&mut self, flushes: Vec<SyncSender<()>>) {
        if flushes.is_empty() {
            return;
        }
        while (self.unanswered.is_some() || !self.context.queue.is_empty()) && self.exchange(true).await.is_ok() {}
        if self.unanswered.is_none() && self.context.queue.is_empty() {
            for done in flushes {
                // A thread that waits no more needs no answer.
                let _ = done.try_send(());
            }
        }
    }

    /// Makes one trip, if there is anything to send; before it, the one that had no reply.
    async fn exchange(&mut self, with_settling: bool) -> Result<(), StateError> {
        if !self.context.state.is_available_for(TripKind::Tokens) {
            self.abandon_draws();
            return Err(StateError::Unavailable);
        }
        if let Some(mut trip) = self.unanswered.take() {
            // Their calls were decided without the server.
            trip.batches.iter_mut().flat_map(|batch| &mut batch.entries).for_each(|entry| entry.drawn = 0);
            self.make_trip(trip).await?;
        }
        let trip = self.next_trip(with_settling);
        if trip.batches.is_empty() { Ok(()) } else { self.make_trip(trip).await }
    }

    async fn make_trip(&mut self, mut trip: Trip) -> Result<(), StateError> {
        let sent_at = self.context.now().now;
        match self.context.state.exchange_tokens(&trip.batches).await {
            Ok(replies) => {
                for (accounts, replies) in trip.accounts.into_iter().zip(replies) {
                    apply_replies(accounts, &replies, sent_at);
                }
                Ok(())
            }
            Err(why) => {
                // The calls learn at once that there is no reply.
                trip.accounts.iter_mut().flatten().for_each(|sent| sent.draws.clear());
                self.unanswered = Some(trip);
                Err(why)
            }
        }
    }

    /// Takes accounts from the queue, and makes batches of what they have to send.
    fn next_trip(&mut self, with_settling: bool) -> Trip {
        let context = self.context.now();
        let queued = self.context.queue.take(MAX_ACCOUNTS, with_settling);
        let mut entries = Vec::with_capacity(queued.len());
        for account in queued {
            let (accounts, key) = &account;
            let begun = accounts.visit_existing(*key, |account| {
                account.queue_state = QueueState::Idle;
                account.begin_exchange(context)
            });
            if let Some((entry, draws)) = begun.flatten() {
                let shard = self.context.state.shard_of(key.hash);
                entries.push(PreparedEntry { shard, entry, account: SentAccount { account, draws } });
            }
        }
        entries.sort_by_key(|prepared| prepared.shard);
        let mut trip = Trip::default();
        for prepared in entries {
            let sequences = &mut self.sequences;
            trip.push(prepared, |shard| {
                let sequence = sequences.entry(shard).or_default();
                *sequence += 1;
                *sequence
            });
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

fn apply_replies(accounts: Vec<SentAccount>, replies: &[TokenReply], sent_at: u64) {
    for (SentAccount { account: (accounts, key), draws }, reply) in accounts.into_iter().zip(replies) {
        // Refunded tokens are settled next.
        accounts.revisit(key, |account| account.finish_exchange(*reply, draws, sent_at));
    }
}
