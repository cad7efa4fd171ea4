//! From an accepted socket to its protocol: handshake within its time, then HTTP/2 or HTTP/1.

use super::{
    Connection, Limits, Secured, Service, connection::Live, head, http1, http2, socket, tls::Certificates, wire::Wire,
};
use crate::telemetry::{self, Metrics};
use std::{
    net::SocketAddr,
    sync::{Arc, OnceLock},
};
use tokio::{net::TcpStream, sync::watch, time::timeout};
use tokio_rustls::{TlsAcceptor, server::TlsStream};

/// What the connections of one listener share.
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
        // A socket that cannot be set or asked was closed by its peer meanwhile.
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
            limits: Arc::clone(&self.limits),
            stop: self.stop.clone(),
            live: Arc::clone(&self.live),
        });
        self.speak(wire, &connection).await;
    }

    async fn speak(&self, mut wire: Wire, connection: &Arc<Connection>) {
        // On TLS the protocol is agreed on; the preface of HTTP/2 is awaited nevertheless, here, because
        // Pingora would wait for it without a bound.
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
        let tls = timeout(self.limits.tls_handshake.get(), acceptor.accept(tcp)).await;
        match tls {
            Ok(Ok(tls)) => {
                let secured = facts(&tls);
                let h2 = secured.h2;
                Some((Wire::tls(tls, h2), secured))
            }
            Ok(Err(error)) => {
                tracing::debug!(%error, "a TLS handshake failed");
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

/// An IPv4 peer of a dual-stack listener is the IPv4 peer that limits and logs know.
fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}
