//! Signatures of descriptors (R100): verified with the keys of the DID document of a `did:web`, of the host, or of the
//! operator; forged, expired and foreign ones are refused or reported.

use super::*;
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use jsonwebtoken::{Algorithm, EncodingKey};
use rcgen::KeyPair;

/// A key that signs descriptors.
struct DescriptorSigner {
    key: EncodingKey,
    jwk: Value,
}

impl DescriptorSigner {
    fn new() -> Self {
        let pair = KeyPair::generate().unwrap();
        let (x, y) = pair.public_key_raw()[1..].split_at(32);
        let jwk = json!({"kty": "EC", "crv": "P-256", "x": URL_SAFE_NO_PAD.encode(x), "y": URL_SAFE_NO_PAD.encode(y)});
        Self { key: EncodingKey::from_ec_der(&pair.serialize_der()), jwk }
    }

    fn jwk_with(&self, kid: &str) -> Value {
        let mut jwk = self.jwk.clone();
        jwk["kid"] = json!(kid);
        jwk
    }

    /// Signs a descriptor with this protected header, to which the algorithm is added.
    fn sign(&self, mut descriptor: Value, mut header: Value) -> Value {
        if header.get("alg").is_none() {
            header["alg"] = json!("ES256");
        }
        let protected = URL_SAFE_NO_PAD.encode(header.to_string());
        let payload = URL_SAFE_NO_PAD.encode(serde_json_canonicalizer::to_vec(&descriptor).unwrap());
        let message = format!("{protected}.{payload}");
        let signature = jsonwebtoken::crypto::sign(message.as_bytes(), &self.key, Algorithm::ES256).unwrap();
        descriptor["signatures"] = json!([{"protected": protected, "signature": signature}]);
        descriptor
    }
}

fn descriptor() -> Value {
    json!({"name": "Planner", "version": "1.0.0", "url": "/agent/planner"})
}

/// The `did:web` of the site.
fn site_did(site: &Site) -> String {
    format!("did:web:localhost%3A{}", site.address.port())
}

/// A DID document with one key for assertions, `#key-1`.
fn did_document(did: &str, signer: &DescriptorSigner) -> Value {
    json!({
        "id": did,
        "verificationMethod": [
            {"id": format!("{did}#key-1"), "type": "JsonWebKey2020", "controller": did, "publicKeyJwk": signer.jwk}
        ],
        "assertionMethod": [format!("{did}#key-1")]
    })
}

async fn resolve_name_of_did(gate: &Gateway, site: &Site, path: &str) -> GatewayResponse {
    resolve_uri(gate, &format!("agent://{}/{path}", site_did(site))).await
}

#[tokio::test]
async fn r100_a_descriptor_that_is_signed_by_its_did_is_verified() {
    let (site, gate) = start("").await;
    let (signer, did) = (DescriptorSigner::new(), site_did(&site));
    site.json("/.well-known/did.json", did_document(&did, &signer));
    for (index, header) in [
        json!({"kid": format!("{did}#key-1"), "typ": "JOSE"}),
        json!({"kid": "#key-1"}),
        json!({"kid": "key-1"}),
        json!({}),
        json!({"kid": "#key-1", "exp": 32_503_680_000_u64}),
    ]
    .into_iter()
    .enumerate()
    {
        site.json(&format!("/p{index}/agent.json"), signer.sign(descriptor(), header.clone()));
        let found = resolve_name_of_did(&gate, &site, &format!("p{index}")).await.expect_ok();
        assert_eq!(found["signature"], "verified", "{header}: {found}");
        assert_eq!(found["signature_reason"], Value::Null);
        assert_eq!(found["endpoint"], site.url("/agent/planner"));
    }
    assert_eq!(site.request_count("/.well-known/did.json"), 1, "the document is cached");
    // What a signature over the members of an A2A card does not cover is dropped.
    let card = json!({
        "name": "Planner", "description": "Plans", "version": "1.0.0", "skills": [{"id": "plan", "name": "Plan", "description": "Plans", "tags": ["x"]}],
        "supportedInterfaces": [{"url": site.url("/agent/a2a"), "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}]
    });
    let mut extended = signer.sign(card, json!({"kid": "#key-1"}));
    extended["endpoint"] = json!("/agent/evil");
    extended["supportedVersions"] = json!({"9.0.0": "/agent/evil"});
    site.json("/extended/agent.json", extended);
    let found = resolve_name_of_did(&gate, &site, "extended").await.expect_ok();
    assert_eq!((&found["signature"], &found["endpoint"]), (&json!("verified"), &json!(site.url("/agent/a2a"))));
}

/// Descriptors whose signatures do not hold, by the reason that is reported.
fn invalid_descriptors(site: &Site, signer: &DescriptorSigner) -> Vec<(&'static str, Value)> {
    let (stranger, did) = (DescriptorSigner::new(), site_did(site));
    let kid = format!("{did}#key-1");
    let header = |kid: &str| json!({"kid": kid});
    let mut forged = signer.sign(descriptor(), header(&kid));
    forged["url"] = json!("/agent/evil");
    let mut cut = signer.sign(descriptor(), header(&kid));
    cut["signatures"][0]["signature"] = json!("AA");
    let mut no_algorithm = signer.sign(descriptor(), json!({"kid": kid, "alg": "none"}));
    no_algorithm["signatures"][0]["signature"] = json!("");
    vec![
        ("was changed", forged),
        ("was changed", cut),
        ("was changed", stranger.sign(descriptor(), header(&kid))),
        ("has expired", signer.sign(descriptor(), json!({"kid": kid, "exp": 1_600_000_000}))),
        ("no trusted key", no_algorithm),
        ("no trusted key", signer.sign(descriptor(), json!({"kid": kid, "alg": "HS256"}))),
    ]
}

#[tokio::test]
async fn r100_a_forged_expired_or_foreign_signature_is_refused() {
    let (site, gate) = start("").await;
    let signer = DescriptorSigner::new();
    site.json("/.well-known/did.json", did_document(&site_did(&site), &signer));
    let mut cases = invalid_descriptors(&site, &signer);
    // The key of another DID, also where that DID has published it.
    let other = DescriptorSigner::new();
    site.json("/other/did.json", did_document(&format!("{}:other", site_did(&site)), &other));
    let kid = format!("{}:other#key-1", site_did(&site));
    cases.push(("no trusted key", other.sign(descriptor(), json!({"kid": kid}))));
    cases.push(("at most 8", {
        let mut many = signer.sign(descriptor(), json!({}));
        many["signatures"] = json!(vec![many["signatures"][0].clone(); 9]);
        many
    }));
    for (index, (reason, descriptor)) in cases.into_iter().enumerate() {
        site.json(&format!("/f{index}/agent.json"), descriptor.clone());
        let answer = resolve_name_of_did(&gate, &site, &format!("f{index}")).await;
        answer.expect_fault(502, "AgentError");
        assert!(answer.text().contains("signature"), "{reason}: {}", answer.text());
        let logged = gate.access_log(index + 1).await[index].to_string();
        assert!(logged.contains(reason), "{reason}: {logged}");
    }
}

#[tokio::test]
async fn r100_an_invalid_signature_is_reported_where_the_setting_says_so() {
    let (site, gate) = start("resolver: {allowed_addresses: [127.0.0.0/8], signatures: report}\n").await;
    let signer = DescriptorSigner::new();
    site.json("/.well-known/did.json", did_document(&site_did(&site), &signer));
    for (index, (reason, descriptor)) in invalid_descriptors(&site, &signer).into_iter().enumerate() {
        site.json(&format!("/f{index}/agent.json"), descriptor);
        let found = resolve_name_of_did(&gate, &site, &format!("f{index}")).await.expect_ok();
        assert_eq!(found["signature"], "invalid", "{reason}: {found}");
        assert!(found["signature_reason"].as_str().unwrap().contains(reason), "{reason}: {found}");
    }
}

#[tokio::test]
async fn r100_without_the_did_document_a_signature_is_not_verified_and_required_ones_are_503() {
    for (policy, answers) in [("refuse_invalid", true), ("require", false)] {
        let section = format!("resolver: {{allowed_addresses: [127.0.0.0/8], signatures: {policy}}}\n");
        let (site, gate) = start(&section).await;
        let signer = DescriptorSigner::new();
        site.json("/p/agent.json", signer.sign(descriptor(), json!({"kid": "#key-1"})));
        let answer = resolve_name_of_did(&gate, &site, "p").await;
        if answers {
            let found = answer.expect_ok();
            assert_eq!(found["signature"], "not verified", "{found}");
            assert_eq!(found["signature_reason"], "the DID document could not be read");
        } else {
            answer.expect_fault(503, "AgentUnavailable");
        }
    }
    // The document of another DID, a DID without keys, and a revoked key.
    let (site, gate) = start("").await;
    let (signer, did) = (DescriptorSigner::new(), site_did(&site));
    let mut revoked = did_document(&format!("{did}:revoked"), &signer);
    revoked["verificationMethod"][0]["revoked"] = json!("2024-01-01T00:00:00Z");
    for (path, document, refused) in [
        ("other", did_document("did:web:b.example", &signer), false),
        ("bare", json!({"id": format!("{did}:bare")}), true),
        ("revoked", revoked, true),
    ] {
        site.json(&format!("/{path}/did.json"), document);
        site.json(&format!("/{path}/agent.json"), signer.sign(descriptor(), json!({})));
        let answer = resolve_uri(&gate, &format!("agent://{did}:{path}")).await;
        if refused {
            answer.expect_fault(502, "AgentError");
        } else {
            assert_eq!(answer.expect_ok()["signature"], "not verified", "{path}");
        }
    }
}

#[tokio::test]
async fn r100_the_descriptors_of_a_host_are_verified_with_its_keys_or_those_of_the_operator() {
    let (site, gate) = start("").await;
    let (signer, stranger) = (DescriptorSigner::new(), DescriptorSigner::new());
    site.json("/.well-known/jwks.json", json!({"keys": [signer.jwk_with("k1")]}));
    let mut forged = signer.sign(descriptor(), json!({"kid": "k1"}));
    forged["url"] = json!("/agent/evil");
    site.json("/good/agent.json", signer.sign(descriptor(), json!({"kid": "k1"})));
    // The keys at this path may be for another purpose; a key that the signature names is not fetched.
    let foreign = json!({"kid": "k2", "jku": site.url("/keys.json")});
    site.json("/foreign/agent.json", stranger.sign(descriptor(), foreign));
    site.json("/keys.json", json!({"keys": [stranger.jwk_with("k2")]}));
    site.json("/forged/agent.json", forged);
    assert_eq!(resolve_uri(&gate, &site.agent_uri("/good")).await.expect_ok()["signature"], "verified");
    let found = resolve_uri(&gate, &site.agent_uri("/foreign")).await.expect_ok();
    assert_eq!(found["signature"], "not verified", "{found}");
    assert_eq!(site.request_count("/keys.json"), 0);
    resolve_uri(&gate, &site.agent_uri("/forged")).await.expect_fault(502, "AgentError");
    // Keys at another server are not those of the host.
    let authority = CertificateAuthority::new("Sites");
    let (own, other) = (Site::start(&authority).await, Site::start(&authority).await);
    let gate = gateway_trusting(&authority).start().await;
    other.json("/keys.json", json!({"keys": [signer.jwk_with("k1")]}));
    own.put("/.well-known/jwks.json", Page::new(302, "").header("location", &other.url("/keys.json")));
    own.json("/p/agent.json", signer.sign(descriptor(), json!({"kid": "k1"})));
    assert_eq!(resolve_uri(&gate, &own.agent_uri("/p")).await.expect_ok()["signature"], "not verified");
    // The operator's keys replace those of hosts.
    let authority = CertificateAuthority::new("Sites");
    let site = Site::start(&authority).await;
    let build = gateway_trusting(&authority);
    let keys = build.folder().join("publishers.json");
    std::fs::write(&keys, json!({"keys": [stranger.jwk_with("k2")]}).to_string()).unwrap();
    let section = format!("resolver: {{allowed_addresses: [127.0.0.0/8], publisher_jwks: {}}}\n", keys.display());
    let gate = build.section(&section).start().await;
    site.json("/.well-known/jwks.json", json!({"keys": [signer.jwk_with("k1")]}));
    site.json("/operators/agent.json", stranger.sign(descriptor(), json!({"kid": "k2"})));
    site.json("/hosts/agent.json", signer.sign(descriptor(), json!({"kid": "k1"})));
    assert_eq!(resolve_uri(&gate, &site.agent_uri("/operators")).await.expect_ok()["signature"], "verified");
    resolve_uri(&gate, &site.agent_uri("/hosts")).await.expect_fault(502, "AgentError");
    assert_eq!(site.request_count("/.well-known/jwks.json"), 0);
    // A reload reads the file again.
    std::fs::write(&keys, json!({"keys": [signer.jwk_with("k1")]}).to_string()).unwrap();
    gate.send_signal(rustix::process::Signal::HUP);
    eventually("the new keys are in force", async || resolve_uri(&gate, &site.agent_uri("/hosts")).await.status == 200)
        .await;
    resolve_uri(&gate, &site.agent_uri("/operators")).await.expect_fault(502, "AgentError");
}

#[tokio::test]
async fn r100_where_signatures_are_required_only_verified_descriptors_lead_to_agents() {
    let authority = CertificateAuthority::new("Sites");
    let site = Site::start(&authority).await;
    let signer = DescriptorSigner::new();
    let section = format!(
        "resolver: {{allowed_addresses: [127.0.0.0/8], signatures: require, map: {{'agent://mapped': '{}'}}}}\n",
        site.url("/agent/mapped")
    );
    let gate = gateway_trusting(&authority)
        .document(json!({"id": "a", "name": "a", "endpoint": site.agent_uri("/good"), "authentication": {"type": "api_key"}}))
        .document(json!({"id": "b", "name": "b", "endpoint": site.agent_uri("/plain"), "authentication": {"type": "api_key"}}))
        .section(&section)
        .start()
        .await;
    site.json("/.well-known/jwks.json", json!({"keys": [signer.jwk_with("k1")]}));
    site.json("/good/agent.json", signer.sign(descriptor(), json!({"kid": "k1"})));
    site.json("/plain/agent.json", descriptor());
    site.json("/proof/agent.json", json!({"name": "P", "url": "/agent", "proof": {"type": "DataIntegrityProof"}}));
    assert_eq!(resolve_uri(&gate, &site.agent_uri("/good")).await.expect_ok()["signature"], "verified");
    resolve_uri(&gate, &site.agent_uri("/plain")).await.expect_fault(502, "AgentError");
    resolve_uri(&gate, &site.agent_uri("/proof")).await.expect_fault(503, "AgentUnavailable");
    // https without a descriptor.
    resolve_uri(&gate, &site.agent_uri("/unpublished")).await.expect_fault(502, "AgentError");
    assert_eq!(resolve_uri(&gate, "agent://mapped").await.expect_ok()["endpoint"], site.url("/agent/mapped"));
    // A signed descriptor that leads to another name proves nothing about that name.
    let other_host = format!("agent://127.0.0.1:{}/plain", site.address.port());
    for (path, next) in [("/chain", &*site.agent_uri("/plain")), ("/away", &*other_host)] {
        let chain = json!({"name": "C", "version": "1.0.0", "url": next});
        site.json(&format!("{path}/agent.json"), signer.sign(chain, json!({"kid": "k1"})));
        resolve_uri(&gate, &site.agent_uri(path)).await.expect_fault(502, "AgentError");
    }
    // Nor does an unsigned one that leads to a signed one.
    site.json("/unsigned/agent.json", json!({"name": "U", "url": site.agent_uri("/good")}));
    resolve_uri(&gate, &site.agent_uri("/unsigned")).await.expect_fault(502, "AgentError");
    let chain = json!({"name": "C", "version": "1.0.0", "url": site.agent_uri("/good")});
    site.json("/good-chain/agent.json", signer.sign(chain, json!({"kid": "k1"})));
    assert_eq!(resolve_uri(&gate, &site.agent_uri("/good-chain")).await.expect_ok()["signature"], "verified");
    // Calls by name obey too.
    assert_eq!(gate.invoke("a", &json!({})).await.expect_ok()["target"], "/agent/planner");
    gate.invoke("b", &json!({})).await.expect_fault(502, "AgentError");
}

#[tokio::test]
async fn r100_many_large_signed_descriptors_are_verified_in_turn() {
    let (site, gate) = start("resolver: {allowed_addresses: [127.0.0.0/8], resolution_timeout: 1m}\n").await;
    let signer = DescriptorSigner::new();
    site.json("/.well-known/jwks.json", json!({"keys": vec![signer.jwk.clone(); 90]}));
    let mut large = descriptor();
    large["description"] = json!("x".repeat(500_000));
    large["skills"] = json!(vec![json!({"id": "s", "name": "é", "tags": []}); 2_000]);
    site.json("/large/agent.json", signer.sign(large, json!({})));
    let uri = site.agent_uri("/large");
    let answers = futures_util::future::join_all((0..24).map(|_| resolve_uri(&gate, &uri))).await;
    for answer in answers {
        assert_eq!(answer.expect_ok()["signature"], "verified");
    }
}

#[tokio::test]
async fn r100_keys_are_fetched_from_permitted_addresses_only() {
    let authority = CertificateAuthority::new("Sites");
    let site = Site::start(&authority).await;
    let trap = tokio::net::TcpListener::bind("127.0.0.2:0").await.unwrap();
    let (signer, trap_port) = (DescriptorSigner::new(), trap.local_addr().unwrap().port());
    let section = format!(
        "resolver:\n  allowed_addresses: [127.0.0.1]\n  map: {{'agent://did:web:127.0.0.2%3A{trap_port}': '{}'}}\n",
        site.url("/p/agent.json")
    );
    let gate = gateway_trusting(&authority).section(&section).start().await;
    site.json("/p/agent.json", signer.sign(descriptor(), json!({})));
    // The DID document would be at the trap.
    let found = resolve_uri(&gate, &format!("agent://did:web:127.0.0.2%3A{trap_port}")).await.expect_ok();
    assert_eq!((&found["signature"], &found["endpoint"]), (&json!("not verified"), &json!(site.url("/agent/planner"))));
    // The keys of the host are moved there.
    let moved = format!("https://127.0.0.2:{trap_port}/keys.json");
    site.put("/.well-known/jwks.json", Page::new(302, "").header("location", &moved));
    let found = resolve_uri(&gate, &site.agent_uri("/p")).await.expect_ok();
    assert_eq!(found["signature"], "not verified", "{found}");
    let connection = tokio::time::timeout(Duration::from_millis(200), trap.accept()).await;
    assert!(connection.is_err(), "the gateway connected to a forbidden address");
}
