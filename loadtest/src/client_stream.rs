//! Client side of a connection: plain, or TLS 1.3 with one cipher suite and one key exchange, so that every server does
//! the same work. The load accepts any certificate, because its core is shared with the agent.

use anyhow::Context as _;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{ClientConfig, ClientConnection, Resumption};
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{DigitallySignedStruct, SignatureScheme, StreamOwned};
use std::io::{Read, Result, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

/// The host name of all requests, for which the certificate is issued. Agents at unix sockets refuse names that might be
/// those of a web page (DNS rebinding).
pub(crate) const HOST: &str = "localhost";

/// The protocol between a client and a proxy.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum ClientProtocol {
    /// HTTP/1.1 without TLS.
    Http1,
    /// HTTP/1.1 over TLS.
    Http1Tls,
    /// HTTP/2 over TLS, negotiated by ALPN.
    Http2Tls,
}

impl ClientProtocol {
    pub(crate) const ALL: [Self; 3] = [Self::Http1, Self::Http1Tls, Self::Http2Tls];

    /// Returns the name in tables and records.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Http1 => "HTTP/1.1",
            Self::Http1Tls => "HTTP/1.1 over TLS",
            Self::Http2Tls => "HTTP/2 over TLS",
        }
    }

    fn alpn(self) -> &'static [u8] {
        if self == Self::Http2Tls { b"h2" } else { b"http/1.1" }
    }
}

/// A blocking connection.
pub(crate) enum ClientStream {
    Plain(TcpStream),
    Tls(Box<StreamOwned<ClientConnection, TcpStream>>),
}

impl ClientStream {
    /// Connects. A read fails after `read_timeout`, because a run must end.
    pub(crate) fn connect(
        address: SocketAddr,
        protocol: ClientProtocol,
        read_timeout: Duration,
    ) -> anyhow::Result<Self> {
        let stream = TcpStream::connect(address).context("connect")?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(read_timeout))?;
        if protocol == ClientProtocol::Http1 {
            return Ok(Self::Plain(stream));
        }
        let connection =
            ClientConnection::new(Arc::new(tls_config(protocol, Resumption::disabled())?), server_name()?)?;
        Ok(Self::Tls(Box::new(StreamOwned::new(connection, stream))))
    }
}

impl Read for ClientStream {
    fn read(&mut self, buffer: &mut [u8]) -> Result<usize> {
        match self {
            Self::Plain(stream) => stream.read(buffer),
            Self::Tls(stream) => stream.read(buffer),
        }
    }
}

impl Write for ClientStream {
    fn write(&mut self, bytes: &[u8]) -> Result<usize> {
        match self {
            Self::Plain(stream) => stream.write(bytes),
            Self::Tls(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> Result<()> {
        match self {
            Self::Plain(stream) => stream.flush(),
            Self::Tls(stream) => stream.flush(),
        }
    }
}

/// Returns the server name of the handshakes.
pub(crate) fn server_name() -> anyhow::Result<ServerName<'static>> {
    Ok(ServerName::try_from(HOST)?)
}

/// Builds the TLS configuration of the load: only TLS 1.3, AES-128-GCM and X25519, whatever else a server offers.
pub(crate) fn tls_config(protocol: ClientProtocol, resumption: Resumption) -> anyhow::Result<ClientConfig> {
    let provider = CryptoProvider {
        cipher_suites: vec![aws_lc_rs::cipher_suite::TLS13_AES_128_GCM_SHA256],
        kx_groups: vec![aws_lc_rs::kx_group::X25519],
        ..aws_lc_rs::default_provider()
    };
    let builder = ClientConfig::builder_with_provider(Arc::new(provider));
    let builder = builder.with_protocol_versions(&[&rustls::version::TLS13])?;
    let mut config =
        builder.dangerous().with_custom_certificate_verifier(Arc::new(AcceptAnyCertificate)).with_no_client_auth();
    config.alpn_protocols = vec![protocol.alpn().to_vec()];
    config.resumption = resumption;
    Ok(config)
}

/// Accepts every certificate.
#[derive(Debug)]
struct AcceptAnyCertificate;

impl ServerCertVerifier for AcceptAnyCertificate {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> std::result::Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> std::result::Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> std::result::Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ECDSA_NISTP256_SHA256]
    }
}
