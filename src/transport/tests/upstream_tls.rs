//! TLS to agents: trusted authorities, client certificates, and the separation of connections by both.

use super::*;
use crate::values::ConfigPath;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::{
    RootCertStore, ServerConfig,
    pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer},
    server::WebPkiClientVerifier,
};
use tempfile::TempDir;
use tokio_rustls::TlsAcceptor;

struct TestAuthority {
    issuer: Issuer<'static, KeyPair>,
    certificate: rcgen::Certificate,
    folder: TempDir,
}

impl TestAuthority {
    fn new() -> Self {
        crate::net::install_crypto_provider();
        let mut params = CertificateParams::new(Vec::<String>::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key).unwrap();
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("ca.pem"), certificate.pem()).unwrap();
        Self { issuer: Issuer::new(params, key), certificate, folder }
    }

    fn path(&self, name: &str) -> Option<ConfigPath> {
        Some(self.folder.path().join(name).into())
    }

    fn issue(&self, name: &str) -> (rcgen::Certificate, KeyPair) {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        (params.signed_by(&key, &self.issuer).unwrap(), key)
    }

    /// Writes a client certificate and its key.
    fn client(&self) -> (Option<ConfigPath>, Option<ConfigPath>) {
        let (certificate, key) = self.issue("gateway");
        std::fs::write(self.folder.path().join("client.pem"), certificate.pem()).unwrap();
        std::fs::write(self.folder.path().join("client.key"), key.serialize_pem()).unwrap();
        (self.path("client.pem"), self.path("client.key"))
    }

    /// Settings that trust this authority.
    fn trusting_settings(&self) -> TransportConfig {
        TransportConfig {
            tls: UpstreamTlsConfig {
                ca: self.path("ca.pem"),
                destinations: CredentialDestinations::everywhere(),
                ..UpstreamTlsConfig::default()
            },
            ..long_timeouts()
        }
    }

    /// Starts an agent with a certificate for `name` that requires client certificates issued by `clients`, if given.
    async fn agent(&self, name: &str, clients: Option<&TestAuthority>) -> (SocketAddr, Arc<AtomicUsize>) {
        let (certificate, key) = self.issue(name);
        let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let builder = ServerConfig::builder();
        let builder = match clients {
            None => builder.with_no_client_auth(),
            Some(authority) => {
                let mut roots = RootCertStore::empty();
                roots.add(authority.certificate.der().clone()).unwrap();
                builder.with_client_cert_verifier(WebPkiClientVerifier::builder(roots.into()).build().unwrap())
            }
        };
        let config = builder.with_single_cert(vec![certificate.der().clone()], key).unwrap();
        let acceptor = TlsAcceptor::from(Arc::new(config));
        start_agent(move |stream, _| {
            let acceptor = acceptor.clone();
            async move {
                let mut stream = acceptor.accept(stream).await?;
                loop {
                    read_request(&mut stream).await?;
                    stream.write_all(OK.as_bytes()).await?;
                    stream.flush().await?;
                }
            }
        })
        .await
    }
}

fn url(address: SocketAddr) -> String {
    format!("https://localhost:{}/run", address.port())
}

#[tokio::test]
async fn r1_an_agent_with_a_valid_certificate_is_called_and_its_connection_reused() {
    let authority = TestAuthority::new();
    let (address, count) = authority.agent("localhost", None).await;
    let upstream = TestUpstream::new(&url(address), &authority.trusting_settings());
    for _ in 0..3 {
        assert_eq!(read_body(upstream.post().await).await.unwrap(), "{}");
    }
    assert_eq!(count.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn r61_a_certificate_of_an_untrusted_authority_or_for_another_name_is_502() {
    let (authority, other) = (TestAuthority::new(), TestAuthority::new());
    let (address, _) = authority.agent("localhost", None).await;
    assert_fault(TestUpstream::new(&url(address), &other.trusting_settings()).post().await, 502, "AgentError");
    assert_fault(TestUpstream::new(&url(address), &long_timeouts()).post().await, 502, "AgentError");
    let (other_name_address, _) = authority.agent("agent.example", None).await;
    let other_name = TestUpstream::new(&url(other_name_address), &authority.trusting_settings());
    assert_fault(other_name.post().await, 502, "AgentError");
    let mut named = authority.trusting_settings();
    named.tls.server_name = Some("agent.example".to_owned());
    assert_eq!(read_body(TestUpstream::new(&url(other_name_address), &named).post().await).await.unwrap(), "{}");
}

#[tokio::test]
async fn r61_a_certificate_for_an_ip_address_is_verified() {
    let authority = TestAuthority::new();
    let (address, _) = authority.agent("127.0.0.1", None).await;
    let upstream = TestUpstream::new(&format!("https://{address}/"), &authority.trusting_settings());
    assert_eq!(read_body(upstream.post().await).await.unwrap(), "{}");
}

#[tokio::test]
async fn a_connection_opened_under_one_authority_is_never_used_under_another() {
    let (authority, other) = (TestAuthority::new(), TestAuthority::new());
    let (address, _) = authority.agent("localhost", None).await;
    let upstream = TestUpstream::new(&url(address), &authority.trusting_settings());
    read_body(upstream.post().await).await.unwrap();
    assert_eq!(upstream.client.idle_connections(), 1);
    let swapped = TestUpstream::with_client(upstream.client.clone(), &url(address), &other.trusting_settings());
    assert_fault(swapped.post().await, 502, "AgentError");
    let mut renamed = authority.trusting_settings();
    renamed.tls.server_name = Some("agent.example".to_owned());
    let renamed = TestUpstream::with_client(upstream.client.clone(), &url(address), &renamed);
    assert_fault(renamed.post().await, 502, "AgentError");
}

#[tokio::test]
async fn a_changed_ca_file_applies_to_open_connections_and_an_invalid_one_is_ignored() {
    let (authority, other) = (TestAuthority::new(), TestAuthority::new());
    let (address, count) = authority.agent("localhost", None).await;
    let upstream = TestUpstream::new(&url(address), &authority.trusting_settings());
    read_body(upstream.post().await).await.unwrap();
    let file = authority.path("ca.pem").unwrap();
    std::fs::write(&file, "not a certificate").unwrap();
    upstream.client.kinds.http.sweep().await;
    read_body(upstream.post().await).await.unwrap();
    assert_eq!(count.load(Ordering::SeqCst), 1);
    std::fs::write(&file, format!("\n\n{}", other.certificate.pem())).unwrap();
    upstream.client.kinds.http.sweep().await;
    assert_fault(upstream.post().await, 502, "AgentError");
}

#[tokio::test]
async fn a_ca_file_that_is_swapped_for_one_of_equal_length_and_time_applies_to_open_connections() {
    let (authority, other) = (TestAuthority::new(), TestAuthority::new());
    let (address, _) = authority.agent("localhost", None).await;
    let (file, swapped) = (authority.path("ca.pem").unwrap(), authority.path("swapped.pem").unwrap());
    // Spaces after the certificate make the lengths equal.
    std::fs::write(&file, format!("{:4096}", authority.certificate.pem())).unwrap();
    std::fs::write(&swapped, format!("{:4096}", other.certificate.pem())).unwrap();
    let before = std::fs::metadata(&file).unwrap();
    let swapped_file = std::fs::File::options().write(true).open(&swapped).unwrap();
    swapped_file.set_modified(before.modified().unwrap()).unwrap();
    let upstream = TestUpstream::new(&url(address), &authority.trusting_settings());
    read_body(upstream.post().await).await.unwrap();
    std::fs::rename(&swapped, &file).unwrap();
    let after = std::fs::metadata(&file).unwrap();
    assert_eq!((after.len(), after.modified().unwrap()), (before.len(), before.modified().unwrap()));
    upstream.client.kinds.http.sweep().await;
    assert_fault(upstream.post().await, 502, "AgentError");
}

#[tokio::test]
async fn r4_the_gateway_presents_its_certificate_to_agents_that_request_one() {
    let authority = TestAuthority::new();
    let (address, _) = authority.agent("localhost", Some(&authority)).await;
    assert_fault(TestUpstream::new(&url(address), &authority.trusting_settings()).post().await, 502, "AgentError");
    let mut settings = authority.trusting_settings();
    (settings.tls.certificate, settings.tls.key) = authority.client();
    assert_eq!(read_body(TestUpstream::new(&url(address), &settings).post().await).await.unwrap(), "{}");
    let untrusted = TestAuthority::new();
    (settings.tls.certificate, settings.tls.key) = untrusted.client();
    assert_fault(TestUpstream::new(&url(address), &settings).post().await, 502, "AgentError");
}

#[tokio::test]
async fn r38_an_agent_without_tls_is_502_and_a_silent_agent_is_504() {
    let authority = TestAuthority::new();
    let mut settings = authority.trusting_settings();
    settings.timeouts.connect = Some(ConfigDuration::from_millis(300));
    let (plain, _) =
        start_agent(|mut stream, _| async move { stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await }).await;
    assert_fault(TestUpstream::new(&url(plain), &settings).post().await, 502, "AgentError");
    let (silent, _) = start_agent(|stream, _| async move {
        std::future::pending::<()>().await;
        drop(stream);
        Ok(())
    })
    .await;
    assert_fault(TestUpstream::new(&url(silent), &settings).post().await, 504, "Timeout");
}

#[tokio::test]
async fn r40_a_body_truncated_without_tls_close_notify_is_a_fault() {
    let authority = TestAuthority::new();
    let (certificate, key) = authority.issue("localhost");
    let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let config =
        ServerConfig::builder().with_no_client_auth().with_single_cert(vec![certificate.der().clone()], key).unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let (address, _) = start_agent(move |stream, _| {
        let acceptor = acceptor.clone();
        async move {
            let mut stream = acceptor.accept(stream).await?;
            read_request(&mut stream).await?;
            stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n{\"a\":").await?;
            stream.flush().await
        }
    })
    .await;
    assert_fault(
        read_body(TestUpstream::new(&url(address), &authority.trusting_settings()).post().await).await,
        502,
        "AgentError",
    );
}

#[tokio::test]
async fn missing_or_mismatched_files_are_problems_that_name_their_field() {
    let (authority, other) = (TestAuthority::new(), TestAuthority::new());
    let problems = |tls: UpstreamTlsConfig| {
        let tls = UpstreamTlsConfig { destinations: CredentialDestinations::everywhere(), ..tls };
        let settings = TransportConfig { tls, ..TransportConfig::default() };
        transport().compile_upstream_set(&agent("https://agent.example/"), &settings).unwrap_err()
    };
    let missing = Some(ConfigPath::from("/nowhere/x.pem"));
    let both = problems(UpstreamTlsConfig {
        ca: missing.clone(),
        certificate: missing.clone(),
        ..UpstreamTlsConfig::default()
    });
    assert!(both.len() == 2 && both[0].starts_with("tls.ca: ") && both[1].starts_with("tls.key: "), "{both:?}");
    let (certificate, key) = authority.client();
    let (_, foreign) = other.client();
    assert!(
        problems(UpstreamTlsConfig { key: key.clone(), ..UpstreamTlsConfig::default() })[0]
            .starts_with("tls.certificate: ")
    );
    assert!(
        problems(UpstreamTlsConfig { certificate: certificate.clone(), key: foreign, ..UpstreamTlsConfig::default() })
            [0]
        .starts_with("tls.key: ")
    );
    assert!(
        problems(UpstreamTlsConfig {
            certificate: certificate.clone(),
            key: certificate,
            ..UpstreamTlsConfig::default()
        })[0]
            .starts_with("tls.key: ")
    );
    assert!(problems(UpstreamTlsConfig { ca: key, ..UpstreamTlsConfig::default() })[0].starts_with("tls.ca: "));
    assert!(
        problems(UpstreamTlsConfig { server_name: Some("a b".to_owned()), ..UpstreamTlsConfig::default() })[0]
            .starts_with("tls.server_name: ")
    );
}
