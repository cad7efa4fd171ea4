//! The wait for a call that another gateway makes: its record is polled, once for all calls of this gateway that wait.

use super::{outcome_encoding::decode_outcome, shared_keys::SharedKeys};
use crate::{
    idempotency::{first_call_waiter::FirstCallWaiter, first_outcome::FirstOutcome},
    store::{KeyClaim, KeyReply},
    values::{Backoff, jittered},
};
use futures_util::{
    FutureExt as _,
    future::{BoxFuture, Shared, WeakShared},
};
use parking_lot::Mutex;
use std::{collections::HashMap, fmt, sync::Arc, time::Duration};

/// Delays between two polls of a record.
const MIN_DELAY: Duration = Duration::from_millis(50);
const MAX_DELAY: Duration = Duration::from_millis(500);

type Poll = BoxFuture<'static, Option<FirstOutcome>>;

/// The polls that run now, by key. A poll runs while a call waits for it.
#[derive(Default)]
pub(super) struct OutcomePolls(Mutex<HashMap<[u8; 32], RunningPoll>>);

struct RunningPoll {
    number: u64,
    digest: [u8; 32],
    poll: WeakShared<Poll>,
}

/// Removes a poll that has ended.
struct PollEntry {
    polls: Arc<OutcomePolls>,
    key: [u8; 32],
    number: u64,
}

impl Drop for PollEntry {
    fn drop(&mut self) {
        let mut running = self.polls.0.lock();
        if running.get(&self.key).is_some_and(|poll| poll.number == self.number) {
            running.remove(&self.key);
        }
    }
}

impl OutcomePolls {
    /// Waits for the outcome of a key; `claim` is the one that was refused because another is in progress.
    pub(super) fn wait_for(self: &Arc<Self>, keys: &Arc<SharedKeys>, claim: KeyClaim) -> FirstCallWaiter {
        let entry = PollEntry { polls: Arc::clone(self), key: claim.key, number: claim.number };
        let keys = Arc::clone(keys);
        let poll = async move {
            let _entry = entry;
            poll_outcome(&keys, &claim).await
        };
        FirstCallWaiter::new(self.join_or_start(&claim, poll.boxed()))
    }

    /// Returns the poll of the key that runs, or starts this one.
    fn join_or_start(&self, claim: &KeyClaim, poll: Poll) -> Shared<Poll> {
        let mut running = self.0.lock();
        let same_request = running.get(&claim.key).filter(|other| other.digest == claim.digest);
        if let Some(shared) = same_request.and_then(|other| other.poll.upgrade()) {
            // The new poll is dropped outside the lock, which its entry takes.
            drop(running);
            return shared;
        }
        let shared = poll.shared();
        if let Some(poll) = shared.downgrade() {
            running.insert(claim.key, RunningPoll { number: claim.number, digest: claim.digest, poll });
        }
        shared
    }
}

/// Polls until the first call is complete, or its key was released. It has no end of its own: its callers have deadlines.
async fn poll_outcome(keys: &SharedKeys, claim: &KeyClaim) -> Option<FirstOutcome> {
    let shard = keys.shard_of(claim.client);
    let mut backoff = Backoff::new(MIN_DELAY, MAX_DELAY);
    loop {
        tokio::time::sleep(jittered(backoff.next_delay(), 0.3)).await;
        let deadline = keys.config.load().store_timeout.get();
        match keys.records.look_up(shard, &claim.key, &claim.digest, deadline).await {
            Ok(KeyReply::Absent) => return None,
            Ok(KeyReply::Completed(stored)) => return Some(decode_outcome(stored)),
            Ok(KeyReply::Unknown) => return Some(FirstOutcome::Unknown),
            Ok(KeyReply::Running) | Err(_) => {}
        }
    }
}

impl fmt::Debug for OutcomePolls {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("OutcomePolls")
    }
}
