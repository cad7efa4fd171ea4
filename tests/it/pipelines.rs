//! Pipelines: several agents in one call, where each gets the answer of the previous one, and failures of a step.

use crate::support::{
    agent::{Agent, Step, http_response, json_response, latch, write},
    eventually,
    gateway::{Gateway, gateway, send, translator_document},
    gateway_response::GatewayResponse,
};
use futures_util::future::join_all;
use serde_json::{Value, json};
use std::time::Duration;

async fn run(gate: &Gateway, steps: Value, input: Value) -> GatewayResponse {
    send(gate.post("/pipelines/invoke").json(&json!({"steps": steps, "input": input}))).await
}

/// An agent that answers text with more text.
async fn agent_appending(word: &'static str) -> Agent {
    Agent::scripted(move |got| {
        let text = got.json()["text"].as_str().unwrap_or_default().to_owned();
        json_response(&json!({"text": format!("{text} {word}")}))
    })
    .await
}

#[tokio::test]
async fn r112_the_answer_of_one_step_is_the_input_of_the_next() {
    let (first, second) = (agent_appending("one").await, agent_appending("two").await);
    let gate = gateway().agent("a", &first).agent("b", &second).start().await;
    let steps = json!([{"agent": "a"}, {"agent": "b", "instruction": "go on"}, {"agent": "a"}]);
    let answer = run(&gate, steps, json!({"text": "zero"})).await;
    assert_eq!(answer.expect_ok(), json!({"text": "zero one two one"}));
    assert_eq!(second.requests()[0].json(), json!({"text": "zero one", "instruction": "go on"}));
    assert_eq!((first.call_count(), second.call_count()), (2, 1));
    let id = answer.header("x-request-id").unwrap();
    assert_eq!(second.requests()[0].header("x-request-id"), Some(id), "the steps have the same request id");
    let lines = gate.access_log(4).await;
    let agents: Vec<&Value> = lines.iter().map(|line| &line["agent"]).filter(|agent| agent.is_string()).collect();
    assert!(
        agents.contains(&&json!("a")) && agents.contains(&&json!("b")),
        "each step has an access-log entry: {lines:?}"
    );
    assert!(lines.iter().all(|line| line["request_id"] == id && line["caller"] == "key:team-a"), "{lines:?}");
}

#[tokio::test]
async fn r111_the_instruction_of_a_step_breaks_no_strict_schema() {
    let (first, strict) = (agent_appending("one").await, Agent::echo().await);
    let mut document = strict.document("strict");
    let inputs = json!({"type": "object", "properties": {"text": {"type": "string"}}, "additionalProperties": false});
    document["operations"] = json!([{"name": "work", "inputs": inputs, "outputs": {"type": "object"}}]);
    // A contract that only reports violations leaves no instruction out.
    let instructed = json!({"text": "zero one", "instruction": "go on"});
    for (mode, expected, expected_violations) in
        [("enforce", json!({"text": "zero one"}), 0), ("report", instructed, 1)]
    {
        let contract = format!("contract: {{input: {mode}}}\n");
        let gate = gateway().agent("a", &first).document(document.clone()).section(&contract).start().await;
        let steps = json!([{"agent": "a"}, {"agent": "strict", "instruction": "go on"}]);
        let answer = run(&gate, steps, json!({"text": "zero"})).await;
        assert_eq!(answer.expect_ok(), json!({"echo": expected}), "{mode}");
        assert_eq!(gate.stderr().matches("contract violated").count(), expected_violations, "{mode}");
    }
}

#[tokio::test]
async fn r111_an_instruction_is_judged_by_the_schema_of_the_operation_that_the_input_names() {
    let agent = Agent::echo().await;
    let mut document = agent.document("two");
    let inputs = |members: Value| json!({"type": "object", "properties": members, "required": ["text"]});
    document["operations"] = json!([
        {"name": "a", "inputs": inputs(json!({"text": {"type": "string"}}))},
        {"name": "b", "inputs": inputs(json!({"text": {"type": "string"}, "instruction": {"maxLength": 3}}))},
    ]);
    let gate = gateway().document(document).start().await;
    let steps = json!([{"agent": "two", "instruction": "go on"}]);
    for (operation, pointers) in [("a", &["/text"][..]), ("b", &["/instruction", "/text"])] {
        let answer = run(&gate, steps.clone(), json!({"operation": operation, "text": 1})).await;
        let error = answer.expect_fault(400, "InvalidInput");
        let details = error["details"].as_array().unwrap().iter();
        let mut found: Vec<&str> = details.map(|detail| detail["pointer"].as_str().unwrap()).collect();
        found.sort_unstable();
        assert_eq!(found, pointers, "{operation}: {error}");
    }
    let answer = run(&gate, steps, json!({"operation": "b", "text": "x"})).await;
    assert_eq!(answer.expect_ok(), json!({"echo": {"operation": "b", "text": "x"}}), "left out, as it is too long");
}

#[tokio::test]
async fn text_and_empty_answers_become_json_between_steps() {
    let text = Agent::with_steps(http_response("200 OK", "text/plain", "plain \"text\"")).await;
    let nothing = Agent::with_steps(vec![write("HTTP/1.1 204 No Content\r\n\r\n")]).await;
    let echo = Agent::echo().await;
    let gate = gateway().agent("text", &text).agent("nothing", &nothing).agent("echo", &echo).start().await;
    let answer = run(&gate, json!([{"agent": "text"}, {"agent": "echo"}]), json!({})).await;
    assert_eq!(answer.expect_ok(), json!({"echo": "plain \"text\""}));
    let answer = run(&gate, json!([{"agent": "nothing"}, {"agent": "echo"}]), json!({})).await;
    assert_eq!(answer.expect_ok(), json!({"echo": null}));
    let answer = run(&gate, json!([{"agent": "echo"}, {"agent": "text"}]), json!("a string")).await;
    assert_eq!((answer.status, answer.text().as_str()), (200, "plain \"text\""));
    assert_eq!(answer.header("content-type"), Some("text/plain"));
    assert_eq!(run(&gate, json!([{"agent": "nothing"}]), json!({})).await.status, 204);
}

#[tokio::test]
async fn a_failing_step_ends_the_pipeline_and_the_error_names_it_and_the_steps_run() {
    let first = agent_appending("one").await;
    let failing =
        Agent::with_steps(http_response("500 Internal Server Error", "text/plain", "Traceback at /srv/app.py")).await;
    let last = Agent::echo().await;
    let gate = gateway().agent("a", &first).agent("fails", &failing).agent("c", &last).start().await;
    let steps = json!([{"agent": "a"}, {"agent": "fails"}, {"agent": "c"}]);
    let answer = run(&gate, steps, json!({"text": "x"})).await;
    let error = answer.expect_fault(500, "AgentError");
    assert_eq!(error["step"], json!({"index": 1, "agent": "fails", "steps_run": 1}));
    assert!(error["message"].as_str().unwrap().starts_with("Step 1, after 1 step has run: "), "{error}");
    answer.assert_hides(&["Traceback", "/srv"]);
    assert_eq!((first.call_count(), failing.call_count(), last.call_count()), (1, 1, 0));
    let problem = gate.post("/pipelines/invoke").header("accept", "application/problem+json");
    let problem = send(problem.json(&json!({"steps": [{"agent": "fails"}], "input": {}}))).await.json();
    assert_eq!(problem["step"], json!({"index": 0, "agent": "fails", "steps_run": 0}));
}

#[tokio::test]
async fn r40_an_error_of_json_rpc_or_a2a_is_a_failure_of_its_step_and_no_input_of_the_next() {
    let rpc_error = json!({"jsonrpc": "2.0", "id": 1, "error": {"code": -32000, "message": "boom at /srv/app.py"}});
    let a2a_error = json!({"error": {"code": 404, "status": "NOT_FOUND", "message": "m"}}).to_string();
    let ok = Agent::with_steps(json_response(&rpc_error)).await;
    let failed = Agent::with_steps(http_response("500 Oops", "application/json", &rpc_error.to_string())).await;
    let a2a = Agent::with_steps(http_response("404 Not Found", "application/json", &a2a_error)).await;
    let stated = Agent::with_steps(json_response(&json!({"status": "FAILED"}))).await;
    let error_event = "data: half\n\nevent: error\ndata: boom at /srv/app.py\n\n";
    let events = Agent::with_steps(http_response("200 OK", "text/event-stream", error_event)).await;
    let echo = Agent::echo().await;
    let build = gateway().agent("ok", &ok).agent("failed", &failed).agent("a2a", &a2a).agent("stated", &stated);
    let gate = build.agent("events", &events).agent("echo", &echo).start().await;
    for (agent, status, code) in [
        ("ok", 502, "AgentError"),
        ("failed", 500, "AgentError"),
        ("a2a", 404, "CapabilityNotFound"),
        ("stated", 502, "AgentError"),
        ("events", 502, "AgentError"),
    ] {
        for steps in [json!([{"agent": agent}, {"agent": "echo"}]), json!([{"agent": agent}])] {
            let answer = run(&gate, steps, json!({"text": "x"})).await;
            let error = answer.expect_fault(status, code);
            assert_eq!(error["step"], json!({"index": 0, "agent": agent, "steps_run": 0}), "{error}");
            answer.assert_hides(&["/srv"]);
        }
    }
    assert_eq!(echo.call_count(), 0);
    // A client of the protocol reads the error itself.
    let request = json!({"jsonrpc": "2.0", "id": 1, "method": "x"});
    let direct = send(gate.post("/agents/ok/invoke").json(&request)).await;
    assert_eq!((direct.status, direct.json()), (200, rpc_error));
}

#[tokio::test]
async fn an_agent_that_dies_during_its_answer_is_not_called_again() {
    let first = agent_appending("one").await;
    let dying = Agent::with_steps(vec![write("HTTP/1.1 200 OK\r\nContent-Length: 90\r\n\r\n{\"te"), Step::Reset]).await;
    let gate = gateway().agent("a", &first).agent("dies", &dying).start().await;
    let answer = run(&gate, json!([{"agent": "a"}, {"agent": "dies"}, {"agent": "a"}]), json!({})).await;
    assert_eq!(answer.expect_fault(502, "AgentError")["step"]["index"], 1);
    assert_eq!((first.call_count(), dying.call_count()), (1, 1));
}

#[tokio::test]
async fn invalid_oversized_and_missing_answers_are_faults_of_their_step() {
    let garbage = Agent::with_steps(http_response("200 OK", "application/json", "{\"half\":")).await;
    let large =
        Agent::with_steps(http_response("200 OK", "application/json", &json!("x".repeat(2 << 20)).to_string())).await;
    let binary = Agent::with_steps(vec![write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n\xff\xfe".to_vec())]).await;
    let echo = Agent::echo().await;
    let mut gone = echo.document("gone");
    gone["endpoint"] = json!("http://127.0.0.1:1/");
    let build = gateway().agent("garbage", &garbage).agent("large", &large).agent("binary", &binary);
    let gate = build.agent("echo", &echo).document(gone).start().await;
    for (agent, status, code) in [
        ("garbage", 502, "AgentError"),
        ("large", 502, "AgentError"),
        ("binary", 502, "AgentError"),
        ("gone", 503, "AgentUnavailable"),
    ] {
        let answer = run(&gate, json!([{"agent": agent}, {"agent": "echo"}]), json!({})).await;
        assert_eq!(answer.expect_fault(status, code)["step"], json!({"index": 0, "agent": agent, "steps_run": 0}));
    }
    assert_eq!(echo.call_count(), 0);
}

#[tokio::test]
async fn no_step_runs_unless_the_caller_may_call_every_agent() {
    let (open, closed) = (Agent::echo().await, Agent::echo().await);
    let mut idle = closed.document("idle");
    idle["status"] = json!("inactive");
    let mut named = closed.document("named");
    named["operations"] = json!([{"name": "one"}, {"name": "two"}]);
    let gate = gateway()
        .agent("open", &open)
        .agent("closed", &closed)
        .document(idle)
        .document(named)
        .access("access:\n  grants:\n    - {callers: ['key:team-a'], agents: [open, idle, named]}\n")
        .start()
        .await;
    for (step, status, code) in [
        (json!({"agent": "closed"}), 404, "NotFound"),
        (json!({"agent": "unknown"}), 404, "NotFound"),
        (json!({"agent": "idle"}), 503, "AgentUnavailable"),
        (json!({"agent": "named", "operation": "three"}), 404, "CapabilityNotFound"),
        (json!({"agent": "open", "operation": "three"}), 404, "CapabilityNotFound"),
    ] {
        let answer = run(&gate, json!([{"agent": "open"}, step]), json!({})).await;
        let error = answer.expect_fault(status, code);
        assert_eq!((&error["step"]["index"], &error["step"]["steps_run"]), (&json!(1), &json!(0)), "{error}");
    }
    let anonymous = gate.request("POST", "/pipelines/invoke").json(&json!({"steps": [{"agent": "open"}], "input": {}}));
    send(anonymous).await.expect_fault(401, "Unauthorized");
    assert_eq!((open.call_count(), closed.call_count()), (0, 0));
    let answer = run(&gate, json!([{"agent": "open"}, {"agent": "named", "operation": "two"}]), json!({})).await;
    answer.expect_ok();
    assert_eq!(closed.requests()[0].header("x-operation"), Some("two"));
}

#[tokio::test]
async fn r32_the_answer_of_one_step_must_match_the_schema_of_the_next() {
    let first = agent_appending("one").await;
    let translates = Agent::echo().await;
    let gate = gateway().agent("a", &first).document(translator_document(&translates)).start().await;
    let answer = run(&gate, json!([{"agent": "a"}, {"agent": "agent-12345"}]), json!({"text": "x"})).await;
    let error = answer.expect_fault(400, "InvalidInput");
    assert_eq!(error["step"], json!({"index": 1, "agent": "agent-12345", "steps_run": 1}));
    assert!(error["details"].is_array(), "{error}");
    assert_eq!((first.call_count(), translates.call_count()), (1, 0));
}

#[tokio::test]
async fn r45_a_pipeline_with_a_key_runs_once() {
    let latch_to_close = latch();
    let wait_latch = latch_to_close.clone();
    let first =
        Agent::scripted(move |got| [vec![Step::WaitForLatch(wait_latch.clone())], json_response(&got.json())].concat())
            .await;
    let failing = Agent::with_steps(http_response("500 Internal Server Error", "text/plain", "no")).await;
    let (echo, mut gone) = (Agent::echo().await, failing.document("gone"));
    gone["endpoint"] = json!("http://127.0.0.1:1/");
    let build = gateway().agent("first", &first).agent("fails", &failing).agent("echo", &echo).document(gone);
    let gate = build.caller("team-b", &[]).start().await;
    let keyed = async |caller: &str, key: &str, steps: &[&str], n: usize| {
        let steps: Vec<Value> = steps.iter().map(|agent| json!({"agent": agent})).collect();
        let call = gate.request("POST", "/pipelines/invoke").header("x-api-key", gate.key(caller));
        send(call.header("idempotency-key", key).json(&json!({"steps": steps, "input": {"n": n}}))).await
    };
    let steps = ["first", "echo"];
    let both = join_all([keyed("team-a", "k", &steps, 1), keyed("team-a", "k", &steps, 1)]);
    let (both, ()) = tokio::join!(both, async {
        eventually("the first step runs", async || first.call_count() == 1).await;
        eventually("both calls have arrived", async || gate.metric("gatepost_calls_in_flight").await >= Some(3.0))
            .await;
        latch_to_close.close();
    });
    assert!(both.iter().all(|answer| answer.expect_ok() == json!({"echo": {"n": 1}})));
    let again = keyed("team-a", "k", &steps, 1).await;
    assert_eq!((again.expect_ok(), again.header("idempotent-replayed")), (json!({"echo": {"n": 1}}), Some("true")));
    assert_eq!((first.call_count(), echo.call_count()), (1, 1));
    keyed("team-a", "k", &steps, 2).await.expect_fault(422, "IdempotencyMismatch");
    assert_eq!(keyed("team-b", "k", &steps, 2).await.expect_ok(), json!({"echo": {"n": 2}}));
    for replayed in [None, Some("true")] {
        let failed = keyed("team-a", "f", &["echo", "gone"], 1).await;
        assert_eq!((failed.status, failed.header("idempotent-replayed")), (503, replayed));
        assert_eq!(failed.json()["error"]["step"]["steps_run"], 1);
    }
    assert_eq!(echo.call_count(), 3, "a step that has run is not repeated");
    for _ in 0..2 {
        assert_eq!(keyed("team-a", "g", &["fails"], 1).await.status, 500);
        assert_eq!(keyed("team-a", "n", &["gone"], 1).await.header("idempotent-replayed"), None);
    }
    assert_eq!(failing.call_count(), 1);
}

#[tokio::test]
async fn all_steps_share_one_deadline() {
    let slow = Agent::scripted(|_| {
        vec![Step::Sleep(Duration::from_millis(700)), write("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")]
    })
    .await;
    let gate = gateway().agent("slow", &slow).start().await;
    let steps = json!([{"agent": "slow"}, {"agent": "slow"}, {"agent": "slow"}, {"agent": "slow"}]);
    let call = gate.post("/pipelines/invoke").header("x-request-timeout", "1s");
    let answer = send(call.json(&json!({"steps": steps, "input": {}}))).await;
    let error = answer.expect_fault(504, "Timeout");
    assert!(error["step"]["index"].as_u64().unwrap() <= 1, "{error}");
    assert!(slow.call_count() <= 2);
}

#[tokio::test]
async fn a_caller_that_disconnects_ends_the_pipeline() {
    let hangs = Agent::with_steps(vec![Step::Hang]).await;
    let last = Agent::echo().await;
    let gate = gateway().agent("hangs", &hangs).agent("last", &last).start().await;
    let request =
        gate.post("/pipelines/invoke").json(&json!({"steps": [{"agent": "hangs"}, {"agent": "last"}], "input": {}}));
    let call = tokio::spawn(send(request));
    eventually("the first step runs", async || hangs.call_count() == 1).await;
    call.abort();
    eventually("the gateway disconnects from the agent", async || hangs.aborted_responses() == 1).await;
    assert_eq!(last.call_count(), 0);
}

#[tokio::test]
async fn r121_invalid_pipelines_are_refused_with_the_reason() {
    let agent = Agent::echo().await;
    let gate = gateway().agent("a", &agent).start().await;
    let post = |body: String| gate.post("/pipelines/invoke").header("content-type", "application/json").body(body);
    let step = json!({"agent": "a"});
    for (body, problem) in [
        (json!({"steps": vec![&step; 17], "input": {}}).to_string(), "pipeline_depth_exceeded"),
        (json!({"steps": [step], "input": [{}]}).to_string(), "not a batch"),
        (json!([{"steps": [step], "input": {}}]).to_string(), "not an array"),
        (json!({"steps": [step], "input": {}, "parallel": true}).to_string(), "unknown member 'parallel'"),
        (json!({"steps": [{"agent": "a", "url": "x"}], "input": {}}).to_string(), "unknown member 'url'"),
        ("{\"steps\":[],\"steps\":[]}".to_owned(), "not valid JSON"),
        ("{".to_owned(), "not valid JSON"),
        (String::new(), "not valid JSON"),
    ] {
        let answer = send(post(body)).await;
        answer.expect_fault(400, "InvalidInput");
        assert!(answer.text().contains(problem), "{}", answer.text());
    }
    let large = json!({"steps": [step], "input": "x".repeat(2 << 20)}).to_string();
    send(post(large)).await.expect_fault(413, "PayloadTooLarge");
    let odd = gate.post("/pipelines/invoke").header("content-type", "text/plain").body("{}");
    send(odd).await.expect_fault(415, "UnsupportedMediaType");
    let get = gate.request("GET", "/pipelines/invoke").header("x-api-key", gate.key("team-a"));
    let refused = send(get).await;
    refused.expect_fault(405, "MethodNotAllowed");
    assert_eq!(refused.header("allow"), Some("POST"));
    assert_eq!(agent.call_count(), 0);
    assert!(run(&gate, json!(vec![&step; 16]), json!({})).await.expect_ok()["echo"].is_object());
    assert_eq!(agent.call_count(), 16);
}

#[tokio::test]
async fn r5_every_step_counts_as_a_call_of_its_caller() {
    let agent = Agent::echo().await;
    let section = "limits:\n  per_caller: 3/m burst 3\n";
    let gate = gateway().agent("a", &agent).section(section).start().await;
    let answer = run(&gate, json!([{"agent": "a"}, {"agent": "a"}, {"agent": "a"}]), json!({})).await;
    assert_eq!(answer.expect_fault(429, "RateLimited")["step"], json!({"index": 2, "agent": "a", "steps_run": 2}));
    assert_eq!(agent.call_count(), 2, "the pipeline itself counts as a call");
}
