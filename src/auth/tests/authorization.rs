//! Tests of authorisation: which caller may call which agent, and what a refusal reveals.

use super::*;

#[tokio::test]
async fn r3_no_call_is_allowed_without_a_grant() {
    let (keys, config) = generate_keys(&["team-a"]);
    let agent = agent_with_auth("api_key");
    for access in [
        json!({}),
        json!({"grants": []}),
        json!({"grants": [{"callers": ["key:team-b"], "agents": ["*"]}]}),
        json!({"grants": [{"callers": ["*"], "agents": ["other"]}]}),
        json!({"grants": [{"callers": ["oauth:team-a", "cert:*", "anonymous"], "groups": ["team-a"], "agents": ["*"]}]}),
    ] {
        let auth = try_build(config.clone(), access.clone()).unwrap();
        assert_eq!(status(&auth, &keys[0], Some(&agent)).await, 404, "{access}");
    }
}

#[tokio::test]
async fn r3_a_grant_matches_callers_and_agents_by_any_of_its_patterns() {
    let (keys, config) = generate_keys(&["team-a", "team-b", "other"]);
    let agent = agent_with_auth("api_key");
    for (grant, expected) in [
        (json!({"callers": ["key:team-a"], "agents": ["echo"]}), [200, 404, 404]),
        (json!({"callers": ["key:team-*"], "agents": ["ec*"]}), [200, 200, 404]),
        (json!({"callers": ["*"], "tags": ["public"]}), [200, 200, 200]),
        (json!({"groups": ["other-group"], "capabilities": ["trans*"]}), [404, 404, 200]),
        (
            json!({"callers": ["key:team-a"], "groups": ["*-group"], "agents": ["echo"], "tags": ["none"]}),
            [200, 200, 200],
        ),
        (json!({"callers": ["*"], "tags": ["private"], "capabilities": ["public"]}), [404, 404, 404]),
    ] {
        let auth = try_build(config.clone(), json!({"grants": [grant]})).unwrap();
        for (key, expected) in keys.iter().zip(expected) {
            assert_eq!(status(&auth, key, Some(&agent)).await, expected, "{grant}");
        }
    }
}

#[tokio::test]
async fn r3_one_grant_must_match_both_caller_and_agent() {
    let (keys, config) = generate_keys(&["team-a"]);
    let access = json!({"grants": [{"callers": ["key:team-a"], "agents": ["other"]}, {"callers": ["key:team-b"], "agents": ["echo"]}]});
    assert_eq!(status(&try_build(config, access).unwrap(), &keys[0], Some(&agent_with_auth("api_key"))).await, 404);
}

#[tokio::test]
async fn r12_anonymous_callers_need_an_explicit_grant() {
    let (_, config) = generate_keys(&["team-a"]);
    let open = agent_with_auth("none");
    let none = HeaderMap::new();
    for access in [
        json!({}),
        grant_everything(),
        json!({"grants": [{"callers": ["anon*", "*:*"], "groups": ["*"], "agents": ["*"]}]}),
    ] {
        let auth = try_build(config.clone(), access).unwrap();
        assert!(!auth.grants_anonymous_discovery());
        let (status, ..) = visible_refusal(call(&auth, &none, None, Some(&open)).await);
        assert_eq!(status, 401);
    }
    let auth = try_build(config, json!({"grants": [{"callers": ["anonymous"], "agents": ["*"]}]})).unwrap();
    assert!(auth.grants_anonymous_discovery());
    let caller = call(&auth, &none, None, Some(&open)).await.unwrap();
    assert_eq!((&*caller.id, caller.method), (ANONYMOUS, AuthenticationMethod::Anonymous));
    for kind in ["api_key", "oauth2_bearer", "mtls"] {
        assert_eq!(visible_refusal(call(&auth, &none, None, Some(&agent_with_auth(kind))).await).0, 401, "{kind}");
    }
    let bad = headers(&[("x-api-key", "gp_bad")]);
    assert_eq!(
        visible_refusal(call(&auth, &bad, None, Some(&open)).await).0,
        401,
        "an invalid credential is not anonymous"
    );
}

#[tokio::test]
async fn r3_without_a_credential_all_agents_look_alike() {
    let issuer = IssuerFixture::new().await;
    let (_, mut config) = generate_keys(&["team-a"]);
    config["bearer"] = json!({"issuers": [issuer.settings()]});
    config["mtls"] = json!({});
    let expired = format!("Bearer {}", issuer.token(&issuer.claims_with("exp", json!(1))));
    for on_denied in ["not_found", "forbidden"] {
        let auth =
            try_build(config.clone(), json!({"on_denied": on_denied, "grants": [{"callers": ["*"], "agents": ["*"]}]}))
                .unwrap();
        for fields in [
            vec![],
            vec![("x-api-key", "gp_bad")],
            vec![("authorization", "Bearer bad")],
            vec![("authorization", expired.as_str())],
            vec![("x-api-key", "bad"), ("authorization", "Bearer bad")],
        ] {
            let headers = headers(&fields);
            let missing_agent = visible_refusal(call(&auth, &headers, None, None).await);
            assert_eq!(missing_agent.0, 401);
            assert_eq!(missing_agent.2.iter().filter(|(name, _)| *name == "WWW-Authenticate").count(), 2);
            assert_eq!(missing_agent.2[0].1.contains("error"), headers.contains_key("authorization"), "RFC 6750 §3.1");
            for kind in ["api_key", "oauth2_bearer", "mtls", "none"] {
                assert_eq!(
                    visible_refusal(call(&auth, &headers, None, Some(&agent_with_auth(kind))).await),
                    missing_agent,
                    "{kind} {fields:?}"
                );
            }
        }
    }
}

#[tokio::test]
async fn r3_an_agent_without_a_grant_looks_like_a_missing_agent() {
    let issuer = IssuerFixture::new().await;
    let (keys, mut config) = generate_keys(&["team-a"]);
    config["bearer"] = json!({"issuers": [issuer.settings()]});
    let auth = try_build(config.clone(), json!({})).unwrap();
    let token = format!("Bearer {}", issuer.token(&issuer.claims()));
    for fields in [
        vec![("x-api-key", keys[0].as_str())],
        vec![("authorization", token.as_str())],
        vec![("x-api-key", keys[0].as_str()), ("authorization", "Bearer bad")],
    ] {
        let headers = headers(&fields);
        let missing_agent = visible_refusal(call(&auth, &headers, None, None).await);
        assert_eq!(missing_agent.0, 404);
        for kind in ["api_key", "oauth2_bearer", "mtls", "none"] {
            let scopes = if kind == "oauth2_bearer" { json!(["admin"]) } else { json!([]) };
            let agent = agent("echo", json!({"type": kind, "scopes": scopes}));
            assert_eq!(visible_refusal(call(&auth, &headers, None, Some(&agent)).await), missing_agent, "{kind}");
        }
    }
    let open = try_build(config, json!({"on_denied": "forbidden"})).unwrap();
    assert_eq!(status(&open, &keys[0], Some(&agent_with_auth("api_key"))).await, 403);
    assert_eq!(status(&open, &keys[0], None).await, 404);
}

#[tokio::test]
async fn r12_a_visible_agent_names_the_kind_of_credential_that_it_requires() {
    let issuer = IssuerFixture::new().await;
    let (keys, mut config) = generate_keys(&["team-a"]);
    config["bearer"] = json!({"issuers": [issuer.settings()]});
    let auth = build(config);
    let key = headers(&[("x-api-key", &keys[0])]);
    let (status, message, _) = visible_refusal(call(&auth, &key, None, Some(&agent_with_auth("oauth2_bearer"))).await);
    assert!(status == 401 && message.contains("a bearer token"), "{message}");
    let token = bearer(&issuer.token(&issuer.claims()));
    let (status, message, _) = visible_refusal(call(&auth, &token, None, Some(&agent_with_auth("api_key"))).await);
    assert!(status == 401 && message.contains("an API key"), "{message}");
    let both = headers(&[("x-api-key", &keys[0]), ("authorization", "Bearer bad")]);
    assert_eq!(&*call(&auth, &both, None, Some(&agent_with_auth("api_key"))).await.unwrap().id, "key:team-a");
    let (status, message, _) = visible_refusal(call(&auth, &both, None, Some(&agent_with_auth("oauth2_bearer"))).await);
    assert_eq!((status, message.as_str()), (401, "The token is not a JWT"));
    assert_eq!(&*call(&auth, &key, None, Some(&agent_with_auth("none"))).await.unwrap().id, "key:team-a");
    assert_eq!(&*call(&auth, &token, None, Some(&agent_with_auth("none"))).await.unwrap().id, "oauth:app-1");
}

#[tokio::test]
async fn r2_every_required_scope_must_be_present_and_is_named_in_the_challenge() {
    let issuer = IssuerFixture::new().await;
    let auth = issuer.auth();
    let token = bearer(&issuer.token(&issuer.claims()));
    let agent_with_scopes = |scopes: Value| agent("echo", json!({"type": "oauth2_bearer", "scopes": scopes}));
    for scopes in [json!([]), json!(["read"]), json!(["write", "read"])] {
        assert!(call(&auth, &token, None, Some(&agent_with_scopes(scopes))).await.is_ok());
    }
    for scopes in [json!(["read", "admin"]), json!(["READ"]), json!(["rea"]), json!([""])] {
        let refusal = call(&auth, &token, None, Some(&agent_with_scopes(scopes.clone()))).await.unwrap_err();
        assert_eq!(refusal.caller.unwrap().id.as_ref(), "oauth:app-1");
        assert_eq!(refusal.fault.code(), FaultCode::PermissionDenied, "{scopes}");
        let (_, challenge) = refusal.fault.headers().next().unwrap();
        assert!(
            challenge.starts_with("Bearer realm=\"gatepost\", error=\"insufficient_scope\", scope=\""),
            "{challenge}"
        );
    }
}

#[test]
fn r3_grant_sets_of_two_configurations_never_intersect() {
    let agent = agent_with_auth("api_key");
    let (first, second) = (build(json!({})), build(json!({})));
    assert!(first.grants_for_agent(&agent).allows_call(&first.grants_for_agent(&agent)));
    assert!(!first.grants_for_agent(&agent).allows_call(&second.grants_for_agent(&agent)));
    assert!(!GrantSet::default().allows_call(&GrantSet::default()));
}

#[tokio::test]
async fn an_empty_configuration_refuses_every_call() {
    let auth = try_build(json!({}), json!({})).unwrap();
    for agent in [Some(agent_with_auth("api_key")), Some(agent_with_auth("none")), None] {
        let (status, _, challenges) = visible_refusal(
            call(&auth, &headers(&[("x-api-key", "a"), ("authorization", "Bearer b")]), None, agent.as_ref()).await,
        );
        assert!(status == 401 && !challenges.is_empty());
    }
}

#[tokio::test]
async fn common_calls_are_authorised_without_waiting() {
    let issuer = IssuerFixture::new().await;
    let (keys, mut config) = generate_keys(&["team-a"]);
    config["bearer"] = json!({"issuers": [issuer.settings()]});
    let grants = json!({"grants": [{"callers": ["*", "anonymous"], "agents": ["*"]}]});
    let auth = try_build(config, grants).unwrap();
    let token = bearer(&issuer.token(&issuer.claims()));
    let bearer_agent = agent_with_auth("oauth2_bearer");
    let first = call(&auth, &token, None, Some(&bearer_agent));
    assert!(first.await.is_ok());
    let (key, none) = (headers(&[("x-api-key", &keys[0])]), HeaderMap::new());
    for (headers, kind) in
        [(&key, "api_key"), (&token, "oauth2_bearer"), (&key, "none"), (&token, "none"), (&none, "none")]
    {
        let (agent, client_certificate) = (agent_with_auth(kind), None);
        let (authentication, grants) = (&agent.authentication, &auth.grants_for_agent(&agent));
        let requirements = AgentAuthRequirements { authentication, grants };
        let caller = auth.try_authorize_cached(
            &PresentedCredentials { headers, client_certificate, client_address: LOCALHOST, assumed_key: None },
            &requirements,
        );
        assert!(caller.is_some(), "{kind}");
    }
    let bad = PresentedCredentials {
        headers: &bearer("bad"),
        client_certificate: None,
        client_address: LOCALHOST,
        assumed_key: None,
    };
    let open = agent_with_auth("none");
    let grants = &auth.grants_for_agent(&open);
    let requirements = AgentAuthRequirements { authentication: &open.authentication, grants };
    assert!(auth.try_authorize_cached(&bad, &requirements).is_none());
}

#[tokio::test]
async fn r2_an_invalid_credential_in_a_header_outweighs_a_valid_certificate_but_not_another_valid_header() {
    let issuer = IssuerFixture::new().await;
    let (keys, mut config) = generate_keys(&["team-a"]);
    config["bearer"] = json!({"issuers": [issuer.settings()]});
    config["mtls"] = json!({});
    let auth = build(config);
    let peer = certificates::certificate_with_dns_name("robot.example");
    let token = format!("Bearer {}", issuer.token(&issuer.claims()));
    let open = agent_with_auth("none");
    for (fields, expected) in [
        (vec![], Ok("cert:dns:robot.example")),
        (vec![("x-api-key", "gp_bad")], Err("The API key is not valid")),
        (vec![("authorization", "Bearer bad")], Err("The token is not a JWT")),
        (vec![("x-api-key", "gp_bad"), ("authorization", "Bearer bad")], Err("The token is not a JWT")),
        (vec![("x-api-key", "gp_bad"), ("authorization", &token)], Ok("oauth:app-1")),
        (vec![("x-api-key", &keys[0]), ("authorization", "Bearer bad")], Ok("key:team-a")),
        (vec![("x-api-key", &keys[0]), ("authorization", &token)], Ok("key:team-a")),
        (vec![("authorization", "Basic YTpi")], Ok("cert:dns:robot.example")),
    ] {
        let outcome = call(&auth, &headers(&fields), Some(&peer), Some(&open)).await;
        let outcome = outcome.map(|caller| caller.id.to_string()).map_err(|refusal| refusal.fault.message().to_owned());
        assert_eq!(outcome.as_deref().map_err(String::as_str), expected, "{fields:?}");
    }
}

#[tokio::test]
async fn every_configured_credential_is_described_once() {
    let issuer = IssuerFixture::new().await;
    let (_, mut config) = generate_keys(&["team-a"]);
    config["bearer"] = json!({"issuers": [issuer.settings()]});
    config["mtls"] = json!({});
    let auth = build(config);
    let accepted = auth.accepted_credentials();
    let described: Vec<_> = accepted
        .iter()
        .map(|credential| (credential.method, credential.header.as_ref().map(HeaderName::as_str)))
        .collect();
    assert_eq!(
        described,
        [
            (AuthenticationMethod::ApiKey, Some("x-api-key")),
            (AuthenticationMethod::Bearer, Some("authorization")),
            (AuthenticationMethod::Mtls, None)
        ]
    );
    assert_eq!(auth.credential_headers(), ["authorization", "x-api-key"]);
}
