//! Valid delegation chains, and every reason to refuse one.

use super::*;
use serde_json::json;
use std::{fs, time::Instant};

const ISSUER: &str = "https://gateway.example";

fn signer() -> Arc<SigningKey> {
    let pair = rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).unwrap();
    Arc::new(SigningKey::from_pem(&pair.serialize_pem()).unwrap())
}

fn policy(signer: &Arc<SigningKey>, config: &DelegationConfig) -> DelegationPolicy {
    DelegationPolicy::new(config, Some(signer), Some(ISSUER)).unwrap()
}

fn chain_headers(chain: &str) -> HeaderMap {
    HeaderMap::from_iter([(DELEGATION_CHAIN, HeaderValue::from_str(chain).unwrap())])
}

fn hop<'a>(caller: &'a str, agent: &'a str) -> ChainHop<'a> {
    ChainHop { caller, agent, call: "c-1" }
}

fn text(value: HeaderValue) -> String {
    value.to_str().unwrap().to_owned()
}

fn claims(signer: &SigningKey, chain: &str) -> Value {
    TrustedKeys::from_jwks(&signer.jwks()).unwrap().verify_claims(TOKEN_TYPE, chain).unwrap()
}

#[track_caller]
fn assert_refused(result: Result<HeaderValue>, status: u16, message: &str) {
    let fault = result.expect_err("a refusal");
    assert_eq!(fault.http_status(), status, "{fault}");
    assert!(fault.message().contains(message), "{fault}");
}

fn now() -> i64 {
    time::OffsetDateTime::now_utc().unix_timestamp()
}

/// A chain as this gateway signs it, with `change` applied to its claims.
fn signed_with(signer: &SigningKey, kind: &str, change: impl FnOnce(&mut Value)) -> HeaderMap {
    let mut claims = json!({"iss": ISSUER, "iat": now(), "exp": now() + 60, "sub": "key:app", "aud": "planner",
        "jti": "c-0", "chain": []});
    change(&mut claims);
    chain_headers(&signer.sign_token(kind, &claims).unwrap())
}

#[test]
fn r87_a_chain_begins_with_the_caller_and_grows_by_each_call() {
    let signer = signer();
    let policy = policy(&signer, &DelegationConfig::default());
    let first = text(policy.extend_chain(&HeaderMap::new(), &hop("key:app", "planner")).unwrap());
    let claims_of_chain = claims(&signer, &first);
    assert_eq!(
        (&claims_of_chain["sub"], &claims_of_chain["aud"], &claims_of_chain["chain"]),
        (&json!("key:app"), &json!("planner"), &json!([]))
    );
    assert_eq!(claims_of_chain["exp"].as_i64().unwrap() - claims_of_chain["iat"].as_i64().unwrap(), 600);
    let second = text(policy.extend_chain(&chain_headers(&first), &hop("key:planner", "writer")).unwrap());
    let claims_of_chain = claims(&signer, &second);
    assert_eq!((&claims_of_chain["sub"], &claims_of_chain["aud"]), (&json!("key:planner"), &json!("writer")));
    let actor = &claims_of_chain["chain"][0];
    assert_eq!((&actor["sub"], &actor["agent"], &actor["call"]), (&json!("key:app"), &json!("planner"), &json!("c-1")));
}

#[test]
fn r87_only_the_agent_that_a_chain_was_sent_to_can_continue_it() {
    let signer = signer();
    let actors = [("writer".to_owned(), vec!["oauth:acme/writer".parse().unwrap()])];
    let policy = policy(&signer, &DelegationConfig { actors: actors.into(), ..DelegationConfig::default() });
    let first = text(policy.extend_chain(&HeaderMap::new(), &hop("key:app", "writer")).unwrap());
    for stranger in
        ["key:app", "key:planner", "oauth:writer", "cert:writer", "anonymous", "key:writer2", "oauth:acme/writer2"]
    {
        assert_refused(
            policy.extend_chain(&chain_headers(&first), &hop(stranger, "printer")),
            403,
            "not sent to this caller",
        );
    }
    for actor in ["key:writer", "oauth:acme/writer"] {
        policy.extend_chain(&chain_headers(&first), &hop(actor, "printer")).unwrap();
    }
}

#[test]
fn r87_loops_and_too_many_actors_are_refused() {
    let signer = signer();
    let with_config = |config: &DelegationConfig| policy(&signer, config);
    let policy = with_config(&DelegationConfig::default());
    let mut chain = text(policy.extend_chain(&HeaderMap::new(), &hop("key:app", "agent-1")).unwrap());
    assert_refused(policy.extend_chain(&chain_headers(&chain), &hop("key:agent-1", "agent-1")), 403, "loop");
    for depth in 1..16 {
        let (caller, agent) = (format!("key:agent-{depth}"), format!("agent-{}", depth + 1));
        chain = text(policy.extend_chain(&chain_headers(&chain), &hop(&caller, &agent)).unwrap());
    }
    assert_eq!(claims(&signer, &chain)["chain"].as_array().unwrap().len(), 15);
    assert!(chain.len() < 6_000, "{}", chain.len());
    assert_refused(policy.extend_chain(&chain_headers(&chain), &hop("key:agent-16", "agent-1")), 403, "too deep");
    assert_refused(policy.extend_chain(&chain_headers(&chain), &hop("key:agent-16", "agent-17")), 403, "too deep");
    let allowing_loops =
        with_config(&DelegationConfig { loops: LoopPolicy::Allow, max_actors: 2, ..DelegationConfig::default() });
    let first = text(allowing_loops.extend_chain(&HeaderMap::new(), &hop("key:app", "a")).unwrap());
    let second = text(allowing_loops.extend_chain(&chain_headers(&first), &hop("key:a", "a")).unwrap());
    assert_refused(allowing_loops.extend_chain(&chain_headers(&second), &hop("key:a", "a")), 403, "too deep");
}

#[test]
fn r87_chains_not_signed_by_a_trusted_gateway_are_refused() {
    let (own_signer, other_signer) = (signer(), signer());
    let policy = policy(&own_signer, &DelegationConfig::default());
    let next = hop("key:planner", "writer");
    for text in ["", "x", "a.b", "a.b.c", "a.b.c.d", "planner,writer", "e30.e30.e30", "eyJhbGciOiJub25lIn0.e30."] {
        assert_refused(policy.extend_chain(&chain_headers(text), &next), 400, "not a signed chain");
    }
    assert_refused(
        policy.extend_chain(&chain_headers(&"a".repeat(MAX_CHAIN_BYTES + 1)), &next),
        400,
        "not a signed chain",
    );
    assert_refused(
        policy.extend_chain(&signed_with(&other_signer, TOKEN_TYPE, |_| ()), &next),
        403,
        "not signed by a trusted gateway",
    );
    let valid = signed_with(&own_signer, TOKEN_TYPE, |_| ());
    policy.extend_chain(&valid, &next).unwrap();
    let mut repeated = valid.clone();
    repeated.append(DELEGATION_CHAIN, valid[DELEGATION_CHAIN].clone());
    assert_refused(policy.extend_chain(&repeated, &next), 400, "not a signed chain");
    // The claims of one chain with the signature of another.
    let (own_chain, other_chain) = (
        text(valid[DELEGATION_CHAIN].clone()),
        signed_with(&own_signer, TOKEN_TYPE, |claims| claims["sub"] = json!("key:root")),
    );
    let swapped = format!(
        "{}.{}",
        other_chain[DELEGATION_CHAIN].to_str().unwrap().rsplit_once('.').unwrap().0,
        own_chain.rsplit_once('.').unwrap().1
    );
    assert_refused(policy.extend_chain(&chain_headers(&swapped), &next), 403, "not signed by a trusted gateway");
    // The signature of an agent card is not valid for a chain.
    assert_refused(policy.extend_chain(&signed_with(&own_signer, "JOSE", |_| ()), &next), 400, "not a signed chain");
}

#[test]
fn r87_signed_chains_with_invalid_claims_are_refused() {
    let own_signer = signer();
    let policy = policy(&own_signer, &DelegationConfig::default());
    let next = hop("key:planner", "writer");
    let extend = |change: fn(&mut Value)| policy.extend_chain(&signed_with(&own_signer, TOKEN_TYPE, change), &next);
    assert_refused(extend(|claims| claims["exp"] = json!(now() - 60)), 403, "expired");
    assert_refused(extend(|claims| claims["iat"] = json!(now() + 3_600)), 403, "expired");
    assert_refused(
        extend(|claims| claims["iss"] = json!("https://other.example")),
        403,
        "not signed by a trusted gateway",
    );
    assert_refused(extend(|claims| claims["exp"] = json!("soon")), 400, "not a signed chain");
    assert_refused(extend(|claims| claims["sub"] = json!("")), 400, "not a signed chain");
    assert_refused(extend(|claims| claims["jti"] = json!("x".repeat(600))), 400, "not a signed chain");
    assert_refused(extend(|claims| claims["chain"] = json!({})), 400, "not a signed chain");
    assert_refused(extend(|claims| claims["chain"] = json!([1])), 400, "not a signed chain");
    assert_refused(extend(|claims| drop(claims.as_object_mut().unwrap().remove("exp"))), 400, "not a signed chain");
    let actor = json!({"iss": ISSUER, "sub": "key:x", "agent": "y", "call": "c", "iat": 1});
    let many = vec![actor; 40];
    assert_refused(
        policy.extend_chain(&signed_with(&own_signer, TOKEN_TYPE, |claims| claims["chain"] = json!(many)), &next),
        403,
        "too deep",
    );
}

#[test]
fn r87_chains_of_a_trusted_gateway_are_continued_by_the_configured_callers() {
    let (own_signer, other_signer) = (signer(), signer());
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("keys.json");
    fs::write(&path, other_signer.jwks().to_string()).unwrap();
    let config_with_issuer = |issuer: &str| {
        let trusted = json!([{"issuer": issuer, "jwks": path.to_str().unwrap(), "callers": ["cert:branch-*"]}]);
        serde_json::from_value::<DelegationConfig>(json!({"trusted_issuers": trusted})).unwrap()
    };
    let policy = policy(&own_signer, &config_with_issuer("https://branch.example"));
    let foreign_chain =
        signed_with(&other_signer, TOKEN_TYPE, |claims| claims["iss"] = json!("https://branch.example"));
    let chain = text(policy.extend_chain(&foreign_chain, &hop("cert:branch-1", "planner")).unwrap());
    // Their planner is another agent than this gateway's planner, so this is not a loop.
    assert_eq!(claims(&own_signer, &chain)["chain"][0]["iss"], "https://branch.example");
    assert_refused(policy.extend_chain(&foreign_chain, &hop("key:planner", "writer")), 403, "not sent to this caller");
    // Their key is not valid for chains of this issuer.
    assert_refused(
        policy.extend_chain(&signed_with(&other_signer, TOKEN_TYPE, |_| ()), &hop("cert:branch-1", "writer")),
        403,
        "not signed by a trusted gateway",
    );
    let problems = DelegationPolicy::new(&config_with_issuer(ISSUER), Some(&own_signer), Some(ISSUER)).unwrap_err();
    assert!(problems[0].contains("trusted_issuers[0].issuer"), "{problems:?}");
    fs::write(&path, "{}").unwrap();
    let problems =
        DelegationPolicy::new(&config_with_issuer("https://branch.example"), Some(&own_signer), Some(ISSUER))
            .unwrap_err();
    assert!(problems[0].starts_with("trusted_issuers[0].jwks:"), "{problems:?}");
}

#[test]
fn a_caller_that_must_send_a_chain_cannot_start_one() {
    let signer = signer();
    let config = DelegationConfig { required_for: vec!["key:agent-*".parse().unwrap()], ..DelegationConfig::default() };
    let policy = policy(&signer, &config);
    policy.extend_chain(&HeaderMap::new(), &hop("key:app", "planner")).unwrap();
    assert_refused(policy.extend_chain(&HeaderMap::new(), &hop("key:agent-1", "planner")), 403, "must send");
}

#[test]
fn all_configuration_problems_are_reported() {
    let config = serde_json::from_value::<DelegationConfig>(json!({"ttl": "0s", "max_actors": 17})).unwrap();
    let problems = DelegationPolicy::new(&config, None, None).unwrap_err();
    assert_eq!(problems.len(), 3, "{problems:?}");
    assert!(problems[2].contains("directory.signing_key"));
}

/// A chain costs a call about 0.2 ms in an unoptimised build, less than a tenth of that in a release build.
#[test]
fn a_chain_is_verified_and_extended_in_less_than_five_milliseconds() {
    let signer = signer();
    let policy = policy(&signer, &DelegationConfig::default());
    let first = chain_headers(&text(policy.extend_chain(&HeaderMap::new(), &hop("key:app", "planner")).unwrap()));
    let started_at = Instant::now();
    for _ in 0..100 {
        policy.extend_chain(&first, &hop("key:planner", "writer")).unwrap();
    }
    let per_chain = started_at.elapsed() / 100;
    println!("verified, extended and signed in {per_chain:?}");
    assert!(per_chain.as_millis() < 5, "{per_chain:?}");
}
