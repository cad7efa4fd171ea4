//! Calls that are answered later: begun, looked at, followed, cancelled, told of; kept over a crash, shared by gateways,
//! bounded, and nobody else's.

use crate::support::{
    agent::{Agent, Do, answer, json_answer, latch, write},
    eventually,
    gateway::{Build, Gate, gateway, send},
    postgres::Postgres,
    reply::Answer,
};
use rustix::process::Signal;
use serde_json::{Value, json};

const TASKS: &str = "tasks:\n  store: tasks.db\n  lease: 1s\n  poll: 1s\n";

pub fn with(sections: &str) -> Build {
    gateway().section(&format!("{TASKS}{sections}")).caller("team-b", &[])
}

/// Calls an agent that is to answer later.
pub async fn begin(gate: &Gate, agent: &str, prefer: &str) -> Answer {
    let call = gate.post(&format!("/agents/{agent}/invoke")).header("prefer", prefer).json(&json!({"text": "hi"}));
    send(call).await
}

pub async fn ask(gate: &Gate, caller: &str, method: &str, path: &str) -> Answer {
    send(gate.request(method, path).header("x-api-key", gate.key(caller))).await
}

/// Where the task of a 202 is.
#[track_caller]
pub fn place(answer: &Answer) -> String {
    assert_eq!(answer.status, 202, "{}", answer.text());
    let place = answer.header("location").unwrap().to_owned();
    assert_eq!(place, format!("/tasks/{}", answer.json()["taskId"].as_str().unwrap()));
    place
}

pub async fn until(gate: &Gate, place: &str, status: &str) -> Value {
    let mut task = Value::Null;
    eventually(&format!("the task is {status}"), async || {
        let answer = ask(gate, "team-a", "GET", place).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        task = answer.json();
        task["status"] == status
    })
    .await;
    task
}

#[tokio::test]
async fn r79_a_call_answered_later_says_where_and_when_to_look_and_ends_with_the_agents_answer() {
    let hold = latch();
    let held = hold.clone();
    let body = json!({"done": true});
    let agent = Agent::scripted(move |_| [vec![Do::Until(held.clone())], json_answer(&body)].concat()).await;
    let gate = with("").agent("slow", &agent).start().await;
    let begun = begin(&gate, "slow", "respond-async").await;
    let place = place(&begun);
    assert_eq!(begun.header("preference-applied"), Some("respond-async"));
    assert_eq!((begun.header("retry-after"), &begun.json()["pollInterval"]), (Some("1"), &json!(1)));
    assert_eq!((&begun.json()["status"], &begun.json()["sourceAgent"]), (&json!("working"), &json!("slow")));
    let working = ask(&gate, "team-a", "GET", &place).await;
    assert_eq!((working.json()["status"].as_str(), working.header("retry-after")), (Some("working"), Some("1")));
    assert_eq!(gate.metric("gatepost_tasks_running").await, Some(1.0));
    hold.close();
    let done = until(&gate, &place, "completed").await;
    assert_eq!((&done["result"], &done["statusCode"]), (&json!({"done": true}), &json!(200)));
    assert!(agent.got()[0].header("prefer").is_none(), "the agent is to answer itself");
    assert!(agent.got()[0].json() == json!({"text": "hi"}));
    let mut calls = Vec::new();
    eventually("both are logged", async || {
        let lines = gate.log(1).await;
        calls = lines.iter().filter(|line| line["agent"] == "slow").map(|line| line["status"].clone()).collect();
        calls.len() >= 2
    })
    .await;
    assert_eq!(calls, [json!(202), json!(200)], "the call, and its work");
}

#[tokio::test]
async fn r79_whoever_waits_gets_the_answer_at_once_where_it_is_there_in_time() {
    let quick = Agent::doing(json_answer(&json!({"quick": 1}))).await;
    let silent = Agent::doing(vec![Do::Hang]).await;
    let broken = Agent::doing(vec![Do::Close]).await;
    let gate = with("").agent("quick", &quick).agent("silent", &silent).agent("broken", &broken).start().await;
    for prefer in ["wait=20", "respond-async, wait=20"] {
        let answer = begin(&gate, "quick", prefer).await;
        assert_eq!(answer.is_ok(), json!({"quick": 1}));
        assert!(answer.header("x-task-id").is_some());
    }
    begin(&gate, "broken", "wait=20").await.is_fault(502, "AgentError");
    let later = begin(&gate, "silent", "wait=1").await;
    let path = place(&later);
    assert_eq!(later.header("preference-applied"), Some("wait=1"));
    assert_eq!(ask(&gate, "team-a", "DELETE", &path).await.json()["status"], "canceled");
}

#[tokio::test]
async fn r79_a_call_that_is_refused_makes_no_task() {
    let agent = Agent::echo().await;
    let mut document = agent.document("strict");
    document["inputs"] = json!({"type": "object", "required": ["name"]});
    let gate = with("").document(document).start().await;
    begin(&gate, "strict", "respond-async").await.is_fault(400, "InvalidInput");
    begin(&gate, "unknown", "respond-async").await.is_fault(404, "NotFound");
    let nobody = gate.request("POST", "/agents/strict/invoke").header("prefer", "respond-async").json(&json!({}));
    assert_eq!(send(nobody).await.status, 401);
    assert_eq!(agent.calls(), 0);
}

#[tokio::test]
async fn r96_a_task_that_fails_says_with_which_code_and_nothing_of_the_agents_inside() {
    let cases: Vec<(&str, Vec<Do>, &str)> = vec![
        ("raw", answer("500 Oops", "application/json", "{\"error\":\"Traceback /srv/secret.py\"}"), "AgentError"),
        ("dies", vec![write("HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\nhalf"), Do::Close], "AgentError"),
        ("silent", vec![Do::Hang], "Timeout"),
        ("large", answer("200 OK", "application/json", &format!("\"{}\"", "x".repeat(3_000))), "AgentError"),
        ("busy", answer("503 Busy", "text/plain", "later"), "AgentUnavailable"),
        ("garbage", vec![write("what is this\r\n\r\n"), Do::Close], "AgentError"),
    ];
    let mut build = with("  max_result: 2KiB\n")
        .section("agents:\n  from: [agents.json]\n  defaults: {timeouts: {first_byte: 600ms, idle: 600ms}}\n");
    let mut agents = Vec::new();
    for (id, steps, _) in &cases {
        let agent = Agent::doing(steps.clone()).await;
        build = build.agent(id, &agent);
        agents.push(agent);
    }
    let gate = build.start().await;
    for (id, _, code) in &cases {
        let task = until(&gate, &place(&begin(&gate, id, "respond-async").await), "failed").await;
        assert_eq!(task["error"]["code"], *code, "{id}: {task}");
        assert!(task["error"]["request_id"].is_string() && !task.to_string().contains("secret"), "{id}: {task}");
        assert!(task.get("result").is_none());
    }
}

#[tokio::test]
async fn r76_a_foreign_an_unknown_and_a_malformed_task_are_the_same_to_everybody() {
    let agent = Agent::doing(vec![Do::Hang]).await;
    let gate = with("").agent("silent", &agent).start().await;
    let path = place(&begin(&gate, "silent", "respond-async").await);
    let unknown = format!("/tasks/{}", "0".repeat(32));
    let strange = ["/tasks/x", "/tasks/'%20or%201=1", &unknown, &path].map(str::to_owned);
    let mut told = Vec::new();
    for path in &strange {
        for (method, path) in [("GET", path.clone()), ("DELETE", path.clone()), ("GET", format!("{path}/events"))] {
            told.push(ask(&gate, "team-b", method, &path).await.is_fault(404, "NotFound")["message"].clone());
        }
    }
    told.dedup();
    assert_eq!(told.len(), 1, "{told:?}");
    assert_eq!(send(gate.request("GET", &path)).await.status, 401);
    assert_eq!(ask(&gate, "team-a", "PUT", &path).await.status, 405);
    assert_eq!(ask(&gate, "team-a", "GET", &path).await.json()["status"], "working", "nobody else ended it");
}

#[tokio::test]
async fn r79_who_cancels_ends_the_agents_call_once_and_for_all() {
    let agent = Agent::doing(vec![Do::Hang]).await;
    let gate = with("").agent("silent", &agent).start().await;
    let path = place(&begin(&gate, "silent", "respond-async").await);
    eventually("the agent is called", async || agent.calls() == 1).await;
    for _ in 0..3 {
        assert_eq!(ask(&gate, "team-a", "DELETE", &path).await.json()["status"], "canceled");
    }
    eventually("the agent is left", async || agent.left() == 1).await;
    assert_eq!(ask(&gate, "team-a", "GET", &path).await.json()["status"], "canceled");
}

#[tokio::test]
async fn r81_events_tell_of_every_state_and_of_what_the_agent_streams() {
    let steps = vec![
        write("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: one\n\nid: own\ndata: two\n\n"),
        Do::Close,
    ];
    let agent = Agent::doing(steps).await;
    let gate = with("").agent("stream", &agent).start().await;
    let path = place(&begin(&gate, "stream", "respond-async").await);
    let events = format!("{path}/events");
    let all = ask(&gate, "team-a", "GET", &events).await;
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
    send(odd.header("last-event-id", "own")).await.is_fault(400, "InvalidInput");
    let task = until(&gate, &path, "completed").await;
    assert_eq!(task["result"], "data: one\n\nid: own\ndata: two\n\n");
}

#[tokio::test]
async fn r79_an_agent_that_is_marked_answers_later_without_being_asked_to() {
    let agent = Agent::echo().await;
    let rules = "agents:\n  from: [agents.json]\n  rules:\n    - {agents: ['slow-*'], async: true}\n";
    let gate = with("").section(rules).agent("slow-one", &agent).agent("other", &agent).start().await;
    let begun = gate.invoke("slow-one", &json!({"a": 1})).await;
    assert_eq!(begun.header("preference-applied"), None);
    assert_eq!(until(&gate, &place(&begun), "completed").await["result"], json!({"echo": {"a": 1}}));
    gate.invoke("other", &json!({})).await.is_ok();
}

#[tokio::test]
async fn r79_a_store_that_nobody_names_is_beside_the_configuration() {
    let echo = Agent::echo().await;
    let gate = gateway().section("tasks: {}\n").agent("echo", &echo).start().await;
    until(&gate, &place(&begin(&gate, "echo", "respond-async").await), "completed").await;
    assert!(gate.folder().join("gatepost.db").is_file());
}

#[tokio::test]
async fn r79_tasks_beyond_the_bounds_are_refused_with_the_time_to_come_back() {
    let agent = Agent::doing(vec![Do::Hang]).await;
    let gate = with("  most_own: 5\n  most_running: 8\n").agent("silent", &agent).start().await;
    let flood = (0..40).map(|_| begin(&gate, "silent", "respond-async"));
    let answers = futures_util::future::join_all(flood).await;
    let begun: Vec<String> = answers.iter().filter(|answer| answer.status == 202).map(place).collect();
    assert_eq!(begun.len(), 5);
    for answer in answers.iter().filter(|answer| answer.status != 202) {
        assert!(matches!(answer.status, 429 | 503), "{}", answer.text());
        assert!(answer.header("retry-after").is_some());
    }
    let other = gate.request("POST", "/agents/silent/invoke").header("x-api-key", gate.key("team-b"));
    assert_eq!(send(other.header("prefer", "respond-async").json(&json!({}))).await.status, 202);
    assert_eq!(ask(&gate, "team-a", "DELETE", &begun[0]).await.status, 200);
}

#[tokio::test]
async fn r79_a_task_is_forgotten_after_its_time() {
    let agent = Agent::echo().await;
    let gate = with("  keep: 1s\n  resume: {window: 1s}\n").agent("echo", &agent).start().await;
    let path = place(&begin(&gate, "echo", "respond-async").await);
    until(&gate, &path, "completed").await;
    eventually("it is forgotten", async || ask(&gate, "team-a", "GET", &path).await.status == 404).await;
}

#[tokio::test]
async fn r79_without_the_section_every_call_is_answered_at_once() {
    let agent = Agent::echo().await;
    let gate = gateway().agent("echo", &agent).start().await;
    assert_eq!(begin(&gate, "echo", "respond-async").await.status, 200);
    assert_eq!(ask(&gate, "team-a", "GET", &format!("/tasks/{}", "0".repeat(32))).await.status, 404);
}

/// Ends the process as a power cut would, and starts it again on the same files.
pub async fn crashed(gate: Gate) -> Gate {
    gate.signal(Signal::KILL);
    let keys = gate.keys.clone();
    let (folder, mut child) = gate.into_folder();
    child.wait().unwrap();
    tokio::task::spawn_blocking(move || Gate::spawn(folder, keys, &[], &[])).await.unwrap()
}

#[tokio::test]
async fn r79_tasks_survive_a_crash_and_those_that_ran_are_failed_and_never_run_again() {
    let echo = Agent::echo().await;
    let silent = Agent::doing(vec![Do::Hang]).await;
    let gate = with("").agent("echo", &echo).agent("silent", &silent).start().await;
    let done = place(&begin(&gate, "echo", "respond-async").await);
    let before = until(&gate, &done, "completed").await;
    let ran = place(&begin(&gate, "silent", "respond-async").await);
    eventually("the agent is called", async || silent.calls() == 1).await;
    let gate = crashed(gate).await;
    assert_eq!(ask(&gate, "team-a", "GET", &done).await.json(), before);
    let lost = until(&gate, &ran, "failed").await;
    assert_eq!(lost["error"]["code"], "AgentUnavailable", "{lost}");
    assert!(lost["error"]["message"].as_str().unwrap().contains("gateway"), "{lost}");
    assert_eq!(silent.calls(), 1, "it is not run again");
    let events = ask(&gate, "team-a", "GET", &format!("{ran}/events")).await.text();
    assert!(events.contains("event: status") && events.contains("\"status\":\"failed\""), "{events}");
    assert_eq!(ask(&gate, "team-b", "GET", &done).await.status, 404);
}

#[tokio::test]
async fn r79_a_gateway_that_is_stopped_lets_tasks_end_and_fails_those_that_do_not() {
    let hold = latch();
    let held = hold.clone();
    let slow = Agent::scripted(move |_| [vec![Do::Until(held.clone())], json_answer(&json!({}))].concat()).await;
    let silent = Agent::doing(vec![Do::Hang]).await;
    let mut gate = with("shutdown:\n  drain: 2s\n").agent("slow", &slow).agent("silent", &silent).start().await;
    let done = place(&begin(&gate, "slow", "respond-async").await);
    let cut = place(&begin(&gate, "silent", "respond-async").await);
    eventually("both are called", async || slow.calls() + silent.calls() == 2).await;
    gate.signal(Signal::TERM);
    hold.close();
    assert!(gate.ended().await.success());
    let keys = gate.keys.clone();
    let (folder, _) = gate.into_folder();
    let gate = tokio::task::spawn_blocking(move || Gate::spawn(folder, keys, &[], &[])).await.unwrap();
    assert_eq!(ask(&gate, "team-a", "GET", &done).await.json()["status"], "completed");
    let cut = ask(&gate, "team-a", "GET", &cut).await.json();
    assert_eq!((&cut["status"], &cut["error"]["code"]), (&json!("failed"), &json!("AgentUnavailable")), "{cut}");
}

#[tokio::test]
async fn r79_gateways_that_share_a_database_share_tasks_and_notice_the_death_of_one() {
    let mut server = Postgres::start().await;
    let address = server.database().await;
    let echo = Agent::echo().await;
    let silent = Agent::doing(vec![Do::Hang]).await;
    let shared = format!("tasks:\n  database: {address}\n  lease: 4s\n  poll: 1s\n");
    let build = || gateway().section(&shared).agent("echo", &echo).agent("silent", &silent);
    let (one, two) = (build().start().await, build().start().await);
    let done = place(&begin(&one, "echo", "respond-async").await);
    assert_eq!(until(&two, &done, "completed").await["result"], json!({"echo": {"text": "hi"}}));
    let canceled = place(&begin(&one, "silent", "respond-async").await);
    eventually("the agent is called", async || silent.calls() == 1).await;
    assert_eq!(ask(&two, "team-a", "GET", &canceled).await.json()["status"], "working");
    assert_eq!(ask(&two, "team-a", "DELETE", &canceled).await.json()["status"], "canceled");
    eventually("the other gateway leaves the agent", async || silent.left() == 1).await;
    until(&one, &canceled, "canceled").await;
    let lost = place(&begin(&one, "silent", "respond-async").await);
    let kept = place(&begin(&two, "silent", "respond-async").await);
    eventually("the agent is called", async || silent.calls() == 3).await;
    one.signal(Signal::KILL);
    assert_eq!(until(&two, &lost, "failed").await["error"]["code"], "AgentUnavailable");
    assert_eq!(ask(&two, "team-a", "GET", &kept).await.json()["status"], "working", "the living one's goes on");
    server.stop();
    let down = ask(&two, "team-a", "GET", &done).await;
    down.is_fault(503, "Overloaded");
    assert!(down.header("retry-after").is_some());
    server.again().await;
    until(&two, &done, "completed").await;
}

pub const CALLBACKS: &str = "  callbacks: {secret: env:HOOK_SECRET, timeout: 1s, give_up: 1m}\n";
pub const SECRET: &str = "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=";
const KEY: &[u8] = b"0123456789abcdef0123456789abcdef";

#[tokio::test]
async fn r79_the_end_is_told_to_a_webhook_signed_and_again_until_it_takes_it() {
    let agent = Agent::echo().await;
    let tries = std::sync::atomic::AtomicUsize::new(0);
    let hook = Agent::scripted(move |_| match tries.fetch_add(1, std::sync::atomic::Ordering::SeqCst) {
        0 => answer("500 No", "text/plain", "no"),
        1 => vec![Do::Close],
        _ => answer("204 No Content", "text/plain", ""),
    })
    .await;
    let gate = with(CALLBACKS).env("HOOK_SECRET", SECRET).agent("echo", &agent).start().await;
    let url = format!("http://{}/hook?x=1", hook.address);
    let call = gate.post("/agents/echo/invoke").header("x-callback-url", &url).json(&json!({"a": 1}));
    let path = place(&send(call).await);
    eventually("it is told three times", async || hook.calls() == 3).await;
    let got = hook.got();
    let [id, at, signature] =
        ["webhook-id", "webhook-timestamp", "webhook-signature"].map(|name| got[2].header(name).unwrap().to_owned());
    assert_eq!(got[0].header("webhook-id"), Some(&*id), "an id that stays tells a repetition");
    let signed = [format!("{id}.{at}.").as_bytes(), &got[2].body].concat();
    let key = aws_lc_rs::hmac::Key::new(aws_lc_rs::hmac::HMAC_SHA256, KEY);
    use base64::Engine as _;
    let sent = base64::engine::general_purpose::STANDARD.decode(signature.strip_prefix("v1,").unwrap()).unwrap();
    aws_lc_rs::hmac::verify(&key, &signed, &sent).unwrap();
    let told = got[2].json();
    assert_eq!((&told["type"], &told["data"]["result"]), (&json!("task.completed"), &json!({"echo": {"a": 1}})));
    assert_eq!(told["data"]["url"], path.as_str());
    assert!(agent.got()[0].header("x-callback-url").is_none() && agent.got()[0].header("webhook-id").is_none());
    eventually("it is counted", async || {
        let name = "gatepost_events_total{event=\"callback_delivered\"}";
        gate.metric(name).await == Some(1.0)
    })
    .await;
}

#[tokio::test]
async fn r79_a_webhook_that_was_not_told_before_a_crash_is_told_after_it() {
    let agent = Agent::echo().await;
    let hook = Agent::doing(answer("500 No", "text/plain", "no")).await;
    let address = hook.address;
    let file = with("  callbacks: {secret: file:secret, timeout: 1s, give_up: 1m}\n");
    std::fs::write(file.folder().join("secret"), SECRET).unwrap();
    let gate = file.agent("echo", &agent).start().await;
    let path = format!("/agents/echo/invoke?callbackUrl=http%3A%2F%2F{address}%2Fhook");
    place(&send(gate.post(&path).json(&json!({}))).await);
    eventually("it is tried", async || hook.calls() >= 1).await;
    let gate = crashed(gate).await;
    let before = hook.calls();
    eventually("it is tried again", async || hook.calls() > before).await;
    drop(gate);
}

#[tokio::test]
async fn r79_addresses_that_lead_inside_are_refused_and_nothing_is_begun() {
    let agent = Agent::echo().await;
    let hook = Agent::echo().await;
    let strict = with(CALLBACKS).section("network:\n  allow: [127.0.0.0/30]\n").env("HOOK_SECRET", SECRET);
    let gate = strict.agent("echo", &agent).start().await;
    let own = gate.address();
    for url in [
        "http://127.0.0.9/hook",
        "https://10.0.0.1/hook",
        "https://169.254.169.254/latest",
        "http://example.com/hook",
        "https://[::1]/hook",
        "file:///etc/passwd",
        "not a url",
        &format!("http://{own}/agents/echo/invoke"),
    ] {
        let call = gate.post("/agents/echo/invoke").header("x-callback-url", url).json(&json!({}));
        send(call).await.is_fault(400, "InvalidInput");
    }
    let two = gate.post("/agents/echo/invoke?callbackUrl=https://example.com/b");
    let two = two.header("x-callback-url", format!("http://{}/a", hook.address));
    send(two.json(&json!({}))).await.is_fault(400, "InvalidInput");
    assert_eq!((agent.calls(), hook.calls()), (0, 0));
    let none = with("").agent("echo", &agent).start().await;
    let call = none.post("/agents/echo/invoke").header("x-callback-url", "https://example.com/").json(&json!({}));
    send(call).await.is_fault(400, "InvalidInput");
    // A redirect would lead where nobody looked.
    let away = answer("307 Away\r\nLocation: http://127.0.0.9/", "text/plain", "");
    let redirecting = Agent::doing(away).await;
    let url = format!("http://{}/", redirecting.address);
    place(&send(gate.post("/agents/echo/invoke").header("x-callback-url", &url).json(&json!({}))).await);
    eventually("it is tried again instead", async || redirecting.calls() >= 2).await;
}

#[tokio::test]
async fn r44_a_batch_may_be_answered_later_too() {
    let agent = Agent::echo().await;
    let gate = with("").agent("echo", &agent).start().await;
    let call = gate.post("/agents/echo/invoke").header("prefer", "respond-async").json(&json!([{"a": 1}, {"a": 2}]));
    let task = until(&gate, &place(&send(call).await), "completed").await;
    assert_eq!(task["result"], json!([{"echo": {"a": 1}}, {"echo": {"a": 2}}]));
}

#[tokio::test]
async fn r79_the_place_among_an_agents_calls_is_held_until_the_task_ends() {
    let agent = Agent::doing(vec![Do::Hang]).await;
    let rules = "agents:\n  from: [agents.json]\n  rules:\n    - {agents: ['*'], concurrency: 1}\n\
                 limits:\n  concurrency: {queue: 0}\n";
    let gate = with("").section(rules).agent("silent", &agent).start().await;
    let path = place(&begin(&gate, "silent", "respond-async").await);
    begin(&gate, "silent", "respond-async").await.is_fault(503, "Overloaded");
    ask(&gate, "team-a", "DELETE", &path).await.is_ok();
    eventually("its place is free", async || begin(&gate, "silent", "respond-async").await.status == 202).await;
}
