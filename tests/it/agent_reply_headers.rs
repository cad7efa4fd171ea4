//! Header fields of an agent's answer that callers read as the gateway's: they do not pass.

use crate::support::{
    agent::{Agent, write},
    gateway::{gateway, send},
};
use serde_json::json;

/// What only the gateway says, with a value that the gateway does not use.
const FIELDS: [&str; 8] = [
    "Link",
    "X-Task-Id",
    "Idempotent-Replayed",
    "X-Delegation-Chain",
    "Preference-Applied",
    "X-Should-Retry",
    "Operation-Location",
    "Location",
];

#[tokio::test]
async fn r68_fields_that_only_the_gateway_writes_do_not_pass_from_agents() {
    let forged = FIELDS.map(|name| format!("{name}: forged\r\n")).concat();
    let agent = Agent::scripted(move |request: &crate::support::agent::ReceivedRequest| {
        let status = if request.body.starts_with(b"{\"fail\"") { "422 Unprocessable" } else { "200 OK" };
        vec![write(format!(
            "HTTP/1.1 {status}\r\nContent-Type: application/json\r\n{forged}X-Own: passes\r\nContent-Length: 2\r\n\r\n{{}}"
        ))]
    })
    .await;
    let section = "agents:\n  sources: [agents.json]\n  rules:\n    - {agents: [a], api: {base: 'http://ADDRESS/', routes: [{methods: [POST], path: /**}]}}\n";
    let section = section.replace("ADDRESS", &agent.address.to_string());
    let gate = gateway().agent("a", &agent).section(&section).section("tasks: {}\n").start().await;
    let own_api = gate.url("/agents/a/api/");
    for path in ["/agents/a/invoke", "/agents/a/api/x"] {
        for key in [None, Some("one")] {
            for input in [json!({}), json!({"fail": true})] {
                let key = key.map(|key| format!("{key}{}{input}", path.len()));
                for repeated in [false, true] {
                    let call = gate.post(path).json(&input);
                    let answer = send(key.iter().fold(call, |call, key| call.header("idempotency-key", key))).await;
                    let own: Vec<_> = {
                        // A reference below the agent's own API is one below the gateway.
                        let is_forged = |value: &str| value.contains("forged") && !value.starts_with(&own_api);
                        answer.headers.iter().filter(|(_, value)| is_forged(value)).collect()
                    };
                    assert!(own.is_empty(), "{path} {key:?} {input}: {own:?}");
                    if repeated && key.is_some() && !path.contains("api") {
                        assert_eq!(answer.header("idempotent-replayed"), Some("true"), "the gateway's own field");
                    }
                }
            }
        }
    }
    let passes = send(gate.post("/agents/a/invoke").json(&json!({}))).await;
    assert_eq!(passes.header("x-own"), Some("passes"));
    let task = send(gate.post("/agents/a/invoke").header("prefer", "respond-async, wait=5").json(&json!({}))).await;
    assert!(task.header("x-task-id").is_some_and(|id| id != "forged"), "{:?}", task.headers);
}
