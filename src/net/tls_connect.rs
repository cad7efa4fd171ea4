//! TCP and TLS connections for protocols other than HTTP. TLS always verifies the server's certificate and name; there
//! is no option to turn that off.

use super::{
    AddressPolicy,
    bounded_fetch::{add_authorities, tls_config},
    dns, error_chain, install_crypto_provider,
};
use crate::values::{parse_ip_literal, strip_brackets};
use rustix::net::sockopt;
use rustls::{ClientConfig, RootCertStore, pki_types::ServerName};
use std::{
    fmt, io,
    net::SocketAddr,
    path::Path,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
};
use tokio_rustls::TlsConnector;

/// Connect timeout of an address while there is another one to try.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

/// A bidirectional byte stream.
pub trait ByteStream: AsyncRead + AsyncWrite + Send + Sync + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Sync + Unpin> ByteStream for T {}

/// TLS client settings: the trusted certificate authorities, and an optional client certificate.
#[derive(Clone)]
pub struct TlsClientSettings(Arc<ClientConfig>);

impl fmt::Debug for TlsClientSettings {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str("TlsClientSettings")
    }
}

impl TlsClientSettings {
    /// Trusts the system's certificate authorities, which the first connection loads, and those of the PEM file `ca`.
    ///
    /// # Errors
    /// The file cannot be used.
    pub fn load(ca: Option<&Path>) -> Result<Self, String> {
        install_crypto_provider();
        let mut further = RootCertStore::empty();
        if let Some(path) = ca {
            add_authorities(&mut further, "ca", path)?;
        }
        Ok(Self(Arc::new(tls_config(further, &[]))))
    }
}

impl From<Arc<ClientConfig>> for TlsClientSettings {
    /// Uses the authorities and the client certificate of `config`.
    fn from(config: Arc<ClientConfig>) -> Self {
        Self(config)
    }
}

/// A server to connect to.
#[derive(Clone, Copy, Debug)]
pub struct ConnectTarget<'a> {
    /// Host name or IP address; an IPv6 address in brackets.
    pub host: &'a str,
    /// The port.
    pub port: u16,
    /// TLS settings; `None` connects without TLS.
    pub tls: Option<&'a TlsClientSettings>,
    /// Name that the certificate must be valid for. Default: the host.
    pub server_name: Option<&'a str>,
    /// Restricts the addresses to connect to; `None` where the operator configured the host.
    pub policy: Option<&'a AddressPolicy>,
    /// Whether what arrives is acknowledged at once. A server that sends small messages without TCP_NODELAY holds each
    /// back until the one before is acknowledged, which otherwise takes 40 ms (RFC 9293 §3.7.4, RFC 1122 §4.2.3.2).
    pub acknowledges_at_once: bool,
}

impl ConnectTarget<'_> {
    /// Connects, with TLS if there are TLS settings, and sets TCP_NODELAY.
    ///
    /// # Errors
    /// No permitted address, no connection, or failed TLS verification.
    pub async fn connect(&self) -> Result<Box<dyn ByteStream>, String> {
        let stream = self.connect_tcp().await?;
        stream.set_nodelay(true).map_err(|error| error.to_string())?;
        let stream = AcknowledgingStream { tcp: stream, acknowledges_at_once: self.acknowledges_at_once };
        let Some(TlsClientSettings(config)) = self.tls else {
            return Ok(Box::new(stream));
        };
        let bare = strip_brackets(self.server_name.unwrap_or(self.host));
        let name =
            ServerName::try_from(bare.to_owned()).map_err(|_| format!("{bare} is not a host name or IP address"))?;
        let tls_stream = TlsConnector::from(Arc::clone(config)).connect(name, stream).await;
        let tls_stream = tls_stream.map_err(|error| format!("TLS handshake failed ({})", error_chain(&error)))?;
        Ok(Box::new(tls_stream))
    }

    async fn connect_tcp(&self) -> Result<TcpStream, String> {
        let mut last_error = format!("{} has no address", self.host);
        let addresses = self.resolve_addresses().await?;
        for (address, attempts_left) in addresses.iter().zip((0..addresses.len()).rev()) {
            let timeout = if attempts_left == 0 { Duration::MAX } else { CONNECT_TIMEOUT };
            match tokio::time::timeout(timeout, TcpStream::connect(address)).await {
                Ok(Ok(stream)) => return Ok(stream),
                Ok(Err(error)) => last_error = format!("cannot be reached ({error})"),
                Err(_) => last_error = "cannot be reached (timed out)".to_owned(),
            }
        }
        Err(last_error)
    }

    async fn resolve_addresses(&self) -> Result<Vec<SocketAddr>, String> {
        if let Some(policy) = self.policy {
            return dns::resolve_host(self.host, self.port, policy).await.map_err(|error| error.to_string());
        }
        let ips = match parse_ip_literal(self.host) {
            Some(ip) => Arc::from([ip]),
            None => dns::look_up(self.host).await.map_err(|error| error.to_string())?,
        };
        Ok(ips.iter().map(|ip| SocketAddr::new(*ip, self.port)).collect())
    }
}

/// A TCP stream that may acknowledge at once what arrives.
struct AcknowledgingStream {
    tcp: TcpStream,
    acknowledges_at_once: bool,
}

impl AsyncRead for AcknowledgingStream {
    fn poll_read(mut self: Pin<&mut Self>, task: &mut Context<'_>, to: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let result = ready!(Pin::new(&mut self.tcp).poll_read(task, to));
        if self.acknowledges_at_once {
            // The system returns to delayed acknowledgements by itself, so each read asks again. A failure costs time only.
            let _ = sockopt::set_tcp_quickack(&self.tcp, true);
        }
        Poll::Ready(result)
    }
}

impl AsyncWrite for AcknowledgingStream {
    fn poll_write(mut self: Pin<&mut Self>, task: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.tcp).poll_write(task, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        task: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.tcp).poll_write_vectored(task, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.tcp.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.tcp).poll_flush(task)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.tcp).poll_shutdown(task)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::{io::AsyncReadExt, io::AsyncWriteExt, net::TcpListener};

    #[tokio::test]
    async fn a_stream_that_acknowledges_at_once_asks_for_it_after_each_read() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let tcp = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (mut peer, _) = listener.accept().await.unwrap();
        let mut stream = AcknowledgingStream { tcp, acknowledges_at_once: true };
        for _ in 0..3 {
            sockopt::set_tcp_quickack(&stream.tcp, false).unwrap();
            peer.write_all(b"message").await.unwrap();
            stream.read_exact(&mut [0; 7]).await.unwrap();
            assert!(sockopt::tcp_quickack(&stream.tcp).unwrap());
        }
        stream.acknowledges_at_once = false;
        sockopt::set_tcp_quickack(&stream.tcp, false).unwrap();
        peer.write_all(b"message").await.unwrap();
        stream.read_exact(&mut [0; 7]).await.unwrap();
        assert!(!sockopt::tcp_quickack(&stream.tcp).unwrap());
    }
}
