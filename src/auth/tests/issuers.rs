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
    let world = IssuerFixture::new().await;
    world.web.set_down(true);
    let auth = world.auth();
    let token = world.token(&world.claims());
    let refusal = call(&auth, &bearer(&token), None, Some(&agent_with_auth("oauth2_bearer"))).await.unwrap_err();
    assert_eq!((refusal.fault.code(), refusal.fault.http_status()), (FaultCode::Overloaded, 503));
    assert!(refusal.fault.retry_after_secs().is_some());
    assert!(!refusal.fault.message().contains("127.0.0.1"));
    assert_eq!(
        status(&auth, &world.token(&world.claims_with("exp", json!(1)))).await,
        503,
        "no key to check it with yet"
    );
    world.web.set_down(false);
    wait_until("the token is accepted", || async { status(&auth, &token).await == 200 }).await;
}

#[tokio::test]
async fn cached_keys_are_used_while_the_issuer_is_down_and_unknown_keys_are_503() {
    let world = IssuerFixture::new().await;
    let auth = world.auth();
    assert_eq!(status(&auth, &world.token(&world.claims())).await, 200);
    world.web.set_down(true);
    assert_eq!(status(&auth, &world.token(&world.claims_with("jti", json!(2)))).await, 200);
    let other = TestSigner::new("ES256", "new").token(&json!({}), &world.claims());
    assert_eq!(status(&auth, &other).await, 503, "the key may be new");
    assert_eq!(
        status(&auth, &TestSigner::new("ES256", "one").token(&json!({}), &world.claims())).await,
        401,
        "this key is known"
    );
}

#[tokio::test]
async fn stale_keys_are_503_until_they_are_fetched_again() {
    let world = IssuerFixture::new().await;
    let auth = authorizer_with(world.settings(), &json!({"keys_refresh": "1s", "keys_stale_after": "1s"}));
    assert_eq!(status(&auth, &world.token(&world.claims())).await, 200);
    world.web.set_down(true);
    let number = std::sync::atomic::AtomicU64::new(0);
    let another =
        || world.token(&world.claims_with("jti", json!(number.fetch_add(1, std::sync::atomic::Ordering::Relaxed))));
    wait_until("the keys are stale", || async { status(&auth, &another()).await == 503 }).await;
    world.web.set_down(false);
    wait_until("the keys are fetched", || async { status(&auth, &another()).await == 200 }).await;
}

#[tokio::test]
async fn concurrent_calls_with_an_unknown_key_share_one_fetch() {
    let world = IssuerFixture::new().await;
    let auth = Arc::new(world.auth());
    assert_eq!(status(&auth, &world.token(&world.claims())).await, 200);
    let new = Arc::new(TestSigner::new("EdDSA", "two"));
    world.web.serve("/jwks", 200, &json!({"keys": [world.signer.jwk(), new.jwk()]}));
    world.web.set_delayed(true);
    let calls: Vec<_> = (0..50)
        .map(|number| {
            let (auth, token) = (Arc::clone(&auth), new.token(&json!({}), &world.claims_with("jti", json!(number))));
            tokio::spawn(async move { status(&auth, &token).await })
        })
        .collect();
    wait_until("the keys are requested", || async { world.web.request_count("/jwks") == 2 }).await;
    world.web.set_delayed(false);
    for call in calls {
        assert_eq!(call.await.unwrap(), 200);
    }
    assert_eq!(world.web.request_count("/jwks"), 2);
}

#[tokio::test]
async fn many_unknown_keys_cause_one_fetch() {
    let world = IssuerFixture::new().await;
    let auth = world.auth();
    assert_eq!(status(&auth, &world.token(&world.claims())).await, 200);
    for number in 0..50 {
        let token = world.signer.token(&json!({"kid": format!("kid-{number}")}), &world.claims());
        assert_eq!(status(&auth, &token).await, 401);
    }
    assert_eq!(world.web.request_count("/jwks"), 2);
}

#[tokio::test]
async fn a_caller_that_disconnects_does_not_cancel_the_fetch() {
    let world = IssuerFixture::new().await;
    let auth = world.auth();
    let token = world.token(&world.claims());
    world.web.set_delayed(true);
    {
        let (headers, agent) = (bearer(&token), agent_with_auth("oauth2_bearer"));
        let mut call = std::pin::pin!(call(&auth, &headers, None, Some(&agent)));
        wait_until("the keys are requested", || {
            let _ = futures_util::FutureExt::now_or_never(call.as_mut());
            let asked = world.web.request_count("/jwks");
            async move { asked == 1 }
        })
        .await;
    }
    world.web.set_delayed(false);
    assert_eq!(status(&auth, &token).await, 200);
    assert_eq!(world.web.request_count("/jwks"), 1);
}

#[tokio::test]
async fn a_token_without_a_key_id_is_checked_with_all_matching_keys() {
    let world = IssuerFixture::new().await;
    let others = ["a", "b"].map(|kid| TestSigner::new("ES256", kid));
    let mut nameless = world.signer.jwk();
    nameless.as_object_mut().unwrap().remove("kid");
    world.web.serve("/jwks", 200, &json!({"keys": [others[0].jwk(), others[1].jwk(), nameless]}));
    let auth = world.auth();
    assert_eq!(status(&auth, &world.signer.token(&json!({"kid": null}), &world.claims())).await, 200);
    assert_eq!(status(&auth, &others[1].token(&json!({"kid": null}), &world.claims())).await, 200);
    assert_eq!(status(&auth, &world.signer.token(&json!({"kid": "any"}), &world.claims())).await, 200);
    assert_eq!(status(&auth, &TestSigner::new("ES256", "x").token(&json!({"kid": null}), &world.claims())).await, 401);
}

#[tokio::test]
async fn two_keys_with_the_same_id_are_both_tried() {
    let world = IssuerFixture::new().await;
    let twin = TestSigner::new("ES256", "one");
    world.web.serve("/jwks", 200, &json!({"keys": [world.signer.jwk(), twin.jwk()]}));
    let auth = world.auth();
    assert_eq!(status(&auth, &world.token(&world.claims())).await, 200);
    assert_eq!(status(&auth, &twin.token(&json!({}), &world.claims())).await, 200);
}

#[tokio::test]
async fn keys_that_are_weak_or_not_for_signatures_are_ignored() {
    let world = IssuerFixture::new().await;
    let with = |name: &str, value: Value| {
        let mut jwk = world.signer.jwk();
        jwk[name] = value;
        jwk
    };
    let rsa = TestSigner::new("RS256", "one");
    let mut weak = rsa.jwk();
    let short: String = weak["n"].as_str().unwrap().chars().take(171).collect();
    weak["n"] = short.into();
    let bad = [
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
    for jwk in bad {
        world.web.serve("/jwks", 200, &json!({"keys": [jwk, TestSigner::new("EdDSA", "good").jwk()]}));
        let auth = world.auth();
        assert_eq!(status(&auth, &world.token(&world.claims())).await, 401, "{jwk}");
        assert_eq!(status(&auth, &rsa.token(&json!({}), &world.claims())).await, 401, "{jwk}");
    }
}

#[tokio::test]
async fn a_response_without_usable_keys_keeps_the_previous_keys() {
    let world = IssuerFixture::new().await;
    let auth = authorizer_with(world.settings(), &json!({"keys_refresh": "1s", "refetch_after": "1s"}));
    assert_eq!(status(&auth, &world.token(&world.claims())).await, 200);
    for (code, body) in [
        (200, "{\"keys\":[]}"),
        (200, "{}"),
        (200, "<html>"),
        (500, "{}"),
        (200, "{\"keys\":[{\"kty\":\"oct\",\"k\":\"AA\"}]}"),
    ] {
        world.web.serve_text("/jwks", code, body);
        let before = world.web.request_count("/jwks");
        wait_until("the keys are requested", || async {
            auth.tick().await;
            world.web.request_count("/jwks") > before
        })
        .await;
        assert_eq!(status(&auth, &world.token(&world.claims_with("jti", json!(body)))).await, 200, "{body}");
    }
}

#[tokio::test]
async fn the_tick_fetches_keys_before_the_first_call() {
    let world = IssuerFixture::new().await;
    let auth = world.auth();
    wait_until("the keys are requested", || async {
        auth.tick().await;
        world.web.request_count("/jwks") == 1
    })
    .await;
    assert_eq!(status(&auth, &world.token(&world.claims())).await, 200);
    auth.tick().await;
    assert_eq!(world.web.request_count("/jwks"), 1);
}

#[tokio::test]
async fn a_reload_keeps_the_fetched_keys() {
    let world = IssuerFixture::new().await;
    let config = serde_json::from_value(json!({"bearer": {"issuers": [world.settings()]}})).unwrap();
    let access = serde_json::from_value(grant_everything()).unwrap();
    let first = Authorizer::build(&config, &access, &services(), None).unwrap();
    assert_eq!(status(&first, &world.token(&world.claims())).await, 200);
    world.web.set_down(true);
    let second = Authorizer::build(&config, &access, &services(), Some(&first)).unwrap();
    assert_eq!(status(&second, &world.token(&world.claims())).await, 200);
    assert_eq!(world.web.request_count("/jwks"), 1);
}

#[tokio::test]
async fn a_discovery_document_is_accepted_only_for_its_own_issuer() {
    let world = IssuerFixture::new().await;
    let place = "/.well-known/openid-configuration";
    let auth = || authorizer_with(world.settings(), &json!({"jwks_url": null}));
    let token = world.token(&world.claims());
    let good = json!({"issuer": world.issuer(), "jwks_uri": world.web.url("/jwks")});
    let lies = [
        json!({"issuer": "https://another.example", "jwks_uri": world.web.url("/jwks")}),
        json!({"issuer": format!("{}/", world.issuer()), "jwks_uri": world.web.url("/jwks")}),
        json!({"jwks_uri": world.web.url("/jwks")}),
        json!({"issuer": world.issuer()}),
        json!({"issuer": world.issuer(), "jwks_uri": "file:///etc/passwd"}),
        json!({"issuer": world.issuer(), "jwks_uri": "http://keys.example/jwks"}),
        json!({"issuer": world.issuer(), "jwks_uri": "https://169.254.169.254/jwks"}),
    ];
    for lie in lies {
        world.web.serve(place, 200, &lie);
        assert_eq!(status(&auth(), &token).await, 503, "{lie}");
    }
    world.web.serve(place, 200, &good);
    assert_eq!(status(&auth(), &token).await, 200);
}

#[tokio::test]
async fn a_discovery_document_cannot_direct_the_gateway_to_a_local_address() {
    let (world, other) = (IssuerFixture::new().await, TestWebServer::start().await);
    other.serve("/jwks", 200, &json!({"keys": [world.signer.jwk()]}));
    world.web.serve(
        "/.well-known/openid-configuration",
        200,
        &json!({"issuer": world.issuer(), "jwks_uri": other.url("/jwks")}),
    );
    let auth = authorizer_with(world.settings(), &json!({"jwks_url": null}));
    assert_eq!(status(&auth, &world.token(&world.claims())).await, 503);
    assert_eq!(other.request_count("/jwks"), 0);
}

#[tokio::test]
async fn a_cached_token_expires_on_time() {
    let world = IssuerFixture::new().await;
    let auth = world.auth();
    let token = world.token(&world.claims_with("exp", json!(caller::unix_now() + 2)));
    assert_eq!(status(&auth, &token).await, 200);
    assert_eq!(status(&auth, &token).await, 200);
    wait_until("the token expires", || async { status(&auth, &token).await == 401 }).await;
}

#[tokio::test]
async fn leeway_applies_in_both_directions_and_no_further() {
    let world = IssuerFixture::new().await;
    let auth = authorizer_with(world.settings(), &json!({"leeway": "60s"}));
    let now = caller::unix_now();
    for (claim, offset, expected) in
        [("exp", -30, 200), ("nbf", 30, 200), ("iat", 30, 200), ("exp", -90, 401), ("nbf", 90, 401), ("iat", 90, 401)]
    {
        let token = world.token(&world.claims_with(claim, json!(now + offset)));
        assert_eq!(status(&auth, &token).await, expected, "{claim} {offset}");
    }
}

#[tokio::test]
async fn caller_groups_and_tier_are_read_from_the_configured_claims() {
    let world = IssuerFixture::new().await;
    let claims = json!({"caller": ["/act/sub", "sub"], "groups": "/realm_access/roles", "tier": "plan"});
    let auth = authorizer_with(world.settings(), &json!({"claims": claims, "label": "corp"}));
    let mut told = world.claims_with("realm_access", json!({"roles": ["staff", "ops"]}));
    told["plan"] = "gold".into();
    told["scope"] = Value::Null;
    told["scp"] = json!(["a", "b"]);
    let caller =
        call(&auth, &bearer(&world.token(&told)), None, Some(&agent_with_auth("oauth2_bearer"))).await.unwrap();
    assert_eq!(&*caller.id, "oauth:corp/user-1");
    let words = |list: &[Arc<str>]| list.iter().map(|word| word.to_string()).collect::<Vec<_>>();
    assert_eq!(
        (words(&caller.groups), words(&caller.scopes)),
        (vec!["staff".into(), "ops".into()], vec!["a".into(), "b".into()])
    );
    assert_eq!(caller.tier.as_deref(), Some("gold"));
}

#[tokio::test]
async fn unsafe_or_unusable_configurations_are_refused_with_all_problems_at_once() {
    let world = IssuerFixture::new().await;
    let refused = |changes: Value, expected: &str| {
        let mut settings = world.settings();
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
    refused(json!({"claims": {"caller": []}}), "auth.bearer.issuers[0].claims.caller: ");
    refused(json!({"unknown": 1}), "unknown");
    let twins = try_build(
        json!({"bearer": {"issuers": [world.settings(), world.settings()], "token_cache_size": 0}, "realm": "a\"b"}),
        json!({"grants": [{"callers": ["team-a"], "agents": []}]}),
    )
    .unwrap_err();
    for expected in [
        "auth.bearer.issuers: ",
        "auth.bearer.token_cache_size: ",
        "auth.realm: ",
        "access.grants[0]: ",
        "access.grants[0].callers: ",
    ] {
        assert!(twins.iter().any(|problem| problem.starts_with(expected)), "{expected}: {twins:?}");
    }
}

#[tokio::test]
async fn callers_of_two_token_sources_never_share_an_id() {
    let (world, secret) = (IssuerFixture::new().await, tempfile::NamedTempFile::new().unwrap());
    std::fs::write(secret.path(), "secret").unwrap();
    let issuer = |name: &str, label: Value| {
        let mut settings = world.settings();
        (settings["issuer"], settings["label"]) = (name.into(), label);
        settings
    };
    let asked = |name: Value, label: Value| json!({"endpoint": world.web.url("/introspect"), "client_id": "a", "client_secret": format!("file:{}", secret.path().display()), "issuer": name, "label": label});
    let holds = |bearer: Value| try_build(json!({"bearer": bearer}), grant_everything()).is_ok();
    assert!(holds(json!({"issuers": [issuer("a", json!("a")), issuer("b", json!("b"))]})));
    assert!(holds(json!({"issuers": [issuer("a", Value::Null)], "introspection": asked(json!("a"), Value::Null)})));
    assert!(holds(json!({"issuers": [issuer("a", json!("x"))], "introspection": asked(json!("b"), json!("y"))})));
    for bearer in [
        json!({"issuers": [issuer("a", json!("a")), issuer("b", json!("a"))]}),
        json!({"issuers": [issuer("a", json!("a")), issuer("b", Value::Null)]}),
        json!({"issuers": [issuer("a", Value::Null)], "introspection": asked(Value::Null, Value::Null)}),
        json!({"issuers": [issuer("a", Value::Null)], "introspection": asked(json!("b"), json!("y"))}),
        json!({"issuers": [issuer("a", json!("x"))], "introspection": asked(json!("a"), json!("y"))}),
        json!({"issuers": [issuer("a", json!("a/b"))]}),
    ] {
        assert!(!holds(bearer.clone()), "{bearer}");
    }
}
