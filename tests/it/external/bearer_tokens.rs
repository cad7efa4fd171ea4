//! Bearer tokens of a real OpenID provider: every format, key rotation, an outage of the provider.

use super::support::oidc::OpenIdProvider;
use crate::{
    callers::{call_with, call_with_token, document_with},
    support::{agent::Agent as AgentServer, eventually_within, gateway::gateway},
};
use gatepost::{
    agent::Agent,
    auth::{AgentAuthRequirements, AuthServices, Authorizer, PresentedCredentials},
    net::{self, FetchClient},
    telemetry::{LoggedCallers, Metrics},
};
use http::{HeaderMap, HeaderValue, header};
use serde_json::{Value, json};
use std::time::Duration;

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
    let services = AuthServices {
        client,
        metrics: Metrics::new().unwrap(),
        browser_pairing: None,
        revocations: std::sync::Arc::default(),
        logged_callers: LoggedCallers::Plain,
        told_claims: std::sync::Arc::default(),
    };
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
        .authorize(
            &PresentedCredentials {
                headers: &headers,
                client_certificate: None,
                client_address: [127, 0, 0, 1].into(),
                assumed_key: None,
            },
            Some(requirements),
        )
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
    eventually_within(Duration::from_secs(30), &format!("the status is {expected}"), async || {
        authorization_status(auth, token).await == expected
    })
    .await;
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

/// The keys of `auth` that make a gateway trust `provider`.
fn provider_section(provider: &OpenIdProvider) -> String {
    format!(
        "  bearer:\n    issuers:\n      - {{issuer: '{0}', audience: [gatepost], algorithms: [RS256, ES256, EdDSA], min_jwks_refetch_interval: 1s}}\n    introspection: {{endpoint: '{1}', issuer: '{0}', audience: [gatepost], client_id: gateway, client_secret: env:INTROSPECTION, cache_ttl: 1s}}\n",
        provider.issuer(),
        provider.introspection_url()
    )
}

#[tokio::test]
async fn r97_tokens_of_a_real_provider_are_verified() {
    let mut provider = OpenIdProvider::start().await;
    let echo = AgentServer::echo().await;
    let gate = gateway()
        .document(document_with(&echo, "reads", &json!({"type": "oauth2_bearer", "scopes": ["read"]})))
        .document(document_with(&echo, "writes", &json!({"type": "oauth2_bearer", "scopes": ["read", "write"]})))
        .document(document_with(&echo, "hidden", &json!({"type": "oauth2_bearer", "scopes": ["admin"]})))
        .access("access:\n  grants:\n    - {callers: ['oauth:app-1', 'key:*'], agents: [reads, writes]}\n")
        .env("INTROSPECTION", "gateway-secret")
        .section(&provider_section(&provider))
        .start()
        .await;
    for format in ["RS256", "ES256", "EdDSA", "opaque"] {
        let token = provider.token(format).await;
        call_with_token(&gate, "reads", &token).await.expect_ok();
        assert_eq!(echo.requests().last().unwrap().header("authorization"), None);
        let response = call_with_token(&gate, "writes", &token).await;
        response.expect_fault(403, "PermissionDenied");
        let challenge = response.header("www-authenticate").unwrap();
        assert!(
            challenge.contains("error=\"insufficient_scope\"") && challenge.contains("scope=\"read write\""),
            "{challenge}"
        );
        let response = call_with_token(&gate, "hidden", &token).await;
        response.expect_fault(404, "NotFound");
        response.assert_hides(&["admin"]);
    }
    assert_eq!(echo.call_count(), 4);
    for token in [provider.token("elsewhere").await.as_str(), "never-issued", "eyJ.eyJ.x", ""] {
        let response = call_with_token(&gate, "reads", token).await;
        response.expect_fault(401, "Unauthorized");
        assert!(response.header("www-authenticate").unwrap().contains("error=\"invalid_token\""), "{token}");
    }
    // The key is valid, but this agent accepts bearer tokens only.
    let error = call_with(&gate, "reads", &[("x-api-key", gate.key("team-a"))]).await.expect_fault(401, "Unauthorized");
    assert!(error["message"].as_str().unwrap().contains("a bearer token"), "{error}");
    let (opaque, fresh) = (provider.token("opaque").await, provider.token("ES256").await);
    provider.kill();
    let response = call_with_token(&gate, "reads", &opaque).await;
    response.expect_fault(503, "Overloaded");
    assert!(response.header("retry-after").is_some() && response.header("www-authenticate").is_none());
    call_with_token(&gate, "reads", &fresh).await.expect_ok();
    assert_eq!(echo.call_count(), 5);
    provider.restart().await;
    call_with_token(&gate, "reads", &provider.token("EdDSA").await).await.expect_ok();
}
