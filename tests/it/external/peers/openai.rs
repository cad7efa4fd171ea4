//! OpenAI's SDKs for Python and JavaScript, and LangChain's `ChatOpenAI`, call agents as models; a server with the types of
//! the SDK is an agent.

use super::{run_client, run_node, server::PeerServer};
use crate::support::{
    agent::{Agent, ReceivedRequest, Step, http_response, json_response, write},
    gateway::{gateway, send},
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
    if last == "long" {
        let events = format!("data: {}\n\n", "x".repeat(100_000)).repeat(20);
        return http_response("200 OK", "text/event-stream", &events);
    }
    vec![
        write("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: {\"delta\": \"You said: \"}\n\n"),
        write(format!("data: {}\n\ndata: {}\n\n", json!({"delta": last}), json!({"usage": usage}))),
        Step::Close,
    ]
}

/// The methods of the SDK for Python that agents answer, with what they return.
const METHODS_THAT_WORK: [&str; 12] = [
    "beta.chat.completions.create: ChatCompletion",
    "beta.chat.completions.parse: ParsedChatCompletion[~ResponseFormatT]",
    "beta.chat.completions.stream: ChatCompletionStreamManager",
    "beta.responses.create: BetaResponse",
    "chat.completions.create: ChatCompletion",
    "chat.completions.parse: ParsedChatCompletion[~ResponseFormatT]",
    "chat.completions.stream: ChatCompletionStreamManager",
    "models.list: SyncPage[Model]",
    "models.retrieve: Model",
    "responses.create: Response",
    "responses.parse: ParsedResponse",
    "responses.stream: ResponseStreamManager",
];

/// What the others show: agents have neither stored completions nor files, and no caller deletes one.
const NO_SUCH_RESOURCE: [&str; 2] = [": NotFoundError 404", ": APIStatusError 405"];

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
    let outcomes = run_client("peers/openai", &gate, "/openai/v1").await;
    assert!(outcomes.lines().count() > 400, "{outcomes}");
    let is_refused = |line: &&str| NO_SUCH_RESOURCE.iter().any(|error| line.ends_with(error));
    let working: Vec<&str> = outcomes.lines().filter(|line| !is_refused(line)).collect();
    assert_eq!(working, METHODS_THAT_WORK);
    assert_eq!(run_node("openai.mjs", gate.url("/openai/v1"), Some(&gate)).await.trim(), "ok");
    assert!(agent.requests().iter().all(|request| request.header("authorization").is_none()));
    assert_eq!(broken.call_count(), 1, "the SDK has tried a call again that the agent may have executed");
    let keyed = agent.requests().iter().filter(|request| request.header("idempotency-key").is_some()).count();
    assert_eq!(keyed, 1);
}

#[tokio::test]
async fn r11_a_server_with_the_types_of_openais_sdk_is_an_agent() {
    let server = PeerServer::start_script("peers/openai").await;
    let endpoint = server.url("/v1");
    let document =
        |id: &str| json!({"id": id, "name": id, "endpoint": endpoint, "authentication": {"type": "api_key"}});
    let mut counter = document("counter");
    counter["outputs"] = json!({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]});
    let rules = "agents:\n  sources: [agents.json]\n  rules:\n    - {agents: ['*'], endpoint: {kind: openai, model: repeater, system: Repeat, parameters: {temperature: 0, seed: 1}}}\n";
    let contract = "contract: {output: enforce}\n";
    let gate = gateway().document(document("model")).document(counter).section(rules).section(contract);
    let gate = gate.section("    accept_bearer: true\n").start().await;
    let usage = json!({"input_tokens": 3, "output_tokens": 2});
    let answer = gate.invoke("model", &json!({"message": "Hi"})).await.expect_ok();
    assert_eq!(answer, json!({"output": "You said: Hi", "usage": usage}));
    assert_eq!(gate.invoke("counter", &json!({"message": "Count"})).await.expect_ok(), json!({"n": 7}));
    let stream =
        gate.post("/agents/model/invoke").header("accept", "text/event-stream").json(&json!({"message": "Hi"}));
    let text = send(stream).await.text();
    assert!(text.starts_with("data: {\"delta\":\"You \"}\n\ndata: {\"delta\":\"said: \"}\n\n"), "{text}");
    let end = json!({"finish_reason": "stop", "usage": usage});
    assert!(text.ends_with(&format!("data: {end}\n\n")), "{text}");
    // From a client of the SDK to a server of the SDK, through the gateway.
    let body = json!({"model": "model", "messages": [{"role": "user", "content": "Hi"}]});
    let chat = gate.request("POST", "/openai/v1/chat/completions").bearer_auth(gate.key("team-a")).json(&body);
    assert_eq!(send(chat).await.expect_ok()["choices"][0]["message"]["content"], "You said: Hi");
}
