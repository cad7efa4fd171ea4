//! What this gateway knows of the shards of the shared state. It repeats it with its requests, so that the server finds
//! out that it has lost data.

use crate::{
    idempotency::config::IdempotencyConfig,
    store::{KeyBounds, KeyShard, ShardReply},
    telemetry::{Event, Metrics},
};
use parking_lot::Mutex;
use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};
use tokio::time::Instant;

/// How long a claim is valid without an extension.
pub(super) const LEASE: Duration = Duration::from_secs(5);
/// What a record counts besides its outcome, in bytes.
const RECORD_SIZE: u64 = 512;

/// What is known of one shard.
#[derive(Clone, Copy, Debug, Default)]
struct KnownShard {
    epoch: Option<u128>,
    confirmed: u64,
    keys: u64,
    size: u64,
    /// When the last loss of data that was reported is over.
    lost_until: Option<Instant>,
}

/// What is known of the shards, and the numbers of requests.
#[derive(Debug)]
pub(super) struct ShardHistory {
    shards: Mutex<Vec<KnownShard>>,
    last_number: AtomicU64,
    metrics: Arc<Metrics>,
}

impl ShardHistory {
    pub(super) fn new(shards: u8, metrics: &Arc<Metrics>) -> Self {
        let shards = Mutex::new(vec![KnownShard::default(); shards.max(1).into()]);
        Self { shards, last_number: AtomicU64::new(0), metrics: Arc::clone(metrics) }
    }

    /// Returns a number that no earlier request of this process had.
    pub(super) fn next_number(&self) -> u64 {
        self.last_number.fetch_add(1, Relaxed) + 1
    }

    /// Returns what a request for a shard begins with.
    pub(super) fn shard(&self, shard: u8, config: &IdempotencyConfig) -> KeyShard {
        let known = self.shards.lock().get(usize::from(shard)).copied().unwrap_or_default();
        KeyShard {
            shard,
            epoch: known.epoch,
            new_epoch: uuid::Uuid::new_v4().as_u128(),
            confirmed: known.confirmed,
            ttl: config.ttl.get(),
            lease: LEASE,
        }
    }

    /// Returns the bounds of a shard: what the others leave of the whole, and at least its part.
    pub(super) fn bounds(&self, shard: u8, config: &IdempotencyConfig) -> KeyBounds {
        let (max_keys, max_size) = (config.max_keys as usize, config.max_size.get());
        let share = |max: usize| config.max_share.of(max) as u64;
        let shards = self.shards.lock();
        let count = shards.len().max(1) as u64;
        let others = || shards.iter().enumerate().filter(|(at, _)| *at != usize::from(shard)).map(|(_, known)| known);
        let of_shard = |max: u64, others: u64| max.saturating_sub(others).max(max / count);
        KeyBounds {
            max_keys: of_shard(max_keys as u64, others().map(|known| known.keys).sum()),
            max_size: of_shard(max_size as u64, others().map(|known| known.size).sum()),
            max_client_keys: share(max_keys),
            max_client_size: share(max_size),
            record_size: RECORD_SIZE,
        }
    }

    /// Learns from a reply. `confirmed` is the number of the request, if the server has applied it.
    pub(super) fn learn<T>(&self, shard: u8, reply: &ShardReply<T>, confirmed: Option<u64>) {
        let mut shards = self.shards.lock();
        let Some(known) = shards.get_mut(usize::from(shard)) else { return };
        known.epoch = Some(reply.epoch);
        known.confirmed = known.confirmed.max(confirmed.unwrap_or_default());
        let (now, was_reported) = (Instant::now(), known.lost_until);
        if reply.lost_for.is_zero() {
            return;
        }
        known.lost_until = Some(now + reply.lost_for);
        drop(shards);
        if was_reported.is_none_or(|until| until <= now) {
            self.metrics.record_event(Event::IdempotencyKeysLost);
            tracing::error!(
                seconds = reply.lost_for.as_secs(),
                "the shared state has lost idempotency keys: it came back empty, or older than it was (calls with new \
                 keys are refused for this time, unless idempotency.on_data_loss is open; check how the server persists \
                 and replicates its data)"
            );
        }
    }

    /// Records what a shard holds.
    pub(super) fn record_totals(&self, shard: u8, keys: u64, size: u64) {
        if let Some(known) = self.shards.lock().get_mut(usize::from(shard)) {
            (known.keys, known.size) = (keys, size);
        }
    }
}
