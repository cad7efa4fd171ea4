//! Tests of revoked keys and tokens, also of those that are cached.

use super::*;

/// An authorizer, and the revocations that it looks up.
fn build_with_revocations(config: Value) -> (Authorizer, Arc<RevocationList>) {
    let revocations = Arc::<RevocationList>::default();
    let services = AuthServices { revocations: Arc::clone(&revocations), ..services() };
    let config = serde_json::from_value(config).unwrap();
    let access = serde_json::from_value(grant_everything()).unwrap();
    (Authorizer::build(&config, &access, &services, None).unwrap(), revocations)
}

async fn revoke(list: &RevocationList, request: Value) {
    let request: TokenRevocationRequest = serde_json::from_value(request).unwrap();
    list.revoke(&[request.select(list.time()).unwrap().revocation]).await.unwrap();
}

/// Calls twice, so that the second answer comes from the cache.
async fn outcome(auth: &Authorizer, token: &str) -> Result<Arc<Caller>, String> {
    let agent = agent_with_auth("oauth2_bearer");
    let first = call(auth, &bearer(token), None, Some(&agent)).await;
    let second = call(auth, &bearer(token), None, Some(&agent)).await;
    assert_eq!(first.is_ok(), second.is_ok(), "{first:?} {second:?}");
    second.map_err(|refusal| {
        let (status, _, headers) = visible_refusal(Err(refusal));
        format!("{status} {headers:?}")
    })
}

#[tokio::test]
async fn a_cached_jwt_is_refused_once_it_is_revoked_by_itself_its_id_or_its_subject() {
    let issuer = IssuerFixture::new().await;
    let (auth, revocations) = build_with_revocations(json!({"bearer": {"issuers": [issuer.settings()]}}));
    let token = |jti: &str, sub: &str, issued: i64| {
        let mut claims = issuer.claims_with("jti", jti.into());
        claims["sub"] = sub.into();
        claims["iat"] = (caller::unix_now() + issued).into();
        issuer.token(&claims)
    };
    let (first, second) = (token("1", "alice", -60), token("2", "alice", -60));
    let (third, fourth) = (token("3", "bob", -60), token("1", "bob", -60));
    for token in [&first, &second, &third, &fourth] {
        outcome(&auth, token).await.unwrap();
    }
    revoke(&revocations, json!({"token": first})).await;
    let refused = outcome(&auth, &first).await.unwrap_err();
    assert!(refused.starts_with("401 ") && refused.contains("invalid_token"), "{refused}");
    assert!(refused.contains("the token is revoked"), "{refused}");
    outcome(&auth, &second).await.unwrap();
    revoke(&revocations, json!({"issuer": issuer.issuer(), "jti": "3"})).await;
    outcome(&auth, &third).await.unwrap_err();
    outcome(&auth, &fourth).await.unwrap();
    revoke(&revocations, json!({"issuer": "https://other.example", "subject": "alice"})).await;
    outcome(&auth, &second).await.unwrap();
    revoke(&revocations, json!({"issuer": issuer.issuer(), "subject": "alice"})).await;
    outcome(&auth, &second).await.unwrap_err();
    outcome(&auth, &fourth).await.unwrap();
    // The next token of the subject is valid; one that does not say when it was issued may be an old one.
    let tomorrow = IssuerFixture { web: issuer.web, signer: issuer.signer };
    let mut settings = tomorrow.settings();
    settings["leeway"] = "1m".into();
    let services = AuthServices { revocations: Arc::clone(&revocations), ..super::services() };
    let config = serde_json::from_value(json!({"bearer": {"issuers": [settings]}})).unwrap();
    let auth =
        Authorizer::build(&config, &serde_json::from_value(grant_everything()).unwrap(), &services, None).unwrap();
    let mut claims = tomorrow.claims_with("sub", "alice".into());
    claims["iat"] = (caller::unix_now() + 5).into();
    outcome(&auth, &tomorrow.token(&claims)).await.unwrap();
    claims.as_object_mut().unwrap().remove("iat");
    outcome(&auth, &tomorrow.token(&claims)).await.unwrap_err();
}

#[tokio::test]
async fn a_cached_introspected_token_is_refused_once_it_is_revoked() {
    let secret = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(secret.path(), "secret").unwrap();
    let web = TestWebServer::start().await;
    let now = caller::unix_now();
    web.serve("/introspect", 200, &json!({"active": true, "client_id": "app", "sub": "alice", "jti": "7", "iat": now}));
    let endpoint = web.url("/introspect");
    let settings =
        json!({"endpoint": endpoint, "client_id": "gw", "client_secret": format!("file:{}", secret.path().display())});
    for request in [
        json!({"token": "opaque"}),
        json!({"issuer": endpoint, "jti": "7"}),
        json!({"issuer": endpoint, "subject": "alice"}),
    ] {
        let (auth, revocations) = build_with_revocations(json!({"bearer": {"introspection": settings}}));
        outcome(&auth, "opaque").await.unwrap();
        revoke(&revocations, request).await;
        assert!(outcome(&auth, "opaque").await.unwrap_err().contains("the token is revoked"));
    }
}

#[tokio::test]
async fn a_revoked_api_key_is_refused_whatever_its_file_says() {
    let (keys, config) = generate_keys(&["team-a", "team-b"]);
    let (auth, revocations) = build_with_revocations(config);
    let agent = agent_with_auth("api_key");
    let prefix = keys[0].split('_').nth(1).unwrap();
    assert_eq!(status(&auth, &keys[0], Some(&agent)).await, 200);
    let revoked = RevokedKey { prefix: prefix.to_owned(), overlap: None, expires: None };
    revocations.revoke(&[revoked.to_revocation(revocations.time())]).await.unwrap();
    assert_eq!(status(&auth, &keys[0], Some(&agent)).await, 401);
    assert_eq!(status(&auth, &keys[1], Some(&agent)).await, 200);
    let assume = async |id: &str| {
        let presented = PresentedCredentials {
            headers: &HeaderMap::new(),
            client_certificate: None,
            client_address: LOCALHOST,
            assumed_key: Some(id),
        };
        auth.authenticate(&presented).await.map_err(|fault| fault.to_string())
    };
    assert!(assume("key:team-b").await.is_ok());
    for id in ["key:team-a", &format!("key:{prefix}")] {
        assert!(assume(id).await.is_err(), "{id}");
    }
}
