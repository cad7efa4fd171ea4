//! Client certificates: key usage, revocation lists, and open connections whose certificate is no longer accepted.

use super::{
    tls::{ALL_VERSIONS, CertificateAuthority, IssuedCertificate, TestPki, TlsClientBridge, connect_tls, get_facts},
    *,
};
use crate::http_server::client_verifier::ClientVerifier;
use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyIdMethod, KeyPair, KeyUsagePurpose, RevokedCertParams, SerialNumber, date_time_ymd,
};
use rustls::server::danger::ClientCertVerifier as _;
use rustls_pki_types::UnixTime;
use std::slice::from_ref;

/// Returns whether a request over a new connection with this certificate is served.
async fn is_served(server: &TestServer, pki: &TestPki, identity: &IssuedCertificate) -> bool {
    match connect_tls(server, &pki.client(ALL_VERSIONS, &[], Some(identity))).await {
        Ok(mut connection) => get_facts(&mut connection).await.is_some_and(|facts| facts["trusted"] == true),
        Err(_) => false,
    }
}

/// Writes a list with these serial numbers, which is current until `year`.
fn write_revocation_list(pki: &TestPki, authority: &CertificateAuthority, (year, serials): (i32, &[u64])) {
    let revoked = |serial: &u64| RevokedCertParams {
        serial_number: SerialNumber::from(*serial),
        revocation_time: date_time_ymd(2020, 1, 1),
        reason_code: None,
        invalidity_date: None,
    };
    let list = CertificateRevocationListParams {
        this_update: date_time_ymd(2020, 1, 1),
        next_update: date_time_ymd(year, 1, 1),
        crl_number: SerialNumber::from(1),
        issuing_distribution_point: None,
        revoked_certs: serials.iter().map(revoked).collect(),
        key_identifier_method: KeyIdMethod::Sha256,
    };
    std::fs::write(pki.path("clients.crl"), list.signed_by(&authority.issuer).unwrap().pem().unwrap()).unwrap();
}

fn config_with_revocation_list(pki: &TestPki, authority: &CertificateAuthority) -> ListenerConfig {
    let mut config = pki.config_with_client_ca(authority);
    config.tls.as_mut().unwrap().client_crl = vec![pki.path("clients.crl").into()];
    config
}

fn with_serial(serial: u64) -> impl FnOnce(&mut CertificateParams) {
    move |params| params.serial_number = Some(SerialNumber::from(serial))
}

#[tokio::test]
async fn r2_a_certificate_that_is_not_for_clients_or_signatures_is_refused() {
    let (pki, clients) = (TestPki::new(), CertificateAuthority::new("clients"));
    let server = start_server(&pki.config_with_client_ca(&clients), ConnectionLimits::default());
    let (client_auth, server_auth) = (ExtendedKeyUsagePurpose::ClientAuth, ExtendedKeyUsagePurpose::ServerAuth);
    let cases: [(&[KeyUsagePurpose], &[ExtendedKeyUsagePurpose], bool); 8] = [
        (&[], &[], true),
        (&[KeyUsagePurpose::DigitalSignature], &[], true),
        (&[KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::KeyEncipherment], from_ref(&client_auth), true),
        (&[], &[server_auth.clone(), client_auth.clone()], true),
        (&[KeyUsagePurpose::KeyEncipherment], &[], false),
        (&[KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign], from_ref(&client_auth), false),
        (&[KeyUsagePurpose::DigitalSignature], from_ref(&server_auth), false),
        (&[], &[ExtendedKeyUsagePurpose::CodeSigning], false),
    ];
    for (usages, purposes, expected) in cases {
        let identity = clients.issue_with("alice", |params| {
            params.key_usages = usages.to_vec();
            params.extended_key_usages = purposes.to_vec();
        });
        assert_eq!(is_served(&server, &pki, &identity).await, expected, "{usages:?} {purposes:?}");
    }
}

#[test]
fn r2_an_intermediate_without_the_right_to_sign_certificates_issues_no_client() {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let root = CertificateAuthority::new("root");
    for (usages, expected) in [
        (vec![], true),
        (vec![KeyUsagePurpose::KeyCertSign], true),
        (vec![KeyUsagePurpose::CrlSign], false),
        (vec![KeyUsagePurpose::DigitalSignature], false),
    ] {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, "intermediate");
        params.key_usages.clone_from(&usages);
        let (key, leaf_key) = (KeyPair::generate().unwrap(), KeyPair::generate().unwrap());
        let intermediate = params.signed_by(&key, &root.issuer).unwrap().der().clone();
        // A signer that ignores the restriction of its own certificate.
        params.key_usages.clear();
        let leaf = CertificateParams::new(vec!["alice".to_owned()]).unwrap();
        let leaf = leaf.signed_by(&leaf_key, &Issuer::new(params, key)).unwrap();
        let mut roots = rustls::RootCertStore::empty();
        roots.add(root.der.clone()).unwrap();
        let verifier = ClientVerifier::build(roots, Vec::new(), &provider).unwrap();
        let verified = verifier.verify_client_cert(leaf.der(), &[intermediate], UnixTime::now());
        assert_eq!(verified.is_ok(), expected, "{usages:?}: {verified:?}");
    }
}

#[tokio::test]
async fn r2_a_revoked_certificate_is_refused() {
    let (pki, clients) = (TestPki::new(), CertificateAuthority::new("clients"));
    write_revocation_list(&pki, &clients, (2999, &[7]));
    let server = start_server(&config_with_revocation_list(&pki, &clients), ConnectionLimits::default());
    assert!(is_served(&server, &pki, &clients.issue_with("alice", with_serial(8))).await);
    assert!(!is_served(&server, &pki, &clients.issue_with("alice", with_serial(7))).await);
}

#[tokio::test]
async fn r2_without_the_current_list_of_its_authority_a_certificate_is_refused() {
    let (pki, clients, other) =
        (TestPki::new(), CertificateAuthority::new("clients"), CertificateAuthority::new("other"));
    for (authority, year) in [(&clients, 2021), (&other, 2999)] {
        write_revocation_list(&pki, authority, (year, &[]));
        let server = start_server(&config_with_revocation_list(&pki, &clients), ConnectionLimits::default());
        assert!(!is_served(&server, &pki, &clients.issue("alice")).await, "{year}");
        let mut without = connect_tls(&server, &pki.client(ALL_VERSIONS, &[], None)).await.unwrap();
        assert!(get_facts(&mut without).await.is_some(), "callers without a certificate are served");
    }
}

#[tokio::test]
async fn r2_an_open_connection_of_a_revoked_certificate_gets_no_further_requests() {
    let (pki, clients) = (TestPki::new(), CertificateAuthority::new("clients"));
    write_revocation_list(&pki, &clients, (2999, &[]));
    let server = start_server(&config_with_revocation_list(&pki, &clients), ConnectionLimits::default());
    let connect = async |serial: u64| {
        let identity = clients.issue_with("alice", with_serial(serial));
        let mut connection = connect_tls(&server, &pki.client(ALL_VERSIONS, &[], Some(&identity))).await.unwrap();
        assert_eq!(get_facts(&mut connection).await.unwrap()["trusted"], true);
        connection
    };
    let (mut revoked, mut idle, mut kept) = (connect(7).await, connect(7).await, connect(8).await);
    write_revocation_list(&pki, &clients, (2999, &[7]));
    assert!(server.reload_certificates().is_empty());
    // The service refuses the request by this flag, and the response closes the connection.
    revoked.send("GET /facts HTTP/1.1\r\nHost: a\r\n\r\n").await;
    if let Some(response) = revoked.read_response().await {
        assert!(
            response.body.contains("\"trusted\":false") && response.head.contains("connection: close"),
            "{response:?}"
        );
    }
    assert_eq!(revoked.read_to_end().await, "");
    assert_eq!(idle.read_to_end().await, "", "an idle connection closes at once");
    assert_eq!(get_facts(&mut kept).await.unwrap()["trusted"], true);
}

#[tokio::test]
async fn r2_an_open_connection_of_a_removed_authority_closes() {
    let (pki, before, after) =
        (TestPki::new(), CertificateAuthority::new("before"), CertificateAuthority::new("after"));
    let server = start_server(&pki.config_with_client_ca(&before), ConnectionLimits::default());
    let identity = before.issue("alice");
    let mut http1 = connect_tls(&server, &pki.client(ALL_VERSIONS, &[], Some(&identity))).await.unwrap();
    let http2 = connect_tls(&server, &pki.client(ALL_VERSIONS, &[b"h2"], Some(&identity))).await.unwrap().0;
    let http2 = TlsClientBridge(http2).http2_connection().await;
    let mut without = connect_tls(&server, &pki.client(ALL_VERSIONS, &[], None)).await.unwrap();
    assert_eq!(get_facts(&mut http1).await.unwrap()["trusted"], true);
    let answer = http2::read_response(&mut http2::send_request(&http2, "/facts", &[], None).await).await.unwrap();
    assert!(answer.1.contains("\"trusted\":true"), "{}", answer.1);
    assert!(get_facts(&mut without).await.is_some());
    pki.config_with_client_ca(&after);
    assert!(server.reload_certificates().is_empty());
    assert_eq!(http1.read_to_end().await, "");
    until("the HTTP/2 connection closes", || server.http_server.open_connections() == 1).await;
    assert!(!matches!(http2.spawn_stream().await, Ok(Some(_))), "GOAWAY");
    assert!(get_facts(&mut without).await.is_some(), "a connection without a certificate stays");
}

#[tokio::test]
async fn r2_a_list_that_cannot_be_read_keeps_the_previous_one() {
    let (pki, clients) = (TestPki::new(), CertificateAuthority::new("clients"));
    write_revocation_list(&pki, &clients, (2999, &[7]));
    let server = start_server(&config_with_revocation_list(&pki, &clients), ConnectionLimits::default());
    for text in ["", "not a list", &clients.pem] {
        std::fs::write(pki.path("clients.crl"), text).unwrap();
        let problems = server.reload_certificates();
        assert!(problems[0].starts_with("tls.client_crl[0]: "), "{problems:?}");
        assert!(!is_served(&server, &pki, &clients.issue_with("alice", with_serial(7))).await);
        assert!(is_served(&server, &pki, &clients.issue_with("alice", with_serial(8))).await);
    }
}

#[test]
fn a_revocation_list_without_authorities_is_a_problem() {
    let pki = TestPki::new();
    let mut config = pki.config();
    config.tls.as_mut().unwrap().client_crl = vec![pki.path("clients.crl").into()];
    assert!(config.problems()[0].starts_with("tls.client_crl: has no effect"), "{:?}", config.problems());
}
