//! One connection to a host that the operator named, for protocols other than HTTP. Whoever is at the other end of
//! TLS proves that it bears the host's name; there is no way to do without that proof.

use super::{chain, install_crypto, resolve};
use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, ServerName, pem::PemObject},
};
use std::{fmt, path::Path, sync::Arc};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
};
use tokio_rustls::TlsConnector;

/// Both directions of a connection.
pub trait Wire: AsyncRead + AsyncWrite + Send + Sync + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Sync + Unpin> Wire for T {}

/// Whom a connection believes.
#[derive(Clone)]
pub struct Authorities(Arc<ClientConfig>);

impl fmt::Debug for Authorities {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str("Authorities")
    }
}

impl Authorities {
    /// The system's certificate authorities, and those of the PEM file `besides`. Reads files.
    ///
    /// # Errors
    /// The file cannot be used, or there are no authorities at all.
    pub fn load(besides: Option<&Path>) -> Result<Self, String> {
        install_crypto();
        let mut roots = RootCertStore::empty();
        // Some systems carry certificates that no verifier takes; the others count.
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        if let Some(path) = besides {
            let unusable = |why: &dyn fmt::Display| format!("ca: {} cannot be used ({why})", path.display());
            let before = roots.len();
            for certificate in CertificateDer::pem_file_iter(path).map_err(|why| unusable(&why))? {
                let certificate = certificate.map_err(|why| unusable(&why))?;
                roots.add(certificate).map_err(|why| unusable(&why))?;
            }
            if roots.len() == before {
                return Err(unusable(&"it holds no certificate in PEM"));
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

/// Connects to `host`, over TLS where there are authorities to believe. Small writes leave at once.
///
/// # Errors
/// The name has no address, nobody answers, or whoever does cannot prove to be `host`.
pub async fn connect(host: &str, port: u16, authorities: Option<&Authorities>) -> Result<Box<dyn Wire>, String> {
    let stream = reach(host, port).await?;
    stream.set_nodelay(true).map_err(|why| why.to_string())?;
    let Some(Authorities(config)) = authorities else {
        return Ok(Box::new(stream));
    };
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    let name = ServerName::try_from(bare.to_owned()).map_err(|_| format!("{bare} is neither a name nor an address"))?;
    let secured = TlsConnector::from(Arc::clone(config)).connect(name, stream).await;
    let secured = secured.map_err(|why| format!("no secure connection could be made ({})", chain(&why)))?;
    Ok(Box::new(secured))
}

async fn reach(host: &str, port: u16) -> Result<TcpStream, String> {
    let addresses = match resolve::literal(host) {
        Some(ip) => Arc::from([ip]),
        None => resolve::look_up(host).await.map_err(|why| why.to_string())?,
    };
    let mut why = format!("{host} has no address");
    for ip in addresses.iter() {
        match TcpStream::connect((*ip, port)).await {
            Ok(stream) => return Ok(stream),
            Err(refused) => why = format!("it cannot be reached ({refused})"),
        }
    }
    Err(why)
}
