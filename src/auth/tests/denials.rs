//! Tests of denials, which outweigh every grant.

use super::*;

/// Every caller, anonymous ones included, may call every agent, except for these denials.
fn all_except(denials: &Value) -> Value {
    json!({"grants": [
        {"callers": ["*", "anonymous"], "agents": ["*"]}, {"groups": ["*"], "agents": ["*"]},
        {"callers": ["key:team-a"], "agents": ["echo"]}, {"callers": ["*"], "tags": ["*"], "capabilities": ["*"]}
    ], "denials": denials})
}

#[tokio::test]
async fn r3_a_denial_outweighs_every_grant() {
    let (keys, config) = generate_keys(&["team-a", "team-b"]);
    let agent = agent_with_auth("api_key");
    for (denials, expected) in [
        (json!([]), [200, 200]),
        (json!([{"callers": ["key:team-a"], "agents": ["echo"]}]), [404, 200]),
        (json!([{"callers": ["key:team-*"], "agents": ["ec*"]}]), [404, 404]),
        (json!([{"callers": ["*"], "tags": ["public"]}]), [404, 404]),
        (json!([{"groups": ["team-b-group"], "capabilities": ["trans*"]}]), [200, 404]),
        (json!([{"groups": ["*"], "agents": ["*"]}]), [404, 404]),
        (
            json!([{"callers": ["key:team-b"], "groups": ["team-a-group"], "agents": ["none"], "tags": ["public"]}]),
            [404, 404],
        ),
        (
            json!([{"callers": ["key:none"], "agents": ["*"]}, {"callers": ["key:team-a"], "agents": ["echo"]}]),
            [404, 200],
        ),
        (json!([{"callers": ["*"], "agents": ["other"], "tags": ["private"], "capabilities": ["public"]}]), [200, 200]),
        (json!([{"callers": ["oauth:*", "cert:*"], "agents": ["*"]}]), [200, 200]),
    ] {
        let auth = try_build(config.clone(), all_except(&denials)).unwrap();
        for (key, expected) in keys.iter().zip(expected) {
            assert_eq!(status(&auth, key, Some(&agent)).await, expected, "{denials}");
        }
    }
}

#[tokio::test]
async fn r3_one_denial_must_match_both_caller_and_agent() {
    let (keys, config) = generate_keys(&["team-a"]);
    let denials =
        json!([{"callers": ["key:team-a"], "agents": ["other"]}, {"callers": ["key:team-b"], "agents": ["echo"]}]);
    let auth = try_build(config, all_except(&denials)).unwrap();
    assert_eq!(status(&auth, &keys[0], Some(&agent_with_auth("api_key"))).await, 200);
}

#[tokio::test]
async fn r3_a_denied_agent_looks_like_a_missing_agent() {
    let (keys, config) = generate_keys(&["team-a"]);
    let mut access = all_except(&json!([{"callers": ["key:team-a"], "agents": ["echo"]}]));
    let auth = try_build(config.clone(), access.clone()).unwrap();
    let fields = headers(&[("x-api-key", &keys[0])]);
    let missing_agent = visible_refusal(call(&auth, &fields, None, None).await);
    for kind in ["api_key", "oauth2_bearer", "mtls", "none"] {
        let denied = call(&auth, &fields, None, Some(&agent_with_auth(kind))).await;
        assert_eq!(visible_refusal(denied), missing_agent, "{kind}");
    }
    access["on_denied"] = "forbidden".into();
    let open = try_build(config, access).unwrap();
    assert_eq!(status(&open, &keys[0], Some(&agent_with_auth("api_key"))).await, 403);
}

#[tokio::test]
async fn r3_r12_a_denial_of_every_caller_includes_callers_without_a_credential() {
    let (_, config) = generate_keys(&["team-a"]);
    let (open, none) = (agent_with_auth("none"), HeaderMap::new());
    let allowed = try_build(config.clone(), all_except(&json!([]))).unwrap();
    assert!(call(&allowed, &none, None, Some(&open)).await.is_ok());
    for callers in [json!(["*"]), json!(["anonymous"]), json!(["anon*"])] {
        let denials = json!([{"callers": callers, "agents": ["echo"]}]);
        let auth = try_build(config.clone(), all_except(&denials)).unwrap();
        assert_eq!(visible_refusal(call(&auth, &none, None, Some(&open)).await).0, 401, "{denials}");
        assert!(auth.anonymous_caller().grants.has_grant(), "other agents stay reachable");
    }
}

#[test]
fn r3_discovery_obeys_denials() {
    let (_, config) = generate_keys(&["team-a"]);
    let denials = json!([{"callers": ["anonymous"], "tags": ["public"]}]);
    let agent = agent_with_auth("none");
    for (denials, expected) in [(json!([]), true), (denials, false)] {
        let auth = try_build(config.clone(), all_except(&denials)).unwrap();
        let grants = auth.grants_for_agent(&agent);
        let requirements = AgentAuthRequirements { authentication: &agent.authentication, grants: &grants };
        assert_eq!(auth.is_call_allowed(auth.anonymous_caller(), &requirements), expected);
    }
}

#[test]
fn r3_a_denial_alone_allows_nothing() {
    let denials = json!({"denials": [{"callers": ["*"], "agents": ["echo"]}]});
    let auth = try_build(json!({}), denials).unwrap();
    let grants = auth.grants_for_agent(&agent_with_auth("none"));
    assert!(!auth.anonymous_caller().grants.has_grant());
    assert!(!auth.anonymous_caller().grants.allows_call(&grants));
}

#[test]
fn r3_a_denial_that_denies_nothing_is_a_problem() {
    let problems = try_build(
        json!({}),
        json!({"denials": [{"agents": ["*"]}, {"callers": ["*"]}, {"callers": ["team-a"], "agents": ["*"]}, {"callers": ["cert:a"], "agents": ["*"]}]}),
    )
    .unwrap_err();
    for (problem, expected) in problems.iter().zip([
        "access.denials[0]: names no caller",
        "access.denials[1]: names no agent",
        "access.denials[2].callers: 'team-a' matches no caller",
        "access.denials[3].callers: 'cert:a' does not name the kind",
    ]) {
        assert!(problem.starts_with(expected), "{problem}");
    }
    assert_eq!(problems.len(), 4);
    assert!(try_build(json!({}), json!({"denials": [{"callers": ["*"], "agent": ["*"]}]})).is_err(), "unknown key");
}
