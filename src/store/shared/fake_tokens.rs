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

/// Buckets and quotas, and the last batch of each gateway and shard.
#[derive(Debug, Default)]
pub struct FakeTokens {
    /// The time at which a bucket is full, in microseconds, or the count of a quota.
    levels: HashMap<u128, u64>,
    batches: HashMap<(String, u8), u64>,
    refused: HashSet<u128>,
    trips: Vec<usize>,
}

impl FakeTokens {
    /// Refuses every batch with this entry from now on.
    pub fn refuse(&mut self, id: u128) {
        self.refused.insert(id);
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
        let last = self.batches.entry((gateway.to_owned(), batch.shard)).or_default();
        let is_new = batch.sequence > *last;
        *last = batch.sequence.max(*last);
        Ok(batch.entries.iter().map(|entry| self.exchange_entry(entry, is_new, now)).collect())
    }

    fn exchange_entry(&mut self, entry: &TokenEntry, is_new: bool, now: u64) -> TokenReply {
        let stored = self.levels.get(&entry.id).copied();
        let (settled, drawn) = if is_new { (entry.settled, u64::from(entry.drawn)) } else { (0, 0) };
        let (unit, max, begin) = match entry.limit {
            TokenLimit::Rate { refill_interval, burst } => (micros(refill_interval), u64::from(burst), now),
            TokenLimit::Quota { max, .. } => (1, max, 0),
        };
        let level = stored.map_or(entry.known_level, |stored| stored.saturating_sub(begin));
        let bound = if begin > 0 { (MAX_LEVEL * (max * unit) as f64) as u64 } else { u64::MAX };
        let level = level.saturating_add_signed(settled * unit.cast_signed()).min(bound);
        let granted = drawn.min((max * unit).saturating_sub(level) / unit);
        let level = level + granted * unit;
        self.levels.insert(entry.id, begin + level);
        TokenReply { granted: u32::try_from(granted).unwrap(), level }
    }
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap()
}
