//! Documents whose writer wants the gateway's credentials, or a server that is another owner's.

use crate::{
    directory::{PUBLISHERS, publish, send_as},
    support::{
        agent::{Agent, json_response},
        gateway::gateway,
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
    // Another name of the same machine is another server, and the credential is not for it.
    let document = json!({"id": "evil-alias", "name": "B", "endpoint": format!("http://localhost:{port}/")});
    assert_eq!(publish(&gate, "team-a", &document).await.status, 201);
    gate.invoke("evil-alias", &json!({})).await.expect_ok();
    let requests = secret.requests();
    assert!(requests[0].header("authorization").is_none());
}

#[tokio::test]
async fn r41_servers_of_additional_endpoints_and_of_the_operators_names_have_an_owner() {
    let (own, second, named) = (Agent::echo().await, Agent::echo().await, Agent::echo().await);
    let agents = format!(
        "agents:\n  sources: [agents.json]\n  rules:\n    - agents: [multi]\n      settings: \
         {{additional_endpoints: ['{}']}}\n",
        second.url()
    );
    let map = format!("resolver:\n  map: {{'agent://planner.example.com': '{}'}}\n", named.url());
    let gate = gateway().section(PUBLISHERS).agent("multi", &own).section(&agents).section(&map).start().await;
    for server in [&second, &named] {
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
