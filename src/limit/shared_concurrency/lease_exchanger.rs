//! Makes the trips to the server: one at a time, for all accounts that are due.

use super::{
    lease_account::LeaseTimes,
    lease_context::{LeaseContext, LeaseWake},
    shared_concurrency_limiter::SharedConcurrencyLimiter,
};
use crate::{
    limit::trip_size::TripSize,
    store::{LeaseBatch, LeaseEntry, StateError},
};
use parking_lot::Mutex;
use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Weak, mpsc::SyncSender},
    time::Duration,
};
use tokio::sync::mpsc::UnboundedReceiver;

/// Maximum number of agents of one trip, and of those that the server handles without a break for others.
const MAX_TRIP: usize = 4_096;
const MAX_BATCH: usize = 256;
/// How much earlier an account is visited if a trip is made anyway: a gateway's accounts are soon renewed together.
const EARLY: Duration = Duration::from_millis(500);

/// The limiters by id. One that no agent and no call holds is gone.
pub(super) type LimiterTable = Arc<Mutex<HashMap<u128, Weak<SharedConcurrencyLimiter>>>>;

/// When an account is visited next.
struct ScheduledAccount {
    limiter: Arc<SharedConcurrencyLimiter>,
    due: Duration,
    /// How much earlier it may be visited.
    early: Duration,
}

/// The batches of a trip, and their limiters in the same order.
#[derive(Default)]
struct LeaseTrip {
    batches: Vec<LeaseBatch>,
    limiters: Vec<Vec<Arc<SharedConcurrencyLimiter>>>,
}

/// The task that makes the trips.
pub(super) struct LeaseExchanger {
    context: Arc<LeaseContext>,
    limiters: LimiterTable,
    wakes: UnboundedReceiver<LeaseWake>,
    schedule: HashMap<u128, ScheduledAccount>,
    /// Threads that wait until every slot that no call uses is given back.
    return_requests: Vec<SyncSender<()>>,
    sequence: u64,
    trip_size: TripSize,
}

impl LeaseExchanger {
    pub(super) fn new(
        context: &Arc<LeaseContext>,
        limiters: &LimiterTable,
        wakes: UnboundedReceiver<LeaseWake>,
    ) -> Self {
        let (context, limiters) = (Arc::clone(context), Arc::clone(limiters));
        Self {
            context,
            limiters,
            wakes,
            schedule: HashMap::new(),
            return_requests: Vec::new(),
            sequence: 0,
            trip_size: TripSize::new(MAX_TRIP),
        }
    }

    /// Makes trips until the channel is closed.
    pub(super) async fn run(mut self) {
        loop {
            let next = self.schedule.values().map(|account| account.due).min();
            let delay = next.map_or(Duration::from_secs(3_600), |due| due.saturating_sub(self.context.now()));
            tokio::select! {
                wake = self.wakes.recv() => match wake {
                    Some(wake) => self.accept(wake),
                    None => return,
                },
                () = tokio::time::sleep(delay) => {}
            }
            while let Ok(wake) = self.wakes.try_recv() {
                self.accept(wake);
            }
            self.exchange_due().await;
            for done in self.return_requests.drain(..) {
                // A thread that waits no more needs no answer.
                let _ = done.try_send(());
            }
        }
    }

    fn accept(&mut self, wake: LeaseWake) {
        match wake {
            LeaseWake::Visit { id, at } => self.schedule(id, at),
            LeaseWake::ReturnAll(done) => {
                let now = self.context.now();
                for account in self.schedule.values_mut() {
                    account.limiter.account().lock().stop_keeping();
                    account.due = now;
                }
                self.return_requests.push(done);
            }
        }
    }

    fn schedule(&mut self, id: u128, at: Duration) {
        if let Some(account) = self.schedule.get_mut(&id) {
            account.due = account.due.min(at);
        } else if let Some(limiter) = self.limiters.lock().get(&id).and_then(Weak::upgrade) {
            self.schedule.insert(id, ScheduledAccount { limiter, due: at, early: Duration::ZERO });
        }
    }

    /// Makes one trip, if any account is due.
    async fn exchange_due(&mut self) {
        let now = self.context.now();
        if !self.schedule.values().any(|account| account.due <= now) {
            return;
        }
        let due = self.due_limiters(now);
        if self.context.server.is_available() {
            self.make_trip(&due).await;
        } else {
            let times = self.context.times();
            due.iter().for_each(|limiter| limiter.account().lock().fail_exchange(times));
        }
        due.iter().for_each(|limiter| self.reschedule(limiter));
    }

    /// Returns the limiters of one trip, those that are due first.
    fn due_limiters(&self, now: Duration) -> Vec<Arc<SharedConcurrencyLimiter>> {
        let is_due = |account: &&ScheduledAccount| account.due.saturating_sub(account.early) <= now;
        let mut due: Vec<&ScheduledAccount> = self.schedule.values().filter(is_due).collect();
        let max = self.trip_size.get();
        if due.len() > max {
            due.select_nth_unstable_by_key(max, |account| account.due);
            due.truncate(max);
        }
        due.into_iter().map(|account| Arc::clone(&account.limiter)).collect()
    }

    async fn make_trip(&mut self, due: &[Arc<SharedConcurrencyLimiter>]) {
        let times = self.context.times();
        let trip = self.begin_trip(due, times);
        match self.context.server.exchange_leases(&trip.batches).await {
            Ok(replies) => {
                self.trip_size.record_reply(due.len());
                let lifetime = self.context.server.lease_lifetime();
                for (limiter, reply) in trip.limiters.iter().flatten().zip(replies.iter().flatten()) {
                    limiter.account().lock().finish_exchange(*reply, times.now, lifetime);
                }
            }
            Err(why) => {
                if why == StateError::Timeout {
                    self.trip_size.record_timeout(due.len());
                }
                let times = self.context.times();
                trip.limiters.iter().flatten().for_each(|limiter| limiter.account().lock().fail_exchange(times));
            }
        }
    }

    fn begin_trip(&mut self, due: &[Arc<SharedConcurrencyLimiter>], times: LeaseTimes) -> LeaseTrip {
        let mut by_shard: BTreeMap<u8, Vec<(LeaseEntry, Arc<SharedConcurrencyLimiter>)>> = BTreeMap::new();
        for limiter in due {
            let entry = limiter.account().lock().begin_exchange(limiter.id(), times);
            // The lower half of the id, which is as random as all of it.
            let shard = self.context.server.shard_of(limiter.id() as u64);
            by_shard.entry(shard).or_default().push((entry, Arc::clone(limiter)));
        }
        self.sequence += 1;
        let mut trip = LeaseTrip::default();
        for (shard, entries) in by_shard {
            let mut entries = entries.into_iter();
            while entries.len() > 0 {
                let (batch, limiters) = entries.by_ref().take(MAX_BATCH).unzip();
                trip.batches.push(LeaseBatch { sequence: self.sequence, shard, entries: batch });
                trip.limiters.push(limiters);
            }
        }
        trip
    }

    fn reschedule(&mut self, limiter: &Arc<SharedConcurrencyLimiter>) {
        let times = self.context.times();
        match limiter.account().lock().next_exchange(times) {
            None => drop(self.schedule.remove(&limiter.id())),
            Some(delay) => {
                let early = if delay > EARLY { EARLY } else { Duration::ZERO };
                let limiter = Arc::clone(limiter);
                let account = ScheduledAccount { due: times.now + delay, early, limiter };
                self.schedule.insert(account.limiter.id(), account);
            }
        }
    }
}
