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
    let auth = build(json!({"mtls": {"callers": {"robot.example": {"groups": ["robots"], "tier": "gold"}}}}));
    let robot = caller(&auth, &certificate_with_dns_name("robot.example")).await.unwrap();
    assert_eq!(
        (&*robot.id, robot.method, robot.groups.len(), robot.tier.as_deref()),
        ("cert:robot.example", AuthenticationMethod::Mtls, 1, Some("gold"))
    );
    assert_eq!(&*caller(&auth, &certificate_with_dns_name("other.example")).await.unwrap().id, "cert:other.example");
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
    let fingerprint = crate::values::encode_hex(peer.fingerprint());
    for (name_kind, expected) in [
        ("san_dns", "robot.example"),
        ("san_uri", "spiffe://example.org/robot"),
        ("san_email", "robot@example.org"),
        ("subject_cn", "Robot"),
        ("subject", "CN=Robot"),
        ("fingerprint", &fingerprint),
    ] {
        let auth = build(json!({"mtls": {"caller_from": [name_kind]}}));
        assert_eq!(*caller(&auth, &peer).await.unwrap().id, format!("cert:{expected}"));
    }
    let auth = build(json!({"mtls": {"caller_from": ["san_uri", "san_dns"]}}));
    assert_eq!(&*caller(&auth, &certificate_with_dns_name("a.example")).await.unwrap().id, "cert:a.example");
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
