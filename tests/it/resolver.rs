//! Resolution of `agent://` names against a site that publishes documents over TLS: the agents it describes are found
//! and called; hostile documents are rejected.

mod calls_by_name;
mod descriptor_signatures;
mod resolve_and_call_commands;
mod versions;

use crate::support::{
    certs::CertificateAuthority,
    closed_port::ClosedPort,
    eventually,
    gateway::{Gateway, GatewayBuilder, gateway, send},
    gateway_response::GatewayResponse,
    site::{Page, Site, connection_counter},
};
use serde_json::{Value, json};
use std::{sync::atomic::Ordering, time::Duration};

/// A site, and a gateway that trusts its certificate and may reach loopback.
async fn start(section: &str) -> (Site, Gateway) {
    let authority = CertificateAuthority::new("Sites");
    let site = Site::start(&authority).await;
    (site, gateway_trusting(&authority).section(section).start().await)
}

fn gateway_trusting(authority: &CertificateAuthority) -> GatewayBuilder {
    let build = gateway();
    std::fs::write(build.folder().join("sites.pem"), authority.pem()).unwrap();
    build
        .section("network:\n  allowed_addresses: [127.0.0.0/8]\n  ca: sites.pem\n")
        .section("agents:\n  sources: [agents.json]\n  defaults: {tls: {ca: sites.pem}}\n")
        .section("limits: {per_caller_search: null}\n")
}

async fn resolve(gate: &Gateway, body: &Value) -> GatewayResponse {
    send(gate.post("/resolve").json(body)).await
}

async fn resolve_uri(gate: &Gateway, uri: &str) -> GatewayResponse {
    resolve(gate, &json!({"uri": uri})).await
}

/// The steps of the resolution, as `step outcome`.
fn steps(answer: &Value) -> Vec<String> {
    let steps = answer["how"].as_array().unwrap().iter();
    steps.map(|step| format!("{} {}", step["step"].as_str().unwrap(), step["outcome"].as_str().unwrap())).collect()
}

#[tokio::test]
async fn r53_r60_a_name_is_resolved_by_agents_json_with_its_steps() {
    let (site, gate) = start("").await;
    site.json(
        "/.well-known/agents.json",
        json!({"agents": {"planner": "/planner/agent.json", "a/b": site.url("/ab.json")}}),
    );
    site.json(
        "/planner/agent.json",
        json!({"name": "Planner", "version": "1.2.0", "transport": {"endpoint": "/agent/planner"}}),
    );
    site.json("/ab.json", json!({"name": "AB", "url": site.url("/agent/ab?k=v")}));
    let found = resolve_uri(&gate, &site.agent_uri("/planner/gen-iti?city=Rio#part")).await.expect_ok();
    assert_eq!(found["endpoint"], site.url("/agent/planner/gen-iti?city=Rio"));
    assert_eq!(found["descriptor"], site.url("/planner/agent.json"));
    assert_eq!((&found["transport"], &found["version"]), (&json!("https"), &json!("1.2.0")));
    assert_eq!((&found["input"], &found["fragment"]), (&json!({"city": "Rio"}), &json!("part")));
    assert_eq!(steps(&found), ["agents.json found", "agent.json found"]);
    let found = resolve_uri(&gate, &site.agent_uri("/a/b/c?x=1")).await.expect_ok();
    assert_eq!(found["endpoint"], site.url("/agent/ab/c?k=v&x=1"), "the longest name in the map wins");
}

#[tokio::test]
async fn r57_r58_descriptors_at_the_path_and_of_the_whole_domain_are_found() {
    let (site, gate) = start("").await;
    site.json(
        "/tools/translator/agent.json",
        json!({
            "name": "T", "endpoint": "https://localhost:1/own/",
            "capabilities": [{"name": "speak", "endpoint": site.url("/agent/speak")}],
        }),
    );
    let found = resolve_uri(&gate, &site.agent_uri("/tools/translator/translate")).await.expect_ok();
    assert_eq!(found["endpoint"], "https://localhost:1/own/translate");
    assert_eq!(steps(&found), ["agents.json absent", "agent.json absent", "agent.json found"]);
    let found = resolve_uri(&gate, &site.agent_uri("/tools/translator/speak")).await.expect_ok();
    assert_eq!(found["endpoint"], site.url("/agent/speak"), "a capability may have an endpoint of its own");
    site.json("/.well-known/agent.json", json!({"name": "Only", "url": "/agent"}));
    assert_eq!(resolve_uri(&gate, &site.agent_uri("/do/it")).await.expect_ok()["endpoint"], site.url("/agent/do/it"));
    assert_eq!(resolve_uri(&gate, &site.agent_uri("")).await.expect_ok()["endpoint"], site.url("/agent"));
}

#[tokio::test]
async fn r59_an_a2a_card_gives_its_interface_and_the_path_is_the_operation() {
    let (site, gate) = start("").await;
    site.json("/.well-known/agent-card.json", json!({
        "name": "Card", "protocolVersion": "0.3.0", "skills": [], "url": site.url("/agent/grpc"), "preferredTransport": "GRPC",
        "additionalInterfaces": [{"transport": "JSONRPC", "url": site.url("/agent/a2a")}],
    }));
    let found = resolve_uri(&gate, &site.agent_uri("/summarise")).await.expect_ok();
    assert_eq!((&found["endpoint"], &found["operation"]), (&json!(site.url("/agent/a2a")), &json!("summarise")));
}

#[tokio::test]
async fn r48_r63_did_web_resolves_to_the_agent_service() {
    let (site, gate) = start("").await;
    let did = format!("did:web:localhost%3A{}:agent:researcher", site.address.port());
    let document = |id: &str, endpoint: Value| {
        json!({"id": id, "service": [
            {"id": "#site", "type": "LinkedDomains", "serviceEndpoint": "https://elsewhere.example"},
            {"id": format!("{id}#agent"), "type": ["Something", "AgentService"], "serviceEndpoint": endpoint},
        ]})
    };
    let name = format!("agent://{did}/get-article?doi=10.1");
    site.json("/agent/researcher/did.json", document(&did, json!({"uri": site.url("/agent/r")})));
    let found = resolve_uri(&gate, &name).await.expect_ok();
    assert_eq!(found["endpoint"], site.url("/agent/r/get-article?doi=10.1"));
    assert_eq!(steps(&found), ["did found"]);
    for (wrong, why) in [
        (document("did:web:elsewhere.example", json!(site.url("/agent/r"))), "the document of another DID"),
        (document(&did, json!("agent+unix:///run/docker.sock")), "a socket of the gateway's machine"),
        (json!({"id": did, "service": "agent"}), "no list"),
    ] {
        let (site, gate) = start("").await;
        let text =
            wrong.to_string().replace(&did, &format!("did:web:localhost%3A{}:agent:researcher", site.address.port()));
        site.put("/agent/researcher/did.json", Page::new(200, text));
        let name = format!("agent://did:web:localhost%3A{}:agent:researcher/get", site.address.port());
        let found = resolve_uri(&gate, &name).await.expect_ok();
        assert_eq!(found["endpoint"], site.url("/agent/researcher/get"), "{why}: {found}");
        assert_eq!(steps(&found)[0], "did unusable", "{why}");
    }
    resolve_uri(&gate, "agent://did:key:z6Mk/x").await.expect_fault(404, "NotFound");
}

#[tokio::test]
async fn r63_webfinger_is_queried_with_the_whole_name() {
    let (site, gate) = start("").await;
    let target = format!("/.well-known/webfinger?resource=agent%3A%2F%2Flocalhost%3A{}%2Fbot", site.address.port());
    let link = json!({"rel": "urn:example:agent", "href": site.url("/agent/finger")});
    site.json(&target, json!({"subject": site.agent_uri("/bot"), "links": [{"rel": "avatar", "href": "x"}, link]}));
    let found = resolve_uri(&gate, &site.agent_uri("/bot?a=b")).await.expect_ok();
    assert_eq!(found["endpoint"], site.url("/agent/finger?a=b"), "{found}");
    assert_eq!(steps(&found).last().unwrap(), "webfinger found");
}

#[tokio::test]
async fn r51_r54_an_explicit_transport_is_used_and_an_unpublished_name_falls_back_to_https() {
    let (site, gate) = start("resolver: {allowed_addresses: [127.0.0.0/8], https_fallback: true}\n").await;
    for (name, endpoint, transport) in [
        ("agent+https://a.example/x?y=1", "https://a.example/x?y=1", "https"),
        ("agent+wss://a.example/x", "wss://a.example/x", "wss"),
        ("agent+local://echo", "agent+local://echo", "local"),
        ("agent+unix:///run/a.sock#/x", "agent+unix:///run/a.sock#/x", "unix"),
    ] {
        let found = resolve_uri(&gate, name).await.expect_ok();
        assert_eq!((&found["endpoint"], &found["transport"]), (&json!(endpoint), &json!(transport)));
        assert_eq!(steps(&found), ["explicit found"]);
    }
    resolve_uri(&gate, "agent+carrier-pigeon://a.example").await.expect_fault(400, "InvalidInput");
    let found = resolve_uri(&gate, &site.agent_uri("/un/published?x=1")).await.expect_ok();
    assert_eq!(found["endpoint"], site.url("/un/published?x=1"));
    assert_eq!(steps(&found).last().unwrap(), "https found");
    let (site, gate) = start("resolver: {allowed_addresses: [127.0.0.0/8], https_fallback: false}\n").await;
    resolve_uri(&gate, &site.agent_uri("/un/published")).await.expect_fault(404, "NotFound");
}

#[tokio::test]
async fn r131_secrets_in_urls_of_the_operators_map_reach_no_caller() {
    let map = "resolver:\n  allowed_addresses: [127.0.0.0/8]\n  map:\n    agent://f.example: https://10.9.8.7/f?code=map-secret-1\n";
    let (_site, gate) = start(map).await;
    let answer = resolve_uri(&gate, "agent://f.example?city=Rio").await;
    let found = answer.expect_ok();
    assert_eq!(found["endpoint"], "https://10.9.8.7/f?code=[redacted]&city=[redacted]");
    assert!(!answer.text().contains("map-secret-1"), "{}", answer.text());
}

#[tokio::test]
async fn r63_the_operators_map_comes_first_and_its_longest_path_wins() {
    let map = "resolver:\n  allowed_addresses: [127.0.0.0/8]\n  map:\n    agent://a.example: https://10.9.8.7/a\n    agent://a.example/b/c: agent+unix:///run/c.sock\n    agent://did:web:b.example: https://b.example/x\n";
    let (_site, gate) = start(map).await;
    for (name, endpoint) in [
        ("agent://a.example/x?q=1", "https://10.9.8.7/a/x?q=1"),
        ("agent://a.example/b/c", "agent+unix:///run/c.sock"),
        ("agent://a.example/b/cd", "https://10.9.8.7/a/b/cd"),
        ("agent://did:web:b.example/y", "https://b.example/x/y"),
    ] {
        let found = resolve_uri(&gate, name).await.expect_ok();
        assert_eq!((&found["endpoint"], steps(&found)), (&json!(endpoint), vec!["map found".to_owned()]), "{name}");
    }
}

#[tokio::test]
async fn hostile_and_invalid_documents_are_rejected() {
    let (trap, connections) = connection_counter().await;
    let loopback_url = format!("https://127.0.0.1:{}/agent.json", trap.address.port());
    let deep = format!("{}1{}", "[".repeat(5_000), "]".repeat(5_000));
    let cases: Vec<(&str, Page)> = vec![
        ("no JSON", Page::new(200, "<html>")),
        ("cut", Page::new(200, "{\"name\":\"x\",\"url\":")),
        ("two names", Page::new(200, r#"{"url":"https://a.example","url":"https://b.example"}"#)),
        ("an array", Page::new(200, "[1]")),
        ("nested", Page::new(200, deep)),
        ("huge", Page::new(200, vec![b' '; 2 << 20])),
        ("compressed", Page::new(200, "x").header("content-encoding", "gzip")),
        ("wrong types", Page::json(&json!({"name": 1, "url": {"x": 1}, "transport": "https", "endpoint": []}))),
        ("a socket", Page::json(&json!({"endpoint": "agent+unix:///run/docker.sock"}))),
        ("a local agent", Page::json(&json!({"endpoint": "agent+local://shell"}))),
        ("a file", Page::json(&json!({"endpoint": "file:///etc/passwd"}))),
        ("a user", Page::json(&json!({"endpoint": "https://user:pass@a.example/"}))),
        ("a fragment", Page::json(&json!({"endpoint": "https://a.example/#x"}))),
        ("itself", Page::default()),
        ("a redirect to itself", Page::default()),
        ("a redirect nowhere", Page::new(302, "").header("location", "http://[")),
    ];
    let (site, gate) = start("resolver: {allowed_addresses: [127.0.0.0/8], cache: {negative_ttl: 1s}}\n").await;
    for (index, (why, page)) in cases.into_iter().enumerate() {
        let name = site.agent_uri(&format!("/planner{index}"));
        let page = match why {
            "itself" => Page::json(&json!({"endpoint": name})),
            "a redirect to itself" => Page::new(302, "").header("location", &format!("/planner{index}/agent.json")),
            _ => page,
        };
        site.put(&format!("/planner{index}/agent.json"), page);
        let found = resolve_uri(&gate, &name).await.expect_ok();
        assert_eq!(found["endpoint"], site.url(&format!("/planner{index}")), "{why}: {found}");
        assert!(steps(&found).contains(&"agent.json unusable".to_owned()), "{why}: {found}");
    }
    for (index, address) in [
        "https://169.254.169.254/latest",
        "https://10.0.0.1/",
        "https://[fd00::1]/",
        "http://a.example/",
        "https://[::ffff:169.254.169.254]/",
    ]
    .into_iter()
    .enumerate()
    {
        site.json(&format!("/e{index}/agent.json"), json!({"name": "x", "endpoint": address}));
        site.put(&format!("/r{index}/agent.json"), Page::new(302, "").header("location", address));
        let endpoint = resolve_uri(&gate, &site.agent_uri(&format!("/e{index}"))).await;
        let redirect = resolve_uri(&gate, &site.agent_uri(&format!("/r{index}"))).await;
        for answer in [&endpoint, &redirect] {
            answer.expect_fault(503, "AgentUnavailable");
            answer.assert_hides(&["169.254", "10.0.0.1", "fd00", "refused", "may not be reached"]);
        }
    }
    // The address range that allows the site allows this listener too, which does not speak TLS.
    site.put("/t/agent.json", Page::new(307, "").header("location", &loopback_url));
    resolve_uri(&gate, &site.agent_uri("/t")).await.expect_fault(503, "AgentUnavailable");
    assert!(connections.load(Ordering::SeqCst) >= 1);
}

#[tokio::test]
async fn a_forbidden_address_gives_the_same_error_as_an_absent_host() {
    let authority = CertificateAuthority::new("Sites");
    let (trap, connections) = connection_counter().await;
    let gate = gateway_trusting(&authority)
        .section("resolver: {allowed_addresses: [127.0.0.0/8], resolution_timeout: 5s}\n")
        .start()
        .await;
    let strict = gateway().section("network:\n  allowed_addresses: []\n").section("resolver: {}\n").start().await;
    let closed = ClosedPort::new();
    let mut errors = std::collections::BTreeSet::new();
    let mut record = |answer: &GatewayResponse| {
        let mut error = answer.expect_fault(503, "AgentUnavailable");
        error.as_object_mut().unwrap().remove("request_id");
        errors.insert(error.to_string());
    };
    record(&resolve_uri(&gate, &format!("agent://localhost:{}/x", closed.address.port())).await);
    for name in ["169.254.169.254", "10.1.2.3", "192.168.0.1", "100.64.0.1", "[::1]", "[fd00::1]", "0.0.0.0"] {
        record(&resolve_uri(&strict, &format!("agent://{name}/x")).await);
    }
    record(&resolve_uri(&strict, &format!("agent://127.0.0.1:{}/x", trap.address.port())).await);
    record(&resolve_uri(&strict, &format!("agent://localhost:{}/x", strict.address().port())).await);
    assert_eq!(errors.len(), 1, "{errors:?}");
    assert_eq!(connections.load(Ordering::SeqCst), 0, "the gateway connected to a forbidden address");
}

#[tokio::test]
async fn r100_a_descriptor_without_published_keys_is_reported_as_not_verified() {
    let (site, gate) = start("").await;
    for (index, member) in ["signatures", "proof", "signature"].into_iter().enumerate() {
        let mut descriptor = json!({"name": "Signed", "url": "/agent"});
        descriptor[member] = json!([{"protected": "e30", "signature": "AA"}]);
        site.json(&format!("/s{index}/agent.json"), descriptor);
        let found = resolve_uri(&gate, &site.agent_uri(&format!("/s{index}"))).await.expect_ok();
        assert_eq!(found["signature"], "not verified", "{member}: {found}");
    }
    site.json("/plain/agent.json", json!({"name": "Plain", "url": "/agent"}));
    site.json("/empty/agent.json", json!({"name": "Empty", "url": "/agent", "signatures": [], "proof": null}));
    for path in ["/plain", "/empty"] {
        let found = resolve_uri(&gate, &site.agent_uri(path)).await.expect_ok();
        assert_eq!((&found["signature"], &found["signature_reason"]), (&Value::Null, &Value::Null), "{found}");
    }
}

#[tokio::test]
async fn r157_a_template_in_a_request_is_refused_as_a_template() {
    let (_site, gate) = start("").await;
    for (name, position) in [("agent://a.example/greet{?name}", 24), ("agent://{host}/x", 9)] {
        let answer = resolve_uri(&gate, name).await;
        answer.expect_fault(400, "InvalidInput");
        let expected = format!("at character {position}: the name is a URI template (RFC 6570)");
        assert!(answer.text().contains(&expected), "{}", answer.text());
    }
}

#[tokio::test]
async fn r95_a_name_that_leads_to_several_agents_is_ambiguous() {
    let (site, gate) = start("").await;
    site.json("/.well-known/agents.json", json!({"agents": {"planner": "/planner/agent.json", "writer": "/w.json"}}));
    site.json("/planner/agent.json", json!({"name": "Planner", "url": "/agent/planner"}));
    let answer = resolve_uri(&gate, &site.agent_uri("")).await;
    answer.expect_fault(422, "AmbiguousResponse");
    assert!(answer.text().contains("add one to its path: 'planner', 'writer'"), "{}", answer.text());
    assert_eq!(
        resolve_uri(&gate, &site.agent_uri("/planner")).await.expect_ok()["endpoint"],
        site.url("/agent/planner")
    );
    // A descriptor of the host itself decides.
    let (other, gate) = start("").await;
    other.json("/.well-known/agents.json", json!({"agents": {"a": "/a.json", "b": "/b.json"}}));
    other.json("/.well-known/agent.json", json!({"name": "Front", "url": "/agent/front"}));
    assert_eq!(resolve_uri(&gate, &other.agent_uri("")).await.expect_ok()["endpoint"], other.url("/agent/front"));
}

#[tokio::test]
async fn circular_and_endless_chains_of_names_are_refused() {
    let (site, gate) = start("").await;
    for index in 0..8 {
        site.json(
            &format!("/n{index}/agent.json"),
            json!({"name": "n", "endpoint": site.agent_uri(&format!("/n{}", index + 1))}),
        );
    }
    site.json("/a/agent.json", json!({"name": "a", "endpoint": site.agent_uri("/b")}));
    site.json("/b/agent.json", json!({"name": "b", "endpoint": site.agent_uri("/a")}));
    resolve_uri(&gate, &site.agent_uri("/a")).await.expect_fault(502, "AgentError");
    resolve_uri(&gate, &site.agent_uri("/n0")).await.expect_fault(502, "AgentError");
    // A chain of five names is allowed.
    let found = resolve_uri(&gate, &site.agent_uri("/n4")).await.expect_ok();
    assert_eq!(found["endpoint"], site.url("/n8"), "{found}");
}

#[tokio::test]
async fn r62_documents_are_cached_as_they_declare_and_fetched_once() {
    let (site, gate) = start("").await;
    let slow = Page::json(&json!({"agents": {"p": "/p.json"}})).header("cache-control", "max-age=300");
    site.put("/.well-known/agents.json", slow.delayed_by(Duration::from_millis(300)));
    let descriptor =
        |endpoint: &str| Page::json(&json!({"name": "p", "endpoint": endpoint})).header("cache-control", "no-cache");
    site.put("/p.json", descriptor("/agent/1").header("etag", "\"1\""));
    let name = site.agent_uri("/p");
    let requests = (0..20).map(|_| resolve_uri(&gate, &name));
    for answer in futures_util::future::join_all(requests).await {
        assert_eq!(answer.expect_ok()["endpoint"], site.url("/agent/1"));
    }
    assert_eq!(site.request_count("/.well-known/agents.json"), 1, "concurrent calls share one fetch");
    eventually("the document with no-cache is revalidated", async || {
        resolve_uri(&gate, &name).await.expect_ok();
        site.request_count("/p.json") >= 3
    })
    .await;
    site.put("/p.json", descriptor("/agent/2").header("etag", "\"2\""));
    eventually("the changed document is used", async || {
        resolve_uri(&gate, &name).await.expect_ok()["endpoint"] == site.url("/agent/2")
    })
    .await;
    assert_eq!(site.request_count("/.well-known/agents.json"), 1);
}

#[tokio::test]
async fn a_silent_domain_ends_with_the_resolution_timeout() {
    let authority = CertificateAuthority::new("Sites");
    let silent = crate::support::servers::RawAgent::start(|stream, _| async move {
        std::future::pending::<()>().await;
        drop(stream);
    })
    .await;
    let gate = gateway_trusting(&authority)
        .section("resolver: {allowed_addresses: [127.0.0.0/8], resolution_timeout: 300ms}\n")
        .start()
        .await;
    let answer = resolve_uri(&gate, &format!("agent://localhost:{}/x", silent.address.port())).await;
    assert!(matches!(answer.status, 503 | 504), "{}", answer.text());
}

#[tokio::test]
async fn r95_an_invalid_request_gets_the_reason() {
    let (_site, gate) = start("").await;
    for (body, reason) in [
        (json!({}), "uri"),
        (json!({"uri": 1}), "The request is not valid"),
        (json!({"uri": "http://a.example"}), "at character 1"),
        (json!({"uri": "agent://user@a.example"}), "userinfo"),
        (json!({"uri": "agent://a.example/../x"}), "at character 19"),
        (json!({"uri": "agent://a.example?x=%ff"}), "query"),
        (json!({"uri": "agent://a.example", "version": 1}), "The request is not valid"),
        (json!([]), "The request is not valid"),
    ] {
        let error = resolve(&gate, &body).await.expect_fault(400, "InvalidInput");
        assert!(error["message"].as_str().unwrap().contains(reason), "{body}: {error}");
    }
    send(gate.post("/resolve").header("content-type", "application/json").body("{"))
        .await
        .expect_fault(400, "InvalidInput");
    send(gate.request("GET", "/resolve").header("x-api-key", gate.key("team-a")))
        .await
        .expect_fault(405, "MethodNotAllowed");
    send(gate.request("POST", "/resolve").json(&json!({"uri": "agent://a"}))).await.expect_fault(401, "Unauthorized");
}

#[tokio::test]
async fn r2_anonymous_callers_cannot_resolve_names_even_where_agents_are_public() {
    let (trap, connections) = connection_counter().await;
    let map = "resolver:\n  allowed_addresses: [127.0.0.0/8]\n  map:\n    agent://inside.example: https://10.9.8.7/a\n";
    let gate = gateway().section("directory:\n  public_agents: ['*']\n").section(map).start().await;
    for name in ["agent://inside.example/x".to_owned(), format!("agent://127.0.0.1:{}/x", trap.address.port())] {
        let answer = send(gate.request("POST", "/resolve").json(&json!({ "uri": name }))).await;
        answer.expect_fault(401, "Unauthorized");
        answer.assert_hides(&["10.9.8.7"]);
    }
    assert_eq!(connections.load(Ordering::SeqCst), 0);
    send(gate.request("GET", "/agents")).await.expect_ok();
}

#[tokio::test]
async fn names_of_the_gateways_own_host_resolve_to_the_agents_that_the_caller_may_see() {
    let agent = json!({"id": "echo", "name": "Echo", "version": "2.1.0", "endpoint": "http://127.0.0.1:9/x",
        "supportedVersions": {"1.4.0": "/v1", "1.5.0": "http://elsewhere.example/"},
        "operations": [{"name": "say"}, {"name": "sing"}]});
    let hidden = json!({"id": "hidden", "name": "H", "endpoint": "http://127.0.0.1:9/x"});
    let inputs = json!({"type": "object", "properties": {"version": {"type": "string"}}});
    let plain = json!({"id": "plain", "name": "P", "version": "1.0.0", "endpoint": "http://127.0.0.1:9/x",
        "operations": [{"name": "say", "inputs": inputs}]});
    let gate = gateway()
        .document(agent)
        .document(hidden)
        .document(plain)
        .access("access:\n  grants:\n    - {callers: ['*'], agents: [echo, plain]}\n")
        .start()
        .await;
    let (host, base) = (gate.address().to_string(), gate.url(""));
    let found = resolve_uri(&gate, &format!("agent://{host}/echo/say?text=hi")).await.expect_ok();
    assert_eq!(found["endpoint"], format!("{base}/agents/echo/invoke/say?text=hi"));
    assert_eq!((&found["version"], steps(&found)), (&json!("2.1.0"), vec!["own found".to_owned()]));
    let found = resolve(&gate, &json!({"uri": format!("agent://{host}/agents/echo/invoke"), "version": "1.x"}))
        .await
        .expect_ok();
    assert_eq!(found["endpoint"], format!("{base}/agents/echo@1.4.0/invoke"));
    // The endpoint can be called as it is: it states the version once.
    for query in ["version=1.x", "text=hi&version=%5E1.0"] {
        let found = resolve_uri(&gate, &format!("agent://{host}/echo/say?{query}")).await.expect_ok();
        let rest = if query.contains("text") { "?text=hi" } else { "" };
        assert_eq!(found["endpoint"], format!("{base}/agents/echo@1.4.0/invoke/say{rest}"));
    }
    resolve(&gate, &json!({"uri": format!("agent://{host}/echo"), "version": "one"}))
        .await
        .expect_fault(400, "InvalidInput");
    let found = resolve_uri(&gate, &format!("agent://{host}/plain/say?version=draft")).await.expect_ok();
    assert_eq!(
        found["endpoint"],
        format!("{base}/agents/plain/invoke/say?version=draft"),
        "the schema declares `version` as input"
    );
    let names: Vec<String> = ["hidden", "unknown"].map(|id| format!("agent://{host}/{id}")).to_vec();
    let hidden = resolve_uri(&gate, &names[0]).await.expect_fault(404, "NotFound");
    let unknown = resolve_uri(&gate, &names[1]).await.expect_fault(404, "NotFound");
    assert_eq!(hidden["message"], unknown["message"]);
    resolve_uri(&gate, &format!("agent://{host}/echo/dance")).await.expect_fault(404, "CapabilityNotFound");
    resolve(&gate, &json!({"uri": format!("agent://{host}/echo"), "version": "9"}))
        .await
        .expect_fault(406, "NotAcceptable");
}
