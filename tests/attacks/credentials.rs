//! Documents whose writer wants the gateway's credentials, or a server that is another owner's.

use crate::{
    directory::{PUBLISHERS, publish, send_as},
    support::{
        agent::{Agent, http_response, json_response, write},
        eventually,
        gateway::{gatepost_command, gateway},
        site::connection_counter,
    },
};
use serde_json::json;
use std::sync::atomic::Ordering;

#[tokio::test]
async fn r41_a_second_document_is_no_way_around_a_grant_and_to_no_credential() {
    let (secret, own) = (Agent::echo().await, Agent::echo().await);
    let agents = "agents:\n  sources: [agents.json]\n  defaults:\n    credential: {value: env:AGENT_TOKEN, \
                  destinations: {origins: ['http://127.0.0.1:*']}}\n";
    let gate = gateway()
        .section(PUBLISHERS)
        .agent("secret", &secret)
        .section(agents)
        .env("AGENT_TOKEN", "gateway-secret")
        .access("access:\n  grants:\n    - {callers: ['*'], agents: ['evil*']}\n")
        .start()
        .await;
    gate.invoke("secret", &json!({})).await.expect_fault(404, "NotFound");
    let port = secret.address.port();
    for endpoint in [
        secret.url(),
        format!("http://127.0.0.1:{port}/another/path?x=1"),
        format!("ws://127.0.0.1:{port}/"),
        format!("agent+ws://127.0.0.1:{port}/"),
    ] {
        let document = json!({"id": "evil", "name": "B", "endpoint": endpoint});
        let error = publish(&gate, "team-a", &document).await.expect_fault(400, "InvalidInput");
        assert!(error.to_string().contains("another owner's agent"), "{endpoint}: {error}");
    }
    // A change of an own document is checked like a new one.
    assert_eq!(publish(&gate, "team-a", &own.document("evil-own")).await.status, 201);
    let patch = json!({"endpoint": secret.url()});
    send_as(&gate, "team-a", ("PATCH", "/agents/evil-own"), Some(&patch)).await.expect_fault(400, "InvalidInput");
    assert_eq!(secret.call_count(), 0);
    // Another name of the same machine is the same server.
    for host in ["localhost", "[::1]", "127.0.0.2", "x.localhost"] {
        let document = json!({"id": "evil-alias", "name": "B", "endpoint": format!("http://{host}:{port}/")});
        let error = publish(&gate, "team-a", &document).await.expect_fault(400, "InvalidInput");
        assert!(error.to_string().contains("another owner's agent"), "{host}: {error}");
    }
    let zone = json!({"id": "evil-zone", "name": "B", "endpoint": "http://[fe80::1%25eth0]:80/"});
    publish(&gate, "team-a", &zone).await.expect_fault(400, "InvalidInput");
}

#[tokio::test]
async fn r41_servers_of_a_source_that_is_queried_on_demand_are_not_a_publishers_before_the_first_call() {
    let (secret, own) = (Agent::echo().await, Agent::echo().await);
    let remote = Agent::with_steps(json_response(&json!({"id": "far", "name": "F", "endpoint": secret.url()}))).await;
    let source = format!("{{kind: aidip, url: '{}', name: reg, on_demand: true", remote.url());
    let agents = |endpoints: &str| {
        format!(
            "agents:\n  sources: [{source}{endpoints}}}]\n  defaults:\n    credential: {{value: env:AGENT_TOKEN, \
             destinations: {{origins: ['http://127.0.0.1:*']}}}}\n"
        )
    };
    let listed = agents(&format!(", endpoints: ['http://{}']", secret.address));
    let gate = gateway().section(PUBLISHERS).section(&listed).env("AGENT_TOKEN", "gateway-secret").start().await;
    let port = secret.address.port();
    for endpoint in [secret.url(), format!("ws://localhost:{port}/x")] {
        let document = json!({"id": "evil", "name": "B", "endpoint": endpoint});
        let error = publish(&gate, "team-a", &document).await.expect_fault(400, "InvalidInput");
        assert!(error.to_string().contains("another owner's agent"), "{error}");
    }
    assert_eq!(publish(&gate, "team-a", &own.document("own")).await.status, 201);
    gate.invoke("far", &json!({})).await.expect_ok();
    assert_eq!(secret.requests()[0].header("authorization"), Some("Bearer gateway-secret"));
}

#[tokio::test]
async fn r41_of_two_publishers_that_name_one_server_at_once_one_is_refused() {
    let gate = gateway().section(PUBLISHERS).caller("team-b", &[]).start().await;
    for round in 0..5 {
        let endpoint = format!("http://127.0.0.1:{}/", 20_000 + round);
        let document = |id: &str| json!({"id": format!("{id}-{round}"), "name": "B", "endpoint": endpoint});
        let (first, second) = (document("z"), document("b"));
        let (first, second) = tokio::join!(publish(&gate, "team-a", &first), publish(&gate, "team-b", &second));
        let mut statuses = [first.status, second.status];
        statuses.sort_unstable();
        assert_eq!(statuses, [201, 400], "round {round}");
    }
}

#[tokio::test]
async fn r52_a_publishers_name_reaches_no_broker_and_no_socket_by_the_operators_map() {
    let (broker, connections) = connection_counter().await;
    let map = format!(
        "resolver:\n  map:\n    'agent://worker.example.com/plan': 'mqtt://{}/control/agents/x/input'\n    \
         'agent://socket.example.com/plan': 'agent+unix:///run/worker.sock#/'\n",
        broker.address
    );
    let gate = gateway().section(PUBLISHERS).section(&map).start().await;
    for name in ["worker", "socket"] {
        let document = json!({"id": name, "name": "B", "endpoint": format!("agent://{name}.example.com/plan")});
        assert_eq!(publish(&gate, "team-a", &document).await.status, 201);
        gate.invoke(name, &json!({})).await.expect_fault(502, "AgentError");
    }
    assert_eq!(connections.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn r41_servers_of_additional_endpoints_and_of_the_operators_names_have_an_owner() {
    let (own, second, named) = (Agent::echo().await, Agent::echo().await, Agent::echo().await);
    let api = Agent::echo().await;
    let agents = format!(
        "agents:\n  sources: [agents.json]\n  rules:\n    - agents: [multi]\n      settings: \
         {{additional_endpoints: ['{}']}}\n      api: {{preset: langgraph, base: '{}'}}\n",
        second.url(),
        api.url()
    );
    let map = format!("resolver:\n  map: {{'agent://planner.example.com': '{}'}}\n", named.url());
    let gate = gateway().section(PUBLISHERS).agent("multi", &own).section(&agents).section(&map).start().await;
    for server in [&second, &named, &api] {
        let document = json!({"id": "evil", "name": "E", "endpoint": server.url()});
        let error = publish(&gate, "team-a", &document).await.expect_fault(400, "InvalidInput");
        assert!(error.to_string().contains("another owner's agent"), "{error}");
    }
}

#[tokio::test]
async fn r41_a_remote_registry_gets_no_credential_no_broker_login_and_no_server_of_the_operators_agents() {
    let (secret, own) = (Agent::echo().await, Agent::echo().await);
    let (broker, connections) = connection_counter().await;
    let document = |id: &str, endpoint: String| json!({"id": id, "name": id, "endpoint": endpoint, "authentication": {"type": "api_key"}});
    let listed = json!([
        document("own", own.url()),
        document("secret-too", secret.url()),
        document("broker", format!("mqtt://{}/control/agents/x/input", broker.address)),
        document("room", "agent+matrix://@agent:127.0.0.1/!room:127.0.0.1".to_owned()),
        document("runtime", "agent+local://worker".to_owned()),
        document("private", "https://10.0.0.1/".to_owned()),
    ]);
    let registry = Agent::with_steps(json_response(&listed)).await;
    let agents = format!(
        "agents:\n  sources: [agents.json, {{kind: aidip, url: '{}', name: reg}}]\n  defaults:\n    \
         credential: {{value: env:AGENT_TOKEN, destinations: {{sources: [files]}}}}\n    \
         mqtt: {{username: env:AGENT_TOKEN, password: env:AGENT_TOKEN, destinations: {{sources: [files]}}}}\n",
        registry.url()
    );
    let gate = gateway().agent("secret", &secret).section(&agents).env("AGENT_TOKEN", "gateway-secret").start().await;
    gate.invoke("secret", &json!({})).await.expect_ok();
    assert_eq!(secret.requests()[0].header("authorization"), Some("Bearer gateway-secret"));
    gate.invoke("own", &json!({})).await.expect_ok();
    assert_eq!(own.requests()[0].header("authorization"), None);
    for id in ["secret-too", "broker", "room", "runtime"] {
        gate.invoke(id, &json!({})).await.expect_fault(404, "NotFound");
    }
    // The address is refused when the gateway connects, because a name may lead to another address at any time.
    gate.invoke("private", &json!({})).await.expect_fault(503, "AgentUnavailable");
    assert_eq!((connections.load(Ordering::SeqCst), secret.call_count()), (0, 1));
    let page = gate.admin_page("/agents").await.json();
    assert_eq!(page["rejected"].as_array().unwrap().len(), 4, "{page}");
}

#[tokio::test]
async fn r131_urls_of_services_are_shown_without_their_secrets() {
    const BEARER: &str = "bearerS3cr3tValue98765";
    let server = Agent::scripted(|request| {
        let path = request.head.split(' ').nth(1).unwrap();
        match path.split('?').next().unwrap() {
            "/moved" => {
                let location = format!("http://127.0.0.1:9/cb/{BEARER}/x");
                vec![write(format!("HTTP/1.1 302 Found\r\nLocation: {location}\r\nContent-Length: 0\r\n\r\n"))]
            }
            "/text" => http_response("200 OK", "application/json", &format!("no list: {BEARER}")),
            "/keys" => http_response("200 OK", "application/json", "{\"keys\": []}"),
            _ => http_response("404 Not Found", "text/plain", "no"),
        }
    })
    .await;
    let at = |path: &str| format!("http://{}{path}?sig=S1gnature#Fr4gment", server.address);
    let source = |name: &str, url: String| {
        format!(
            "    - {{kind: aidip, name: {name}, url: \"{url}\", credential: {{bearer: env:BEARER}}, required: false}}\n"
        )
    };
    let (moved, text, gone) = (source("moved", at("/moved")), source("text", at("/text")), source("gone", at("/gone")));
    let api = format!("{{base: \"http://{}/\", openapi: \"{}\"}}", server.address, at("/openapi"));
    let agents = format!(
        "agents:\n  sources:\n    - agents.json\n{moved}{text}{gone}  rules: [{{agents: [echo], api: {api}}}]\n"
    );
    let gate = gateway().agent("echo", &server).section(&agents).env("BEARER", BEARER).start().await;
    for path in ["/moved", "/text", "/gone", "/openapi"] {
        let is_asked = |request: &crate::support::agent::ReceivedRequest| request.head.contains(path);
        eventually("every document is asked for", async || server.requests().iter().any(is_asked)).await;
    }
    eventually("every failure is logged", async || {
        let log = gate.stderr();
        log.contains("OpenAPI document not usable") && log.matches("poll failed").count() >= 3
    })
    .await;
    let doctor = gatepost_command()
        .current_dir(gate.folder())
        .args(["doctor", "--timeout", "5"])
        .env("BEARER", BEARER)
        .output()
        .unwrap();
    let mut places = vec![("log", gate.stderr()), ("doctor", String::from_utf8(doctor.stdout).unwrap())];
    for page in ["/readyz", "/sources", "/console", "/console/sources"] {
        places.push((page, gate.admin_page(page).await.text().to_owned()));
    }
    for (place, text) in places {
        assert!(text.len() > 100, "{place}: {text}");
        for secret in ["S1gnature", "Fr4gment", BEARER] {
            assert!(!text.contains(secret), "{place} shows {secret}: {text}");
        }
    }
}
