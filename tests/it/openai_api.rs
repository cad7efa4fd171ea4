//! Agents behind OpenAI's API: lists of models, chat completions and responses, whole and streamed, and faults as OpenAI's
//! clients read them.

use crate::support::{
    agent::{Agent, Step, http_response, json_response, latch, write},
    gateway::{Gateway, gateway, send},
};
use serde_json::{Value, json};
use std::time::Duration;

const KEYS_AS_BEARER: &str = "    accept_bearer: true\n";

fn request(gate: &Gateway, method: &str, path: &str) -> reqwest::RequestBuilder {
    gate.request(method, &format!("/openai/v1{path}")).bearer_auth(gate.key("team-a"))
}

fn chat(gate: &Gateway, body: &Value) -> reqwest::RequestBuilder {
    request(gate, "POST", "/chat/completions").json(body)
}

fn hi(model: &str) -> Value {
    json!({"model": model, "messages": [{"role": "user", "content": "Hi"}]})
}

#[tokio::test]
async fn r11_an_agent_is_a_model_whose_input_is_made_of_the_conversation() {
    let agent = Agent::scripted(|request| json_response(&json!({"output": request.json().to_string()}))).await;
    let mut translator = agent.document("translator");
    translator["operations"] = json!([{
        "name": "translate",
        "inputs": {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]},
    }]);
    let gate = gateway().agent("planner", &agent).document(translator).section(KEYS_AS_BEARER).start().await;
    let models = send(request(&gate, "GET", "/models")).await.expect_ok();
    let ids: Vec<&str> = models["data"].as_array().unwrap().iter().map(|model| model["id"].as_str().unwrap()).collect();
    assert_eq!((models["object"].as_str(), ids), (Some("list"), vec!["planner", "translator"]));
    let model = send(request(&gate, "GET", "/models/planner")).await.expect_ok();
    assert_eq!((&model["id"], &model["object"]), (&json!("planner"), &json!("model")));
    for (model, input) in
        [("planner", json!({"messages": [{"role": "user", "content": "Hi"}]})), ("translator", json!({"text": "Hi"}))]
    {
        let answer = send(chat(&gate, &hi(model))).await.expect_ok();
        assert_eq!((&answer["object"], &answer["model"]), (&json!("chat.completion"), &json!(model)));
        let choice = &answer["choices"][0];
        assert_eq!((&choice["message"]["role"], &choice["finish_reason"]), (&json!("assistant"), &json!("stop")));
        assert_eq!(choice["message"]["content"], input.to_string());
        let body = json!({"model": model, "input": "Hi"});
        let answer = send(request(&gate, "POST", "/responses").json(&body)).await.expect_ok();
        assert_eq!((&answer["object"], &answer["status"]), (&json!("response"), &json!("completed")));
        assert_eq!(answer["output"][0]["content"][0]["text"], input.to_string());
    }
    let entries = gate.access_log(6).await;
    assert!(entries.iter().all(|entry| entry["caller"] == "key:team-a"), "{entries:?}");
    assert!(agent.requests().iter().all(|request| request.header("authorization").is_none()));
}

#[tokio::test]
async fn r43_a_stream_passes_the_parts_of_the_agents_answer_at_once() {
    let hold = latch();
    let held = hold.clone();
    let agent = Agent::scripted(move |_| {
        vec![
            write("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"),
            write("data: {\"delta\": \"H\"}\n\n"),
            Step::WaitForLatch(held.clone()),
            write("data: {\"delta\": \"i\"}\n\ndata: {\"usage\": {\"input_tokens\": 3, \"output_tokens\": 2}}\n\ndata: [DONE]\n\n"),
            Step::Close,
        ]
    })
    .await;
    let gate = gateway().agent("planner", &agent).section(KEYS_AS_BEARER).start().await;
    let mut body = hi("planner");
    body["stream"] = json!(true);
    body["stream_options"] = json!({"include_usage": true});
    let mut response = chat(&gate, &body).send().await.unwrap();
    let first = tokio::time::timeout(Duration::from_secs(5), response.chunk()).await.unwrap().unwrap().unwrap();
    assert!(std::str::from_utf8(&first).unwrap().contains("\"content\":\"H\""), "{first:?}");
    hold.add_permits(1);
    let mut rest = String::new();
    while let Some(chunk) = response.chunk().await.unwrap() {
        rest.push_str(std::str::from_utf8(&chunk).unwrap());
    }
    assert!(rest.contains("\"content\":\"i\"") && rest.contains("\"total_tokens\":5"), "{rest}");
    assert!(rest.ends_with("data: [DONE]\n\n"), "{rest}");
}

#[tokio::test]
async fn r43_an_agent_without_a_stream_is_streamed_as_one_part() {
    let agent =
        Agent::with_steps(json_response(&json!({"text": "Hi", "usage": {"prompt_tokens": 1, "completion_tokens": 1}})))
            .await;
    let gate = gateway().agent("planner", &agent).section(KEYS_AS_BEARER).start().await;
    let body = json!({"model": "planner", "input": "Hi", "stream": true});
    let answer = send(request(&gate, "POST", "/responses").json(&body)).await;
    assert_eq!(answer.header("content-type"), Some("text/event-stream; charset=utf-8"));
    let text = answer.text();
    let kinds: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("event: ")).collect();
    assert_eq!(kinds.first(), Some(&"response.created"));
    assert_eq!(kinds.last(), Some(&"response.completed"));
    assert!(kinds.contains(&"response.output_text.delta"));
}

#[tokio::test]
async fn r37_faults_have_the_shape_and_the_status_that_openais_clients_read() {
    let agent = Agent::scripted(|request| match request.json()["messages"][0]["content"].as_str() {
        Some("fail") => http_response("500 Internal Server Error", "text/plain", "Traceback"),
        Some("busy") => http_response("503 Service Unavailable", "text/plain", "busy"),
        _ => json_response(&json!({"error": "no"})),
    })
    .await;
    let gate = gateway().agent("planner", &agent).section(KEYS_AS_BEARER).start().await;
    let say = |text: &str| json!({"model": "planner", "messages": [{"role": "user", "content": text}]});
    for (answer, status, kind, code) in [
        (send(chat(&gate, &hi("missing"))).await, 404, "invalid_request_error", "model_not_found"),
        (send(chat(&gate, &json!({"model": "planner"}))).await, 400, "invalid_request_error", "InvalidInput"),
        (
            send(request(&gate, "POST", "/chat/completions").body("{")).await,
            400,
            "invalid_request_error",
            "InvalidInput",
        ),
        (send(chat(&gate, &say("fail"))).await, 500, "server_error", "AgentError"),
        (send(chat(&gate, &say("busy"))).await, 503, "server_error", "AgentUnavailable"),
        (send(request(&gate, "GET", "/chat/completions")).await, 405, "invalid_request_error", "MethodNotAllowed"),
        (send(request(&gate, "POST", "/embeddings")).await, 404, "invalid_request_error", "model_not_found"),
        (send(request(&gate, "GET", "/models/missing")).await, 404, "invalid_request_error", "model_not_found"),
        (
            send(gate.request("GET", "/openai/v1/models").bearer_auth("gp_wrong")).await,
            401,
            "authentication_error",
            "invalid_api_key",
        ),
        (
            send(gate.request("POST", "/openai/v1/chat/completions").json(&hi("planner"))).await,
            401,
            "authentication_error",
            "invalid_api_key",
        ),
    ] {
        let error = answer.json()["error"].clone();
        assert_eq!((answer.status, &error["type"], &error["code"]), (status, &json!(kind), &json!(code)), "{error}");
        assert!(error["message"].is_string());
    }
    let mut body = hi("planner");
    body["tools"] = json!([{"type": "function"}]);
    let refused = send(chat(&gate, &body)).await;
    assert_eq!((refused.status, &refused.json()["error"]["param"]), (400, &json!("tools")));
    assert_eq!(agent.call_count(), 2, "what is refused reaches no agent");
}

#[tokio::test]
async fn r5_the_limits_of_the_agent_hold_and_a_stream_that_breaks_off_says_so() {
    let agent = Agent::with_steps(vec![
        write("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: 1000\r\n\r\n"),
        write("data: \"H\"\n\n"),
        Step::Close,
    ])
    .await;
    let rules = "agents:\n  sources: [agents.json]\n  rules:\n    - {agents: [planner], rate_limit: 1/h}\n";
    let gate = gateway().agent("planner", &agent).section(KEYS_AS_BEARER).section(rules).start().await;
    let mut body = hi("planner");
    body["stream"] = json!(true);
    let broken = send(chat(&gate, &body)).await;
    assert!(
        broken.text().contains("\"content\":\"H\"") && broken.text().contains("\"server_error\""),
        "{}",
        broken.text()
    );
    assert!(!broken.text().contains("[DONE]"));
    let refused = send(chat(&gate, &hi("planner"))).await;
    assert_eq!((refused.status, &refused.json()["error"]["code"]), (429, &json!("rate_limit_exceeded")));
    assert!(refused.header("retry-after").is_some());
}

#[tokio::test]
async fn r28_keys_are_bearer_credentials_only_where_the_operator_says_so() {
    let agent = Agent::echo().await;
    let gate = gateway().agent("planner", &agent).start().await;
    assert_eq!(send(request(&gate, "GET", "/models")).await.status, 401);
    let with_header = gate.request("GET", "/openai/v1/models").header("X-API-Key", gate.key("team-a"));
    send(with_header).await.expect_ok();
}

#[tokio::test]
async fn r5_malformed_requests_count_for_the_rate_of_their_caller() {
    let agent = Agent::echo().await;
    let limits = "limits: {per_caller: 3/h, per_address: null}\n";
    let gate = gateway().agent("planner", &agent).section(KEYS_AS_BEARER).section(limits).start().await;
    for status in [400, 400, 400, 429] {
        assert_eq!(send(chat(&gate, &json!({"model": "planner"}))).await.status, status);
    }
    assert_eq!(agent.call_count(), 0);
}

#[tokio::test]
async fn r43_an_event_that_is_too_long_ends_the_stream_with_an_error_and_loses_nothing_silently() {
    let long = format!("data: \"H\"\n\ndata: \"{}\"\n\n", "x".repeat(1 << 20));
    let agent = Agent::with_steps(vec![
        write("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"),
        write(long),
        Step::Close,
    ])
    .await;
    let gate = gateway().agent("planner", &agent).section(KEYS_AS_BEARER).start().await;
    let mut body = hi("planner");
    body["stream"] = json!(true);
    let text = send(chat(&gate, &body)).await.text();
    assert!(text.contains("\"server_error\"") && !text.contains("[DONE]"), "{text}");
}

#[tokio::test]
async fn r43_a_stream_without_a_text_that_is_known_is_an_error_and_no_empty_answer() {
    let agent = Agent::with_steps(vec![
        write("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"),
        write("data: {\"word\": \"Hi\"}\n\ndata: [DONE]\n\n"),
        Step::Close,
    ])
    .await;
    let rules = "agents:\n  sources: [agents.json]\n  rules:\n    - {agents: [words], openai: {output: /word}}\n";
    let builder = gateway().agent("planner", &agent).agent("words", &agent);
    let gate = builder.section(KEYS_AS_BEARER).section(rules).start().await;
    let streamed = |model: &str| {
        let mut body = hi(model);
        body["stream"] = json!(true);
        send(chat(&gate, &body))
    };
    let text = streamed("planner").await.text();
    assert!(text.contains("no text where it is expected") && !text.contains("[DONE]"), "{text}");
    let whole = send(chat(&gate, &hi("planner"))).await;
    assert_eq!((whole.status, &whole.json()["error"]["code"]), (502, &json!("AgentError")));
    assert!(streamed("words").await.text().contains("\"content\":\"Hi\""));
}
