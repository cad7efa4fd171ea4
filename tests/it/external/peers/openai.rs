//! OpenAI's SDKs for Python and JavaScript, and LangChain's `ChatOpenAI`, call agents as models.

use super::{run_client, run_node};
use crate::support::{
    agent::{Agent, ReceivedRequest, Step, http_response, json_response, write},
    gateway::gateway,
};
use serde_json::json;

/// Repeats the last message, as a stream where that is asked for.
fn repeat(request: &ReceivedRequest) -> Vec<Step> {
    let input = request.json();
    let last = input["messages"].as_array().unwrap().last().unwrap()["content"].as_str().unwrap().to_owned();
    let usage = json!({"input_tokens": 3, "output_tokens": 2});
    if !request.header("accept").is_some_and(|accept| accept.starts_with("text/event-stream")) {
        return json_response(&json!({"output": format!("You said: {last}"), "usage": usage}));
    }
    vec![
        write("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: {\"delta\": \"You said: \"}\n\n"),
        write(format!("data: {}\n\ndata: {}\n\n", json!({"delta": last}), json!({"usage": usage}))),
        Step::Close,
    ]
}

#[tokio::test]
async fn r11_openais_sdks_and_langchain_call_agents_unchanged() {
    let agent = Agent::scripted(repeat).await;
    let broken = Agent::with_steps(http_response("500 Internal Server Error", "text/plain", "Traceback")).await;
    let rules = "agents:\n  sources: [agents.json]\n  rules:\n    - {agents: [limited], rate_limit: 2/s}\n";
    let gate = gateway()
        .agent("planner", &agent)
        .agent("limited", &agent)
        .agent("broken", &broken)
        .section("    accept_bearer: true\n")
        .section(rules)
        .start()
        .await;
    assert_eq!(run_client("peers/openai", &gate, "/openai/v1").await.trim(), "ok");
    run_node("openai.mjs", gate.url("/openai/v1"), Some(&gate)).await;
    assert!(agent.requests().iter().all(|request| request.header("authorization").is_none()));
}
