//! Tasks: asynchronous calls that callers poll, follow, cancel and get webhooks for; crashes, limits, and
//! isolation of callers.

use crate::support::{
    agent::{Agent, Step, http_response, json_response, latch, write},
    eventually,
    gateway::{Gateway, GatewayBuilder, gateway, send},
    gateway_response::GatewayResponse,
};
use rustix::process::Signal;
use serde_json::{Value, json};

const TASKS: &str = "tasks:\n  sqlite_file: tasks.db\n  lease_ttl: 1s\n  poll_interval: 1s\n";

pub fn gateway_with_tasks(sections: &str) -> GatewayBuilder {
    gateway().section(&format!("{TASKS}{sections}")).caller("team-b", &[])
}

/// Calls an agent with this value of Prefer.
pub async fn call_with_prefer(gate: &Gateway, agent: &str, prefer: &str) -> GatewayResponse {
    let call = gate.post(&format!("/agents/{agent}/invoke")).header("prefer", prefer).json(&json!({"text": "hi"}));
    send(call).await
}

pub async fn request_as(gate: &Gateway, caller: &str, method: &str, path: &str) -> GatewayResponse {
    send(gate.request(method, path).header("x-api-key", gate.key(caller))).await
}

/// The path of the task of a 202 response.
#[track_caller]
pub fn task_path(answer: &GatewayResponse) -> String {
    assert_eq!(answer.status, 202, "{}", answer.text());
    let path = answer.header("location").unwrap().to_owned();
    assert_eq!(path, format!("/tasks/{}", answer.json()["taskId"].as_str().unwrap()));
    path
}

pub async fn wait_for_status(gate: &Gateway, path: &str, status: &str) -> Value {
    let mut task = Value::Null;
    eventually(&format!("the task is {status}"), async || {
        let answer = request_as(gate, "team-a", "GET", path).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        task = answer.json();
        task["status"] == status
    })
    .await;
    task
}

#[tokio::test]
async fn r79_an_asynchronous_call_returns_a_task_to_poll_that_ends_with_the_agents_answer() {
    let latch_to_close = latch();
    let wait_latch = latch_to_close.clone();
    let body = json!({"done": true});
    let agent =
        Agent::scripted(move |_| [vec![Step::WaitForLatch(wait_latch.clone())], json_response(&body)].concat()).await;
    let gate = gateway_with_tasks("").agent("slow", &agent).start().await;
    let started = call_with_prefer(&gate, "slow", "respond-async").await;
    let path = task_path(&started);
    assert_eq!(started.header("preference-applied"), Some("respond-async"));
    assert_eq!((started.header("retry-after"), &started.json()["pollInterval"]), (Some("1"), &json!(1)));
    assert_eq!((&started.json()["status"], &started.json()["sourceAgent"]), (&json!("working"), &json!("slow")));
    let working = request_as(&gate, "team-a", "GET", &path).await;
    assert_eq!((working.json()["status"].as_str(), working.header("retry-after")), (Some("working"), Some("1")));
    assert_eq!(gate.metric("gatepost_tasks_running").await, Some(1.0));
    latch_to_close.close();
    let task = wait_for_status(&gate, &path, "completed").await;
    assert_eq!((&task["result"], &task["statusCode"]), (&json!({"done": true}), &json!(200)));
    assert!(agent.requests()[0].header("prefer").is_none(), "Prefer reached the agent");
    assert!(agent.requests()[0].json() == json!({"text": "hi"}));
    let mut statuses = Vec::new();
    eventually("both entries are logged", async || {
        let lines = gate.access_log(1).await;
        statuses = lines.iter().filter(|line| line["agent"] == "slow").map(|line| line["status"].clone()).collect();
        statuses.len() >= 2
    })
    .await;
    assert_eq!(statuses, [json!(202), json!(200)], "the call, then the background call");
}

#[tokio::test]
async fn r79_prefer_wait_returns_the_answer_itself_if_it_arrives_in_time() {
    let quick = Agent::with_steps(json_response(&json!({"quick": 1}))).await;
    let silent = Agent::with_steps(vec![Step::Hang]).await;
    let broken = Agent::with_steps(vec![Step::Close]).await;
    let gate =
        gateway_with_tasks("").agent("quick", &quick).agent("silent", &silent).agent("broken", &broken).start().await;
    for prefer in ["wait=20", "respond-async, wait=20"] {
        let answer = call_with_prefer(&gate, "quick", prefer).await;
        assert_eq!(answer.expect_ok(), json!({"quick": 1}));
        assert!(answer.header("x-task-id").is_some());
    }
    call_with_prefer(&gate, "broken", "wait=20").await.expect_fault(502, "AgentError");
    let later = call_with_prefer(&gate, "silent", "wait=1").await;
    let path = task_path(&later);
    assert_eq!(later.header("preference-applied"), Some("wait=1"));
    assert_eq!(request_as(&gate, "team-a", "DELETE", &path).await.json()["status"], "canceled");
}

#[tokio::test]
async fn r79_a_refused_call_creates_no_task() {
    let agent = Agent::echo().await;
    let mut document = agent.document("strict");
    document["inputs"] = json!({"type": "object", "required": ["name"]});
    let gate = gateway_with_tasks("").document(document).start().await;
    call_with_prefer(&gate, "strict", "respond-async").await.expect_fault(400, "InvalidInput");
    call_with_prefer(&gate, "unknown", "respond-async").await.expect_fault(404, "NotFound");
    let anonymous = gate.request("POST", "/agents/strict/invoke").header("prefer", "respond-async").json(&json!({}));
    assert_eq!(send(anonymous).await.status, 401);
    assert_eq!(agent.call_count(), 0);
}

#[tokio::test]
async fn r96_a_failed_task_has_the_error_code_without_internals_of_the_agent() {
    let cases: Vec<(&str, Vec<Step>, &str)> = vec![
        (
            "raw",
            http_response("500 Oops", "application/json", "{\"error\":\"Traceback /srv/secret.py\"}"),
            "AgentError",
        ),
        ("dies", vec![write("HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\nhalf"), Step::Close], "AgentError"),
        ("silent", vec![Step::Hang], "Timeout"),
        ("large", http_response("200 OK", "application/json", &format!("\"{}\"", "x".repeat(3_000))), "AgentError"),
        ("busy", http_response("503 Busy", "text/plain", "later"), "AgentUnavailable"),
        ("garbage", vec![write("what is this\r\n\r\n"), Step::Close], "AgentError"),
    ];
    let mut build = gateway_with_tasks("  max_result_size: 2KiB\n")
        .section("agents:\n  sources: [agents.json]\n  defaults: {timeouts: {first_byte: 600ms, idle: 600ms}}\n");
    let mut agents = Vec::new();
    for (id, steps, _) in &cases {
        let agent = Agent::with_steps(steps.clone()).await;
        build = build.agent(id, &agent);
        agents.push(agent);
    }
    let gate = build.start().await;
    for (id, _, code) in &cases {
        let task =
            wait_for_status(&gate, &task_path(&call_with_prefer(&gate, id, "respond-async").await), "failed").await;
        assert_eq!(task["error"]["code"], *code, "{id}: {task}");
        assert!(task["error"]["request_id"].is_string() && !task.to_string().contains("secret"), "{id}: {task}");
        assert!(task.get("result").is_none());
    }
}

#[tokio::test]
async fn r40_r79_a_task_whose_agent_reports_an_error_in_its_protocols_form_failed_and_has_the_answer() {
    let rpc_error = json!({"jsonrpc": "2.0", "id": 1, "error": {"code": -32000, "message": "no such order"}});
    let events = "data: one\n\nevent: error\ndata: boom\n\n";
    let head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n";
    let rpc = Agent::with_steps(json_response(&rpc_error)).await;
    let stream = Agent::with_steps(vec![write(format!("{head}{events}")), Step::Close]).await;
    let gate = gateway_with_tasks("").agent("rpc", &rpc).agent("stream", &stream).start().await;
    // The error answers a request of JSON-RPC.
    let call = async |agent: &str, prefer: &str| {
        let call = gate.post(&format!("/agents/{agent}/invoke")).header("prefer", prefer);
        send(call.json(&json!({"jsonrpc": "2.0", "id": 1, "method": "x"}))).await
    };
    for (agent, status, result) in [("rpc", 200, rpc_error.clone()), ("stream", 200, json!(events))] {
        let path = task_path(&call(agent, "respond-async").await);
        let task = wait_for_status(&gate, &path, "failed").await;
        assert_eq!(task["error"]["code"], "AgentError", "{agent}: {task}");
        assert_eq!((&task["statusCode"], &task["result"]), (&json!(status), &result), "{agent}: {task}");
    }
    // A caller that waits reads the answer, as without a task.
    let waited = call("rpc", "wait=20").await;
    assert_eq!((waited.status, waited.json()), (200, rpc_error));
    // Any other caller reads an error of the gateway, and the task has no answer.
    let path = task_path(&call_with_prefer(&gate, "rpc", "respond-async").await);
    let task = wait_for_status(&gate, &path, "failed").await;
    assert!(task["error"]["code"] == "AgentError" && task["result"].is_null(), "{task}");
}

#[tokio::test]
async fn r76_a_task_of_another_caller_looks_like_an_unknown_one() {
    let agent = Agent::with_steps(vec![Step::Hang]).await;
    let gate = gateway_with_tasks("").agent("silent", &agent).start().await;
    let path = task_path(&call_with_prefer(&gate, "silent", "respond-async").await);
    let unknown = format!("/tasks/{}", "0".repeat(32));
    let paths = ["/tasks/x", "/tasks/'%20or%201=1", &unknown, &path].map(str::to_owned);
    let mut messages = Vec::new();
    for path in &paths {
        for (method, path) in [("GET", path.clone()), ("DELETE", path.clone()), ("GET", format!("{path}/events"))] {
            messages.push(
                request_as(&gate, "team-b", method, &path).await.expect_fault(404, "NotFound")["message"].clone(),
            );
        }
    }
    messages.dedup();
    assert_eq!(messages.len(), 1, "{messages:?}");
    assert_eq!(send(gate.request("GET", &path)).await.status, 401);
    assert_eq!(request_as(&gate, "team-a", "PUT", &path).await.status, 405);
    assert_eq!(
        request_as(&gate, "team-a", "GET", &path).await.json()["status"],
        "working",
        "another caller cancelled the task"
    );
}

#[tokio::test]
async fn r79_cancelling_a_task_ends_the_call_to_the_agent() {
    let agent = Agent::with_steps(vec![Step::Hang]).await;
    let gate = gateway_with_tasks("").agent("silent", &agent).start().await;
    let path = task_path(&call_with_prefer(&gate, "silent", "respond-async").await);
    eventually("the agent receives the call", async || agent.call_count() == 1).await;
    for _ in 0..3 {
        assert_eq!(request_as(&gate, "team-a", "DELETE", &path).await.json()["status"], "canceled");
    }
    eventually("the gateway disconnects from the agent", async || agent.aborted_responses() == 1).await;
    assert_eq!(request_as(&gate, "team-a", "GET", &path).await.json()["status"], "canceled");
}

#[tokio::test]
async fn r81_events_contain_every_status_and_the_events_of_the_agent() {
    let steps = vec![
        write("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: one\n\nid: own\ndata: two\n\n"),
        Step::Close,
    ];
    let agent = Agent::with_steps(steps).await;
    let gate = gateway_with_tasks("").agent("stream", &agent).start().await;
    let path = task_path(&call_with_prefer(&gate, "stream", "respond-async").await);
    let events = format!("{path}/events");
    let all = request_as(&gate, "team-a", "GET", &events).await;
    assert_eq!(all.header("content-type"), Some("text/event-stream"));
    let text = all.text();
    assert!(text.starts_with("id: 1\nevent: status\ndata: {"), "{text}");
    assert!(text.contains("id: 2\ndata: one\n\nid: 3-own\ndata: two\n\nid: 4\nevent: status\n"), "{text}");
    assert!(text.contains("\"status\":\"completed\""), "{text}");
    let after = gate.request("GET", &events).header("x-api-key", gate.key("team-a"));
    let rest = send(after.header("last-event-id", "3-own")).await.text();
    assert!(
        rest.starts_with("id: 4\nevent: status\n") && rest.lines().filter(|line| line.starts_with("id: ")).count() == 1,
        "{rest}"
    );
    let odd = gate.request("GET", &events).header("x-api-key", gate.key("team-a"));
    send(odd.header("last-event-id", "own")).await.expect_fault(400, "InvalidInput");
    let task = wait_for_status(&gate, &path, "completed").await;
    assert_eq!(task["result"], "data: one\n\nid: own\ndata: two\n\n");
}

#[tokio::test]
async fn r79_a_rule_makes_calls_of_an_agent_asynchronous_without_prefer() {
    let agent = Agent::echo().await;
    let rules = "agents:\n  sources: [agents.json]\n  rules:\n    - {agents: ['slow-*'], async: true}\n";
    let gate = gateway_with_tasks("").section(rules).agent("slow-one", &agent).agent("other", &agent).start().await;
    let started = gate.invoke("slow-one", &json!({"a": 1})).await;
    assert_eq!(started.header("preference-applied"), None);
    assert_eq!(wait_for_status(&gate, &task_path(&started), "completed").await["result"], json!({"echo": {"a": 1}}));
    gate.invoke("other", &json!({})).await.expect_ok();
}

#[tokio::test]
async fn r79_the_default_store_is_beside_the_configuration() {
    let echo = Agent::echo().await;
    let gate = gateway().section("tasks: {}\n").agent("echo", &echo).start().await;
    wait_for_status(&gate, &task_path(&call_with_prefer(&gate, "echo", "respond-async").await), "completed").await;
    assert!(gate.folder().join("gatepost.db").is_file());
}

#[tokio::test]
async fn r79_tasks_beyond_the_limits_are_refused_with_retry_after() {
    let agent = Agent::with_steps(vec![Step::Hang]).await;
    let gate = gateway_with_tasks("  max_tasks_per_caller: 5\n  max_running: 8\nlimits: {max_share: 1}\n")
        .agent("silent", &agent)
        .start()
        .await;
    let calls = (0..40).map(|_| call_with_prefer(&gate, "silent", "respond-async"));
    let answers = futures_util::future::join_all(calls).await;
    let started: Vec<String> = answers.iter().filter(|answer| answer.status == 202).map(task_path).collect();
    assert_eq!(started.len(), 5);
    for answer in answers.iter().filter(|answer| answer.status != 202) {
        assert!(matches!(answer.status, 429 | 503), "{}", answer.text());
        assert!(answer.header("retry-after").is_some());
    }
    let other = gate.request("POST", "/agents/silent/invoke").header("x-api-key", gate.key("team-b"));
    assert_eq!(send(other.header("prefer", "respond-async").json(&json!({}))).await.status, 202);
    assert_eq!(request_as(&gate, "team-a", "DELETE", &started[0]).await.status, 200);
}

#[tokio::test]
async fn r79_a_task_is_deleted_after_its_ttl() {
    let agent = Agent::echo().await;
    let gate = gateway_with_tasks("  result_ttl: 1s\n  resume: {window: 1s}\n").agent("echo", &agent).start().await;
    let path = task_path(&call_with_prefer(&gate, "echo", "respond-async").await);
    wait_for_status(&gate, &path, "completed").await;
    eventually("the task is deleted", async || request_as(&gate, "team-a", "GET", &path).await.status == 404).await;
}

#[tokio::test]
async fn r79_without_the_section_every_call_is_synchronous() {
    let agent = Agent::echo().await;
    let gate = gateway().agent("echo", &agent).start().await;
    assert_eq!(call_with_prefer(&gate, "echo", "respond-async").await.status, 200);
    assert_eq!(request_as(&gate, "team-a", "GET", &format!("/tasks/{}", "0".repeat(32))).await.status, 404);
}

/// Kills the process, and starts a new one with the same files.
pub async fn restart_after_crash(gate: Gateway) -> Gateway {
    gate.send_signal(Signal::KILL);
    let keys = gate.keys.clone();
    let (folder, mut child) = gate.into_folder_and_child();
    child.wait().unwrap();
    tokio::task::spawn_blocking(move || Gateway::spawn(folder, keys, &[], &[])).await.unwrap()
}

#[tokio::test]
async fn r79_tasks_survive_a_crash_and_running_ones_fail_without_a_retry() {
    let echo = Agent::echo().await;
    let silent = Agent::with_steps(vec![Step::Hang]).await;
    let gate = gateway_with_tasks("").agent("echo", &echo).agent("silent", &silent).start().await;
    let completed = task_path(&call_with_prefer(&gate, "echo", "respond-async").await);
    let before = wait_for_status(&gate, &completed, "completed").await;
    let running = task_path(&call_with_prefer(&gate, "silent", "respond-async").await);
    eventually("the agent receives the call", async || silent.call_count() == 1).await;
    let gate = restart_after_crash(gate).await;
    assert_eq!(request_as(&gate, "team-a", "GET", &completed).await.json(), before);
    let lost = wait_for_status(&gate, &running, "failed").await;
    assert_eq!(lost["error"]["code"], "Overloaded", "{lost}");
    assert!(lost["error"]["message"].as_str().unwrap().contains("gateway"), "{lost}");
    assert_eq!(silent.call_count(), 1, "the call was repeated");
    let events = request_as(&gate, "team-a", "GET", &format!("{running}/events")).await.text();
    assert!(events.contains("event: status") && events.contains("\"status\":\"failed\""), "{events}");
    assert_eq!(request_as(&gate, "team-b", "GET", &completed).await.status, 404);
}

#[tokio::test]
async fn r79_a_shutdown_waits_for_tasks_and_fails_those_that_do_not_finish() {
    let latch_to_close = latch();
    let wait_latch = latch_to_close.clone();
    let slow =
        Agent::scripted(move |_| [vec![Step::WaitForLatch(wait_latch.clone())], json_response(&json!({}))].concat())
            .await;
    let silent = Agent::with_steps(vec![Step::Hang]).await;
    let mut gate = gateway_with_tasks("shutdown:\n  drain_timeout: 2s\n")
        .agent("slow", &slow)
        .agent("silent", &silent)
        .start()
        .await;
    let completed = task_path(&call_with_prefer(&gate, "slow", "respond-async").await);
    let aborted = task_path(&call_with_prefer(&gate, "silent", "respond-async").await);
    eventually("both agents receive their call", async || slow.call_count() + silent.call_count() == 2).await;
    gate.send_signal(Signal::TERM);
    latch_to_close.close();
    assert!(gate.wait_for_exit().await.success());
    let keys = gate.keys.clone();
    let (folder, _) = gate.into_folder_and_child();
    let gate = tokio::task::spawn_blocking(move || Gateway::spawn(folder, keys, &[], &[])).await.unwrap();
    assert_eq!(request_as(&gate, "team-a", "GET", &completed).await.json()["status"], "completed");
    let aborted = request_as(&gate, "team-a", "GET", &aborted).await.json();
    assert_eq!((&aborted["status"], &aborted["error"]["code"]), (&json!("failed"), &json!("Overloaded")), "{aborted}");
    let entries = gate.access_log(4).await;
    let cut_off: Vec<_> = entries.iter().filter(|entry| entry["code"] == "Overloaded").collect();
    assert!(cut_off.len() == 1 && cut_off[0]["agent"] == "silent" && cut_off[0]["blame"] == "gateway", "{entries:?}");
}

pub const CALLBACK_SETTINGS: &str = "  callbacks: {secret: env:HOOK_SECRET, allowed_addresses: [127.0.0.0/8], attempt_timeout: 1s, delivery_timeout: 1m}\n";
pub const WEBHOOK_SECRET: &str = "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=";
const SIGNING_KEY: &[u8] = b"0123456789abcdef0123456789abcdef";

#[tokio::test]
async fn r79_a_signed_webhook_about_the_end_is_retried_until_it_is_accepted() {
    let agent = Agent::echo().await;
    let attempts = std::sync::atomic::AtomicUsize::new(0);
    let webhook = Agent::scripted(move |_| match attempts.fetch_add(1, std::sync::atomic::Ordering::SeqCst) {
        0 => http_response("500 No", "text/plain", "no"),
        1 => vec![Step::Close],
        _ => http_response("204 No Content", "text/plain", ""),
    })
    .await;
    let gate =
        gateway_with_tasks(CALLBACK_SETTINGS).env("HOOK_SECRET", WEBHOOK_SECRET).agent("echo", &agent).start().await;
    let url = format!("http://{}/hook?x=1", webhook.address);
    let call = gate.post("/agents/echo/invoke").header("x-callback-url", &url).json(&json!({"a": 1}));
    let path = task_path(&send(call).await);
    eventually("the webhook is sent three times", async || webhook.call_count() == 3).await;
    let requests = webhook.requests();
    let [id, timestamp, signature] = ["webhook-id", "webhook-timestamp", "webhook-signature"]
        .map(|name| requests[2].header(name).unwrap().to_owned());
    assert_eq!(requests[0].header("webhook-id"), Some(&*id), "the webhook id changed between attempts");
    let signed = [format!("{id}.{timestamp}.").as_bytes(), &requests[2].body].concat();
    let key = aws_lc_rs::hmac::Key::new(aws_lc_rs::hmac::HMAC_SHA256, SIGNING_KEY);
    use base64::Engine as _;
    let sent = base64::engine::general_purpose::STANDARD.decode(signature.strip_prefix("v1,").unwrap()).unwrap();
    aws_lc_rs::hmac::verify(&key, &signed, &sent).unwrap();
    let payload = requests[2].json();
    assert_eq!((&payload["type"], &payload["data"]["result"]), (&json!("task.completed"), &json!({"echo": {"a": 1}})));
    assert_eq!(payload["data"]["url"], path.as_str());
    assert!(
        agent.requests()[0].header("x-callback-url").is_none() && agent.requests()[0].header("webhook-id").is_none()
    );
    eventually("the delivery is counted", async || {
        let name = "gatepost_events_total{event=\"callback_delivered\"}";
        gate.metric(name).await == Some(1.0)
    })
    .await;
}

#[tokio::test]
async fn r79_a_pending_webhook_is_sent_after_a_crash() {
    let agent = Agent::echo().await;
    let webhook = Agent::with_steps(http_response("500 No", "text/plain", "no")).await;
    let address = webhook.address;
    let build = gateway_with_tasks(
        "  callbacks: {secret: file:secret, allowed_addresses: [127.0.0.0/8], attempt_timeout: 1s, delivery_timeout: 1m}\n",
    );
    std::fs::write(build.folder().join("secret"), WEBHOOK_SECRET).unwrap();
    let gate = build.agent("echo", &agent).start().await;
    let path = format!("/agents/echo/invoke?callbackUrl=http%3A%2F%2F{address}%2Fhook");
    task_path(&send(gate.post(&path).json(&json!({}))).await);
    eventually("the webhook is sent", async || webhook.call_count() >= 1).await;
    let gate = restart_after_crash(gate).await;
    let before = webhook.call_count();
    eventually("the webhook is sent again", async || webhook.call_count() > before).await;
    drop(gate);
}

#[tokio::test]
async fn r79_callback_urls_at_forbidden_addresses_are_refused_before_a_task_starts() {
    let agent = Agent::echo().await;
    let webhook = Agent::echo().await;
    let strict = gateway_with_tasks(&CALLBACK_SETTINGS.replace("127.0.0.0/8", "127.0.0.0/30"))
        .env("HOOK_SECRET", WEBHOOK_SECRET);
    let gate = strict.agent("echo", &agent).start().await;
    let gateway_address = gate.address();
    for url in [
        "http://127.0.0.9/hook",
        "https://10.0.0.1/hook",
        "https://169.254.169.254/latest",
        "http://example.com/hook",
        "https://[::1]/hook",
        "file:///etc/passwd",
        "not a url",
        &format!("http://{gateway_address}/agents/echo/invoke"),
    ] {
        let call = gate.post("/agents/echo/invoke").header("x-callback-url", url).json(&json!({}));
        send(call).await.expect_fault(400, "InvalidInput");
    }
    let two = gate.post("/agents/echo/invoke?callbackUrl=https://example.com/b");
    let two = two.header("x-callback-url", format!("http://{}/a", webhook.address));
    send(two.json(&json!({}))).await.expect_fault(400, "InvalidInput");
    assert_eq!((agent.call_count(), webhook.call_count()), (0, 0));
    let without_callbacks = gateway_with_tasks("").agent("echo", &agent).start().await;
    let call =
        without_callbacks.post("/agents/echo/invoke").header("x-callback-url", "https://example.com/").json(&json!({}));
    send(call).await.expect_fault(400, "InvalidInput");
    // A redirect would lead to an unchecked address.
    let redirect = http_response("307 Away\r\nLocation: http://127.0.0.9/", "text/plain", "");
    let redirecting = Agent::with_steps(redirect).await;
    let url = format!("http://{}/", redirecting.address);
    task_path(&send(gate.post("/agents/echo/invoke").header("x-callback-url", &url).json(&json!({}))).await);
    eventually("the webhook is sent again", async || redirecting.call_count() >= 2).await;
}

#[tokio::test]
async fn r44_a_batch_may_be_asynchronous_too() {
    let agent = Agent::echo().await;
    let gate = gateway_with_tasks("").agent("echo", &agent).start().await;
    let call = gate.post("/agents/echo/invoke").header("prefer", "respond-async").json(&json!([{"a": 1}, {"a": 2}]));
    let task = wait_for_status(&gate, &task_path(&send(call).await), "completed").await;
    assert_eq!(task["result"], json!([{"echo": {"a": 1}}, {"echo": {"a": 2}}]));
}

#[tokio::test]
async fn r79_a_task_holds_its_concurrency_permit_until_it_ends() {
    let agent = Agent::with_steps(vec![Step::Hang]).await;
    let rules = "agents:\n  sources: [agents.json]\n  rules:\n    - {agents: ['*'], max_concurrency: 1}\n\
                 limits:\n  concurrency: {max_queued: 0}\n";
    let gate = gateway_with_tasks("").section(rules).agent("silent", &agent).start().await;
    let path = task_path(&call_with_prefer(&gate, "silent", "respond-async").await);
    call_with_prefer(&gate, "silent", "respond-async").await.expect_fault(503, "Overloaded");
    request_as(&gate, "team-a", "DELETE", &path).await.expect_ok();
    eventually("the permit is free", async || call_with_prefer(&gate, "silent", "respond-async").await.status == 202)
        .await;
}
