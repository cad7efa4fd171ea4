//! Chains that hold, and every way in which one does not.

use super::*;
use serde_json::json;
use std::time::Instant;

const HOUSE: &str = "https://house.example";

fn signer() -> Arc<Signer> {
    let pair = rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).unwrap();
    Arc::new(Signer::from_pem(&pair.serialize_pem()).unwrap())
}

fn house(signer: &Arc<Signer>, config: &Config) -> Delegation {
    Delegation::new(config, Some(signer), Some(HOUSE)).unwrap()
}

fn with(chain: &str) -> HeaderMap {
    HeaderMap::from_iter([(CHAIN, HeaderValue::from_str(chain).unwrap())])
}

fn hop<'a>(caller: &'a str, agent: &'a str) -> Hop<'a> {
    Hop { caller, agent, call: "c-1" }
}

fn text(value: HeaderValue) -> String {
    value.to_str().unwrap().to_owned()
}

fn claims(signer: &Signer, chain: &str) -> Value {
    Trusted::from_jwks(&signer.jwks()).unwrap().claims(KIND, chain).unwrap()
}

#[track_caller]
fn refused(made: Result<HeaderValue>, status: u16, words: &str) {
    let fault = made.expect_err("a refusal");
    assert_eq!(fault.http_status(), status, "{fault}");
    assert!(fault.message().contains(words), "{fault}");
}

fn now() -> i64 {
    time::OffsetDateTime::now_utc().unix_timestamp()
}

/// A chain as this gateway signs it, but for what is changed.
fn forged(signer: &Signer, kind: &str, change: impl FnOnce(&mut Value)) -> HeaderMap {
    let mut claims = json!({"iss": HOUSE, "iat": now(), "exp": now() + 60, "sub": "key:app", "aud": "planner",
        "jti": "c-0", "chain": []});
    change(&mut claims);
    with(&signer.token(kind, &claims).unwrap())
}

#[test]
fn r87_a_chain_begins_with_the_caller_and_grows_by_each_call() {
    let signer = signer();
    let house = house(&signer, &Config::default());
    let first = text(house.extend(&HeaderMap::new(), &hop("key:app", "planner")).unwrap());
    let told = claims(&signer, &first);
    assert_eq!((&told["sub"], &told["aud"], &told["chain"]), (&json!("key:app"), &json!("planner"), &json!([])));
    assert_eq!(told["exp"].as_i64().unwrap() - told["iat"].as_i64().unwrap(), 600);
    let second = text(house.extend(&with(&first), &hop("key:planner", "writer")).unwrap());
    let told = claims(&signer, &second);
    assert_eq!((&told["sub"], &told["aud"]), (&json!("key:planner"), &json!("writer")));
    let actor = &told["chain"][0];
    assert_eq!((&actor["sub"], &actor["agent"], &actor["call"]), (&json!("key:app"), &json!("planner"), &json!("c-1")));
}

#[test]
fn r87_only_the_agent_that_a_chain_was_sent_to_goes_on_with_it() {
    let signer = signer();
    let actors = [("writer".to_owned(), vec!["oauth:acme/writer".parse().unwrap()])];
    let house = house(&signer, &Config { actors: actors.into(), ..Config::default() });
    let first = text(house.extend(&HeaderMap::new(), &hop("key:app", "writer")).unwrap());
    for stranger in
        ["key:app", "key:planner", "oauth:writer", "cert:writer", "anonymous", "key:writer2", "oauth:acme/writer2"]
    {
        refused(house.extend(&with(&first), &hop(stranger, "printer")), 403, "not sent to this caller");
    }
    for actor in ["key:writer", "oauth:acme/writer"] {
        house.extend(&with(&first), &hop(actor, "printer")).unwrap();
    }
}

#[test]
fn r87_loops_and_too_many_actors_are_stopped() {
    let signer = signer();
    let house_of = |config: &Config| house(&signer, config);
    let house = house_of(&Config::default());
    let mut chain = text(house.extend(&HeaderMap::new(), &hop("key:app", "agent-1")).unwrap());
    refused(house.extend(&with(&chain), &hop("key:agent-1", "agent-1")), 403, "loop");
    for at in 1..16 {
        let (caller, agent) = (format!("key:agent-{at}"), format!("agent-{}", at + 1));
        chain = text(house.extend(&with(&chain), &hop(&caller, &agent)).unwrap());
    }
    assert_eq!(claims(&signer, &chain)["chain"].as_array().unwrap().len(), 15);
    assert!(chain.len() < 6_000, "{}", chain.len());
    refused(house.extend(&with(&chain), &hop("key:agent-16", "agent-1")), 403, "too deep");
    refused(house.extend(&with(&chain), &hop("key:agent-16", "agent-17")), 403, "too deep");
    let freely = house_of(&Config { loops: Loops::Allow, most_actors: 2, ..Config::default() });
    let first = text(freely.extend(&HeaderMap::new(), &hop("key:app", "a")).unwrap());
    let second = text(freely.extend(&with(&first), &hop("key:a", "a")).unwrap());
    refused(freely.extend(&with(&second), &hop("key:a", "a")), 403, "too deep");
}

#[test]
fn r87_what_is_not_signed_by_a_trusted_gateway_is_refused() {
    let (own, other) = (signer(), signer());
    let house = house(&own, &Config::default());
    let next = hop("key:planner", "writer");
    for text in ["", "x", "a.b", "a.b.c", "a.b.c.d", "planner,writer", "e30.e30.e30", "eyJhbGciOiJub25lIn0.e30."] {
        refused(house.extend(&with(text), &next), 400, "no signed chain");
    }
    refused(house.extend(&with(&"a".repeat(LONGEST + 1)), &next), 400, "no signed chain");
    refused(house.extend(&forged(&other, KIND, |_| ()), &next), 403, "not signed by a gateway");
    let good = forged(&own, KIND, |_| ());
    house.extend(&good, &next).unwrap();
    let mut twice = good.clone();
    twice.append(CHAIN, good[CHAIN].clone());
    refused(house.extend(&twice, &next), 400, "no signed chain");
    // Claims of one, signature of another.
    let (mine, theirs) = (text(good[CHAIN].clone()), forged(&own, KIND, |claims| claims["sub"] = json!("key:root")));
    let swapped =
        format!("{}.{}", theirs[CHAIN].to_str().unwrap().rsplit_once('.').unwrap().0, mine.rsplit_once('.').unwrap().1);
    refused(house.extend(&with(&swapped), &next), 403, "not signed by a gateway");
    // A card's signature is none over a chain.
    refused(house.extend(&forged(&own, "JOSE", |_| ()), &next), 400, "no signed chain");
}

#[test]
fn r87_what_is_signed_and_says_the_wrong_thing_is_refused() {
    let own = signer();
    let house = house(&own, &Config::default());
    let next = hop("key:planner", "writer");
    let extend = |change: fn(&mut Value)| house.extend(&forged(&own, KIND, change), &next);
    refused(extend(|claims| claims["exp"] = json!(now() - 60)), 403, "expired");
    refused(extend(|claims| claims["iat"] = json!(now() + 3_600)), 403, "expired");
    refused(extend(|claims| claims["iss"] = json!("https://other.example")), 403, "not signed by a gateway");
    refused(extend(|claims| claims["exp"] = json!("soon")), 400, "no signed chain");
    refused(extend(|claims| claims["sub"] = json!("")), 400, "no signed chain");
    refused(extend(|claims| claims["jti"] = json!("x".repeat(600))), 400, "no signed chain");
    refused(extend(|claims| claims["chain"] = json!({})), 400, "no signed chain");
    refused(extend(|claims| claims["chain"] = json!([1])), 400, "no signed chain");
    refused(extend(|claims| drop(claims.as_object_mut().unwrap().remove("exp"))), 400, "no signed chain");
    let actor = json!({"iss": HOUSE, "sub": "key:x", "agent": "y", "call": "c", "iat": 1});
    let many = vec![actor; 40];
    refused(house.extend(&forged(&own, KIND, |claims| claims["chain"] = json!(many)), &next), 403, "too deep");
}

#[test]
fn r87_the_chains_of_a_trusted_gateway_are_gone_on_with_by_the_callers_named() {
    let (own, other) = (signer(), signer());
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("keys.json");
    fs::write(&path, other.jwks().to_string()).unwrap();
    let written = |issuer: &str| {
        let trusted = json!([{"issuer": issuer, "keys": path.to_str().unwrap(), "callers": ["cert:branch-*"]}]);
        serde_json::from_value::<Config>(json!({"trusted": trusted})).unwrap()
    };
    let house = house(&own, &written("https://branch.example"));
    let theirs = forged(&other, KIND, |claims| claims["iss"] = json!("https://branch.example"));
    let chain = text(house.extend(&theirs, &hop("cert:branch-1", "planner")).unwrap());
    // Their planner is not ours, so this is no loop.
    assert_eq!(claims(&own, &chain)["chain"][0]["iss"], "https://branch.example");
    refused(house.extend(&theirs, &hop("key:planner", "writer")), 403, "not sent to this caller");
    // Their key does not speak for this house.
    refused(
        house.extend(&forged(&other, KIND, |_| ()), &hop("cert:branch-1", "writer")),
        403,
        "not signed by a gateway",
    );
    let itself = Delegation::new(&written(HOUSE), Some(&own), Some(HOUSE)).unwrap_err();
    assert!(itself[0].contains("trusted[0].issuer"), "{itself:?}");
    fs::write(&path, "{}").unwrap();
    let broken = Delegation::new(&written("https://branch.example"), Some(&own), Some(HOUSE)).unwrap_err();
    assert!(broken[0].starts_with("trusted[0].keys:"), "{broken:?}");
}

#[test]
fn a_caller_that_must_go_on_with_a_chain_cannot_begin_one() {
    let signer = signer();
    let config = Config { required_of: vec!["key:agent-*".parse().unwrap()], ..Config::default() };
    let house = house(&signer, &config);
    house.extend(&HeaderMap::new(), &hop("key:app", "planner")).unwrap();
    refused(house.extend(&HeaderMap::new(), &hop("key:agent-1", "planner")), 403, "must send");
}

#[test]
fn problems_of_the_settings_are_all_told() {
    let config = serde_json::from_value::<Config>(json!({"lifetime": "0s", "most_actors": 17})).unwrap();
    let problems = Delegation::new(&config, None, None).unwrap_err();
    assert_eq!(problems.len(), 3, "{problems:?}");
    assert!(problems[2].contains("directory.signing_key"));
}

/// What a chain costs a call: about 0.2 ms where nothing is optimised, less than a tenth of that in a release.
#[test]
fn a_chain_is_read_and_written_in_less_than_five_milliseconds() {
    let signer = signer();
    let house = house(&signer, &Config::default());
    let first = with(&text(house.extend(&HeaderMap::new(), &hop("key:app", "planner")).unwrap()));
    let began = Instant::now();
    for _ in 0..100 {
        house.extend(&first, &hop("key:planner", "writer")).unwrap();
    }
    let each = began.elapsed() / 100;
    println!("verified, extended and signed in {each:?}");
    assert!(each.as_millis() < 5, "{each:?}");
}
