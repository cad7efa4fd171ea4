//! The cluster table: reports, bounds and failures.

use super::*;
use crate::registry::{
    feed::PartUpdate,
    kubernetes_feed::{
        cluster_table::{ClusterTable, TableBounds},
        watch_scope::WatchScope,
    },
};

fn key(name: &str) -> ObjectKey {
    ObjectKey { namespace: "agents".into(), name: name.into() }
}

fn received_service(name: &str, document: &str) -> ReceivedObject {
    let metadata =
        json!({"name": name, "namespace": "agents", "annotations": {"gatepost.dev/document": document, "other": "x"}});
    receive(ResourceKind::Services, &json!({"metadata": metadata, "spec": one_port()}))
}

fn scope(kind: ResourceKind) -> WatchScope {
    WatchScope { kind, namespace: Some("agents".into()) }
}

/// A table in which every list is complete, with these Services.
fn table(max_services: usize, max_bytes: usize, services: &[&str]) -> ClusterTable {
    let table = ClusterTable::new(TableBounds { max_services, max_bytes, max_staleness: None });
    table.begin(&ResourceKind::ALL.map(scope));
    assert!(table.take_report().result.error.is_some());
    let services = services.iter().map(|name| received_service(name, "{}")).collect();
    table.replace(&scope(ResourceKind::Services), services).unwrap();
    assert!(table.take_report().services.is_empty(), "reported before the endpoints were listed");
    table.replace(&scope(ResourceKind::EndpointSlices), Vec::new()).unwrap();
    table.replace(&scope(ResourceKind::ConfigMaps), Vec::new()).unwrap();
    table
}

/// The names of the next report, and whether each still exists.
fn report(table: &ClusterTable) -> Vec<(String, bool)> {
    let report = table.take_report();
    let mut names: Vec<_> =
        report.services.iter().map(|(key, objects)| (key.name.to_string(), objects.is_some())).collect();
    names.sort();
    names
}

#[test]
fn a_report_that_is_not_acknowledged_is_repeated_with_what_was_removed() {
    let table = table(10, 1 << 20, &["a", "b"]);
    let both = [("a".to_owned(), true), ("b".to_owned(), true)];
    assert_eq!(report(&table), both);
    assert_eq!(report(&table), both);
    table.acknowledge();
    assert!(report(&table).is_empty());
    table.remove(ResourceKind::Services, &key("a"));
    assert_eq!(report(&table), [("a".to_owned(), false)]);
    table.discard_report();
    assert_eq!(report(&table), [("a".to_owned(), false), ("b".to_owned(), true)]);
    table.acknowledge();
    let ready = json!({"addresses": ["10.0.0.1"]});
    table
        .upsert(ResourceKind::EndpointSlices, receive(ResourceKind::EndpointSlices, &slice_of("IPv4", json!([ready]))))
        .unwrap();
    assert!(report(&table).is_empty(), "endpoints of a Service that is no agent");
}

#[test]
fn a_failing_watch_is_an_error_and_its_objects_stay() {
    let table = table(10, 1 << 20, &["a"]);
    report(&table);
    table.acknowledge();
    table.record_failure(&scope(ResourceKind::EndpointSlices), "403".to_owned());
    table.upsert(ResourceKind::Services, received_service("b", "{}")).unwrap();
    let failing = table.take_report();
    assert_eq!((failing.result.error.as_deref(), failing.services.len()), (Some("403"), 1));
    table.record_watching(&scope(ResourceKind::EndpointSlices));
    assert_eq!(table.take_report().result.error, None);
}

#[tokio::test(start_paused = true)]
async fn a_failure_that_repeats_is_no_update() {
    let table = table(10, 1 << 20, &[]);
    let is_updated = async || tokio::time::timeout(Duration::from_secs(1), table.wait_for_update()).await.is_ok();
    assert!(is_updated().await);
    for (why, expected) in [("503", true), ("503", false), ("401", true), ("401", false)] {
        table.record_failure(&scope(ResourceKind::Services), why.to_owned());
        assert_eq!(is_updated().await, expected, "{why}");
        table.record_start_failure(format!("no namespace: {why}"));
        assert_eq!(is_updated().await, expected, "{why}");
    }
}

#[test]
fn services_and_bytes_beyond_the_bounds_are_refused_and_what_was_there_stays() {
    let table = table(2, 4 << 10, &["a", "b"]);
    assert!(table.upsert(ResourceKind::Services, received_service("c", "{}")).unwrap_err().contains("max_agents"));
    table.upsert(ResourceKind::Services, received_service("a", "{ }")).unwrap();
    let large = "x".repeat(5 << 10);
    assert!(table.upsert(ResourceKind::Services, received_service("a", &large)).unwrap_err().contains("MiB"));
    let listed = ["a", "b", "c"].map(|name| received_service(name, "{}")).into_iter().collect();
    assert!(table.replace(&scope(ResourceKind::Services), listed).is_err());
    assert_eq!(report(&table).len(), 2);
    table.acknowledge();
    // What was removed makes room.
    table.remove(ResourceKind::Services, &key("b"));
    table.upsert(ResourceKind::Services, received_service("c", "{}")).unwrap();
    table.begin(&[scope(ResourceKind::ConfigMaps)]);
    assert_eq!(report(&table), [("a".to_owned(), false), ("b".to_owned(), false), ("c".to_owned(), false)]);
}

fn config_map(name: &str, data: Value) -> ReceivedObject {
    receive(ResourceKind::ConfigMaps, &json!({"metadata": {"name": name, "namespace": "agents"}, "data": data}))
}

#[test]
fn a_service_that_is_not_valid_is_reported_with_the_reason_and_one_without_a_name_is_no_object() {
    let table = table(10, 1 << 20, &["a"]);
    report(&table);
    table.acknowledge();
    let spec = json!({"ports": [{"port": "x".repeat(5_000)}]});
    let odd = json!({"metadata": {"name": "a", "namespace": "agents", "resourceVersion": "7"}, "spec": spec});
    let received = receive(ResourceKind::Services, &odd);
    assert_eq!(received.resource_version, "7");
    table.upsert(ResourceKind::Services, received).unwrap();
    let report = table.take_report();
    assert_eq!((report.services.len(), report.result.error), (1, None));
    let DocumentBody::Invalid(why) = build(report.services[0].1.as_ref().unwrap()).body else { panic!("valid") };
    assert!(why.starts_with("Service a: is not valid: invalid type: string") && why.len() < 1_000, "{why}");
    for nameless in
        ["5", "{}", "{\"metadata\": {\"name\": \"a\"}}", "{\"metadata\": {\"name\": 5, \"namespace\": \"b\"}}"]
    {
        let text = serde_json::value::RawValue::from_string(nameless.to_owned()).unwrap();
        assert!(ReceivedObject::parse(ResourceKind::ConfigMaps, &text).is_err(), "{nameless}");
    }
}

#[test]
fn config_maps_and_slices_without_content_count_with_their_names() {
    let long = "x".repeat(200);
    let bare_map = |at: usize| config_map(&format!("m{at}-{long}"), json!({}));
    let bare_slice = |at: usize| {
        let metadata = json!({"name": format!("s{at}-{long}"), "namespace": "agents"});
        receive(ResourceKind::EndpointSlices, &json!({"metadata": metadata}))
    };
    let stored = |kind: ResourceKind, object: &dyn Fn(usize) -> ReceivedObject| {
        let table = table(10, 64 << 10, &[]);
        let stored = (0..1_000).take_while(|at| table.upsert(kind, object(*at)).is_ok()).count();
        let listed = (0..1_000).map(object).collect();
        assert!(table.replace(&scope(kind), listed).unwrap_err().contains("MiB"));
        stored
    };
    assert!((50..300).contains(&stored(ResourceKind::ConfigMaps, &bare_map)));
    assert!((50..300).contains(&stored(ResourceKind::EndpointSlices, &bare_slice)));
}

#[test]
fn a_change_of_a_config_map_is_a_change_of_the_services_that_name_it_then() {
    let table = table(10, 1 << 20, &["other"]);
    let naming = |name: &str, map: &str| {
        let annotations = json!({"gatepost.dev/document-config-map": map});
        let metadata = json!({"name": name, "namespace": "agents", "annotations": annotations});
        receive(ResourceKind::Services, &json!({"metadata": metadata, "spec": one_port()}))
    };
    for name in ["a", "b"] {
        table.upsert(ResourceKind::Services, naming(name, "map")).unwrap();
    }
    report(&table);
    table.acknowledge();
    table.upsert(ResourceKind::ConfigMaps, config_map("map", json!({"document": "{}"}))).unwrap();
    assert_eq!(report(&table), [("a".to_owned(), true), ("b".to_owned(), true)]);
    table.acknowledge();
    table.upsert(ResourceKind::Services, naming("a", "another")).unwrap();
    table.remove(ResourceKind::Services, &key("b"));
    report(&table);
    table.acknowledge();
    table.remove(ResourceKind::ConfigMaps, &key("map"));
    assert!(report(&table).is_empty());
    table.upsert(ResourceKind::ConfigMaps, config_map("another", json!({}))).unwrap();
    assert_eq!(report(&table), [("a".to_owned(), true)]);
}

fn scope_in(namespace: &str, kind: ResourceKind) -> WatchScope {
    WatchScope { kind, namespace: Some(namespace.into()) }
}

/// The parts that say which namespaces can be read, and the names of the Services in the next report.
fn report_of_namespaces(table: &ClusterTable) -> (Vec<(String, String)>, Vec<String>) {
    let report = table.take_report();
    assert_eq!(report.result.error, None);
    let update = |update: PartUpdate| match update {
        PartUpdate::Unreadable(why) => why,
        PartUpdate::Replaced(documents) if documents.is_empty() => "read".to_owned(),
        other => format!("{other:?}"),
    };
    let parts = report.result.parts.into_iter().map(|part| (part.name.to_string(), update(part.update)));
    let mut names: Vec<String> =
        report.services.iter().map(|(key, _)| format!("{}/{}", key.namespace, key.name)).collect();
    names.sort();
    (parts.collect(), names)
}

#[tokio::test(start_paused = true)]
async fn a_namespace_is_reported_when_all_of_its_lists_are_complete_and_another_one_may_fail() {
    let max_staleness = Some(Duration::from_secs(60));
    let table = ClusterTable::new(TableBounds { max_services: 10, max_bytes: 1 << 20, max_staleness });
    let scopes = ["agents", "other"].map(|namespace| ResourceKind::ALL.map(|kind| scope_in(namespace, kind))).concat();
    table.begin(&scopes);
    let in_other = || {
        let metadata = json!({"name": "b", "namespace": "other"});
        vec![receive(ResourceKind::Services, &json!({"metadata": metadata, "spec": one_port()}))]
    };
    let list = |kind: ResourceKind, namespace: &str, objects: Vec<ReceivedObject>| {
        table.replace(&scope_in(namespace, kind), objects).unwrap();
    };
    list(ResourceKind::Services, "agents", vec![received_service("a", "{}")]);
    list(ResourceKind::EndpointSlices, "agents", Vec::new());
    list(ResourceKind::ConfigMaps, "agents", Vec::new());
    assert!(table.take_report().result.error.unwrap().contains("not answered yet"));
    let fail = |why: &str| table.record_failure(&scope_in("other", ResourceKind::EndpointSlices), why.to_owned());
    fail("403");
    list(ResourceKind::Services, "other", in_other());
    let part = |name: &str, what: &str| (name.to_owned(), what.to_owned());
    let unreadable = (vec![part("agents", "read"), part("other", "403")], vec!["agents/a".to_owned()]);
    assert_eq!(report_of_namespaces(&table), unreadable);
    table.acknowledge();
    // Not all namespaces were read: the next report has everything again, and what it has not is removed.
    let report = table.take_report();
    assert!(report.result.replaces_all && report.services.len() == 1);
    tokio::time::advance(Duration::from_secs(61)).await;
    let expired = part("namespace other", "403 (for longer than max_staleness)");
    let (parts, names) = report_of_namespaces(&table);
    assert_eq!((&parts[..2], &names[..]), (&[part("agents", "read"), expired][..], &["agents/a".to_owned()][..]));
    assert_eq!(parts.len(), 3, "the former part is removed: {parts:?}");
    table.acknowledge();
    let slices = scope_in("other", ResourceKind::EndpointSlices);
    assert!(!table.record_watching(&slices), "what was never listed must be listed");
    list(ResourceKind::ConfigMaps, "other", Vec::new());
    assert!(report_of_namespaces(&table).1.is_empty(), "its endpoints are not listed");
    table.acknowledge();
    list(ResourceKind::EndpointSlices, "other", Vec::new());
    assert_eq!(report_of_namespaces(&table).1, ["other/b"]);
    table.acknowledge();
    assert_eq!(report_of_namespaces(&table), (Vec::new(), Vec::new()));
    // What was read is dropped when it is too old, and returns with the next list.
    fail("403");
    assert_eq!(report_of_namespaces(&table), (vec![part("other", "403")], Vec::new()));
    tokio::time::advance(Duration::from_secs(61)).await;
    assert_eq!(table.take_report().services.iter().filter(|(_, objects)| objects.is_none()).count(), 1);
    table.acknowledge();
    assert!(!table.record_watching(&slices));
    list(ResourceKind::EndpointSlices, "other", Vec::new());
    assert_eq!(report_of_namespaces(&table).1, ["other/b"]);
    table.acknowledge();
    // If no namespace can be read, the source cannot.
    fail("503");
    table.record_failure(&scope_in("agents", ResourceKind::Services), "502".to_owned());
    assert_eq!(table.take_report().result.error.as_deref(), Some("502"));
}
