//! The facts about one accepted connection, and the count of those alive.

use super::Limits;
use crate::{auth::Peer, gateway::hygiene::Bounds, transport};
use http::HeaderValue;
use rustls_pki_types::CertificateDer;
use std::{
    net::SocketAddr,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicUsize, Ordering},
    },
};
use tokio::sync::{Notify, watch};

/// What is known of a connection before its first request; shared by all of its requests.
#[derive(Debug)]
pub struct Connection {
    /// The caller's address.
    pub peer: SocketAddr,
    /// Our address.
    pub local: SocketAddr,
    /// What TLS established; `None` on plain connections.
    pub secured: Option<Secured>,
    /// The bounds in force since the connection was accepted.
    pub limits: Arc<Limits>,
    pub(super) identity: OnceLock<Option<Peer>>,
    pub(super) forwarded: OnceLock<(Option<Box<str>>, HeaderValue)>,
    pub(super) stop: watch::Receiver<bool>,
    pub(super) live: Arc<Live>,
}

/// What a TLS handshake established.
#[derive(Debug)]
pub struct Secured {
    /// The client's certificate and its intermediates, leaf first, verified against `client_ca`; empty if the
    /// client showed none. Sessions that could carry one are never resumed: it was shown on this connection.
    pub client_chain: Vec<CertificateDer<'static>>,
    /// The server name that the client asked for.
    pub server_name: Option<String>,
    /// The protocol version, such as `TLSv1.3`.
    pub version: &'static str,
    /// Whether HTTP/2 was agreed on.
    pub h2: bool,
}

impl Connection {
    /// The client certificate as it names its holder; read once for all requests of the connection. One that
    /// cannot be read names nobody.
    pub fn certificate(&self) -> Option<&Peer> {
        let leaf = self.secured.as_ref()?.client_chain.first()?;
        self.identity.get_or_init(|| Peer::from_der(leaf).ok()).as_ref()
    }

    /// What agents are told of where a request for `host` came from. Nearly all requests of a connection are for one
    /// host, so it is written for the first.
    pub fn forwarded(&self, host: Option<&str>) -> HeaderValue {
        let write = || transport::forwarded(self.peer.ip(), self.secured.is_some(), host);
        let (first, forwarded) = self.forwarded.get_or_init(|| (host.map(Box::from), write()));
        if first.as_deref() == host { forwarded.clone() } else { write() }
    }

    /// Whether the gateway is going away: responses should say that the connection closes.
    pub fn draining(&self) -> bool {
        *self.stop.borrow()
    }

    /// Resolves when the gateway goes away.
    pub async fn stopping(&self) {
        // A server that is gone says no more, too.
        let _ = self.stop.clone().wait_for(|stop| *stop).await;
    }

    pub(super) fn bounds(&self) -> Bounds {
        Bounds { head: self.limits.max_head.get(), fields: self.limits.max_headers }
    }
}

/// How many connections and requests are alive in a server.
#[derive(Debug, Default)]
pub(super) struct Live {
    connections: AtomicUsize,
    calls: AtomicUsize,
    quiet: Notify,
}

/// Counts one connection or request until it is dropped, however that comes about.
#[derive(Debug)]
pub(super) struct Counted {
    live: Arc<Live>,
    call: bool,
}

impl Live {
    pub(super) fn connection(self: &Arc<Self>) -> Counted {
        self.connections.fetch_add(1, Ordering::AcqRel);
        Counted { live: Arc::clone(self), call: false }
    }

    pub(super) fn call(self: &Arc<Self>) -> Counted {
        self.calls.fetch_add(1, Ordering::AcqRel);
        Counted { live: Arc::clone(self), call: true }
    }

    pub(super) fn connections(&self) -> usize {
        self.connections.load(Ordering::Acquire)
    }

    pub(super) fn calls(&self) -> usize {
        self.calls.load(Ordering::Acquire)
    }

    /// Resolves when nothing is alive. A request of HTTP/2 may outlive its connection by a moment.
    pub(super) async fn quiet(&self) {
        loop {
            let changed = self.quiet.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            if self.connections() == 0 && self.calls() == 0 {
                return;
            }
            changed.await;
        }
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        let count = if self.call { &self.live.calls } else { &self.live.connections };
        if count.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.live.quiet.notify_waiters();
        }
    }
}
