//! Verification of signed cards: invalid signatures are rejected, members outside the signature dropped.

use super::*;
use crate::seal::{Signer, Trusted};

fn signer() -> Signer {
    let pem = rcgen::KeyPair::generate_for(&rcgen::PKCS_ED25519).unwrap().serialize_pem();
    Signer::from_pem(&pem).unwrap()
}

fn modern(name: &str) -> Value {
    json!({
        "name": name, "description": "x", "version": "1", "skills": [], "capabilities": {},
        "supportedInterfaces": [{"url": "https://m.example/", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}]
    })
}

fn signed(signer: &Signer, mut card: Value) -> Value {
    signer.sign_card(&mut card, "https://publisher.example/keys");
    card
}

async fn seen(server: &Server, proof: Proof, cards: Value) -> Change {
    server.json("/.well-known/agents.json", json!({"agents": cards}));
    open(Kind::AgentUri, Web::local(&server.url), proof).next().await
}

#[tokio::test]
async fn r59_only_cards_with_a_valid_signature_are_accepted() {
    let (signer, stranger, server) = (signer(), signer(), Server::start().await);
    let trusted = Some(Arc::new(Trusted::from_jwks(&signer.jwks()).unwrap()));
    let mut forged = signed(&signer, modern("forged"));
    forged["supportedInterfaces"][0]["url"] = json!("https://evil.example/");
    let mut replayed = modern("replayed");
    replayed["signatures"] = signed(&signer, modern("good"))["signatures"].clone();
    let mut odd = modern("odd");
    odd["signatures"] = json!(7);
    let cards = json!({
        "good": signed(&signer, modern("good")), "forged": forged, "replayed": replayed, "odd": odd,
        "foreign": signed(&stranger, modern("foreign")), "bare": modern("bare")
    });
    let change = seen(&server, Proof { trusted: trusted.clone(), required: false }, cards.clone()).await;
    assert_eq!(ids(&change), ["bare", "good"]);
    let refused = refused(&change);
    assert!(refused.iter().all(|why| why.contains("signatures")), "{refused:?}");
    let change = seen(&server, Proof { trusted, required: true }, cards).await;
    assert_eq!(ids(&change), ["good"]);
    assert!(super::refused(&change).iter().any(|why| why.contains("'bare'") && why.contains("require_signed")));
}

#[tokio::test]
async fn r59_a_card_with_stripped_signatures_is_rejected_where_required() {
    let (signer, server) = (signer(), Server::start().await);
    let trusted = Some(Arc::new(Trusted::from_jwks(&signer.jwks()).unwrap()));
    for signatures in [Value::Null, json!([])] {
        let mut card = signed(&signer, modern("a"));
        card["signatures"] = signatures;
        let change = seen(&server, Proof { trusted: trusted.clone(), required: true }, json!({"a": card})).await;
        assert_eq!(refused(&change).len(), 1);
    }
}

#[tokio::test]
async fn r59_members_outside_the_signature_are_dropped() {
    let (signer, server) = (signer(), Server::start().await);
    let trusted = Some(Arc::new(Trusted::from_jwks(&signer.jwks()).unwrap()));
    let mut card = signed(&signer, modern("a"));
    card["authentication"] = json!({"schemes": ["none"]});
    card["url"] = json!("https://evil.example/");
    let change = seen(&server, Proof { trusted, required: true }, json!({"a": card})).await;
    let document = found(&change)[0].clone().unwrap();
    assert_eq!(document["endpoint"], "https://m.example/");
    assert_eq!(document["agent_card"].get("url"), None);
}

#[tokio::test]
async fn r59_without_keys_signatures_are_kept_and_not_verified() {
    let server = Server::start().await;
    let card = signed(&signer(), modern("a"));
    let change = seen(&server, Proof::default(), json!({"a": card.clone()})).await;
    assert_eq!(found(&change)[0].as_ref().unwrap()["agent_card"], card);
}
