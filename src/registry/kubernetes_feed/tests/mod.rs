//! Tests of the Kubernetes feed without an API server: endpoints, documents and the bounds of the table. `tests/it` has
//! those with one.

mod cluster_table;

use super::{
    KubernetesFeed,
    api_objects::{ClusterObject, EndpointSlice, ObjectKey, ReceivedObject, ResourceKind},
    config::KubernetesSourceConfig,
    ready_endpoints::{MAX_ADDRESSES, ReadyEndpoints},
    service_document::{DocumentBuilder, ServiceObjects},
};
use crate::{
    net::NetworkConfig,
    registry::{
        feed::{DocumentBody, Feed, RawDocument},
        http_feed::run_classification,
        signature_policy::SignaturePolicy,
    },
    signing::{SigningKey, TrustedKeys},
};
use serde_json::{Value, json};
use std::{sync::Arc, time::Duration};

fn receive(kind: ResourceKind, object: &Value) -> ReceivedObject {
    let text = serde_json::value::RawValue::from_string(object.to_string()).unwrap();
    ReceivedObject::parse(kind, &text).unwrap()
}

fn slice(object: &Value) -> Arc<EndpointSlice> {
    match receive(ResourceKind::EndpointSlices, object).object {
        ClusterObject::Slice(slice) => slice,
        other => panic!("{other:?}"),
    }
}

/// A slice of the Service `planner` with these endpoints at port 9000, which is called http.
fn slice_of(family: &str, endpoints: Value) -> Value {
    json!({
        "metadata": {"name": "planner-x", "namespace": "agents", "labels": {"kubernetes.io/service-name": "planner"}},
        "addressType": family,
        "endpoints": endpoints,
        "ports": [{"name": "metrics", "port": 9100}, {"name": "http", "port": 9000}],
    })
}

fn objects(spec: Value, annotations: Value, slices: &[Value]) -> ServiceObjects {
    let metadata = json!({"name": "planner", "namespace": "agents", "annotations": annotations});
    let received = receive(ResourceKind::Services, &json!({"metadata": metadata, "spec": spec}));
    let ClusterObject::Service(service) = received.object else { panic!("no Service") };
    ServiceObjects {
        key: received.key,
        service: Ok(service),
        slices: slices.iter().map(slice).collect(),
        config_map: None,
    }
}

fn one_port() -> Value {
    json!({"ports": [{"name": "http", "port": 8080}]})
}

fn build(objects: &ServiceObjects) -> RawDocument {
    build_with(SignaturePolicy::default(), objects)
}

fn build_with(signature_policy: SignaturePolicy, objects: &ServiceObjects) -> RawDocument {
    DocumentBuilder { signature_policy, zone: None }.build(objects)
}

/// The document of a Service, or why it is not valid.
fn document_of(spec: Value, annotations: Value) -> Result<Value, String> {
    signed_document_of(SignaturePolicy::default(), spec, annotations)
}

fn signed_document_of(signature_policy: SignaturePolicy, spec: Value, annotations: Value) -> Result<Value, String> {
    let ready = slice_of("IPv4", json!([{"addresses": ["10.0.0.1"]}]));
    match build_with(signature_policy, &objects(spec, annotations, &[ready])).body {
        DocumentBody::Text(text) => Ok(serde_json::from_slice(&text).unwrap()),
        DocumentBody::Invalid(why) | DocumentBody::Unsupported(why) => Err(why),
        DocumentBody::Value(value) => panic!("{value}"),
    }
}

fn annotated(document: &Value) -> Value {
    json!({"gatepost.dev/document": document.to_string()})
}

fn select(slices: &[Value], family: Option<&str>, zone: Option<&str>) -> Vec<(String, bool)> {
    let objects = objects(one_port(), json!({}), slices);
    let ready = ReadyEndpoints::select(&objects.slices, &objects.service.as_ref().unwrap().spec.ports[0], family, zone);
    ready.addresses.iter().map(|server| (server.address.to_string(), server.is_preferred)).collect()
}

#[test]
fn endpoints_count_where_they_are_ready_at_the_named_port_and_once() {
    let endpoints = json!([
        {"addresses": ["10.0.0.1"], "conditions": {"ready": true}},
        {"addresses": ["10.0.0.2"], "conditions": {"ready": false, "serving": true, "terminating": true}},
        {"addresses": ["10.0.0.3"], "conditions": {}},
        {"addresses": ["10.0.0.4"]},
        {"addresses": ["not an address"]},
        {"addresses": []},
    ]);
    let ready = slice_of("IPv4", endpoints);
    let expected = ["10.0.0.1:9000", "10.0.0.3:9000", "10.0.0.4:9000"].map(|address| (address.to_owned(), true));
    assert_eq!(select(&[ready.clone(), ready], None, None), expected);
    let mut other_port = slice_of("IPv4", json!([{"addresses": ["10.0.0.1"]}]));
    other_port["ports"] = json!([{"name": "metrics", "port": 9100}]);
    assert!(select(&[other_port.clone()], None, None).is_empty());
    (other_port["ports"], other_port["endpoints"]) = (Value::Null, Value::Null);
    assert!(select(&[other_port], None, None).is_empty());
}

#[test]
fn of_two_ip_families_the_first_of_the_service_counts() {
    let slices =
        [slice_of("IPv4", json!([{"addresses": ["10.0.0.1"]}])), slice_of("IPv6", json!([{"addresses": ["fd00::1"]}]))];
    assert_eq!(select(&slices, Some("IPv6"), None), [("[fd00::1]:9000".to_owned(), true)]);
    assert_eq!(select(&slices, None, None), [("10.0.0.1:9000".to_owned(), true)]);
    assert_eq!(select(&slices[1..], Some("IPv4"), None), [("[fd00::1]:9000".to_owned(), true)]);
    assert!(select(&[slice_of("FQDN", json!([{"addresses": ["evil.example"]}]))], None, None).is_empty());
}

#[test]
fn hints_decide_before_the_zone_and_without_an_endpoint_for_the_zone_all_are_equal() {
    let endpoints = json!([
        {"addresses": ["10.0.0.1"], "zone": "a"},
        {"addresses": ["10.0.0.2"], "zone": "a", "hints": {"forZones": [{"name": "b"}]}},
        {"addresses": ["10.0.0.3"], "zone": "c", "hints": {"forZones": [{"name": "a"}, {"name": "c"}]}},
    ]);
    let slices = [slice_of("IPv4", endpoints)];
    let preferred = |zone: &str| select(&slices, None, Some(zone)).into_iter().map(|(_, preferred)| preferred);
    assert_eq!(preferred("a").collect::<Vec<_>>(), [true, false, true]);
    assert_eq!(preferred("b").collect::<Vec<_>>(), [false, true, false]);
    assert_eq!(preferred("d").collect::<Vec<_>>(), [true, true, true]);
}

#[test]
fn a_service_with_very_many_endpoints_is_called_at_its_own_address() {
    let endpoint = |at: usize| json!({"addresses": [format!("10.0.{}.{}", at / 250, at % 250)]});
    for (count, distributed) in [(MAX_ADDRESSES, MAX_ADDRESSES), (MAX_ADDRESSES + 1, 0)] {
        let slices = [slice_of("IPv4", (0..count).map(endpoint).collect())];
        let built = build(&objects(one_port(), json!({}), &slices));
        assert_eq!(built.addresses.len(), distributed);
        let DocumentBody::Text(text) = built.body else { panic!("invalid") };
        assert_eq!(serde_json::from_slice::<Value>(&text).unwrap().get("status"), None);
    }
}

#[test]
fn a_service_without_a_document_gets_a_minimal_one_and_is_inactive_without_an_endpoint() {
    let minimal = json!({"id": "planner", "name": "planner", "endpoint": "http://planner.agents.svc:8080/"});
    assert_eq!(document_of(one_port(), json!({})).unwrap(), minimal);
    let DocumentBody::Text(text) = build(&objects(one_port(), json!({}), &[])).body else { panic!("invalid") };
    assert_eq!(serde_json::from_slice::<Value>(&text).unwrap()["status"], "unavailable");
}

#[test]
fn a_document_keeps_its_id_and_the_path_of_its_endpoint_but_no_host_port_or_scheme() {
    let endpoint = |endpoint: &str, mut annotations: Value| {
        let document = json!({"id": "trip", "name": "Trip", "endpoint": endpoint});
        annotations["gatepost.dev/document"] = document.to_string().into();
        document_of(one_port(), annotations).map(|document| document["endpoint"].as_str().unwrap().to_owned())
    };
    for (own, expected) in [
        ("https://evil.example:444/a/b?key=x#y", "http://planner.agents.svc:8080/a/b"),
        ("/relative", "http://planner.agents.svc:8080/relative"),
        ("https://user:secret@evil.example", "http://planner.agents.svc:8080/"),
        ("mqtts://broker.example/t", "http://planner.agents.svc:8080/t"),
        ("mqtts://broker.example", "http://planner.agents.svc:8080/"),
        ("https://evil.example/../../x", "http://planner.agents.svc:8080/x"),
        ("https://evil.example//@other.example/x", "http://planner.agents.svc:8080//@other.example/x"),
    ] {
        assert_eq!(endpoint(own, json!({})).as_deref(), Ok(expected), "{own}");
    }
    let path = json!({"gatepost.dev/path": "/v1/run", "gatepost.dev/scheme": "https"});
    assert_eq!(endpoint("https://evil.example/a", path).unwrap(), "https://planner.agents.svc:8080/v1/run");
    for path in ["", "v1", "/a b", "/a?b", "/a#b", "/a\\b", "/a\nb", "@evil.example/"] {
        let refused = endpoint("https://evil.example/a", json!({"gatepost.dev/path": path}));
        assert!(refused.unwrap_err().contains("gatepost.dev/path"), "{path:?}");
    }
}

#[test]
fn an_a2a_card_needs_no_address_and_cannot_lead_elsewhere() {
    let skills = json!([{"id": "plan", "name": "Plan", "description": "Plans", "tags": ["trips"]}]);
    let card = json!({"name": "Trip planner", "version": "1", "protocolVersion": "0.3.0", "skills": skills});
    let document = document_of(one_port(), annotated(&card)).unwrap();
    assert_eq!(document["endpoint"], "http://planner.agents.svc:8080/");
    assert_eq!((&document["id"], &document["operations"][0]["name"]), (&json!("planner"), &json!("plan")));
    let mut elsewhere = card;
    elsewhere["url"] = json!("https://evil.example/a2a");
    let document = document_of(one_port(), annotated(&elsewhere)).unwrap();
    assert_eq!(document["endpoint"], "http://planner.agents.svc:8080/a2a");
}

fn signer() -> SigningKey {
    let pem = rcgen::KeyPair::generate_for(&rcgen::PKCS_ED25519).unwrap().serialize_pem();
    SigningKey::from_pem(&pem).unwrap()
}

fn requiring_signatures_of(signer: &SigningKey) -> SignaturePolicy {
    let trusted_keys = Some(Arc::new(TrustedKeys::from_jwks(&signer.jwks()).unwrap()));
    SignaturePolicy { trusted_keys, require_signature: true, ..SignaturePolicy::default() }
}

#[test]
fn where_signatures_are_required_a_service_without_a_document_is_refused() {
    let policy = requiring_signatures_of(&signer());
    for annotations in [json!({}), annotated(&json!({"id": "planner", "name": "Planner"}))] {
        let refused = signed_document_of(policy.clone(), one_port(), annotations).unwrap_err();
        assert!(refused.contains("require_signature"), "{refused}");
    }
}

#[test]
fn a_signed_document_needs_no_address_and_counts_only_as_it_was_signed() {
    let signer = signer();
    let skills = json!([{"id": "plan", "name": "Plan", "description": "Plans", "tags": ["trips"]}]);
    let card = json!({"name": "Trip planner", "description": "x", "version": "1", "protocolVersion": "0.3.0", "skills": skills});
    for mut document in [card, json!({"id": "trip", "name": "Trip"})] {
        signer.sign_card(&mut document, "https://publisher.example/keys");
        let built = signed_document_of(requiring_signatures_of(&signer), one_port(), annotated(&document)).unwrap();
        assert_eq!(built["endpoint"], "http://planner.agents.svc:8080/");
        let mut changed = document.clone();
        changed["name"] = "Another".into();
        let mut with_address = document;
        with_address["supportedInterfaces"] = json!([{"url": "http://planner.agents.svc:8080/"}]);
        for changed in [changed, with_address] {
            let refused = signed_document_of(requiring_signatures_of(&signer), one_port(), annotated(&changed));
            assert!(refused.unwrap_err().contains("signatures"), "{changed}");
        }
    }
}

#[test]
fn unusable_services_and_documents_are_refused_with_the_reason() {
    let two_ports = || json!({"ports": [{"name": "http", "port": 80}, {"name": "admin", "port": 9901}]});
    let both = json!({"gatepost.dev/document": "{}", "gatepost.dev/document-config-map": "x"});
    for (spec, annotations, reason) in [
        (json!({"type": "ExternalName", "externalName": "evil.example"}), json!({}), "ExternalName"),
        (json!({}), json!({}), "no TCP port"),
        (json!({"ports": [{"name": "dns", "port": 53, "protocol": "UDP"}]}), json!({}), "no TCP port"),
        (two_ports(), json!({}), "has 2 ports"),
        (two_ports(), json!({"gatepost.dev/port": "grpc"}), "gatepost.dev/port"),
        (one_port(), json!({"gatepost.dev/scheme": "agent+matrix"}), "gatepost.dev/scheme"),
        (one_port(), both, "both"),
        (one_port(), json!({"gatepost.dev/document-config-map": "x"}), "the ConfigMap x does not exist"),
        (one_port(), json!({"gatepost.dev/document": ""}), "empty"),
        (one_port(), json!({"gatepost.dev/document": "[]"}), "one document"),
        (one_port(), json!({"gatepost.dev/document": "[{}, {}]"}), "one document"),
        (one_port(), json!({"gatepost.dev/document": "{\"id\": "}), ""),
        (one_port(), json!({"gatepost.dev/document": "just words"}), ""),
    ] {
        let refused = document_of(spec.clone(), annotations.clone());
        let why = refused.expect_err(&format!("{spec} {annotations}"));
        assert!(why.starts_with("Service planner: ") && why.contains(reason), "{why}");
    }
    let document = document_of(two_ports(), json!({"gatepost.dev/port": "9901"})).unwrap();
    assert_eq!(document["endpoint"], "http://planner.agents.svc:9901/");
}

#[test]
fn the_port_says_which_scheme_it_has() {
    for (port, expected) in [
        (json!({"port": 443}), "https"),
        (json!({"port": 8443, "name": "https"}), "https"),
        (json!({"port": 8443, "appProtocol": "https"}), "https"),
        (json!({"port": 443, "appProtocol": "http"}), "http"),
        (json!({"port": 80, "appProtocol": "kubernetes.io/ws"}), "ws"),
        (json!({"port": 80}), "http"),
    ] {
        let endpoint = document_of(json!({"ports": [port]}), json!({})).unwrap()["endpoint"].to_string();
        assert!(endpoint.starts_with(&format!("\"{expected}://planner.agents.svc:")), "{endpoint}");
    }
}

#[test]
fn a_port_of_a_slice_that_is_no_port_hides_neither_its_endpoints_at_others_nor_other_slices() {
    let mut odd = slice_of("IPv4", json!([{"addresses": ["10.0.0.1"]}]));
    for number in [70_000, -1, 0, i64::MAX] {
        odd["ports"] = json!([{"name": "odd", "port": number}, {"name": "http", "port": 9000}]);
        assert_eq!(select(&[odd.clone()], None, None), [("10.0.0.1:9000".to_owned(), true)]);
        odd["ports"] = json!([{"name": "http", "port": number}]);
        assert!(select(&[odd.clone()], None, None).is_empty());
    }
}

#[test]
fn objects_with_names_that_are_no_dns_names_are_refused() {
    let is_valid = |kind: ResourceKind, namespace: &str, name: &str| {
        let object = json!({"metadata": {"name": name, "namespace": namespace}});
        let text = serde_json::value::RawValue::from_string(object.to_string()).unwrap();
        ReceivedObject::parse(kind, &text).is_ok()
    };
    let [services, slices, maps] = ResourceKind::ALL;
    let (label, long) = ("x".repeat(63), "x".repeat(64));
    for name in ["planner", "0", "a-b", &label] {
        assert!(is_valid(services, "agents", name) && is_valid(services, name, "planner"), "{name}");
    }
    for name in ["planner-x7.v1", "planner", &long] {
        assert!(is_valid(slices, "agents", name) && is_valid(maps, "agents", name), "{name}");
    }
    for name in ["", "-a", "a-", "A", "a_b", "a/b", "a@b", "evil.example", "a:1", "a#", "a?", "ä", "a b", "..", &long]
    {
        assert!(!is_valid(services, "agents", name) && !is_valid(services, name, "planner"), "{name}");
    }
    for name in ["", ".", "a..b", ".a", "a.", "a.-b", "A.b", "a/b", &"x".repeat(254)] {
        assert!(!is_valid(slices, "agents", name) && !is_valid(maps, "agents", name), "{name}");
    }
}

/// A feed whose API server does not exist.
fn feed() -> KubernetesFeed {
    let remote = json!({"kind": "kubernetes", "name": "cluster", "url": "http://127.0.0.1:9", "kubernetes": {"namespaces": ["agents"]}});
    KubernetesFeed::new(&serde_json::from_value(remote).unwrap(), &NetworkConfig::default()).unwrap()
}

#[tokio::test]
async fn documents_are_built_on_the_one_thread_that_all_sources_share() {
    let (release, released) = std::sync::mpsc::channel::<()>();
    let other = tokio::spawn(run_classification(move || released.recv()));
    tokio::task::yield_now().await;
    let mut feed = feed();
    assert!(tokio::time::timeout(Duration::from_millis(200), feed.poll()).await.is_err());
    release.send(()).unwrap();
    other.await.unwrap().unwrap().unwrap();
    assert!(feed.poll().await.error.is_some());
}

#[test]
fn settings_that_cannot_be_used_are_named() {
    let problems = |namespaces: &[&str], selector: &str, zone: Option<&str>| {
        let settings = KubernetesSourceConfig {
            namespaces: namespaces.iter().map(ToString::to_string).collect(),
            label_selector: selector.to_owned(),
            zone: zone.map(str::to_owned),
            ..KubernetesSourceConfig::default()
        };
        settings.problems().join("; ")
    };
    assert_eq!(problems(&[], "app in (a, b)", Some("zone-a")), "");
    assert_eq!(problems(&["*"], "a=b", None), "");
    let many: Vec<String> = (0..51).map(|at| format!("n{at}")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    for (namespaces, selector, zone, reason) in [
        (&["*", "a"][..], "a", None, "list it alone"),
        (&["../secrets"], "a", None, "namespaces[0]"),
        (&["-a"], "a", None, "namespaces[0]"),
        (&["a", "a"], "a", None, "listed twice"),
        (&many, "a", None, "at most 50"),
        (&[], "", None, "label_selector"),
        (&[], "a\nb", None, "label_selector"),
        (&[], "a", Some(""), "zone"),
    ] {
        assert!(problems(namespaces, selector, zone).contains(reason), "{namespaces:?} {selector:?} {zone:?}");
    }
}
