//! What each client has in the table of idempotency keys: how many keys and bytes, and its completed calls by age.

use crate::values::ClientKey;
use std::collections::{BTreeSet, HashMap};

/// Clients with the most keys, or bytes, that are visited in search of one with a completed call.
const MAX_VISITED: usize = 64;

/// The keys and bytes of one client.
#[derive(Clone, Copy, Debug, Default)]
struct ClientUsage {
    keys: usize,
    size: usize,
}

/// The clients that have keys.
#[derive(Debug, Default)]
pub(super) struct ClientTable {
    clients: HashMap<ClientKey, ClientUsage>,
    /// The clients by their number of keys, and by their bytes.
    by_keys: BTreeSet<(usize, ClientKey)>,
    by_size: BTreeSet<(usize, ClientKey)>,
    /// The completed calls of each client, and those whose responses are stored, in the order of completion.
    completed: BTreeSet<(ClientKey, u64)>,
    with_response: BTreeSet<(ClientKey, u64)>,
}

impl ClientTable {
    pub(super) fn keys_of(&self, client: ClientKey) -> usize {
        self.clients.get(&client).map_or(0, |usage| usage.keys)
    }

    pub(super) fn size_of(&self, client: ClientKey) -> usize {
        self.clients.get(&client).map_or(0, |usage| usage.size)
    }

    pub(super) fn add(&mut self, client: ClientKey, keys: usize, size: usize) {
        self.change(client, |usage| *usage = ClientUsage { keys: usage.keys + keys, size: usage.size + size });
    }

    pub(super) fn subtract(&mut self, client: ClientKey, keys: usize, size: usize) {
        self.change(client, |usage| *usage = ClientUsage { keys: usage.keys - keys, size: usage.size - size });
    }

    fn change(&mut self, client: ClientKey, change: impl FnOnce(&mut ClientUsage)) {
        let usage = self.clients.entry(client).or_default();
        self.by_keys.remove(&(usage.keys, client));
        self.by_size.remove(&(usage.size, client));
        change(usage);
        if usage.keys == 0 {
            self.clients.remove(&client);
        } else {
            self.by_keys.insert((usage.keys, client));
            self.by_size.insert((usage.size, client));
        }
    }

    pub(super) fn record_completion(&mut self, client: ClientKey, completion: u64, has_response: bool) {
        self.completed.insert((client, completion));
        if has_response {
            self.with_response.insert((client, completion));
        }
    }

    pub(super) fn forget_completion(&mut self, client: ClientKey, completion: u64) {
        self.completed.remove(&(client, completion));
        self.forget_response(client, completion);
    }

    pub(super) fn forget_response(&mut self, client: ClientKey, completion: u64) {
        self.with_response.remove(&(client, completion));
    }

    /// Returns the completed call of the client that ended first.
    pub(super) fn oldest_completion(&self, client: ClientKey) -> Option<u64> {
        oldest(&self.completed, client)
    }

    /// Returns the call of the client that ended first, of those whose responses are stored.
    pub(super) fn oldest_response(&self, client: ClientKey) -> Option<u64> {
        oldest(&self.with_response, client)
    }

    /// Returns the oldest completed call of the client that has the most keys, of those that have at least as many as
    /// `client`.
    pub(super) fn oldest_completion_of_largest(&self, client: ClientKey) -> Option<u64> {
        let at_least = (self.keys_of(client), ClientKey::new(0));
        self.by_keys.range(at_least..).rev().take(MAX_VISITED).find_map(|(_, largest)| self.oldest_completion(*largest))
    }

    /// Returns the oldest stored response of the client that has the most bytes.
    pub(super) fn oldest_response_of_largest(&self) -> Option<u64> {
        self.by_size.iter().rev().take(MAX_VISITED).find_map(|(_, client)| self.oldest_response(*client))
    }
}

fn oldest(calls: &BTreeSet<(ClientKey, u64)>, client: ClientKey) -> Option<u64> {
    calls.range((client, 0)..=(client, u64::MAX)).next().map(|(_, completion)| *completion)
}
