//! An agent's own API behind the gateway: what passes as it is, what is refused, and what callers never see.

use crate::{
    explain::Call,
    support::{
        agent::{Agent, ReceivedRequest, Step, find_bytes, http_response, json_response, latch, write},
        gateway::{Gateway, gatepost_command, gateway, send},
        gateway_response::{read_response, send_raw},
    },
};
use serde_json::{Value, json};
use std::time::Duration;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
};

/// Starts a gateway in front of an agent, whose API has these settings.
pub async fn start(agent: &Agent, api: &str) -> Gateway {
    let rules = format!("agents:\n  sources: [agents.json]\n  rules:\n    - agents: [planner]\n      api: {api}\n");
    gateway().agent("planner", agent).section(&rules).start().await
}

/// A request with the key of `team-a`.
pub fn keyed(gate: &Gateway, method: &str, path: &str) -> reqwest::RequestBuilder {
    gate.request(method, path).header("X-API-Key", gate.key("team-a"))
}

const THREADS: &str = "{routes: [{methods: [GET, POST, PUT, PATCH, DELETE], path: /threads/**}]}";

fn request_line(request: &ReceivedRequest) -> &str {
    request.head.lines().next().unwrap()
}

#[tokio::test]
async fn r30_listed_requests_reach_the_agents_api_with_their_method_path_query_and_body() {
    let agent = Agent::scripted(|request| {
        json_response(&json!({"line": request_line(request), "body": String::from_utf8_lossy(&request.body)}))
    })
    .await;
    let gate = start(&agent, THREADS).await;
    for (method, path) in [
        ("GET", "/threads"),
        ("GET", "/threads/"),
        ("POST", "/threads/1/runs?stream=true&x=%20"),
        ("PUT", "/threads/a=%62/x"),
        ("PATCH", "/threads/1"),
        ("DELETE", "/threads/1"),
    ] {
        let answer = send(keyed(&gate, method, &format!("/agents/planner/api{path}")).body("{\"a\": 1}")).await;
        let line = format!("{method} {path} HTTP/1.1");
        assert_eq!(answer.expect_ok(), json!({"line": line, "body": "{\"a\": 1}"}));
    }
    let head = send(keyed(&gate, "HEAD", "/agents/planner/api/threads/1")).await;
    assert_eq!((head.status, head.text()), (200, String::new()));
    let entries = gate.access_log(7).await;
    assert!(entries.iter().all(|entry| entry["operation"] == "/threads/**"), "{entries:?}");
}

#[tokio::test]
async fn r30_what_is_not_listed_reaches_no_agent() {
    let agent = Agent::echo().await;
    let gate = start(&agent, "{routes: [{methods: [GET], path: '/threads/{id}'}]}").await;
    for (method, path, status, code) in [
        ("GET", "/store", 404, "CapabilityNotFound"),
        ("GET", "", 404, "CapabilityNotFound"),
        ("GET", "/threads/1/runs", 404, "CapabilityNotFound"),
        ("GET", "/threads/", 404, "CapabilityNotFound"),
        ("GET", "/threads/../admin", 400, "InvalidInput"),
        ("GET", "/threads/%2e%2e", 400, "InvalidInput"),
        ("GET", "/threads/a%2fb", 400, "InvalidInput"),
        ("GET", "//threads/1", 400, "InvalidInput"),
        ("GET", "/threads/..;/x", 400, "InvalidInput"),
    ] {
        let key = gate.key("team-a");
        let raw = format!("{method} /agents/planner/api{path} HTTP/1.1\r\nHost: gate\r\nX-API-Key: {key}\r\n\r\n");
        let answer = send_raw(gate.address(), raw.as_bytes()).await.unwrap();
        answer.expect_fault(status, code);
    }
    let refused = send(keyed(&gate, "DELETE", "/agents/planner/api/threads/1")).await;
    refused.expect_fault(405, "MethodNotAllowed");
    assert_eq!(refused.header("allow"), Some("GET"));
    assert_eq!(agent.call_count(), 0);
}

#[tokio::test]
async fn r30_without_the_setting_or_a_grant_nothing_passes() {
    let agent = Agent::echo().await;
    let gate = gateway().agent("planner", &agent).start().await;
    send(keyed(&gate, "GET", "/agents/planner/api/threads")).await.expect_fault(404, "CapabilityNotFound");
    send(keyed(&gate, "GET", "/agents/missing/api/threads")).await.expect_fault(404, "NotFound");
    let anonymous = reqwest::Client::new().get(gate.url("/agents/planner/api/threads")).send().await.unwrap();
    assert_eq!(anonymous.status(), 401);
    assert_eq!(agent.call_count(), 0);
}

#[tokio::test]
async fn r3_a_route_may_be_for_some_callers_only() {
    let agent = Agent::echo().await;
    let rules = "agents:\n  sources: [agents.json]\n  rules:\n    - agents: [planner]\n      api:\n        routes:\n          \
                 - {methods: [DELETE], path: /threads/**, groups: [admins], callers: ['key:team-b']}\n          \
                 - {methods: [GET], path: /threads/**}\n";
    let gate = gateway()
        .agent("planner", &agent)
        .caller("team-b", &[])
        .caller("team-c", &["--group", "admins"])
        .section(rules)
        .start()
        .await;
    let delete = |caller: &str| {
        let client = reqwest::Client::new();
        send(client.delete(gate.url("/agents/planner/api/threads/1")).header("X-API-Key", gate.key(caller)))
    };
    delete("team-a").await.expect_fault(403, "PermissionDenied");
    delete("team-b").await.expect_ok();
    delete("team-c").await.expect_ok();
    send(keyed(&gate, "GET", "/agents/planner/api/threads/1")).await.expect_ok();
    assert_eq!(agent.call_count(), 3);
}

#[tokio::test]
async fn r4_the_agent_receives_no_credential_of_the_caller_and_the_caller_no_cookie_or_address_of_the_agent() {
    let agent = Agent::scripted(|request| {
        let host = request.header("host").unwrap();
        vec![write(format!(
            "HTTP/1.1 201 Created\r\nLocation: http://{host}/threads/7\r\nContent-Location: /threads/7/runs\r\n\
             Link: <http://{host}/threads?page=2>; rel=\"next\", <http://internal/x>; rel=\"up\"\r\n\
             Set-Cookie: session=1\r\nServer: uvicorn\r\nContent-Length: 0\r\n\r\n"
        ))]
    })
    .await;
    let gate = start(&agent, THREADS).await;
    let answer = send(
        keyed(&gate, "POST", "/agents/planner/api/threads")
            .header("Cookie", "a=b")
            .header("X-User", "root")
            .header("If-None-Match", "\"x\"")
            .header("Range", "bytes=0-1"),
    )
    .await;
    assert_eq!(answer.status, 201);
    let base = gate.url("/agents/planner/api");
    assert_eq!(answer.header("location"), Some(&*format!("{base}/threads/7")));
    assert_eq!(answer.header("content-location"), Some(&*format!("{base}/threads/7/runs")));
    assert_eq!(answer.header("link"), Some(&*format!("<{base}/threads?page=2>; rel=\"next\"")));
    assert_eq!((answer.header("set-cookie"), answer.header("server")), (None, None));
    let request = &agent.requests()[0];
    for name in ["x-api-key", "cookie", "x-user", "authorization"] {
        assert_eq!(request.header(name), None, "{name}");
    }
    assert_eq!((request.header("if-none-match"), request.header("range")), (Some("\"x\""), Some("bytes=0-1")));
}

#[tokio::test]
async fn r43_the_agents_errors_and_streams_pass_as_they_are_and_at_once() {
    let gate_closed = latch();
    let closed = gate_closed.clone();
    let agent = Agent::scripted(move |request| match request_line(request).split(' ').nth(1) {
        Some("/threads/missing") => http_response("404 Not Found", "application/json", "{\"detail\": \"no thread\"}"),
        Some("/threads/broken") => http_response("500 Internal Server Error", "text/plain", "Traceback"),
        _ => vec![
            write("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"),
            write("9\r\ndata: 1\n\n\r\n"),
            Step::WaitForLatch(closed.clone()),
            write("9\r\ndata: 2\n\n\r\n0\r\n\r\n"),
        ],
    })
    .await;
    let gate = start(&agent, THREADS).await;
    let missing = send(keyed(&gate, "GET", "/agents/planner/api/threads/missing")).await;
    assert_eq!((missing.status, missing.json()), (404, json!({"detail": "no thread"})));
    let broken = send(keyed(&gate, "GET", "/agents/planner/api/threads/broken")).await;
    assert_eq!((broken.status, broken.text()), (500, "Traceback".to_owned()));
    let mut response = keyed(&gate, "GET", "/agents/planner/api/threads/1/stream").send().await.unwrap();
    let first = tokio::time::timeout(Duration::from_secs(5), response.chunk()).await.unwrap().unwrap().unwrap();
    assert_eq!(&first[..], b"data: 1\n\n");
    gate_closed.add_permits(1);
    assert_eq!(&response.chunk().await.unwrap().unwrap()[..], b"data: 2\n\n");
    assert!(response.chunk().await.unwrap().is_none());
}

#[tokio::test]
async fn r40_a_reply_that_ends_early_ends_the_callers_connection() {
    let agent = Agent::with_steps(vec![
        write("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 100000\r\n\r\n{\"a\":"),
        Step::Close,
    ])
    .await;
    let gate = start(&agent, THREADS).await;
    let response = keyed(&gate, "GET", "/agents/planner/api/threads/1").send().await.unwrap();
    assert!(response.bytes().await.is_err());
    let dead = Agent::with_steps(vec![Step::Close]).await;
    let gate = start(&dead, THREADS).await;
    send(keyed(&gate, "POST", "/agents/planner/api/threads")).await.expect_fault(502, "AgentError");
}

#[tokio::test]
async fn r20_urls_of_the_agent_at_the_named_pointers_lead_to_the_gateway() {
    let agent = Agent::scripted(|request| {
        let host = request.header("host").unwrap();
        json_response(&json!({"url": format!("http://{host}/a2a"), "items": [{"url": "http://other/"}], "n": 1}))
    })
    .await;
    let gate =
        start(&agent, "{routes: [{methods: [GET], path: /**}], rewrite: [/url, '/items/*/url'], max_rewrite: 1KiB}")
            .await;
    let answer = send(keyed(&gate, "GET", "/agents/planner/api/card")).await;
    let url = gate.url("/agents/planner/api/a2a");
    assert_eq!(answer.expect_ok(), json!({"url": url, "items": [{"url": "http://other/"}], "n": 1}));
}

#[tokio::test]
async fn r20_a_reply_that_urls_of_the_gateway_make_too_long_is_refused_by_name() {
    let agent = Agent::scripted(|request| {
        let url = format!("http://{}/", request.header("host").unwrap());
        let count = if request.head.contains("/few") { 4 } else { 2_000 };
        json_response(&json!(vec![url; count]))
    })
    .await;
    let gate = start(&agent, "{routes: [{methods: [GET], path: /**}], rewrite: [/*], max_rewrite: 64KiB}").await;
    let host = format!("{}.example", "h".repeat(240));
    let get = |path: &str| send(keyed(&gate, "GET", path).header("host", &host));
    let refused = get("/agents/planner/api/many").await;
    let fault = refused.expect_fault(502, "AgentError").to_string();
    assert!(fault.contains("(api.max_rewrite)"), "{fault}");
    let few: Vec<String> = serde_json::from_value(get("/agents/planner/api/few").await.expect_ok()).unwrap();
    assert_eq!(few, vec![format!("http://{host}/agents/planner/api/"); 4]);
}

#[tokio::test]
async fn r5_limits_and_body_bounds_hold_for_the_api() {
    let agent = Agent::echo().await;
    let rules = "agents:\n  sources: [agents.json]\n  rules:\n    - agents: [planner]\n      rate_limit: 2/h\n      api: \
                 {routes: [{methods: [POST], path: /**}], max_body_size: 1KiB}\n";
    let gate = gateway().agent("planner", &agent).section(rules).start().await;
    let post = |size: usize| send(keyed(&gate, "POST", "/agents/planner/api/threads").body("x".repeat(size)));
    post(1_000).await.expect_ok();
    post(2_000).await.expect_fault(413, "PayloadTooLarge");
    post(10).await.expect_fault(429, "RateLimited");
    assert!(agent.requests().iter().all(|request| request.body.len() <= 1_024));
}

#[tokio::test]
async fn r69_the_requests_of_a_session_reach_one_endpoint() {
    let script = |name: &'static str| move |_: &ReceivedRequest| json_response(&json!(name));
    let (one, two) = (Agent::scripted(script("one")).await, Agent::scripted(script("two")).await);
    let rules = format!(
        "agents:\n  sources: [agents.json]\n  rules:\n    - agents: [planner]\n      settings: {{additional_endpoints: \
         ['{}']}}\n      api:\n        routes: [{{methods: [GET], path: '/threads/{{thread}}/**'}}]\n        session: {{path: thread}}\n",
        two.url()
    );
    let gate = gateway().agent("planner", &one).section(&rules).start().await;
    let mut answers = std::collections::BTreeSet::new();
    for thread in 0..16 {
        let path = format!("/agents/planner/api/threads/{thread}/state");
        let first: Value = send(keyed(&gate, "GET", &path)).await.expect_ok();
        for _ in 0..3 {
            assert_eq!(send(keyed(&gate, "GET", &path)).await.expect_ok(), first, "{thread}");
        }
        answers.insert(first.to_string());
    }
    assert_eq!(answers.len(), 2, "both endpoints serve sessions");
}

#[tokio::test]
async fn r30_an_operation_named_api_is_called_below_invoke() {
    let agent = Agent::echo().await;
    let mut document = agent.document("planner");
    document["operations"] = json!([{"name": "api"}, {"name": "other"}]);
    let gate = gateway().document(document).start().await;
    send(keyed(&gate, "POST", "/agents/planner/api").json(&json!({}))).await.expect_fault(404, "CapabilityNotFound");
    send(keyed(&gate, "POST", "/agents/planner/invoke/api").json(&json!({}))).await.expect_ok();
}

/// The bytes of a large body.
const LARGE: usize = 1 << 30;

/// An agent that counts the bytes of a body, and sends as many to a `GET`.
async fn serve_large_bodies(mut stream: TcpStream) -> std::io::Result<()> {
    let mut buffer = vec![0; 256 << 10];
    let mut head = Vec::new();
    while !head.windows(4).any(|end| end == b"\r\n\r\n") {
        let length = stream.read(&mut buffer).await?;
        head.extend_from_slice(&buffer[..length]);
    }
    let end = find_bytes(&head, b"\r\n\r\n").unwrap() + 4;
    if head.starts_with(b"GET") {
        stream.write_all(format!("HTTP/1.1 200 OK\r\nContent-Length: {LARGE}\r\n\r\n").as_bytes()).await?;
        for _ in 0..LARGE / buffer.len() {
            stream.write_all(&buffer).await?;
        }
        return Ok(());
    }
    let mut count = head.len() - end;
    while count < LARGE {
        match stream.read(&mut buffer).await? {
            0 => break,
            length => count += length,
        }
    }
    let body = count.to_string();
    stream.write_all(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len()).as_bytes()).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r43_a_gibibyte_passes_each_way_in_constant_memory() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(serve_large_bodies(stream));
        }
    });
    let document = json!({"id": "planner", "name": "Planner", "endpoint": format!("http://{address}/"),
                          "authentication": {"type": "api_key"}});
    let rules = "agents:\n  sources: [agents.json]\n  rules:\n    - agents: [planner]\n      api: {routes: [{methods: \
                 [GET, PUT], path: /files/**}], max_body_size: 2GiB}\n";
    let gate = gateway().document(document).section(rules).start().await;
    let put = |length: usize| {
        let key = gate.key("team-a");
        format!(
            "PUT /agents/planner/api/files/1 HTTP/1.1\r\nHost: gate\r\nX-API-Key: {key}\r\nContent-Length: {length}\r\n\r\n"
        )
    };
    let refused = send_raw(gate.address(), put(3 << 30).as_bytes()).await.unwrap();
    refused.expect_fault(413, "PayloadTooLarge");
    let mut peaks: Vec<usize> = Vec::new();
    // What one round has allocated serves the next one; beside other tests an early round may not have needed all of it.
    let is_constant = |peaks: &[usize]| matches!(peaks, [.., before, last] if last - before < 2);
    while !is_constant(&peaks) {
        assert!(peaks.len() < 5, "{peaks:?} MiB after two bodies of 1 GiB, and after two more each time");
        let mut down = keyed(&gate, "GET", "/agents/planner/api/files/1").send().await.unwrap();
        let mut received = 0;
        while let Some(bytes) = down.chunk().await.unwrap() {
            received += bytes.len();
        }
        assert_eq!(received, LARGE);
        let mut up = TcpStream::connect(gate.address()).await.unwrap();
        up.write_all(put(LARGE).as_bytes()).await.unwrap();
        let part = vec![1; 256 << 10];
        for _ in 0..LARGE / part.len() {
            up.write_all(&part).await.unwrap();
        }
        let answer = read_response(&mut up).await.unwrap();
        assert_eq!((answer.status, answer.text()), (200, LARGE.to_string()));
        peaks.push(gate.peak_memory());
    }
}

#[tokio::test]
async fn r30_a_host_of_its_own_has_the_agents_api_at_its_root_and_nothing_else() {
    let agent = Agent::scripted(|request| {
        let host = request.header("host").unwrap();
        vec![write(format!("HTTP/1.1 201 Created\r\nLocation: http://{host}/threads/7\r\nContent-Length: 0\r\n\r\n"))]
    })
    .await;
    let api = "{routes: [{methods: [POST], path: /threads}], hosts: [planner.agents.example.com]}";
    let gate = start(&agent, api).await;
    let at_host = |method: &str, path: &str| {
        let key = gate.key("team-a");
        format!(
            "{method} {path} HTTP/1.1\r\nHost: Planner.Agents.Example.com:80\r\nX-API-Key: {key}\r\nContent-Length: 0\r\n\r\n"
        )
    };
    let created = send_raw(gate.address(), at_host("POST", "/threads").as_bytes()).await.unwrap();
    assert_eq!(created.status, 201);
    assert_eq!(created.header("location"), Some("http://Planner.Agents.Example.com:80/threads/7"));
    for path in ["/agents", "/agents/planner/invoke", "/agents/planner/api/threads", "/openai/v1/models"] {
        let answer = send_raw(gate.address(), at_host("POST", path).as_bytes()).await.unwrap();
        answer.expect_fault(404, "CapabilityNotFound");
    }
    assert_eq!(agent.call_count(), 1);
}

#[tokio::test]
async fn a_dry_run_of_a_request_to_an_api_names_its_route_or_what_refuses_it() {
    let agent = Agent::echo().await;
    let gate = start(&agent, "{routes: [{methods: [GET], path: '/threads/{id}'}]}").await;
    let call =
        |method: &'static str, path: &str| Call { method, ..Call::post(&format!("/agents/planner/api{path}"), "") };
    let admitted = call("GET", "/threads/1").explain(&gate).await;
    assert_eq!(admitted["verdict"], "admitted", "{admitted}");
    assert!(admitted.to_string().contains("the route /threads/{id} of the agent's API"), "{admitted}");
    let missing = call("GET", "/store").explain(&gate).await;
    assert_eq!((&missing["verdict"], &missing["code"]), (&json!("refused"), &json!("CapabilityNotFound")), "{missing}");
    let handshake = call("GET", "/threads/1").header("Upgrade", "websocket").header("Connection", "Upgrade");
    let handshake = handshake.header("Sec-WebSocket-Version", "13");
    let upgraded = handshake.header("Sec-WebSocket-Key", "AAAAAAAAAAAAAAAAAAAAAA==").explain(&gate).await;
    assert!(upgraded.to_string().contains("the frames of the WebSocket pass without validation"), "{upgraded}");
    let refused = call("DELETE", "/threads/1").explain(&gate).await;
    assert_eq!(refused["code"], "MethodNotAllowed", "{refused}");
    assert_eq!(agent.call_count(), 0);
}

#[tokio::test]
async fn r30_an_api_that_cannot_be_served_is_refused_with_its_place() {
    let output = |api: &str| {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("agents.json"), "[]").unwrap();
        let config = format!(
            "listeners: [{{address: '127.0.0.1:0'}}]\nagents:\n  sources: [agents.json]\n  rules:\n    - agents: ['*']\n      api: {api}\n"
        );
        let file = folder.path().join("gatepost.yaml");
        std::fs::write(&file, config).unwrap();
        let output = gatepost_command().arg("check").arg("-c").arg(&file).output().unwrap();
        String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
    };
    for (api, problem) in [
        ("{}", "agents.rules[0].api.routes: there is none"),
        ("{preset: langgraph, base: 'ftp://a'}", "agents.rules[0].api.base: 'ftp://a' is not an http or https URL"),
        ("{preset: langgraph, base: 'https://a/?x'}", "has more than a host and a path"),
        (
            "{preset: langgraph, hosts: [a.example]}",
            "agents.rules[0].api.hosts[0]: 'a.example' needs a rule that names one agent",
        ),
        ("{preset: langgraph, session: {}}", "agents.rules[0].api.session: set one of header, query and path"),
        ("{preset: langgraph, session: {header: Set-Cookie2 x}}", "agents.rules[0].api.session.header"),
        ("{preset: langgraph, session: {header: Transfer-Encoding}}", "agents.rules[0].api.session.header"),
        ("{preset: langgraph, session: {header: Authorization}}", "agents.rules[0].api.session.header"),
        ("{preset: langgraph, session: {path: other}}", "agents.rules[0].api.session.path: no route has {other}"),
        ("{preset: langgraph, rewrite: [url]}", "agents.rules[0].api.rewrite[0]: 'url' does not begin with a slash"),
        ("{routes: [{methods: [GET], path: /a/../b}]}", "agents.rules[0].api.routes[0].path: '/a/../b' has a segment"),
        ("{routes: [{methods: [GET], path: /a//b}]}", "agents.rules[0].api.routes[0].path: '/a//b' has a segment"),
        ("{preset: langgraph, max_rewrite: 1B}", "agents.rules[0].api.max_rewrite"),
        ("{preset: other}", "other"),
    ] {
        let output = output(api);
        assert!(output.contains(problem), "{api}: {output}");
    }
}

#[tokio::test]
async fn r5_a_body_that_does_not_begin_holds_no_slot_of_the_agent() {
    let agent = Agent::echo().await;
    let rules = "agents:\n  sources: [agents.json]\n  rules:\n    - agents: [planner]\n      max_concurrency: 1\n      api: \
                 {routes: [{methods: [GET, POST], path: /**}]}\n";
    let gate = gateway().agent("planner", &agent).section(rules).start().await;
    let mut silent = Vec::new();
    for _ in 0..3 {
        let mut stream = TcpStream::connect(gate.address()).await.unwrap();
        let key = gate.key("team-a");
        let head = format!(
            "POST /agents/planner/api/threads HTTP/1.1\r\nHost: gate\r\nX-API-Key: {key}\r\nContent-Length: 5\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        silent.push(stream);
    }
    tokio::time::sleep(Duration::from_millis(300)).await;
    for _ in 0..3 {
        send(keyed(&gate, "GET", "/agents/planner/api/threads")).await.expect_ok();
    }
    silent[0].write_all(b"{\"a\"}").await.unwrap();
    assert_eq!(read_response(&mut silent[0]).await.unwrap().status, 200);
}

#[tokio::test]
async fn r69_the_header_that_names_a_session_reaches_the_agent_and_comes_back() {
    let agent = Agent::scripted(|request| {
        let session = request.header("x-conversation").unwrap_or("none").to_owned();
        vec![write(format!("HTTP/1.1 200 OK\r\nX-Conversation: {session}\r\nContent-Length: 0\r\n\r\n"))]
    })
    .await;
    let gate = start(&agent, "{routes: [{methods: [GET], path: /**}], session: {header: X-Conversation}}").await;
    let answer = send(keyed(&gate, "GET", "/agents/planner/api/").header("X-Conversation", "c1")).await;
    assert_eq!((answer.status, answer.header("x-conversation")), (200, Some("c1")));
}

#[tokio::test]
async fn r20_a_large_document_is_rewritten_as_a_small_one_is() {
    let agent = Agent::scripted(|request| {
        let url = format!("http://{}/a", request.header("host").unwrap());
        json_response(&json!({"items": vec![json!({"url": url}); 5_000]}))
    })
    .await;
    let gate = start(&agent, "{routes: [{methods: [GET], path: /**}], rewrite: ['/items/*/url']}").await;
    let answer = send(keyed(&gate, "GET", "/agents/planner/api/list")).await.expect_ok();
    let url = json!(gate.url("/agents/planner/api/a"));
    assert!(answer["items"].as_array().unwrap().iter().all(|item| item["url"] == url));
}
