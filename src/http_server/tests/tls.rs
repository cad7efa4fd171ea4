//! TLS: versions, ALPN, client certificates, certificate reloads, incomplete handshakes.

use super::*;
use crate::http_server::{config::TlsVersion, connection_stream::ConnectionStream};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use rustls::{ClientConfig, RootCertStore, crypto::aws_lc_rs};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName};
use std::path::Path;
use tokio_rustls::{TlsConnector, client::TlsStream};

pub(super) struct CertificateAuthority {
    pub(super) issuer: Issuer<'static, KeyPair>,
    pub(super) pem: String,
    pub(super) der: CertificateDer<'static>,
}

pub(super) struct IssuedCertificate {
    pem: String,
    key_pem: String,
    der: CertificateDer<'static>,
    key: Vec<u8>,
}

impl CertificateAuthority {
    pub(super) fn new(name: &str) -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key).unwrap();
        Self { pem: certificate.pem(), der: certificate.der().clone(), issuer: Issuer::new(params, key) }
    }

    pub(super) fn issue(&self, name: &str) -> IssuedCertificate {
        self.issue_with(name, |_| ())
    }

    pub(super) fn issue_with(&self, name: &str, change: impl FnOnce(&mut CertificateParams)) -> IssuedCertificate {
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        change(&mut params);
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        IssuedCertificate {
            pem: certificate.pem(),
            key_pem: key.serialize_pem(),
            der: certificate.der().clone(),
            key: key.serialize_der(),
        }
    }
}

pub(super) struct TestPki {
    folder: tempfile::TempDir,
    authority: CertificateAuthority,
}

impl TestPki {
    pub(super) fn new() -> Self {
        let pki = Self { folder: tempfile::tempdir().unwrap(), authority: CertificateAuthority::new("servers") };
        pki.write(&pki.authority.issue("gateway.example"));
        pki
    }

    pub(super) fn path(&self, name: &str) -> std::path::PathBuf {
        self.folder.path().join(name)
    }

    fn write(&self, identity: &IssuedCertificate) {
        std::fs::write(self.path("cert.pem"), &identity.pem).unwrap();
        std::fs::write(self.path("key.pem"), &identity.key_pem).unwrap();
    }

    pub(super) fn config(&self) -> ListenerConfig {
        let tls = ListenerTlsConfig {
            certificate: self.path("cert.pem").into(),
            key: self.path("key.pem").into(),
            client_ca: None,
            client_crl: Vec::new(),
            min_version: TlsVersion::Tls12,
        };
        ListenerConfig { tls: Some(tls), ..plain_listener() }
    }

    pub(super) fn config_with_client_ca(&self, authority: &CertificateAuthority) -> ListenerConfig {
        std::fs::write(self.path("clients.pem"), &authority.pem).unwrap();
        let mut config = self.config();
        config.tls.as_mut().unwrap().client_ca = Some(self.path("clients.pem").into());
        config
    }

    pub(super) fn client(
        &self,
        versions: &[&'static rustls::SupportedProtocolVersion],
        alpn: &[&[u8]],
        identity: Option<&IssuedCertificate>,
    ) -> Arc<ClientConfig> {
        let mut roots = RootCertStore::empty();
        roots.add(self.authority.der.clone()).unwrap();
        let builder = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_protocol_versions(versions)
            .unwrap()
            .with_root_certificates(roots);
        let mut config = match identity {
            Some(identity) => builder
                .with_client_auth_cert(
                    vec![identity.der.clone()],
                    PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(identity.key.clone())),
                )
                .unwrap(),
            None => builder.with_no_client_auth(),
        };
        config.alpn_protocols = alpn.iter().map(|name| name.to_vec()).collect();
        Arc::new(config)
    }
}

pub(super) const ALL_VERSIONS: &[&rustls::SupportedProtocolVersion] =
    &[&rustls::version::TLS13, &rustls::version::TLS12];

pub(super) async fn connect_tls(
    server: &TestServer,
    client: &Arc<ClientConfig>,
) -> std::io::Result<RawClient<TlsStream<TcpStream>>> {
    let name = ServerName::try_from("gateway.example").unwrap();
    timeout(TEST_TIMEOUT, TlsConnector::from(Arc::clone(client)).connect(name, server.connect().await.0))
        .await
        .unwrap()
        .map(RawClient)
}

pub(super) async fn get_facts(connection: &mut RawClient<TlsStream<TcpStream>>) -> Option<serde_json::Value> {
    connection.send("GET /facts HTTP/1.1\r\nHost: a\r\n\r\n").await;
    Some(serde_json::from_str(&connection.read_response().await?.body).unwrap())
}

#[tokio::test]
async fn r1_tls_is_served_and_the_handler_sees_its_facts() {
    let pki = TestPki::new();
    let server = start_server(&pki.config(), ConnectionLimits::default());
    for (versions, protocol_version) in
        [(&[&rustls::version::TLS12][..], "TLSv1_2"), (&[&rustls::version::TLS13][..], "TLSv1_3")]
    {
        let mut connection = connect_tls(&server, &pki.client(versions, &[b"http/1.1"], None)).await.unwrap();
        let facts = get_facts(&mut connection).await.unwrap();
        assert_eq!(facts["version"], protocol_version);
        assert_eq!(facts["name"], "gateway.example");
        assert_eq!((&facts["certificates"], &facts["h2"]), (&0.into(), &false.into()));
    }
}

#[tokio::test]
async fn http2_is_negotiated_by_alpn() {
    let pki = TestPki::new();
    let server = start_server(&pki.config(), ConnectionLimits::default());
    let connection = connect_tls(&server, &pki.client(ALL_VERSIONS, &[b"h2", b"http/1.1"], None)).await.unwrap();
    assert_eq!(connection.0.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
    // The preface never comes: the connection is closed like any idle connection.
    drop(connection);
    let stream = TlsClientBridge(connect_tls(&server, &pki.client(ALL_VERSIONS, &[b"h2"], None)).await.unwrap().0);
    let connection = stream.http2_connection().await;
    let (status, body) =
        http2::read_response(&mut http2::send_request(&connection, "/facts", &[], None).await).await.unwrap();
    assert_eq!(status, 200);
    assert!(body.contains("\"h2\":true"), "{body}");
}

/// A client's TLS stream, forwarded over a local TCP connection for the HTTP/2 client of the tests.
pub(super) struct TlsClientBridge(pub(super) TlsStream<TcpStream>);

impl TlsClientBridge {
    pub(super) async fn http2_connection(mut self) -> pingora_core::connectors::http::v2::ConnectionRef {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            let (mut near, _) = listener.accept().await.unwrap();
            let _ = tokio::io::copy_bidirectional(&mut near, &mut self.0).await;
        });
        let mut stream = ConnectionStream::from_tcp(TcpStream::connect(address).await.unwrap());
        stream.set_http2();
        http2::http2_handshake(stream).await
    }
}

#[tokio::test]
async fn a_tls_version_below_the_minimum_is_refused_and_counted() {
    let pki = TestPki::new();
    let mut config = pki.config();
    config.tls.as_mut().unwrap().min_version = TlsVersion::Tls13;
    let server = start_server(&config, ConnectionLimits::default());
    assert!(connect_tls(&server, &pki.client(&[&rustls::version::TLS12], &[], None)).await.is_err());
    assert!(connect_tls(&server, &pki.client(&[&rustls::version::TLS13], &[], None)).await.is_ok());
    until("it is counted", || server.metric_sum("handshake_failed") == 1).await;
}

#[tokio::test]
async fn incomplete_handshakes_and_plain_http_on_a_tls_port_are_closed() {
    let pki = TestPki::new();
    let server = start_server(&pki.config(), short_timeouts());
    let mut silent = server.connect().await;
    let mut plain = server.connect().await;
    plain.send(GET).await;
    silent.read_to_end().await;
    plain.read_to_end().await;
    until("both are counted", || server.metric_sum("handshake_failed") == 2).await;
    assert_eq!(server.echo.served.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn r2_a_client_certificate_is_optional_at_the_listener_and_verified_if_sent() {
    let (pki, clients, strangers) =
        (TestPki::new(), CertificateAuthority::new("clients"), CertificateAuthority::new("strangers"));
    let server = start_server(&pki.config_with_client_ca(&clients), ConnectionLimits::default());
    let mut connection = connect_tls(&server, &pki.client(ALL_VERSIONS, &[], None)).await.unwrap();
    assert_eq!(get_facts(&mut connection).await.unwrap()["certificates"], 0);
    let alice = clients.issue("alice");
    let mut connection = connect_tls(&server, &pki.client(ALL_VERSIONS, &[], Some(&alice))).await.unwrap();
    assert_eq!(get_facts(&mut connection).await.unwrap()["certificates"], 1);
    let other_alice = strangers.issue("alice");
    let served = match connect_tls(&server, &pki.client(ALL_VERSIONS, &[], Some(&other_alice))).await {
        Ok(mut connection) => get_facts(&mut connection).await.is_some(),
        Err(_) => false,
    };
    assert!(!served, "the certificate has another authority");
}

#[tokio::test]
async fn r2_sessions_with_a_client_certificate_are_never_resumed() {
    let (pki, clients) = (TestPki::new(), CertificateAuthority::new("clients"));
    let server = start_server(&pki.config_with_client_ca(&clients), ConnectionLimits::default());
    let alice = clients.issue("alice");
    for version in [&rustls::version::TLS12, &rustls::version::TLS13] {
        let client = pki.client(&[version], &[], Some(&alice));
        for _ in 0..3 {
            let mut connection = connect_tls(&server, &client).await.unwrap();
            assert_eq!(get_facts(&mut connection).await.unwrap()["certificates"], 1);
            assert_eq!(connection.0.get_ref().1.handshake_kind(), Some(rustls::HandshakeKind::Full));
        }
    }
}

fn server_leaf(connection: &RawClient<TlsStream<TcpStream>>) -> Vec<u8> {
    connection.0.get_ref().1.peer_certificates().unwrap()[0].to_vec()
}

#[tokio::test]
async fn changed_certificates_apply_to_the_next_handshake_and_invalid_ones_are_never_used() {
    let pki = TestPki::new();
    let server = start_server(&pki.config(), ConnectionLimits::default());
    let client = pki.client(ALL_VERSIONS, &[], None);
    let mut old = connect_tls(&server, &client).await.unwrap();
    assert!(server.reload_certificates().is_empty(), "nothing changed");
    let next = pki.authority.issue("gateway.example");
    pki.write(&next);
    assert!(server.reload_certificates().is_empty());
    assert_eq!(server.metric_sum("certificates_loaded"), 1);
    assert_eq!(server_leaf(&connect_tls(&server, &client).await.unwrap()), next.der.to_vec());
    assert!(get_facts(&mut old).await.is_some(), "open connections are kept");

    std::fs::write(pki.path("key.pem"), "not a key").unwrap();
    let problems = server.reload_certificates();
    assert!(problems[0].starts_with("tls.key: "), "{problems:?}");
    assert!(server.reload_certificates().is_empty(), "once per change");
    std::fs::write(pki.path("key.pem"), &pki.authority.issue("other").key_pem).unwrap();
    assert!(server.reload_certificates()[0].starts_with("tls: "), "a key that does not match the certificate");
    std::fs::remove_file(pki.path("cert.pem")).unwrap();
    assert_eq!(server.reload_certificates().len(), 1);
    assert_eq!(
        server_leaf(&connect_tls(&server, &client).await.unwrap()),
        next.der.to_vec(),
        "the last good certificate is kept"
    );
    pki.write(&next);
    assert!(server.reload_certificates().is_empty());
}

#[tokio::test]
async fn r2_a_changed_client_authority_applies_to_the_next_handshake() {
    let (pki, before, after) =
        (TestPki::new(), CertificateAuthority::new("before"), CertificateAuthority::new("after"));
    let server = start_server(&pki.config_with_client_ca(&before), ConnectionLimits::default());
    pki.config_with_client_ca(&after);
    assert!(server.reload_certificates().is_empty());
    let mut connection = connect_tls(&server, &pki.client(ALL_VERSIONS, &[], Some(&after.issue("bob")))).await.unwrap();
    assert_eq!(get_facts(&mut connection).await.unwrap()["certificates"], 1);
    let is_refused = match connect_tls(&server, &pki.client(ALL_VERSIONS, &[], Some(&before.issue("bob")))).await {
        Ok(mut connection) => get_facts(&mut connection).await.is_none(),
        Err(_) => true,
    };
    assert!(is_refused);
}

#[test]
fn all_problems_of_a_listener_are_reported() {
    let tls = ListenerTlsConfig {
        certificate: "/nowhere/cert.pem".into(),
        key: Path::new("/nowhere/key.pem").into(),
        client_ca: Some("/nowhere/ca.pem".into()),
        client_crl: vec!["/nowhere/crl.pem".into()],
        min_version: TlsVersion::Tls12,
    };
    let problems =
        bind_listeners(&[plain_listener(), ListenerConfig { tls: Some(tls), ..plain_listener() }], None).unwrap_err();
    let starts: Vec<_> = problems.iter().map(|problem| problem.split(": ").next().unwrap()).collect();
    let expected = ["certificate", "key", "client_crl[0]", "client_ca"].map(|key| format!("listeners[1].tls.{key}"));
    assert_eq!(starts, expected);
}
