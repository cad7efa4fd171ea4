//! Verification of signed cards: invalid signatures are rejected, members outside the signature dropped.

use super::*;
use crate::signing::{SigningKey, TrustedKeys};
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use std::time::{Duration, Instant};

fn signer() -> SigningKey {
    let pem = rcgen::KeyPair::generate_for(&rcgen::PKCS_ED25519).unwrap().serialize_pem();
    SigningKey::from_pem(&pem).unwrap()
}

fn card_1_0(name: &str) -> Value {
    json!({
        "name": name, "description": "x", "version": "1", "skills": [], "capabilities": {},
        "supportedInterfaces": [{"url": "https://m.example/", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}]
    })
}

fn sign(signer: &SigningKey, mut card: Value) -> Value {
    signer.sign_card(&mut card, "https://publisher.example/keys");
    card
}

async fn poll_cards(server: &FakeRegistryServer, signature_policy: SignaturePolicy, cards: Value) -> PollResult {
    server.json("/.well-known/agents.json", json!({"agents": cards}));
    open_feed(ConditionalClient::for_test(&server.url), feed_settings(SourceKind::AgentUri, signature_policy))
        .poll()
        .await
}

#[tokio::test]
async fn r59_only_cards_with_a_valid_signature_are_accepted() {
    let (signer, stranger, server) = (signer(), signer(), FakeRegistryServer::start().await);
    let trusted = Some(Arc::new(TrustedKeys::from_jwks(&signer.jwks()).unwrap()));
    let mut forged = sign(&signer, card_1_0("forged"));
    forged["supportedInterfaces"][0]["url"] = json!("https://evil.example/");
    let mut replayed = card_1_0("replayed");
    replayed["signatures"] = sign(&signer, card_1_0("good"))["signatures"].clone();
    let mut odd = card_1_0("odd");
    odd["signatures"] = json!(7);
    let cards = json!({
        "good": sign(&signer, card_1_0("good")), "forged": forged, "replayed": replayed, "odd": odd,
        "foreign": sign(&stranger, card_1_0("foreign")), "bare": card_1_0("bare")
    });
    let result = poll_cards(
        &server,
        SignaturePolicy { trusted_keys: trusted.clone(), ..SignaturePolicy::default() },
        cards.clone(),
    )
    .await;
    assert_eq!(ids(&result), ["bare", "good"]);
    let reasons = rejection_reasons(&result);
    assert!(reasons.iter().all(|why| why.contains("signatures")), "{reasons:?}");
    let result = poll_cards(
        &server,
        SignaturePolicy { trusted_keys: trusted, require_signature: true, ..SignaturePolicy::default() },
        cards,
    )
    .await;
    assert_eq!(ids(&result), ["good"]);
    assert!(
        super::rejection_reasons(&result).iter().any(|why| why.contains("'bare'") && why.contains("require_signature"))
    );
}

#[tokio::test]
async fn r59_a_card_with_stripped_signatures_is_rejected_where_required() {
    let (signer, server) = (signer(), FakeRegistryServer::start().await);
    let trusted = Some(Arc::new(TrustedKeys::from_jwks(&signer.jwks()).unwrap()));
    for signatures in [Value::Null, json!([])] {
        let mut card = sign(&signer, card_1_0("a"));
        card["signatures"] = signatures;
        let result = poll_cards(
            &server,
            SignaturePolicy { trusted_keys: trusted.clone(), require_signature: true, ..SignaturePolicy::default() },
            json!({"a": card}),
        )
        .await;
        assert_eq!(rejection_reasons(&result).len(), 1);
    }
}

#[tokio::test]
async fn r59_members_outside_the_signature_are_dropped() {
    let (signer, server) = (signer(), FakeRegistryServer::start().await);
    let trusted = Some(Arc::new(TrustedKeys::from_jwks(&signer.jwks()).unwrap()));
    let mut card = sign(&signer, card_1_0("a"));
    card["authentication"] = json!({"schemes": ["none"]});
    card["url"] = json!("https://evil.example/");
    let result = poll_cards(
        &server,
        SignaturePolicy { trusted_keys: trusted, require_signature: true, ..SignaturePolicy::default() },
        json!({"a": card}),
    )
    .await;
    let document = poll_documents(&result)[0].clone().unwrap();
    assert_eq!(document["endpoint"], "https://m.example/");
    assert_eq!(document["agent_card"].get("url"), None);
}

#[tokio::test]
async fn r59_without_keys_signatures_are_kept_and_not_verified() {
    let server = FakeRegistryServer::start().await;
    let card = sign(&signer(), card_1_0("a"));
    let result = poll_cards(&server, SignaturePolicy::default(), json!({"a": card.clone()})).await;
    assert_eq!(poll_documents(&result)[0].as_ref().unwrap()["agent_card"], card);
}

#[tokio::test]
async fn r100_the_descriptors_of_a_domain_are_verified_with_the_keys_that_it_publishes() {
    let (signer, stranger, server) = (signer(), signer(), FakeRegistryServer::start().await);
    let descriptor = |name: &str| json!({"name": name, "version": "1.0.0", "url": format!("https://{name}.example/"), "capabilities": [{"name": "do"}]});
    let mut forged = sign(&signer, descriptor("forged"));
    forged["url"] = json!("https://evil.example/");
    server.json(
        "/.well-known/agents.json",
        json!({"agents": {
            "good": sign(&signer, descriptor("good")), "foreign": sign(&stranger, descriptor("foreign")),
            "forged": forged, "bare": descriptor("bare"), "linked": "/linked/agent.json"
        }}),
    );
    server.json("/linked/agent.json", sign(&signer, descriptor("linked")));
    let policy = SignaturePolicy { reads_domain_keys: true, require_signature: true, trusted_keys: None };
    let mut feed = open_feed(ConditionalClient::for_test(&server.url), feed_settings(SourceKind::AgentUri, policy));
    // Without keys the poll fails, and no agent is lost.
    let failed = feed.poll().await;
    assert!(failed.error.as_deref().is_some_and(|why| why.contains("jwks.json")), "{:?}", failed.error);
    server.json("/.well-known/jwks.json", json!({"keys": "none"}));
    assert!(feed.poll().await.error.is_some());
    server.json("/.well-known/jwks.json", signer.jwks());
    let result = feed.poll().await;
    assert_eq!(ids(&result), ["good", "linked"]);
    assert_eq!(rejection_reasons(&result).len(), 3);
    feed.acknowledge();
    // With other keys, every document is verified again.
    server.json("/.well-known/jwks.json", stranger.jwks());
    assert_eq!(ids(&feed.poll().await), ["foreign"]);
}

#[tokio::test]
async fn r100_keys_of_a_domain_that_became_unreadable_fail_every_poll() {
    let (signer, stranger) = (signer(), signer());
    let (server, other) = (FakeRegistryServer::start().await, FakeRegistryServer::start().await);
    server.json("/.well-known/agents.json", json!({"agents": {"good": sign(&signer, card_1_0("good"))}}));
    other.json("/jwks.json", stranger.jwks());
    let policy = SignaturePolicy { reads_domain_keys: true, require_signature: true, trusted_keys: None };
    let mut feed = open_feed(ConditionalClient::for_test(&server.url), feed_settings(SourceKind::AgentUri, policy));
    for (unreadable, reason) in [
        (Text("no JSON".to_owned()), "is not JSON"),
        (Json(json!({"keys": "none"})), "jwks.json"),
        (Moved(format!("{}/jwks.json", other.url)), "redirects to another server"),
    ] {
        server.json("/.well-known/jwks.json", signer.jwks());
        assert_eq!(poll_and_acknowledge(&mut feed).await.error, None);
        server.put("/.well-known/jwks.json", unreadable);
        for poll in 1..=3 {
            let error = feed.poll().await.error;
            assert!(error.as_deref().is_some_and(|why| why.contains(reason)), "{reason}, poll {poll}: {error:?}");
        }
    }
}

#[tokio::test]
async fn r100_with_other_keys_documents_that_cannot_be_fetched_are_verified_again_and_not_lost() {
    let (signer, stranger, server) = (signer(), signer(), FakeRegistryServer::start().await);
    let inline = sign(&stranger, card_1_0("inline"));
    server.json("/.well-known/agents.json", json!({"agents": {"linked": "/linked/agent.json", "inline": inline}}));
    server.json("/linked/agent.json", sign(&signer, card_1_0("linked")));
    server.json("/.well-known/jwks.json", signer.jwks());
    let policy = SignaturePolicy { reads_domain_keys: true, require_signature: true, trusted_keys: None };
    let mut feed = open_feed(ConditionalClient::for_test(&server.url), feed_settings(SourceKind::AgentUri, policy));
    assert_eq!(ids(&poll_and_acknowledge(&mut feed).await), ["linked"]);
    server.put("/linked/agent.json", Status(500));
    // Another member beside the same keys, then one key more: the document stays as it is.
    let (mut renamed, mut more) = (signer.jwks(), signer.jwks());
    renamed["issued_at"] = json!(1);
    more["keys"].as_array_mut().unwrap().extend(stranger.jwks()["keys"].as_array().unwrap().clone());
    server.json("/.well-known/jwks.json", renamed);
    let result = feed.poll().await;
    assert!(result.parts.iter().all(|part| !matches!(part.update, PartUpdate::Replaced(_))), "{result:?}");
    server.json("/.well-known/jwks.json", more);
    assert_eq!(ids(&poll_and_acknowledge(&mut feed).await), ["inline", "linked"]);
    // Its key is withdrawn: it is rejected although its server does not answer.
    server.json("/.well-known/jwks.json", stranger.jwks());
    let result = poll_and_acknowledge(&mut feed).await;
    assert_eq!(ids(&result), ["inline"]);
    let reasons = rejection_reasons(&result);
    assert!(reasons.len() == 1 && reasons[0].contains("is by no trusted key"), "{reasons:?}");
    server.json("/.well-known/jwks.json", signer.jwks());
    assert_eq!(ids(&feed.poll().await), ["linked"], "the key is back");
}

#[tokio::test]
async fn r100_a_domain_that_chooses_keys_and_signatures_buys_few_checks_and_none_on_the_threads_of_calls() {
    let (signer, server) = (signer(), FakeRegistryServer::start().await);
    // Keys without ids match every signature.
    let keys: Vec<Value> = (0..98)
        .map(|_| {
            let mut key = self::signer().jwks()["keys"][0].take();
            key.as_object_mut().unwrap().remove("kid");
            key
        })
        .collect();
    server.json("/.well-known/jwks.json", json!({"keys": keys}));
    let mut heavy = sign(&signer, card_1_0("heavy"));
    let signatures = heavy["signatures"].as_array().unwrap().clone();
    heavy["signatures"] = signatures.iter().cycle().take(8).cloned().collect();
    for signature in heavy["signatures"].as_array_mut().unwrap() {
        let header = json!({"alg": "Ed25519", "typ": "JOSE"}).to_string();
        signature["protected"] = json!(URL_SAFE_NO_PAD.encode(header));
    }
    let cards: serde_json::Map<_, _> = (0..64).map(|at| (format!("a{at}"), heavy.clone())).collect();
    server.json("/.well-known/agents.json", json!({"agents": cards}));
    let policy = SignaturePolicy { reads_domain_keys: true, require_signature: true, trusted_keys: None };
    let mut feed = open_feed(ConditionalClient::for_test(&server.url), feed_settings(SourceKind::AgentUri, policy));
    // This runtime has one thread, and it stays free while the documents are checked.
    let longest_pause = Arc::new(Mutex::new(Duration::ZERO));
    let ticks = tokio::spawn({
        let longest_pause = Arc::clone(&longest_pause);
        async move {
            loop {
                let began = Instant::now();
                tokio::time::sleep(Duration::from_millis(1)).await;
                let pause = began.elapsed();
                let mut longest = longest_pause.lock();
                *longest = pause.max(*longest);
            }
        }
    });
    let began = Instant::now();
    let result = feed.poll().await;
    ticks.abort();
    let (longest_pause, total) = (*longest_pause.lock(), began.elapsed());
    assert!(longest_pause * 4 < total, "{longest_pause:?} of {total:?}");
    let reasons = rejection_reasons(&result);
    assert!(reasons.len() == 64 && reasons.iter().all(|why| why.contains("too many checks")), "{reasons:?}");
}
