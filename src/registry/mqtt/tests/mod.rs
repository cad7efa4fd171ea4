//! The MQTT feed: valid and invalid statuses, and brokers that are scripted byte by byte. `tests/it/mqtt_feed.rs` uses
//! a real broker.

mod board;
mod brokers;
mod settings;
mod status;

use super::*;
use crate::registry::feed::{Body, News};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Returns a status message.
fn says(id: &str, status: &str) -> Value {
    json!({"agent_id": id, "status": status, "timestamp": "2026-11-22T03:00:00Z"})
}

/// Returns the update of each part: `active`, `inactive`, `broken: why`, `kept: why`, `steady` or `gone`.
fn told(change: &Change) -> BTreeMap<String, String> {
    let part = |part: &crate::registry::Part| (part.name.to_string(), word(&part.news));
    change.parts.iter().map(part).collect()
}

fn word(news: &News) -> String {
    match news {
        News::Whole(documents) => {
            let words: Vec<_> = documents
                .iter()
                .map(|document| match &document.body {
                    Body::Text(text) => {
                        serde_json::from_slice::<Value>(text).unwrap()["status"].as_str().unwrap().to_owned()
                    }
                    Body::Value(value) => value["status"].to_string(),
                    Body::Broken(why) => format!("broken: {why}"),
                })
                .collect();
            words.join(" ")
        }
        News::Kept(why) => format!("kept: {why}"),
        News::Steady => "steady".to_owned(),
        News::Gone => "gone".to_owned(),
    }
}

/// Asserts the updates of a poll result.
fn is(change: &Change, expected: &[(&str, &str)]) {
    let expected: BTreeMap<String, String> =
        expected.iter().map(|(name, word)| ((*name).to_owned(), (*word).to_owned())).collect();
    assert_eq!(told(change), expected);
}
