//! The status table: what it reports, and when.

use super::*;
use crate::registry::mqtt_feed::status_table::StatusTable;

const OVERFLOW: &str = "/control/agents/+/status";
const LONG: Duration = Duration::from_secs(10);

/// A table whose retained statuses are complete.
async fn connected_table(max_agents: usize) -> StatusTable {
    let table = StatusTable::new("mqtt://127.0.0.1:1883".to_owned(), max_agents);
    table.record_connected();
    table.record_subscribed();
    table.wait_until_complete(LONG).await;
    table
}

fn receive_status(table: &StatusTable, id: &str, status: &str) {
    receive(table, id, status_payload(id, status).to_string().as_bytes());
}

fn receive(table: &StatusTable, id: &str, payload: &[u8]) {
    table.process_message(format!("/control/agents/{id}/status").as_bytes(), payload, false);
}

/// Receives a retained status.
fn receive_retained(table: &StatusTable, id: &str) {
    table.process_message(
        format!("/control/agents/{id}/status").as_bytes(),
        status_payload(id, "available").to_string().as_bytes(),
        true,
    );
}

/// Polls, and acknowledges the result.
fn poll_and_acknowledge(table: &StatusTable) -> PollResult {
    let result = table.take_report();
    table.acknowledge();
    result
}

/// Reconnects.
fn reconnect(table: &StatusTable) {
    table.record_disconnected("it went away".to_owned());
    table.record_connected();
    table.record_subscribed();
}

#[tokio::test(start_paused = true)]
async fn r134_retained_statuses_are_the_directory() {
    let table = connected_table(10).await;
    receive_status(&table, "a", "available");
    receive_status(&table, "b", "unavailable");
    assert_updates(&poll_and_acknowledge(&table), &[("a", "active"), ("b", "unavailable")]);
    assert_updates(&poll_and_acknowledge(&table), &[]);
}

#[tokio::test(start_paused = true)]
async fn r119_an_unavailable_agent_keeps_its_document() {
    let table = connected_table(10).await;
    let mut payload = status_payload("a", "available");
    payload["capabilities"] = json!(["plan"]);
    receive(&table, "a", payload.to_string().as_bytes());
    poll_and_acknowledge(&table);
    receive_status(&table, "a", "unavailable");
    let result = poll_and_acknowledge(&table);
    assert_updates(&result, &[("a", "unavailable")]);
    let PartUpdate::Replaced(documents) = &result.parts[0].update else { panic!() };
    let DocumentBody::Text(text) = &documents[0].body else { panic!() };
    assert_eq!(serde_json::from_slice::<Value>(text).unwrap()["capabilities"], json!(["plan"]));
    receive_status(&table, "a", "available");
    assert_updates(&poll_and_acknowledge(&table), &[("a", "active")]);
}

#[tokio::test(start_paused = true)]
async fn r118_the_last_status_to_arrive_counts_whatever_its_timestamp() {
    let table = connected_table(10).await;
    receive(&table, "a", br#"{"agent_id":"a","status":"available","timestamp":"2030-01-01T00:00:00Z"}"#);
    poll_and_acknowledge(&table);
    receive(&table, "a", br#"{"agent_id":"a","status":"unavailable","timestamp":"2020-01-01T00:00:00Z"}"#);
    assert_updates(&poll_and_acknowledge(&table), &[("a", "unavailable")]);
}

#[tokio::test(start_paused = true)]
async fn a_heartbeat_is_not_an_update() {
    let table = connected_table(10).await;
    receive_status(&table, "a", "available");
    poll_and_acknowledge(&table);
    receive(&table, "a", br#"{"agent_id":"a","status":"available","timestamp":"2026-11-22T04:00:00Z"}"#);
    assert_updates(&poll_and_acknowledge(&table), &[]);
}

#[tokio::test(start_paused = true)]
async fn flapping_between_two_polls_is_one_update() {
    let table = connected_table(10).await;
    for _ in 0..500 {
        receive_status(&table, "a", "available");
        receive_status(&table, "a", "unavailable");
    }
    assert_updates(&poll_and_acknowledge(&table), &[("a", "unavailable")]);
}

#[tokio::test(start_paused = true)]
async fn an_invalid_status_keeps_the_agents_document() {
    let table = connected_table(10).await;
    receive_status(&table, "a", "available");
    receive_status(&table, "b", "available");
    poll_and_acknowledge(&table);
    receive(&table, "a", b"garbage");
    receive(&table, "c", b"garbage");
    let result = poll_and_acknowledge(&table);
    assert_eq!(result.parts.len(), 2);
    assert!(updates(&result)["a"].starts_with("kept: the status is not JSON"), "{result:?}");
    assert!(updates(&result)["c"].starts_with("broken: the status is not JSON"), "{result:?}");
    receive_status(&table, "a", "available");
    assert_updates(&poll_and_acknowledge(&table), &[("a", "active")]);
}

#[tokio::test(start_paused = true)]
async fn a_document_and_a_later_invalid_status_are_both_reported() {
    let table = connected_table(10).await;
    poll_and_acknowledge(&table);
    receive_status(&table, "a", "available");
    receive(&table, "a", b"garbage");
    let first = poll_and_acknowledge(&table);
    assert_updates(&first, &[("a", "active")]);
    assert!(first.poll_soon);
    assert!(updates(&poll_and_acknowledge(&table))["a"].starts_with("kept: "));
    assert_updates(&poll_and_acknowledge(&table), &[]);
}

#[tokio::test(start_paused = true)]
async fn r113_a_status_for_another_agent_is_rejected() {
    let table = connected_table(10).await;
    receive(&table, "a", status_payload("b", "available").to_string().as_bytes());
    assert_updates(&poll_and_acknowledge(&table), &[("a", "broken: agent_id: must be 'a', as in the topic, not 'b'")]);
}

#[tokio::test(start_paused = true)]
async fn r108_invalid_ids_are_reported_by_a_truncated_name() {
    let table = connected_table(10).await;
    let id = "ä".repeat(30_000);
    receive(&table, &id, b"{}");
    let result = poll_and_acknowledge(&table);
    assert!(result.parts[0].name.chars().count() <= 129);
    assert!(describe_update(&result.parts[0].update).starts_with("broken: the agent id in the topic"));
}

#[tokio::test(start_paused = true)]
async fn a_cleared_status_removes_its_agent() {
    let table = connected_table(10).await;
    receive_status(&table, "a", "available");
    poll_and_acknowledge(&table);
    receive(&table, "a", b"");
    receive(&table, "never-known", b"");
    assert_updates(&poll_and_acknowledge(&table), &[("a", "gone")]);
    receive_status(&table, "a", "available");
    assert_updates(&poll_and_acknowledge(&table), &[("a", "active")]);
}

#[tokio::test(start_paused = true)]
async fn other_topics_and_invalid_topics_are_ignored() {
    let table = connected_table(10).await;
    poll_and_acknowledge(&table);
    table.process_message(b"/control/agents/a/input", status_payload("a", "available").to_string().as_bytes(), true);
    table.process_message(
        b"/control/agents/\xff/status",
        status_payload("a", "available").to_string().as_bytes(),
        true,
    );
    table.process_message(b"", b"", false);
    assert_updates(&poll_and_acknowledge(&table), &[]);
}

#[tokio::test(start_paused = true)]
async fn an_unacknowledged_update_is_reported_again() {
    let table = connected_table(10).await;
    receive_status(&table, "a", "available");
    receive_status(&table, "b", "available");
    assert_updates(&table.take_report(), &[("a", "active"), ("b", "active")]);
    receive(&table, "b", b"");
    receive_status(&table, "c", "available");
    assert_updates(&table.take_report(), &[("a", "active"), ("b", "gone"), ("c", "active")]);
    table.acknowledge();
    assert_updates(&table.take_report(), &[]);
}

#[tokio::test(start_paused = true)]
async fn updates_during_a_poll_are_delivered_by_the_next_poll() {
    let table = connected_table(10).await;
    receive_status(&table, "a", "available");
    let _ = table.take_report();
    receive_status(&table, "a", "unavailable");
    table.acknowledge();
    assert_updates(&poll_and_acknowledge(&table), &[("a", "unavailable")]);
}

#[tokio::test(start_paused = true)]
async fn the_first_complete_poll_reports_everything() {
    let table = StatusTable::new("mqtt://127.0.0.1:1883".to_owned(), 10);
    table.record_connected();
    receive_retained(&table, "early");
    table.record_subscribed();
    receive_retained(&table, "a");
    let early = poll_and_acknowledge(&table);
    assert!(early.error.is_some() && early.poll_soon, "{early:?}");
    assert_updates(&early, &[("early", "active"), ("a", "active")]);
    table.wait_until_complete(LONG).await;
    let complete = poll_and_acknowledge(&table);
    assert!(complete.error.is_none());
    assert_updates(&complete, &[("early", "active"), ("a", "active")]);
    assert_updates(&poll_and_acknowledge(&table), &[]);
}

#[tokio::test(start_paused = true)]
async fn a_lost_broker_is_an_error_and_removes_no_agent() {
    let table = connected_table(10).await;
    receive_status(&table, "a", "available");
    poll_and_acknowledge(&table);
    table.record_disconnected("it went away".to_owned());
    for _ in 0..3 {
        let result = poll_and_acknowledge(&table);
        assert_eq!(result.error.as_deref(), Some("it went away"));
        assert_updates(&result, &[]);
    }
    reconnect(&table);
    assert!(poll_and_acknowledge(&table).error.is_none());
}

#[tokio::test(start_paused = true)]
async fn agents_missing_after_a_reconnect_are_removed_after_the_resync_timeout() {
    let table = connected_table(10).await;
    for id in ["a", "b", "broken"] {
        receive_status(&table, id, "available");
    }
    receive(&table, "broken", b"garbage");
    poll_and_acknowledge(&table);
    poll_and_acknowledge(&table);
    reconnect(&table);
    receive_status(&table, "b", "available");
    assert_updates(&poll_and_acknowledge(&table), &[]);
    table.remove_missing_agents();
    assert_updates(&poll_and_acknowledge(&table), &[("a", "gone"), ("broken", "gone")]);
}

#[tokio::test(start_paused = true)]
async fn a_second_reconnect_restarts_the_resync_timeout() {
    let table = connected_table(10).await;
    receive_status(&table, "a", "available");
    poll_and_acknowledge(&table);
    reconnect(&table);
    reconnect(&table);
    receive_status(&table, "a", "available");
    table.remove_missing_agents();
    assert_updates(&poll_and_acknowledge(&table), &[]);
}

#[tokio::test(start_paused = true)]
async fn agents_beyond_the_maximum_are_rejected_and_the_others_stay() {
    let table = connected_table(3).await;
    for id in ["a", "b", "c", "d", "e"] {
        receive_status(&table, id, "available");
    }
    receive(&table, "f", b"garbage");
    let result = poll_and_acknowledge(&table);
    assert_eq!(
        updates(&result)[OVERFLOW],
        "kept: more agents publish a status than fit (at most 3 agents and 256 MiB together)"
    );
    assert_eq!(result.parts.len(), 4);
    receive_status(&table, "g", "available");
    receive_status(&table, "a", "unavailable");
    assert_updates(&poll_and_acknowledge(&table), &[("a", "unavailable")]);
    reconnect(&table);
    for id in ["a", "b"] {
        receive_status(&table, id, "available");
    }
    table.remove_missing_agents();
    assert_updates(&poll_and_acknowledge(&table), &[("a", "active"), ("c", "gone"), (OVERFLOW, "gone")]);
}

#[tokio::test(start_paused = true)]
async fn bytes_are_bounded_over_all_agents() {
    let table = StatusTable::with_max_bytes("mqtt://127.0.0.1:1883".to_owned(), 100, 10_000);
    table.record_connected();
    table.record_subscribed();
    table.wait_until_complete(LONG).await;
    let mut payload = status_payload("x", "available");
    payload["x"] = json!("x".repeat(1_000));
    for number in 0..20 {
        payload["agent_id"] = json!(format!("a{number}"));
        receive(&table, &format!("a{number}"), payload.to_string().as_bytes());
    }
    let result = poll_and_acknowledge(&table);
    assert!(updates(&result)[OVERFLOW].starts_with("kept: more agents"));
    assert_eq!(result.parts.len(), 1 + 9, "nine documents of a little more than 1,000 bytes fit");
    // A document in force may not grow beyond the bound either: the previous one stays.
    payload["agent_id"] = json!("a0");
    payload["x"] = json!("x".repeat(5_000));
    receive(&table, "a0", payload.to_string().as_bytes());
    assert_updates(&poll_and_acknowledge(&table), &[]);
    for number in 0..20 {
        receive(&table, &format!("a{number}"), b"");
    }
    receive_status(&table, "late", "available");
    assert_eq!(updates(&poll_and_acknowledge(&table))["late"], "active");
}

#[tokio::test(start_paused = true)]
async fn an_update_wakes_the_poller_and_a_heartbeat_does_not() {
    let table = connected_table(10).await;
    receive_status(&table, "a", "available");
    table.wait_for_update().await;
    poll_and_acknowledge(&table);
    receive_status(&table, "a", "available");
    let woken = tokio::time::timeout(Duration::from_secs(60), table.wait_for_update()).await;
    assert!(woken.is_err(), "a heartbeat woke the poller");
    table.record_disconnected("it went away".to_owned());
    table.wait_for_update().await;
}

#[tokio::test(start_paused = true)]
async fn an_early_poll_wakes_the_poller_once_the_statuses_are_complete() {
    let table = StatusTable::new("mqtt://127.0.0.1:1883".to_owned(), 10);
    table.record_connected();
    table.record_subscribed();
    receive_retained(&table, "a");
    table.wait_for_update().await;
    assert!(poll_and_acknowledge(&table).error.is_some());
    let began = tokio::time::Instant::now();
    table.wait_for_update().await;
    assert!(began.elapsed() < Duration::from_secs(1), "{:?}", began.elapsed());
    assert!(poll_and_acknowledge(&table).error.is_none());
    let woken = tokio::time::timeout(Duration::from_secs(60), table.wait_for_update()).await;
    assert!(woken.is_err(), "the poller wakes without an update");
}

#[tokio::test(start_paused = true)]
async fn discarded_updates_are_reported_again_with_removals() {
    let table = connected_table(10).await;
    receive_status(&table, "a", "available");
    receive_status(&table, "b", "available");
    poll_and_acknowledge(&table);
    receive_status(&table, "c", "unavailable");
    receive(&table, "b", b"");
    assert_updates(&table.take_report(), &[("b", "gone"), ("c", "unavailable")]);
    table.discard_report();
    assert_updates(&poll_and_acknowledge(&table), &[("a", "active"), ("b", "gone"), ("c", "unavailable")]);
    assert_updates(&poll_and_acknowledge(&table), &[]);
}

#[tokio::test(start_paused = true)]
async fn the_first_poll_waits_for_a_bounded_time() {
    let table = StatusTable::new("mqtt://127.0.0.1:1883".to_owned(), 10);
    let began = tokio::time::Instant::now();
    table.wait_until_complete(LONG).await;
    assert_eq!(began.elapsed(), LONG);
    assert!(poll_and_acknowledge(&table).error.is_some());
    table.record_disconnected("connection refused".to_owned());
    table.wait_until_complete(LONG).await;
    assert_eq!(began.elapsed(), LONG, "a lost broker is known at once");
}
