//! Handler of one accepted connection: TLS handshake with its timeout, then HTTP/2 or HTTP/1.

use super::{
    Connection, Limits, Secured, Service, connection::Live, head, http1, http2, socket, tls::Certificates, wire::Wire,
};
use crate::telemetry::{self, Metrics};
use std::{
    net::SocketAddr,
    sync::{Arc, OnceLock, atomic::AtomicU64},
};
use tokio::{net::TcpStream, sync::watch, time::timeout};
use tokio_rustls::{TlsAcceptor, server::TlsStream};

/// State shared by the connections of one listener, and the handling of each.
pub(super) struct Door<S> {
    pub(super) service: Arc<S>,
    pub(super) limits: Arc<Limits>,
    pub(super) certificates: Option<Arc<Certificates>>,
    pub(super) metrics: Arc<Metrics>,
    pub(super) stop: watch::Receiver<bool>,
    pub(super) live: Arc<Live>,
}

impl<S: Service> Door<S> {
    /// Serves one connection until it ends.
    pub(super) async fn serve(&self, tcp: TcpStream, peer: SocketAddr) {
        // If the socket cannot be configured or queried, the peer has already closed it.
        let (Ok(()), Ok(local)) = (socket::prepare(&tcp, &self.limits), tcp.local_addr()) else {
            return;
        };
        let (wire, secured) = match &self.certificates {
            None => (Wire::plain(tcp), None),
            Some(certificates) => match self.handshake(tcp, certificates).await {
                Some((wire, secured)) => (wire, Some(secured)),
                None => return self.metrics.connection(telemetry::Connection::HandshakeFailed),
            },
        };
        let connection = Arc::new(Connection {
            peer: canonical(peer),
            local: canonical(local),
            secured,
            identity: OnceLock::new(),
            forwarded: OnceLock::new(),
            last: AtomicU64::new(0),
            limits: Arc::clone(&self.limits),
            stop: self.stop.clone(),
            live: Arc::clone(&self.live),
        });
        self.speak(wire, &connection).await;
    }

    async fn speak(&self, mut wire: Wire, connection: &Arc<Connection>) {
        // ALPN selects the protocol on TLS. The HTTP/2 preface is read here nevertheless, because Pingora would wait
        // for it without a timeout.
        if wire.is_h2() || connection.secured.is_none() {
            match head::is_h2(&mut wire, connection).await {
                Some(true) => wire.set_h2(),
                Some(false) if wire.is_h2() => return,
                Some(false) => {}
                None => return,
            }
        }
        if wire.is_h2() {
            http2::run(&self.service, connection, wire).await;
        } else {
            http1::run(&self.service, connection, wire).await;
        }
    }

    async fn handshake(&self, tcp: TcpStream, certificates: &Certificates) -> Option<(Wire, Secured)> {
        let acceptor = TlsAcceptor::from(certificates.current());
        let tls = timeout(self.limits.tls_handshake_timeout.get(), acceptor.accept(tcp)).await;
        match tls {
            Ok(Ok(tls)) => {
                let secured = facts(&tls);
                let h2 = secured.h2;
                Some((Wire::tls(tls, h2), secured))
            }
            Ok(Err(error)) => {
                tracing::debug!(%error, "TLS handshake failed");
                None
            }
            Err(_) => None,
        }
    }
}

fn facts(tls: &TlsStream<TcpStream>) -> Secured {
    let session = tls.get_ref().1;
    let chain = session.peer_certificates().unwrap_or_default();
    Secured {
        client_chain: chain.iter().map(|certificate| certificate.clone().into_owned()).collect(),
        server_name: session.server_name().map(str::to_owned),
        version: session.protocol_version().and_then(|version| version.as_str()).unwrap_or("unknown"),
        h2: session.alpn_protocol() == Some(b"h2"),
    }
}

/// Maps an IPv4-mapped IPv6 address to IPv4: limits and logs use one form for peers of dual-stack listeners.
fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}
