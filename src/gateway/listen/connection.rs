//! One accepted connection: its addresses, TLS session and limits; and the counters of active connections and calls.

use super::Limits;
use crate::{auth::Peer, gateway::hygiene::Bounds, transport};
use http::HeaderValue;
use rustls_pki_types::CertificateDer;
use std::{
    net::SocketAddr,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
};
use tokio::sync::{Notify, watch};

/// One caller connection, shared by all of its requests.
#[derive(Debug)]
pub struct Connection {
    /// The address of the caller.
    pub peer: SocketAddr,
    /// The local address.
    pub local: SocketAddr,
    /// The TLS session; `None` on plain connections.
    pub secured: Option<Secured>,
    /// The limits that were in force when the connection was accepted.
    pub limits: Arc<Limits>,
    /// Credentials hash and priority of the last caller, for load shedding: see [`crate::limit::Limits::turn_away`].
    pub last: AtomicU64,
    pub(super) identity: OnceLock<Option<Peer>>,
    pub(super) forwarded: OnceLock<(Option<Box<str>>, HeaderValue)>,
    pub(super) stop: watch::Receiver<bool>,
    pub(super) live: Arc<Live>,
}

/// What a TLS handshake established.
#[derive(Debug)]
pub struct Secured {
    /// The client's certificate and its intermediates, leaf first, verified against `client_ca`; empty if the client
    /// sent none. Sessions that could carry one are never resumed, so it was presented on this connection.
    pub client_chain: Vec<CertificateDer<'static>>,
    /// The server name that the client requested (SNI).
    pub server_name: Option<String>,
    /// The protocol version, such as `TLSv1.3`.
    pub version: &'static str,
    /// Whether ALPN selected HTTP/2.
    pub h2: bool,
}

impl Connection {
    /// Returns the identity in the client certificate, parsed once for all requests of the connection. `None` if there
    /// is no certificate or it cannot be parsed.
    pub fn certificate(&self) -> Option<&Peer> {
        let leaf = self.secured.as_ref()?.client_chain.first()?;
        self.identity.get_or_init(|| Peer::from_der(leaf).ok()).as_ref()
    }

    /// Returns the `Forwarded` header for a request for `host`. Nearly all requests of a connection are for one host,
    /// so the value for the first host is cached.
    pub fn forwarded(&self, host: Option<&str>) -> HeaderValue {
        let write = || transport::forwarded(self.peer.ip(), self.secured.is_some(), host);
        let (first, forwarded) = self.forwarded.get_or_init(|| (host.map(Box::from), write()));
        if first.as_deref() == host { forwarded.clone() } else { write() }
    }

    /// Whether the gateway is shutting down; responses should then announce that the connection closes.
    pub fn draining(&self) -> bool {
        *self.stop.borrow()
    }

    /// Resolves when the gateway shuts down.
    pub async fn stopping(&self) {
        // A server that was dropped sends no further notifications; the error means shutdown as well.
        let _ = self.stop.clone().wait_for(|stop| *stop).await;
    }

    pub(super) fn bounds(&self) -> Bounds {
        Bounds { head: self.limits.max_header_size.get(), fields: self.limits.max_headers }
    }
}

/// Numbers of active connections and requests of a server.
#[derive(Debug, Default)]
pub(super) struct Live {
    connections: AtomicUsize,
    calls: AtomicUsize,
    quiet: Notify,
}

/// Counts one connection or request until it is dropped.
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

    /// Resolves when no connection or request is active. An HTTP/2 request may outlive its connection briefly.
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
