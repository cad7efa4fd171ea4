//! Entry point for fuzzing: what an API server sends.

use super::{
    api_objects::{ObjectKey, ResourceKind},
    cluster_table::{ClusterTable, TableBounds},
    object_watch::{ListedObjects, ObjectWatch},
    ready_endpoints::MAX_ADDRESSES,
    service_document::DocumentBuilder,
    watch_scope::WatchScope,
};
use crate::{
    agent::{Agent, AgentEndpoint},
    net::{FetchLimits, NetworkConfig, WatchClient, WatchClientSettings},
    registry::{DocumentBody, RawDocument, signature_policy::SignaturePolicy},
    values::{ByteSize, ConfigDuration, sha256},
};

/// Bounds of the table.
const MAX_SERVICES: usize = 20;
const MAX_BYTES: usize = 64 << 10;

/// Reads lines: pages of lists (first byte S, E or C) and events (s, e or c) of Services, EndpointSlices and ConfigMaps.
/// The table stays within its bounds, and the endpoint of each document is at its Service's own host.
pub fn check_kubernetes_events(data: &[u8]) {
    let size = ByteSize::from_kib(1);
    let settings = WatchClientSettings {
        url: "http://127.0.0.1/".to_owned(),
        ca: None,
        token: None,
        mtls: None,
        limits: FetchLimits { size, time: ConfigDuration::from_secs(1) },
        max_line_size: size,
    };
    let Ok(client) = WatchClient::new(settings, &NetworkConfig::default()) else { return };
    let table =
        ClusterTable::new(TableBounds { max_services: MAX_SERVICES, max_bytes: MAX_BYTES, max_staleness: None });
    let scopes = ResourceKind::ALL.map(|kind| WatchScope { kind, namespace: None });
    table.begin(&scopes);
    for scope in &scopes {
        assert!(table.replace(scope, Vec::new()).is_ok(), "an empty list does not fit");
    }
    let watches = scopes.map(|scope| ObjectWatch { client: &client, table: &table, scope, label_selector: "" });
    for line in data.split(|byte| *byte == b'\n') {
        apply_line(&watches, line);
    }
    let builder = DocumentBuilder { signature_policy: SignaturePolicy::default(), zone: Some("zone-a".into()) };
    let services = table.take_report().services;
    assert!(services.iter().filter(|(_, objects)| objects.is_some()).count() <= MAX_SERVICES, "too many Services");
    for (key, objects) in &services {
        objects.iter().for_each(|objects| check_document(key, &builder.build(objects)));
    }
}

fn apply_line(watches: &[ObjectWatch<'_>], line: &[u8]) {
    let Some((first, text)) = line.split_first() else { return };
    let kind = match first.to_ascii_lowercase() {
        b's' => ResourceKind::Services,
        b'e' => ResourceKind::EndpointSlices,
        b'c' => ResourceKind::ConfigMaps,
        _ => return,
    };
    let Some(watch) = watches.iter().find(|watch| watch.scope.kind == kind) else { return };
    let mut version = String::new();
    let mut listed = ListedObjects::default();
    // What does not fit is refused, and the table stays as it is.
    if first.is_ascii_lowercase() {
        drop(watch.apply_event(text, &mut version));
    } else if watch.add_page(text, &mut listed).is_ok() {
        drop(watch.table.replace(&watch.scope, listed.objects));
    }
}

fn check_document(key: &ObjectKey, document: &RawDocument) {
    let text = match &document.body {
        DocumentBody::Text(text) => text,
        DocumentBody::Value(value) => return assert!(value.is_null(), "the document is no text"),
        DocumentBody::Invalid(why) | DocumentBody::Unsupported(why) => {
            return assert!(!why.is_empty(), "a Service is refused without a reason");
        }
    };
    assert!(document.addresses.len() <= MAX_ADDRESSES, "too many addresses");
    assert!(document.addresses.iter().all(|server| server.address.port() != 0), "an address without a port");
    let value: serde_json::Value = serde_json::from_slice(text).unwrap_or_default();
    let host = format!("{}.{}.svc", key.name, key.namespace);
    let endpoint = value.get("endpoint").and_then(serde_json::Value::as_str).unwrap_or_default();
    let after_host = endpoint.split_once("://").and_then(|(_, rest)| rest.strip_prefix(&host)?.strip_prefix(':'));
    let port = after_host.and_then(|rest| rest.split_once('/')).and_then(|(port, _)| port.parse::<u16>().ok());
    assert!(port.is_some(), "the endpoint is not at its Service: {endpoint}");
    match Agent::from_document(&value, sha256(text)) {
        Ok(agent) => {
            let is_at_service = match &agent.endpoint {
                AgentEndpoint::Url(url) => url.uri().host() == Some(&*host),
                _ => false,
            };
            assert!(is_at_service, "the agent is not at its Service: {endpoint}");
        }
        Err(reasons) => assert!(!reasons.is_empty(), "a document is refused without a reason"),
    }
}
