//! Tokens of a real OpenID provider: every form, keys that change, a provider that dies.

use crate::support::oidc::Provider;
use gatepost::{
    agent::Agent,
    auth::{AgentAuthRequirements, AuthServices, Authorizer, PresentedCredentials},
    net::{self, FetchClient},
    telemetry::Metrics,
};
use http::{HeaderMap, HeaderValue, header};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// An `Auth` that believes `provider`, by discovery and by introspection.
fn auth(provider: &Provider, changes: &Value) -> Authorizer {
    let secret = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(secret.path(), "gateway-secret").unwrap();
    let mut issuer =
        json!({"issuer": provider.issuer(), "audience": ["gatepost"], "algorithms": ["RS256", "ES256", "EdDSA"]});
    for (name, value) in changes.as_object().unwrap() {
        issuer[name] = value.clone();
    }
    let introspection = json!({"endpoint": provider.introspection(), "issuer": provider.issuer(), "audience": ["gatepost"],
        "client_id": "gateway", "client_secret": format!("file:{}", secret.path().display()), "cache_for": "1s"});
    let config = json!({"bearer": {"issuers": [issuer], "introspection": introspection, "token_cache_for": "1s"}});
    let access = json!({"grants": [{"callers": ["oauth:app-1"], "agents": ["echo"]}]});
    let client = FetchClient::build(&net::NetworkConfig::default(), Default::default()).unwrap();
    let services = AuthServices { client, metrics: Metrics::new().unwrap() };
    Authorizer::build(
        &serde_json::from_value(config).unwrap(),
        &serde_json::from_value(access).unwrap(),
        &services,
        None,
    )
    .unwrap()
}

async fn status(auth: &Authorizer, token: &str) -> u16 {
    let document = json!({"id": "echo", "name": "Echo", "endpoint": "http://10.0.0.1/", "authentication": {"type": "oauth2_bearer", "scopes": ["read"]}});
    let agent = Agent::from_document(&document, [0; 32]).unwrap();
    let mut headers = HeaderMap::new();
    headers.insert(header::AUTHORIZATION, HeaderValue::from_str(&format!("Bearer {token}")).unwrap());
    let asked = AgentAuthRequirements { authentication: &agent.authentication, grants: &auth.grants_for_agent(&agent) };
    match auth.authorize(&PresentedCredentials { headers: &headers, client_certificate: None }, Some(asked)).await {
        Ok(caller) => {
            assert_eq!(&*caller.id, "oauth:app-1");
            200
        }
        Err(refusal) => refusal.fault.http_status(),
    }
}

async fn poll(auth: &Authorizer, token: &str, expected: u16) {
    let begun = Instant::now();
    while status(auth, token).await != expected {
        assert!(begun.elapsed() < Duration::from_secs(30), "never {expected}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test]
async fn r97_tokens_of_a_real_provider_count() {
    let provider = Provider::start().await;
    let auth = auth(&provider, &json!({}));
    for format in ["RS256", "ES256", "EdDSA", "opaque"] {
        assert_eq!(status(&auth, &provider.token(format).await).await, 200, "{format}");
    }
    assert_eq!(status(&auth, &provider.token("elsewhere").await).await, 401);
    assert_eq!(status(&auth, "never-issued").await, 401);
}

#[tokio::test]
async fn r97_a_revoked_opaque_token_stops_to_count() {
    let provider = Provider::start().await;
    let auth = auth(&provider, &json!({}));
    let token = provider.token("opaque").await;
    assert_eq!(status(&auth, &token).await, 200);
    provider.revoke(&token).await;
    poll(&auth, &token, 401).await;
}

#[tokio::test]
async fn r97_new_keys_count_at_their_first_token() {
    let mut provider = Provider::start().await;
    let auth = auth(&provider, &json!({}));
    let old = provider.token("ES256").await;
    assert_eq!(status(&auth, &old).await, 200);
    provider.again().await;
    assert_eq!(status(&auth, &provider.token("ES256").await).await, 200);
    assert_eq!(status(&auth, &provider.token("EdDSA").await).await, 200);
}

#[tokio::test]
async fn r97_known_keys_serve_while_the_provider_is_dead_and_what_cannot_be_told_is_503() {
    let mut provider = Provider::start().await;
    let (first, second, opaque) =
        (provider.token("ES256").await, provider.token("RS256").await, provider.token("opaque").await);
    let (warm, cold) = (auth(&provider, &json!({})), auth(&provider, &json!({})));
    let stale = auth(&provider, &json!({"keys_refresh": "1s", "keys_stale_after": "1s"}));
    assert_eq!(status(&warm, &first).await, 200);
    assert_eq!(status(&stale, &first).await, 200);
    provider.kill();
    assert_eq!(status(&warm, &second).await, 200, "a token first seen, a key known");
    assert_eq!(status(&cold, &first).await, 503, "no key was ever known");
    assert_eq!(status(&warm, &opaque).await, 503);
    poll(&stale, &second, 503).await;
    provider.again().await;
    poll(&cold, &provider.token("RS256").await, 200).await;
}
