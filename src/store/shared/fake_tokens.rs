//! The tokens of a server of the shared state for unit tests: buckets and quotas by the clock of the runtime.

use super::{
    state_engine::StateResult,
    state_error::StateError,
    token_exchange::{MAX_LEVEL, TokenBatch, TokenEntry, TokenLimit, TokenReply},
};
use std::{
    collections::{HashMap, HashSet},
    time::Duration,
};

/// A gateway's last batch.
#[derive(Clone, Debug, Default)]
struct FakeBatch {
    sequence: u64,
    was_behind: bool,
    granted: Vec<u32>,
}

/// Buckets and quotas, and the last batch of each gateway and shard.
#[derive(Clone, Debug, Default)]
pub struct FakeTokens {
    /// The time at which a bucket is full, in microseconds, or the count of a quota.
    levels: HashMap<u128, u64>,
    batches: HashMap<(String, u8), FakeBatch>,
    refused: HashSet<u128>,
    time_per_entry: Duration,
    trips: Vec<usize>,
}

impl FakeTokens {
    /// Refuses every batch with this entry from now on.
    pub fn refuse(&mut self, id: u128) {
        self.refused.insert(id);
    }

    /// Makes the server as slow as this from now on.
    pub fn slow_down(&mut self, time_per_entry: Duration) {
        self.time_per_entry = time_per_entry;
    }

    /// Returns how long the server needs for batches.
    pub(super) fn time_for(&self, batches: &[TokenBatch]) -> Duration {
        let entries: usize = batches.iter().map(|batch| batch.entries.len()).sum();
        self.time_per_entry * u32::try_from(entries).unwrap()
    }

    /// Returns the numbers of entries of the trips until now.
    pub fn trips(&self) -> &[usize] {
        &self.trips
    }

    /// Returns the ids of the entries.
    pub fn ids(&self) -> HashSet<u128> {
        self.levels.keys().copied().collect()
    }

    /// Returns the tokens that are missing in a bucket, or the count of a quota.
    pub fn used(&self, id: u128, limit: TokenLimit, now: Duration) -> u64 {
        let stored = self.levels.get(&id).copied().unwrap_or_default();
        match limit {
            TokenLimit::Rate { refill_interval, .. } => {
                stored.saturating_sub(micros(now)).div_ceil(micros(refill_interval))
            }
            TokenLimit::Quota { .. } => stored,
        }
    }

    /// Exchanges tokens as the servers do.
    pub(super) fn exchange(
        &mut self,
        gateway: &str,
        batches: &[TokenBatch],
        now: Duration,
    ) -> StateResult<Vec<Vec<TokenReply>>> {
        self.trips.push(batches.iter().map(|batch| batch.entries.len()).sum());
        batches.iter().map(|batch| self.exchange_batch(gateway, batch, micros(now))).collect()
    }

    fn exchange_batch(&mut self, gateway: &str, batch: &TokenBatch, now: u64) -> StateResult<Vec<TokenReply>> {
        let ids: HashSet<u128> = batch.entries.iter().map(|entry| entry.id).collect();
        if ids.len() < batch.entries.len() {
            return Err(StateError::Refused("an id occurs twice".to_owned()));
        }
        if !ids.is_disjoint(&self.refused) {
            return Err(StateError::Refused("a value is out of range".to_owned()));
        }
        let last = self.batches.entry((gateway.to_owned(), batch.shard)).or_default().clone();
        let is_new = batch.sequence > last.sequence;
        let was_behind =
            if is_new { last.sequence < batch.confirmed } else { last.was_behind && batch.sequence == last.sequence };
        let exchange = |entry: &TokenEntry| self.exchange_entry(entry, is_new, is_new && was_behind, now);
        let mut replies: Vec<TokenReply> = batch.entries.iter().map(exchange).collect();
        replies.iter_mut().for_each(|reply| reply.was_behind = was_behind);
        if is_new {
            let granted = replies.iter().map(|reply| reply.granted).collect();
            let record = FakeBatch { sequence: batch.sequence, was_behind, granted };
            self.batches.insert((gateway.to_owned(), batch.shard), record);
        } else if batch.sequence == last.sequence {
            replies.iter_mut().zip(last.granted).for_each(|(reply, granted)| reply.granted = granted);
        }
        Ok(replies)
    }

    fn exchange_entry(&mut self, entry: &TokenEntry, is_new: bool, is_behind: bool, now: u64) -> TokenReply {
        let stored = self.levels.get(&entry.id).copied();
        let (settled, drawn) = if is_new { (entry.settled, u64::from(entry.drawn)) } else { (0, 0) };
        let (unit, max, begin) = match entry.limit {
            TokenLimit::Rate { refill_interval, burst } => (micros(refill_interval), u64::from(burst), now),
            TokenLimit::Quota { max, .. } => (1, max, 0),
        };
        let known = entry.known_level;
        let restored = if is_behind || is_new && entry.restores { known } else { 0 };
        let level = stored.map_or(known, |stored| stored.saturating_sub(begin)).max(restored);
        let bound = if begin > 0 { (MAX_LEVEL * (max * unit) as f64) as u64 } else { u64::MAX };
        let level = level.saturating_add_signed(settled * unit.cast_signed()).min(bound);
        let granted = drawn.min((max * unit).saturating_sub(level) / unit);
        let level = level + granted * unit;
        self.levels.insert(entry.id, begin + level);
        TokenReply { granted: u32::try_from(granted).unwrap(), level, was_behind: false }
    }
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap()
}
