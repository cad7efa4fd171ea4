//! Tests of authentication by client certificate, and of tokens bound to a certificate.

use super::*;
use rcgen::{CertificateParams, DnType, KeyPair, SanType};

fn certificate(change: impl FnOnce(&mut CertificateParams)) -> ClientCertificate {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.distinguished_name = rcgen::DistinguishedName::new();
    change(&mut params);
    ClientCertificate::from_der(params.self_signed(&KeyPair::generate().unwrap()).unwrap().der()).unwrap()
}

pub(super) fn certificate_with_dns_name(dns: &str) -> ClientCertificate {
    certificate(|params| params.subject_alt_names = vec![SanType::DnsName(dns.try_into().unwrap())])
}

async fn caller(auth: &Authorizer, peer: &ClientCertificate) -> Result<Arc<Caller>, AuthRefusal> {
    call(auth, &HeaderMap::new(), Some(peer), Some(&agent_with_auth("mtls"))).await
}

#[tokio::test]
async fn r2_a_certificate_authenticates_its_caller() {
    let auth = build(json!({"mtls": {"callers": {"dns:robot.example": {"groups": ["robots"], "tier": "gold"}}}}));
    let robot = caller(&auth, &certificate_with_dns_name("robot.example")).await.unwrap();
    assert_eq!(
        (&*robot.id, robot.method, robot.groups.len(), robot.tier.as_deref()),
        ("cert:dns:robot.example", AuthenticationMethod::Mtls, 1, Some("gold"))
    );
    assert_eq!(
        &*caller(&auth, &certificate_with_dns_name("other.example")).await.unwrap().id,
        "cert:dns:other.example"
    );
}

#[tokio::test]
async fn r2_the_first_configured_name_that_is_present_is_used() {
    let peer = certificate(|params| {
        params.distinguished_name.push(DnType::CommonName, "Robot");
        params.subject_alt_names = vec![
            SanType::Rfc822Name("robot@example.org".try_into().unwrap()),
            SanType::DnsName("robot.example".try_into().unwrap()),
            SanType::DnsName("second.example".try_into().unwrap()),
            SanType::URI("spiffe://example.org/robot".try_into().unwrap()),
        ];
    });
    let fingerprint = format!("sha256:{}", crate::values::encode_hex(peer.fingerprint()));
    for (name_kind, expected) in [
        ("san_dns", "dns:robot.example"),
        ("san_uri", "spiffe://example.org/robot"),
        ("san_email", "email:robot@example.org"),
        ("subject_cn", "cn:Robot"),
        ("subject", "subject:CN=Robot"),
        ("fingerprint", &fingerprint),
    ] {
        let auth = build(json!({"mtls": {"caller_from": [name_kind]}}));
        assert_eq!(*caller(&auth, &peer).await.unwrap().id, format!("cert:{expected}"));
    }
    let auth = build(json!({"mtls": {"caller_from": ["san_uri", "san_dns"]}}));
    assert_eq!(&*caller(&auth, &certificate_with_dns_name("a.example")).await.unwrap().id, "cert:dns:a.example");
}

#[tokio::test]
async fn r2_a_name_of_one_kind_never_passes_for_a_name_of_another() {
    let spiffe = "spiffe://example.org/robot";
    let cn = |name: &str| certificate(|params| params.distinguished_name.push(DnType::CommonName, name));
    let uri =
        |name: &str| certificate(|params| params.subject_alt_names = vec![SanType::URI(name.try_into().unwrap())]);
    let email = |name: &str| {
        certificate(|params| params.subject_alt_names = vec![SanType::Rfc822Name(name.try_into().unwrap())])
    };
    let kinds = json!({"caller_from": ["san_uri", "san_dns", "san_email", "subject_cn"]});
    for (peer, expected) in [
        (uri(spiffe), "cert:spiffe://example.org/robot"),
        (cn(spiffe), "cert:cn:spiffe://example.org/robot"),
        (certificate_with_dns_name(spiffe), "cert:dns:spiffe://example.org/robot"),
        (email(spiffe), "cert:email:spiffe://example.org/robot"),
        (uri("SPIFFE://example.org/robot"), "cert:uri:SPIFFE://example.org/robot"),
        (uri("https://example.org/robot"), "cert:uri:https://example.org/robot"),
        (uri("dns:robot.example"), "cert:uri:dns:robot.example"),
        (uri("cn:robot"), "cert:uri:cn:robot"),
        (cn("dns:robot.example"), "cert:cn:dns:robot.example"),
        (cn("robot.example"), "cert:cn:robot.example"),
        (certificate_with_dns_name("cn:robot"), "cert:dns:cn:robot"),
    ] {
        let access = json!({"grants": [
            {"callers": [format!("cert:{spiffe}"), "cert:spiffe://*", "cert:dns:robot.example", "cert:cn:robot"], "agents": ["*"]}
        ]});
        let granted = try_build(json!({"mtls": kinds}), access).unwrap();
        let is_granted = caller(&granted, &peer).await.is_ok();
        assert_eq!(is_granted, expected == "cert:spiffe://example.org/robot", "{expected}");
        assert_eq!(&*caller(&build(json!({"mtls": kinds})), &peer).await.unwrap().id, expected);
    }
}

#[tokio::test]
async fn r2_attributes_belong_to_the_kind_of_name_that_the_configuration_names() {
    let auth = build(json!({"mtls": {"callers": {"spiffe://example.org/robot": {"groups": ["internal"]}}}}));
    let disguised =
        certificate(|params| params.distinguished_name.push(DnType::CommonName, "spiffe://example.org/robot"));
    assert!(caller(&auth, &disguised).await.unwrap().groups.is_empty());
    let problems =
        try_build(json!({"mtls": {"callers": {"robot.example": {"groups": ["a"]}}}}), grant_everything()).unwrap_err();
    assert!(problems[0].starts_with("auth.mtls.callers: 'robot.example' matches no certificate"), "{problems:?}");
    assert!(problems[0].contains("dns:robot.example, cn:robot.example"), "{problems:?}");
}

#[test]
fn r2_patterns_without_the_kind_of_the_name_are_refused() {
    for pattern in
        ["cert:robot.example", "cert:*.example", "cert:*robot", "cert:CN=Robot", "cert:spiffe:*", "cert:d*", "cert:"]
    {
        let access = json!({"grants": [{"callers": ["key:a", pattern], "agents": ["*"]}]});
        let problems = try_build(json!({"mtls": {}}), access).unwrap_err();
        assert!(
            problems.iter().any(|why| why.contains(&format!("'{pattern}' does not name the kind"))),
            "{problems:?}"
        );
    }
    for pattern in ["cert:*", "cert:dns:*.example", "cert:spiffe://*", "cert:sha256:00", "*", "cert:uri:urn:*"] {
        let access = json!({"grants": [{"callers": [pattern], "agents": ["*"]}]});
        assert!(try_build(json!({"mtls": {}}), access).is_ok(), "{pattern}");
    }
}

#[tokio::test]
async fn r2_certificates_without_a_name_or_outside_their_validity_are_refused() {
    let auth = build(json!({"mtls": {}}));
    let nameless = certificate(|_| {});
    let past = certificate(|params| {
        params.subject_alt_names = vec![SanType::DnsName("a.example".try_into().unwrap())];
        params.not_after = rcgen::date_time_ymd(2001, 1, 1);
    });
    let future = certificate(|params| {
        params.subject_alt_names = vec![SanType::DnsName("a.example".try_into().unwrap())];
        params.not_before = rcgen::date_time_ymd(4001, 1, 1);
    });
    for peer in [nameless, past, future] {
        assert_eq!(visible_refusal(caller(&auth, &peer).await).0, 401, "{peer:?}");
    }
}

#[tokio::test]
async fn r2_a_revoked_certificate_refuses_every_request_of_its_connection() {
    let issuer = IssuerFixture::new().await;
    let auth = build(json!({"mtls": {}, "bearer": {"issuers": [issuer.settings()]}}));
    let peer = certificate_with_dns_name("robot.example");
    let token = bearer(&issuer.token(&issuer.claims()));
    assert!(caller(&auth, &peer).await.is_ok());
    peer.revoke();
    for (headers, kind) in [(&HeaderMap::new(), "mtls"), (&HeaderMap::new(), "none"), (&token, "oauth2_bearer")] {
        let outcome = call(&auth, headers, Some(&peer), Some(&agent_with_auth(kind))).await;
        let (status, message, challenges) = visible_refusal(outcome);
        assert_eq!((status, message.contains("no longer accepted")), (401, true), "{kind}: {message}");
        assert!(!challenges.is_empty(), "RFC 9110 §15.5.2");
        let presented = PresentedCredentials {
            headers,
            client_certificate: Some(&peer),
            client_address: LOCALHOST,
            assumed_key: None,
        };
        assert!(auth.authenticate(&presented).await.is_err());
        assert!(auth.authenticate_or_anonymous(&presented, true).await.is_err());
    }
}

#[test]
fn invalid_certificates_are_errors_and_never_panic() {
    let der = CertificateParams::new(vec!["a.example".to_owned()])
        .unwrap()
        .self_signed(&KeyPair::generate().unwrap())
        .unwrap();
    let der = der.der().to_vec();
    assert!(ClientCertificate::from_der(&der).is_ok());
    assert!(ClientCertificate::from_der(&[der.as_slice(), &[0]].concat()).is_err());
    for end in 0..der.len() {
        assert!(ClientCertificate::from_der(&der[..end]).is_err());
    }
    for at in 0..der.len() {
        let mut changed = der.clone();
        changed[at] ^= 0x80;
        let _ = ClientCertificate::from_der(&changed);
    }
}

#[tokio::test]
async fn r97_a_bound_token_is_valid_only_with_its_certificate() {
    let issuer = IssuerFixture::new().await;
    let auth = build(json!({"bearer": {"issuers": [issuer.settings()]}}));
    let (ours, theirs) = (certificate_with_dns_name("a.example"), certificate_with_dns_name("a.example"));
    let headers = bearer(
        &issuer
            .token(&issuer.claims_with("cnf", json!({"x5t#S256": test_signer::encode_base64url(ours.fingerprint())}))),
    );
    let agent = agent_with_auth("oauth2_bearer");
    // Twice, so that the cached token is checked as well.
    for _ in 0..2 {
        assert!(call(&auth, &headers, Some(&ours), Some(&agent)).await.is_ok());
        for peer in [Some(&theirs), None] {
            let (status, _, challenges) = visible_refusal(call(&auth, &headers, peer, Some(&agent)).await);
            assert_eq!(status, 401);
            assert!(challenges[0].1.contains("invalid_token"));
        }
    }
}
