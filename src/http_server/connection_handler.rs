//! Handler of one accepted connection: TLS handshake with its timeout, then HTTP/2 or HTTP/1.

use super::{
    config::ConnectionLimits,
    connection_stream::ConnectionStream,
    head_reader,
    http_connection::{ActiveCounts, HttpConnection, TlsInfo},
    http_service::HttpService,
    http1_connection, http2_connection, listening_socket,
    tls_certificates::ReloadableTlsConfig,
};
use crate::telemetry::{self, Metrics};
use std::{net::SocketAddr, sync::Arc};
use tokio::{net::TcpStream, sync::watch, time::timeout};
use tokio_rustls::{TlsAcceptor, server::TlsStream};

/// State shared by the connections of one listener, and the handling of each.
pub(super) struct ConnectionHandler<S> {
    pub(super) service: Arc<S>,
    pub(super) limits: Arc<ConnectionLimits>,
    pub(super) certificates: Option<Arc<ReloadableTlsConfig>>,
    pub(super) metrics: Arc<Metrics>,
    pub(super) shutdown: watch::Receiver<bool>,
    pub(super) active: Arc<ActiveCounts>,
}

impl<S: HttpService> ConnectionHandler<S> {
    /// Serves one connection until it ends.
    pub(super) async fn handle_connection(&self, tcp: TcpStream, peer: SocketAddr) {
        // If the socket cannot be configured or queried, the peer has already closed it.
        let (Ok(()), Ok(local)) = (listening_socket::configure_accepted_socket(&tcp, &self.limits), tcp.local_addr())
        else {
            return;
        };
        let (stream, tls_info) = match &self.certificates {
            None => (ConnectionStream::from_tcp(tcp), None),
            Some(certificates) => match self.accept_tls(tcp, certificates).await {
                Some((stream, tls_info)) => (stream, Some(tls_info)),
                None => return self.metrics.record_connection(telemetry::ConnectionOutcome::HandshakeFailed),
            },
        };
        let connection = Arc::new(self.service.open_connection(HttpConnection {
            peer_address: canonical_address(peer),
            local_address: canonical_address(local),
            tls: tls_info,
            limits: Arc::clone(&self.limits),
            shutdown: self.shutdown.clone(),
            active: Arc::clone(&self.active),
        }));
        self.serve_protocol(stream, &connection).await;
    }

    async fn serve_protocol(&self, mut stream: ConnectionStream, connection: &Arc<S::Connection>) {
        // ALPN selects the protocol on TLS. The HTTP/2 preface is read here nevertheless, because Pingora would wait
        // for it without a timeout.
        if stream.is_http2() || connection.tls.is_none() {
            match head_reader::detect_http2_preface(&mut stream, connection).await {
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
                let tls_info = tls_info(&tls);
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

fn tls_info(tls: &TlsStream<TcpStream>) -> TlsInfo {
    let session = tls.get_ref().1;
    let chain = session.peer_certificates().unwrap_or_default();
    TlsInfo {
        client_certificates: chain.iter().map(|certificate| certificate.clone().into_owned()).collect(),
        server_name: session.server_name().map(str::to_owned),
        version: session.protocol_version().and_then(|version| version.as_str()).unwrap_or("unknown"),
        is_http2: session.alpn_protocol() == Some(b"h2"),
    }
}

/// Maps an IPv4-mapped IPv6 address to IPv4: limits and logs use one form for peers of dual-stack listeners.
fn canonical_address(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}
