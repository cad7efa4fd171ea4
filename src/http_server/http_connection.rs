//! One accepted connection: its addresses, TLS session and limits; and the counters of active connections and calls.

use super::{
    client_address::{ForwardedClient, TrustedProxies},
    client_trust::ClientTrust,
    config::ConnectionLimits,
    cut_off::CutOffSignal,
    request_validation::HeadLimits,
};
use crate::{fault::Fault, telemetry::ListenerMetrics, values::jittered};
use http::HeaderMap;
use rustls_pki_types::CertificateDer;
use std::{
    net::SocketAddr,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};
use tokio::sync::{Notify, watch};

/// Share by which the maximum age of a connection varies, so that connections do not end all at once.
const AGE_JITTER: f64 = 0.1;

/// A connection, shared by all of its requests.
#[derive(Debug)]
pub struct HttpConnection {
    /// The address of the client: the one that a trusted proxy named in the PROXY protocol, and else the peer's.
    pub client_address: SocketAddr,
    /// The local address.
    pub local_address: SocketAddr,
    /// The TLS session; `None` on plain connections.
    pub tls: Option<TlsInfo>,
    /// The metrics of the listener.
    pub metrics: Arc<ListenerMetrics>,
    /// The limits that were in force when the connection was accepted.
    pub limits: Arc<ConnectionLimits>,
    /// The trusted proxies, if the peer is one of them and names the client in the header of each request.
    pub(super) forwarding_proxies: Option<Arc<TrustedProxies>>,
    pub(super) shutdown: watch::Receiver<bool>,
    pub(super) active: Arc<ActiveCounts>,
    pub(super) cut_off: Arc<CutOffSignal>,
    /// When the connection reaches its maximum age.
    pub(super) expires_at: Option<Instant>,
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
    /// The trust in `client_certificates`; `None` if the client sent none.
    pub(super) client_trust: Option<ClientTrust>,
}

impl TlsInfo {
    /// Returns whether the listener still accepts the client's certificate, or the client sent none. A certificate whose
    /// authority was removed, or that was revoked, is no longer accepted.
    pub fn is_client_trusted(&self) -> bool {
        self.client_trust.as_ref().is_none_or(|trust| trust.is_trusted(&self.client_certificates))
    }

    async fn wait_until_untrusted(&self) {
        match &self.client_trust {
            Some(trust) => trust.wait_until_untrusted(&self.client_certificates).await,
            None => std::future::pending().await,
        }
    }
}

impl HttpConnection {
    /// Returns the client of a request with these headers, if the connection is that of a trusted proxy, which forwards
    /// the requests of many clients.
    ///
    /// # Errors
    /// 400 if the header that names the client is not valid.
    pub fn forwarded_client(&self, headers: &HeaderMap) -> Result<Option<ForwardedClient>, Fault> {
        let Some(proxies) = &self.forwarding_proxies else { return Ok(None) };
        proxies.forwarded_client(self.client_address.ip(), headers).map(Some)
    }

    /// Returns whether the server is shutting down; responses should then announce that the connection closes.
    pub fn is_draining(&self) -> bool {
        *self.shutdown.borrow()
    }

    /// Resolves when the server shuts down.
    pub async fn wait_for_shutdown(&self) {
        // A server that was dropped sends no further notifications; the error means shutdown as well.
        let _ = self.shutdown.clone().wait_for(|stop| *stop).await;
    }

    /// Returns the output of `work`, or `None` if the drain ends first.
    pub async fn until_cut_off<F: Future + ?Sized>(&self, work: Pin<&mut F>) -> Option<F::Output> {
        self.cut_off.run(std::ptr::from_ref(self).addr(), work).await
    }

    /// Returns when a connection that opens now reaches its maximum age.
    pub(super) fn expiry(limits: &ConnectionLimits) -> Option<Instant> {
        limits.max_connection_age.map(|age| Instant::now() + jittered(age.get(), AGE_JITTER))
    }

    /// Returns whether the current request is the last: the server shuts down, the connection has reached its maximum
    /// age, or its client certificate is no longer accepted.
    pub(super) fn is_closing(&self) -> bool {
        self.is_draining()
            || self.expires_at.is_some_and(|at| Instant::now() >= at)
            || self.tls.as_ref().is_some_and(|tls| !tls.is_client_trusted())
    }

    /// Returns the time until the connection reaches its maximum age, if that is less than `limit`, or else `limit`.
    pub(super) fn age_left(&self, limit: Duration) -> Duration {
        self.expires_at.map_or(limit, |at| limit.min(at.saturating_duration_since(Instant::now())))
    }

    /// Resolves when the server shuts down, or the client certificate is no longer accepted.
    pub(super) async fn wait_for_shutdown_or_distrust(&self) {
        match &self.tls {
            Some(tls) if tls.client_trust.is_some() => {
                tokio::select! {
                    () = self.wait_for_shutdown() => {}
                    () = tls.wait_until_untrusted() => {}
                }
            }
            _ => self.wait_for_shutdown().await,
        }
    }

    /// Resolves when the connection gets no further requests.
    pub(super) async fn wait_until_closing(&self) {
        let aged = async {
            match self.expires_at {
                Some(at) => tokio::time::sleep_until(at.into()).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = self.wait_for_shutdown_or_distrust() => {}
            () = aged => {}
        }
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
