//! Chains of delegation: what agents are told of who called whom, and what of it is refused.

use crate::support::{
    agent::Agent,
    gateway::{Build, Gate, gateway, send},
    reply::Answer,
};
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use serde_json::{Value, json};
use std::fs;

const CHAIN: &str = "x-delegation-chain";

/// A gateway that signs chains, with the agents `planner` and `writer`, who call others with keys of their own names.
async fn signing(planner: &Agent, writer: &Agent, delegation: &str) -> Gate {
    let build = gateway().agent("planner", planner).agent("writer", writer);
    let pair = rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).unwrap();
    fs::write(build.folder().join("own.pem"), pair.serialize_pem()).unwrap();
    with_keys(build)
        .section("directory:\n  url: https://house.example\n  signing_key: file:own.pem\n")
        .section(&format!("delegation:{delegation}\n"))
        .start()
        .await
}

fn with_keys(build: Build) -> Build {
    build.caller("planner", &[]).caller("writer", &[])
}

async fn call(gate: &Gate, caller: &str, agent: &str, chain: Option<&str>) -> Answer {
    let mut call = gate.request("POST", &format!("/agents/{agent}/invoke")).header("x-api-key", gate.key(caller));
    if let Some(chain) = chain {
        call = call.header(CHAIN, chain);
    }
    send(call.json(&json!({}))).await
}

fn chain_at(agent: &Agent) -> String {
    agent.got().last().unwrap().header(CHAIN).unwrap().to_owned()
}

fn claims(chain: &str) -> Value {
    let part = chain.split('.').nth(1).unwrap();
    serde_json::from_slice(&URL_SAFE_NO_PAD.decode(part).unwrap()).unwrap()
}

#[tokio::test]
async fn r85_r87_each_agent_is_told_who_called_whom_before() {
    let (planner, writer) = (Agent::echo().await, Agent::echo().await);
    let gate = signing(&planner, &writer, " {lifetime: 1m}").await;
    let first = call(&gate, "team-a", "planner", None).await;
    first.is_ok();
    let begun = claims(&chain_at(&planner));
    assert_eq!((&begun["iss"], &begun["sub"]), (&json!("https://house.example"), &json!("key:team-a")));
    assert_eq!((&begun["aud"], &begun["jti"]), (&json!("planner"), &json!(first.header("x-request-id").unwrap())));
    call(&gate, "planner", "writer", Some(&chain_at(&planner))).await.is_ok();
    let grown = claims(&chain_at(&writer));
    assert_eq!((&grown["sub"], &grown["aud"]), (&json!("key:planner"), &json!("writer")));
    assert_eq!(grown["chain"].as_array().unwrap().len(), 1);
    assert_eq!(grown["chain"][0]["sub"], "key:team-a");
    // Whoever wants to check it finds the key where the gateway publishes it.
    let keys = send(gate.request("GET", "/.well-known/jwks.json")).await.json();
    let head: Value =
        serde_json::from_slice(&URL_SAFE_NO_PAD.decode(chain_at(&writer).split('.').next().unwrap()).unwrap()).unwrap();
    assert_eq!(head["kid"], keys["keys"][0]["kid"]);
}

#[tokio::test]
async fn r87_what_is_forged_stolen_or_in_a_circle_is_refused_and_reaches_nobody() {
    let (planner, writer) = (Agent::echo().await, Agent::echo().await);
    let gate = signing(&planner, &writer, " {required_of: ['key:writer']}").await;
    call(&gate, "team-a", "planner", None).await.is_ok();
    let chain = chain_at(&planner);
    for nonsense in ["planner", "a.b.c", "key:team-a, key:planner", ""] {
        call(&gate, "planner", "writer", Some(nonsense)).await.is_fault(400, "InvalidInput");
    }
    let (head, signature) = chain.rsplit_once('.').unwrap();
    let mut bytes = URL_SAFE_NO_PAD.decode(signature).unwrap();
    bytes[10] ^= 1;
    let forged = format!("{head}.{}", URL_SAFE_NO_PAD.encode(bytes));
    call(&gate, "planner", "writer", Some(&forged)).await.is_fault(403, "PermissionDenied");
    call(&gate, "team-a", "writer", Some(&chain)).await.is_fault(403, "PermissionDenied");
    call(&gate, "writer", "planner", None).await.is_fault(403, "PermissionDenied");
    let circle = call(&gate, "planner", "planner", Some(&chain)).await.is_fault(403, "PermissionDenied");
    assert!(circle["message"].as_str().unwrap().contains("loop"), "{circle}");
    assert_eq!((planner.calls(), writer.calls()), (1, 0));
}

#[tokio::test]
async fn r87_a_look_alike_of_the_field_never_reaches_an_agent() {
    let (planner, writer) = (Agent::echo().await, Agent::echo().await);
    let gate = signing(&planner, &writer, " {}").await;
    let body = format!(
        "POST /agents/planner/invoke HTTP/1.1\r\nHost: x\r\nX-API-Key: {}\r\nX_Delegation_Chain: forged\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{{}}",
        gate.key("team-a")
    );
    let told = crate::support::reply::raw(gate.address(), body.as_bytes()).await.unwrap();
    assert!(told.status == 200 || told.status == 400, "{}", told.text());
    assert!(planner.got().iter().all(|got| !got.head.contains("forged")));
}

#[tokio::test]
async fn without_the_section_the_field_is_the_callers_own_word() {
    let planner = Agent::echo().await;
    let gate = with_keys(gateway().agent("planner", &planner)).start().await;
    call(&gate, "team-a", "planner", Some("app, planner")).await.is_ok();
    assert_eq!(chain_at(&planner), "app, planner");
    call(&gate, "team-a", "planner", None).await.is_ok();
    assert_eq!(planner.got()[1].header(CHAIN), None);
}
