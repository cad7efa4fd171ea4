//! The HTTP server: accept loops, the limit on open connections, the handling of each connection (TLS handshake with
//! its timeout, then HTTP/2 or HTTP/1), draining, and the sockets to hand over.

use super::{
    address_counts::AddressCounts,
    client_address::{ProxyHeaderError, TrustedProxies},
    config::ConnectionLimits,
    connection_stream::ConnectionStream,
    cut_off::CutOffSignal,
    http_connection::{ActiveCounts, HttpConnection, TlsInfo},
    http_service::HttpService,
    http1_connection, http2_connection,
    listening_socket::{self, BoundListener},
    tls_certificates::ReloadableTlsConfig,
};
use crate::telemetry::{
    CertificateExpirations, CertificateKind, ConnectionOutcome, Event, ListenerMetrics, Metrics, TlsHandshake,
};
use std::{io, net::SocketAddr, os::fd::OwnedFd, sync::Arc, time::Duration};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{Semaphore, watch},
    task::JoinSet,
    time::timeout,
};
use tokio_rustls::{TlsAcceptor, server::TlsStream};

/// Pause after a failed accept, for example without free file descriptors or memory; an immediate retry would spin.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(50);

/// Maximum connections accepted from the kernel's queue while a listener closes.
const MAX_FINAL_ACCEPTS: usize = 4096;

/// Time for calls that were cut off to write their responses after the drain deadline.
const CUT_OFF_GRACE_PERIOD: Duration = Duration::from_secs(2);

/// Time for aborted calls to write their log records.
const ABORT_GRACE_PERIOD: Duration = Duration::from_secs(1);

/// A running HTTP server. Dropping it aborts every connection; [`HttpServer::drain`] closes them gracefully.
#[derive(Debug)]
pub struct HttpServer {
    shutdown: watch::Sender<bool>,
    accept_loops: JoinSet<()>,
    active: Arc<ActiveCounts>,
    cut_off: Arc<CutOffSignal>,
    addresses: Vec<SocketAddr>,
    certificates: Vec<ListenerCertificates>,
    listening_sockets: Vec<(String, OwnedFd)>,
    metrics: Arc<Metrics>,
}

/// The certificates of one listener.
#[derive(Debug)]
struct ListenerCertificates {
    /// The configured address of the listener.
    listener: String,
    tls: Arc<ReloadableTlsConfig>,
}

/// A listener whose changed certificate files were read.
#[derive(Clone, Debug)]
pub struct CertificateReload {
    /// The listener, as the configuration has its address.
    pub listener: String,
    /// SHA-256 of the certificate that was in use before.
    pub before: [u8; 32],
    /// SHA-256 of the certificate in use.
    pub after: [u8; 32],
    /// Why the files were rejected; empty if they are in use.
    pub problems: Vec<String>,
}

/// What was still open when a drain reached its deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DrainReport {
    /// Connections that were cut off.
    pub aborted_connections: usize,
    /// Requests that were cut off with them.
    pub aborted_calls: usize,
}

impl HttpServer {
    /// Starts accepting on `listeners`; requires a tokio runtime.
    ///
    /// # Errors
    /// The system's error, when a socket cannot be registered with the runtime.
    pub fn start<S: HttpService>(
        listeners: Vec<BoundListener>,
        limits: ConnectionLimits,
        service: &Arc<S>,
        metrics: &Arc<Metrics>,
    ) -> io::Result<Self> {
        let (shutdown, watch) = watch::channel(false);
        let mut server = Self {
            shutdown,
            accept_loops: JoinSet::new(),
            active: Arc::default(),
            cut_off: Arc::default(),
            addresses: Vec::new(),
            certificates: Vec::new(),
            listening_sockets: Vec::new(),
            metrics: Arc::clone(metrics),
        };
        let limits = Arc::new(limits);
        for listener in listeners {
            server.addresses.push(listener.address()?);
            server.listening_sockets.push((listener.label.clone(), listener.socket.try_clone()?.into()));
            let listener_metrics = metrics.listener(&listener.label);
            if let Some(tls) = &listener.certificates {
                if let Some(problem) = tls.validity_problem() {
                    tracing::error!(listener = listener.label, "{problem} (replace it; it is reloaded)");
                }
                metrics.certificates().prepare_listener(&listener.label);
                server.certificates.push(ListenerCertificates { listener: listener.label, tls: Arc::clone(tls) });
            }
            let connection_handler = ConnectionHandler {
                service: Arc::clone(service),
                limits: Arc::clone(&limits),
                certificates: listener.certificates,
                trusted_proxies: listener.trusted_proxies.map(Arc::new),
                metrics: Arc::clone(metrics),
                listener: listener_metrics,
                shutdown: watch.clone(),
                active: Arc::clone(&server.active),
                addresses: AddressCounts::default(),
                cut_off: Arc::clone(&server.cut_off),
            };
            server
                .accept_loops
                .spawn(accept_connections(Arc::new(connection_handler), TcpListener::from_std(listener.socket)?));
        }
        server.record_certificate_expiry();
        Ok(server)
    }

    /// Returns the bound addresses, in the order of the configuration.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Returns the number of open connections.
    pub fn open_connections(&self) -> usize {
        self.active.connections()
    }

    /// Returns the number of requests in progress.
    pub fn active_calls(&self) -> usize {
        self.active.calls()
    }

    /// Duplicates the listening sockets with their labels, for a process that takes over.
    ///
    /// # Errors
    /// The system's error, when there are no free file descriptors.
    pub fn clone_listening_sockets(&self) -> io::Result<Vec<(String, OwnedFd)>> {
        self.listening_sockets.iter().map(|(label, socket)| Ok((label.clone(), socket.try_clone()?))).collect()
    }

    /// Reloads the certificates whose files have changed; to be called about once a second. Returns each listener whose
    /// files have changed, once per change.
    pub fn reload_changed_certificates(&self) -> Vec<CertificateReload> {
        let mut reloads = Vec::new();
        for ListenerCertificates { listener, tls } in &self.certificates {
            let before = tls.fingerprint();
            let Some(result) = tls.reload_changed() else { continue };
            if result.is_ok() {
                self.metrics.record_event(Event::CertificatesLoaded);
            } else {
                self.metrics.record_event(Event::CertificatesRejected);
                self.metrics.certificates().record_reload_failure(listener);
            }
            let problems = result.err().unwrap_or_default();
            reloads.push(CertificateReload { listener: listener.clone(), before, after: tls.fingerprint(), problems });
        }
        self.record_certificate_expiry();
        reloads
    }

    fn record_certificate_expiry(&self) {
        let expiration = |of: &ListenerCertificates| (of.listener.clone(), of.tls.validity().not_after);
        let expirations: CertificateExpirations = self.certificates.iter().map(expiration).collect();
        self.metrics.certificates().set_expirations(CertificateKind::Listener, expirations);
    }

    /// Stops accepting, closes idle connections and lets requests finish. After `max_wait` the remaining ones are cut off,
    /// so that their callers get a fault, and then aborted.
    pub async fn drain(mut self, max_wait: Duration) -> DrainReport {
        // Closed before the accept loops stop, so that no client connects to a socket on which nothing accepts.
        self.listening_sockets.clear();
        self.shutdown.send_replace(true);
        if timeout(max_wait, self.wait_until_idle()).await.is_ok() {
            return DrainReport { aborted_connections: 0, aborted_calls: 0 };
        }
        let report = DrainReport { aborted_connections: self.active.connections(), aborted_calls: self.active.calls() };
        self.cut_off.trigger();
        let _ = timeout(CUT_OFF_GRACE_PERIOD, self.wait_until_idle()).await;
        self.accept_loops.shutdown().await;
        let _ = timeout(ABORT_GRACE_PERIOD, self.active.wait_until_idle()).await;
        report
    }

    async fn wait_until_idle(&mut self) {
        while self.accept_loops.join_next().await.is_some() {}
        self.active.wait_until_idle().await;
    }
}

/// Accepts connections until shutdown, then waits for them to end. Dropping the future aborts them.
async fn accept_connections<S: HttpService>(handler: Arc<ConnectionHandler<S>>, listener: TcpListener) {
    let permits = Arc::new(Semaphore::new(handler.limits.max_connections.min(Semaphore::MAX_PERMITS)));
    let mut connections = JoinSet::new();
    let mut shutdown = handler.shutdown.clone();
    loop {
        let accepted = tokio::select! {
            biased;
            _ = shutdown.wait_for(|shutdown| *shutdown) => break,
            Some(ended) = connections.join_next() => {
                log_panic(ended);
                continue;
            }
            accepted = listener.accept() => accepted,
        };
        let (tcp, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) if is_peer_error(&error) => continue,
            Err(error) => {
                handler.metrics.record_event(Event::AcceptFailed);
                tracing::warn!(%error, "accepting a connection failed");
                tokio::time::sleep(ACCEPT_RETRY_DELAY).await;
                continue;
            }
        };
        spawn_connection(&handler, &permits, &mut connections, tcp, peer);
    }
    // Clients that are already connected in the kernel's queue would otherwise be reset.
    accept_queued_connections(listener)
        .for_each(|(tcp, peer)| spawn_connection(&handler, &permits, &mut connections, tcp, peer));
    while let Some(ended) = connections.join_next().await {
        log_panic(ended);
    }
}

/// Serves a connection on its own task, or closes it if the limit on connections is reached.
fn spawn_connection<S: HttpService>(
    handler: &Arc<ConnectionHandler<S>>,
    permits: &Arc<Semaphore>,
    connections: &mut JoinSet<()>,
    tcp: TcpStream,
    peer: SocketAddr,
) {
    let Ok(permit) = Arc::clone(permits).try_acquire_owned() else {
        return handler.listener.record_connection(ConnectionOutcome::Refused);
    };
    // The connections of a trusted proxy are those of its clients, which are known later.
    let of_address = if handler.is_trusted_proxy(peer) {
        None
    } else {
        let counted = handler.addresses.try_count_connection(peer.ip(), &handler.limits);
        if counted.is_none() {
            return handler.listener.record_connection(ConnectionOutcome::RefusedByAddress);
        }
        counted
    };
    handler.listener.record_connection(ConnectionOutcome::Accepted);
    let guards = (handler.active.count_connection(), handler.listener.track_connection());
    let handler = Arc::clone(handler);
    connections.spawn(async move {
        handler.handle_connection(tcp, peer).await;
        drop((permit, of_address, guards));
    });
}

/// Accepts the connections that the kernel has completed, then closes the listening socket.
fn accept_queued_connections(listener: TcpListener) -> impl Iterator<Item = (TcpStream, SocketAddr)> {
    let listener = listener.into_std();
    let next = move || loop {
        let accepted = listener.as_ref().ok()?.accept();
        match accepted {
            Ok((tcp, peer)) => {
                tcp.set_nonblocking(true).ok()?;
                return Some((TcpStream::from_std(tcp).ok()?, peer));
            }
            Err(error) if is_peer_error(&error) => {}
            // The queue is empty, or there are no free file descriptors.
            Err(_) => return None,
        }
    };
    std::iter::from_fn(next).take(MAX_FINAL_ACCEPTS)
}

/// Whether the error only says that one peer left while its connection was being accepted.
fn is_peer_error(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset | Interrupted)
}

/// Logs a panic of a connection's task. It ends only that connection, but is a defect.
fn log_panic(result: Result<(), tokio::task::JoinError>) {
    if result.is_err_and(|error| error.is_panic()) {
        tracing::error!("connection handler panicked");
    }
}

/// State shared by the connections of one listener, and the handling of each.
struct ConnectionHandler<S> {
    service: Arc<S>,
    limits: Arc<ConnectionLimits>,
    certificates: Option<Arc<ReloadableTlsConfig>>,
    trusted_proxies: Option<Arc<TrustedProxies>>,
    metrics: Arc<Metrics>,
    listener: Arc<ListenerMetrics>,
    shutdown: watch::Receiver<bool>,
    active: Arc<ActiveCounts>,
    addresses: AddressCounts,
    cut_off: Arc<CutOffSignal>,
}

impl<S: HttpService> ConnectionHandler<S> {
    /// Serves one connection until it ends.
    async fn handle_connection(&self, mut tcp: TcpStream, peer: SocketAddr) {
        // If the socket cannot be configured or queried, the peer has already closed it.
        let (Ok(()), Ok(local)) = (listening_socket::configure_accepted_socket(&tcp, &self.limits), tcp.local_addr())
        else {
            return;
        };
        let peer = canonical_address(peer);
        let Some(client) = self.client_address(&mut tcp, peer).await else { return };
        let forwarding_proxies = self.forwarding_proxies(peer);
        let mut of_client = None;
        if forwarding_proxies.is_none() && self.is_trusted_proxy(peer) {
            of_client = self.addresses.try_count_connection(client.ip(), &self.limits);
            if of_client.is_none() {
                return self.listener.record_connection(ConnectionOutcome::RefusedByAddress);
            }
        }
        let (stream, tls_info) = match &self.certificates {
            None => (ConnectionStream::from_tcp(tcp), None),
            Some(certificates) => {
                // Without a maximum of their own, handshakes are bounded as connections are.
                let max_handshakes = self.limits.max_handshakes_per_address.filter(|_| forwarding_proxies.is_none());
                let in_progress = max_handshakes.map(|max| self.addresses.try_count_handshake(client.ip(), max));
                if matches!(in_progress, Some(None)) {
                    return self.listener.record_connection(ConnectionOutcome::RefusedHandshake);
                }
                match self.accept_tls(tcp, certificates).await {
                    Some((stream, tls_info)) => {
                        let is_tls12 = tls_info.version.ends_with('2');
                        self.listener.record_handshake(if is_tls12 {
                            TlsHandshake::Tls12
                        } else {
                            TlsHandshake::Tls13
                        });
                        (stream, Some(tls_info))
                    }
                    None => {
                        self.listener.record_handshake(TlsHandshake::Failed);
                        return self.listener.record_connection(ConnectionOutcome::HandshakeFailed);
                    }
                }
            }
        };
        let connection = Arc::new(self.service.open_connection(HttpConnection {
            client_address: client,
            forwarding_proxies,
            local_address: canonical_address(local),
            tls: tls_info,
            metrics: Arc::clone(&self.listener),
            limits: Arc::clone(&self.limits),
            shutdown: self.shutdown.clone(),
            active: Arc::clone(&self.active),
            cut_off: Arc::clone(&self.cut_off),
            expires_at: HttpConnection::expiry(&self.limits),
        }));
        self.serve_protocol(stream, &connection).await;
        drop(of_client);
    }

    /// Returns the address of the client of a new connection, which is known from here on; `None` if a trusted proxy does
    /// not say who the client is, and the connection is to be closed.
    async fn client_address(&self, tcp: &mut TcpStream, peer: SocketAddr) -> Option<SocketAddr> {
        let Some(proxies) = &self.trusted_proxies else { return Some(peer) };
        match proxies.read_client_address(tcp, peer, self.limits.header_timeout.get()).await {
            Ok(client) => Some(client),
            Err(ProxyHeaderError::Closed) => None,
            Err(error) => {
                self.listener.record_connection(ConnectionOutcome::ProxyHeaderInvalid);
                tracing::warn!(%peer, %error, "connection of a trusted proxy closed: no valid PROXY protocol header (check that the proxy sends it)");
                None
            }
        }
    }

    /// Returns whether `peer` is a trusted proxy, whose connections are not those of one client.
    fn is_trusted_proxy(&self, peer: SocketAddr) -> bool {
        self.trusted_proxies.as_ref().is_some_and(|proxies| proxies.contains(peer.ip()))
    }

    /// Returns the trusted proxies if `peer` is one, and forwards the requests of many clients over one connection.
    fn forwarding_proxies(&self, peer: SocketAddr) -> Option<Arc<TrustedProxies>> {
        let proxies = self.trusted_proxies.as_ref()?;
        (proxies.sends_header() && proxies.contains(peer.ip())).then(|| Arc::clone(proxies))
    }

    async fn serve_protocol(&self, mut stream: ConnectionStream, connection: &Arc<S::Connection>) {
        // ALPN selects the protocol on TLS. The HTTP/2 preface is read here nevertheless, because Pingora would wait
        // for it without a timeout.
        if stream.is_http2() || connection.tls.is_none() {
            match http1_connection::detect_http2_preface(&mut stream, connection).await {
                Some(true) => stream.set_http2(),
                Some(false) if stream.is_http2() => return,
                Some(false) => {}
                None => return,
            }
        }
        if stream.is_http2() {
            http2_connection::serve_http2(&self.service, connection, stream).await;
        } else {
            http1_connection::serve_http1(&self.service, connection, stream).await;
        }
    }

    async fn accept_tls(
        &self,
        tcp: TcpStream,
        certificates: &ReloadableTlsConfig,
    ) -> Option<(ConnectionStream, TlsInfo)> {
        let acceptor = TlsAcceptor::from(certificates.current());
        let tls = timeout(self.limits.tls_handshake_timeout.get(), acceptor.accept(tcp)).await;
        match tls {
            Ok(Ok(tls)) => {
                let tls_info = tls_info(&tls, certificates);
                let is_http2 = tls_info.is_http2;
                Some((ConnectionStream::from_tls(tls, is_http2), tls_info))
            }
            Ok(Err(error)) => {
                tracing::debug!(%error, "TLS handshake failed");
                None
            }
            Err(_) => None,
        }
    }
}

fn tls_info(tls: &TlsStream<TcpStream>, certificates: &ReloadableTlsConfig) -> TlsInfo {
    let session = tls.get_ref().1;
    let chain = session.peer_certificates().unwrap_or_default();
    TlsInfo {
        client_certificates: chain.iter().map(|certificate| certificate.clone().into_owned()).collect(),
        server_name: session.server_name().map(str::to_owned),
        version: session.protocol_version().and_then(|version| version.as_str()).unwrap_or("unknown"),
        is_http2: session.alpn_protocol() == Some(b"h2"),
        client_trust: (!chain.is_empty()).then(|| certificates.client_trust()),
    }
}

/// Maps an IPv4-mapped IPv6 address to IPv4: limits and logs use one form for peers of dual-stack listeners.
fn canonical_address(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}
