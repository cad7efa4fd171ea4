//! The open WebSockets of callers, of which one client has its share.

use crate::{
    fault::{Fault, FaultCode},
    values::{ClientKey, CountedHold, KeyedCounts},
};
use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

/// When a caller may try again.
const RETRY_AFTER: Duration = Duration::from_secs(5);

/// The open WebSockets, in all and of each client.
#[derive(Debug, Default)]
pub(super) struct WebSocketCounts {
    open: AtomicUsize,
    of_clients: Arc<KeyedCounts<ClientKey>>,
}

/// An open WebSocket, counted until this is dropped.
#[derive(Debug)]
pub struct CountedWebSocket {
    counts: Arc<WebSocketCounts>,
    _of_client: CountedHold<ClientKey>,
}

impl WebSocketCounts {
    /// Counts a WebSocket of a client.
    ///
    /// # Errors
    /// 429 when the client has `max_of_client`, 503 when all clients have `max`.
    pub(super) fn try_count(
        self: &Arc<Self>,
        client: ClientKey,
        max: usize,
        max_of_client: usize,
    ) -> Result<CountedWebSocket, Fault> {
        let of_client = self.of_clients.try_hold(client, 1, max_of_client).ok_or_else(|| {
            let text = format!("The caller has {max_of_client} WebSockets open, its share of {max} (limits.max_share)");
            Fault::new(FaultCode::RateLimited, text).with_retry_after(RETRY_AFTER)
        })?;
        let opened = self.open.fetch_update(Relaxed, Relaxed, |open| (open < max).then_some(open + 1));
        opened.map_err(|_| {
            let text = format!("Too many WebSockets are open ({max}: websocket.max_connections)");
            Fault::new(FaultCode::Overloaded, text).with_retry_after(RETRY_AFTER)
        })?;
        Ok(CountedWebSocket { counts: Arc::clone(self), _of_client: of_client })
    }
}

impl Drop for CountedWebSocket {
    fn drop(&mut self) {
        self.counts.open.fetch_sub(1, Relaxed);
    }
}
