//! Bearer tokens of a real OpenID provider: every format, key rotation, an outage of the provider.

use crate::support::oidc::OpenIdProvider;
use gatepost::{
    agent::Agent,
    auth::{AgentAuthRequirements, AuthServices, Authorizer, PresentedCredentials},
    net::{self, FetchClient},
    telemetry::Metrics,
};
use http::{HeaderMap, HeaderValue, header};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// Builds an authorizer that trusts `provider`, with discovery and introspection.
fn build_authorizer(provider: &OpenIdProvider, changes: &Value) -> Authorizer {
    let secret = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(secret.path(), "gateway-secret").unwrap();
    let mut issuer =
        json!({"issuer": provider.issuer(), "audience": ["gatepost"], "algorithms": ["RS256", "ES256", "EdDSA"]});
    for (name, value) in changes.as_object().unwrap() {
        issuer[name] = value.clone();
    }
    let introspection = json!({"endpoint": provider.introspection_url(), "issuer": provider.issuer(), "audience": ["gatepost"],
        "client_id": "gateway", "client_secret": format!("file:{}", secret.path().display()), "cache_ttl": "1s"});
    let config = json!({"bearer": {"issuers": [issuer], "introspection": introspection, "token_cache_ttl": "1s"}});
    let access = json!({"grants": [{"callers": ["oauth:app-1"], "agents": ["echo"]}]});
    let client = FetchClient::build(&net::NetworkConfig::default(), Default::default()).unwrap();
    let services = AuthServices { client, metrics: Metrics::new().unwrap(), browser_pairing: None };
    Authorizer::build(
        &serde_json::from_value(config).unwrap(),
        &serde_json::from_value(access).unwrap(),
        &services,
        None,
    )
    .unwrap()
}

async fn authorization_status(auth: &Authorizer, token: &str) -> u16 {
    let document = json!({"id": "echo", "name": "Echo", "endpoint": "http://10.0.0.1/", "authentication": {"type": "oauth2_bearer", "scopes": ["read"]}});
    let agent = Agent::from_document(&document, [0; 32]).unwrap();
    let mut headers = HeaderMap::new();
    headers.insert(header::AUTHORIZATION, HeaderValue::from_str(&format!("Bearer {token}")).unwrap());
    let requirements =
        AgentAuthRequirements { authentication: &agent.authentication, grants: &auth.grants_for_agent(&agent) };
    match auth
        .authorize(&PresentedCredentials { headers: &headers, client_certificate: None }, Some(requirements))
        .await
    {
        Ok(caller) => {
            assert_eq!(&*caller.id, "oauth:app-1");
            200
        }
        Err(refusal) => refusal.fault.http_status(),
    }
}

async fn wait_for_status(auth: &Authorizer, token: &str, expected: u16) {
    let started = Instant::now();
    while authorization_status(auth, token).await != expected {
        assert!(started.elapsed() < Duration::from_secs(30), "the status did not become {expected}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test]
async fn r97_tokens_of_a_real_provider_are_accepted() {
    let provider = OpenIdProvider::start().await;
    let auth = build_authorizer(&provider, &json!({}));
    for format in ["RS256", "ES256", "EdDSA", "opaque"] {
        assert_eq!(authorization_status(&auth, &provider.token(format).await).await, 200, "{format}");
    }
    assert_eq!(authorization_status(&auth, &provider.token("elsewhere").await).await, 401);
    assert_eq!(authorization_status(&auth, "never-issued").await, 401);
}

#[tokio::test]
async fn r97_a_revoked_opaque_token_is_rejected() {
    let provider = OpenIdProvider::start().await;
    let auth = build_authorizer(&provider, &json!({}));
    let token = provider.token("opaque").await;
    assert_eq!(authorization_status(&auth, &token).await, 200);
    provider.revoke(&token).await;
    wait_for_status(&auth, &token, 401).await;
}

#[tokio::test]
async fn r97_rotated_keys_are_fetched_for_the_first_token_signed_with_them() {
    let mut provider = OpenIdProvider::start().await;
    let auth = build_authorizer(&provider, &json!({}));
    let old = provider.token("ES256").await;
    assert_eq!(authorization_status(&auth, &old).await, 200);
    provider.restart().await;
    assert_eq!(authorization_status(&auth, &provider.token("ES256").await).await, 200);
    assert_eq!(authorization_status(&auth, &provider.token("EdDSA").await).await, 200);
}

#[tokio::test]
async fn r97_cached_keys_verify_tokens_while_the_provider_is_down_and_other_tokens_get_503() {
    let mut provider = OpenIdProvider::start().await;
    let (first, second, opaque) =
        (provider.token("ES256").await, provider.token("RS256").await, provider.token("opaque").await);
    let (warm, cold) = (build_authorizer(&provider, &json!({})), build_authorizer(&provider, &json!({})));
    let stale = build_authorizer(&provider, &json!({"jwks_refresh_interval": "1s", "max_jwks_staleness": "1s"}));
    assert_eq!(authorization_status(&warm, &first).await, 200);
    assert_eq!(authorization_status(&stale, &first).await, 200);
    provider.kill();
    assert_eq!(authorization_status(&warm, &second).await, 200, "a new token signed with a cached key");
    assert_eq!(authorization_status(&cold, &first).await, 503, "no key was ever cached");
    assert_eq!(authorization_status(&warm, &opaque).await, 503);
    wait_for_status(&stale, &second, 503).await;
    provider.restart().await;
    wait_for_status(&cold, &provider.token("RS256").await, 200).await;
}
