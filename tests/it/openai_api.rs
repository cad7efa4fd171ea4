//! Agents behind OpenAI's API: lists of models, chat completions and responses, whole and streamed, and faults as OpenAI's
//! clients read them.

use crate::support::{
    agent::{Agent, Step, http_response, json_response, latch, write},
    eventually,
    gateway::{Gateway, gateway, send},
    gateway_response::send_raw,
};
use serde_json::{Value, json};
use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

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
        (send(request(&gate, "POST", "/embeddings")).await, 404, "invalid_request_error", "unknown_url"),
        (send(request(&gate, "GET", "")).await, 404, "invalid_request_error", "unknown_url"),
        (send(request(&gate, "GET", "/")).await, 404, "invalid_request_error", "unknown_url"),
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
    let refused = send(chat(&gate, &json!({"model": "planner", "messages": [{"role": 5, "content": "Hi"}]}))).await;
    assert_eq!((refused.status, &refused.json()["error"]["param"]), (400, &json!("messages[0].role")));
    assert_eq!(agent.call_count(), 2, "what is refused reaches no agent");
}

#[tokio::test]
async fn r5_the_limits_of_the_agent_hold_and_a_stream_that_breaks_off_says_so() {
    let agent = Agent::with_steps(vec![
        write("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: 1000\r\n\r\n"),
        write("data: H\n\n"),
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
    let message =
        async |gate: &Gateway| send(gate.request("GET", "/openai/v1/models")).await.json()["error"]["message"].clone();
    assert_eq!(send(request(&gate, "GET", "/models")).await.status, 401);
    assert_eq!(message(&gate).await, "A credential is required (an API key in X-API-Key)");
    let accepting = gateway().agent("planner", &agent).section(KEYS_AS_BEARER).start().await;
    assert_eq!(
        message(&accepting).await,
        "A credential is required (an API key in X-API-Key or in Authorization: Bearer)"
    );
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

#[tokio::test]
async fn r39_openais_sdks_are_told_to_try_again_only_what_no_agent_executed() {
    let agent = Agent::scripted(|request| match request.json()["messages"][0]["content"].as_str() {
        Some("fail") => http_response("500 Internal Server Error", "text/plain", "Traceback"),
        Some("bad gateway") => http_response("502 Bad Gateway", "text/plain", "no"),
        Some("late") => http_response("504 Gateway Timeout", "text/plain", "late"),
        Some("conflict") => http_response("409 Conflict", "text/plain", "no"),
        Some("busy") => http_response("503 Service Unavailable", "text/plain", "busy"),
        Some("rate") => http_response("429 Too Many Requests", "text/plain", "slow down"),
        Some("cut") => vec![write("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{"), Step::Close],
        Some("silent") => vec![Step::Close],
        _ => json_response(&json!({"output": "Hi"})),
    })
    .await;
    let mut gone = agent.document("gone");
    gone["endpoint"] = json!("http://127.0.0.1:1/");
    let limits = "limits:\n  tiers: {strict: {per_caller: 1/h}}\n";
    let gate = gateway()
        .agent("planner", &agent)
        .document(gone)
        .section(KEYS_AS_BEARER)
        .section(limits)
        .caller("limited", &["--tier", "strict"])
        .start()
        .await;
    let say = |text: &str| chat(&gate, &json!({"model": "planner", "messages": [{"role": "user", "content": text}]}));
    for (request, status, retries) in [
        (say("fail"), 500, "false"),
        (say("bad gateway"), 502, "false"),
        (say("late"), 504, "false"),
        (say("conflict"), 409, "false"),
        (say("busy"), 503, "true"),
        (say("rate"), 429, "true"),
        (say("cut"), 502, "false"),
        (say("silent"), 502, "false"),
        (chat(&gate, &hi("gone")), 503, "true"),
        (chat(&gate, &hi("missing")), 404, "false"),
        (chat(&gate, &json!({})), 400, "false"),
    ] {
        let answer = send(request).await;
        assert_eq!((answer.status, answer.header("x-should-retry")), (status, Some(retries)), "{}", answer.text());
    }
    let limited =
        || gate.request("POST", "/openai/v1/chat/completions").bearer_auth(gate.key("limited")).json(&hi("planner"));
    assert_eq!(send(limited()).await.header("x-should-retry"), None);
    let refused = send(limited()).await;
    assert_eq!((refused.status, refused.header("x-should-retry")), (429, Some("true")));
    let plain = gate.invoke("missing", &json!({})).await;
    assert_eq!((plain.status, plain.header("x-should-retry")), (404, None), "other clients do not read it");
}

#[tokio::test]
async fn r45_a_call_whose_first_one_is_in_progress_is_made_again_and_gets_the_answer_of_the_first() {
    let latch = latch();
    let steps = [vec![Step::WaitForLatch(Arc::clone(&latch))], json_response(&json!({"output": "Hi"}))].concat();
    let agent = Agent::with_steps(steps).await;
    let gate = gateway().agent("planner", &agent).section(KEYS_AS_BEARER).start().await;
    let ask = || chat(&gate, &hi("planner")).header("Idempotency-Key", "once");
    let first = tokio::spawn(send(ask()));
    eventually("the agent receives the call", async || agent.call_count() == 1).await;
    let early = send(ask().header("X-Request-Timeout", "200ms")).await;
    assert_eq!((early.status, early.header("x-should-retry")), (409, Some("true")), "{}", early.text());
    latch.close();
    first.await.unwrap().expect_ok();
    assert_eq!(send(ask()).await.header("idempotent-replayed"), Some("true"));
    assert_eq!(agent.call_count(), 1);
}

#[tokio::test]
async fn r45_a_call_with_an_idempotency_key_is_made_once() {
    let number = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&number);
    let agent = Agent::scripted(move |request| {
        let number = counter.fetch_add(1, Relaxed);
        match request.json()["messages"][0]["content"].as_str() {
            Some("fail") => http_response("500 Internal Server Error", "text/plain", "Traceback"),
            Some("busy") if number.is_multiple_of(2) => http_response("503 Service Unavailable", "text/plain", "busy"),
            Some("rpc") => json_response(&json!({"jsonrpc": "2.0", "id": 1, "error": {"code": -1, "message": "no"}})),
            _ => json_response(&json!({"output": format!("answer {number}")})),
        }
    })
    .await;
    let mut document = agent.document("planner");
    document["version"] = json!("2.0.0");
    document["supportedVersions"] = json!({"1.0.0": "/v1"});
    let gate = gateway().document(document).section(KEYS_AS_BEARER).start().await;
    let ask = async |key: &str, model: &str, text: &str| {
        let body = json!({"model": model, "messages": [{"role": "user", "content": text}]});
        send(chat(&gate, &body).header("Idempotency-Key", key)).await
    };
    let first = ask("a", "planner", "Hi").await;
    let second = ask("a", "planner", "Hi").await;
    let text = |answer: &Value| answer["choices"][0]["message"]["content"].clone();
    assert_eq!(text(&first.expect_ok()), "answer 0");
    assert_eq!(text(&second.expect_ok()), "answer 0");
    let replayed = (first.header("idempotent-replayed"), second.header("idempotent-replayed"));
    assert_eq!((replayed, agent.call_count()), ((None, Some("true")), 1));
    assert_ne!(first.expect_ok()["id"], second.expect_ok()["id"], "each answer has the id of its own request");
    assert_eq!(ask("a", "planner", "Bye").await.status, 422);
    assert_eq!(ask("a", "planner@1.0.0", "Hi").await.status, 422);
    assert_eq!(agent.call_count(), 1);
    // A failure is stored, and its repetition is not tried again.
    for replayed in [None, Some("true")] {
        let failed = ask("b", "planner", "fail").await;
        assert_eq!((failed.status, failed.header("idempotent-replayed")), (500, replayed));
        assert_eq!(failed.header("x-should-retry"), Some("false"));
    }
    assert_eq!(agent.call_count(), 2);
    // A call that the agent refused is made again.
    assert_eq!(ask("c", "planner", "busy").await.header("x-should-retry"), Some("true"));
    ask("c", "planner", "busy").await.expect_ok();
    assert_eq!(agent.call_count(), 4);
    for replayed in [None, Some("true")] {
        let failed = ask("d", "planner", "rpc").await;
        assert_eq!((failed.status, failed.header("idempotent-replayed")), (502, replayed), "{}", failed.text());
    }
    assert_eq!(agent.call_count(), 5);
    assert_eq!(ask("not visible \u{e9}", "planner", "Hi").await.status, 400);
    // A stream is not stored, but made once as well.
    let mut body = hi("planner");
    body["stream"] = json!(true);
    let stream = || send(chat(&gate, &body).header("Idempotency-Key", "e"));
    assert!(stream().await.text().ends_with("data: [DONE]\n\n"));
    let again = stream().await;
    assert_eq!((again.status, again.header("x-should-retry")), (409, Some("false")), "{}", again.text());
    assert_eq!(agent.call_count(), 6);
}

#[tokio::test]
async fn r45_a_call_with_a_key_goes_on_after_its_caller_left() {
    let hold = latch();
    let held = hold.clone();
    let agent = Agent::scripted(move |_| {
        [vec![Step::WaitForLatch(held.clone())], json_response(&json!({"output": "Hi"}))].concat()
    })
    .await;
    let gate = gateway().agent("planner", &agent).section(KEYS_AS_BEARER).start().await;
    let call = || request(&gate, "POST", "/responses").header("Idempotency-Key", "k");
    let body = json!({"model": "planner", "input": "Hi"});
    let left = call().json(&body).timeout(Duration::from_millis(500)).send().await;
    assert!(left.is_err(), "the caller has not left");
    hold.add_permits(1);
    let answer = send(call().json(&body)).await;
    assert_eq!(answer.expect_ok()["output"][0]["content"][0]["text"], "Hi");
    assert_eq!((answer.header("idempotent-replayed"), agent.call_count()), (Some("true"), 1));
}

#[tokio::test]
async fn r43_a_stream_of_plain_text_loses_no_part_whole_and_streamed() {
    let stream = "\u{feff}data: I have \n\ndata: 42\n\ndata: \ndata: \n\ndata: true\r\n\r\ndata: \"\r\rdata: null\n\n\
                  data: [DONE]\n\ndata: end";
    let agent = Agent::scripted(move |request| match request.json()["messages"][0]["content"].as_str() {
        Some("html") => http_response("200 OK", "text/event-stream", "<html>busy</html>\n"),
        _ => http_response("200 OK", "text/event-stream", stream),
    })
    .await;
    let gate = gateway().agent("planner", &agent).section(KEYS_AS_BEARER).start().await;
    let whole = send(chat(&gate, &hi("planner"))).await.expect_ok();
    let text = "I have 42\ntrue\"nullend";
    assert_eq!(whole["choices"][0]["message"]["content"], text);
    let streamed = |text: &str| {
        let messages = json!([{"role": "user", "content": text}]);
        send(chat(&gate, &json!({"model": "planner", "messages": messages, "stream": true})))
    };
    let parts: String = events(&streamed("Hi").await.text())
        .iter()
        .filter_map(|event| event["choices"][0]["delta"]["content"].as_str().map(str::to_owned))
        .collect();
    assert_eq!(parts, text);
    let failed = streamed("html").await.text();
    assert!(failed.contains("no text where it is expected") && !failed.contains("[DONE]"), "{failed}");
    let body = json!({"model": "planner", "messages": [{"role": "user", "content": "html"}]});
    assert_eq!(send(chat(&gate, &body)).await.status, 502);
}

#[tokio::test]
async fn r43_a_long_response_repeats_its_text_once_complete_or_says_that_it_does_not() {
    let agent = Agent::scripted(|request| {
        let count: usize = request.json()["messages"][0]["content"].as_str().unwrap().parse().unwrap();
        let parts = format!("data: {}\n\n", "x".repeat(100_000)).repeat(count);
        http_response("200 OK", "text/event-stream", &format!("{parts}data: end\n\n"))
    })
    .await;
    let gate = gateway().agent("planner", &agent).section(KEYS_AS_BEARER).start().await;
    for (count, kind) in [(10, "response.completed"), (30, "response.incomplete")] {
        let body = json!({"model": "planner", "input": count.to_string(), "stream": true});
        let events = events(&send(request(&gate, "POST", "/responses").json(&body)).await.text());
        let deltas = events.iter().filter_map(|event| event["delta"].as_str());
        assert_eq!(deltas.map(str::len).sum::<usize>(), count * 100_000 + 3, "every part arrives");
        let last = events.last().unwrap();
        assert_eq!(last["type"], kind);
        let text = last["response"]["output"][0]["content"][0]["text"].as_str().unwrap();
        let expected = if count == 10 { "x".repeat(1_000_000) + "end" } else { "x".repeat(1_000_000) };
        assert!(text == expected, "{} characters", text.len());
    }
}

#[tokio::test]
async fn r38_the_completion_of_an_agent_keeps_its_reason_and_its_refusal_and_may_call_no_tools() {
    let choice = |choice: Value| json_response(&json!({"choices": [choice], "object": "chat.completion"}));
    let agent = Agent::scripted(move |request| match request.json()["messages"][0]["content"].as_str() {
        Some("parts") => {
            choice(json!({"message": {"content": [{"type": "text", "text": "Hi"}]}, "finish_reason": "stop"}))
        }
        Some("cut") => choice(json!({"message": {"content": "H"}, "finish_reason": "length"})),
        Some("filtered") => choice(json!({"message": {"content": null}, "finish_reason": "content_filter"})),
        Some("refused") => choice(json!({"message": {"content": null, "refusal": "No"}, "finish_reason": "stop"})),
        _ => choice(json!({"message": {"content": null, "tool_calls": [{"id": "1"}]}, "finish_reason": "tool_calls"})),
    })
    .await;
    let gate = gateway().agent("planner", &agent).section(KEYS_AS_BEARER).start().await;
    for (input, text, refusal, reason, status) in [
        ("parts", "Hi", Value::Null, "stop", "completed"),
        ("cut", "H", Value::Null, "length", "incomplete"),
        ("filtered", "", Value::Null, "content_filter", "incomplete"),
        ("refused", "No", json!("No"), "stop", "completed"),
    ] {
        let body = json!({"model": "planner", "messages": [{"role": "user", "content": input}]});
        let answer = send(chat(&gate, &body)).await.expect_ok();
        let choice = &answer["choices"][0];
        assert_eq!((&choice["message"]["content"], &choice["message"]["refusal"]), (&json!(text), &refusal), "{input}");
        assert_eq!(choice["finish_reason"], reason);
        let body = json!({"model": "planner", "input": input});
        let answer = send(request(&gate, "POST", "/responses").json(&body)).await.expect_ok();
        assert_eq!((&answer["status"], &answer["output"][0]["status"]), (&json!(status), &json!(status)));
        assert_eq!(answer["output"][0]["content"][0]["text"], text);
    }
    let refused = send(chat(&gate, &hi("planner"))).await;
    assert_eq!(refused.status, 502);
    assert!(refused.json()["error"]["message"].as_str().unwrap().contains("calls tools"), "{}", refused.text());
}

#[tokio::test]
async fn r68_a_model_is_found_by_the_name_with_which_it_is_called() {
    let agent = Agent::echo().await;
    let mut document = agent.document("ver");
    document["version"] = json!("2.0.0");
    document["supportedVersions"] = json!({"1.0.0": "/v1"});
    let gate = gateway().document(document).section(KEYS_AS_BEARER).start().await;
    for (path, id) in [("ver", "ver"), ("ver@1.x", "ver@1.x"), ("ver%401.x", "ver@1.x"), ("ver@2.0.0", "ver@2.0.0")] {
        assert_eq!(send(request(&gate, "GET", &format!("/models/{path}"))).await.expect_ok()["id"], id);
        send(chat(&gate, &hi(id))).await.expect_ok();
    }
    for name in ["ver@3.x", "ver@x y", "other@1.x"] {
        let found = send(request(&gate, "GET", &format!("/models/{}", name.replace(' ', "%20")))).await;
        let called = send(chat(&gate, &hi(name))).await;
        assert_eq!(found.status, called.status, "{name}: {}", called.text());
    }
}

#[tokio::test]
async fn r3_a_long_list_of_models_is_complete_and_in_order() {
    let agent = Agent::echo().await;
    let builder =
        (0..600).fold(gateway(), |builder, number| builder.document(agent.document(&format!("agent-{number:03}"))));
    let gate = builder.section(KEYS_AS_BEARER).start().await;
    let list = send(request(&gate, "GET", "/models")).await.expect_ok();
    let ids: Vec<&str> = list["data"].as_array().unwrap().iter().map(|model| model["id"].as_str().unwrap()).collect();
    assert_eq!((ids.len(), ids[0], ids[599]), (600, "agent-000", "agent-599"));
    assert!(ids.is_sorted());
}

#[tokio::test]
async fn r5_requests_for_unknown_models_are_charged_and_an_exhausted_caller_sends_no_body() {
    let agent = Agent::echo().await;
    let limits = "limits: {per_caller: 3/h, per_address: null}\n";
    let access = "access:\n  grants:\n    - {callers: ['key:team-a'], agents: [planner]}\n";
    let builder = gateway().agent("planner", &agent).agent("hidden", &agent).access(access);
    let gate = builder.section(KEYS_AS_BEARER).section(limits).start().await;
    for (model, status) in [("missing", 404), ("hidden", 404), ("missing", 404), ("missing", 429)] {
        assert_eq!(send(chat(&gate, &hi(model))).await.status, status, "{model}");
    }
    // The response comes although the body never does.
    let key = gate.key("team-a");
    let head = format!(
        "POST /openai/v1/chat/completions HTTP/1.1\r\nHost: gate\r\nX-API-Key: {key}\r\n\
         Content-Type: application/json\r\nContent-Length: 1000000\r\n\r\n"
    );
    let refused = send_raw(gate.address(), head.as_bytes()).await.unwrap();
    assert_eq!((refused.status, &refused.json()["error"]["code"]), (429, &json!("rate_limit_exceeded")));
    assert_eq!(gate.metric("gatepost_limited_requests_total{limit=\"caller\"}").await, Some(2.0));
    assert_eq!(agent.call_count(), 0);
}

/// Returns the data of the events of a stream.
fn events(stream: &str) -> Vec<Value> {
    let data = stream.lines().filter_map(|line| line.strip_prefix("data: ")).filter(|data| *data != "[DONE]");
    data.map(|data| serde_json::from_str(data).unwrap()).collect()
}
