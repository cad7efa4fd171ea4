//! Requests in OpenAI's form are explained as the calls that they make.

use super::{Call, step};
use crate::support::{
    agent::Agent,
    gateway::{gateway, translator_document},
};
use serde_json::json;

#[tokio::test]
async fn r11_dry_runs_of_requests_for_completions_agree_with_the_requests() {
    let echo = Agent::echo().await;
    let chat = |model: &str, rest: serde_json::Value| {
        let mut body = json!({"model": model, "messages": [{"role": "user", "content": "Hi"}]});
        body.as_object_mut().unwrap().extend(rest.as_object().unwrap().clone());
        Call::post("/openai/v1/chat/completions", &body.to_string()).header("content-type", "application/json")
    };
    let hi = || chat("echo", json!({}));
    let access = "access:\n  grants:\n    - {callers: ['key:team-a'], agents: [echo, agent-12345]}\n";
    let gate = gateway()
        .agent("echo", &echo)
        .agent("hidden", &echo)
        .document(translator_document(&echo))
        .access(access)
        .section("contract: {max_body_size: 4KiB}\n")
        .start()
        .await;
    for (call, refusing) in [
        (hi(), None),
        (chat("echo", json!({"stream": true})), None),
        (Call::post("/openai/v1/responses", r#"{"model": "echo", "input": "Hi"}"#), None),
        (hi().by(None), Some("authentication")),
        (Call::post("/openai/v1/chat/completions", "{"), Some("input")),
        (Call { headers: vec![("content-type", "text/plain".to_owned())], ..hi() }, Some("input")),
        (chat("echo", json!({"user": "x".repeat(5_000)})), Some("input")),
        (chat("echo", json!({"n": 2})), Some("input")),
        (chat("missing", json!({})), Some("agent_lookup")),
        (chat("hidden", json!({})), Some("authorization")),
        // Its input has three texts that are required.
        (chat("agent-12345", json!({})), Some("input")),
        (hi().header("x-request-timeout", "soon"), Some("deadline")),
        (hi().header("idempotency-key", "two words"), Some("request_fields")),
        (hi().header("idempotency-key", "k"), None),
    ] {
        let before = echo.call_count();
        let explanation = call.explain(&gate).await;
        assert_eq!(echo.call_count(), before, "a dry run reached the agent");
        let response = call.make(&gate).await;
        let Some(refusing) = refusing else {
            assert_eq!(response.status, 200, "{call:?}: {}", response.text());
            assert_eq!(explanation["verdict"], "admitted", "{call:?}: {explanation:#}");
            // What was announced is what arrives.
            let received = echo.requests().pop().unwrap();
            let request = &explanation["request"];
            assert_eq!(request["body_length"], received.body.len(), "{request:#}");
            let announced: Vec<(String, String)> = serde_json::from_value(request["headers"].clone()).unwrap();
            let accept = announced.iter().find(|(name, _)| name == "accept").map(|(_, value)| value.as_str());
            assert_eq!(accept, received.header("accept"));
            continue;
        };
        let error = &response.json()["error"];
        assert_eq!(explanation["message"], error["message"], "{call:?}: {explanation:#}");
        assert_eq!(explanation["status"], response.status, "{call:?}: {explanation:#}");
        assert_eq!(step(&explanation, refusing)["verdict"], "refused", "{call:?}: {explanation:#}");
    }
}

#[tokio::test]
async fn r5_a_dry_run_of_an_exhausted_caller_is_refused_by_the_rate_as_the_request_is() {
    let echo = Agent::echo().await;
    let limits = "limits: {per_caller: 1/h, per_address: null}\n";
    let gate = gateway().agent("echo", &echo).section(limits).start().await;
    let body = json!({"model": "echo", "messages": [{"role": "user", "content": "Hi"}]}).to_string();
    let call = Call::post("/openai/v1/chat/completions", &body).header("content-type", "application/json");
    assert_eq!(call.explain(&gate).await["verdict"], "admitted");
    assert_eq!(call.make(&gate).await.status, 200);
    let explanation = call.explain(&gate).await;
    let response = call.make(&gate).await;
    assert_eq!((response.status, &explanation["status"]), (429, &json!(429)), "{explanation:#}");
    assert_eq!(explanation["message"], response.json()["error"]["message"]);
    let refused = step(&explanation, "rate_limits");
    assert_eq!((&refused["verdict"], &refused["rule"]), (&json!("refused"), &json!("limits.per_caller")));
    assert_eq!(explanation["limits"][0]["verdict"], "refused", "{explanation:#}");
}
