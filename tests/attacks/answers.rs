//! What leaves the gateway: its secrets in agents' answers, agents' addresses, callers' input in the log, and the honest
//! reasons that callers must read. The settings are the defaults, unless the test is about one.

use crate::support::{
    agent::{Agent, ReceivedRequest, Step, http_response, json_response, write},
    gateway::{Gateway, gateway, send},
    gateway_response::send_raw,
    websocket::{connect, receive_text, send_text},
};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Value, json};

const SECRET: &str = "Tr0ub4dor/and&3 horses";

/// Starts an agent that answers each error status in the path of its endpoint, and a gateway that sends it a credential.
async fn start_with_credential(agent: &Agent, extra: &str) -> Gateway {
    let sources = "agents:\n  sources: [agents.json]\n  defaults:\n    credential: {value: 'env:AGENT_SECRET', header: X-Agent-Key, destinations: {origins: ['*']}}\n";
    gateway().agent("echo", agent).section(&format!("{sources}{extra}")).env("AGENT_SECRET", SECRET).start().await
}

/// Returns the forms in which an agent repeats a header that it received.
fn forms(secret: &str) -> Vec<String> {
    let percent: String = secret.bytes().map(|byte| format!("%{byte:02x}")).collect();
    let unicode: String = secret.chars().map(|c| format!("\\u{:04x}", u32::from(c))).collect();
    vec![
        secret.to_owned(),
        secret.to_uppercase(),
        STANDARD.encode(secret),
        STANDARD.encode(format!("user:{secret}")),
        percent,
        secret.replace('/', "%2F").replace('&', "%26").replace(' ', "%20"),
        secret.replace('&', "&amp;"),
        unicode,
        secret.replace('/', "\\/"),
        secret.bytes().map(|byte| format!("{byte:02x}")).collect(),
    ]
}

#[tokio::test]
async fn r131_a_secret_of_the_gateway_is_neither_answered_nor_logged_in_any_form() {
    let agent = Agent::scripted(|request| {
        let input = request.json();
        let form = forms(request.header("x-agent-key").unwrap())[input["form"].as_u64().unwrap() as usize].clone();
        let body = match input["shape"].as_u64().unwrap() {
            0 => json!({"error": {"code": "InvalidInput", "message": format!("bad key {form} here")}}),
            1 => json!({"detail": [{"loc": ["body", form], "msg": format!("not {form}")}]}),
            2 => json!({"jsonrpc": "2.0", "id": 1, "error": {"code": -32000, "message": form}}),
            _ => json!({"error": {"code": form, "message": "no", "details": {"received": form}}}),
        };
        http_response("400 Bad Request", "application/json", &body.to_string())
    })
    .await;
    let settings = "  rules:\n    - {agents: ['*'], error_details: all}\nerrors: {log_agent_bodies: true}\n";
    let gate = start_with_credential(&agent, settings).await;
    let mut calls = 0;
    for form in 0..forms(SECRET).len() {
        for shape in 0..4 {
            let response = gate.invoke("echo", &json!({"form": form, "shape": shape})).await;
            assert!(response.status >= 400);
            let leaked = forms(SECRET).into_iter().find(|form| response.text().contains(form.as_str()));
            assert_eq!(leaked, None, "{form} {shape}: {}", response.text());
            calls += 1;
        }
    }
    let log = gate.access_log(calls).await;
    let text = log.iter().map(Value::to_string).collect::<String>() + &gate.stderr();
    for form in forms(SECRET) {
        let escaped = serde_json::to_string(&form).unwrap();
        assert!(!text.contains(&form) && !text.contains(escaped.trim_matches('"')), "{form} is in the log");
    }
    assert!(text.contains("[redacted]"));
}

#[tokio::test]
async fn r131_the_callers_input_in_an_agents_error_stays_out_of_the_log() {
    let agent = Agent::scripted(|request| {
        let body = json!({"detail": [{"loc": ["body"], "msg": "too long", "input": request.json()}], "message": request.json()["note"]});
        http_response("422 Unprocessable Entity", "application/json", &body.to_string())
    })
    .await;
    for (settings, is_logged) in [("", false), ("errors: {log_agent_bodies: true}\n", true)] {
        let gate = gateway().agent("echo", &agent).section(settings).start().await;
        let response = gate.invoke("echo", &json!({"note": "my diagnosis"})).await;
        assert_eq!(response.status, 422, "{}", response.text());
        let entry = &gate.access_log(1).await[0];
        assert_eq!(entry.to_string().contains("my diagnosis"), is_logged, "{entry}");
        assert!(entry["detail"].as_str().unwrap().starts_with("the agent responded with status 422"), "{entry}");
    }
}

#[tokio::test]
async fn r32_r117_an_honest_reason_reaches_the_caller_and_internals_do_not() {
    let honest = "This model's maximum context length is 8192 tokens";
    let agent = Agent::scripted(|request| {
        let message = request.json()["message"].as_str().unwrap().to_owned();
        http_response(
            "400 Bad Request",
            "application/json",
            &json!({"error": {"message": message, "code": "x"}}).to_string(),
        )
    })
    .await;
    let gate = gateway().agent("model", &agent).start().await;
    let reply = gate.invoke("model", &json!({"message": honest})).await;
    assert_eq!(reply.expect_fault(400, "InvalidInput")["message"], honest);
    for leak in [
        "KeyError in /srv/app/main.py",
        "cannot reach db-7.internal:5432",
        "SELECT id FROM users failed",
        "key sk-abc123def456ghi789jkl0 refused",
        "Traceback (most recent call last)",
    ] {
        let reply = gate.invoke("model", &json!({"message": leak})).await;
        assert_eq!(reply.expect_fault(400, "InvalidInput")["message"], "The agent refused the input", "{leak}");
    }
}

#[tokio::test]
async fn r91_an_agents_own_4xx_reach_the_caller_and_a_refused_credential_is_one_that_was_sent() {
    let agent = Agent::scripted(|request| {
        let status = request.json()["status"].as_u64().unwrap();
        let body = json!({"error": {"message": format!("reason {status}")}}).to_string();
        let length = body.len();
        vec![write(format!("HTTP/1.1 {status} X\r\nContent-Type: application/json\r\nRetry-After: 7\r\nContent-Length: {length}\r\n\r\n{body}"))]
    })
    .await;
    let gate = gateway().agent("echo", &agent).start().await;
    for (status, code) in [
        (402, "PaymentRequired"),
        (403, "PermissionDenied"),
        (404, "CapabilityNotFound"),
        (409, "Conflict"),
        (422, "InvalidInput"),
        (429, "RateLimited"),
    ] {
        let reply = gate.invoke("echo", &json!({"status": status})).await;
        assert_eq!(reply.expect_fault(status, code)["message"], format!("reason {status}"));
        assert_eq!(reply.header("retry-after").is_some(), status == 429);
    }
    let reply = gate.invoke("echo", &json!({"status": 401})).await;
    assert_eq!(
        reply.expect_fault(502, "AgentError")["message"],
        "The agent requires a credential, and the gateway has none for it"
    );
    let gate = start_with_credential(&agent, "").await;
    let reply = gate.invoke("echo", &json!({"status": 401})).await;
    assert_eq!(reply.expect_fault(502, "AgentError")["message"], "The agent refused the gateway's credential");
}

#[tokio::test]
async fn a_query_of_a_post_reaches_the_agent_unless_it_repeats_the_body() {
    let agent = Agent::echo().await;
    let rules = "agents:\n  sources: [agents.json]\n  rules:\n    - {agents: [strict], query: refuse}\n";
    let mut with_query = agent.document("with-query");
    with_query["endpoint"] = json!(format!("{}?own=1", agent.url()));
    let gate =
        gateway().agent("echo", &agent).agent("strict", &agent).document(with_query).section(rules).start().await;
    let path_of = |query: &str| format!("/agents/{query}");
    let line_of = |request: &ReceivedRequest| request.head.lines().next().unwrap().to_owned();
    for (path, line) in [
        ("echo/invoke?lang=en&n=2", "POST /invoke?lang=en&n=2 HTTP/1.1"),
        ("with-query/invoke?lang=en", "POST /invoke?own=1&lang=en HTTP/1.1"),
        ("echo/invoke?text=a%20b&n=1", "POST /invoke HTTP/1.1"),
        ("strict/invoke?text=a+b", "POST /invoke HTTP/1.1"),
        ("echo/invoke?sessionId=s1&lang=en", "POST /invoke?lang=en HTTP/1.1"),
        ("echo/invoke?sessionId=s1", "POST /invoke HTTP/1.1"),
        ("echo/invoke", "POST /invoke HTTP/1.1"),
    ] {
        let request = gate.post(&path_of(path)).json(&json!({"text": "a b", "n": 1}));
        send(request).await.expect_ok();
        assert_eq!(line_of(agent.requests().last().unwrap()), line, "{path}");
    }
    let keyed = gate.post(&path_of("echo/invoke?lang=de")).header("idempotency-key", "k1").json(&json!({}));
    send(keyed).await.expect_ok();
    assert_eq!(line_of(agent.requests().last().unwrap()), "POST /invoke?lang=de HTTP/1.1");
    let count = agent.call_count();
    let refused = gate.post(&path_of("strict/invoke?lang=en")).json(&json!({"text": "a b"}));
    send(refused).await.expect_fault(400, "InvalidInput");
    assert_eq!(agent.call_count(), count);
}

#[tokio::test]
async fn a_get_for_an_event_stream_is_not_turned_into_a_call() {
    let agent = Agent::echo().await;
    let gate = gateway().agent("echo", &agent).start().await;
    let get = |accept: &'static str| {
        let request = gate.request("GET", "/agents/echo/invoke?q=1").header("x-api-key", gate.key("team-a"));
        request.header("accept", accept)
    };
    let refused = send(get("text/event-stream")).await;
    refused.expect_fault(405, "MethodNotAllowed");
    assert_eq!(refused.header("allow"), Some("POST"));
    assert_eq!(agent.call_count(), 0);
    for accept in ["application/json", "*/*", "text/event-stream, application/json"] {
        send(get(accept)).await.expect_ok();
    }
}

#[tokio::test]
async fn r92_refusals_before_the_body_is_read_are_json_rpc_for_json_rpc_callers() {
    let agent = Agent::echo().await;
    let mut typed = agent.document("typed");
    typed["inputs"] = json!({"type": "object"});
    let limits = "limits: {per_caller: 1/h burst 1}\n";
    let gate = gateway().agent("echo", &agent).document(typed).caller("slow", &[]).section(limits).start().await;
    let body = json!({"jsonrpc": "2.0", "id": "r-7", "method": "message/send", "params": {}});
    let expect = |response: crate::support::gateway_response::GatewayResponse, status: u16, id: Value| {
        assert_eq!(response.status, status, "{}", response.text());
        let answer = response.json();
        assert_eq!((&answer["jsonrpc"], &answer["id"]), (&json!("2.0"), &id), "{answer}");
        assert!(answer["error"]["code"].is_i64() && answer["error"]["data"]["status"] == status, "{answer}");
    };
    let anonymous = || gate.request("POST", "/agents/echo/invoke");
    expect(send(anonymous().json(&body)).await, 401, json!("r-7"));
    expect(send(gate.post("/agents/nobody/invoke").json(&body)).await, 404, json!("r-7"));
    expect(send(gate.post("/agents/echo/a/b").json(&body)).await, 404, json!("r-7"));
    expect(send(gate.request("PUT", "/agents/echo/invoke").json(&body)).await, 405, json!("r-7"));
    let text = gate.post("/agents/typed/invoke").header("content-type", "text/plain").body(body.to_string());
    expect(send(text).await, 415, json!("r-7"));
    expect(send(gate.post("/agents/echo/invoke").json(&body)).await, 429, json!("r-7"));
    // A body that is too large is not read; only its head tells the protocol.
    let slow = gate.key("slow");
    let head = "POST /agents/typed/invoke HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nMcp-Session-Id: s\r\n";
    let head = format!("{head}X-API-Key: {slow}\r\nContent-Length: 9999999\r\n\r\n");
    expect(send_raw(gate.address(), head.as_bytes()).await.unwrap(), 413, Value::Null);
    // Other callers get the error object, also where their body never arrives.
    let silent = "POST /agents/echo/invoke HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\n";
    send_raw(gate.address(), silent.as_bytes()).await.unwrap().expect_fault(401, "Unauthorized");
    send(anonymous().json(&json!({"id": 1}))).await.expect_fault(401, "Unauthorized");
    assert_eq!(agent.call_count(), 0);
}

#[tokio::test]
async fn r92_an_agents_own_json_rpc_errors_and_error_events_are_recorded_as_failures_and_pass() {
    let rpc = json!({"jsonrpc": "2.0", "id": 1, "error": {"code": -32001, "message": "no such task"}}).to_string();
    let events = "data: {\"n\":1}\n\nevent: error\ndata: {\"message\":\"boom\"}\n\n";
    let (rpc_reply, event_reply) = (rpc.clone(), events);
    let agent = Agent::scripted(move |request| match request.json()["stream"].as_bool() {
        Some(true) => http_response("200 OK", "text/event-stream", event_reply),
        _ => http_response("200 OK", "application/json", &rpc_reply),
    })
    .await;
    for tasks in ["", "tasks: {}\n"] {
        let gate = gateway().agent("echo", &agent).section(tasks).start().await;
        // Only callers of JSON-RPC read such an error.
        let request = json!({"jsonrpc": "2.0", "id": 1, "method": "x"});
        let reply = gate.invoke("echo", &request).await;
        assert_eq!((reply.status, reply.text()), (200, rpc.clone()));
        let stream = gate.invoke("echo", &json!({"stream": true})).await;
        assert!(stream.status == 200 && stream.text().contains("boom"));
        for entry in gate.access_log(2).await {
            let recorded = (&entry["status"], &entry["code"], &entry["blame"]);
            assert_eq!(recorded, (&json!(200), &json!("AgentError"), &json!("agent")), "{entry}");
            assert!(!entry.to_string().contains("boom") && !entry.to_string().contains("no such task"), "{entry}");
        }
        let page = gate.admin_page("/metrics").await.text();
        let counted = page.lines().filter(|line| line.contains("AgentError") && line.contains("echo")).count();
        assert!(counted > 0, "{page}");
    }
}

#[tokio::test]
async fn the_card_that_an_a2a_agent_returns_itself_names_the_gateway() {
    let agent = Agent::scripted(|request| {
        let card = json!({
            "name": "A", "version": "1", "description": "at http://10.1.77.1:8000/", "skills": [], "capabilities": {},
            "documentationUrl": "https://docs.leak.example/", "signatures": [{"protected": "e30"}],
            "supportedInterfaces": [{"url": "https://leak.example/a2a", "protocolBinding": "JSONRPC"}, {"url": "leak.example:80", "protocolBinding": "GRPC"}],
        });
        match request.json()["chunked"].as_bool() {
            Some(true) => {
                let body = json!({"jsonrpc": "2.0", "id": 1, "result": card}).to_string();
                let digests = "Repr-Digest: sha-256=:AA==:\r\nSignature-Input: s=()\r\nSignature: s=:AA==:\r\n";
                let head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n";
                let head = format!("{head}{digests}\r\n");
                let (first, second) = body.split_at(40);
                let chunk = |text: &str| format!("{:x}\r\n{text}\r\n", text.len());
                vec![write(format!("{head}{}", chunk(first))), Step::Sleep(std::time::Duration::from_millis(20)), write(format!("{}0\r\n\r\n", chunk(second)))]
            }
            _ => json_response(&json!({"jsonrpc": "2.0", "id": 1, "result": card})),
        }
    })
    .await;
    let mut with_card = agent.document("a2a");
    with_card["agent_card"] = json!({"name": "A", "url": agent.url(), "version": "1", "skills": []});
    // The output of this agent is checked, and violations are only reported.
    let mut checked = agent.document("checked");
    checked["outputs"] = json!({"type": "object", "required": ["nothing"]});
    let gate = gateway().agent("plain", &agent).document(with_card).document(checked).start().await;
    for (id, chunked) in ["plain", "a2a", "checked"].into_iter().flat_map(|id| [(id, false), (id, true)]) {
        let request = json!({"jsonrpc": "2.0", "id": 1, "method": "GetExtendedAgentCard", "chunked": chunked});
        let reply = gate.invoke(id, &request).await;
        reply.assert_hides(&["leak", "10.1.77.1", "signatures"]);
        // They describe the agent's bytes.
        for name in ["repr-digest", "signature", "signature-input"] {
            assert_eq!(reply.header(name), None, "{name}");
        }
        let url = gate.url(&format!("/agents/{id}/invoke"));
        assert_eq!(reply.expect_ok()["result"]["supportedInterfaces"][0]["url"], url, "{id} {chunked}");
        // The other ways of a reply hide them too.
        let call = gate.post(&format!("/agents/{id}/invoke")).header("idempotency-key", format!("{id}{chunked}"));
        let keyed = send(call.json(&request)).await;
        keyed.assert_hides(&["leak", "10.1.77.1", "signatures"]);
        assert_eq!(keyed.expect_ok()["result"]["supportedInterfaces"][0]["url"], url, "{id} {chunked}");
        let batch = gate.invoke(id, &json!([request, request])).await;
        batch.assert_hides(&["leak", "10.1.77.1", "signatures"]);
        assert_eq!(batch.expect_ok()[1]["result"]["supportedInterfaces"][0]["url"], url, "{id} {chunked}");
        let mut socket = connect(&gate, &format!("/agents/{id}/invoke")).await;
        send_text(&mut socket, json!({"chunked": chunked}).to_string()).await;
        let message = receive_text(&mut socket).await;
        assert!(message.contains(&format!("/agents/{id}/invoke")) && !message.contains("leak"), "{message}");
    }
}

#[tokio::test]
async fn r12_the_declared_kind_of_credential_decides_unless_a_rule_accepts_any() {
    let agent = Agent::echo().await;
    let mut document = agent.document("declared");
    document["authentication"] = json!({"type": "oauth2_bearer"});
    let mut any = document.clone();
    any["id"] = json!("any");
    let rules = "agents:\n  sources: [agents.json]\n  rules:\n    - {agents: [any], authentication: any}\n";
    // Callers without a credential may call open agents, which `any` does not make of this one.
    let access = "access:\n  grants:\n    - {callers: ['key:team-a', anonymous], agents: ['*']}\n";
    let gate = gateway().document(document).document(any).section(rules).access(access).start().await;
    gate.invoke("declared", &json!({})).await.expect_fault(401, "Unauthorized");
    gate.invoke("any", &json!({})).await.expect_ok();
    send(gate.request("POST", "/agents/any/invoke").json(&json!({}))).await.expect_fault(401, "Unauthorized");
    let list = send(gate.request("GET", "/agents")).await;
    assert_eq!(list.expect_ok(), json!([]), "a grant to anonymous publishes no agent that requires a credential");
    let output = crate::support::gateway::gatepost_command()
        .args(["check", "-c"])
        .arg(gate.folder().join("gatepost.yaml"))
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(text.contains("no caller can call declared, whose"), "{text}");
}
