//! The work that checks of inputs may take: settings by rule, keywords that cannot be in force, and callers that leave.

use crate::support::{
    agent::Agent,
    gateway::{gateway, send},
};
use serde_json::{Value, json};
use std::time::Duration;

/// A document whose input takes some thousand units for each item.
fn slow_document(agent: &Agent, id: &str) -> Value {
    let mut document = agent.document(id);
    document["inputs"] = json!({"properties": {"a": {"items": {"anyOf": vec![json!({"const": "x"}); 500]}}}});
    document
}

#[tokio::test]
async fn r127_a_rule_sets_the_fuel_of_the_checks_of_its_agents() {
    let agent = Agent::echo().await;
    let section = "agents:\n  sources: [agents.json]\n  rules:\n    \
                   - {agents: [frugal], contract: {fuel: {floor: 10000, per_byte: 0}}}\n    \
                   - {agents: [lenient], contract: {input: report, fuel: {floor: 10000, per_byte: 0}}}\n";
    let gate = gateway()
        .document(slow_document(&agent, "frugal"))
        .document(slow_document(&agent, "lenient"))
        .document(slow_document(&agent, "general"))
        .section(section)
        .start()
        .await;
    let input = json!({"a": vec!["x"; 2_000]});
    gate.invoke("general", &input).await.expect_ok();
    gate.invoke("frugal", &json!({"a": ["x"]})).await.expect_ok();
    let fault = gate.invoke("frugal", &input).await.expect_fault(413, "PayloadTooLarge");
    assert!(fault["message"].as_str().unwrap().contains("takes too long to be checked"), "{fault}");
    gate.invoke("lenient", &input).await.expect_ok();
    assert_eq!(agent.call_count(), 3);
}

#[tokio::test]
async fn r127_an_agent_is_served_without_a_keyword_that_cannot_be_in_force_or_refused() {
    let agent = Agent::echo().await;
    let document = |id: &str| {
        let mut document = agent.document(id);
        let pattern = format!("{}a{}", "(".repeat(1_000), ")".repeat(1_000));
        document["inputs"] = json!({"properties": {"a": {"type": "string", "pattern": pattern}}});
        document
    };
    let section = "agents:\n  sources: [agents.json]\n  rules:\n    \
                   - {agents: [strict], contract: {unsupported: refuse}}\n";
    let gate = gateway().document(document("general")).document(document("strict")).section(section).start().await;
    gate.invoke("general", &json!({"a": "x"})).await.expect_ok();
    gate.invoke("general", &json!({"a": 1})).await.expect_fault(400, "InvalidInput");
    let sources = gate.admin_page("/sources").await.text();
    assert!(sources.contains("the keyword is not in force"), "{sources}");
    assert_eq!(gate.metric("gatepost_agents_partly_checked").await, Some(1.0));
    let page = gate.admin_page("/agents").await.json();
    let rejected = &page["rejected"][0];
    assert!(rejected["id"] == "strict" && rejected["reasons"][0].to_string().contains("is not in force"), "{page}");
}

#[tokio::test]
async fn r32_a_violation_names_its_keyword() {
    let agent = Agent::echo().await;
    let mut document = agent.document("strict");
    document["inputs"] = json!({"properties": {"a": {"type": "integer"}}, "required": ["a"]});
    let gate = gateway().document(document).start().await;
    let fault = gate.invoke("strict", &json!({"a": "x"})).await.expect_fault(400, "InvalidInput");
    assert_eq!(fault["details"][0]["keyword"], "type", "{fault}");
    let fault = gate.invoke("strict", &json!({})).await.expect_fault(400, "InvalidInput");
    assert_eq!(fault["details"][0]["keyword"], "required", "{fault}");
}

#[tokio::test]
async fn r127_a_suspended_check_ends_with_the_time_of_its_call() {
    let agent = Agent::echo().await;
    let section = "contract: {fuel: {floor: 100000000000, per_byte: 1000}}\n";
    let mut document = agent.document("endless");
    let mut alternatives = vec![json!({"const": "y"}); 4_000];
    alternatives.push(json!({"const": "x"}));
    document["inputs"] = json!({"properties": {"a": {"items": {"anyOf": alternatives}}}});
    let gate = gateway().document(document).section(section).start().await;
    let input = json!({"a": vec!["x"; 200_000]});
    let call = gate.post("/agents/endless/invoke").header("x-request-timeout", "0.3").json(&input);
    send(call).await.expect_fault(504, "Timeout");
    // A caller that leaves ends its check, too: the next calls find the threads idle.
    for _ in 0..3 {
        let call = gate.post("/agents/endless/invoke").json(&input);
        assert!(tokio::time::timeout(Duration::from_millis(300), send(call)).await.is_err(), "it goes on");
    }
    let started_at = std::time::Instant::now();
    gate.invoke("endless", &json!({"a": ["y"]})).await.expect_ok();
    assert!(started_at.elapsed() < Duration::from_secs(5), "{:?}", started_at.elapsed());
}
