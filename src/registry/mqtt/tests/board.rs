//! The status table: what it reports, and when.

use super::*;
use crate::registry::mqtt::board::Board;

const BEYOND: &str = "/control/agents/+/status";
const LONG: Duration = Duration::from_secs(10);

/// A table whose retained statuses are complete.
async fn connected(most: usize) -> Board {
    let board = Board::new("mqtt://127.0.0.1:1883".to_owned(), most);
    board.begin();
    board.granted();
    board.first(LONG).await;
    board
}

fn hear(board: &Board, id: &str, status: &str) {
    put(board, id, says(id, status).to_string().as_bytes());
}

fn put(board: &Board, id: &str, payload: &[u8]) {
    board.hear(format!("/control/agents/{id}/status").as_bytes(), payload, false);
}

/// Receives a retained status.
fn kept(board: &Board, id: &str) {
    board.hear(format!("/control/agents/{id}/status").as_bytes(), says(id, "available").to_string().as_bytes(), true);
}

/// Polls, and acknowledges the result.
fn look(board: &Board) -> Change {
    let change = board.change();
    board.taken();
    change
}

/// Reconnects.
fn again(board: &Board) {
    board.lost("it went away".to_owned());
    board.begin();
    board.granted();
}

#[tokio::test(start_paused = true)]
async fn r134_retained_statuses_are_the_directory() {
    let board = connected(10).await;
    hear(&board, "a", "available");
    hear(&board, "b", "unavailable");
    is(&look(&board), &[("a", "active"), ("b", "inactive")]);
    is(&look(&board), &[]);
}

#[tokio::test(start_paused = true)]
async fn r119_an_unavailable_agent_keeps_its_document_and_is_inactive() {
    let board = connected(10).await;
    let mut payload = says("a", "available");
    payload["capabilities"] = json!(["plan"]);
    put(&board, "a", payload.to_string().as_bytes());
    look(&board);
    hear(&board, "a", "unavailable");
    let change = look(&board);
    is(&change, &[("a", "inactive")]);
    let News::Whole(documents) = &change.parts[0].news else { panic!() };
    let Body::Text(text) = &documents[0].body else { panic!() };
    assert_eq!(serde_json::from_slice::<Value>(text).unwrap()["capabilities"], json!(["plan"]));
    hear(&board, "a", "available");
    is(&look(&board), &[("a", "active")]);
}

#[tokio::test(start_paused = true)]
async fn r118_the_last_status_to_arrive_counts_whatever_its_timestamp() {
    let board = connected(10).await;
    put(&board, "a", br#"{"agent_id":"a","status":"available","timestamp":"2030-01-01T00:00:00Z"}"#);
    look(&board);
    put(&board, "a", br#"{"agent_id":"a","status":"unavailable","timestamp":"2020-01-01T00:00:00Z"}"#);
    is(&look(&board), &[("a", "inactive")]);
}

#[tokio::test(start_paused = true)]
async fn a_heartbeat_is_not_an_update() {
    let board = connected(10).await;
    hear(&board, "a", "available");
    look(&board);
    put(&board, "a", br#"{"agent_id":"a","status":"available","timestamp":"2026-11-22T04:00:00Z"}"#);
    is(&look(&board), &[]);
}

#[tokio::test(start_paused = true)]
async fn flapping_between_two_polls_is_one_update() {
    let board = connected(10).await;
    for _ in 0..500 {
        hear(&board, "a", "available");
        hear(&board, "a", "unavailable");
    }
    is(&look(&board), &[("a", "inactive")]);
}

#[tokio::test(start_paused = true)]
async fn an_invalid_status_keeps_the_agents_document() {
    let board = connected(10).await;
    hear(&board, "a", "available");
    hear(&board, "b", "available");
    look(&board);
    put(&board, "a", b"garbage");
    put(&board, "c", b"garbage");
    let change = look(&board);
    assert_eq!(change.parts.len(), 2);
    assert!(told(&change)["a"].starts_with("kept: the status is not JSON"), "{change:?}");
    assert!(told(&change)["c"].starts_with("broken: the status is not JSON"), "{change:?}");
    hear(&board, "a", "available");
    is(&look(&board), &[("a", "active")]);
}

#[tokio::test(start_paused = true)]
async fn a_document_and_a_later_invalid_status_are_both_reported() {
    let board = connected(10).await;
    look(&board);
    hear(&board, "a", "available");
    put(&board, "a", b"garbage");
    let first = look(&board);
    is(&first, &[("a", "active")]);
    assert!(first.soon);
    assert!(told(&look(&board))["a"].starts_with("kept: "));
    is(&look(&board), &[]);
}

#[tokio::test(start_paused = true)]
async fn r113_a_status_for_another_agent_is_rejected() {
    let board = connected(10).await;
    put(&board, "a", says("b", "available").to_string().as_bytes());
    is(&look(&board), &[("a", "broken: agent_id: must be 'a', as in the topic, not 'b'")]);
}

#[tokio::test(start_paused = true)]
async fn r108_invalid_ids_are_reported_by_a_truncated_name() {
    let board = connected(10).await;
    let id = "ä".repeat(30_000);
    put(&board, &id, b"{}");
    let change = look(&board);
    assert!(change.parts[0].name.chars().count() <= 129);
    assert!(word(&change.parts[0].news).starts_with("broken: the agent id in the topic"));
}

#[tokio::test(start_paused = true)]
async fn a_cleared_status_removes_its_agent() {
    let board = connected(10).await;
    hear(&board, "a", "available");
    look(&board);
    put(&board, "a", b"");
    put(&board, "never-known", b"");
    is(&look(&board), &[("a", "gone")]);
    hear(&board, "a", "available");
    is(&look(&board), &[("a", "active")]);
}

#[tokio::test(start_paused = true)]
async fn other_topics_and_invalid_topics_are_ignored() {
    let board = connected(10).await;
    look(&board);
    board.hear(b"/control/agents/a/input", says("a", "available").to_string().as_bytes(), true);
    board.hear(b"/control/agents/\xff/status", says("a", "available").to_string().as_bytes(), true);
    board.hear(b"", b"", false);
    is(&look(&board), &[]);
}

#[tokio::test(start_paused = true)]
async fn an_unacknowledged_update_is_reported_again() {
    let board = connected(10).await;
    hear(&board, "a", "available");
    hear(&board, "b", "available");
    is(&board.change(), &[("a", "active"), ("b", "active")]);
    put(&board, "b", b"");
    hear(&board, "c", "available");
    is(&board.change(), &[("a", "active"), ("b", "gone"), ("c", "active")]);
    board.taken();
    is(&board.change(), &[]);
}

#[tokio::test(start_paused = true)]
async fn updates_during_a_poll_are_delivered_by_the_next_poll() {
    let board = connected(10).await;
    hear(&board, "a", "available");
    let _ = board.change();
    hear(&board, "a", "unavailable");
    board.taken();
    is(&look(&board), &[("a", "inactive")]);
}

#[tokio::test(start_paused = true)]
async fn the_first_complete_poll_reports_everything() {
    let board = Board::new("mqtt://127.0.0.1:1883".to_owned(), 10);
    board.begin();
    kept(&board, "early");
    board.granted();
    kept(&board, "a");
    let half = look(&board);
    assert!(half.trouble.is_some() && half.soon, "{half:?}");
    is(&half, &[("early", "active"), ("a", "active")]);
    board.first(LONG).await;
    let whole = look(&board);
    assert!(whole.trouble.is_none());
    is(&whole, &[("early", "active"), ("a", "active")]);
    is(&look(&board), &[]);
}

#[tokio::test(start_paused = true)]
async fn a_lost_broker_is_an_error_and_removes_no_agent() {
    let board = connected(10).await;
    hear(&board, "a", "available");
    look(&board);
    board.lost("it went away".to_owned());
    for _ in 0..3 {
        let change = look(&board);
        assert_eq!(change.trouble.as_deref(), Some("it went away"));
        is(&change, &[]);
    }
    again(&board);
    assert!(look(&board).trouble.is_none());
}

#[tokio::test(start_paused = true)]
async fn agents_missing_after_a_reconnect_are_removed_after_the_settle_time() {
    let board = connected(10).await;
    for id in ["a", "b", "broken"] {
        hear(&board, id, "available");
    }
    put(&board, "broken", b"garbage");
    look(&board);
    look(&board);
    again(&board);
    hear(&board, "b", "available");
    is(&look(&board), &[]);
    board.settle();
    is(&look(&board), &[("a", "gone"), ("broken", "gone")]);
}

#[tokio::test(start_paused = true)]
async fn a_second_reconnect_restarts_the_settle_time() {
    let board = connected(10).await;
    hear(&board, "a", "available");
    look(&board);
    again(&board);
    again(&board);
    hear(&board, "a", "available");
    board.settle();
    is(&look(&board), &[]);
}

#[tokio::test(start_paused = true)]
async fn agents_beyond_the_maximum_are_rejected_and_the_others_stay() {
    let board = connected(3).await;
    for id in ["a", "b", "c", "d", "e"] {
        hear(&board, id, "available");
    }
    put(&board, "f", b"garbage");
    let change = look(&board);
    assert_eq!(
        told(&change)[BEYOND],
        "kept: more agents publish a status than fit (at most 3 agents and 256 MiB together)"
    );
    assert_eq!(change.parts.len(), 4);
    hear(&board, "g", "available");
    hear(&board, "a", "unavailable");
    is(&look(&board), &[("a", "inactive")]);
    again(&board);
    for id in ["a", "b"] {
        hear(&board, id, "available");
    }
    board.settle();
    is(&look(&board), &[("a", "active"), ("c", "gone"), (BEYOND, "gone")]);
}

#[tokio::test(start_paused = true)]
async fn bytes_are_bounded_over_all_agents() {
    let board = Board::bounded("mqtt://127.0.0.1:1883".to_owned(), 100, 10_000);
    board.begin();
    board.granted();
    board.first(LONG).await;
    let mut payload = says("x", "available");
    payload["x"] = json!("x".repeat(1_000));
    for at in 0..20 {
        payload["agent_id"] = json!(format!("a{at}"));
        put(&board, &format!("a{at}"), payload.to_string().as_bytes());
    }
    let change = look(&board);
    assert!(told(&change)[BEYOND].starts_with("kept: more agents"));
    assert_eq!(change.parts.len(), 1 + 9, "nine documents of a little more than 1,000 bytes fit");
    // A document in force may not grow beyond the bound either: the previous one stays.
    payload["agent_id"] = json!("a0");
    payload["x"] = json!("x".repeat(5_000));
    put(&board, "a0", payload.to_string().as_bytes());
    is(&look(&board), &[]);
    for at in 0..20 {
        put(&board, &format!("a{at}"), b"");
    }
    hear(&board, "late", "available");
    assert_eq!(told(&look(&board))["late"], "active");
}

#[tokio::test(start_paused = true)]
async fn an_update_wakes_the_poller_and_a_heartbeat_does_not() {
    let board = connected(10).await;
    hear(&board, "a", "available");
    board.woken().await;
    look(&board);
    hear(&board, "a", "available");
    let woken = tokio::time::timeout(Duration::from_secs(60), board.woken()).await;
    assert!(woken.is_err(), "a heartbeat woke the poller");
    board.lost("it went away".to_owned());
    board.woken().await;
}

#[tokio::test(start_paused = true)]
async fn an_early_poll_wakes_the_poller_once_the_statuses_are_complete() {
    let board = Board::new("mqtt://127.0.0.1:1883".to_owned(), 10);
    board.begin();
    board.granted();
    kept(&board, "a");
    board.woken().await;
    assert!(look(&board).trouble.is_some());
    let began = tokio::time::Instant::now();
    board.woken().await;
    assert!(began.elapsed() < Duration::from_secs(1), "{:?}", began.elapsed());
    assert!(look(&board).trouble.is_none());
    let woken = tokio::time::timeout(Duration::from_secs(60), board.woken()).await;
    assert!(woken.is_err(), "the poller wakes without an update");
}

#[tokio::test(start_paused = true)]
async fn discarded_updates_are_reported_again_with_removals() {
    let board = connected(10).await;
    hear(&board, "a", "available");
    hear(&board, "b", "available");
    look(&board);
    hear(&board, "c", "unavailable");
    put(&board, "b", b"");
    is(&board.change(), &[("b", "gone"), ("c", "inactive")]);
    board.forget();
    is(&look(&board), &[("a", "active"), ("b", "gone"), ("c", "inactive")]);
    is(&look(&board), &[]);
}

#[tokio::test(start_paused = true)]
async fn the_first_poll_waits_for_a_bounded_time() {
    let board = Board::new("mqtt://127.0.0.1:1883".to_owned(), 10);
    let began = tokio::time::Instant::now();
    board.first(LONG).await;
    assert_eq!(began.elapsed(), LONG);
    assert!(look(&board).trouble.is_some());
    board.lost("nobody there".to_owned());
    board.first(LONG).await;
    assert_eq!(began.elapsed(), LONG, "a lost broker is known at once");
}
