//! Failures in which an agent repeats the credential that the gateway sent to it: no caller and no task gets it, whatever
//! protocol the failure has and however it arrives.

use crate::support::{
    agent::{Agent, ReceivedRequest, Step, http_response, write},
    eventually,
    gateway::{Gateway, gateway, send},
};
use serde_json::{Value, json};

const SECRET: &str = "agent-credential-yzyx/77";

fn stream(media: &str, parts: &[String]) -> Vec<Step> {
    let head = format!("HTTP/1.1 200 OK\r\nContent-Type: {media}\r\nConnection: close\r\n\r\n");
    let mut steps = vec![write(head)];
    for part in parts {
        // In two writes, so that the secret is cut.
        let (first, second) = part.split_at(part.len() / 2);
        steps.extend([write(first), Step::Sleep(std::time::Duration::from_millis(20)), write(second)]);
    }
    steps.push(Step::Close);
    steps
}

/// Answers as the member `form` of the request says.
fn fail(request: &ReceivedRequest) -> Vec<Step> {
    let form = serde_json::from_slice::<Value>(&request.body).unwrap_or_default();
    let form = form["form"].as_str().unwrap_or("api").to_owned();
    if request.head.starts_with("GET /gzip ") {
        return vec![write(
            "HTTP/1.1 401 No\r\nContent-Type: text/plain\r\nContent-Encoding: gzip\r\nContent-Length: 4\r\n\r\n\x1f\x08ab",
        )];
    }
    let escaped = SECRET.replace('/', "\\/");
    match form.as_str() {
        "error_event" => stream("text/event-stream", &[format!("data: 1\n\nevent: error\ndata: bad key {SECRET}\n\n")]),
        "json_rpc_event" => stream(
            "text/event-stream",
            &[format!(
                "data: {{\"jsonrpc\":\"2.0\",\"id\":1,\"error\":{{\"code\":-32000,\"message\":\"{escaped}\"}}}}\n\n"
            )],
        ),
        "last_event" => stream(
            "text/event-stream",
            &["data: 1\n\n".to_owned(), format!("data: {{\"error\":{{\"code\":\"x\",\"message\":\"{SECRET}\"}}}}\n\n")],
        ),
        "lines" => {
            stream("application/x-ndjson", &[format!("{{\"n\":1}}\n{{\"error\":{{\"message\":\"{SECRET}\"}}}}\n")])
        }
        "last_line" => stream("application/x-ndjson", &[format!("{{\"n\":1}}\n{{\"error\":\"{SECRET}\"}}")]),
        "field" => vec![write(format!(
            "HTTP/1.1 400 Bad\r\nX-Rejected-Key: {SECRET}\r\nContent-Type: application/json\r\nContent-Length: 46\r\n\r\n{}",
            r#"{"error":{"code":"X","message":"see a field"}}"#
        ))],
        _ => http_response("401 Unauthorized", "text/plain", &format!("the key {SECRET} is not known")),
    }
}

const FORMS: [&str; 6] = ["error_event", "json_rpc_event", "last_event", "lines", "last_line", "field"];

async fn start(settings: &str) -> (Agent, Gateway) {
    let agent = Agent::scripted(fail).await;
    let build = gateway().env("AGENT_SECRET", SECRET).agent("failing", &agent);
    let build = build.section(
        "agents:\n  sources: [agents.json]\n  defaults:\n    credential: {header: X-Agent-Key, value: 'env:AGENT_SECRET', destinations: {origins: ['*']}}\n  rules:\n    - {agents: [failing], api: {routes: [{methods: [GET], path: /**}], base: 'http://AGENT/'}}\n"
            .replace("AGENT/", &format!("{}/", agent.address))
            .as_str(),
    );
    let build = if settings.is_empty() { build } else { build.section(settings) };
    (agent, build.start().await)
}

#[tokio::test]
async fn r131_the_gateway_s_credential_reaches_no_caller_in_a_failure_within_a_stream() {
    let (agent, gate) = start("").await;
    for form in FORMS {
        for keyed in [false, true] {
            let call = gate.post("/agents/failing/invoke").json(&json!({"form": form}));
            let call = if keyed { call.header("idempotency-key", format!("key-{form}")) } else { call };
            let answer = send(call).await;
            let shown = format!("{:?} {}", answer.headers, answer.text());
            assert!(!shown.contains(SECRET) && !shown.contains("yzyx"), "{form} {keyed}: {shown}");
            assert!(form == "field" || shown.contains("[redacted]"), "{form} {keyed}: {shown}");
        }
    }
    let sent = agent.requests();
    assert!(sent.iter().all(|request| request.header("x-agent-key") == Some(SECRET)));
    assert!(!gate.stderr().contains(SECRET) && !gate.read_file("access.log").contains(SECRET));
}

#[tokio::test]
async fn r131_the_gateway_s_credential_is_stored_with_no_task() {
    let (_agent, gate) = start("tasks:\n  sqlite_file: tasks.db\n").await;
    for form in FORMS {
        // A stream that is followed, and a task of its own.
        let direct = send(gate.post("/agents/failing/invoke").json(&json!({"form": form}))).await;
        assert!(!direct.text().contains(SECRET), "{form}: {}", direct.text());
        let call = gate.post("/agents/failing/invoke").json(&json!({"form": form})).header("prefer", "respond-async");
        let path = send(call).await.header("location").unwrap().to_owned();
        let get = |path: String| send(gate.request("GET", &path).header("x-api-key", gate.key("team-a")));
        eventually("the task ends", async || {
            matches!(get(path.clone()).await.json()["status"].as_str(), Some("failed" | "completed"))
        })
        .await;
        for path in [path.clone(), format!("{path}/events"), format!("{path}/result")] {
            let shown = get(path.clone()).await.text();
            assert!(!shown.contains(SECRET) && !shown.contains("yzyx"), "{form} {path}: {shown}");
        }
    }
    let stored = std::fs::read(gate.folder().join("tasks.db")).unwrap();
    assert!(memchr::memmem::find(&stored, SECRET.as_bytes()).is_none());
}

#[tokio::test]
async fn r131_an_error_of_an_agent_s_own_api_has_no_credential_of_the_gateway() {
    let (_agent, gate) = start("").await;
    let answer = send(gate.request("GET", "/agents/failing/api/x").header("x-api-key", gate.key("team-a"))).await;
    assert_eq!(answer.status, 401);
    assert_eq!(answer.text(), "the key [redacted] is not known");
}

#[tokio::test]
async fn r131_an_error_of_an_agent_s_own_api_that_is_compressed_unasked_has_no_body() {
    let (_agent, gate) = start("").await;
    let call = gate.request("GET", "/agents/failing/api/gzip").header("accept-encoding", "gzip");
    let answer = send(call.header("x-api-key", gate.key("team-a"))).await;
    assert_eq!((answer.status, answer.body.len()), (401, 0), "{}", answer.text());
    assert!(answer.header("content-encoding").is_none() && answer.header("content-type").is_none());
}

#[tokio::test]
async fn r41_errors_of_google_and_json_rpc_reach_no_caller_that_does_not_speak_the_protocol() {
    let internals = "Traceback: File \"/srv/app/db.py\", line 33 postgres://svc:hunter2pass@10.1.2.3/db";
    let agent = Agent::scripted(move |request| {
        let input = serde_json::from_slice::<Value>(&request.body).unwrap_or_default();
        let input = input.get("params").unwrap_or(&input);
        let status = input["status"].as_str().unwrap_or("500 Oops").to_owned();
        let code: u64 = status[..3].parse().unwrap();
        let body = if input["form"] == "google" {
            let name = if code == 400 { "INVALID_ARGUMENT" } else { "INTERNAL" };
            json!({"error": {"code": code, "message": internals, "status": name}})
        } else {
            json!({"jsonrpc": "2.0", "id": 1, "error": {"code": -32603, "message": internals}})
        };
        http_response(&status, "application/json", &body.to_string())
    })
    .await;
    let section = "agents:\n  sources: [agents.json]\n  rules:\n    - {agents: [silent], error_details: none}\n";
    let gate = gateway().agent("plain", &agent).agent("silent", &agent).section(section).start().await;
    for id in ["plain", "silent"] {
        for form in ["google", "json_rpc"] {
            for status in ["500 Oops", "400 Bad", "200 OK"] {
                let answer = gate.invoke(id, &json!({"form": form, "status": status})).await;
                assert_ne!(answer.status, 200, "{id} {form} {status}");
                answer.assert_hides(&["Traceback", "db.py", "hunter2pass", "10.1.2.3"]);
            }
        }
    }
    // A caller that speaks JSON-RPC reads its errors, unless the operator withholds them.
    let request = json!({"jsonrpc": "2.0", "id": 1, "method": "x", "params": {"form": "json_rpc", "status": "200 OK"}});
    assert!(gate.invoke("plain", &request).await.text().contains("-32603"));
    let withheld = gate.invoke("silent", &request).await;
    withheld.assert_hides(&["Traceback", "hunter2pass"]);
    assert_eq!(withheld.json()["id"], 1, "the fault is one of JSON-RPC: {}", withheld.text());
}
