//! How far the exchanges with one shard of the server are.

use std::time::Duration;

/// How long a confirmed batch is expected to be known to the server, which keeps it for an hour.
const CONFIRMATION_LIFETIME: Duration = Duration::from_secs(1_800);

/// The last batches of this gateway and one shard, and how often the shard has lost data.
#[derive(Debug, Default)]
pub(super) struct ShardProgress {
    sequence: u64,
    confirmed: u64,
    /// When the last batch was confirmed, in nanoseconds of the clock.
    confirmed_at: u64,
    losses: u32,
}

impl ShardProgress {
    /// Returns the number of the next batch.
    pub(super) fn next_sequence(&mut self) -> u64 {
        self.sequence += 1;
        self.sequence
    }

    /// Returns the number of the last batch with a reply; 0 if the server may have forgotten it.
    pub(super) fn confirmed(&self, now: u64) -> u64 {
        let age = Duration::from_nanos(now.saturating_sub(self.confirmed_at));
        if age < CONFIRMATION_LIFETIME { self.confirmed } else { 0 }
    }

    /// Records a reply to a batch, and whether the shard was behind it: it has lost data.
    pub(super) fn confirm(&mut self, sequence: u64, now: u64, was_behind: bool) {
        (self.confirmed, self.confirmed_at) = (sequence, now);
        self.losses = self.losses.wrapping_add(u32::from(was_behind));
    }

    /// Returns how often the shard has lost data that this gateway knew.
    pub(super) fn losses(&self) -> u32 {
        self.losses
    }
}
