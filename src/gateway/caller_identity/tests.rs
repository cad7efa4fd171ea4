//! What agents are told of callers, and callers that they cannot be told of.

use super::*;
use crate::{
    agent::AuthenticationMethod,
    auth::{Caller, CallerClaims, GrantSet},
    fault::FaultCode,
    signing::{SigningKey, TrustedKeys},
    transport::CallerHeadersConfig,
};
use http::{HeaderName, HeaderValue};
use serde_json::{Value, json};
use std::sync::Arc;

fn caller(id: &str, method: AuthenticationMethod, groups: &[&str]) -> Caller {
    Caller {
        id: id.into(),
        owner_key: id.into(),
        method,
        groups: groups.iter().map(|group| Arc::from(*group)).collect(),
        scopes: Arc::new(["agents.call".into(), "agents.read".into()]),
        tier: Some("gold".into()),
        claims: CallerClaims::default(),
        grants: GrantSet::default(),
    }
}

fn fields(config: Value) -> CallerHeaders {
    let config: CallerHeadersConfig = serde_json::from_value(config).unwrap();
    CallerHeaders::compile(Some(&config)).unwrap()
}

fn told<'a>(caller: &'a Caller, signer: Option<&'a CallerTokenSigner>) -> ToldCall<'a> {
    ToldCall { caller, agent: "planner", call_id: "call-1", signer }
}

fn texts(fields: &[(HeaderName, HeaderValue)]) -> Vec<(&str, &str)> {
    fields.iter().map(|(name, value)| (name.as_str(), value.to_str().unwrap())).collect()
}

#[test]
fn an_agent_is_told_what_the_operator_chose() {
    let all = fields(json!({
        "X-A-Id": {"value": "id"}, "X-B-Name": {"value": "name"}, "X-C-Method": {"value": "method"},
        "X-D-Groups": {"value": "groups"}, "X-E-Scopes": {"value": "scopes"}, "X-F-Tier": {"value": "tier"},
        "X-G-Claim": {"claim": "tenant"},
    }));
    let caller = caller("key:team-a", AuthenticationMethod::ApiKey, &["staff", "a,admin"]);
    let told = all.tell(&told(&caller, None)).unwrap();
    let expected = [
        ("x-a-id", "key:team-a"),
        ("x-b-name", "team-a"),
        ("x-c-method", "api_key"),
        ("x-d-groups", "staff,a%2Cadmin"),
        ("x-e-scopes", "agents.call agents.read"),
        ("x-f-tier", "gold"),
    ];
    assert_eq!(texts(&told), expected);
    assert!(told.iter().all(|(_, value)| value.is_sensitive()));
    assert!(CallerHeaders::compile(None).is_none());
}

#[test]
fn a_caller_without_a_credential_has_no_identity() {
    let config = json!({
        "X-User": {"value": "id"}, "X-Groups": {"value": "groups"}, "X-Method": {"value": "method"},
        "X-Token": {"token": {}},
    });
    let anonymous = caller("anonymous", AuthenticationMethod::Anonymous, &["everybody"]);
    assert_eq!(texts(&fields(config).tell(&told(&anonymous, None)).unwrap()), [("x-method", "none")]);
}

#[test]
fn an_identity_that_is_too_long_refuses_the_call_and_loses_no_group() {
    let many: Vec<String> = (0..100).map(|at| format!("{at:0100}")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    let caller = caller("key:a", AuthenticationMethod::ApiKey, &many);
    let fault = fields(json!({"X-Groups": {"value": "groups"}})).tell(&told(&caller, None)).unwrap_err();
    assert_eq!(fault.code(), FaultCode::PermissionDenied);
    assert!(fault.detail().is_some_and(|detail| !detail.contains("000")), "{fault}");
    // Two fields have the bound together.
    let half: Vec<&str> = many.iter().copied().take(50).collect();
    let caller = self::caller("key:a", AuthenticationMethod::ApiKey, &half);
    assert!(fields(json!({"X-Groups": {"value": "groups"}})).tell(&told(&caller, None)).is_ok());
    let twice = json!({"X-Groups": {"value": "groups"}, "X-Groups-Too": {"value": "groups"}});
    assert!(fields(twice).tell(&told(&caller, None)).is_err());
}

#[test]
fn a_token_is_for_one_agent_and_one_call() {
    let pair = rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).unwrap();
    let key = Arc::new(SigningKey::from_pem(&pair.serialize_pem()).unwrap());
    let signer = CallerTokenSigner::new(Arc::clone(&key), "https://gateway.example");
    let caller = caller("oauth:acme/app", AuthenticationMethod::Bearer, &["acme/staff"]);
    let signed = fields(json!({"X-Token": {"token": {"ttl": "30s", "claims": ["tenant"]}}}));
    let told = signed.tell(&told(&caller, Some(&signer))).unwrap();
    let token = told[0].1.to_str().unwrap();
    let keys = TrustedKeys::from_jwks(&key.jwks()).unwrap();
    let claims = keys.verify_claims("caller+jwt", token).unwrap();
    let lifetime = claims["exp"].as_i64().unwrap() - claims["iat"].as_i64().unwrap();
    assert_eq!(lifetime, 30);
    for (name, expected) in [
        ("iss", json!("https://gateway.example")),
        ("sub", json!("oauth:acme/app")),
        ("aud", json!("planner")),
        ("jti", json!("call-1")),
        ("method", json!("oauth2_bearer")),
        ("groups", json!(["acme/staff"])),
        ("claims", json!({})),
    ] {
        assert_eq!(claims[name], expected, "{name}");
    }
    // It is no delegation chain, although the same key signs both.
    assert!(keys.verify_claims("delegation-chain+jwt", token).is_err());
    assert!(signed.tell(&ToldCall { signer: None, ..self::told(&caller, None) }).is_err());
}
