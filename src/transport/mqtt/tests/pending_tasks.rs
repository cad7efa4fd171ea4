//! Delivery of messages: only to the call they belong to, only once, and never a retained message.

use crate::{
    fault::Fault,
    mqtt_client::IncomingMessage,
    transport::mqtt::pending_tasks::{MessageOutcome, PendingTask, PendingTasks},
};
use bytes::Bytes;
use proptest::prelude::*;
use serde_json::json;
use tokio::sync::{mpsc, oneshot};

const TASK: &str = "6f9619ff-8b86-4d01-b42d-00cf4fc964ff";

struct Receivers {
    answer: oneshot::Receiver<Result<Bytes, Fault>>,
    progress: mpsc::Receiver<String>,
}

fn expect_task(desk: &mut PendingTasks, conversation: &str, from: &str) -> Receivers {
    let ((tell, answer), (teller, progress)) = (oneshot::channel(), mpsc::channel(2));
    let from = from.to_owned();
    let expected = PendingTask { task: TASK.to_owned(), agent_id: from, reply: tell, progress: Some(teller) };
    desk.waiting.insert(conversation.to_owned(), expected);
    Receivers { answer, progress }
}

fn message(topic: &str, payload: &str) -> IncomingMessage {
    IncomingMessage {
        topic: Bytes::copy_from_slice(topic.as_bytes()),
        payload: Bytes::copy_from_slice(payload.as_bytes()),
        retained: false,
        qos: 1,
    }
}

#[test]
fn only_the_first_reply_is_delivered() {
    let mut desk = PendingTasks::default();
    let mut waits = expect_task(&mut desk, "c", "a");
    assert_eq!(desk.deliver(&message("//conversations/c/a/", "1")), MessageOutcome::Delivered);
    assert_eq!(desk.deliver(&message("/conversations/c/a", "2")), MessageOutcome::Unmatched);
    assert_eq!(waits.answer.try_recv().unwrap().unwrap(), "1");
    assert!(desk.waiting.is_empty());
}

#[test]
fn messages_for_other_calls_leave_a_call_waiting() {
    let mut desk = PendingTasks::default();
    let mut waits = expect_task(&mut desk, "c", "a");
    let mut kept = message("/conversations/c/a", "1");
    kept.retained = true;
    assert_eq!(desk.deliver(&kept), MessageOutcome::Retained);
    for (topic, payload) in [
        ("/conversations/other/a", "1".to_owned()),
        ("/conversations/c/b", "1".to_owned()),
        ("/conversations/c/b", json!({"error": {"code": "llm_error"}}).to_string()),
        ("/conversations/c", "1".to_owned()),
        ("/conversations/c/a/more", "1".to_owned()),
        ("/control/agents/a/status", "1".to_owned()),
        ("", "1".to_owned()),
        ("/conversations/c/a", json!({"response": 1, "task_id": "another"}).to_string()),
    ] {
        assert_eq!(desk.deliver(&message(topic, &payload)), MessageOutcome::Unmatched, "{topic} {payload}");
    }
    let odd = IncomingMessage { topic: Bytes::from_static(b"\xff"), ..message("", "") };
    assert_eq!(desk.deliver(&odd), MessageOutcome::Unreadable);
    assert!(waits.answer.try_recv().is_err());
    assert_eq!(desk.waiting.len(), 1);
}

#[test]
fn progress_reaches_only_its_call_and_is_dropped_for_a_slow_caller() {
    let mut desk = PendingTasks::default();
    let mut waits = expect_task(&mut desk, "c", "a");
    let tell = |conversation: &str, task: &str| {
        json!({"conversation_id": conversation, "task_id": task, "event_type": "TaskStart"}).to_string()
    };
    assert_eq!(desk.deliver(&message("/control/agents/a/progress/llm", &tell("c", TASK))), MessageOutcome::Delivered);
    for (topic, payload) in [
        ("/control/agents/b/progress", tell("c", TASK)),
        ("/control/agents/a/progress", tell("c", "another")),
        ("/control/agents/a/progress", tell("d", TASK)),
    ] {
        assert_eq!(desk.deliver(&message(topic, &payload)), MessageOutcome::Unmatched, "{topic} {payload}");
    }
    assert_eq!(desk.deliver(&message("/control/agents/a/progress", "{")), MessageOutcome::Unreadable);
    for _ in 0..10 {
        desk.deliver(&message("/control/agents/a/progress", &tell("c", TASK)));
    }
    assert_eq!(waits.progress.len(), 2);
    assert_eq!(desk.deliver(&message("/conversations/c/a", "1")), MessageOutcome::Delivered);
    assert!(waits.progress.try_recv().is_ok() && waits.answer.try_recv().is_ok());
}

proptest! {
    #[test]
    fn r122_random_messages_never_panic_or_end_another_call(
        topic in proptest::collection::vec(any::<u8>(), 0..60),
        payload in proptest::collection::vec(any::<u8>(), 0..60),
    ) {
        let mut desk = PendingTasks::default();
        let _waits = expect_task(&mut desk, "4b43b0ae-e354-4e42-9cb7-4b0a2e3c4d5e", "a");
        desk.deliver(&IncomingMessage { topic: topic.into(), payload: payload.into(), retained: false, qos: 0 });
        prop_assert_eq!(desk.waiting.len(), 1);
    }
}
