//! The status table: what it reports, and when.

use super::*;
use crate::registry::mqtt_feed::status_table::StatusTable;

const BEYOND: &str = "/control/agents/+/status";
const LONG: Duration = Duration::from_secs(10);

/// A table whose retained statuses are complete.
async fn connected_table(most: usize) -> StatusTable {
    let board = StatusTable::new("mqtt://127.0.0.1:1883".to_owned(), most);
    board.record_connected();
    board.record_subscribed();
    board.wait_until_complete(LONG).await;
    board
}

fn receive_status(board: &StatusTable, id: &str, status: &str) {
    receive(board, id, status_payload(id, status).to_string().as_bytes());
}

fn receive(board: &StatusTable, id: &str, payload: &[u8]) {
    board.process_message(format!("/control/agents/{id}/status").as_bytes(), payload, false);
}

/// Receives a retained status.
fn receive_retained(board: &StatusTable, id: &str) {
    board.process_message(
        format!("/control/agents/{id}/status").as_bytes(),
        status_payload(id, "available").to_string().as_bytes(),
        true,
    );
}

/// Polls, and acknowledges the result.
fn poll_and_acknowledge(board: &StatusTable) -> PollResult {
    let change = board.take_report();
    board.acknowledge();
    change
}

/// Reconnects.
fn reconnect(board: &StatusTable) {
    board.record_disconnected("it went away".to_owned());
    board.record_connected();
    board.record_subscribed();
}

#[tokio::test(start_paused = true)]
async fn r134_retained_statuses_are_the_directory() {
    let board = connected_table(10).await;
    receive_status(&board, "a", "available");
    receive_status(&board, "b", "unavailable");
    assert_updates(&poll_and_acknowledge(&board), &[("a", "active"), ("b", "inactive")]);
    assert_updates(&poll_and_acknowledge(&board), &[]);
}

#[tokio::test(start_paused = true)]
async fn r119_an_unavailable_agent_keeps_its_document_and_is_inactive() {
    let board = connected_table(10).await;
    let mut payload = status_payload("a", "available");
    payload["capabilities"] = json!(["plan"]);
    receive(&board, "a", payload.to_string().as_bytes());
    poll_and_acknowledge(&board);
    receive_status(&board, "a", "unavailable");
    let change = poll_and_acknowledge(&board);
    assert_updates(&change, &[("a", "inactive")]);
    let PartUpdate::Replaced(documents) = &change.parts[0].update else { panic!() };
    let DocumentBody::Text(text) = &documents[0].body else { panic!() };
    assert_eq!(serde_json::from_slice::<Value>(text).unwrap()["capabilities"], json!(["plan"]));
    receive_status(&board, "a", "available");
    assert_updates(&poll_and_acknowledge(&board), &[("a", "active")]);
}

#[tokio::test(start_paused = true)]
async fn r118_the_last_status_to_arrive_counts_whatever_its_timestamp() {
    let board = connected_table(10).await;
    receive(&board, "a", br#"{"agent_id":"a","status":"available","timestamp":"2030-01-01T00:00:00Z"}"#);
    poll_and_acknowledge(&board);
    receive(&board, "a", br#"{"agent_id":"a","status":"unavailable","timestamp":"2020-01-01T00:00:00Z"}"#);
    assert_updates(&poll_and_acknowledge(&board), &[("a", "inactive")]);
}

#[tokio::test(start_paused = true)]
async fn a_heartbeat_is_not_an_update() {
    let board = connected_table(10).await;
    receive_status(&board, "a", "available");
    poll_and_acknowledge(&board);
    receive(&board, "a", br#"{"agent_id":"a","status":"available","timestamp":"2026-11-22T04:00:00Z"}"#);
    assert_updates(&poll_and_acknowledge(&board), &[]);
}

#[tokio::test(start_paused = true)]
async fn flapping_between_two_polls_is_one_update() {
    let board = connected_table(10).await;
    for _ in 0..500 {
        receive_status(&board, "a", "available");
        receive_status(&board, "a", "unavailable");
    }
    assert_updates(&poll_and_acknowledge(&board), &[("a", "inactive")]);
}

#[tokio::test(start_paused = true)]
async fn an_invalid_status_keeps_the_agents_document() {
    let board = connected_table(10).await;
    receive_status(&board, "a", "available");
    receive_status(&board, "b", "available");
    poll_and_acknowledge(&board);
    receive(&board, "a", b"garbage");
    receive(&board, "c", b"garbage");
    let change = poll_and_acknowledge(&board);
    assert_eq!(change.parts.len(), 2);
    assert!(updates(&change)["a"].starts_with("kept: the status is not JSON"), "{change:?}");
    assert!(updates(&change)["c"].starts_with("broken: the status is not JSON"), "{change:?}");
    receive_status(&board, "a", "available");
    assert_updates(&poll_and_acknowledge(&board), &[("a", "active")]);
}

#[tokio::test(start_paused = true)]
async fn a_document_and_a_later_invalid_status_are_both_reported() {
    let board = connected_table(10).await;
    poll_and_acknowledge(&board);
    receive_status(&board, "a", "available");
    receive(&board, "a", b"garbage");
    let first = poll_and_acknowledge(&board);
    assert_updates(&first, &[("a", "active")]);
    assert!(first.poll_soon);
    assert!(updates(&poll_and_acknowledge(&board))["a"].starts_with("kept: "));
    assert_updates(&poll_and_acknowledge(&board), &[]);
}

#[tokio::test(start_paused = true)]
async fn r113_a_status_for_another_agent_is_rejected() {
    let board = connected_table(10).await;
    receive(&board, "a", status_payload("b", "available").to_string().as_bytes());
    assert_updates(&poll_and_acknowledge(&board), &[("a", "broken: agent_id: must be 'a', as in the topic, not 'b'")]);
}

#[tokio::test(start_paused = true)]
async fn r108_invalid_ids_are_reported_by_a_truncated_name() {
    let board = connected_table(10).await;
    let id = "ä".repeat(30_000);
    receive(&board, &id, b"{}");
    let change = poll_and_acknowledge(&board);
    assert!(change.parts[0].name.chars().count() <= 129);
    assert!(describe_update(&change.parts[0].update).starts_with("broken: the agent id in the topic"));
}

#[tokio::test(start_paused = true)]
async fn a_cleared_status_removes_its_agent() {
    let board = connected_table(10).await;
    receive_status(&board, "a", "available");
    poll_and_acknowledge(&board);
    receive(&board, "a", b"");
    receive(&board, "never-known", b"");
    assert_updates(&poll_and_acknowledge(&board), &[("a", "gone")]);
    receive_status(&board, "a", "available");
    assert_updates(&poll_and_acknowledge(&board), &[("a", "active")]);
}

#[tokio::test(start_paused = true)]
async fn other_topics_and_invalid_topics_are_ignored() {
    let board = connected_table(10).await;
    poll_and_acknowledge(&board);
    board.process_message(b"/control/agents/a/input", status_payload("a", "available").to_string().as_bytes(), true);
    board.process_message(
        b"/control/agents/\xff/status",
        status_payload("a", "available").to_string().as_bytes(),
        true,
    );
    board.process_message(b"", b"", false);
    assert_updates(&poll_and_acknowledge(&board), &[]);
}

#[tokio::test(start_paused = true)]
async fn an_unacknowledged_update_is_reported_again() {
    let board = connected_table(10).await;
    receive_status(&board, "a", "available");
    receive_status(&board, "b", "available");
    assert_updates(&board.take_report(), &[("a", "active"), ("b", "active")]);
    receive(&board, "b", b"");
    receive_status(&board, "c", "available");
    assert_updates(&board.take_report(), &[("a", "active"), ("b", "gone"), ("c", "active")]);
    board.acknowledge();
    assert_updates(&board.take_report(), &[]);
}

#[tokio::test(start_paused = true)]
async fn updates_during_a_poll_are_delivered_by_the_next_poll() {
    let board = connected_table(10).await;
    receive_status(&board, "a", "available");
    let _ = board.take_report();
    receive_status(&board, "a", "unavailable");
    board.acknowledge();
    assert_updates(&poll_and_acknowledge(&board), &[("a", "inactive")]);
}

#[tokio::test(start_paused = true)]
async fn the_first_complete_poll_reports_everything() {
    let board = StatusTable::new("mqtt://127.0.0.1:1883".to_owned(), 10);
    board.record_connected();
    receive_retained(&board, "early");
    board.record_subscribed();
    receive_retained(&board, "a");
    let half = poll_and_acknowledge(&board);
    assert!(half.error.is_some() && half.poll_soon, "{half:?}");
    assert_updates(&half, &[("early", "active"), ("a", "active")]);
    board.wait_until_complete(LONG).await;
    let whole = poll_and_acknowledge(&board);
    assert!(whole.error.is_none());
    assert_updates(&whole, &[("early", "active"), ("a", "active")]);
    assert_updates(&poll_and_acknowledge(&board), &[]);
}

#[tokio::test(start_paused = true)]
async fn a_lost_broker_is_an_error_and_removes_no_agent() {
    let board = connected_table(10).await;
    receive_status(&board, "a", "available");
    poll_and_acknowledge(&board);
    board.record_disconnected("it went away".to_owned());
    for _ in 0..3 {
        let change = poll_and_acknowledge(&board);
        assert_eq!(change.error.as_deref(), Some("it went away"));
        assert_updates(&change, &[]);
    }
    reconnect(&board);
    assert!(poll_and_acknowledge(&board).error.is_none());
}

#[tokio::test(start_paused = true)]
async fn agents_missing_after_a_reconnect_are_removed_after_the_settle_time() {
    let board = connected_table(10).await;
    for id in ["a", "b", "broken"] {
        receive_status(&board, id, "available");
    }
    receive(&board, "broken", b"garbage");
    poll_and_acknowledge(&board);
    poll_and_acknowledge(&board);
    reconnect(&board);
    receive_status(&board, "b", "available");
    assert_updates(&poll_and_acknowledge(&board), &[]);
    board.remove_missing_agents();
    assert_updates(&poll_and_acknowledge(&board), &[("a", "gone"), ("broken", "gone")]);
}

#[tokio::test(start_paused = true)]
async fn a_second_reconnect_restarts_the_settle_time() {
    let board = connected_table(10).await;
    receive_status(&board, "a", "available");
    poll_and_acknowledge(&board);
    reconnect(&board);
    reconnect(&board);
    receive_status(&board, "a", "available");
    board.remove_missing_agents();
    assert_updates(&poll_and_acknowledge(&board), &[]);
}

#[tokio::test(start_paused = true)]
async fn agents_beyond_the_maximum_are_rejected_and_the_others_stay() {
    let board = connected_table(3).await;
    for id in ["a", "b", "c", "d", "e"] {
        receive_status(&board, id, "available");
    }
    receive(&board, "f", b"garbage");
    let change = poll_and_acknowledge(&board);
    assert_eq!(
        updates(&change)[BEYOND],
        "kept: more agents publish a status than fit (at most 3 agents and 256 MiB together)"
    );
    assert_eq!(change.parts.len(), 4);
    receive_status(&board, "g", "available");
    receive_status(&board, "a", "unavailable");
    assert_updates(&poll_and_acknowledge(&board), &[("a", "inactive")]);
    reconnect(&board);
    for id in ["a", "b"] {
        receive_status(&board, id, "available");
    }
    board.remove_missing_agents();
    assert_updates(&poll_and_acknowledge(&board), &[("a", "active"), ("c", "gone"), (BEYOND, "gone")]);
}

#[tokio::test(start_paused = true)]
async fn bytes_are_bounded_over_all_agents() {
    let board = StatusTable::with_max_bytes("mqtt://127.0.0.1:1883".to_owned(), 100, 10_000);
    board.record_connected();
    board.record_subscribed();
    board.wait_until_complete(LONG).await;
    let mut payload = status_payload("x", "available");
    payload["x"] = json!("x".repeat(1_000));
    for at in 0..20 {
        payload["agent_id"] = json!(format!("a{at}"));
        receive(&board, &format!("a{at}"), payload.to_string().as_bytes());
    }
    let change = poll_and_acknowledge(&board);
    assert!(updates(&change)[BEYOND].starts_with("kept: more agents"));
    assert_eq!(change.parts.len(), 1 + 9, "nine documents of a little more than 1,000 bytes fit");
    // A document in force may not grow beyond the bound either: the previous one stays.
    payload["agent_id"] = json!("a0");
    payload["x"] = json!("x".repeat(5_000));
    receive(&board, "a0", payload.to_string().as_bytes());
    assert_updates(&poll_and_acknowledge(&board), &[]);
    for at in 0..20 {
        receive(&board, &format!("a{at}"), b"");
    }
    receive_status(&board, "late", "available");
    assert_eq!(updates(&poll_and_acknowledge(&board))["late"], "active");
}

#[tokio::test(start_paused = true)]
async fn an_update_wakes_the_poller_and_a_heartbeat_does_not() {
    let board = connected_table(10).await;
    receive_status(&board, "a", "available");
    board.wait_for_update().await;
    poll_and_acknowledge(&board);
    receive_status(&board, "a", "available");
    let woken = tokio::time::timeout(Duration::from_secs(60), board.wait_for_update()).await;
    assert!(woken.is_err(), "a heartbeat woke the poller");
    board.record_disconnected("it went away".to_owned());
    board.wait_for_update().await;
}

#[tokio::test(start_paused = true)]
async fn an_early_poll_wakes_the_poller_once_the_statuses_are_complete() {
    let board = StatusTable::new("mqtt://127.0.0.1:1883".to_owned(), 10);
    board.record_connected();
    board.record_subscribed();
    receive_retained(&board, "a");
    board.wait_for_update().await;
    assert!(poll_and_acknowledge(&board).error.is_some());
    let began = tokio::time::Instant::now();
    board.wait_for_update().await;
    assert!(began.elapsed() < Duration::from_secs(1), "{:?}", began.elapsed());
    assert!(poll_and_acknowledge(&board).error.is_none());
    let woken = tokio::time::timeout(Duration::from_secs(60), board.wait_for_update()).await;
    assert!(woken.is_err(), "the poller wakes without an update");
}

#[tokio::test(start_paused = true)]
async fn discarded_updates_are_reported_again_with_removals() {
    let board = connected_table(10).await;
    receive_status(&board, "a", "available");
    receive_status(&board, "b", "available");
    poll_and_acknowledge(&board);
    receive_status(&board, "c", "unavailable");
    receive(&board, "b", b"");
    assert_updates(&board.take_report(), &[("b", "gone"), ("c", "inactive")]);
    board.discard_report();
    assert_updates(&poll_and_acknowledge(&board), &[("a", "active"), ("b", "gone"), ("c", "inactive")]);
    assert_updates(&poll_and_acknowledge(&board), &[]);
}

#[tokio::test(start_paused = true)]
async fn the_first_poll_waits_for_a_bounded_time() {
    let board = StatusTable::new("mqtt://127.0.0.1:1883".to_owned(), 10);
    let began = tokio::time::Instant::now();
    board.wait_until_complete(LONG).await;
    assert_eq!(began.elapsed(), LONG);
    assert!(poll_and_acknowledge(&board).error.is_some());
    board.record_disconnected("nobody there".to_owned());
    board.wait_until_complete(LONG).await;
    assert_eq!(began.elapsed(), LONG, "a lost broker is known at once");
}
