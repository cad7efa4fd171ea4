//! One accepted connection: its addresses, TLS session and limits; and the counters of active connections and calls.

use super::{config::ConnectionLimits, request_validation::HeadLimits};
use rustls_pki_types::CertificateDer;
use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};
use tokio::sync::{Notify, watch};

/// A connection, shared by all of its requests.
#[derive(Debug)]
pub struct HttpConnection {
    /// The address of the peer.
    pub peer_address: SocketAddr,
    /// The local address.
    pub local_address: SocketAddr,
    /// The TLS session; `None` on plain connections.
    pub tls: Option<TlsInfo>,
    /// The limits that were in force when the connection was accepted.
    pub limits: Arc<ConnectionLimits>,
    pub(super) shutdown: watch::Receiver<bool>,
    pub(super) active: Arc<ActiveCounts>,
}

/// What a TLS handshake established.
#[derive(Debug)]
pub struct TlsInfo {
    /// The client's certificate and its intermediates, leaf first, verified against `client_ca`; empty if the client
    /// sent none. Sessions that could carry one are never resumed, so it was presented on this connection.
    pub client_certificates: Vec<CertificateDer<'static>>,
    /// The server name that the client requested (SNI).
    pub server_name: Option<String>,
    /// The protocol version, such as `TLSv1.3`.
    pub version: &'static str,
    /// Whether ALPN selected HTTP/2.
    pub is_http2: bool,
}

impl HttpConnection {
    /// Returns whether the server is shutting down; responses should then announce that the connection closes.
    pub fn is_draining(&self) -> bool {
        *self.shutdown.borrow()
    }

    /// Resolves when the server shuts down.
    pub async fn wait_for_shutdown(&self) {
        // A server that was dropped sends no further notifications; the error means shutdown as well.
        let _ = self.shutdown.clone().wait_for(|stop| *stop).await;
    }

    pub(super) fn head_limits(&self) -> HeadLimits {
        HeadLimits { max_bytes: self.limits.max_header_size.get(), max_fields: self.limits.max_headers }
    }
}

/// Numbers of active connections and requests of a server.
#[derive(Debug, Default)]
pub(super) struct ActiveCounts {
    connections: AtomicUsize,
    calls: AtomicUsize,
    became_idle: Notify,
}

/// Counts one connection or request until it is dropped.
#[derive(Debug)]
pub(super) struct ActiveCountGuard {
    counts: Arc<ActiveCounts>,
    is_call: bool,
}

impl ActiveCounts {
    pub(super) fn count_connection(self: &Arc<Self>) -> ActiveCountGuard {
        self.connections.fetch_add(1, Ordering::AcqRel);
        ActiveCountGuard { counts: Arc::clone(self), is_call: false }
    }

    pub(super) fn count_call(self: &Arc<Self>) -> ActiveCountGuard {
        self.calls.fetch_add(1, Ordering::AcqRel);
        ActiveCountGuard { counts: Arc::clone(self), is_call: true }
    }

    pub(super) fn connections(&self) -> usize {
        self.connections.load(Ordering::Acquire)
    }

    pub(super) fn calls(&self) -> usize {
        self.calls.load(Ordering::Acquire)
    }

    /// Resolves when no connection or request is active. An HTTP/2 request may outlive its connection briefly.
    pub(super) async fn wait_until_idle(&self) {
        loop {
            let changed = self.became_idle.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            if self.connections() == 0 && self.calls() == 0 {
                return;
            }
            changed.await;
        }
    }
}

impl Drop for ActiveCountGuard {
    fn drop(&mut self) {
        let count = if self.is_call { &self.counts.calls } else { &self.counts.connections };
        if count.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.counts.became_idle.notify_waiters();
        }
    }
}
