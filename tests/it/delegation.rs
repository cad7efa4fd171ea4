//! Delegation chains: the signed chain of callers that agents receive, and the chains that the gateway refuses.

use crate::support::{
    agent::Agent,
    gateway::{Gateway, GatewayBuilder, gateway, send},
    gateway_response::GatewayResponse,
};
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use serde_json::{Value, json};
use std::fs;

const CHAIN_HEADER: &str = "x-delegation-chain";

/// A gateway that signs chains, with the agents `planner` and `writer`. Each agent is also a caller of the same name.
async fn signing_gateway(planner: &Agent, writer: &Agent, delegation: &str) -> Gateway {
    let build = gateway().agent("planner", planner).agent("writer", writer);
    let pair = rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).unwrap();
    fs::write(build.folder().join("own.pem"), pair.serialize_pem()).unwrap();
    with_agent_callers(build)
        .section("directory:\n  external_url: https://gateway.example\n  signing_key: file:own.pem\n")
        .section(&format!("delegation:{delegation}\n"))
        .start()
        .await
}

/// Adds the agents as callers.
fn with_agent_callers(build: GatewayBuilder) -> GatewayBuilder {
    build.caller("planner", &[]).caller("writer", &[])
}

async fn call(gate: &Gateway, caller: &str, agent: &str, chain: Option<&str>) -> GatewayResponse {
    let mut call = gate.request("POST", &format!("/agents/{agent}/invoke")).header("x-api-key", gate.key(caller));
    if let Some(chain) = chain {
        call = call.header(CHAIN_HEADER, chain);
    }
    send(call.json(&json!({}))).await
}

/// The chain that the agent received last.
fn last_chain(agent: &Agent) -> String {
    agent.requests().last().unwrap().header(CHAIN_HEADER).unwrap().to_owned()
}

fn claims(chain: &str) -> Value {
    let part = chain.split('.').nth(1).unwrap();
    serde_json::from_slice(&URL_SAFE_NO_PAD.decode(part).unwrap()).unwrap()
}

#[tokio::test]
async fn r85_r87_each_agent_receives_the_chain_of_callers() {
    let (planner, writer) = (Agent::echo().await, Agent::echo().await);
    let gate = signing_gateway(&planner, &writer, " {ttl: 1m}").await;
    let response = call(&gate, "team-a", "planner", None).await;
    response.expect_ok();
    let first_claims = claims(&last_chain(&planner));
    assert_eq!((&first_claims["iss"], &first_claims["sub"]), (&json!("https://gateway.example"), &json!("key:team-a")));
    let request_id = response.header("x-request-id").unwrap();
    assert_eq!((&first_claims["aud"], &first_claims["jti"]), (&json!("planner"), &json!(request_id)));
    call(&gate, "planner", "writer", Some(&last_chain(&planner))).await.expect_ok();
    let second_claims = claims(&last_chain(&writer));
    assert_eq!((&second_claims["sub"], &second_claims["aud"]), (&json!("key:planner"), &json!("writer")));
    assert_eq!(second_claims["chain"].as_array().unwrap().len(), 1);
    assert_eq!(second_claims["chain"][0]["sub"], "key:team-a");
    // The gateway publishes the key that verifies the chain.
    let keys = send(gate.request("GET", "/.well-known/jwks.json")).await.json();
    let chain = last_chain(&writer);
    let header = URL_SAFE_NO_PAD.decode(chain.split('.').next().unwrap()).unwrap();
    let header: Value = serde_json::from_slice(&header).unwrap();
    assert_eq!(header["kid"], keys["keys"][0]["kid"]);
}

#[tokio::test]
async fn r87_forged_stolen_missing_and_circular_chains_are_refused() {
    let (planner, writer) = (Agent::echo().await, Agent::echo().await);
    let gate = signing_gateway(&planner, &writer, " {required_for: ['key:writer']}").await;
    call(&gate, "team-a", "planner", None).await.expect_ok();
    let chain = last_chain(&planner);
    for malformed in ["planner", "a.b.c", "key:team-a, key:planner", ""] {
        call(&gate, "planner", "writer", Some(malformed)).await.expect_fault(400, "InvalidInput");
    }
    let (head, signature) = chain.rsplit_once('.').unwrap();
    let mut bytes = URL_SAFE_NO_PAD.decode(signature).unwrap();
    bytes[10] ^= 1;
    let forged = format!("{head}.{}", URL_SAFE_NO_PAD.encode(bytes));
    call(&gate, "planner", "writer", Some(&forged)).await.expect_fault(403, "PermissionDenied");
    call(&gate, "team-a", "writer", Some(&chain)).await.expect_fault(403, "PermissionDenied");
    call(&gate, "writer", "planner", None).await.expect_fault(403, "PermissionDenied");
    let error = call(&gate, "planner", "planner", Some(&chain)).await.expect_fault(403, "PermissionDenied");
    assert!(error["message"].as_str().unwrap().contains("loop"), "{error}");
    assert_eq!((planner.call_count(), writer.call_count()), (1, 0));
}

#[tokio::test]
async fn r87_a_header_with_underscores_does_not_reach_the_agent() {
    let (planner, writer) = (Agent::echo().await, Agent::echo().await);
    let gate = signing_gateway(&planner, &writer, " {}").await;
    let request = format!(
        "POST /agents/planner/invoke HTTP/1.1\r\nHost: x\r\nX-API-Key: {}\r\nX_Delegation_Chain: forged\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{{}}",
        gate.key("team-a")
    );
    let response = crate::support::gateway_response::send_raw(gate.address(), request.as_bytes()).await.unwrap();
    assert_eq!(response.status, 200, "the field is left out: {}", response.text());
    assert_eq!(planner.call_count(), 1);
    assert!(planner.requests().iter().all(|request| !request.head.contains("forged")));
}

#[tokio::test]
async fn without_the_section_the_header_is_forwarded_unchanged() {
    let planner = Agent::echo().await;
    let gate = with_agent_callers(gateway().agent("planner", &planner)).start().await;
    call(&gate, "team-a", "planner", Some("app, planner")).await.expect_ok();
    assert_eq!(last_chain(&planner), "app, planner");
    call(&gate, "team-a", "planner", None).await.expect_ok();
    assert_eq!(planner.requests()[1].header(CHAIN_HEADER), None);
}
