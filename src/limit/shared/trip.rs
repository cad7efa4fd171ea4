//! What one trip of the exchanger carries: a batch for each shard, with the accounts and the calls that wait for replies.

use super::{token_account::WaitingDraw, token_accounts::QueuedAccount};
use crate::store::{TokenBatch, TokenEntry, TokenReply};

/// Maximum number of entries of a batch, which the server handles without a break for others.
pub(super) const MAX_BATCH: usize = 256;

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
}

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
                self.batches.push(TokenBatch { sequence: 0, shard, entries: vec![prepared.entry] });
                self.accounts.push(vec![prepared.sent]);
            }
        }
    }

    /// Numbers the batches that have no number yet.
    pub(super) fn number_batches(&mut self, mut next_sequence: impl FnMut(u8) -> u64) {
        for batch in self.batches.iter_mut().filter(|batch| batch.sequence == 0) {
            batch.sequence = next_sequence(batch.shard);
        }
    }

    pub(super) fn entry_count(&self) -> usize {
        self.batches.iter().map(|batch| batch.entries.len()).sum()
    }

    /// Drops the calls that wait, which learn at once that there is no reply. They are decided without the server, so that
    /// nothing is drawn for them if the trip is sent again.
    pub(super) fn abandon_draws(&mut self) {
        self.accounts.iter_mut().flatten().for_each(|sent| sent.draws.clear());
        self.batches.iter_mut().flat_map(|batch| &mut batch.entries).for_each(|entry| entry.drawn = 0);
    }

    /// Returns the accounts with their replies.
    pub(super) fn into_replies(self, replies: Vec<Vec<TokenReply>>) -> impl Iterator<Item = (SentAccount, TokenReply)> {
        self.accounts.into_iter().flatten().zip(replies.into_iter().flatten())
    }

    /// Returns the accounts of a trip that is given up.
    pub(super) fn into_accounts(self) -> impl Iterator<Item = SentAccount> {
        self.accounts.into_iter().flatten()
    }

    /// Divides a trip that the server refused: several batches into trips of one, and one batch into halves. The halves get
    /// new numbers, because nothing of a refused batch was applied.
    pub(super) fn divide(self) -> Vec<Self> {
        let is_single = self.batches.len() == 1;
        let mut parts = Vec::new();
        for (mut batch, mut accounts) in self.batches.into_iter().zip(self.accounts) {
            if is_single {
                let half = batch.entries.len().div_ceil(2);
                let entries = batch.entries.split_off(half);
                let second = TokenBatch { sequence: 0, shard: batch.shard, entries };
                let second = Self { batches: vec![second], accounts: vec![accounts.split_off(half)] };
                batch.sequence = 0;
                parts.extend([Self { batches: vec![batch], accounts: vec![accounts] }, second]);
            } else {
                parts.push(Self { batches: vec![batch], accounts: vec![accounts] });
            }
        }
        parts
    }
}
