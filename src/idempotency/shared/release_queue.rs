//! Claims that wait to be released, until the server has answered.

use crate::store::KeyClaim;
use parking_lot::Mutex;
use std::{
    collections::VecDeque,
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
    time::Duration,
};
use tokio::{sync::Notify, time::Instant};

/// Maximum number of claims that wait. The leases of further ones end, and their outcomes count as unknown.
const MAX_RELEASES: usize = 100_000;

/// A claim that is to be released.
#[derive(Clone, Copy, Debug)]
pub(super) struct PendingRelease {
    pub(super) claim: KeyClaim,
    pub(super) shard: u8,
    /// Time of the server's clock after which the claim cannot be made any more; zero for a confirmed claim.
    pub(super) not_after: Duration,
    /// When the server has dropped the claim in any case.
    pub(super) give_up_at: Instant,
}

/// The claims, in the order in which they came.
#[derive(Debug, Default)]
pub(super) struct ReleaseQueue {
    releases: Mutex<VecDeque<PendingRelease>>,
    /// Claims that were taken, and are not released yet.
    taken: AtomicUsize,
    added: Notify,
}

impl ReleaseQueue {
    /// Adds a claim. Does not wait, and may be called outside the runtime.
    pub(super) fn add(&self, release: PendingRelease) {
        let mut releases = self.releases.lock();
        if releases.len() < MAX_RELEASES {
            releases.push_back(release);
            drop(releases);
            self.added.notify_one();
        }
    }

    /// Takes up to `max` claims of one shard, until [`ReleaseQueue::finish`].
    pub(super) fn take(&self, max: usize) -> Vec<PendingRelease> {
        let mut releases = self.releases.lock();
        let Some(shard) = releases.front().map(|release| release.shard) else { return Vec::new() };
        let now = Instant::now();
        let mut taken = Vec::new();
        releases.retain(|release| {
            if release.give_up_at <= now {
                return false;
            }
            let is_taken = release.shard == shard && taken.len() < max;
            if is_taken {
                taken.push(*release);
            }
            !is_taken
        });
        self.taken.store(taken.len(), Relaxed);
        taken
    }

    /// Ends a batch. The claims that are not settled wait again.
    pub(super) fn finish(&self, unsettled: Vec<PendingRelease>) {
        let mut releases = self.releases.lock();
        releases.extend(unsettled);
        self.taken.store(0, Relaxed);
    }

    /// Returns whether every claim is released.
    pub(super) fn is_empty(&self) -> bool {
        let releases = self.releases.lock();
        releases.is_empty() && self.taken.load(Relaxed) == 0
    }

    /// Waits until a claim was added.
    pub(super) async fn wait_for_release(&self) {
        self.added.notified().await;
    }
}
