//! The directory end to end: an agent is published and called a moment later; callers see what they may call and
//! nothing else; what was acknowledged survives.

use crate::support::{
    agent::Agent,
    eventually,
    gateway::{Build, Gate, gateway, send},
    postgres::Postgres,
    reply::Answer,
};
use rustix::process::Signal;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

const PUBLISHERS: &str = "registry:
  publishers:
    - callers: ['key:team-a']
    - callers: ['key:team-b']
      ids: ['b-*']
";

/// A gateway at which team-a and team-b may publish, and `reader` may only call.
fn registry() -> Build {
    gateway().section(PUBLISHERS).caller("team-b", &[]).caller("reader", &[])
}

/// A request with the key of a caller.
async fn ask(gate: &Gate, caller: &str, (method, path): (&str, &str), body: Option<&Value>) -> Answer {
    let request = gate.request(method, path).header("x-api-key", gate.key(caller));
    send(match body {
        Some(body) => request.json(body),
        None => request,
    })
    .await
}

async fn publish(gate: &Gate, caller: &str, document: &Value) -> Answer {
    ask(gate, caller, ("POST", "/agents"), Some(document)).await
}

async fn get(gate: &Gate, caller: &str, path: &str) -> Answer {
    ask(gate, caller, ("GET", path), None).await
}

fn ids(list: &Value) -> Vec<String> {
    list.as_array().unwrap().iter().map(|agent| agent["id"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn r17_r20_an_agent_is_published_called_changed_and_removed() {
    let echo = Agent::echo().await;
    let gate = registry().start().await;
    let document = echo.document("echo");
    let created = publish(&gate, "team-a", &document).await;
    assert_eq!(created.status, 201, "{}", created.text());
    assert!(created.header("location").is_some_and(|location| location.ends_with("/agents/echo")));
    assert_eq!(created.json(), document, "the stored document is answered");
    assert_eq!(gate.invoke("echo", &json!({"a": 1})).await.status, 200, "callable as soon as it is acknowledged");

    let again = publish(&gate, "team-a", &document).await;
    assert_eq!(again.status, 200, "{}", again.text());
    let read = get(&gate, "team-a", "/agents/echo").await;
    assert_eq!(read.is_ok(), document, "its publisher reads it as it was sent");
    let tag = read.header("etag").unwrap().to_owned();

    let patched = gate.request("PATCH", "/agents/echo").header("x-api-key", gate.key("team-a"));
    let patched = patched.header("content-type", "application/merge-patch+json").header("if-match", &tag);
    let patched = send(patched.body(r#"{"version":"2.0.0","tags":["new"]}"#)).await;
    assert_eq!(patched.is_ok()["version"], "2.0.0");
    let late = gate.request("PUT", "/agents/echo").header("x-api-key", gate.key("team-a")).header("if-match", &tag);
    send(late.json(&document)).await.is_fault(412, "PreconditionFailed");

    let history = get(&gate, "team-a", "/agents/echo/history").await.is_ok();
    assert!(history.to_string().contains("key:team-a"), "{history}");
    assert_eq!(ask(&gate, "team-a", ("DELETE", "/agents/echo"), None).await.status, 204);
    gate.invoke("echo", &json!({})).await.is_fault(404, "NotFound");
    get(&gate, "team-a", "/agents/echo").await.is_fault(404, "NotFound");
    ask(&gate, "team-a", ("DELETE", "/agents/echo"), None).await.is_fault(404, "NotFound");
}

#[tokio::test]
async fn r17_an_agent_without_an_id_is_given_one() {
    let echo = Agent::echo().await;
    let gate = registry().start().await;
    let mut document = echo.document("x");
    document.as_object_mut().unwrap().remove("id");
    let created = publish(&gate, "team-a", &document).await;
    assert_eq!(created.status, 201, "{}", created.text());
    let id = created.json()["id"].as_str().unwrap().to_owned();
    assert!(created.header("location").is_some_and(|location| location.ends_with(&format!("/agents/{id}"))));
    assert_eq!(gate.invoke(&id, &json!({})).await.status, 200);
}

#[tokio::test]
async fn r17_r18_r32_a_document_that_is_wrong_is_refused_with_every_reason() {
    let gate = registry().start().await;
    let wrong = json!({"id": "a b", "endpoint": "ftp://x", "tags": "t", "status": "asleep", "version": 3.1});
    let error = publish(&gate, "team-a", &wrong).await.is_fault(400, "InvalidInput");
    let told = error["details"].to_string();
    for field in ["/id", "/endpoint", "/tags", "/status", "/version"] {
        assert!(told.contains(field), "{field}: {told}");
    }
    for broken in ["", "{", "[]", "null", "3", "\"x\"", "{\"id\":\"a\",\"id\":\"b\"}"] {
        let request = gate.post("/agents").header("content-type", "application/json").body(broken);
        send(request).await.is_fault(400, "InvalidInput");
    }
    let text = gate.post("/agents").header("content-type", "text/plain").body("{}");
    send(text).await.is_fault(415, "UnsupportedMediaType");
    let large = format!("{{\"id\":\"a\",\"x\":\"{}\"}}", "x".repeat(2 << 20));
    let large = gate.post("/agents").header("content-type", "application/json").body(large);
    send(large).await.is_fault(413, "PayloadTooLarge");
    assert_eq!(ids(&get(&gate, "team-a", "/agents").await.is_ok()), Vec::<String>::new());
}

#[tokio::test]
async fn r18_endpoints_are_vetted_when_they_are_published() {
    let gate = registry().section("network:\n  allow: []\n").start().await;
    let own = format!("http://{}/agents/x/invoke", gate.address());
    for endpoint in [
        "http://169.254.169.254/latest/meta-data",
        "https://127.0.0.1/x",
        "https://[::1]/x",
        "https://0.0.0.0/x",
        "agent+unix:///run/docker.sock#/containers",
        "file:///etc/passwd",
        &own,
    ] {
        let document = json!({"id": "x", "name": "X", "endpoint": endpoint});
        let error = publish(&gate, "team-a", &document).await.is_fault(400, "InvalidInput");
        assert!(error.to_string().contains("endpoint"), "{endpoint}: {error}");
    }
}

#[tokio::test]
async fn r18_only_publishers_publish_and_each_changes_only_its_own() {
    let echo = Agent::echo().await;
    let gate = registry().agent("from-file", &echo).start().await;
    let bare = send(gate.request("POST", "/agents").json(&echo.document("x"))).await;
    bare.is_fault(401, "Unauthorized");
    publish(&gate, "reader", &echo.document("x")).await.is_fault(403, "PermissionDenied");
    publish(&gate, "team-b", &echo.document("x")).await.is_fault(403, "PermissionDenied");
    assert_eq!(publish(&gate, "team-b", &echo.document("b-1")).await.status, 201);
    publish(&gate, "team-a", &echo.document("b-1")).await.is_fault(409, "Conflict");
    for method in ["PUT", "PATCH", "DELETE"] {
        let answer = ask(&gate, "team-a", (method, "/agents/b-1"), Some(&echo.document("b-1"))).await;
        answer.is_fault(403, "PermissionDenied");
    }
    publish(&gate, "team-a", &echo.document("from-file")).await.is_fault(409, "Conflict");
    assert_eq!(gate.invoke("b-1", &json!({})).await.status, 200);
}

#[tokio::test]
async fn without_a_registry_nothing_can_be_published() {
    let echo = Agent::echo().await;
    let gate = gateway().agent("echo", &echo).start().await;
    let refused = publish(&gate, "team-a", &echo.document("x")).await;
    refused.is_fault(405, "MethodNotAllowed");
    assert_eq!(ids(&get(&gate, "team-a", "/agents").await.is_ok()), ["echo"]);
}

#[tokio::test]
async fn r3_every_face_shows_a_caller_what_it_may_call_and_nothing_else() {
    let echo = Agent::echo().await;
    let access = "access:\n  grants:\n    - {callers: ['key:team-a'], agents: ['*']}\n    - {callers: ['key:reader'], agents: [open]}\n";
    let gate = gateway().caller("reader", &[]).access(access);
    let gate = gate.agent("open", &echo).agent("secret", &echo).start().await;
    for path in [
        "/agents",
        "/agents?q=secret",
        "/agents?capabilities=",
        "/.well-known/agentframework/v1/agents",
        "/.agent-framework/v1/agents",
        "/.well-known/agents.json",
        "/.well-known/agent.json",
        "/.well-known/agent-card.json",
        "/v1/card",
        "/openapi.json",
    ] {
        let answer = get(&gate, "reader", path).await;
        assert_eq!(answer.status, 200, "{path}: {}", answer.text());
        answer.hides(&["secret"]);
        send(gate.request("GET", path)).await.is_fault(401, "Unauthorized");
    }
    for (path, body) in [
        ("/agents/search", json!({"query": "secret", "top": 5})),
        ("/agents/search", json!({"filters": {}})),
        ("/agents/resolve", json!({"intent": "secret"})),
    ] {
        let answer = ask(&gate, "reader", ("POST", path), Some(&body)).await;
        assert_eq!(answer.status, 200, "{path}: {}", answer.text());
        assert!(!answer.text().contains("\"secret\""), "{path}: {}", answer.text());
    }
    for path in [
        "",
        "/history",
        "/agent.json",
        "/.well-known/agent.json",
        "/agent-card.json",
        "/.well-known/agent-card.json",
        "/openapi.json",
    ] {
        get(&gate, "reader", &format!("/agents/secret{path}")).await.is_fault(404, "NotFound");
    }
    get(&gate, "reader", "/.well-known/agentframework/v1/agents/secret").await.is_fault(404, "NotFound");
    assert_eq!(ids(&get(&gate, "team-a", "/agents").await.is_ok()), ["open", "secret"]);
}

#[tokio::test]
async fn r2_r3_what_is_public_is_found_without_a_credential_and_still_not_called() {
    let echo = Agent::echo().await;
    let gate = gateway().section("directory:\n  public: ['open*']\n");
    let gate = gate.agent("open-1", &echo).agent("closed", &echo).start().await;
    let list = send(gate.request("GET", "/agents")).await.is_ok();
    assert_eq!(ids(&list), ["open-1"]);
    list[0]["endpoint"].as_str().filter(|at| at.ends_with("/agents/open-1/invoke")).expect("the gateway's address");
    send(gate.request("GET", "/agents/closed")).await.is_fault(404, "NotFound");
    send(gate.request("POST", "/agents/open-1/invoke").json(&json!({}))).await.is_fault(401, "Unauthorized");
    let write = send(gate.request("POST", "/agents").json(&echo.document("open-2"))).await;
    write.is_fault(401, "Unauthorized");
    assert!(write.header("www-authenticate").is_some());
    let wrong = gate.request("GET", "/agents").header("x-api-key", "gp_000000000000_wrong");
    send(wrong).await.is_fault(401, "Unauthorized");
}

#[tokio::test]
async fn r4_an_agents_own_address_is_not_told() {
    let echo = Agent::echo().await;
    let gate = gateway().agent("echo", &echo).start().await;
    for path in [
        "/agents",
        "/agents/echo",
        "/agents/echo/agent.json",
        "/agents/echo/agent-card.json",
        "/agents/echo/openapi.json",
        "/.well-known/agentframework/v1/agents/echo?include=endpoints",
    ] {
        let answer = get(&gate, "team-a", path).await;
        assert_eq!(answer.status, 200, "{path}");
        answer.hides(&[echo.url().trim_start_matches("http://").trim_end_matches('/')]);
    }
}

#[tokio::test]
async fn r5_searches_have_a_rate_of_their_own() {
    let echo = Agent::echo().await;
    let gate = gateway().section("limits:\n  per_caller_search: 1/min burst 3\n").agent("echo", &echo).start().await;
    let search = async || ask(&gate, "team-a", ("POST", "/agents/search"), Some(&json!({"query": "echo"}))).await;
    for _ in 0..3 {
        search().await.is_ok();
    }
    let refused = search().await;
    refused.is_fault(429, "RateLimited");
    get(&gate, "team-a", "/agents?%71=echo").await.is_fault(429, "RateLimited");
    assert!(refused.header("retry-after").is_some());
    assert_eq!(gate.invoke("echo", &json!({})).await.status, 200, "calls go on");
    assert_eq!(get(&gate, "team-a", "/agents/echo").await.status, 200, "and so does reading one document");
}

#[tokio::test]
async fn r62_r149_documents_have_validators_and_are_not_sent_twice() {
    let echo = Agent::echo().await;
    let gate = gateway().agent("echo", &echo).start().await;
    for path in ["/agents", "/agents/echo", "/agents/echo/agent.json", "/.well-known/agents.json", "/openapi.json"] {
        let whole = get(&gate, "team-a", path).await;
        let tag = whole.header("etag").unwrap_or_else(|| panic!("{path}")).to_owned();
        assert!(tag.starts_with('"'), "{path}: {tag} is strong");
        assert!(whole.header("last-modified").is_some(), "{path}");
        assert!(whole.header("vary").is_some(), "{path}");
        let same = gate.request("GET", path).header("x-api-key", gate.key("team-a")).header("if-none-match", &tag);
        let same = send(same).await;
        assert_eq!((same.status, same.body.len(), same.header("etag")), (304, 0, Some(&*tag)), "{path}");
        let head = ask(&gate, "team-a", ("HEAD", path), None).await;
        assert_eq!((head.status, head.body.len()), (200, 0), "{path}");
        assert_eq!(head.header("content-length"), Some(&*whole.body.len().to_string()), "{path}");
    }
}

#[tokio::test]
async fn r8_requests_to_the_directory_are_logged_and_counted() {
    let echo = Agent::echo().await;
    let gate = gateway().agent("echo", &echo).start().await;
    get(&gate, "team-a", "/agents").await.is_ok();
    let line = gate.log(1).await.remove(0);
    assert_eq!((&line["operation"], &line["caller"]), (&json!("directory"), &json!("key:team-a")), "{line}");
    let page = gate.admin("/metrics").await.text();
    assert!(page.lines().any(|line| line.starts_with("gatepost_calls_total") && line.contains("directory")), "{page}");
}

/// Publishes until the gateway is killed in the middle of it; the ids that were acknowledged.
async fn publish_until_killed(gate: &mut Gate, agent: &Agent) -> Vec<String> {
    let (url, key) = (gate.url("/agents"), gate.key("team-a").to_owned());
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let lanes: Vec<_> = (0..4)
        .map(|lane| {
            let (url, key, client) = (url.clone(), key.clone(), client.clone());
            let documents: Vec<Value> = (0..10_000).map(|n| agent.document(&format!("a-{lane}-{n}"))).collect();
            tokio::spawn(async move {
                let mut acknowledged = Vec::new();
                for document in documents {
                    let sent = client.post(&url).header("x-api-key", &key).json(&document).send().await;
                    match sent.map(|answer| answer.status().as_u16()) {
                        Ok(201) => acknowledged.push(document["id"].as_str().unwrap().to_owned()),
                        Ok(status) => panic!("{status}"),
                        Err(_) => break,
                    }
                }
                acknowledged
            })
        })
        .collect();
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    gate.signal(Signal::KILL);
    gate.ended().await;
    let mut all = Vec::new();
    for lane in lanes {
        all.extend(lane.await.unwrap());
    }
    all
}

#[tokio::test]
async fn r17_what_was_acknowledged_survives_a_kill_in_both_stores() {
    let (echo, mut server) = (Agent::echo().await, Postgres::start().await);
    let database = format!("  database: {}\n", server.database().await);
    for place in ["", &database] {
        let mut gate = gateway().section(&format!("{PUBLISHERS}{place}")).start().await;
        let acknowledged = publish_until_killed(&mut gate, &echo).await;
        assert!(acknowledged.len() > 20, "{} is too few to show anything", acknowledged.len());
        let keys = gate.keys.clone();
        let (folder, _child) = gate.into_folder();
        let gate = tokio::task::spawn_blocking(move || Gate::spawn(folder, keys, &[], &[])).await.unwrap();
        for id in acknowledged {
            assert_eq!(gate.invoke(&id, &json!({})).await.status, 200, "{id} was acknowledged and is lost");
        }
    }
}

#[tokio::test]
async fn r21_r24_search_finds_what_was_just_published() {
    let echo = Agent::echo().await;
    let gate = registry().start().await;
    let mut document = echo.document("brief");
    document["description"] = json!("Condenses long contracts into one page.");
    document["capabilities"] = json!(["summarization"]);
    document["supported_languages"] = json!(["zh", "en"]);
    assert_eq!(publish(&gate, "team-a", &document).await.status, 201);
    assert_eq!(publish(&gate, "team-a", &echo.document("other")).await.status, 201);
    eventually("the search finds it", async || {
        let body = json!({"filters": {"capabilities": ["summarization"], "supported_languages": ["zh"]}, "top": 5});
        ids(&ask(&gate, "team-a", ("POST", "/agents/search"), Some(&body)).await.is_ok()) == ["brief"]
    })
    .await;
    let list = get(&gate, "team-a", "/agents?capabilities=summarization&language=en").await.is_ok();
    assert_eq!(ids(&list), ["brief"]);
    let wanted = json!({"query": "shorten legal documents"});
    let ranked = ask(&gate, "team-a", ("POST", "/agents/search"), Some(&wanted)).await.is_ok();
    assert_eq!(ranked[0]["id"], "brief", "{ranked}");
    assert!(ranked[0]["score"].as_f64().is_some_and(|score| (0.0..=1.0).contains(&score)), "{ranked}");
    for wrong in [json!({"top": 0}), json!({"top": "many"}), json!({"filters": []}), json!({"query": 3}), json!([])] {
        let answer = ask(&gate, "team-a", ("POST", "/agents/search"), Some(&wrong)).await;
        answer.is_fault(400, "InvalidInput");
    }
}

#[tokio::test]
async fn r16_gateways_that_share_a_database_see_each_others_changes_within_a_second() {
    let (echo, mut database) = (Agent::echo().await, Postgres::start().await);
    let address = database.database().await;
    let start = async || {
        let build = gateway().caller("team-b", &[]);
        build.section(&format!("{PUBLISHERS}  database: {address}\n")).start().await
    };
    let (one, other) = (start().await, start().await);
    assert_eq!(publish(&one, "team-a", &echo.document("shared")).await.status, 201);
    let began = Instant::now();
    eventually("the other gateway serves it", async || other.invoke("shared", &json!({})).await.status == 200).await;
    assert!(began.elapsed() < Duration::from_secs(1), "{:?}", began.elapsed());
    publish(&other, "team-b", &echo.document("shared")).await.is_fault(403, "PermissionDenied");
    assert_eq!(ask(&other, "team-a", ("DELETE", "/agents/shared"), None).await.status, 204);
    let began = Instant::now();
    eventually("it is gone", async || one.invoke("shared", &json!({})).await.status == 404).await;
    assert!(began.elapsed() < Duration::from_secs(1), "{:?}", began.elapsed());
}

#[tokio::test]
async fn r16_r20_a_gateway_is_a_registry_for_others_copied_or_asked_for_one_agent_at_a_time() {
    let echo = Agent::echo().await;
    let source = registry().section("directory:\n  endpoints: direct\n").start().await;
    assert_eq!(publish(&source, "team-a", &echo.document("far")).await.status, 201);
    for lazy in [false, true] {
        let from = format!(
            "agents:\n  from:\n    - kind: aidip\n      url: {}\n      poll: 1s\n      lazy: {lazy}\n      \
             credential: {{header: {{name: X-API-Key, value: 'env:SOURCE_KEY'}}}}\n",
            source.url("/agents")
        );
        let gate = gateway().section(&from).env("SOURCE_KEY", source.key("team-a")).start().await;
        assert_eq!(gate.invoke("far", &json!({"a": 1})).await.status, 200, "lazy: {lazy}");
        let document = get(&gate, "team-a", "/agents/far").await.is_ok();
        assert_eq!(document["endpoint"], gate.url("/agents/far/invoke"), "lazy: {lazy}");
        gate.invoke("nobody", &json!({})).await.is_fault(404, "NotFound");
        send(gate.request("POST", "/agents/far/invoke").json(&json!({}))).await.is_fault(401, "Unauthorized");
        let list = ids(&get(&gate, "team-a", "/agents").await.is_ok());
        assert_eq!(list.len(), usize::from(!lazy), "{list:?}");
    }
}

#[tokio::test]
async fn r16_an_id_that_nobody_may_call_makes_no_registry_be_asked() {
    let book = Agent::doing(crate::support::agent::answer("404 Not Found", "application/json", "{}")).await;
    let from = format!("agents:\n  from:\n    - {{kind: aidip, url: '{}', lazy: true}}\n", book.url());
    let gate = gateway().section(&from).start().await;
    for _ in 0..5 {
        send(gate.request("POST", "/agents/x/invoke").json(&json!({}))).await.is_fault(401, "Unauthorized");
    }
    assert_eq!(book.calls(), 0, "whoever shows nothing makes the gateway ask nobody");
    for _ in 0..5 {
        gate.invoke("x", &json!({})).await.is_fault(404, "NotFound");
    }
    assert_eq!(book.calls(), 1, "and an id that is not there is asked for once");
}
