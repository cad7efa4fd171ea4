//! Servers of OpenAI's API as agents: what they receive, what callers get for their answers, streams and errors, and that
//! they are agents like any other.

use crate::{
    explain::Call,
    support::{
        agent::{Agent, ReceivedRequest, Step, http_response, json_response, latch, write},
        closed_port::ClosedPort,
        gateway::{Gateway, GatewayBuilder, gatepost_command, gateway, send},
    },
};
use serde_json::{Value, json};
use std::time::Duration;

const SECRET: &str = "sk-gateway-0123456789abcdef";

/// A document without schemas, whose endpoint is the base URL of a server.
fn document(id: &str, server: &Agent) -> Value {
    let mut document = server.document(id);
    document["endpoint"] = format!("http://{}/v1", server.address).into();
    document
}

/// A gateway whose agents `model*` are at servers of OpenAI's API; `rule` are further settings of `endpoint`.
fn models(rule: &str) -> GatewayBuilder {
    let agents = format!(
        "agents:\n  sources: [agents.json]\n  defaults:\n    credential: {{value: env:MODEL_KEY, destinations: {{sources: [files]}}}}\n  rules:\n    - agents: ['model*']\n      endpoint: {{kind: openai, model: gpt-small{rule}}}\n"
    );
    gateway().section(&agents).env("MODEL_KEY", SECRET)
}

fn completion(text: &str) -> Value {
    json!({
        "id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "gpt-small-2026",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5},
    })
}

/// Answers with the last message, as a stream where that is asked for.
fn repeat(request: &ReceivedRequest) -> Vec<Step> {
    let body = request.json();
    let text = body["messages"].as_array().unwrap().last().unwrap()["content"].as_str().unwrap().to_owned();
    if body["stream"] != true {
        return json_response(&completion(&text));
    }
    let delta = |text: &str| format!("data: {}\n\n", json!({"choices": [{"index": 0, "delta": {"content": text}}]}));
    vec![
        write("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"),
        write(delta("You said: ") + &delta(&text)),
        write("data: {\"choices\": [{\"index\": 0, \"delta\": {}, \"finish_reason\": \"stop\"}]}\n\n"),
        write(
            "data: {\"choices\": [], \"usage\": {\"prompt_tokens\": 3, \"completion_tokens\": 2}}\n\ndata: [DONE]\n\n",
        ),
        Step::Close,
    ]
}

fn streamed(gate: &Gateway, id: &str) -> reqwest::RequestBuilder {
    gate.post(&format!("/agents/{id}/invoke")).header("accept", "text/event-stream").json(&json!({"message": "Hi"}))
}

#[tokio::test]
async fn r11_a_server_of_openais_api_is_called_with_plain_json() {
    let server = Agent::scripted(repeat).await;
    let gate =
        models(", system: Be brief, parameters: {temperature: 0}").document(document("model", &server)).start().await;
    let answer = gate.invoke("model", &json!({"message": "Hi"})).await;
    assert_eq!(answer.expect_ok(), json!({"output": "Hi", "usage": {"input_tokens": 3, "output_tokens": 2}}));
    let talk = json!([{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Ho"}, {"role": "user", "content": "Hey"}]);
    assert_eq!(gate.invoke("model", &json!({"messages": talk})).await.expect_ok()["output"], "Hey");
    // The other ways to call an agent.
    let batch = gate.invoke("model", &json!([{"message": "a"}, {"message": "b"}])).await.expect_ok();
    assert_eq!((&batch[0]["output"], &batch[1]["output"]), (&json!("a"), &json!("b")));
    assert_eq!(
        send(gate.request("GET", "/agents/model/invoke?message=Hi").header("x-api-key", gate.key("team-a")))
            .await
            .expect_ok()["output"],
        "Hi"
    );
    let received = &server.requests()[0];
    assert!(received.head.starts_with("POST /v1/chat/completions HTTP/1.1\r\n"), "{}", received.head);
    assert_eq!(received.header("authorization"), Some(&*format!("Bearer {SECRET}")));
    assert_eq!((received.header("content-type"), received.header("x-api-key")), (Some("application/json"), None));
    let system = json!({"role": "system", "content": "Be brief"});
    let user = json!({"role": "user", "content": "Hi"});
    assert_eq!(received.json(), json!({"model": "gpt-small", "messages": [system, user], "temperature": 0}));
    assert!(server.requests().iter().all(|request| request.head.starts_with("POST /v1/chat/completions HTTP/1.1\r\n")));
    assert_eq!(server.requests()[1].json()["messages"].as_array().unwrap().len(), 4);
    // A call that violates the contract does not reach the server.
    let calls = server.call_count();
    for input in
        [json!({}), json!("Hi"), json!({"message": 1}), json!({"messages": [{"role": "tool", "content": "x"}]})]
    {
        gate.invoke("model", &input).await.expect_fault(400, "InvalidInput");
    }
    assert_eq!(server.call_count(), calls);
}

#[tokio::test]
async fn r13_r20_the_directory_says_what_a_model_without_a_contract_takes_and_returns() {
    let server = Agent::scripted(repeat).await;
    let gate = models("").document(document("model", &server)).agent("plain", &server).start().await;
    let get =
        async |path: &str| send(gate.request("GET", path).header("x-api-key", gate.key("team-a"))).await.expect_ok();
    let served = get("/agents/model").await;
    assert_eq!(served["inputs"]["properties"]["message"]["type"], "string");
    assert_eq!(served["outputs"]["required"], json!(["output"]));
    assert!(!served.to_string().contains("gpt-small") && !served.to_string().contains(&server.address.to_string()));
    let list = get("/agents").await;
    assert!(list.to_string().contains("\"model\"") && list.to_string().contains("\"plain\""), "{list}");
    assert!(get("/agents/model/agent.json").await.to_string().contains("A message or a conversation"));
    assert!(get("/agents/model/openapi.json").await.to_string().contains("A message or a conversation"));
    assert!(get("/agents/plain").await["inputs"].get("properties").is_none());
}

#[tokio::test]
async fn r33_json_is_asked_for_by_the_output_schema_and_checked() {
    let server = Agent::scripted(|request| {
        let body = request.json();
        let text = body["messages"][0]["content"].as_str().unwrap().to_owned();
        json_response(&completion(&text))
    })
    .await;
    let mut with_schema = document("model", &server);
    let schema = json!({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]});
    with_schema["inputs"] = json!({"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]});
    with_schema["outputs"] = schema.clone();
    let gate = models("").document(with_schema).section("contract: {output: enforce}\n").start().await;
    assert_eq!(gate.invoke("model", &json!({"text": "{\"n\": 1}"})).await.expect_ok(), json!({"n": 1}));
    let format = json!({"type": "json_schema", "json_schema": {"name": "output", "schema": schema}});
    assert_eq!(server.requests()[0].json()["response_format"], format);
    for text in ["{\"n\": \"one\"}", "Sure! {\"n\": 1}", "{\"n\": 1", ""] {
        gate.invoke("model", &json!({"text": text})).await.expect_fault(502, "AgentError");
    }
    // JSON is not streamed.
    let answer =
        gate.post("/agents/model/invoke").header("accept", "text/event-stream").json(&json!({"text": "{\"n\": 2}"}));
    assert_eq!(send(answer).await.expect_ok(), json!({"n": 2}));
    assert!(server.requests().iter().all(|request| request.json().get("stream").is_none()));
}

#[tokio::test]
async fn r43_a_streamed_answer_arrives_part_by_part() {
    let hold = latch();
    let held = hold.clone();
    let server = Agent::scripted(move |request| {
        let mut steps = repeat(request);
        steps.insert(2, Step::WaitForLatch(held.clone()));
        steps
    })
    .await;
    let gate = models("").document(document("model", &server)).start().await;
    let mut response = streamed(&gate, "model").send().await.unwrap();
    assert_eq!(response.headers()["content-type"], "text/event-stream; charset=utf-8");
    let mut text = String::new();
    while !text.contains("Hi") {
        let chunk = tokio::time::timeout(Duration::from_secs(20), response.chunk()).await.unwrap().unwrap().unwrap();
        text.push_str(std::str::from_utf8(&chunk).unwrap());
    }
    hold.add_permits(1);
    while let Some(chunk) = response.chunk().await.unwrap() {
        text.push_str(std::str::from_utf8(&chunk).unwrap());
    }
    let expected = "data: {\"delta\":\"You said: \"}\n\ndata: {\"delta\":\"Hi\"}\n\n\
                    data: {\"finish_reason\":\"stop\",\"usage\":{\"input_tokens\":3,\"output_tokens\":2}}\n\n";
    assert_eq!(text, expected);
    let sent = server.requests()[0].json();
    assert_eq!((&sent["stream"], &sent["stream_options"]), (&json!(true), &json!({"include_usage": true})));
}

#[tokio::test]
async fn r43_a_stream_that_breaks_off_or_is_cut_off_ends_with_an_error_event_and_is_logged() {
    let stream = |end: &str| {
        let head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n";
        let part = "data: {\"choices\": [{\"delta\": {\"content\": \"part\"}}]}\n\n";
        vec![write(format!("{head}{part}{end}")), Step::Close]
    };
    let ends = [
        "",
        "data: {\"choices\": [{\"delta\": {}, \"finish_reason\": \"length\"}]}\n\ndata: [DONE]\n\n",
        "data: {\"error\": {\"message\": \"CUDA error in /srv/model.py\", \"code\": \"oom\"}}\n\ndata: [DONE]\n\n",
        "data: <html>\n\n",
    ];
    let server = Agent::scripted(move |request| {
        let at: usize = request.json()["messages"][0]["content"].as_str().unwrap().parse().unwrap();
        stream(ends[at])
    })
    .await;
    let gate = models("").document(document("model", &server)).start().await;
    for at in 0..ends.len() {
        let input = json!({"message": at.to_string()});
        let answer = send(gate.post("/agents/model/invoke").header("accept", "text/event-stream").json(&input)).await;
        let text = answer.text();
        assert!(text.starts_with("data: {\"delta\":\"part\"}\n\nevent: error\ndata: {\"error\":{"), "{at}: {text}");
        assert!(text.contains("AgentError") && !text.contains("finish_reason"), "{at}: {text}");
        answer.assert_hides(&["CUDA", "/srv"]);
    }
    let entries = gate.access_log(ends.len()).await;
    assert!(entries.iter().all(|entry| entry["code"] == "AgentError" && entry["blame"] == "agent"), "{entries:?}");
}

#[tokio::test]
async fn r36_r41_errors_of_the_server_have_the_status_of_who_caused_them_and_hide_its_text() {
    let error =
        |message: &str, code: Value| json!({"error": {"message": message, "type": "x", "param": null, "code": code}});
    let cases: Vec<(&str, &str, Value, u16, &str)> = vec![
        (
            "401 Unauthorized",
            "",
            error(&format!("Incorrect API key provided: {SECRET}"), json!("invalid_api_key")),
            502,
            "AgentError",
        ),
        ("403 Forbidden", "", error("Your organization org-77 is not allowed", json!("x")), 502, "AgentError"),
        ("404 Not Found", "", error("The model gpt-small does not exist", json!("model_not_found")), 502, "AgentError"),
        (
            "400 Bad Request",
            "",
            error("Unsupported parameter: temperature", json!("unsupported_parameter")),
            502,
            "AgentError",
        ),
        ("402 Payment Required", "", error("No credit left", json!(402)), 502, "AgentError"),
        ("429 Too Many Requests", "", error("You exceeded your quota", json!("insufficient_quota")), 502, "AgentError"),
        (
            "429 Too Many Requests",
            "Retry-After: 7\r\n",
            error("Limit of org-77 reached", json!("rate_limit_exceeded")),
            429,
            "RateLimited",
        ),
        (
            "503 Service Unavailable",
            "Retry-After: 7\r\n",
            error("Overloaded org-77", json!("overloaded")),
            503,
            "AgentUnavailable",
        ),
        ("500 Internal Server Error", "", error("CUDA out of memory", json!("oom")), 500, "AgentError"),
        ("302 Found", "Location: https://login.example/org-77\r\n", json!({}), 502, "AgentError"),
        ("200 OK", "", error("The model crashed", json!("oom")), 502, "AgentError"),
        ("200 OK", "", json!({"status": "up"}), 502, "AgentError"),
        (
            "400 Bad Request",
            "",
            error("This model's maximum context length is 4096 tokens.", json!("context_length_exceeded")),
            400,
            "InvalidInput",
        ),
    ];
    let answers = cases.clone();
    let server = Agent::scripted(move |request| {
        let at: usize = request.json()["messages"][0]["content"].as_str().unwrap().parse().unwrap();
        let (status, headers, body, ..) = &answers[at];
        let body = body.to_string();
        let length = body.len();
        let head =
            format!("HTTP/1.1 {status}\r\nContent-Type: application/json\r\n{headers}Content-Length: {length}\r\n\r\n");
        vec![write(head + &body)]
    })
    .await;
    let gate = models("").document(document("model", &server)).start().await;
    for (at, (upstream, _, _, status, code)) in cases.iter().enumerate() {
        let answer = gate.invoke("model", &json!({"message": at.to_string()})).await;
        let error = answer.expect_fault(*status, code);
        answer.assert_hides(&[SECRET, "org-77", "CUDA", "gpt-small", "quota", "credit", "crashed", "login.example"]);
        match (*status, *code) {
            (429 | 503, _) => assert_eq!(answer.header("retry-after"), Some("7"), "{upstream}"),
            (400, _) => assert_eq!(error["message"], "This model's maximum context length is 4096 tokens."),
            _ => {}
        }
    }
    let log = gate.access_log(cases.len()).await;
    assert!(log.iter().any(|entry| entry["detail"].as_str().is_some_and(|detail| detail.contains("model_not_found"))));
    assert!(!format!("{log:?}{}", gate.stderr()).contains(SECRET));
}

#[tokio::test]
async fn r36_answers_that_break_off_or_are_too_long_or_too_late_are_faults() {
    let server = Agent::scripted(|request| match request.json()["messages"][0]["content"].as_str() {
        Some("cut") => vec![
            write("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 500\r\n\r\n{\"choices\": ["),
            Step::Close,
        ],
        Some("long") => json_response(&completion(&"x".repeat(5 << 20))),
        Some("html") => http_response("502 Bad Gateway", "text/html", "<html>nginx</html>"),
        _ => vec![Step::Hang],
    })
    .await;
    let gate = models("").document(document("model", &server)).start().await;
    for message in ["cut", "long", "html"] {
        let answer = gate.invoke("model", &json!({"message": message})).await;
        answer.expect_fault(502, "AgentError");
        answer.assert_hides(&["nginx"]);
    }
    let late = gate.post("/agents/model/invoke").header("x-request-timeout", "0.5").json(&json!({"message": "late"}));
    send(late).await.expect_fault(504, "Timeout");
}

#[tokio::test]
async fn r11_a_client_of_openai_reaches_a_server_of_openai_through_the_gateway() {
    let server = Agent::scripted(repeat).await;
    let gate = models("").document(document("model", &server)).section("    accept_bearer: true\n").start().await;
    let chat =
        |body: &Value| gate.request("POST", "/openai/v1/chat/completions").bearer_auth(gate.key("team-a")).json(body);
    let mut body = json!({"model": "model", "messages": [{"role": "system", "content": "Be brief"}, {"role": "user", "content": "Hi"}]});
    let answer = send(chat(&body)).await.expect_ok();
    assert_eq!(answer["choices"][0]["message"]["content"], "Hi");
    assert_eq!((&answer["model"], &answer["usage"]["total_tokens"]), (&json!("model"), &json!(5)));
    assert_eq!(server.requests()[0].json(), json!({"model": "gpt-small", "messages": body["messages"]}));
    body["stream"] = json!(true);
    body["stream_options"] = json!({"include_usage": true});
    let text = send(chat(&body)).await.text();
    assert!(text.contains("\"content\":\"You said: \"") && text.contains("\"content\":\"Hi\""), "{text}");
    assert!(text.contains("\"total_tokens\":5") && text.ends_with("data: [DONE]\n\n"), "{text}");
    assert!(
        server.requests().iter().all(|request| request.header("authorization") == Some(&format!("Bearer {SECRET}")))
    );
}

#[tokio::test]
async fn r45_keys_pipelines_and_further_endpoints_work_as_for_other_agents() {
    let (server, closed) = (Agent::scripted(repeat).await, ClosedPort::new());
    let agents = format!(
        "agents:\n  sources: [agents.json]\n  rules:\n    - agents: ['model*']\n      endpoint: {{kind: openai, model: 'org/{{id}}'}}\n    - agents: [model-b]\n      settings: {{additional_endpoints: ['http://{}/other/v1?api-version=1']}}\n",
        server.address
    );
    let mut moved = document("model-b", &server);
    moved["endpoint"] = format!("http://{}/v1", closed.address).into();
    let gate = gateway().section(&agents).document(document("model-a", &server)).document(moved).start().await;
    for _ in 0..2 {
        let call = gate.post("/agents/model-a/invoke").header("idempotency-key", "k1").json(&json!({"message": "Hi"}));
        assert_eq!(send(call).await.expect_ok()["output"], "Hi");
    }
    assert_eq!(server.call_count(), 1);
    // The endpoint's own path and query stay.
    assert_eq!(gate.invoke("model-b", &json!({"message": "Hi"})).await.expect_ok()["output"], "Hi");
    let moved = &server.requests()[1];
    assert!(moved.head.starts_with("POST /other/v1/chat/completions?api-version=1 HTTP/1.1\r\n"), "{}", moved.head);
    assert_eq!(moved.json()["model"], "org/model-b");
    // An answer is the input of the next step, and an instruction is a part of it.
    let steps = json!([{"agent": "model-a"}, {"agent": "model-b", "instruction": "Translate"}]);
    let pipeline = gate.post("/pipelines/invoke").json(&json!({"steps": steps, "input": {"message": "Hi"}}));
    let answer = send(pipeline).await.expect_ok();
    let last: Value = serde_json::from_str(answer["output"].as_str().unwrap()).unwrap();
    assert_eq!((&last["output"], &last["instruction"]), (&json!("Hi"), &json!("Translate")));
}

#[tokio::test]
async fn r30_requests_to_the_servers_own_api_pass_as_they_are() {
    let server = Agent::scripted(|request| json_response(&json!({"head": request.head.lines().next()}))).await;
    let agents = "agents:\n  sources: [agents.json]\n  rules:\n    - agents: [model]\n      endpoint: {kind: openai, model: m}\n      api: {preset: openai}\n";
    let gate = gateway().section(agents).document(document("model", &server)).start().await;
    let models = gate.request("GET", "/agents/model/api/models").header("x-api-key", gate.key("team-a"));
    assert_eq!(send(models).await.expect_ok()["head"], "GET /v1/models HTTP/1.1");
    let body = json!({"model": "other", "messages": []});
    let own =
        gate.request("POST", "/agents/model/api/chat/completions").header("x-api-key", gate.key("team-a")).json(&body);
    assert_eq!(send(own).await.expect_ok()["head"], "POST /v1/chat/completions HTTP/1.1");
    assert_eq!(server.requests()[1].json(), body);
}

#[tokio::test]
async fn r41_the_key_goes_to_no_server_that_only_a_publisher_names() {
    let server = Agent::scripted(repeat).await;
    let agents = "agents:\n  sources: [agents.json]\n  defaults:\n    credential: {value: env:MODEL_KEY, destinations: {origins: ['https://api.llm.example']}}\n  rules:\n    - agents: ['model*']\n      endpoint: {kind: openai, model: m}\n";
    let gate = gateway().section(agents).env("MODEL_KEY", SECRET).document(document("model", &server)).start().await;
    gate.invoke("model", &json!({"message": "Hi"})).await.expect_ok();
    assert_eq!(server.requests()[0].header("authorization"), None);
}

#[tokio::test]
async fn a_dry_run_shows_the_request_to_the_server_and_calls_nobody() {
    let server = Agent::scripted(repeat).await;
    let gate = models("").document(document("model", &server)).start().await;
    let call = Call::post("/agents/model/invoke", "{\"message\": \"Hi\"}").header("content-type", "application/json");
    let explanation = call.explain(&gate).await;
    assert_eq!(explanation["verdict"], "admitted", "{explanation}");
    assert_eq!(explanation["request"]["path"], "/v1/chat/completions");
    assert_eq!(server.call_count(), 0);
    gate.invoke("model", &json!({"message": "Hi"})).await.expect_ok();
    assert_eq!(explanation["request"]["body_length"], server.requests()[0].body.len());
    assert!(!explanation.to_string().contains(SECRET));
}

#[test]
fn settings_that_cannot_work_are_refused_by_name() {
    let folder = tempfile::TempDir::new().unwrap();
    let document = json!({"id": "model", "name": "m", "endpoint": "wss://llm.example/v1"});
    std::fs::write(folder.path().join("agents.json"), document.to_string()).unwrap();
    for (endpoint, problem) in [
        ("{kind: openai}", "model"),
        ("{kind: other, model: m}", "kind"),
        ("{kind: openai, model: ''}", "/model: must have at least 1 character"),
        ("{kind: openai, model: ' '}", "agents.rules[0].endpoint.model"),
        ("{kind: openai, model: m, parameters: {stream: true}}", "agents.rules[0].endpoint.parameters.stream"),
        ("{kind: openai, model: m, parameters: {tools: []}}", "agents.rules[0].endpoint.parameters.tools"),
        ("{kind: openai, model: m, temperature: 0}", "temperature"),
        ("{kind: openai, model: m}", "is not at an address of HTTP (wss)"),
    ] {
        let yaml = format!(
            "listeners: [{{address: '127.0.0.1:0'}}]\nauth: {{api_keys: {{files: [keys.jsonl]}}}}\nagents:\n  sources: [agents.json]\n  rules:\n    - agents: [model]\n      endpoint: {endpoint}\n"
        );
        std::fs::write(folder.path().join("gatepost.yaml"), yaml).unwrap();
        std::fs::write(folder.path().join("keys.jsonl"), "").unwrap();
        let output =
            gatepost_command().current_dir(folder.path()).args(["check", "-c", "gatepost.yaml"]).output().unwrap();
        let text = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(text.contains(problem), "{endpoint}: {text}");
    }
}
