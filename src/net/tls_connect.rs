//! TCP and TLS connections for protocols other than HTTP. TLS always verifies the server's certificate and name; there
//! is no option to turn that off.

use super::{AddressPolicy, dns, error_chain, install_crypto_provider};
use crate::values::{PemContent, parse_ip_literal, read_pem_file, strip_brackets};
use rustls::{ClientConfig, RootCertStore, pki_types::ServerName};
use std::{fmt, net::SocketAddr, path::Path, sync::Arc, time::Duration};
use tokio::{
    io::{AsyncRead, AsyncWrite},
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
    /// Trusts the system's certificate authorities, and those of the PEM file `ca`. Reads files.
    ///
    /// # Errors
    /// The file cannot be used, or there are no authorities at all.
    pub fn load(ca: Option<&Path>) -> Result<Self, String> {
        install_crypto_provider();
        let mut roots = RootCertStore::empty();
        // Some systems have certificates that the verifier cannot parse; they are skipped.
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        if let Some(path) = ca {
            let unusable = |reason: &dyn fmt::Display| format!("ca: {} cannot be used ({reason})", path.display());
            let certificates = read_pem_file(path, PemContent::Certificates);
            for certificate in certificates.map_err(|problem| format!("ca: {problem}"))? {
                roots.add(certificate).map_err(|error| unusable(&error))?;
            }
        }
        if roots.is_empty() {
            return Err(
                "ca: the system has no certificate authorities (install ca-certificates, or name a file)".into()
            );
        }
        let config = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
        Ok(Self(Arc::new(config)))
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
}

impl ConnectTarget<'_> {
    /// Connects, with TLS if there are TLS settings, and sets TCP_NODELAY.
    ///
    /// # Errors
    /// No permitted address, no connection, or failed TLS verification.
    pub async fn connect(&self) -> Result<Box<dyn ByteStream>, String> {
        let stream = self.connect_tcp().await?;
        stream.set_nodelay(true).map_err(|error| error.to_string())?;
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
