//! The OpenAPI document of an agent's own API as allow-list and contract: what passes, what is refused and where it is
//! wrong, and what becomes of documents that change, are missing, or cannot be used.

use crate::{
    explain::Call,
    support::{
        agent::{Agent, Step, changeable_agent, http_response, json_response},
        eventually,
        gateway::{Gateway, GatewayBuilder, gatepost_command, gateway, send},
        gateway_response::GatewayResponse,
    },
};
use serde_json::{Value, json};

/// The document of an API with threads.
fn threads_document() -> Value {
    json!({
        "openapi": "3.1.0",
        "info": {"title": "Threads", "version": "1"},
        "paths": {
            "/threads": {
                "get": {"parameters": [
                    {"name": "limit", "in": "query", "required": true, "schema": {"type": "integer", "maximum": 100}},
                    {"name": "tag", "in": "query", "schema": {"type": "array", "items": {"enum": ["a", "b"]}}},
                    {"name": "ids", "in": "query", "explode": false, "schema": {"type": "array", "items": {"type": "integer"}}},
                    {"name": "filter", "in": "query", "content": {"application/json": {"schema": {"type": "object", "required": ["a"]}}}},
                    {"name": "X-Team", "in": "header", "schema": {"type": "string", "minLength": 2}},
                ]},
                "post": {"requestBody": {"required": true, "content": {
                    "application/json": {"schema": {"$ref": "#/components/schemas/Thread"}},
                    "application/octet-stream": {},
                }}},
            },
            "/threads/{thread_id}": {
                "parameters": [{"name": "thread_id", "in": "path", "required": true, "schema": {"type": "string", "pattern": "^t[0-9]+$"}}],
                "get": {},
                "delete": {},
            },
            "/threads/search": {"post": {"requestBody": {"content": {"application/*+json": {"schema": true}, "application/json": {"schema": {"type": "object"}}}}}},
            "/files/{name}.json": {"get": {}},
        },
        "components": {"schemas": {
            "Thread": {"type": "object", "required": ["title"], "additionalProperties": false, "properties": {
                "title": {"type": "string"},
                "parts": {"type": "array", "items": {"$ref": "#/components/schemas/Part"}},
            }},
            "Part": {"type": "object", "properties": {"kind": {"const": "text"}, "parts": {"type": "array", "items": {"$ref": "#/components/schemas/Part"}}}},
        }},
    })
}

fn builder(agent: &Agent, api: &str) -> GatewayBuilder {
    let rules = format!("agents:\n  sources: [agents.json]\n  rules:\n    - agents: [planner]\n      api: {api}\n");
    gateway().agent("planner", agent).section(&rules)
}

/// Starts a gateway whose agent has this document in a file.
async fn start(agent: &Agent, document: &str, settings: &str) -> Gateway {
    let builder = builder(agent, &format!("{{openapi: openapi.json{settings}}}"));
    std::fs::write(builder.folder().join("openapi.json"), document).unwrap();
    builder.start().await
}

fn keyed(gate: &Gateway, method: &str, path: &str) -> reqwest::RequestBuilder {
    gate.request(method, &format!("/agents/planner/api{path}")).header("X-API-Key", gate.key("team-a"))
}

/// The pointers of the violations in a refusal.
fn pointers(answer: &GatewayResponse) -> Vec<String> {
    answer.expect_fault(400, "InvalidInput");
    let details = answer.json()["error"]["details"].clone();
    let violations = details.as_array().unwrap_or_else(|| panic!("no violations: {}", answer.text())).clone();
    violations.iter().map(|violation| violation["pointer"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn r30_r32_operations_of_the_document_pass_and_everything_else_is_refused_as_unlisted_routes_are() {
    let agent = Agent::echo().await;
    let gate = start(&agent, &threads_document().to_string(), "").await;
    for (method, path, body) in [
        ("GET", "/threads?limit=5&tag=a&tag=b&ids=1,2&filter=%7B%22a%22%3A1%7D&other=1", None),
        ("HEAD", "/threads?limit=5", None),
        ("GET", "/threads/t1", None),
        ("DELETE", "/threads/t1", None),
        ("POST", "/threads", Some("{\"title\": \"x\", \"parts\": [{\"kind\": \"text\", \"parts\": []}]}")),
        ("POST", "/threads/search", Some("{\"any\": 1}")),
        ("POST", "/threads/search", None),
        ("GET", "/files/a.b.json", None),
    ] {
        let request = keyed(&gate, method, path);
        let request = body
            .map_or(request.try_clone().unwrap(), |body| request.header("Content-Type", "application/json").body(body));
        let answer = send(request).await;
        assert_eq!(answer.status, 200, "{method} {path}: {}", answer.text());
    }
    let passed = agent.call_count();
    for (method, path, status, code) in [
        ("GET", "/store", 404, "CapabilityNotFound"),
        ("GET", "/threads/t1/runs", 404, "CapabilityNotFound"),
        ("GET", "/files/a.xml", 404, "CapabilityNotFound"),
        ("PUT", "/threads", 405, "MethodNotAllowed"),
        ("PUT", "/threads/search", 405, "MethodNotAllowed"),
        // A path with the method: `/threads/{thread_id}`, whose pattern it does not match.
        ("GET", "/threads/search", 400, "InvalidInput"),
        ("GET", "/threads/..", 400, "InvalidInput"),
    ] {
        let answer = send(keyed(&gate, method, path)).await;
        // The client resolves dots itself.
        if path.ends_with("..") {
            continue;
        }
        answer.expect_fault(status, code);
        if status == 405 {
            assert!(answer.header("allow").is_some());
        }
    }
    assert_eq!(agent.call_count(), passed);
    let operations: Vec<Value> = gate.access_log(passed).await.iter().map(|entry| entry["operation"].clone()).collect();
    assert!(
        operations.contains(&json!("/threads/{thread_id}")) && operations.contains(&json!("/files/{name}.json")),
        "{operations:?}"
    );
}

#[tokio::test]
async fn r32_parameters_are_checked_against_their_schemas_and_refused_with_their_pointers() {
    let agent = Agent::echo().await;
    let gate = start(&agent, &threads_document().to_string(), "").await;
    for (path, expected) in [
        ("/threads", "/query"),
        ("/threads?limit=many", "/query/limit"),
        ("/threads?limit=101", "/query/limit"),
        ("/threads?limit=1&limit=2", "/query/limit"),
        ("/threads?limit=1&tag=c", "/query/tag/0"),
        ("/threads?limit=1&ids=1,x", "/query/ids/1"),
        ("/threads?limit=1&filter=%7B%7D", "/query/filter"),
        ("/threads?limit=1&filter=nonsense", "/query/filter"),
        ("/threads/other", "/path/thread_id"),
        ("/threads/t%20", "/path/thread_id"),
    ] {
        let answer = send(keyed(&gate, "GET", path)).await;
        assert_eq!(pointers(&answer), [expected], "{path}");
    }
    let answer = send(keyed(&gate, "GET", "/threads?limit=1").header("X-Team", "x")).await;
    assert_eq!(pointers(&answer), ["/header/X-Team"]);
    send(keyed(&gate, "GET", "/threads?limit=%ff")).await.expect_fault(400, "InvalidInput");
    assert_eq!(agent.call_count(), 0);
}

#[tokio::test]
async fn r32_bodies_are_checked_by_media_type_and_schema() {
    let agent = Agent::echo().await;
    let gate = start(&agent, &threads_document().to_string(), ", max_checked_body: 1KiB, max_body_size: 1MiB").await;
    let post = |path: &str, media: &str, body: Vec<u8>| {
        send(keyed(&gate, "POST", path).header("Content-Type", media).body(body))
    };
    for (body, expected) in [
        ("{}", ""),
        ("{\"title\": 1}", "/title"),
        ("{\"title\": \"x\", \"parts\": [{}, {\"parts\": [{\"kind\": \"other\"}]}]}", "/parts/1/parts/0/kind"),
        ("{\"title\": \"x\",}", ""),
        ("{\"title\": \"x\", \"title\": \"y\"}", ""),
    ] {
        let answer = post("/threads", "application/json", body.into()).await;
        assert_eq!(pointers(&answer), [expected], "{body}");
    }
    for (media, status) in [
        ("text/plain", 415),
        ("application/xml", 415),
        ("application/json; charset=latin1", 415),
        ("application/problem+json", 415),
    ] {
        post("/threads", media, b"{}".to_vec()).await.expect_fault(status, "UnsupportedMediaType");
    }
    let large = format!("{{\"title\": \"{}\"}}", "x".repeat(2_000));
    post("/threads", "application/json", large.into()).await.expect_fault(413, "PayloadTooLarge");
    let packed =
        keyed(&gate, "POST", "/threads").header("Content-Type", "application/json").header("Content-Encoding", "gzip");
    send(packed.body("x")).await.expect_fault(415, "UnsupportedMediaType");
    send(keyed(&gate, "POST", "/threads")).await.expect_fault(400, "InvalidInput");
    send(keyed(&gate, "DELETE", "/threads/t1").body("x")).await.expect_fault(415, "UnsupportedMediaType");
    assert_eq!(agent.call_count(), 0);
    // What is not JSON passes unread, up to the limit of bodies.
    post("/threads", "application/octet-stream", vec![0; 100_000]).await.expect_ok();
    post("/threads", "application/octet-stream", vec![0; 2 << 20]).await.expect_fault(413, "PayloadTooLarge");
    post("/threads/search", "application/vnd.x+json", b"[1]".to_vec()).await.expect_fault(415, "UnsupportedMediaType");
    assert_eq!(agent.requests().iter().filter(|request| request.body.len() == 100_000).count(), 1);
}

#[tokio::test]
async fn r30_the_operators_routes_come_first_and_keep_their_meaning_and_the_preset_comes_last() {
    let agent = Agent::echo().await;
    let settings = ", preset: langgraph, routes: [{methods: [POST], path: /threads, callers: ['key:team-a']}, {methods: [DELETE], path: '/threads/{id}', callers: ['key:other']}]";
    let gate = start(&agent, &threads_document().to_string(), settings).await;
    // The route checks no body, and the document would.
    send(keyed(&gate, "POST", "/threads").body("anything")).await.expect_ok();
    send(keyed(&gate, "DELETE", "/threads/t1")).await.expect_fault(403, "PermissionDenied");
    assert_eq!(pointers(&send(keyed(&gate, "GET", "/threads/x")).await), ["/path/thread_id"]);
    send(keyed(&gate, "GET", "/info")).await.expect_ok();
    let refused = send(keyed(&gate, "PUT", "/info")).await;
    refused.expect_fault(405, "MethodNotAllowed");
}

#[tokio::test]
async fn a_changed_file_is_in_force_and_an_unusable_one_leaves_the_last_one() {
    let agent = Agent::echo().await;
    let gate = start(&agent, &threads_document().to_string(), "").await;
    send(keyed(&gate, "GET", "/threads/t1")).await.expect_ok();
    gate.write_file("openapi.json", "{\"openapi\": \"3.1.0\", \"paths\": {\"/new\": {\"get\": {}}, ");
    eventually("the problem is logged", async || gate.stderr().contains("OpenAPI document not usable")).await;
    send(keyed(&gate, "GET", "/threads/t1")).await.expect_ok();
    gate.write_file("openapi.json", "openapi: 3.0.3\npaths:\n  /new:\n    get: {}\n");
    eventually("the new document is in force", async || send(keyed(&gate, "GET", "/new")).await.status == 200).await;
    send(keyed(&gate, "GET", "/threads/t1")).await.expect_fault(404, "CapabilityNotFound");
}

#[tokio::test]
async fn a_document_at_a_url_is_fetched_by_interval_and_requests_get_503_until_it_is_known() {
    let agent = Agent::echo().await;
    let (server, answer) = changeable_agent(http_response("500 Internal Server Error", "text/plain", "starting")).await;
    let api = format!(
        "{{openapi: '{}openapi.json', openapi_interval: 1s, routes: [{{methods: [GET], path: /ok}}]}}",
        server.url()
    );
    let gate = builder(&agent, &api).start().await;
    let unknown = send(keyed(&gate, "GET", "/threads/t1")).await;
    unknown.expect_fault(503, "AgentUnavailable");
    assert!(unknown.text().contains("OpenAPI") && unknown.header("retry-after").is_some(), "{}", unknown.text());
    send(keyed(&gate, "GET", "/ok")).await.expect_ok();
    *answer.lock().unwrap() = json_response(&threads_document());
    eventually("the document is known", async || send(keyed(&gate, "GET", "/threads/t1")).await.status == 200).await;
    // What is no document leaves the last one in force.
    *answer.lock().unwrap() = json_response(&json!({"swagger": "2.0", "paths": {}}));
    eventually("the problem is logged", async || gate.stderr().contains("not OpenAPI 3.0 or 3.1")).await;
    send(keyed(&gate, "GET", "/threads/t1")).await.expect_ok();
    *answer.lock().unwrap() = json_response(&json!({"openapi": "3.0.0", "paths": {"/new": {"get": {}}}}));
    eventually("the new document is in force", async || send(keyed(&gate, "GET", "/new")).await.status == 200).await;
}

#[tokio::test]
async fn a_document_that_did_not_change_is_not_sent_again() {
    let agent = Agent::echo().await;
    let document = json!({"openapi": "3.0.0", "paths": {"/new": {"get": {}}}}).to_string();
    let server = Agent::scripted(move |request| match request.header("if-none-match") {
        Some("\"v1\"") => http_response("304 Not Modified", "application/json", ""),
        _ => vec![crate::support::agent::write(format!(
            "HTTP/1.1 200 OK\r\nETag: \"v1\"\r\nContent-Length: {}\r\n\r\n{document}",
            document.len()
        ))],
    })
    .await;
    let gate = builder(&agent, &format!("{{openapi: '{}', openapi_interval: 1s}}", server.url())).start().await;
    eventually("the document is asked for again", async || {
        server.requests().iter().filter(|request| request.header("if-none-match") == Some("\"v1\"")).count() >= 2
    })
    .await;
    send(keyed(&gate, "GET", "/new")).await.expect_ok();
}

#[tokio::test]
async fn r127_an_operation_that_cannot_be_checked_takes_no_other_with_it() {
    let agent = Agent::echo().await;
    let body = |pattern: &str| json!({"requestBody": {"content": {"application/json": {"schema": {"type": "string", "pattern": pattern}}}}});
    let document = json!({"openapi": "3.1.0", "paths": {
        "/good": {"post": body("^a")}, "/password": {"post": body("^(?=.*[A-Z]"), "get": {}},
    }});
    let server = Agent::with_steps(json_response(&document)).await;
    let gate = builder(&agent, &format!("{{openapi: '{}'}}", server.url())).start().await;
    eventually("the document is known", async || {
        send(keyed(&gate, "POST", "/good").json(&json!("a"))).await.status == 200
    })
    .await;
    send(keyed(&gate, "POST", "/password").json(&json!("A"))).await.expect_fault(503, "AgentUnavailable");
    send(keyed(&gate, "GET", "/password")).await.expect_ok();
    assert!(gate.stderr().contains("paths./password: post: requestBody"), "{}", gate.stderr());
}

#[tokio::test]
async fn r32_a_contract_that_is_not_enforced_refuses_nothing() {
    let agent = Agent::echo().await;
    for (mode, reports) in [("report", true), ("off", false)] {
        let builder = builder(&agent, "{openapi: openapi.json}").section(&format!("contract: {{input: {mode}}}\n"));
        std::fs::write(builder.folder().join("openapi.json"), threads_document().to_string()).unwrap();
        let gate = builder.start().await;
        send(keyed(&gate, "GET", "/threads?limit=many")).await.expect_ok();
        send(keyed(&gate, "POST", "/threads").header("Content-Type", "application/json").body("{}")).await.expect_ok();
        send(keyed(&gate, "GET", "/store")).await.expect_fault(404, "CapabilityNotFound");
        assert_eq!(gate.stderr().contains("contract violated at"), reports, "{mode}: {}", gate.stderr());
    }
}

#[tokio::test]
async fn a_dry_run_checks_a_request_by_the_document() {
    let agent = Agent::echo().await;
    let gate = start(&agent, &threads_document().to_string(), "").await;
    let call = |method: &'static str, path: &str, body: &str| {
        let call = Call { method, ..Call::post(&format!("/agents/planner/api{path}"), body) };
        call.header("Content-Type", "application/json")
    };
    let admitted = call("POST", "/threads", "{\"title\": \"x\"}").explain(&gate).await;
    assert_eq!(admitted["verdict"], "admitted", "{admitted}");
    assert!(admitted.to_string().contains("as the agent's OpenAPI document has it"), "{admitted}");
    for (method, path, body, code) in [
        ("POST", "/threads", "{\"title\": 1}", "InvalidInput"),
        ("GET", "/threads?limit=many", "", "InvalidInput"),
        ("GET", "/store", "", "CapabilityNotFound"),
        ("PUT", "/threads", "", "MethodNotAllowed"),
    ] {
        let refused = call(method, path, body).explain(&gate).await;
        assert_eq!((&refused["verdict"], &refused["code"]), (&json!("refused"), &json!(code)), "{refused}");
    }
    assert_eq!(agent.call_count(), 0);
}

#[tokio::test]
async fn a_parameter_of_the_documents_path_names_the_session() {
    let script = |name: &'static str| move |_: &crate::support::agent::ReceivedRequest| json_response(&json!(name));
    let (one, two) = (Agent::scripted(script("one")).await, Agent::scripted(script("two")).await);
    let rules = format!(
        "agents:\n  sources: [agents.json]\n  rules:\n    - agents: [planner]\n      settings: {{additional_endpoints: ['{}']}}\n      api: {{openapi: openapi.json, session: {{path: thread_id}}}}\n",
        two.url()
    );
    let builder = gateway().agent("planner", &one).section(&rules);
    std::fs::write(builder.folder().join("openapi.json"), threads_document().to_string()).unwrap();
    let gate = builder.start().await;
    let mut answers = std::collections::BTreeSet::new();
    for thread in 0..16 {
        let path = format!("/threads/t{thread}");
        let first: Value = send(keyed(&gate, "GET", &path)).await.expect_ok();
        assert_eq!(send(keyed(&gate, "GET", &path)).await.expect_ok(), first, "{thread}");
        answers.insert(first.to_string());
    }
    assert_eq!(answers.len(), 2, "both endpoints serve sessions");
}

#[tokio::test]
async fn an_openapi_document_that_cannot_be_used_is_refused_with_its_place() {
    let check = |document: Option<&str>, api: &str| {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("agents.json"), "[]").unwrap();
        if let Some(document) = document {
            std::fs::write(folder.path().join("openapi.json"), document).unwrap();
        }
        let config = format!(
            "listeners: [{{address: '127.0.0.1:0'}}]\nagents:\n  sources: [agents.json]\n  rules:\n    - agents: ['*']\n      api: {{{api}}}\n"
        );
        let file = folder.path().join("gatepost.yaml");
        std::fs::write(&file, config).unwrap();
        let output = gatepost_command().arg("check").arg("-c").arg(&file).output().unwrap();
        (output.status.success(), String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned())
    };
    let with_paths = |paths: Value| json!({"openapi": "3.0.3", "paths": paths}).to_string();
    let many: serde_json::Map<String, Value> =
        (0..1_001).map(|number| (format!("/p{number}"), json!({"get": {}}))).collect();
    let body = |schema: Value| {
        with_paths(json!({"/a": {"post": {"requestBody": {"content": {"application/json": {"schema": schema}}}}}}))
    };
    for (document, problem) in [
        (None, "cannot be read"),
        (Some(String::new()), "the document is empty"),
        (Some("{".to_owned()), "the document is not JSON"),
        (Some("a: [".to_owned()), "the document is not YAML"),
        (Some("openapi: 2.0.0".to_owned()), "the document is of OpenAPI 2.0.0 (3.0 and 3.1 can be checked)"),
        (Some("{\"openapi\": \"3.1.0\"}".to_owned()), "the document has no paths"),
        (Some(with_paths(json!({}))), "the document has no operations"),
        (Some(with_paths(Value::Object(many))), "the document has more than 1000 operations"),
        (Some(with_paths(json!({"a": {"get": {}}}))), "paths.a: does not begin with a slash"),
        (
            Some(with_paths(json!({"/{a}": {"get": {}}, "/{b}": {"get": {}}}))),
            "paths./{b}: matches the same requests as /{a}",
        ),
        (
            Some(with_paths(json!({"/a": {"$ref": "https://example.com/paths.json"}}))),
            "the reference 'https://example.com/paths.json' leaves the document",
        ),
        (
            Some(body(json!({"$ref": "other.json#/A"}))),
            "paths./a: post: requestBody: application/json: the reference 'other.json#/A' leaves the document",
        ),
        (Some(body(json!({"$ref": "#/components/schemas/A"}))), "the reference '#/components/schemas/A' has no target"),
        (Some(body(json!({"type": "strange"}))), "paths./a: post: requestBody: application/json"),
        (Some(body(json!({"type": "string", "pattern": "(?=a"}))), "paths./a: post: requestBody: application/json"),
        (
            Some(with_paths(json!({"/a": {"get": {"parameters": [{"name": "b", "in": "path"}]}}}))),
            "paths./a: get: parameters: b: is not in the path",
        ),
        (
            Some(with_paths(json!({"/a": {"get": {"parameters": [{"name": "b", "in": "body"}]}}}))),
            "is neither in path, query, header nor cookie",
        ),
    ] {
        let (is_valid, output) = check(document.as_deref(), "openapi: openapi.json");
        let place = "agents.rules[0].api.openapi: ";
        assert!(!is_valid && output.contains(place) && output.contains(problem), "{problem}: {output}");
    }
    for (api, problem) in [
        ("openapi: 'ftp://a/b'", "'ftp' is not a scheme of documents"),
        ("openapi: 'http://example.com/openapi.json'", "agents.rules[0].api.openapi: url"),
        ("openapi: openapi.json, openapi_interval: 0s", "agents.rules[0].api.openapi_interval"),
        ("openapi: openapi.json, max_checked_body: 1B", "agents.rules[0].api.max_checked_body"),
    ] {
        let (is_valid, output) = check(Some(&with_paths(json!({"/a": {"get": {}}}))), api);
        assert!(!is_valid && output.contains(problem), "{problem}: {output}");
    }
    let (is_valid, output) = check(Some(&threads_document().to_string()), "openapi: openapi.json");
    assert!(is_valid, "{output}");
    // Nothing is fetched by a check.
    let (is_valid, output) = check(None, "openapi: 'https://127.0.0.1:9/openapi.json'");
    assert!(is_valid, "{output}");
}

#[tokio::test]
async fn a_body_whose_check_takes_long_delays_no_other_request() {
    let agent = Agent::echo().await;
    // Each item is compared with each other one.
    let schema = json!({"type": "array", "uniqueItems": true, "items": {"type": "object"}});
    let document = json!({"openapi": "3.1.0", "paths": {
        "/slow": {"post": {"requestBody": {"content": {"application/json": {"schema": schema}}}}},
        "/fast": {"get": {}},
    }});
    let gate = start(&agent, &document.to_string(), ", max_checked_body: 8MiB").await;
    let items: Vec<Value> = (0..3_000).map(|number| json!({"n": number})).collect();
    let slow = send(keyed(&gate, "POST", "/slow").json(&items));
    let fast = async {
        for _ in 0..5 {
            send(keyed(&gate, "GET", "/fast")).await.expect_ok();
        }
    };
    let (slow, ()) = tokio::join!(slow, fast);
    assert!(matches!(slow.status, 200 | 413), "{}", slow.text());
}

#[tokio::test]
async fn r40_faults_of_the_agent_pass_behind_a_document_too() {
    let agent = Agent::with_steps(vec![Step::Close]).await;
    let gate = start(&agent, &threads_document().to_string(), "").await;
    send(keyed(&gate, "GET", "/threads/t1")).await.expect_fault(502, "AgentError");
}
