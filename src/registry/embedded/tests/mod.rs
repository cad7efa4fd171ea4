//! Publishing: what is stored, and what is refused.

mod archive;
mod feed;
mod judging;
mod rights;

use super::*;
use crate::net::Cidr;
use serde_json::json;
use tempfile::TempDir;

/// A registry in its own file; `key:one` and `key:two` may publish everything, `key:team` ids that begin with `team-`,
/// and group `wardens` may change the agents of other publishers.
struct Desk {
    registry: Registry,
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

async fn desk() -> Desk {
    desk_with(|_| {}, &[]).await
}

async fn desk_with(change: impl FnOnce(&mut PublishConfig), allow: &[&str]) -> Desk {
    let folder = TempDir::new().unwrap();
    let mut config = config(&folder);
    change(&mut config);
    let allow: Vec<Cidr> = allow.iter().map(|range| range.parse().unwrap()).collect();
    let registry = Registry::open(&config, Arc::new(AddressPolicy::new(allow))).await.unwrap();
    Desk { registry, config, _folder: folder }
}

fn document(id: &str) -> Value {
    json!({"id": id, "name": "A", "endpoint": "https://192.0.2.1/invoke"})
}

fn with(field: &str, value: Value) -> Value {
    let mut document = document("a");
    document[field] = value;
    document
}

fn id(text: &str) -> AgentId {
    text.parse().unwrap()
}

impl Desk {
    async fn created(&self, by: Publisher<'_>, document: Value) -> Stored {
        match self.registry.publish(by, document).await.unwrap() {
            Saved::Created(stored) => stored,
            Saved::Updated(stored) => panic!("{stored:?}"),
        }
    }

    async fn updated(&self, by: Publisher<'_>, document: Value) -> Stored {
        match self.registry.publish(by, document).await.unwrap() {
            Saved::Updated(stored) => stored,
            Saved::Created(stored) => panic!("{stored:?}"),
        }
    }

    /// Returns the violations of a document that is rejected, as `pointer: message`.
    async fn told(&self, document: Value) -> Vec<String> {
        let why = self.registry.publish(ONE, document).await.unwrap_err();
        assert_eq!(why.code(), Code::InvalidInput, "{why}");
        assert_eq!(why.http_status(), 400);
        why.broken().iter().map(|broken| format!("{}: {}", broken.pointer, broken.message)).collect()
    }
}

fn wardens() -> Vec<Arc<str>> {
    vec!["wardens".into()]
}
