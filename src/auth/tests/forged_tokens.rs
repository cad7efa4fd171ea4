//! Tests of forged and malformed tokens.

use super::{test_signer::encode_base64url, *};
use proptest::{prelude::*, test_runner::TestRunner};

/// Returns the refusal of `token`, and asserts that it is the same for every agent and for a missing agent.
async fn refusal_of(auth: &Authorizer, token: &str) -> (u16, String, Vec<(String, String)>) {
    let headers = bearer(token);
    let refusals = [
        visible_refusal(call(auth, &headers, None, Some(&agent_with_auth("oauth2_bearer"))).await),
        visible_refusal(call(auth, &headers, None, Some(&agent_with_auth("api_key"))).await),
        visible_refusal(call(auth, &headers, None, Some(&agent_with_auth("none"))).await),
        visible_refusal(call(auth, &headers, None, None).await),
    ];
    for refusal in &refusals {
        assert_eq!(refusal, &refusals[0]);
    }
    let [refusal, ..] = refusals;
    refusal
}

async fn assert_refused(auth: &Authorizer, case: &str, token: &str) {
    let (status, _, challenges) = refusal_of(auth, token).await;
    assert_eq!(status, 401, "{case}");
    let challenge = challenges.iter().find(|(_, value)| value.starts_with("Bearer ")).unwrap();
    assert!(challenge.1.contains("error=\"invalid_token\""), "{case}: {challenge:?}");
}

#[tokio::test]
async fn r97_tokens_of_every_accepted_algorithm_are_valid() {
    let issuer = IssuerFixture::new().await;
    let signers = ["RS256", "PS256", "ES256", "ES384", "EdDSA"].map(|alg| TestSigner::new(alg, alg));
    let keys: Vec<Value> = signers.iter().map(TestSigner::jwk).collect();
    issuer.web.serve("/jwks", 200, &json!({"keys": keys}));
    let auth = issuer.auth();
    for signer in &signers {
        for header in [json!({"typ": "at+jwt"}), json!({"typ": "application/AT+JWT"}), json!({}), json!({"typ": "JWT"})]
        {
            let token = signer.token(&header, &issuer.claims());
            let caller = call(&auth, &bearer(&token), None, Some(&agent_with_auth("oauth2_bearer"))).await.unwrap();
            assert_eq!(
                (&*caller.id, caller.method),
                ("oauth:app-1", AuthenticationMethod::Bearer),
                "{} {header}",
                signer.alg
            );
            assert_eq!(caller.scopes.iter().map(|scope| &**scope).collect::<Vec<_>>(), ["read", "write"]);
        }
    }
}

#[tokio::test]
async fn r2_an_unsigned_token_is_refused() {
    let issuer = IssuerFixture::new().await;
    let auth = issuer.auth();
    for alg in ["none", "None", "NONE", ""] {
        let header = encode_base64url(json!({"alg": alg, "kid": "one"}).to_string());
        let claims = encode_base64url(issuer.claims().to_string());
        let signed = issuer.token(&issuer.claims());
        let signature = signed.rsplit('.').next().unwrap();
        for tail in ["", signature, "AA"] {
            assert_refused(&auth, alg, &format!("{header}.{claims}.{tail}")).await;
        }
    }
}

#[tokio::test]
async fn r2_a_token_signed_with_the_public_key_as_an_hmac_secret_is_refused() {
    let issuer = IssuerFixture::new().await;
    let rsa = TestSigner::new("RS256", "rsa");
    issuer.web.serve("/jwks", 200, &json!({"keys": [rsa.jwk(), issuer.signer.jwk()]}));
    let auth = issuer.auth();
    for jwk in [rsa.jwk(), issuer.signer.jwk()] {
        let member = if jwk["kty"] == "RSA" { "n" } else { "x" };
        for secret in [jwk.to_string(), jwk[member].as_str().unwrap().to_owned()] {
            let header = encode_base64url(json!({"alg": "HS256", "kid": jwk["kid"]}).to_string());
            let signed = format!("{header}.{}", encode_base64url(issuer.claims().to_string()));
            let key = aws_lc_rs::hmac::Key::new(aws_lc_rs::hmac::HMAC_SHA256, secret.as_bytes());
            let tag = aws_lc_rs::hmac::sign(&key, signed.as_bytes());
            assert_refused(&auth, "HS256", &format!("{signed}.{}", encode_base64url(tag))).await;
        }
    }
}

#[tokio::test]
async fn r97_invalid_claims_are_refused() {
    let issuer = IssuerFixture::new().await;
    let auth = issuer.auth();
    let now = caller::unix_now();
    let wrong = [
        ("expired", issuer.claims_with("exp", json!(now - 1))),
        ("expires now", issuer.claims_with("exp", json!(now))),
        ("without exp", issuer.claims_without("exp")),
        ("exp as text", issuer.claims_with("exp", json!("9999999999"))),
        ("exp null", issuer.claims_with("exp", Value::Null)),
        ("exp negative", issuer.claims_with("exp", json!(-1))),
        ("exp beyond all time", issuer.claims_with("exp", json!(1e300))),
        ("not yet valid", issuer.claims_with("nbf", json!(now + 60))),
        ("nbf as text", issuer.claims_with("nbf", json!("0"))),
        ("issued in the future", issuer.claims_with("iat", json!(now + 60))),
        ("another audience", issuer.claims_with("aud", json!("another"))),
        ("other audiences", issuer.claims_with("aud", json!(["a", "b"]))),
        ("no audience", issuer.claims_with("aud", json!([]))),
        ("a longer audience", issuer.claims_with("aud", json!("gatepost2"))),
        ("aud as object", issuer.claims_with("aud", json!({"gatepost": true}))),
        ("without aud", issuer.claims_without("aud")),
        ("another issuer", issuer.claims_with("iss", json!("https://issuer.example"))),
        ("issuer with a slash", issuer.claims_with("iss", json!(format!("{}/", issuer.issuer())))),
        ("issuer in a list", issuer.claims_with("iss", json!([issuer.issuer()]))),
        ("without issuer", issuer.claims_without("iss")),
        ("caller as number", issuer.claims_with("client_id", json!(7))),
        ("caller empty", issuer.claims_with("client_id", json!(""))),
        ("caller with a line feed", issuer.claims_with("client_id", json!("a\nb"))),
        ("caller too long", issuer.claims_with("client_id", json!("a".repeat(300)))),
        ("scopes as object", issuer.claims_with("scope", json!({"read": true}))),
        ("groups as numbers", issuer.claims_with("groups", json!([1, 2]))),
        ("bound to a certificate", issuer.claims_with("cnf", json!({"x5t#S256": encode_base64url([7; 32])}))),
        ("bound to a key", issuer.claims_with("cnf", json!({"jkt": encode_base64url([7; 32])}))),
        ("bound to both", issuer.claims_with("cnf", json!({"x5t#S256": encode_base64url([7; 32]), "jkt": "a"}))),
        ("bound to nothing", issuer.claims_with("cnf", json!({}))),
        ("bound as text", issuer.claims_with("cnf", json!("x5t#S256"))),
        ("bound to half a hash", issuer.claims_with("cnf", json!({"x5t#S256": encode_base64url([7; 16])}))),
        ("bound to null", issuer.claims_with("cnf", Value::Null)),
    ];
    for (case, claims) in wrong {
        assert_refused(&auth, case, &issuer.token(&claims)).await;
    }
}

#[tokio::test]
async fn r97_invalid_headers_are_refused() {
    let issuer = IssuerFixture::new().await;
    let other = TestSigner::new("ES256", "one");
    let rsa = TestSigner::new("RS256", "rsa");
    // A key of the issuer whose id is longer than a token may name.
    let long = TestSigner::new("ES256", "k".repeat(513).leak());
    issuer.web.serve("/jwks", 200, &json!({"keys": [issuer.signer.jwk(), rsa.jwk(), long.jwk()]}));
    let auth = issuer.auth();
    let claims = issuer.claims();
    let wrong = [
        ("kid of more than 512 bytes", long.token(&json!({}), &claims)),
        ("signed with another key", other.token(&json!({}), &claims)),
        ("with its own key", other.token(&json!({"jwk": other.jwk()}), &claims)),
        (
            "with a URL of its key",
            other.token(&json!({"jku": issuer.web.url("/evil"), "x5u": issuer.web.url("/evil")}), &claims),
        ),
        ("with a certificate", other.token(&json!({"x5c": ["MIIB"]}), &claims)),
        ("another kid", issuer.signer.token(&json!({"kid": "two"}), &claims)),
        ("kid is a path", issuer.signer.token(&json!({"kid": "../../dev/null"}), &claims)),
        ("kid is a query", issuer.signer.token(&json!({"kid": "' or 1=1 --"}), &claims)),
        ("kid is a number", issuer.signer.token(&json!({"kid": 1}), &claims)),
        ("kid of a key of another type", issuer.signer.token(&json!({"kid": "rsa"}), &claims)),
        ("algorithm of another type", issuer.signer.token(&json!({"alg": "RS256"}), &claims)),
        ("algorithm of another curve", issuer.signer.token(&json!({"alg": "ES384"}), &claims)),
        ("algorithm that is not pinned", rsa.token(&json!({"alg": "RS512"}), &claims)),
        ("algorithm that is not offered", TestSigner::new("ES512", "one").token(&json!({}), &claims)),
        ("algorithm in another case", issuer.signer.token(&json!({"alg": "es256"}), &claims)),
        ("algorithm as a list", issuer.signer.token(&json!({"alg": ["ES256"]}), &claims)),
        ("without an algorithm", issuer.signer.token(&json!({"alg": null}), &claims)),
        ("an ID token's type", issuer.signer.token(&json!({"typ": "id+jwt"}), &claims)),
        ("a logout token's type", issuer.signer.token(&json!({"typ": "logout+jwt"}), &claims)),
        ("type as a number", issuer.signer.token(&json!({"typ": 1}), &claims)),
        ("critical", issuer.signer.token(&json!({"crit": ["exp"], "exp": 1}), &claims)),
        ("critical and empty", issuer.signer.token(&json!({"crit": []}), &claims)),
        ("not in base64", issuer.signer.token(&json!({"b64": false}), &claims)),
    ];
    for (case, token) in wrong {
        assert_refused(&auth, case, &token).await;
    }
    assert_eq!(issuer.web.request_count("/evil"), 0);
}

#[tokio::test]
async fn r97_a_token_that_two_parsers_could_read_differently_is_refused() {
    let issuer = IssuerFixture::new().await;
    let auth = issuer.auth();
    let (signer, claims) = (&issuer.signer, issuer.claims().to_string());
    let header = json!({"alg": "ES256", "kid": "one"}).to_string();
    let twice = |text: &str, member: &str| format!("{{{member},{}", &text[1..]);
    let deep = format!("{{\"a\":{}1{},{}", "[".repeat(200), "]".repeat(200), &claims[1..]);
    let wrong = [
        ("alg twice", signer.token_from_text(&twice(&header, "\"alg\":\"none\""), &claims)),
        ("aud twice", signer.token_from_text(&header, &twice(&claims, "\"aud\":\"another\""))),
        ("exp twice", signer.token_from_text(&header, &twice(&claims, "\"exp\":9999999999"))),
        ("twice, once escaped", signer.token_from_text(&header, &twice(&claims, "\"\\u0065xp\":9999999999"))),
        ("twice within", signer.token_from_text(&header, &twice(&claims, "\"cnf\":{\"jkt\":1,\"jkt\":2}"))),
        ("too deep", signer.token_from_text(&header, &deep)),
        ("claims are a list", signer.token_from_text(&header, "[]")),
        ("claims are text", signer.token_from_text(&header, "\"a\"")),
        ("claims are nothing", signer.token_from_text(&header, "")),
        ("bytes after the claims", signer.token_from_text(&header, &format!("{claims}{{}}"))),
        ("header is a list", signer.token_from_text("[]", &claims)),
        ("not UTF-8", {
            let signed = format!("{}.{}", encode_base64url(&header), encode_base64url(b"{\"iss\":\"\xff\"}"));
            format!("{signed}.{}", encode_base64url(signer.sign(&signed)))
        }),
    ];
    for (case, token) in wrong {
        assert_refused(&auth, case, &token).await;
    }
}

#[tokio::test]
async fn r97_a_token_with_one_changed_character_is_refused() {
    let issuer = IssuerFixture::new().await;
    let auth = issuer.auth();
    let token = issuer.token(&issuer.claims());
    let agent = agent_with_auth("oauth2_bearer");
    assert!(call(&auth, &bearer(&token), None, Some(&agent)).await.is_ok());
    for at in 0..token.len() {
        for letter in [b'A', b'B', b'-', b'.', b'='] {
            let mut bytes = token.clone().into_bytes();
            if bytes[at] == letter {
                continue;
            }
            bytes[at] = letter;
            let changed = String::from_utf8(bytes).unwrap();
            assert_eq!(visible_refusal(call(&auth, &bearer(&changed), None, Some(&agent)).await).0, 401, "{changed}");
        }
        let cut = token.get(..at).unwrap();
        assert_eq!(visible_refusal(call(&auth, &bearer(cut), None, Some(&agent)).await).0, 401, "{cut}");
        let doubled = format!("{cut}{token}");
        if at > 0 {
            assert_eq!(visible_refusal(call(&auth, &bearer(&doubled), None, Some(&agent)).await).0, 401, "{doubled}");
        }
    }
    for changed in
        [format!("{token}="), format!("{token}."), format!("{token}.x"), format!(".{token}"), format!("{token}A")]
    {
        assert_refused(&auth, &changed, &changed).await;
    }
}

#[tokio::test]
async fn r97_malformed_tokens_are_refused_without_a_key_fetch() {
    let issuer = IssuerFixture::new().await;
    let auth = issuer.auth();
    let long = "a".repeat(16_385);
    for token in [
        "",
        ".",
        "..",
        "...",
        "a.b.c",
        "eyJ",
        "eyJ..",
        "eyJ.eyJ.eyJ",
        "\t",
        "a b",
        "a,b",
        "{}",
        "null",
        &long,
        &"eyJ.".repeat(4_000),
    ] {
        assert_refused(&auth, token, token).await;
    }
    assert_eq!(issuer.web.request_count("/jwks"), 0);
    // Other schemes do not count as a credential.
    for value in ["Basic YTpi", "Bearerx y", "Negotiate", "bear er"] {
        let (status, _, challenges) = visible_refusal(
            call(&auth, &headers(&[("authorization", value)]), None, Some(&agent_with_auth("oauth2_bearer"))).await,
        );
        assert_eq!(
            (status, challenges),
            (401, vec![("WWW-Authenticate".to_owned(), "Bearer realm=\"gatepost\"".to_owned())]),
            "{value}"
        );
    }
}

#[tokio::test]
async fn r97_the_scheme_is_case_insensitive() {
    let issuer = IssuerFixture::new().await;
    let auth = issuer.auth();
    let token = issuer.token(&issuer.claims());
    for scheme in ["Bearer ", "bearer ", "BEARER   "] {
        let headers = headers(&[("authorization", &format!("{scheme}{token}"))]);
        assert!(call(&auth, &headers, None, Some(&agent_with_auth("oauth2_bearer"))).await.is_ok(), "{scheme}");
    }
}

#[tokio::test]
async fn r97_repeated_authorization_headers_are_refused() {
    let issuer = IssuerFixture::new().await;
    let auth = issuer.auth();
    let token = format!("Bearer {}", issuer.token(&issuer.claims()));
    for second in [token.as_str(), "Basic YTpi", ""] {
        let headers = headers(&[("authorization", &token), ("authorization", second)]);
        for agent in [Some(agent_with_auth("oauth2_bearer")), Some(agent_with_auth("none")), None] {
            assert_eq!(visible_refusal(call(&auth, &headers, None, agent.as_ref()).await).0, 400);
        }
    }
}

#[test]
fn r97_random_tokens_are_refused_and_never_panic() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let auth = runtime.block_on(async { IssuerFixture::new().await.auth() });
    let part = || {
        prop_oneof![
            "[A-Za-z0-9_-]{0,40}",
            "ey[A-Za-z0-9_-]{0,80}",
            any::<Vec<u8>>().prop_map(encode_base64url),
            Just(encode_base64url("{\"alg\":\"ES256\"}"))
        ]
    };
    let tokens =
        (part(), part(), part()).prop_map(|(header, claims, signature)| format!("{header}.{claims}.{signature}"));
    TestRunner::default()
        .run(&tokens, |token| {
            let headers = bearer(&token);
            let presented = PresentedCredentials {
                headers: &headers,
                client_certificate: None,
                client_address: LOCALHOST,
                assumed_key: None,
            };
            prop_assert_eq!(runtime.block_on(auth.authenticate(&presented)).unwrap_err().http_status(), 401);
            Ok(())
        })
        .unwrap();
}
