//! Publishing: what is stored, and what is refused.

mod document_validation;
mod export_import;
mod published_feed;
mod write_authorization;

use super::*;
use crate::net::Cidr;
use serde_json::json;
use tempfile::TempDir;

/// A registry in its own file; `key:one` and `key:two` may publish everything, `key:team` ids that begin with `team-`,
/// and group `wardens` may change the agents of other publishers.
struct TestRegistry {
    registry: EmbeddedRegistry,
    config: PublishConfig,
    _folder: TempDir,
}

const ONE: Publisher<'static> = Publisher { id: "key:one", groups: &[] };
const TWO: Publisher<'static> = Publisher { id: "key:two", groups: &[] };
const TEAM: Publisher<'static> = Publisher { id: "key:team", groups: &[] };
const NOBODY: Publisher<'static> = Publisher { id: "key:nobody", groups: &[] };

fn config(folder: &TempDir) -> PublishConfig {
    let publishers = json!([
        {"callers": ["key:one", "key:two"]},
        {"callers": ["key:team"], "ids": ["team-*"]},
        {"groups": ["wardens"], "any_owner": true},
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

async fn open_registry_with(change: impl FnOnce(&mut PublishConfig), allow: &[&str]) -> TestRegistry {
    let folder = TempDir::new().unwrap();
    let mut config = config(&folder);
    change(&mut config);
    let allow: Vec<Cidr> = allow.iter().map(|range| range.parse().unwrap()).collect();
    let registry = EmbeddedRegistry::open(&config, Arc::new(AddressPolicy::new(allow))).await.unwrap();
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
    async fn created(&self, by: Publisher<'_>, document: Value) -> PublishedDocument {
        match self.registry.publish(by, document).await.unwrap() {
            PublishOutcome::Created(stored) => stored,
            PublishOutcome::Updated(stored) => panic!("{stored:?}"),
        }
    }

    async fn updated(&self, by: Publisher<'_>, document: Value) -> PublishedDocument {
        match self.registry.publish(by, document).await.unwrap() {
            PublishOutcome::Updated(stored) => stored,
            PublishOutcome::Created(stored) => panic!("{stored:?}"),
        }
    }

    /// Returns the violations of a document that is rejected, as `pointer: message`.
    async fn rejection_reasons(&self, document: Value) -> Vec<String> {
        let why = self.registry.publish(ONE, document).await.unwrap_err();
        assert_eq!(why.code(), FaultCode::InvalidInput, "{why}");
        assert_eq!(why.http_status(), 400);
        why.violations().iter().map(|broken| format!("{}: {}", broken.pointer, broken.message)).collect()
    }
}

fn wardens() -> Vec<Arc<str>> {
    vec!["wardens".into()]
}
