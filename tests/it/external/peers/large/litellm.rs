//! LiteLLM's proxy, a server of OpenAI's API, as agents: its answers, its streams and its errors.

use crate::{
    external::peers::server::PeerServer,
    support::gateway::{gateway, send},
};
use serde_json::json;

const PEER: &str = "peers/litellm";
const RULES: &str = "agents:
  sources: [agents.json]
  defaults:
    credential: {value: env:LITELLM_KEY, destinations: {sources: [files]}}
  rules:
    - {agents: ['*'], endpoint: {kind: openai, model: '{id}', parameters: {temperature: 0}}}
    - {agents: [missing], endpoint: {kind: openai, model: nonexistent}}
";

#[tokio::test]
async fn r11_the_models_of_litellm_are_agents() {
    let server = PeerServer::start(PEER, &["config.yaml"], |python, port| {
        python.args(["-c", "from litellm import run_server; run_server()", "--config", "config.yaml"]);
        python.args(["--host", "127.0.0.1", "--port", &port.to_string(), "--telemetry", "False"]);
    })
    .await;
    let endpoint = server.url("/v1");
    let document =
        |id: &str| json!({"id": id, "name": id, "endpoint": endpoint, "authentication": {"type": "api_key"}});
    let mut counter = document("counter");
    counter["outputs"] = json!({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]});
    let mut builder = gateway().document(counter).section(RULES).env("LITELLM_KEY", "sk-gateway-of-the-test");
    for id in ["echo", "limited", "long", "broken", "missing"] {
        builder = builder.document(document(id));
    }
    let gate = builder.section("    accept_bearer: true\n").start().await;
    let hi = json!({"message": "Hi"});
    let answer = gate.invoke("echo", &hi).await.expect_ok();
    assert_eq!(answer["output"], "Hello from the mock");
    assert!(answer["usage"]["output_tokens"].as_u64().is_some_and(|tokens| tokens > 0), "{answer}");
    assert_eq!(gate.invoke("counter", &hi).await.expect_ok(), json!({"n": 7}));
    let stream = gate.post("/agents/echo/invoke").header("accept", "text/event-stream").json(&hi);
    let text = send(stream).await.text();
    assert!(text.matches("data: {\"delta\":").count() > 1, "{text}");
    assert!(text.contains("{\"finish_reason\":\"stop\",\"usage\":{\"input_tokens\":"), "{text}");
    let body = json!({"model": "echo", "messages": [{"role": "user", "content": "Hi"}]});
    let chat = gate.request("POST", "/openai/v1/chat/completions").bearer_auth(gate.key("team-a")).json(&body);
    assert_eq!(send(chat).await.expect_ok()["choices"][0]["message"]["content"], "Hello from the mock");
    for (id, status, code) in [
        ("limited", 429, "RateLimited"),
        ("long", 400, "InvalidInput"),
        ("broken", 500, "AgentError"),
        ("missing", 502, "AgentError"),
    ] {
        let answer = gate.invoke(id, &hi).await;
        answer.expect_fault(status, code);
        answer.assert_hides(&["itellm", "LiteLLM", "nonexistent", "mock"]);
    }
}
