//! What one trip of the exchanger carries: a batch for each shard, with the accounts and the calls that wait for replies.

use super::{
    shard_progress::ShardProgress,
    token_account::{ExchangeReply, WaitingDraw},
    token_accounts::QueuedAccount,
};
use crate::store::{TokenBatch, TokenEntry, TokenReply};
use std::{collections::HashMap, time::Duration};

/// Maximum number of entries of a batch, which the server handles without a break for others.
pub(super) const MAX_BATCH: usize = 256;

/// Maximum of the time that a trip may take for which no call waits.
const MAX_DEADLINE: Duration = Duration::from_millis(500);
/// Attempts after which a trip gets more time.
const ATTEMPTS_WITH_EQUAL_DEADLINE: u32 = 3;

/// An account in a trip, with the calls that wait for its reply.
pub(super) struct SentAccount {
    pub(super) account: QueuedAccount,
    pub(super) draws: Vec<WaitingDraw>,
}

/// What one account sends.
pub(super) struct PreparedEntry {
    pub(super) entry: TokenEntry,
    pub(super) sent: SentAccount,
}

/// The batches of a trip, and their accounts in the same order. A shard has one batch, so that a batch is applied or
/// refused independently of the others.
#[derive(Default)]
pub(super) struct Trip {
    batches: Vec<TokenBatch>,
    accounts: Vec<Vec<SentAccount>>,
    /// When it was sent last, in nanoseconds of the clock.
    sent_at: u64,
    /// When it was sent first.
    first_sent_at: u64,
    /// How often it was sent without a reply.
    failures: u32,
}

/// The exchanges with each shard.
pub(super) type ShardTable = HashMap<u8, ShardProgress>;

impl Trip {
    pub(super) fn batches(&self) -> &[TokenBatch] {
        &self.batches
    }

    pub(super) fn is_empty(&self) -> bool {
        self.batches.is_empty()
    }

    /// Returns whether the batch of a shard has room for the entry with this id, which must not be in it already.
    pub(super) fn accepts(&self, shard: u8, id: u128) -> bool {
        let batch = self.batches.iter().find(|batch| batch.shard == shard);
        batch.is_none_or(|batch| batch.entries.len() < MAX_BATCH && batch.entries.iter().all(|entry| entry.id != id))
    }

    /// Adds an entry to the batch of a shard.
    pub(super) fn push(&mut self, shard: u8, prepared: PreparedEntry) {
        let at = self.batches.iter().position(|batch| batch.shard == shard);
        match at.and_then(|at| self.batches.get_mut(at).zip(self.accounts.get_mut(at))) {
            Some((batch, accounts)) => {
                batch.entries.push(prepared.entry);
                accounts.push(prepared.sent);
            }
            None => {
                self.batches.push(TokenBatch { sequence: 0, confirmed: 0, shard, entries: vec![prepared.entry] });
                self.accounts.push(vec![prepared.sent]);
            }
        }
    }

    /// Prepares the trip for being sent now: numbers the batches that have no number yet.
    pub(super) fn prepare(&mut self, shards: &mut ShardTable, now: u64) {
        for batch in &mut self.batches {
            if batch.sequence == 0 {
                let progress = shards.entry(batch.shard).or_default();
                (batch.sequence, batch.confirmed) = (progress.next_sequence(), progress.confirmed(now));
                self.first_sent_at = now;
            } else {
                // The buckets have filled since the trip was sent without a reply.
                let micros = now.saturating_sub(self.sent_at) / 1_000;
                batch.entries.iter_mut().for_each(|entry| entry.age_known_level(micros));
            }
        }
        self.sent_at = now;
    }

    pub(super) fn entry_count(&self) -> usize {
        self.batches.iter().map(|batch| batch.entries.len()).sum()
    }

    /// Returns how long the trip may take: as long as its calls wait. A trip without calls has more time, and the more the
    /// more often it was sent in vain, so that a server that is slow confirms it in the end.
    pub(super) fn deadline(&self, draw_timeout: Duration) -> Duration {
        if self.accounts.iter().flatten().any(|sent| !sent.draws.is_empty()) {
            return draw_timeout;
        }
        let factor = 2 * (1 + self.failures / ATTEMPTS_WITH_EQUAL_DEADLINE);
        draw_timeout.saturating_mul(factor).min(MAX_DEADLINE.max(draw_timeout))
    }

    /// Records that there was no reply. Drops the calls that wait, which learn at once that there is no reply. They are decided without the server, so that
    /// nothing is drawn for them if the trip is sent again.
    pub(super) fn record_failure(&mut self) {
        self.failures = self.failures.saturating_add(1);
        self.accounts.iter_mut().flatten().for_each(|sent| sent.draws.clear());
        self.batches.iter_mut().flat_map(|batch| &mut batch.entries).for_each(|entry| entry.drawn = 0);
    }

    /// Applies the replies to the accounts.
    pub(super) fn finish(self, replies: Vec<Vec<TokenReply>>, shards: &mut ShardTable) {
        let Self { batches, accounts, sent_at, first_sent_at, .. } = self;
        for ((batch, accounts), replies) in batches.into_iter().zip(accounts).zip(replies) {
            let progress = shards.entry(batch.shard).or_default();
            let was_behind = replies.first().is_some_and(|reply| reply.was_behind);
            progress.confirm(batch.sequence, sent_at, was_behind);
            let losses = progress.losses();
            for (SentAccount { account: (accounts, key), draws }, reply) in accounts.into_iter().zip(replies) {
                let reply = ExchangeReply { reply, sent_at, first_sent_at, losses };
                // Refunded tokens are settled next.
                accounts.revisit(key, |account| account.finish_exchange(reply, draws));
            }
        }
    }

    /// Returns the accounts of a trip that is given up.
    pub(super) fn into_accounts(self) -> impl Iterator<Item = SentAccount> {
        self.accounts.into_iter().flatten()
    }

    /// Divides a trip that the server refused: several batches into trips of one, and one batch into halves. The halves get
    /// new numbers, because nothing of a refused batch was applied.
    pub(super) fn divide(self) -> Vec<Self> {
        let Self { sent_at, first_sent_at, .. } = self;
        let is_single = self.batches.len() == 1;
        let part = |batch, accounts| Self {
            batches: vec![batch],
            accounts: vec![accounts],
            sent_at,
            first_sent_at,
            failures: 0,
        };
        let mut parts = Vec::new();
        for (mut batch, mut accounts) in self.batches.into_iter().zip(self.accounts) {
            if is_single {
                let half = batch.entries.len().div_ceil(2);
                let entries = batch.entries.split_off(half);
                let second = TokenBatch { sequence: 0, confirmed: 0, shard: batch.shard, entries };
                let second = part(second, accounts.split_off(half));
                batch.sequence = 0;
                parts.extend([part(batch, accounts), second]);
            } else {
                parts.push(part(batch, accounts));
            }
        }
        parts
    }
}
