//! Tests of token introspection.

use super::*;

struct IntrospectionEndpoint {
    web: TestWebServer,
    secret: tempfile::NamedTempFile,
}

impl IntrospectionEndpoint {
    async fn new(response: &Value) -> Self {
        let secret = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(secret.path(), "s3:cret %\n").unwrap();
        let web = TestWebServer::start().await;
        web.serve("/introspect", 200, response);
        Self { web, secret }
    }

    fn auth(&self, changes: &Value) -> Authorizer {
        let mut settings = json!({"endpoint": self.web.url("/introspect"), "client_id": "gate post", "leeway": "0s",
            "client_secret": format!("file:{}", self.secret.path().display())});
        for (name, value) in changes.as_object().unwrap() {
            settings[name] = value.clone();
        }
        build(json!({"bearer": {"introspection": settings}}))
    }
}

async fn outcome(auth: &Authorizer, token: &str) -> Result<Arc<Caller>, u16> {
    let outcome = call(auth, &bearer(token), None, Some(&agent_with_auth("oauth2_bearer"))).await;
    outcome.map_err(|refusal| refusal.fault.http_status())
}

#[tokio::test]
async fn r97_an_active_token_is_accepted_and_introspected_once() {
    let endpoint = IntrospectionEndpoint::new(
        &json!({"active": true, "client_id": "app-1", "scope": "read", "exp": caller::unix_now() + 60}),
    )
    .await;
    let auth = endpoint.auth(&json!({}));
    for _ in 0..5 {
        let caller = outcome(&auth, "opaque.token").await.unwrap();
        assert_eq!((&*caller.id, caller.scopes.len()), ("oauth:app-1", 1));
    }
    assert_eq!(endpoint.web.request_count("/introspect"), 1);
    let request = endpoint.web.last_request();
    assert!(request.contains("token=opaque.token&token_type_hint=access_token"), "{request}");
    // RFC 6749 §2.3.1: "gate+post" and "s3%3Acret+%25".
    assert!(request.contains("Basic Z2F0ZStwb3N0OnMzJTNBY3JldCslMjU="), "{request}");
}

#[tokio::test]
async fn r97_inactive_tokens_are_401_and_briefly_cached() {
    let endpoint = IntrospectionEndpoint::new(&json!({"active": false})).await;
    let auth = endpoint.auth(&json!({}));
    for _ in 0..5 {
        assert_eq!(outcome(&auth, "opaque").await.unwrap_err(), 401);
    }
    assert_eq!(endpoint.web.request_count("/introspect"), 1);
}

#[tokio::test]
async fn r97_responses_with_invalid_claims_are_401() {
    let now = caller::unix_now();
    let valid_response =
        json!({"active": true, "client_id": "app-1", "aud": "gatepost", "iss": "https://issuer.example"});
    let wrong = [
        ("exp", json!(now - 1)),
        ("exp", json!("soon")),
        ("nbf", json!(now + 60)),
        ("aud", json!("another")),
        ("aud", Value::Null),
        ("iss", json!("https://another.example")),
        ("iss", json!(7)),
        ("client_id", json!("")),
        ("cnf", json!({"jkt": "a"})),
        ("cnf", json!({"x5t#S256": test_signer::encode_base64url([7; 32])})),
    ];
    for (name, value) in wrong {
        let mut response = valid_response.clone();
        response[name] = value;
        let endpoint = IntrospectionEndpoint::new(&response).await;
        let auth = endpoint.auth(&json!({"audience": ["gatepost"], "issuer": "https://issuer.example"}));
        assert_eq!(outcome(&auth, "opaque").await.unwrap_err(), 401, "{response}");
    }
}

#[tokio::test]
async fn a_failed_introspection_is_503_and_not_cached() {
    let endpoint = IntrospectionEndpoint::new(&json!({})).await;
    let auth = endpoint.auth(&json!({}));
    let responses = [
        (401, "{}"),
        (403, "{}"),
        (500, "{}"),
        (302, ""),
        (200, ""),
        (200, "<html>"),
        (200, "[]"),
        (200, "{}"),
        (200, "{\"active\":\"true\"}"),
        (200, "{\"active\":false,\"active\":true}"),
        (200, "{\"active\":true"),
    ];
    for (status, body) in responses {
        endpoint.web.serve_text("/introspect", status, body);
        assert_eq!(outcome(&auth, "opaque").await.unwrap_err(), 503, "{status} {body}");
    }
    endpoint.web.set_down(true);
    assert_eq!(outcome(&auth, "opaque").await.unwrap_err(), 503);
    endpoint.web.set_down(false);
    endpoint.web.serve("/introspect", 200, &json!({"active": true, "client_id": "app-1"}));
    assert!(outcome(&auth, "opaque").await.is_ok());
}

#[tokio::test]
async fn concurrent_calls_with_one_token_share_one_introspection() {
    let endpoint = IntrospectionEndpoint::new(&json!({"active": true, "client_id": "app-1"})).await;
    let auth = Arc::new(endpoint.auth(&json!({})));
    endpoint.web.set_delayed(true);
    let calls: Vec<_> = (0..50)
        .map(|_| {
            let auth = Arc::clone(&auth);
            tokio::spawn(async move { outcome(&auth, "opaque").await.is_ok() })
        })
        .collect();
    wait_until("the endpoint is called", || async { endpoint.web.request_count("/introspect") == 1 }).await;
    endpoint.web.set_delayed(false);
    for call in calls {
        assert!(call.await.unwrap());
    }
    assert_eq!(endpoint.web.request_count("/introspect"), 1);
}

#[tokio::test]
async fn a_result_is_not_cached_longer_than_configured() {
    let endpoint = IntrospectionEndpoint::new(&json!({"active": true, "client_id": "app-1"})).await;
    let auth = endpoint.auth(&json!({"cache_ttl": "1s"}));
    assert!(outcome(&auth, "opaque").await.is_ok());
    endpoint.web.serve("/introspect", 200, &json!({"active": false}));
    wait_until("the token is no longer active", || async { outcome(&auth, "opaque").await.is_err() }).await;
}

#[tokio::test]
async fn a_jwt_is_never_sent_to_the_introspection_endpoint() {
    let endpoint = IntrospectionEndpoint::new(&json!({"active": true, "client_id": "app-1"})).await;
    let auth = endpoint.auth(&json!({}));
    let issuer = IssuerFixture::new().await;
    assert_eq!(outcome(&auth, &issuer.token(&issuer.claims())).await.unwrap_err(), 401);
    assert_eq!(endpoint.web.request_count("/introspect"), 0);
}
