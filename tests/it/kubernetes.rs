//! Agents of a Kubernetes cluster: Services and their ready endpoints, read from a fake API server.

use crate::support::{
    agent::{Agent, Step, http_response, json_response, latch},
    certs::CertificateAuthority,
    closed_port::ClosedPort,
    cluster::{FakeCluster, Pod, service},
    eventually, eventually_within,
    gateway::{Gateway, GatewayBuilder, gateway},
    servers::{EchoServer, server_tls_config},
};
use serde_json::{Value, json};
use std::{collections::HashSet, time::Duration};

/// An agent that answers with its name.
async fn named(name: &'static str) -> Agent {
    Agent::scripted(move |_| json_response(&json!({ "pod": name }))).await
}

/// Accepts callers with an API key.
fn document(id: &str) -> Value {
    json!({"id": id, "name": id, "authentication": {"type": "api_key"}})
}

/// The annotation with a document.
fn annotated(document: &Value) -> Value {
    json!({"gatepost.dev/document": document.to_string()})
}

/// The cluster's row of the page of sources.
async fn cluster_row(gate: &Gateway) -> Value {
    gate.admin_page("/sources").await.json()["sources"][0].clone()
}

/// Waits until the cluster's error contains these words.
async fn expect_error(gate: &Gateway, words: &[&str]) {
    let mut last = Value::Null;
    eventually(&format!("the error names {words:?}"), async || {
        last = cluster_row(gate).await["error"].clone();
        last.as_str().is_some_and(|error| words.iter().all(|word| error.contains(word)))
    })
    .await;
}

/// Waits until the cluster has this number of agents and no error.
async fn expect_agents(gate: &Gateway, count: usize) {
    eventually(&format!("the cluster has {count} agents"), async || {
        let row = cluster_row(gate).await;
        row["agents"] == count && row["error"].is_null()
    })
    .await;
}

/// Waits until a call to the agent has this status.
async fn expect_status(gate: &Gateway, id: &str, status: u16) {
    eventually(&format!("{id} answers {status}"), async || gate.invoke(id, &json!({})).await.status == status).await;
}

/// Waits until the page of agents contains these words: a document was rejected for this reason.
async fn expect_rejection(gate: &Gateway, words: &str) {
    eventually(&format!("a document is rejected: {words}"), async || {
        gate.admin_page("/agents").await.text().contains(words)
    })
    .await;
}

#[tokio::test]
async fn a_labelled_service_is_an_agent_at_its_ready_endpoints_and_no_other_service_is() {
    let (pod, other, cluster) = (named("a").await, named("b").await, FakeCluster::start().await);
    cluster.put_agent("planner", annotated(&document("trip-planner")), &[Pod::ready(&pod)]);
    let mut unlabelled = service("database", json!({}));
    unlabelled["metadata"]["labels"] = json!({});
    cluster.put("services", unlabelled);
    cluster.put_pods("database", &[Pod::ready(&other)]);
    let gate = cluster.gateway().await;
    expect_agents(&gate, 1).await;
    assert_eq!(gate.invoke("trip-planner", &json!({})).await.expect_ok()["pod"], "a");
    let request = pod.requests().pop().unwrap();
    assert_eq!(request.header("host"), Some("planner.agents.svc:8080"));
    gate.invoke("database", &json!({})).await.expect_fault(404, "NotFound");
    assert_eq!(other.call_count(), 0);
}

#[tokio::test]
async fn a_service_that_is_created_changed_or_deleted_takes_effect_by_the_watch() {
    let (pod, cluster) = (named("a").await, FakeCluster::start().await);
    let gate = cluster.gateway_with("").start().await;
    expect_agents(&gate, 0).await;
    cluster.put_agent("planner", annotated(&document("one")), &[Pod::ready(&pod)]);
    expect_status(&gate, "one", 200).await;
    cluster.put("services", service("planner", annotated(&document("two"))));
    expect_status(&gate, "two", 200).await;
    expect_status(&gate, "one", 404).await;
    let mut unlabelled = service("planner", annotated(&document("two")));
    unlabelled["metadata"]["labels"] = json!({});
    cluster.put("services", unlabelled);
    expect_status(&gate, "two", 404).await;
}

#[tokio::test]
async fn an_endpoint_that_is_not_ready_gets_no_call_and_keeps_its_call_in_flight() {
    let (release, cluster) = (latch(), FakeCluster::start().await);
    let held = std::sync::Arc::clone(&release);
    let slow = Agent::scripted(move |_| {
        let mut steps = vec![Step::WaitForLatch(std::sync::Arc::clone(&held))];
        steps.extend(json_response(&json!({"pod": "slow"})));
        steps
    })
    .await;
    let fast = named("fast").await;
    cluster.put_agent("planner", annotated(&document("planner")), &[Pod::ready(&slow)]);
    let gate = cluster.gateway().await;
    expect_agents(&gate, 1).await;
    let in_flight = tokio::spawn({
        let request = gate.post("/agents/planner/invoke").json(&json!({}));
        async move { crate::support::gateway::send(request).await }
    });
    eventually("the call is at the pod", async || slow.call_count() == 1).await;
    cluster.put_pods("planner", &[Pod::ready(&slow).not_ready(), Pod::ready(&fast)]);
    eventually("calls go to the other pod", async || {
        let request =
            gate.post("/agents/planner/invoke").timeout(std::time::Duration::from_millis(500)).json(&json!({}));
        request.send().await.is_ok_and(|response| response.status() == 200)
    })
    .await;
    let calls_before = slow.call_count();
    for _ in 0..5 {
        assert_eq!(gate.invoke("planner", &json!({})).await.expect_ok()["pod"], "fast");
    }
    assert_eq!(slow.call_count(), calls_before);
    release.close();
    assert_eq!(in_flight.await.unwrap().expect_ok()["pod"], "slow");
}

#[tokio::test]
async fn a_service_without_a_ready_endpoint_is_listed_and_unavailable_until_one_is_ready() {
    let (pod, cluster) = (named("a").await, FakeCluster::start().await);
    cluster.put_agent("planner", annotated(&document("planner")), &[Pod::ready(&pod).not_ready()]);
    let gate = cluster.gateway().await;
    eventually("the agent is listed", async || {
        let page = crate::support::gateway::send(
            gate.request("GET", "/agents/planner").header("x-api-key", gate.key("team-a")),
        );
        page.await.status == 200
    })
    .await;
    gate.invoke("planner", &json!({})).await.expect_fault(503, "AgentUnavailable");
    assert_eq!(pod.call_count(), 0);
    cluster.put_pods("planner", &[Pod::ready(&pod)]);
    expect_status(&gate, "planner", 200).await;
    cluster.delete("endpointslices", "planner-0");
    expect_status(&gate, "planner", 503).await;
}

#[tokio::test]
async fn calls_go_to_the_gateways_own_zone_and_to_another_where_its_endpoints_refuse_connections() {
    let (near, far, cluster) = (named("near").await, named("far").await, FakeCluster::start().await);
    let pods = [Pod::ready(&far).in_zone("zone-b"), Pod::ready(&near).in_zone("zone-a")];
    cluster.put_agent("planner", annotated(&document("planner")), &pods);
    // As the environment of a pod sets it.
    let zone = "GATEPOST__AGENTS__SOURCES__0__KUBERNETES__ZONE";
    let gate = cluster.gateway_with("").env(zone, "zone-a").start().await;
    expect_agents(&gate, 1).await;
    for _ in 0..6 {
        assert_eq!(gate.invoke("planner", &json!({})).await.expect_ok()["pod"], "near");
    }
    let closed = ClosedPort::new();
    let gone = Pod { address: closed.address, is_ready: true, zone: Some("zone-a") };
    cluster.put_pods("planner", &[pods[0], gone]);
    eventually("the other zone takes the calls", async || {
        gate.invoke("planner", &json!({})).await.expect_ok()["pod"] == "far"
    })
    .await;
}

#[tokio::test]
async fn several_ready_endpoints_share_the_calls() {
    let (first, second, cluster) = (named("a").await, named("b").await, FakeCluster::start().await);
    cluster.put_agent("planner", annotated(&document("planner")), &[Pod::ready(&first), Pod::ready(&second)]);
    let gate = cluster.gateway().await;
    expect_agents(&gate, 1).await;
    for _ in 0..10 {
        gate.invoke("planner", &json!({})).await.expect_ok();
    }
    assert_eq!((first.call_count(), second.call_count()), (5, 5));
}

#[tokio::test]
async fn a_document_in_a_config_map_counts_and_its_changes_do() {
    let (pod, cluster) = (named("a").await, FakeCluster::start().await);
    let map = |text: &str| json!({"metadata": {"name": "planner-doc", "labels": {"gatepost.dev/agent": "true"}}, "data": {"document": text}});
    cluster.put_agent("planner", json!({"gatepost.dev/document-config-map": "planner-doc"}), &[Pod::ready(&pod)]);
    let gate = cluster.gateway().await;
    expect_rejection(&gate, "the ConfigMap planner-doc does not exist").await;
    cluster.put("configmaps", map("id: from-map\nname: Planner\nauthentication: {type: api_key}\n"));
    expect_status(&gate, "from-map", 200).await;
    cluster.put("configmaps", map("id: renamed\nname: Planner\nauthentication: {type: api_key}\n"));
    expect_status(&gate, "renamed", 200).await;
    cluster.put("configmaps", map("id: [not, an, id\n"));
    expect_status(&gate, "renamed", 404).await;
    cluster.delete("configmaps", "planner-doc");
    expect_rejection(&gate, "the ConfigMap planner-doc does not exist").await;
}

#[tokio::test]
async fn a_document_that_names_another_host_is_called_at_its_service_only() {
    let (pod, elsewhere, cluster) = (named("pod").await, named("elsewhere").await, FakeCluster::start().await);
    let mut hostile = document("planner");
    hostile["endpoint"] = format!("http://{}/stolen", elsewhere.address).into();
    cluster.put_agent("planner", annotated(&hostile), &[Pod::ready(&pod)]);
    let mut external = service("external", annotated(&document("external")));
    external["spec"]["type"] = "ExternalName".into();
    external["spec"]["externalName"] = "localhost".into();
    cluster.put("services", external);
    let gate = cluster.gateway().await;
    expect_status(&gate, "planner", 200).await;
    assert!(pod.requests()[0].head.starts_with("POST /stolen "), "{}", pod.requests()[0].head);
    expect_rejection(&gate, "is ExternalName").await;
    expect_status(&gate, "external", 404).await;
    assert_eq!(elsewhere.call_count(), 0);
}

#[tokio::test]
async fn an_endpoint_at_an_address_that_the_network_policy_denies_is_not_called() {
    let (pod, cluster) = (named("a").await, FakeCluster::start().await);
    let metadata_service = Pod { address: "169.254.169.254:80".parse().unwrap(), is_ready: true, zone: None };
    cluster.put_agent("planner", annotated(&document("planner")), &[metadata_service]);
    cluster.put_agent("loopback", annotated(&document("loopback")), &[Pod::ready(&pod)]);
    let gate = gateway().section("network: {}\n").section(&cluster.section("")).start().await;
    expect_agents(&gate, 2).await;
    for id in ["planner", "loopback"] {
        let response = gate.invoke(id, &json!({})).await;
        assert!(response.status >= 500, "{}", response.text());
    }
    assert_eq!(pod.call_count(), 0);
}

#[tokio::test]
async fn agents_stay_while_the_api_server_is_away_and_what_changed_meanwhile_follows() {
    let (pod, cluster) = (named("a").await, FakeCluster::start().await);
    for name in ["one", "two", "three"] {
        cluster.put_agent(name, annotated(&document(name)), &[Pod::ready(&pod)]);
    }
    let gate = cluster.gateway().await;
    expect_agents(&gate, 3).await;
    cluster.behave(|behavior| behavior.status = Some(503));
    cluster.break_watches();
    expect_error(&gate, &["503"]).await;
    cluster.delete("services", "one");
    for name in ["one", "two", "three"] {
        gate.invoke(name, &json!({})).await.expect_ok();
    }
    cluster.behave(|behavior| behavior.status = None);
    expect_agents(&gate, 2).await;
    expect_status(&gate, "one", 404).await;
}

#[tokio::test]
async fn a_version_that_the_api_server_has_forgotten_leads_to_a_new_list() {
    let (pod, cluster) = (named("a").await, FakeCluster::start().await);
    for name in ["one", "two"] {
        cluster.put_agent(name, annotated(&document(name)), &[Pod::ready(&pod)]);
    }
    let gate = cluster.gateway().await;
    expect_agents(&gate, 2).await;
    cluster.behave(|behavior| behavior.status = Some(500));
    cluster.break_watches();
    expect_error(&gate, &["500"]).await;
    cluster.delete("services", "one");
    cluster.forget_changes();
    cluster.behave(|behavior| behavior.status = None);
    expect_agents(&gate, 1).await;
    expect_status(&gate, "two", 200).await;
}

#[tokio::test]
async fn a_watch_that_breaks_or_sends_garbage_loses_no_change() {
    let (pod, cluster) = (named("a").await, FakeCluster::start().await);
    let gate = cluster.gateway().await;
    expect_agents(&gate, 0).await;
    cluster.break_watches();
    cluster.put_agent("one", annotated(&document("one")), &[Pod::ready(&pod)]);
    expect_status(&gate, "one", 200).await;
    cluster.garble_watches();
    cluster.put_agent("two", annotated(&document("two")), &[Pod::ready(&pod)]);
    expect_status(&gate, "two", 200).await;
    expect_agents(&gate, 2).await;
}

#[tokio::test]
async fn refused_credentials_and_missing_rights_are_reported_with_the_rule_that_is_needed() {
    let cluster = FakeCluster::start().await;
    cluster.behave(|behavior| behavior.token = Some("right".into()));
    let gate = cluster.gateway().await;
    expect_error(&gate, &["401", "token"]).await;
    cluster.behave(|behavior| {
        behavior.token = None;
        behavior.forbidden.insert("endpointslices");
    });
    expect_error(&gate, &["403", "get, list and watch on endpointslices", "namespace agents"]).await;
    let ready = gate.admin_page("/readyz").await;
    assert_eq!(ready.status, 503, "{}", ready.text());
    cluster.behave(|behavior| behavior.forbidden.clear());
    expect_agents(&gate, 0).await;
}

/// The cluster as a source of the namespaces `agents` and `other`.
fn two_namespaces(cluster: &FakeCluster, settings: &str) -> GatewayBuilder {
    let section = cluster.section("").replace("[agents]", "[agents, other]");
    gateway().section(&section.replace("poll_interval: 1s", &format!("poll_interval: 1s\n      {settings}")))
}

/// Waits until the row of the cluster names one part that cannot be read, or none.
async fn expect_unreadable(gate: &Gateway, words: &[&str]) {
    eventually(&format!("what cannot be read is {words:?}"), async || {
        let unreadable = cluster_row(gate).await["unreadable"].as_array().cloned().unwrap_or_default();
        match (unreadable.as_slice(), words) {
            ([], []) => true,
            ([one], [_, ..]) => words.iter().all(|word| one.as_str().unwrap().contains(word)),
            _ => false,
        }
    })
    .await;
}

#[tokio::test]
async fn a_namespace_that_cannot_be_read_does_not_affect_the_others() {
    let (pod, cluster) = (named("a").await, FakeCluster::start().await);
    let slice = |name: &str| Pod::ready(&pod).slice(name, name);
    cluster.put_agent("one", annotated(&document("one")), &[Pod::ready(&pod)]);
    cluster.put_in("other", "services", service("two", annotated(&document("two"))));
    cluster.put_in("other", "endpointslices", slice("two"));
    cluster.behave(|behavior| behavior.forbidden_namespaces = HashSet::from(["other"]));
    let gate = two_namespaces(&cluster, "max_staleness: 3s").start().await;
    // It was never read, and delays neither readiness nor the agents of the others.
    expect_status(&gate, "one", 200).await;
    expect_agents(&gate, 1).await;
    expect_unreadable(&gate, &["other", "403", "get, list and watch"]).await;
    assert_eq!(gate.admin_page("/readyz").await.status, 200);
    expect_unreadable(&gate, &["namespace other", "max_staleness"]).await;
    cluster.behave(|behavior| behavior.forbidden_namespaces.clear());
    expect_agents(&gate, 2).await;
    expect_status(&gate, "two", 200).await;
    expect_unreadable(&gate, &[]).await;
    // Its agents stay while it cannot be read, but not for ever; those of the others do, and change.
    cluster.behave(|behavior| behavior.forbidden_namespaces = HashSet::from(["other"]));
    cluster.break_watches();
    expect_unreadable(&gate, &["other", "403"]).await;
    gate.invoke("two", &json!({})).await.expect_ok();
    cluster.put_agent("three", annotated(&document("three")), &[Pod::ready(&pod)]);
    expect_status(&gate, "three", 200).await;
    expect_status(&gate, "two", 404).await;
    expect_agents(&gate, 2).await;
    cluster.behave(|behavior| behavior.forbidden_namespaces.clear());
    // The delay between attempts has grown meanwhile.
    eventually_within(Duration::from_secs(60), "the namespace is read again", async || {
        gate.invoke("two", &json!({})).await.status == 200
    })
    .await;
    expect_agents(&gate, 3).await;
    expect_unreadable(&gate, &[]).await;
}

#[tokio::test]
async fn last_known_good_agents_of_a_namespace_stay_while_it_cannot_be_read_after_a_restart() {
    let (pod, cluster) = (named("a").await, FakeCluster::start().await);
    cluster.put_agent("one", annotated(&document("one")), &[Pod::ready(&pod)]);
    for name in ["two", "gone"] {
        cluster.put_in("other", "services", service(name, annotated(&document(name))));
        cluster.put_in("other", "endpointslices", Pod::ready(&pod).slice(name, name));
    }
    let mut gate = two_namespaces(&cluster, "loss_guard: {threshold: 1.0}").start().await;
    expect_agents(&gate, 3).await;
    eventually("the agents are stored", async || {
        let stored = std::fs::read(gate.folder().join("gatepost.state/cluster.agents")).unwrap_or_default();
        String::from_utf8_lossy(&stored).contains("\"gone\"")
    })
    .await;
    cluster.behave(|behavior| behavior.forbidden_namespaces = HashSet::from(["other"]));
    gate.restart(Vec::new()).await;
    expect_unreadable(&gate, &["other", "403"]).await;
    // Their pods are not known; an agent is unavailable meanwhile, and not unknown.
    expect_agents(&gate, 3).await;
    expect_status(&gate, "one", 200).await;
    assert_ne!(gate.invoke("gone", &json!({})).await.status, 404);
    cluster.delete_in("other", "services", "gone");
    cluster.behave(|behavior| behavior.forbidden_namespaces.clear());
    expect_status(&gate, "gone", 404).await;
    expect_status(&gate, "two", 200).await;
    expect_agents(&gate, 2).await;
}

#[tokio::test]
async fn the_watches_of_many_namespaces_fit_into_the_requests_that_a_connection_may_have() {
    let (pod, authority) = (named("a").await, CertificateAuthority::new("cluster"));
    let tls = server_tls_config(&authority.server(&["127.0.0.1"]), None, &[b"h2"]);
    let cluster = FakeCluster::start_with_tls(Some(tls)).await;
    let names: Vec<String> = (0..50).map(|at| format!("team-{at}")).collect();
    for name in &names {
        cluster.put_in(name, "services", service(name, annotated(&document(name))));
        cluster.put_in(name, "endpointslices", Pod::ready(&pod).slice(name, name));
    }
    let build = gateway();
    std::fs::write(build.folder().join("cluster.pem"), authority.pem()).unwrap();
    std::fs::write(build.folder().join("token"), "token-of-a-service-account").unwrap();
    let section = format!(
        "agents:\n  defaults: {{allow_plaintext: true}}\n  sources:\n    - kind: kubernetes\n      name: cluster\n      \
         url: https://{}\n      poll_interval: 1s\n      credential: {{bearer: 'file:token'}}\n      \
         kubernetes: {{ca: cluster.pem, namespaces: [{}]}}\n",
        cluster.address,
        names.join(", ")
    );
    let gate = build.section(&section).start().await;
    expect_agents(&gate, 50).await;
    expect_status(&gate, "team-49", 200).await;
}

#[tokio::test]
async fn an_api_server_that_does_not_answer_is_an_error_after_the_timeout() {
    let cluster = FakeCluster::start().await;
    cluster.behave(|behavior| behavior.is_silent = true);
    let gate = cluster.gateway().await;
    expect_error(&gate, &["the API server: http"]).await;
    cluster.behave(|behavior| behavior.is_silent = false);
    expect_agents(&gate, 0).await;
}

#[tokio::test]
async fn the_service_account_is_verified_and_its_token_and_namespace_are_read_again() {
    let (pod, authority) = (named("a").await, CertificateAuthority::new("cluster"));
    let certificate = authority.server(&["127.0.0.1"]);
    let cluster = FakeCluster::start_with_tls(Some(server_tls_config(&certificate, None, &[b"http/1.1"]))).await;
    cluster.behave(|behavior| behavior.token = Some("first-token-of-the-pod".into()));
    cluster.put_agent("planner", annotated(&document("planner")), &[Pod::ready(&pod)]);
    cluster.put_in("other", "services", service("foreign", annotated(&document("foreign"))));
    let build = gateway();
    let account = build.folder().join("account");
    std::fs::create_dir(&account).unwrap();
    std::fs::write(account.join("token"), "first-token-of-the-pod\n").unwrap();
    std::fs::write(account.join("ca.crt"), CertificateAuthority::new("another").pem()).unwrap();
    let section = format!(
        "agents:\n  defaults: {{allow_plaintext: true}}\n  sources:\n    - kind: kubernetes\n      name: cluster\n      \
         url: https://{}\n      poll_interval: 1s\n      kubernetes: {{service_account: account}}\n",
        cluster.address
    );
    let gate = build.section(&section).start().await;
    expect_error(&gate, &["namespace is unknown"]).await;
    std::fs::write(account.join("namespace"), "agents").unwrap();
    expect_error(&gate, &["certificate"]).await;
    std::fs::write(account.join("ca.crt"), authority.pem()).unwrap();
    expect_agents(&gate, 1).await;
    gate.invoke("planner", &json!({})).await.expect_ok();
    cluster.behave(|behavior| behavior.token = Some("second-token-of-the-pod".into()));
    cluster.break_watches();
    expect_error(&gate, &["401"]).await;
    std::fs::write(account.join("token"), "second-token-of-the-pod").unwrap();
    expect_agents(&gate, 1).await;
    let requests = cluster.requests();
    assert!(requests.iter().all(|request| request.contains("/namespaces/agents/")), "{requests:?}");
    assert!(!gate.stderr().contains("token-of-the-pod"));
}

#[tokio::test]
async fn more_services_than_max_agents_are_refused_and_the_agents_stay() {
    let (pod, cluster) = (named("a").await, FakeCluster::start().await);
    cluster.put_agent("one", annotated(&document("one")), &[Pod::ready(&pod)]);
    let section = cluster.section("").replace("poll_interval: 1s", "poll_interval: 1s\n      max_agents: 1");
    let gate = gateway().section(&section).start().await;
    expect_agents(&gate, 1).await;
    cluster.put_agent("two", annotated(&document("two")), &[Pod::ready(&pod)]);
    expect_error(&gate, &["more than 1 Services"]).await;
    gate.invoke("one", &json!({})).await.expect_ok();
    cluster.delete("services", "two");
    expect_agents(&gate, 1).await;
}

#[tokio::test]
async fn a_list_with_more_services_than_max_agents_is_not_read_to_its_end() {
    let cluster = FakeCluster::start().await;
    for at in 0..600 {
        cluster.put("services", service(&format!("s-{at:03}"), annotated(&document(&format!("agent-{at:03}")))));
    }
    let section = cluster.section("").replace("poll_interval: 1s", "poll_interval: 1s\n      max_agents: 100");
    let gate = gateway().section(&section).start().await;
    expect_error(&gate, &["more than 100 Services"]).await;
    let requests = cluster.requests();
    assert!(!requests.iter().any(|request| request.contains("/services") && request.contains("continue=")));
}

#[tokio::test]
async fn lists_are_read_in_pages_and_an_object_beyond_the_limit_is_refused() {
    let (pod, cluster) = (named("a").await, FakeCluster::start().await);
    for at in 0..260 {
        cluster.put("services", service(&format!("s-{at:03}"), annotated(&document(&format!("agent-{at:03}")))));
    }
    cluster.put_pods("s-259", &[Pod::ready(&pod)]);
    let gate = cluster.gateway().await;
    expect_agents(&gate, 260).await;
    gate.invoke("agent-259", &json!({})).await.expect_ok();
    assert!(cluster.requests().iter().any(|request| request.contains("continue=250")));

    cluster.put("services", service("large", json!({"gatepost.dev/document": "x".repeat(2 << 10)})));
    let section = cluster.section("").replace("poll_interval: 1s", "poll_interval: 1s\n      max_response_size: 1KiB");
    let gate = gateway().section(&section).start().await;
    expect_error(&gate, &["longer than 1KiB"]).await;
}

#[tokio::test]
async fn r127_one_list_is_read_after_the_other_so_that_one_is_in_memory() {
    let cluster = FakeCluster::start().await;
    for at in 0..260 {
        cluster.put_agent(&format!("s-{at:03}"), annotated(&document(&format!("agent-{at:03}"))), &[]);
        let metadata = json!({"name": format!("doc-{at:03}"), "labels": {"gatepost.dev/agent": "true"}});
        cluster.put("configmaps", json!({"metadata": metadata, "data": {}}));
    }
    let gate = cluster.gateway().await;
    expect_agents(&gate, 260).await;
    let requests = cluster.requests();
    let pages = requests.iter().filter(|request| !request.contains("watch="));
    let mut resources: Vec<&str> = pages.map(|request| request.split('?').next().unwrap()).collect();
    assert_eq!(resources.len(), 5, "two lists have two pages: {requests:?}");
    resources.dedup();
    assert_eq!(resources.len(), 3, "pages of several lists alternate: {requests:?}");
}

#[tokio::test]
async fn large_objects_are_read_in_smaller_pages() {
    let (pod, cluster) = (named("a").await, FakeCluster::start().await);
    for at in 0..16 {
        let text = format!("{}{}", document(&format!("agent-{at}")), " ".repeat(20 << 10));
        let metadata = json!({"name": format!("doc-{at}"), "labels": {"gatepost.dev/agent": "true"}});
        cluster.put("configmaps", json!({"metadata": metadata, "data": {"document": text}}));
        let annotations = json!({"gatepost.dev/document-config-map": format!("doc-{at}")});
        cluster.put_agent(&format!("s-{at}"), annotations, &[Pod::ready(&pod)]);
    }
    let section = cluster.section("").replace("poll_interval: 1s", "poll_interval: 1s\n      max_response_size: 64KiB");
    let gate = gateway().section(&section).start().await;
    expect_agents(&gate, 16).await;
    gate.invoke("agent-15", &json!({})).await.expect_ok();
}

#[tokio::test]
async fn plain_http_to_pods_needs_allow_plaintext() {
    let (pod, cluster) =
        (Agent::with_steps(http_response("200 OK", "application/json", "{}")).await, FakeCluster::start().await);
    cluster.put_agent("planner", annotated(&document("planner")), &[Pod::ready(&pod)]);
    let section = cluster.section("").replace("allow_plaintext: true", "allow_plaintext: false");
    let gate = gateway().section(&section).start().await;
    expect_rejection(&gate, "is not encrypted beyond this machine").await;
    assert_eq!(pod.call_count(), 0);
}

#[tokio::test]
async fn the_certificate_of_a_pod_must_carry_the_name_of_its_service() {
    let (authority, cluster) = (CertificateAuthority::new("pods"), FakeCluster::start().await);
    let tls = |name: &str| Some(server_tls_config(&authority.server(&[name]), None, &[b"h2", b"http/1.1"]));
    let right = EchoServer::start(tls("planner.agents.svc")).await;
    let wrong = EchoServer::start(tls("other.agents.svc")).await;
    for (name, server) in [("planner", &right), ("impostor", &wrong)] {
        let mut annotations = annotated(&document(name));
        annotations["gatepost.dev/scheme"] = "https".into();
        cluster.put_agent(name, annotations, &[Pod { address: server.address, is_ready: true, zone: None }]);
    }
    let build = gateway();
    std::fs::write(build.folder().join("pods.pem"), authority.pem()).unwrap();
    let section = cluster.section("").replace("allow_plaintext: true", "tls: {ca: pods.pem}");
    let gate = build.section(&section).start().await;
    expect_agents(&gate, 2).await;
    gate.invoke("planner", &json!({"a": 1})).await.expect_ok();
    let refused = gate.invoke("impostor", &json!({"a": 1})).await;
    assert!(refused.status >= 500, "{}", refused.text());
    assert_eq!(wrong.observed.versions.lock().unwrap().len(), 0);
}

#[tokio::test]
async fn one_object_that_is_not_valid_hides_no_other() {
    let (pod, cluster) = (named("a").await, FakeCluster::start().await);
    for name in ["one", "two"] {
        cluster.put_agent(name, annotated(&document(name)), &[Pod::ready(&pod)]);
    }
    let mut odd = service("odd", annotated(&document("odd")));
    odd["spec"]["ports"][0]["port"] = json!(-1);
    cluster.put("services", odd.clone());
    let mut slice = json!({"metadata": {"name": "odd-0", "labels": {"kubernetes.io/service-name": "odd"}}});
    slice["ports"] = json!([{"name": "http", "port": 70_000}]);
    cluster.put("endpointslices", slice.clone());
    slice["metadata"]["name"] = "odd-1".into();
    slice["endpoints"] = json!("none");
    cluster.put("endpointslices", slice);
    let gate = cluster.gateway().await;
    expect_rejection(&gate, "Service odd: is not valid").await;
    expect_status(&gate, "one", 200).await;
    // Events too.
    odd["metadata"]["name"] = "two".into();
    cluster.put("services", odd);
    expect_status(&gate, "two", 404).await;
    cluster.put("services", service("two", annotated(&document("again"))));
    expect_status(&gate, "again", 200).await;
    assert_eq!(cluster_row(&gate).await["error"], Value::Null);
}
