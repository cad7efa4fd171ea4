//! Tests of issuers that are unreachable, rotate keys or misbehave, and of the token cache.

use super::*;

async fn status(auth: &Authorizer, token: &str) -> u16 {
    match call(auth, &bearer(token), None, Some(&agent_with_auth("oauth2_bearer"))).await {
        Ok(_) => 200,
        Err(refusal) => refusal.fault.http_status(),
    }
}

fn authorizer_with(mut settings: Value, changes: &Value) -> Authorizer {
    for (name, value) in changes.as_object().unwrap() {
        settings[name] = value.clone();
    }
    settings.as_object_mut().unwrap().retain(|_, value| !value.is_null());
    build(json!({"bearer": {"issuers": [settings]}}))
}

#[tokio::test]
async fn an_unreachable_issuer_is_503_until_its_keys_are_fetched() {
    let issuer = IssuerFixture::new().await;
    issuer.web.set_down(true);
    let auth = issuer.auth();
    let token = issuer.token(&issuer.claims());
    let refusal = call(&auth, &bearer(&token), None, Some(&agent_with_auth("oauth2_bearer"))).await.unwrap_err();
    assert_eq!((refusal.fault.code(), refusal.fault.http_status()), (FaultCode::Overloaded, 503));
    assert!(refusal.fault.retry_after_secs().is_some());
    assert!(!refusal.fault.message().contains("127.0.0.1"));
    assert_eq!(
        status(&auth, &issuer.token(&issuer.claims_with("exp", json!(1)))).await,
        503,
        "no key to check it with yet"
    );
    issuer.web.set_down(false);
    wait_until("the token is accepted", || async { status(&auth, &token).await == 200 }).await;
}

#[tokio::test]
async fn cached_keys_are_used_while_the_issuer_is_down_and_unknown_keys_are_503() {
    let issuer = IssuerFixture::new().await;
    let auth = issuer.auth();
    assert_eq!(status(&auth, &issuer.token(&issuer.claims())).await, 200);
    issuer.web.set_down(true);
    assert_eq!(status(&auth, &issuer.token(&issuer.claims_with("jti", json!(2)))).await, 200);
    let other = TestSigner::new("ES256", "new").token(&json!({}), &issuer.claims());
    assert_eq!(status(&auth, &other).await, 503, "the key may be new");
    assert_eq!(
        status(&auth, &TestSigner::new("ES256", "one").token(&json!({}), &issuer.claims())).await,
        401,
        "the key is cached"
    );
}

#[tokio::test]
async fn stale_keys_are_503_until_they_are_fetched_again() {
    let issuer = IssuerFixture::new().await;
    let auth = authorizer_with(issuer.settings(), &json!({"jwks_refresh_interval": "1s", "max_jwks_staleness": "1s"}));
    assert_eq!(status(&auth, &issuer.token(&issuer.claims())).await, 200);
    issuer.web.set_down(true);
    let number = std::sync::atomic::AtomicU64::new(0);
    let another =
        || issuer.token(&issuer.claims_with("jti", json!(number.fetch_add(1, std::sync::atomic::Ordering::Relaxed))));
    wait_until("the keys are stale", || async { status(&auth, &another()).await == 503 }).await;
    issuer.web.set_down(false);
    wait_until("the keys are fetched", || async { status(&auth, &another()).await == 200 }).await;
}

#[tokio::test]
async fn concurrent_calls_with_an_unknown_key_share_one_fetch() {
    let issuer = IssuerFixture::new().await;
    let auth = Arc::new(issuer.auth());
    assert_eq!(status(&auth, &issuer.token(&issuer.claims())).await, 200);
    let new = Arc::new(TestSigner::new("EdDSA", "two"));
    issuer.web.serve("/jwks", 200, &json!({"keys": [issuer.signer.jwk(), new.jwk()]}));
    issuer.web.set_delayed(true);
    let calls: Vec<_> = (0..50)
        .map(|number| {
            let (auth, token) = (Arc::clone(&auth), new.token(&json!({}), &issuer.claims_with("jti", json!(number))));
            tokio::spawn(async move { status(&auth, &token).await })
        })
        .collect();
    wait_until("the keys are requested", || async { issuer.web.request_count("/jwks") == 2 }).await;
    issuer.web.set_delayed(false);
    for call in calls {
        assert_eq!(call.await.unwrap(), 200);
    }
    assert_eq!(issuer.web.request_count("/jwks"), 2);
}

#[tokio::test]
async fn many_unknown_keys_cause_one_fetch() {
    let issuer = IssuerFixture::new().await;
    let auth = issuer.auth();
    assert_eq!(status(&auth, &issuer.token(&issuer.claims())).await, 200);
    for number in 0..50 {
        let token = issuer.signer.token(&json!({"kid": format!("kid-{number}")}), &issuer.claims());
        assert_eq!(status(&auth, &token).await, 401);
    }
    assert_eq!(issuer.web.request_count("/jwks"), 2);
}

#[tokio::test]
async fn r97_a_rotated_key_counts_at_once_although_an_unknown_key_was_just_looked_for() {
    let issuer = IssuerFixture::new().await;
    let auth = authorizer_with(issuer.settings(), &json!({"min_jwks_refetch_interval": "1s"}));
    assert_eq!(status(&auth, &issuer.token(&issuer.claims())).await, 200);
    let forged = issuer.signer.token(&json!({"kid": "forged"}), &issuer.claims());
    assert_eq!(status(&auth, &forged).await, 401);
    let new = TestSigner::new("EdDSA", "two");
    issuer.web.serve("/jwks", 200, &json!({"keys": [issuer.signer.jwk(), new.jwk()]}));
    let began = std::time::Instant::now();
    assert_eq!(status(&auth, &new.token(&json!({}), &issuer.claims())).await, 200);
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    assert_eq!(issuer.web.request_count("/jwks"), 3);
}

#[tokio::test]
async fn r97_a_key_id_that_no_fetch_looked_for_is_not_known_as_missing() {
    let issuer = IssuerFixture::new().await;
    let auth = authorizer_with(issuer.settings(), &json!({"min_jwks_refetch_interval": "6s"}));
    assert_eq!(status(&auth, &issuer.token(&issuer.claims())).await, 200);
    let forged = issuer.signer.token(&json!({"kid": "forged"}), &issuer.claims());
    assert_eq!(status(&auth, &forged).await, 401);
    let new = TestSigner::new("EdDSA", "two");
    issuer.web.serve("/jwks", 200, &json!({"keys": [issuer.signer.jwk(), new.jwk()]}));
    let token = |number: u64| new.token(&json!({}), &issuer.claims_with("jti", json!(number)));
    assert_eq!(status(&auth, &token(0)).await, 401, "the next fetch is too far away to wait for it");
    assert_eq!(issuer.web.request_count("/jwks"), 2);
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(status(&auth, &token(1)).await, 200, "the token waits for the next fetch");
    assert_eq!(issuer.web.request_count("/jwks"), 3);
}

#[tokio::test]
async fn r97_a_token_without_a_key_is_judged_again_once_a_fetch_is_allowed() {
    let issuer = IssuerFixture::new().await;
    let auth = authorizer_with(issuer.settings(), &json!({"min_jwks_refetch_interval": "4s"}));
    assert_eq!(status(&auth, &issuer.token(&issuer.claims())).await, 200);
    issuer.web.set_delayed(true);
    let new = TestSigner::new("EdDSA", "two");
    let token = |number: u64| new.token(&json!({}), &issuer.claims_with("jti", json!(number)));
    let (first, arrived_at) = (token(0), Instant::now());
    let ((), refused) = tokio::join!(
        async {
            tokio::time::sleep(Duration::from_millis(2_500)).await;
            issuer.web.set_delayed(false);
        },
        status(&auth, &first)
    );
    assert_eq!(refused, 401);
    issuer.web.serve("/jwks", 200, &json!({"keys": [issuer.signer.jwk(), new.jwk()]}));
    assert_eq!(status(&auth, &first).await, 401, "a fetch was just made for this token");
    assert!(arrived_at.elapsed() < Duration::from_secs(4), "it does not wait twice");
    // A forger may have chosen the id of this key, so another token with the id waits for the next fetch.
    assert_eq!(status(&auth, &token(1)).await, 200);
    assert!(arrived_at.elapsed() < Duration::from_secs(6), "the interval counts from the start of the fetch");
    assert_eq!(status(&auth, &first).await, 200);
    assert_eq!(issuer.web.request_count("/jwks"), 3);
}

#[tokio::test]
async fn r97_tokens_without_a_key_id_are_not_taken_for_each_other() {
    let issuer = IssuerFixture::new().await;
    let auth = authorizer_with(issuer.settings(), &json!({"min_jwks_refetch_interval": "1s"}));
    assert_eq!(status(&auth, &issuer.token(&issuer.claims())).await, 200);
    let forger = TestSigner::new("ES256", "forger");
    let without_key_id = |signer: &TestSigner| signer.token(&json!({"kid": null}), &issuer.claims());
    assert_eq!(status(&auth, &without_key_id(&forger)).await, 401);
    let new = TestSigner::new("EdDSA", "two");
    issuer.web.serve("/jwks", 200, &json!({"keys": [issuer.signer.jwk(), new.jwk()]}));
    assert_eq!(status(&auth, &without_key_id(&new)).await, 200);
}

#[tokio::test]
async fn r97_a_flood_of_forged_key_ids_causes_one_fetch_and_delays_no_honest_caller() {
    let issuer = IssuerFixture::new().await;
    let auth = Arc::new(authorizer_with(issuer.settings(), &json!({"min_jwks_refetch_interval": "5s"})));
    assert_eq!(status(&auth, &issuer.token(&issuer.claims())).await, 200);
    issuer.web.set_delayed(true);
    let flood: Vec<_> = (0..600)
        .map(|number| {
            let forged = issuer.signer.token(&json!({"kid": format!("kid-{number}")}), &issuer.claims());
            let auth = Arc::clone(&auth);
            tokio::spawn(async move { status(&auth, &forged).await })
        })
        .collect();
    wait_until("the keys are requested", || async { issuer.web.request_count("/jwks") == 2 }).await;
    for number in 0..5 {
        let token = issuer.token(&issuer.claims_with("jti", json!(number)));
        let honest = tokio::time::timeout(Duration::from_millis(500), status(&auth, &token));
        assert_eq!(honest.await.expect("an honest caller waits for no fetch"), 200);
    }
    // The flood has its address's share of the places, and leaves those of others.
    let headers = bearer(&issuer.signer.token(&json!({"kid": "other"}), &issuer.claims()));
    let other = {
        let auth = Arc::clone(&auth);
        tokio::spawn(async move {
            let client_address = [203, 0, 113, 7].into();
            let presented =
                PresentedCredentials { headers: &headers, client_certificate: None, client_address, assumed_key: None };
            auth.authenticate(&presented).await.unwrap_err().http_status()
        })
    };
    tokio::time::sleep(Duration::from_millis(50)).await;
    issuer.web.set_delayed(false);
    assert_eq!(other.await.unwrap(), 401);
    let mut statuses = std::collections::BTreeMap::new();
    for call in flood {
        *statuses.entry(call.await.unwrap()).or_insert(0) += 1;
    }
    assert_eq!(issuer.web.request_count("/jwks"), 2);
    // Those beyond the bound on waiting tokens are 503, because their keys were not looked for.
    assert_eq!(statuses, [(401, 64), (503, 536)].into());
    let fetches_of = |number: u32| {
        let (auth, forged) =
            (Arc::clone(&auth), issuer.signer.token(&json!({"kid": number.to_string()}), &issuer.claims()));
        async move { tokio::time::timeout(Duration::from_millis(300), status(&auth, &forged)).await.is_err() }
    };
    assert!(fetches_of(1).await && fetches_of(2).await, "the next fetch is not due");
    assert_eq!(issuer.web.request_count("/jwks"), 2);
}

#[tokio::test]
async fn a_caller_that_disconnects_does_not_cancel_the_fetch() {
    let issuer = IssuerFixture::new().await;
    let auth = issuer.auth();
    let token = issuer.token(&issuer.claims());
    issuer.web.set_delayed(true);
    {
        let (headers, agent) = (bearer(&token), agent_with_auth("oauth2_bearer"));
        let mut call = std::pin::pin!(call(&auth, &headers, None, Some(&agent)));
        wait_until("the keys are requested", || {
            let _ = futures_util::FutureExt::now_or_never(call.as_mut());
            let request_count = issuer.web.request_count("/jwks");
            async move { request_count == 1 }
        })
        .await;
    }
    issuer.web.set_delayed(false);
    assert_eq!(status(&auth, &token).await, 200);
    assert_eq!(issuer.web.request_count("/jwks"), 1);
}

#[tokio::test]
async fn a_token_without_a_key_id_is_checked_with_all_matching_keys() {
    let issuer = IssuerFixture::new().await;
    let others = ["a", "b"].map(|kid| TestSigner::new("ES256", kid));
    let mut nameless = issuer.signer.jwk();
    nameless.as_object_mut().unwrap().remove("kid");
    issuer.web.serve("/jwks", 200, &json!({"keys": [others[0].jwk(), others[1].jwk(), nameless]}));
    let auth = issuer.auth();
    assert_eq!(status(&auth, &issuer.signer.token(&json!({"kid": null}), &issuer.claims())).await, 200);
    assert_eq!(status(&auth, &others[1].token(&json!({"kid": null}), &issuer.claims())).await, 200);
    assert_eq!(status(&auth, &issuer.signer.token(&json!({"kid": "any"}), &issuer.claims())).await, 200);
    assert_eq!(status(&auth, &TestSigner::new("ES256", "x").token(&json!({"kid": null}), &issuer.claims())).await, 401);
}

#[tokio::test]
async fn two_keys_with_the_same_id_are_both_tried() {
    let issuer = IssuerFixture::new().await;
    let twin = TestSigner::new("ES256", "one");
    issuer.web.serve("/jwks", 200, &json!({"keys": [issuer.signer.jwk(), twin.jwk()]}));
    let auth = issuer.auth();
    assert_eq!(status(&auth, &issuer.token(&issuer.claims())).await, 200);
    assert_eq!(status(&auth, &twin.token(&json!({}), &issuer.claims())).await, 200);
}

#[tokio::test]
async fn keys_that_are_weak_or_not_for_signatures_are_ignored() {
    let issuer = IssuerFixture::new().await;
    let with = |name: &str, value: Value| {
        let mut jwk = issuer.signer.jwk();
        jwk[name] = value;
        jwk
    };
    let rsa = TestSigner::new("RS256", "one");
    let mut weak = rsa.jwk();
    let short: String = weak["n"].as_str().unwrap().chars().take(171).collect();
    weak["n"] = short.into();
    let unusable_keys = [
        with("use", json!("enc")),
        with("key_ops", json!(["encrypt"])),
        with("alg", json!("ES384")),
        with("alg", json!("HS256")),
        with("alg", json!("ECDH-ES")),
        with("crv", json!("P-384")),
        with("crv", json!("secp256k1")),
        with("kty", json!("oct")),
        with("kty", json!("RSA")),
        with("x", json!("AAAA")),
        with("x", json!("!")),
        with("y", json!(7)),
        json!({"kty": "oct", "k": "c2VjcmV0", "kid": "one", "alg": "HS256"}),
        json!("text"),
        weak,
    ];
    for jwk in unusable_keys {
        issuer.web.serve("/jwks", 200, &json!({"keys": [jwk, TestSigner::new("EdDSA", "good").jwk()]}));
        let auth = issuer.auth();
        assert_eq!(status(&auth, &issuer.token(&issuer.claims())).await, 401, "{jwk}");
        assert_eq!(status(&auth, &rsa.token(&json!({}), &issuer.claims())).await, 401, "{jwk}");
    }
}

#[tokio::test]
async fn a_response_without_usable_keys_keeps_the_previous_keys() {
    let issuer = IssuerFixture::new().await;
    let auth =
        authorizer_with(issuer.settings(), &json!({"jwks_refresh_interval": "1s", "min_jwks_refetch_interval": "1s"}));
    assert_eq!(status(&auth, &issuer.token(&issuer.claims())).await, 200);
    for (code, body) in [
        (200, "{\"keys\":[]}"),
        (200, "{}"),
        (200, "<html>"),
        (500, "{}"),
        (200, "{\"keys\":[{\"kty\":\"oct\",\"k\":\"AA\"}]}"),
    ] {
        issuer.web.serve_text("/jwks", code, body);
        let before = issuer.web.request_count("/jwks");
        wait_until("the keys are requested", || async {
            auth.tick().await;
            issuer.web.request_count("/jwks") > before
        })
        .await;
        assert_eq!(status(&auth, &issuer.token(&issuer.claims_with("jti", json!(body)))).await, 200, "{body}");
    }
}

#[tokio::test]
async fn the_tick_fetches_keys_before_the_first_call() {
    let issuer = IssuerFixture::new().await;
    let auth = issuer.auth();
    wait_until("the keys are requested", || async {
        auth.tick().await;
        issuer.web.request_count("/jwks") == 1
    })
    .await;
    assert_eq!(status(&auth, &issuer.token(&issuer.claims())).await, 200);
    auth.tick().await;
    assert_eq!(issuer.web.request_count("/jwks"), 1);
}

#[tokio::test]
async fn a_reload_keeps_the_fetched_keys() {
    let issuer = IssuerFixture::new().await;
    let config = serde_json::from_value(json!({"bearer": {"issuers": [issuer.settings()]}})).unwrap();
    let access = serde_json::from_value(grant_everything()).unwrap();
    let first = Authorizer::build(&config, &access, &services(), None).unwrap();
    assert_eq!(status(&first, &issuer.token(&issuer.claims())).await, 200);
    issuer.web.set_down(true);
    let second = Authorizer::build(&config, &access, &services(), Some(&first)).unwrap();
    assert_eq!(status(&second, &issuer.token(&issuer.claims())).await, 200);
    assert_eq!(issuer.web.request_count("/jwks"), 1);
}

#[tokio::test]
async fn a_discovery_document_is_accepted_only_for_its_own_issuer() {
    let issuer = IssuerFixture::new().await;
    let path = "/.well-known/openid-configuration";
    let auth = || authorizer_with(issuer.settings(), &json!({"jwks_url": null}));
    let token = issuer.token(&issuer.claims());
    let valid_document = json!({"issuer": issuer.issuer(), "jwks_uri": issuer.web.url("/jwks")});
    let invalid_documents = [
        json!({"issuer": "https://another.example", "jwks_uri": issuer.web.url("/jwks")}),
        json!({"issuer": format!("{}/", issuer.issuer()), "jwks_uri": issuer.web.url("/jwks")}),
        json!({"jwks_uri": issuer.web.url("/jwks")}),
        json!({"issuer": issuer.issuer()}),
        json!({"issuer": issuer.issuer(), "jwks_uri": "file:///etc/passwd"}),
        json!({"issuer": issuer.issuer(), "jwks_uri": "http://keys.example/jwks"}),
        json!({"issuer": issuer.issuer(), "jwks_uri": "https://169.254.169.254/jwks"}),
    ];
    for document in invalid_documents {
        issuer.web.serve(path, 200, &document);
        assert_eq!(status(&auth(), &token).await, 503, "{document}");
    }
    issuer.web.serve(path, 200, &valid_document);
    assert_eq!(status(&auth(), &token).await, 200);
}

#[tokio::test]
async fn a_discovery_document_cannot_direct_the_gateway_to_a_local_address() {
    let (issuer, other) = (IssuerFixture::new().await, TestWebServer::start().await);
    other.serve("/jwks", 200, &json!({"keys": [issuer.signer.jwk()]}));
    issuer.web.serve(
        "/.well-known/openid-configuration",
        200,
        &json!({"issuer": issuer.issuer(), "jwks_uri": other.url("/jwks")}),
    );
    let auth = authorizer_with(issuer.settings(), &json!({"jwks_url": null}));
    assert_eq!(status(&auth, &issuer.token(&issuer.claims())).await, 503);
    assert_eq!(other.request_count("/jwks"), 0);
}

#[tokio::test]
async fn a_cached_token_expires_on_time() {
    let issuer = IssuerFixture::new().await;
    let auth = issuer.auth();
    let token = issuer.token(&issuer.claims_with("exp", json!(caller::unix_now() + 2)));
    assert_eq!(status(&auth, &token).await, 200);
    assert_eq!(status(&auth, &token).await, 200);
    wait_until("the token expires", || async { status(&auth, &token).await == 401 }).await;
}

#[tokio::test]
async fn leeway_applies_in_both_directions_and_no_further() {
    let issuer = IssuerFixture::new().await;
    let auth = authorizer_with(issuer.settings(), &json!({"leeway": "60s"}));
    let now = caller::unix_now();
    for (claim, offset, expected) in
        [("exp", -30, 200), ("nbf", 30, 200), ("iat", 30, 200), ("exp", -90, 401), ("nbf", 90, 401), ("iat", 90, 401)]
    {
        let token = issuer.token(&issuer.claims_with(claim, json!(now + offset)));
        assert_eq!(status(&auth, &token).await, expected, "{claim} {offset}");
    }
}

#[tokio::test]
async fn caller_groups_and_tier_are_read_from_the_configured_claims() {
    let issuer = IssuerFixture::new().await;
    let mapping = json!({"caller": ["/act/sub", "sub"], "groups": "/realm_access/roles", "tier": "plan",
        "allowed_groups": ["st*"]});
    let auth = authorizer_with(issuer.settings(), &json!({"claims": mapping, "label": "corp"}));
    let mut claims = issuer.claims_with("realm_access", json!({"roles": ["staff", "ops"]}));
    claims["plan"] = "gold".into();
    claims["scope"] = Value::Null;
    claims["scp"] = json!(["a", "b"]);
    let caller =
        call(&auth, &bearer(&issuer.token(&claims)), None, Some(&agent_with_auth("oauth2_bearer"))).await.unwrap();
    assert_eq!(&*caller.id, "oauth:corp/user-1");
    let to_strings = |list: &[Arc<str>]| list.iter().map(|text| text.to_string()).collect::<Vec<_>>();
    assert_eq!(
        (to_strings(&caller.groups), to_strings(&caller.scopes)),
        (vec!["corp/staff".into(), "corp/ops".into(), "staff".into()], vec!["a".into(), "b".into()])
    );
    assert_eq!(caller.tier.as_deref(), Some("corp/gold"));
}

#[tokio::test]
async fn unsafe_or_unusable_configurations_are_refused_with_all_problems_at_once() {
    let issuer = IssuerFixture::new().await;
    let refused = |changes: Value, expected: &str| {
        let mut settings = issuer.settings();
        for (name, value) in changes.as_object().unwrap() {
            settings[name] = value.clone();
        }
        let problems = try_build(json!({"bearer": {"issuers": [settings]}}), grant_everything()).unwrap_err();
        assert!(problems.iter().any(|problem| problem.contains(expected)), "{expected}: {problems:?}");
    };
    refused(json!({"algorithms": ["HS256"]}), "HS256");
    refused(json!({"algorithms": ["none"]}), "none");
    refused(json!({"algorithms": []}), "auth.bearer.issuers[0].algorithms: ");
    refused(json!({"audience": []}), "auth.bearer.issuers[0].audience: ");
    refused(json!({"leeway": "1h"}), "auth.bearer.issuers[0].leeway: ");
    refused(json!({"jwks_url": "http://keys.example/"}), "auth.bearer.issuers[0].jwks_url: ");
    refused(json!({"jwks_url": null, "issuer": "http://id.example"}), "auth.bearer.issuers[0].issuer: http://");
    let discovery = json!({"jwks_url": null, "discovery_url": "http://keys.example/"});
    refused(discovery, "auth.bearer.issuers[0].discovery_url: http://");
    refused(json!({"claims": {"caller": []}}), "auth.bearer.issuers[0].claims.caller: ");
    refused(json!({"unknown": 1}), "unknown");
    let problems = try_build(
        json!({"bearer": {"issuers": [issuer.settings(), issuer.settings()], "max_cached_tokens": 0}, "realm": "a\"b"}),
        json!({"grants": [{"callers": ["team-a"], "agents": []}]}),
    )
    .unwrap_err();
    for expected in [
        "auth.bearer.issuers: ",
        "auth.bearer.max_cached_tokens: ",
        "auth.realm: ",
        "access.grants[0]: ",
        "access.grants[0].callers: ",
    ] {
        assert!(problems.iter().any(|problem| problem.starts_with(expected)), "{expected}: {problems:?}");
    }
}

#[tokio::test]
async fn callers_of_two_token_sources_never_share_an_id() {
    let (issuer, secret) = (IssuerFixture::new().await, tempfile::NamedTempFile::new().unwrap());
    std::fs::write(secret.path(), "secret").unwrap();
    let issuer_settings = |name: &str, label: Value| {
        let mut settings = issuer.settings();
        (settings["issuer"], settings["label"]) = (name.into(), label);
        settings
    };
    let introspection_settings = |name: Value, label: Value| json!({"endpoint": issuer.web.url("/introspect"), "client_id": "a", "client_secret": format!("file:{}", secret.path().display()), "issuer": name, "label": label});
    let is_valid = |bearer: Value| try_build(json!({"bearer": bearer}), grant_everything()).is_ok();
    assert!(is_valid(json!({"issuers": [issuer_settings("a", json!("a")), issuer_settings("b", json!("b"))]})));
    assert!(is_valid(
        json!({"issuers": [issuer_settings("a", Value::Null)], "introspection": introspection_settings(json!("a"), Value::Null)})
    ));
    assert!(is_valid(
        json!({"issuers": [issuer_settings("a", json!("x"))], "introspection": introspection_settings(json!("b"), json!("y"))})
    ));
    for bearer in [
        json!({"issuers": [issuer_settings("a", json!("a")), issuer_settings("b", json!("a"))]}),
        json!({"issuers": [issuer_settings("a", json!("a")), issuer_settings("b", Value::Null)]}),
        json!({"issuers": [issuer_settings("a", Value::Null)], "introspection": introspection_settings(Value::Null, Value::Null)}),
        json!({"issuers": [issuer_settings("a", Value::Null)], "introspection": introspection_settings(json!("b"), json!("y"))}),
        json!({"issuers": [issuer_settings("a", json!("x"))], "introspection": introspection_settings(json!("a"), json!("y"))}),
        json!({"issuers": [issuer_settings("a", json!("a/b"))]}),
    ] {
        assert!(!is_valid(bearer.clone()), "{bearer}");
    }
}
