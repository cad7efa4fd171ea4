//! The MQTT feed: valid and invalid statuses, and brokers that are scripted byte by byte.
//! `tests/it/external/mqtt_feed.rs` uses a real broker.

mod config;
mod misbehaving_brokers;
mod status_message;
mod status_table;

use super::*;
use crate::registry::feed::{DocumentBody, PartUpdate};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Returns a status message.
fn status_payload(id: &str, status: &str) -> Value {
    json!({"agent_id": id, "status": status, "timestamp": "2026-11-22T03:00:00Z"})
}

/// Returns the update of each part: `active`, `unavailable`, `broken: why`, `kept: why`, `steady` or `gone`.
fn updates(result: &PollResult) -> BTreeMap<String, String> {
    let part = |part: &crate::registry::FeedPart| (part.name.to_string(), describe_update(&part.update));
    result.parts.iter().map(part).collect()
}

fn describe_update(update: &PartUpdate) -> String {
    match update {
        PartUpdate::Replaced(documents) => {
            let statuses: Vec<_> = documents
                .iter()
                .map(|document| match &document.body {
                    DocumentBody::Text(text) => {
                        serde_json::from_slice::<Value>(text).unwrap()["status"].as_str().unwrap().to_owned()
                    }
                    DocumentBody::Value(value) => value["status"].to_string(),
                    DocumentBody::Invalid(why) | DocumentBody::Unsupported(why) => format!("broken: {why}"),
                })
                .collect();
            statuses.join(" ")
        }
        PartUpdate::Unreadable(why) => format!("kept: {why}"),
        PartUpdate::ReadableAgain => "steady".to_owned(),
        PartUpdate::Removed => "gone".to_owned(),
    }
}

/// Asserts the updates of a poll result.
fn assert_updates(result: &PollResult, expected: &[(&str, &str)]) {
    let expected: BTreeMap<String, String> =
        expected.iter().map(|(name, update)| ((*name).to_owned(), (*update).to_owned())).collect();
    assert_eq!(updates(result), expected);
}
