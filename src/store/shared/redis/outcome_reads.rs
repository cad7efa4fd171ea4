//! Reads of large stored outcomes: over a connection of their own, a few at once, and fewer of one client. A caller decides
//! how often it repeats a key, and must not delay the claims of others.

use super::redis_connection::RedisLink;
use crate::store::shared::state_error::StateError;
use parking_lot::Mutex;
use std::{collections::HashMap, time::Duration};
use tokio::{sync::Semaphore, time::timeout};

/// Longer outcomes do not come with the reply to a claim, in bytes.
pub(super) const MAX_INLINE_OUTCOME: u32 = 16 << 10;
/// How many outcomes are read at once.
const MAX_READS: usize = 8;
/// How many of them for one client.
const MAX_CLIENT_READS: u32 = 2;
/// How long one read waits and lasts. It is shorter than the default of `state.store_timeout`, so that it is no failure of
/// the server.
const READ_TIMEOUT: Duration = Duration::from_millis(200);

/// The reads in progress.
#[derive(Debug)]
pub(super) struct OutcomeReads {
    permits: Semaphore,
    clients: Mutex<HashMap<u64, u32>>,
}

/// A read of a client, until it is dropped.
struct ClientRead<'a> {
    clients: &'a Mutex<HashMap<u64, u32>>,
    client: u64,
}

impl OutcomeReads {
    pub(super) fn new() -> Self {
        Self { permits: Semaphore::new(MAX_READS), clients: Mutex::default() }
    }

    /// Reads an outcome for a client; `None` for a look-up whose client is not known.
    ///
    /// # Errors
    /// `Refused` if the client or all together read too much, so that nothing is held against the server; otherwise why the
    /// read failed.
    pub(super) async fn read<T>(
        &self,
        client: Option<u64>,
        link: RedisLink,
        read: impl AsyncFnOnce(RedisLink) -> Result<T, StateError>,
    ) -> Result<T, StateError> {
        let busy = || StateError::Refused("too many stored outcomes are read at once".to_owned());
        let _of_client = match client {
            Some(client) => Some(self.begin(client).ok_or_else(busy)?),
            None => None,
        };
        let reading = async {
            // The semaphore is never closed.
            let _permit = self.permits.acquire().await;
            read(link).await
        };
        timeout(READ_TIMEOUT, reading).await.unwrap_or_else(|_| Err(busy()))
    }

    fn begin(&self, client: u64) -> Option<ClientRead<'_>> {
        let mut clients = self.clients.lock();
        let count = clients.entry(client).or_default();
        if *count >= MAX_CLIENT_READS {
            return None;
        }
        *count += 1;
        Some(ClientRead { clients: &self.clients, client })
    }
}

impl Drop for ClientRead<'_> {
    fn drop(&mut self) {
        let mut clients = self.clients.lock();
        if let Some(count) = clients.get_mut(&self.client) {
            *count -= 1;
            if *count == 0 {
                clients.remove(&self.client);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_has_two_reads_at_once_and_takes_none_of_another() {
        let reads = OutcomeReads::new();
        let first = reads.begin(1);
        let second = reads.begin(1);
        assert!(first.is_some() && second.is_some() && reads.begin(1).is_none() && reads.begin(2).is_some());
        drop(first);
        assert!(reads.begin(1).is_some());
        drop(second);
        assert!(reads.clients.lock().is_empty());
    }
}
