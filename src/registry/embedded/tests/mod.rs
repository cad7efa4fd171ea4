//! Publishing: what is stored, and what is refused.

mod document_validation;
mod export_import;
mod published_feed;
mod write_authorization;

use super::*;
use crate::net::AddressRange;
use serde_json::{Value, json};
use tempfile::TempDir;

/// A registry in its own file; `key:one` and `key:two` may publish everything, `key:team` ids that begin with `team-`,
/// and group `admins` may change the agents of other publishers.
struct TestRegistry {
    registry: EmbeddedRegistry,
    config: PublishConfig,
    _folder: TempDir,
}

const ONE: Publisher<'static> = Publisher { id: "key:one", owner_key: "key:one", groups: &[] };
const TWO: Publisher<'static> = Publisher { id: "key:two", owner_key: "key:two", groups: &[] };
const TEAM: Publisher<'static> = Publisher { id: "key:team", owner_key: "key:team", groups: &[] };
const UNLISTED: Publisher<'static> = Publisher { id: "key:unlisted", owner_key: "key:unlisted", groups: &[] };

fn config(folder: &TempDir) -> PublishConfig {
    let publishers = json!([
        {"callers": ["key:one", "key:two"]},
        {"callers": ["key:team"], "agents": ["team-*"]},
        {"groups": ["admins"], "any_owner": true},
    ]);
    PublishConfig {
        sqlite_file: folder.path().join("store.db").into(),
        publishers: serde_json::from_value(publishers).unwrap(),
        ..PublishConfig::default()
    }
}

async fn open_registry() -> TestRegistry {
    open_registry_with(|_| {}, &[]).await
}

async fn open_registry_with(change: impl FnOnce(&mut PublishConfig), allowed: &[&str]) -> TestRegistry {
    let folder = TempDir::new().unwrap();
    let mut config = config(&folder);
    change(&mut config);
    let allowed: Vec<AddressRange> = allowed.iter().map(|range| range.parse().unwrap()).collect();
    let registry = EmbeddedRegistry::open(&config, Arc::new(AddressPolicy::new(allowed))).await.unwrap();
    TestRegistry { registry, config, _folder: folder }
}

fn document(id: &str) -> Value {
    json!({"id": id, "name": "A", "endpoint": "https://192.0.2.1/invoke"})
}

fn document_with(field: &str, value: Value) -> Value {
    let mut document = document("a");
    document[field] = value;
    document
}

fn id(text: &str) -> AgentId {
    text.parse().unwrap()
}

impl TestRegistry {
    async fn publish_new(&self, publisher: Publisher<'_>, document: Value) -> PublishedDocument {
        match self.registry.writes().publish(publisher, document).await.unwrap() {
            PublishOutcome::Created(stored) => stored,
            PublishOutcome::Updated(stored) => panic!("{stored:?}"),
        }
    }

    async fn publish_update(&self, publisher: Publisher<'_>, document: Value) -> PublishedDocument {
        match self.registry.writes().publish(publisher, document).await.unwrap() {
            PublishOutcome::Updated(stored) => stored,
            PublishOutcome::Created(stored) => panic!("{stored:?}"),
        }
    }

    /// Returns the violations of a document that is rejected, as `pointer: message`.
    async fn rejection_reasons(&self, document: Value) -> Vec<String> {
        let why = self.registry.writes().publish(ONE, document).await.unwrap_err();
        assert_eq!(why.code(), FaultCode::InvalidInput, "{why}");
        assert_eq!(why.http_status(), 400);
        why.violations().iter().map(|violation| format!("{}: {}", violation.pointer, violation.message)).collect()
    }
}

fn admins() -> Vec<Arc<str>> {
    vec!["admins".into()]
}
