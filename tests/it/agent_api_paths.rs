//! The paths of an agent's own API: other spellings of a path pass no restriction, and no reference of an agent leads a
//! caller out of its API.

use crate::{
    agent_api::{keyed, start},
    support::{
        agent::{Agent, http_response, json_response, write},
        gateway::{gateway, send},
    },
};
use serde_json::json;

#[tokio::test]
async fn r3_no_other_spelling_of_a_path_passes_the_callers_of_its_route() {
    let agent = Agent::echo().await;
    let rules = "agents:\n  sources: [agents.json]\n  rules:\n    - agents: [planner]\n      api:\n        preset: langgraph\n        \
                 routes:\n          - {methods: [GET, POST], path: /admin/keys, groups: [admins]}\n          \
                 - {methods: [DELETE], path: '/threads/{id}', groups: [admins]}\n          \
                 - {methods: [GET], path: '/message:send', groups: [admins]}\n          - {methods: [GET], path: /**}\n";
    let builder = gateway().agent("planner", &agent).caller("boss", &["--group", "admins"]);
    let gate = builder.section(rules).start().await;
    let call = |caller: &'static str, method: &'static str, path: &'static str| {
        let request = gate.request(method, &format!("/agents/planner/api{path}"));
        send(request.header("X-API-Key", gate.key(caller)))
    };
    for (method, path) in [
        ("GET", "/admin/keys"),
        ("GET", "/admin/%6beys"),
        ("GET", "/%61dmin/keys"),
        ("GET", "/admin/keys/"),
        ("GET", "/admin/Keys"),
        ("HEAD", "/Admin/%4beys/"),
        ("DELETE", "/threads/7"),
        ("DELETE", "/threads/7/"),
        ("DELETE", "/Threads/7"),
        ("GET", "/message%3Asend"),
    ] {
        let refused = call("team-a", method, path).await;
        assert_eq!(refused.status, if path.starts_with("/Threads") { 405 } else { 403 }, "{method} {path}");
    }
    assert_eq!(agent.call_count(), 0);
    for path in ["/admin/keys", "/admin/keys/", "/admin/%6beys"] {
        call("boss", "GET", path).await.expect_ok();
        assert!(agent.requests().last().unwrap().head.starts_with(&format!("GET {path} HTTP")), "the path was changed");
    }
    // What only looks alike is another path.
    for path in ["/admin", "/admin/keys/1", "/admin/keysx"] {
        call("team-a", "GET", path).await.expect_ok();
    }
    for path in ["/admin;a=b/keys", "/admin/keys%3b", "/x/%c0%ae"] {
        call("team-a", "GET", path).await.expect_fault(400, "InvalidInput");
    }
}

#[tokio::test]
async fn r4_no_reference_of_an_agent_leads_its_callers_out_of_its_api() {
    let agent = Agent::scripted(|request| {
        let query = request.head.split(['?', ' ']).nth(2).unwrap();
        vec![write(format!(
            "HTTP/1.1 307 Temporary Redirect\r\nLocation: {query}\r\nLink: <{query}>; rel=next\r\nContent-Length: 0\r\n\r\n"
        ))]
    })
    .await;
    let gate = start(&agent, "{routes: [{methods: [POST], path: /**}]}").await;
    let base = gate.url("/agents/planner/api");
    for (reference, mapped) in [
        // Nothing is above the root of the agent's server.
        ("../../bank/invoke", Some("/bank/invoke")),
        ("../../../../agents/bank/invoke", Some("/agents/bank/invoke")),
        ("/%2e%2e/%2e%2e/bank/invoke", None),
        ("%2E%2e/.%2e/bank", Some("/bank")),
        ("//other.example/x", None),
        ("/threads/2", Some("/threads/2")),
        ("runs/1", Some("/threads/runs/1")),
        ("../ok", Some("/ok")),
    ] {
        let client = reqwest::Client::builder().no_proxy().redirect(reqwest::redirect::Policy::none()).build().unwrap();
        let url = gate.url(&format!("/agents/planner/api/threads/1?{}", reference));
        let request = client.post(url).header("X-API-Key", gate.key("team-a"));
        let answer = send(request).await;
        assert_eq!(answer.status, 307, "{reference}");
        let mapped = mapped.map(|path| format!("{base}{path}"));
        assert_eq!(answer.header("location").map(str::to_owned), mapped, "{reference}");
        assert_eq!(answer.header("link").map(str::to_owned), mapped.map(|url| format!("<{url}>; rel=next")));
    }
}

#[tokio::test]
async fn r20_references_of_every_endpoint_lead_to_the_gateway() {
    let script = |request: &crate::support::agent::ReceivedRequest| {
        let host = request.header("host").unwrap();
        vec![write(format!("HTTP/1.1 201 Created\r\nLocation: http://{host}/threads/7\r\nContent-Length: 0\r\n\r\n"))]
    };
    let (one, two) = (Agent::scripted(script).await, Agent::scripted(script).await);
    let rules = format!(
        "agents:\n  sources: [agents.json]\n  rules:\n    - agents: [planner]\n      settings: {{additional_endpoints: \
         ['{}']}}\n      api: {{routes: [{{methods: [POST], path: /threads}}]}}\n",
        two.url()
    );
    let gate = gateway().agent("planner", &one).section(&rules).start().await;
    for _ in 0..16 {
        let answer = send(keyed(&gate, "POST", "/agents/planner/api/threads")).await;
        assert_eq!(answer.header("location"), Some(&*gate.url("/agents/planner/api/threads/7")));
    }
    assert!(one.call_count() > 0 && two.call_count() > 0);
}

#[tokio::test]
async fn r20_a_document_whose_urls_are_rewritten_is_asked_for_whole_and_keeps_no_digest_of_the_agents_bytes() {
    let agent = Agent::scripted(|request| {
        assert_eq!((request.header("range"), request.header("accept-encoding")), (None, Some("identity")));
        let body = json!({"url": format!("http://{}/a2a", request.header("host").unwrap())}).to_string();
        vec![write(format!(
            "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nETag: \"1\"\r\nContent-Digest: sha-256=:AA==:\r\n\
             Accept-Ranges: bytes\r\nContent-Encoding: identity\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        ))]
    })
    .await;
    let gate = start(&agent, "{routes: [{methods: [GET], path: /**}], rewrite: [/url]}").await;
    let request = keyed(&gate, "GET", "/agents/planner/api/card").header("Range", "bytes=0-9");
    let answer = send(request.header("Accept-Encoding", "gzip")).await;
    assert_eq!(answer.json(), json!({"url": gate.url("/agents/planner/api/a2a")}));
    assert_eq!(answer.header("etag"), Some("W/\"1\""));
    assert_eq!((answer.header("content-digest"), answer.header("accept-ranges")), (None, None));
}

#[tokio::test]
async fn r3_an_agent_is_told_no_user_whom_the_caller_names() {
    let agent = Agent::echo().await;
    let gate = start(&agent, "{preset: agentcore}").await;
    let prefix = "X-Amzn-Bedrock-AgentCore-Runtime";
    let request = keyed(&gate, "POST", "/agents/planner/api/invocations")
        .header(format!("{prefix}-User-Id"), "ceo")
        .header(format!("{prefix}-Session-Id"), "s1")
        .header(format!("{prefix}-Custom-Tenant"), "blue");
    send(request.body("{}")).await.expect_ok();
    let received = &agent.requests()[0];
    let field = |name: &str| received.header(&format!("x-amzn-bedrock-agentcore-runtime-{name}"));
    assert_eq!((field("user-id"), field("session-id"), field("custom-tenant")), (None, Some("s1"), Some("blue")));
    let rules = "agents:\n  sources: [agents.json]\n  rules:\n    - agents: [planner]\n      api: {preset: agentcore}\n      \
                 settings: {caller_headers: {X-Amzn-Bedrock-AgentCore-Runtime-User-Id: {value: id}}}\n";
    let gate = gateway().agent("planner", &agent).section(rules).start().await;
    let request = keyed(&gate, "POST", "/agents/planner/api/invocations").header(format!("{prefix}-User-Id"), "ceo");
    send(request.body("{}")).await.expect_ok();
    let user = agent.requests()[1].header("x-amzn-bedrock-agentcore-runtime-user-id").map(str::to_owned);
    assert_eq!(user.as_deref(), Some("key:team-a"));
}

#[tokio::test]
async fn r30_a_path_of_a_document_without_the_method_leaves_the_request_to_another_path() {
    let agent = Agent::with_steps(http_response("200 OK", "application/json", "{}")).await;
    let document = json!({
        "openapi": "3.1.0", "info": {"title": "Items", "version": "1"},
        "paths": {
            "/items/me": {"put": {"requestBody": {"content": {"application/json": {"schema": {"type": "object", "properties": {"n": {"maximum": 5}}}}}}}},
            "/items/{id}": {"get": {}, "put": {}},
        },
    });
    let builder = gateway().agent("planner", &agent);
    std::fs::write(builder.folder().join("openapi.json"), document.to_string()).unwrap();
    let rules =
        "agents:\n  sources: [agents.json]\n  rules:\n    - {agents: [planner], api: {openapi: openapi.json}}\n";
    let gate = builder.section(rules).start().await;
    send(keyed(&gate, "GET", "/agents/planner/api/items/me")).await.expect_ok();
    for path in ["/items/me", "/items/m%65"] {
        let put = keyed(&gate, "PUT", &format!("/agents/planner/api{path}")).json(&json!({"n": 99}));
        send(put).await.expect_fault(400, "InvalidInput");
    }
    let refused = send(keyed(&gate, "DELETE", "/agents/planner/api/items/me")).await;
    refused.expect_fault(405, "MethodNotAllowed");
    assert_eq!(agent.call_count(), 1);
}

#[tokio::test]
async fn r30_a_header_field_that_is_a_parameter_reaches_the_agent_unless_it_names_a_user() {
    let agent = Agent::echo().await;
    let header = |name: &str| json!({"name": name, "in": "header", "schema": {"type": "string"}});
    let document = json!({
        "openapi": "3.1.0", "info": {"title": "Chat", "version": "1"},
        "paths": {"/chat": {"post": {
            "parameters": [header("X-Tenant"), header("X-Remote-User"), header("Cookie"), header("X-Api-Key")],
            "requestBody": {"content": {"application/json": {"schema": {}}}},
        }}},
    });
    let builder = gateway().agent("planner", &agent);
    std::fs::write(builder.folder().join("openapi.json"), document.to_string()).unwrap();
    let rules =
        "agents:\n  sources: [agents.json]\n  rules:\n    - {agents: [planner], api: {openapi: openapi.json}}\n";
    let gate = builder.section(rules).start().await;
    let chat = keyed(&gate, "POST", "/agents/planner/api/chat").header("X-Tenant", "blue").header("X-Other", "1");
    send(chat.header("X-Remote-User", "root").header("Cookie", "a=b").json(&json!({}))).await.expect_ok();
    let received = &agent.requests()[0];
    assert_eq!((received.header("x-tenant"), received.header("x-other")), (Some("blue"), None));
    for name in ["x-remote-user", "cookie", "x-api-key"] {
        assert_eq!(received.header(name), None, "{name}");
    }
}

#[tokio::test]
async fn r20_a_document_that_is_too_large_for_its_urls_to_be_rewritten_passes_as_it_is() {
    let document = json!({"url": "http://agent/", "text": "x".repeat(2_000)});
    let large = Agent::with_steps(json_response(&document)).await;
    let whole = document.to_string();
    let chunked = Agent::with_steps(vec![write(format!(
        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n{:x}\r\n{}\r\n{:x}\r\n{}\r\n0\r\n\r\n",
        1_500,
        &whole[..1_500],
        whole.len() - 1_500,
        &whole[1_500..]
    ))])
    .await;
    for agent in [large, chunked] {
        let gate = start(&agent, "{routes: [{methods: [GET], path: /**}], rewrite: [/url], max_rewrite: 1KiB}").await;
        assert_eq!(send(keyed(&gate, "GET", "/agents/planner/api/card")).await.expect_ok(), document);
    }
}
