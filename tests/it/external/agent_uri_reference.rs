//! The reference implementation of `agent://` (Python), unchanged: its client calls agents through the gateway by
//! `agent://`, `agent+https://` and `agent+wss://`, and its server is a source and an agent of the gateway.

use super::support::agent_uri::{GATEWAY_HOST, ReferenceAgent, run_client, run_command};
use crate::support::{
    agent::{Agent, Step, write},
    certs::CertificateAuthority,
    gateway::{Gateway, GatewayBuilder, gateway, send},
    servers::tls_client,
};
use serde_json::{Value, json};
use std::time::Duration;

/// A gateway with TLS under the name [`GATEWAY_HOST`], whose documents are public: the client sends no credential when
/// it resolves a name. It trusts `authority`.
fn gateway_with_tls(authority: &CertificateAuthority) -> GatewayBuilder {
    let build = gateway();
    let (certificate, key) =
        authority.server(&[GATEWAY_HOST, "localhost", "127.0.0.1"]).write(build.folder(), "server");
    std::fs::write(build.folder().join("ca.pem"), authority.pem()).unwrap();
    let tls = format!("{{certificate: {}, key: {}}}", certificate.display(), key.display());
    build
        .listeners(&format!("listeners:\n  - {{address: 127.0.0.1:0, tls: {tls}}}\n"))
        .section(&format!("directory:\n  external_url: https://{GATEWAY_HOST}\n  public_agents: ['*']\n"))
        .section("network: {allowed_addresses: [127.0.0.0/8], ca: ca.pem}\n")
}

fn invoke(uri: &str, params: Value) -> Value {
    json!({"do": "invoke", "uri": uri, "params": params})
}

/// `agent://` or another scheme, with the host of the gateway.
fn name(scheme: &str, path: &str) -> String {
    format!("{scheme}://{GATEWAY_HOST}/{path}")
}

fn with_operations(agent: &Agent, id: &str) -> Value {
    let mut document = agent.document(id);
    let text = json!({"type": "object", "properties": {"message": {"type": "string"}}, "required": ["message"]});
    document["operations"] = json!([{"name": "echo", "inputs": text}, {"name": "other"}]);
    document
}

#[tokio::test]
async fn r46_the_reference_client_calls_agents_by_name_and_by_explicit_transport() {
    let authority = CertificateAuthority::new("Callers");
    let agent = Agent::echo().await;
    let gate = gateway_with_tls(&authority)
        .document(with_operations(&agent, "parrot"))
        .document(agent.document("solo"))
        .start()
        .await;
    let long = "x".repeat(4_000);
    let commands = [
        invoke(&name("agent", "parrot/echo?city=Paris"), json!({"message": "hi", "n": 2})),
        invoke(&name("agent", "solo"), json!({"message": "alone"})),
        invoke(&name("agent", "solo"), Value::Null),
        invoke(&name("agent", "solo/invoke"), json!({"message": "invoked"})),
        invoke(&name("agent", "parrot/echo"), json!({"message": long})),
        invoke(&name("agent+https", "agents/parrot/echo"), json!({"message": "https"})),
        invoke(&name("agent+https", "agents/solo/invoke"), json!({"message": "https"})),
        json!({"do": "session", "uri": name("agent", "parrot"), "capability": "echo", "params": {"message": "s"}}),
        json!({"do": "describe", "uri": name("agent", "parrot")}),
        json!({"do": "resolve", "uri": name("agent", "parrot/echo")}),
    ];
    let results = run_client(&gate, &authority, Some(gate.key("team-a")), &commands).await;
    let echoed = |input: Value| json!({"ok": {"echo": input}});
    assert_eq!(results[0], echoed(json!({"city": "Paris", "message": "hi", "n": 2})));
    assert_eq!(results[1], echoed(json!({"message": "alone"})));
    assert_eq!(results[2], echoed(json!({})), "GET without parameters");
    assert_eq!(results[3], echoed(json!({"message": "invoked"})));
    assert_eq!(results[4], echoed(json!({"message": long})), "the client repeats the body in the query");
    assert_eq!(results[5], echoed(json!({"message": "https"})));
    assert_eq!(results[6], echoed(json!({"message": "https"})));
    assert_eq!(results[7], echoed(json!({"session_id": "s-1", "message": "s"})));
    assert_eq!(results[8], json!({"ok": {"name": "parrot", "capabilities": ["echo", "other"]}}));
    assert_eq!(results[9]["ok"]["resolution_method"], "agents_registry");
    // The command line has no option for a credential; it finds agents.
    let described = run_command(&gate, &authority, &["describe", &name("agent", "parrot")]).await;
    assert!(described.to_string().contains("parrot"), "{described}");
    let resolved = run_command(&gate, &authority, &["resolve", &name("agent", "solo")]).await;
    assert_eq!(resolved["metadata"]["endpoint"], format!("https://{GATEWAY_HOST}/agents/solo/agent.json"));
    let requests = agent.requests();
    assert_eq!(requests[0].header("x-operation"), Some("echo"));
    assert!(requests[0].head.starts_with("POST /invoke HTTP"), "the query is not forwarded: {}", requests[0].head);
    assert_eq!(requests[0].header("x-api-key"), None);
    assert_eq!(requests[7].header("x-session-id"), Some("s-1"));
}

#[tokio::test]
async fn r96_the_reference_client_reads_why_a_call_fails() {
    let authority = CertificateAuthority::new("Callers");
    let agent = Agent::echo().await;
    let gate = gateway_with_tls(&authority).document(with_operations(&agent, "parrot")).start().await;
    let commands = [
        invoke(&name("agent", "parrot/sing"), json!({"message": "hi"})),
        invoke(&name("agent", "parrot/echo"), json!({"message": 7})),
        invoke(&name("agent+https", "agents/nobody/invoke"), json!({"message": "hi"})),
        invoke(&name("agent+wss", "agents/parrot/echo"), json!({"message": 7})),
        // The client sends this over the connection of the call before, which is for another agent.
        invoke(&name("agent+wss", "agents/nobody/invoke"), json!({"message": "hi"})),
    ];
    let results = run_client(&gate, &authority, Some(gate.key("team-a")), &commands).await;
    for (result, message) in results.iter().zip([
        "This agent has no operation 'sing' (it has: echo, other)",
        "The input does not match the agent's schema",
        "[5005] HTTP 404 error: The agent was not found",
        "The input does not match the agent's schema",
        "The method names another agent or version than the",
    ]) {
        assert_eq!(result["error"], "InvocationError", "{result}");
        assert!(result["message"].as_str().unwrap().contains(message), "{result}");
    }
    let commands = [
        invoke(&name("agent", "parrot/echo"), json!({"message": "hi"})),
        invoke(&name("agent+https", "agents/parrot/echo"), json!({"message": "hi"})),
    ];
    for result in run_client(&gate, &authority, None, &commands).await {
        assert_eq!(result["error"], "InvocationError", "{result}");
        assert!(result["message"].as_str().unwrap().contains("401"), "{result}");
    }
    assert_eq!(agent.call_count(), 0);
}

#[tokio::test]
async fn r80_the_reference_client_calls_and_streams_over_websocket_and_https() {
    let authority = CertificateAuthority::new("Callers");
    let echo = Agent::echo().await;
    // The client drops the parts that it has not read when the end arrives, so the end comes later.
    let streaming_agent = async |media_type: &str, body: &str| {
        let head = format!("HTTP/1.1 200 OK\r\nContent-Type: {media_type}\r\nConnection: close\r\n\r\n");
        Agent::with_steps(vec![write(head + body), Step::Sleep(Duration::from_millis(700)), Step::Close]).await
    };
    let flow = streaming_agent("application/x-ndjson", "{\"number\":1}\n{\"number\":2}\n").await;
    let wave = streaming_agent("text/event-stream", "data: {\"number\":1}\n\ndata: {\"number\":2}\n\n").await;
    let gate = gateway_with_tls(&authority)
        .document(with_operations(&echo, "parrot"))
        .document(flow.document("flow"))
        .document(wave.document("wave"))
        .start()
        .await;
    let stream = |uri: String, options: Value| json!({"do": "stream", "uri": uri, "params": {}, "options": options});
    let commands = [
        stream(name("agent+wss", "agents/flow/invoke"), json!({})),
        stream(name("agent+wss", "agents/wave/invoke"), json!({})),
        invoke(&name("agent+wss", "agents/parrot/echo"), json!({"message": "one"})),
        invoke(&name("agent+wss", "agents/parrot/echo"), json!({"message": "two"})),
        invoke(&name("agent+wss", "agents/parrot/other"), json!({"message": "three"})),
        json!({"do": "disconnect"}),
        stream(name("agent", "flow"), json!({})),
        stream(name("agent+https", "agents/flow/invoke"), json!({})),
        stream(name("agent+https", "agents/wave/invoke"), json!({"stream_format": "sse"})),
    ];
    let results = run_client(&gate, &authority, Some(gate.key("team-a")), &commands).await;
    let numbers = json!({"ok": [{"number": 1}, {"number": 2}]});
    for at in [0, 1, 6, 7, 8] {
        assert_eq!(results[at], numbers, "{}", commands[at]);
    }
    for (at, message) in [(2, "one"), (3, "two"), (4, "three")] {
        assert_eq!(results[at], json!({"ok": {"echo": {"message": message}}}), "{}", commands[at]);
    }
    let operations: Vec<_> =
        echo.requests().iter().map(|request| request.header("x-operation").map(str::to_owned)).collect();
    assert_eq!(operations, ["echo", "echo", "other"].map(|name| Some(name.to_owned())));
}

/// A POST with the key of `team-a` to a gateway with TLS.
async fn post(gate: &Gateway, authority: &CertificateAuthority, path: &str, input: &Value) -> (u16, Value) {
    let client = tls_client(authority, None).build().unwrap();
    let url = format!("https://localhost:{}{path}", gate.address().port());
    let answer = send(client.post(url).header("x-api-key", gate.key("team-a")).json(input)).await;
    let body = serde_json::from_slice(&answer.body).unwrap_or_else(|_| Value::from(answer.text()));
    (answer.status, body)
}

fn agents_section(agent: &ReferenceAgent, more: &str) -> String {
    let host = agent.host();
    format!(
        "agents:\n  sources:\n    - agents.json\n    - {{kind: agent_uri, url: 'https://{host}', name: reference, endpoints: ['https://{host}']{more}}}\n  \
         defaults: {{tls: {{ca: ca.pem}}}}\n  rules:\n    - {{agents: ['*'], authentication: any}}\n"
    )
}

async fn until_listed(gate: &Gateway, authority: &CertificateAuthority) {
    crate::support::eventually("the source is read", async || {
        post(gate, authority, "/agents/Parrot/echo", &json!({"message": "ready"})).await.0 == 200
    })
    .await;
}

#[tokio::test]
async fn r57_the_reference_server_is_a_source_whose_operations_have_paths_of_their_own() {
    let authority = CertificateAuthority::new("Agents");
    let with_url: fn(&str) -> Option<String> = |host| Some(format!("agent://{host}/"));
    let without_url: fn(&str) -> Option<String> = |_| None;
    for url in [with_url, without_url] {
        let agent = ReferenceAgent::start(&authority, url).await;
        let gate = gateway_with_tls(&authority).section(&agents_section(&agent, "")).start().await;
        until_listed(&gate, &authority).await;
        let call = async |path: &str, input: Value| post(&gate, &authority, path, &input).await;
        assert_eq!(call("/agents/Parrot/echo", json!({"message": "hi"})).await, (200, json!({"heard": "hi"})));
        assert_eq!(call("/agents/Parrot/math-sum", json!({"a": 1, "b": 2})).await, (200, json!({"sum": 3})));
        let (status, fault) = call("/agents/Parrot/echo", json!({"message": 7})).await;
        assert_eq!((status, &fault["error"]["code"]), (400, &json!("InvalidInput")), "{fault}");
        let (status, fault) = call("/agents/Parrot/fail", json!({})).await;
        assert_eq!((status, &fault["error"]["code"]), (500, &json!("AgentError")), "{fault}");
        assert!(!fault.to_string().contains("/srv/app"), "{fault}");
        // Documents name the gateway's addresses.
        let (_, descriptor) = {
            let client = tls_client(&authority, None).build().unwrap();
            let url = format!("https://localhost:{}/agents/Parrot/agent.json", gate.address().port());
            let answer = send(client.get(url)).await;
            (answer.status, answer.text())
        };
        assert!(!descriptor.contains(&agent.host()), "{descriptor}");
        // The reference client reaches the reference server through the gateway.
        let commands = [invoke(&name("agent", "Parrot/echo"), json!({"message": "through"}))];
        let results = run_client(&gate, &authority, Some(gate.key("team-a")), &commands).await;
        assert_eq!(results[0], json!({"ok": {"heard": "through"}}));
        // An agent that stops stays in the directory, and its calls fail at once.
        drop(agent);
        let (status, fault) = call("/agents/Parrot/echo", json!({"message": "hi"})).await;
        assert_eq!((status, &fault["error"]["code"]), (503, &json!("AgentUnavailable")), "{fault}");
    }
}

#[tokio::test]
async fn r57_without_operation_paths_all_operations_are_called_at_the_url() {
    let authority = CertificateAuthority::new("Agents");
    let agent = ReferenceAgent::start(&authority, |host| Some(format!("https://{host}/"))).await;
    let gate = gateway_with_tls(&authority).section(&agents_section(&agent, ", operation_paths: false")).start().await;
    crate::support::eventually("the source is read", async || {
        // The server has nothing at its root.
        let (status, fault) = post(&gate, &authority, "/agents/Parrot/echo", &json!({"message": "hi"})).await;
        status == 404 && fault["error"]["code"] == "CapabilityNotFound"
    })
    .await;
}

#[tokio::test]
async fn r51_the_reference_server_is_an_agent_over_https_and_websocket() {
    let authority = CertificateAuthority::new("Agents");
    let agent = ReferenceAgent::start(&authority, |_| None).await;
    let host = agent.host();
    let api_key = json!({"type": "api_key"});
    let document = |id: &str, endpoint: String, operations: Value| json!({"id": id, "name": id, "endpoint": endpoint, "operations": operations, "authentication": api_key});
    let operations = json!([{"name": "echo", "endpoint": "echo"}, {"name": "sum", "endpoint": "/math/sum"}]);
    let gate = gateway_with_tls(&authority)
        .document(document("https", format!("https://{host}/"), operations.clone()))
        .document(document("bare", format!("wss://{host}/"), operations))
        .document(document("count", format!("wss://{host}/count"), Value::Null))
        .section(
            "agents:\n  sources: [agents.json]\n  defaults: {tls: {ca: ca.pem}}\n  rules:\n    - {agents: [bare], settings: {websocket: {framing: bare, relay: false}}}\n",
        )
        .start()
        .await;
    for id in ["https", "bare"] {
        let echo = post(&gate, &authority, &format!("/agents/{id}/echo"), &json!({"message": "hi"})).await;
        assert_eq!(echo, (200, json!({"heard": "hi"})), "{id}");
        let sum = post(&gate, &authority, &format!("/agents/{id}/sum"), &json!({"a": 2, "b": 3})).await;
        assert_eq!(sum, (200, json!({"sum": 5})), "{id}");
    }
    let (status, lines) = post(&gate, &authority, "/agents/count/invoke", &json!({"to": 2, "stream": true})).await;
    assert_eq!(status, 200);
    assert!(lines.to_string().contains("number"), "{lines}");
    // Over its WebSocket the server reports failures in a frame.
    let (status, fault) = post(&gate, &authority, "/agents/bare/echo", &json!({"text": "hi"})).await;
    let error = &fault["error"];
    assert_eq!((status, &error["code"], &error["message"]), (502, &json!("AgentError"), &json!("The agent failed")));
    // The reference client and the reference server speak over WebSocket through the gateway.
    let commands = [invoke(&name("agent+wss", "agents/bare/echo"), json!({"message": "both"}))];
    let results = run_client(&gate, &authority, Some(gate.key("team-a")), &commands).await;
    assert_eq!(results[0], json!({"ok": {"heard": "both"}}));
}
