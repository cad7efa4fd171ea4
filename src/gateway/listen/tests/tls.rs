//! TLS: versions, ALPN, client certificates, certificate reloads, incomplete handshakes.

use super::*;
use crate::gateway::listen::{config::Version, wire::Wire};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use rustls::{ClientConfig, RootCertStore, crypto::aws_lc_rs};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName};
use std::path::Path;
use tokio_rustls::{TlsConnector, client::TlsStream};

struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
    der: CertificateDer<'static>,
}

struct Identity {
    pem: String,
    key_pem: String,
    der: CertificateDer<'static>,
    key: Vec<u8>,
}

impl Authority {
    fn new(name: &str) -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key).unwrap();
        Self { pem: certificate.pem(), der: certificate.der().clone(), issuer: Issuer::new(params, key) }
    }

    fn issue(&self, name: &str) -> Identity {
        let params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        Identity {
            pem: certificate.pem(),
            key_pem: key.serialize_pem(),
            der: certificate.der().clone(),
            key: key.serialize_der(),
        }
    }
}

struct Pki {
    folder: tempfile::TempDir,
    authority: Authority,
}

impl Pki {
    fn new() -> Self {
        let pki = Self { folder: tempfile::tempdir().unwrap(), authority: Authority::new("servers") };
        pki.write(&pki.authority.issue("gateway.example"));
        pki
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.folder.path().join(name)
    }

    fn write(&self, identity: &Identity) {
        std::fs::write(self.path("cert.pem"), &identity.pem).unwrap();
        std::fs::write(self.path("key.pem"), &identity.key_pem).unwrap();
    }

    fn config(&self) -> Config {
        let tls = Tls {
            certificate: self.path("cert.pem").into(),
            key: self.path("key.pem").into(),
            client_ca: None,
            min_version: Version::Tls12,
        };
        Config { tls: Some(tls), ..plain() }
    }

    fn asking(&self, authority: &Authority) -> Config {
        std::fs::write(self.path("clients.pem"), &authority.pem).unwrap();
        let mut config = self.config();
        config.tls.as_mut().unwrap().client_ca = Some(self.path("clients.pem").into());
        config
    }

    fn client(
        &self,
        versions: &[&'static rustls::SupportedProtocolVersion],
        alpn: &[&[u8]],
        identity: Option<&Identity>,
    ) -> Arc<ClientConfig> {
        let mut roots = RootCertStore::empty();
        roots.add(self.authority.der.clone()).unwrap();
        let builder = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_protocol_versions(versions)
            .unwrap()
            .with_root_certificates(roots);
        let mut config = match identity {
            Some(one) => builder
                .with_client_auth_cert(
                    vec![one.der.clone()],
                    PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(one.key.clone())),
                )
                .unwrap(),
            None => builder.with_no_client_auth(),
        };
        config.alpn_protocols = alpn.iter().map(|name| name.to_vec()).collect();
        Arc::new(config)
    }
}

const BOTH: &[&rustls::SupportedProtocolVersion] = &[&rustls::version::TLS13, &rustls::version::TLS12];

async fn secure(running: &Running, client: &Arc<ClientConfig>) -> std::io::Result<Raw<TlsStream<TcpStream>>> {
    let name = ServerName::try_from("gateway.example").unwrap();
    timeout(PATIENCE, TlsConnector::from(Arc::clone(client)).connect(name, running.connect().await.0))
        .await
        .unwrap()
        .map(Raw)
}

async fn facts(raw: &mut Raw<TlsStream<TcpStream>>) -> Option<serde_json::Value> {
    raw.send("GET /facts HTTP/1.1\r\nHost: a\r\n\r\n").await;
    Some(serde_json::from_str(&raw.answer().await?.body).unwrap())
}

#[tokio::test]
async fn r1_tls_is_served_and_the_handler_sees_its_facts() {
    let pki = Pki::new();
    let running = start(&pki.config(), Limits::default());
    for (versions, known) in [(&[&rustls::version::TLS12][..], "TLSv1_2"), (&[&rustls::version::TLS13][..], "TLSv1_3")]
    {
        let mut raw = secure(&running, &pki.client(versions, &[b"http/1.1"], None)).await.unwrap();
        let facts = facts(&mut raw).await.unwrap();
        assert_eq!(facts["version"], known);
        assert_eq!(facts["name"], "gateway.example");
        assert_eq!((&facts["certificates"], &facts["h2"]), (&0.into(), &false.into()));
    }
}

#[tokio::test]
async fn http2_is_negotiated_by_alpn() {
    let pki = Pki::new();
    let running = start(&pki.config(), Limits::default());
    let raw = secure(&running, &pki.client(BOTH, &[b"h2", b"http/1.1"], None)).await.unwrap();
    assert_eq!(raw.0.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
    // The preface never comes: the connection is closed like any idle connection.
    drop(raw);
    let wire = TlsWire(secure(&running, &pki.client(BOTH, &[b"h2"], None)).await.unwrap().0);
    let connection = wire.h2().await;
    let (status, body) = http2::answer(&mut http2::request(&connection, "/facts", &[], None).await).await.unwrap();
    assert_eq!(status, 200);
    assert!(body.contains("\"h2\":true"), "{body}");
}

/// A client's TLS stream, forwarded over a local TCP connection for the HTTP/2 client of the tests.
struct TlsWire(TlsStream<TcpStream>);

impl TlsWire {
    async fn h2(mut self) -> pingora_core::connectors::http::v2::ConnectionRef {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            let (mut near, _) = listener.accept().await.unwrap();
            let _ = tokio::io::copy_bidirectional(&mut near, &mut self.0).await;
        });
        let mut wire = Wire::plain(TcpStream::connect(address).await.unwrap());
        wire.set_h2();
        http2::over(wire).await
    }
}

#[tokio::test]
async fn a_tls_version_below_the_minimum_is_refused_and_counted() {
    let pki = Pki::new();
    let mut config = pki.config();
    config.tls.as_mut().unwrap().min_version = Version::Tls13;
    let running = start(&config, Limits::default());
    assert!(secure(&running, &pki.client(&[&rustls::version::TLS12], &[], None)).await.is_err());
    assert!(secure(&running, &pki.client(&[&rustls::version::TLS13], &[], None)).await.is_ok());
    until("it is counted", || running.counted("handshake_failed") == 1).await;
}

#[tokio::test]
async fn incomplete_handshakes_and_plain_http_on_a_tls_port_are_closed() {
    let pki = Pki::new();
    let running = start(&pki.config(), hurried());
    let mut silent = running.connect().await;
    let mut plain = running.connect().await;
    plain.send(GET).await;
    silent.rest().await;
    plain.rest().await;
    until("both are counted", || running.counted("handshake_failed") == 2).await;
    assert_eq!(running.echo.served.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn r2_a_client_certificate_is_optional_at_the_listener_and_verified_if_sent() {
    let (pki, clients, strangers) = (Pki::new(), Authority::new("clients"), Authority::new("strangers"));
    let running = start(&pki.asking(&clients), Limits::default());
    let mut raw = secure(&running, &pki.client(BOTH, &[], None)).await.unwrap();
    assert_eq!(facts(&mut raw).await.unwrap()["certificates"], 0);
    let known = clients.issue("alice");
    let mut raw = secure(&running, &pki.client(BOTH, &[], Some(&known))).await.unwrap();
    assert_eq!(facts(&mut raw).await.unwrap()["certificates"], 1);
    let stranger = strangers.issue("alice");
    let served = match secure(&running, &pki.client(BOTH, &[], Some(&stranger))).await {
        Ok(mut raw) => facts(&mut raw).await.is_some(),
        Err(_) => false,
    };
    assert!(!served, "the certificate has another authority");
}

#[tokio::test]
async fn r2_sessions_with_a_client_certificate_are_never_resumed() {
    let (pki, clients) = (Pki::new(), Authority::new("clients"));
    let running = start(&pki.asking(&clients), Limits::default());
    let alice = clients.issue("alice");
    for version in [&rustls::version::TLS12, &rustls::version::TLS13] {
        let client = pki.client(&[version], &[], Some(&alice));
        for _ in 0..3 {
            let mut raw = secure(&running, &client).await.unwrap();
            assert_eq!(facts(&mut raw).await.unwrap()["certificates"], 1);
            assert_eq!(raw.0.get_ref().1.handshake_kind(), Some(rustls::HandshakeKind::Full));
        }
    }
}

fn leaf(raw: &Raw<TlsStream<TcpStream>>) -> Vec<u8> {
    raw.0.get_ref().1.peer_certificates().unwrap()[0].to_vec()
}

#[tokio::test]
async fn changed_certificates_apply_to_the_next_handshake_and_invalid_ones_are_never_used() {
    let pki = Pki::new();
    let running = start(&pki.config(), Limits::default());
    let client = pki.client(BOTH, &[], None);
    let mut old = secure(&running, &client).await.unwrap();
    assert!(running.server.reload_if_changed().is_empty(), "nothing changed");
    let next = pki.authority.issue("gateway.example");
    pki.write(&next);
    assert!(running.server.reload_if_changed().is_empty());
    assert_eq!(running.counted("certificates_loaded"), 1);
    assert_eq!(leaf(&secure(&running, &client).await.unwrap()), next.der.to_vec());
    assert!(facts(&mut old).await.is_some(), "open connections are kept");

    std::fs::write(pki.path("key.pem"), "not a key").unwrap();
    let problems = running.server.reload_if_changed();
    assert!(problems[0].starts_with("tls.key: "), "{problems:?}");
    assert!(running.server.reload_if_changed().is_empty(), "once per change");
    std::fs::write(pki.path("key.pem"), &pki.authority.issue("other").key_pem).unwrap();
    assert!(running.server.reload_if_changed()[0].starts_with("tls: "), "a key that does not match the certificate");
    std::fs::remove_file(pki.path("cert.pem")).unwrap();
    assert_eq!(running.server.reload_if_changed().len(), 1);
    assert_eq!(leaf(&secure(&running, &client).await.unwrap()), next.der.to_vec(), "the last good certificate is kept");
    pki.write(&next);
    assert!(running.server.reload_if_changed().is_empty());
}

#[tokio::test]
async fn r2_a_changed_client_authority_applies_to_the_next_handshake() {
    let (pki, before, after) = (Pki::new(), Authority::new("before"), Authority::new("after"));
    let running = start(&pki.asking(&before), Limits::default());
    pki.asking(&after);
    assert!(running.server.reload_if_changed().is_empty());
    let mut raw = secure(&running, &pki.client(BOTH, &[], Some(&after.issue("bob")))).await.unwrap();
    assert_eq!(facts(&mut raw).await.unwrap()["certificates"], 1);
    let gone = match secure(&running, &pki.client(BOTH, &[], Some(&before.issue("bob")))).await {
        Ok(mut raw) => facts(&mut raw).await.is_none(),
        Err(_) => true,
    };
    assert!(gone);
}

#[test]
fn all_problems_of_a_listener_are_reported() {
    let tls = Tls {
        certificate: "/nowhere/cert.pem".into(),
        key: Path::new("/nowhere/key.pem").into(),
        client_ca: Some("/nowhere/ca.pem".into()),
        min_version: Version::Tls12,
    };
    let problems = bind_all(&[plain(), Config { tls: Some(tls), ..plain() }], None).unwrap_err();
    let starts: Vec<_> = problems.iter().map(|problem| problem.split(": ").next().unwrap()).collect();
    assert_eq!(starts, ["listen[1].tls.certificate", "listen[1].tls.key", "listen[1].tls.client_ca"]);
}
