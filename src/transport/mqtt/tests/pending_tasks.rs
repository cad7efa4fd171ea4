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
    reply: oneshot::Receiver<Result<Bytes, Fault>>,
    progress: mpsc::Receiver<String>,
}

fn expect_task(tasks: &mut PendingTasks, conversation: &str, agent_id: &str) -> Receivers {
    let ((reply_sender, reply), (progress_sender, progress)) = (oneshot::channel(), mpsc::channel(2));
    let expected = PendingTask {
        task: TASK.to_owned(),
        agent_id: agent_id.to_owned(),
        reply: reply_sender,
        progress: Some(progress_sender),
    };
    tasks.waiting.insert(conversation.to_owned(), expected);
    Receivers { reply, progress }
}

fn message(topic: &str, payload: &str) -> IncomingMessage {
    IncomingMessage {
        user_properties: Vec::new(),
        topic: Bytes::copy_from_slice(topic.as_bytes()),
        payload: Bytes::copy_from_slice(payload.as_bytes()),
        retained: false,
        repeated: false,
        qos: 1,
        packet_id: 1,
    }
}

#[test]
fn only_the_first_reply_is_delivered() {
    let mut tasks = PendingTasks::default();
    let mut receivers = expect_task(&mut tasks, "c", "a");
    assert_eq!(tasks.deliver(&message("//conversations/c/a/", "1")), MessageOutcome::Delivered);
    assert_eq!(tasks.deliver(&message("/conversations/c/a", "2")), MessageOutcome::Unmatched);
    assert_eq!(receivers.reply.try_recv().unwrap().unwrap(), "1");
    assert!(tasks.waiting.is_empty());
}

#[test]
fn messages_for_other_calls_leave_a_call_waiting() {
    let mut tasks = PendingTasks::default();
    let mut receivers = expect_task(&mut tasks, "c", "a");
    let mut retained = message("/conversations/c/a", "1");
    retained.retained = true;
    assert_eq!(tasks.deliver(&retained), MessageOutcome::Retained);
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
        assert_eq!(tasks.deliver(&message(topic, &payload)), MessageOutcome::Unmatched, "{topic} {payload}");
    }
    let invalid_topic = IncomingMessage { topic: Bytes::from_static(b"\xff"), ..message("", "") };
    assert_eq!(tasks.deliver(&invalid_topic), MessageOutcome::Unreadable);
    assert!(receivers.reply.try_recv().is_err());
    assert_eq!(tasks.waiting.len(), 1);
}

#[test]
fn progress_reaches_only_its_call_and_is_dropped_for_a_slow_caller() {
    let mut tasks = PendingTasks::default();
    let mut receivers = expect_task(&mut tasks, "c", "a");
    let progress = |conversation: &str, task: &str| {
        json!({"conversation_id": conversation, "task_id": task, "event_type": "TaskStart"}).to_string()
    };
    assert_eq!(
        tasks.deliver(&message("/control/agents/a/progress/llm", &progress("c", TASK))),
        MessageOutcome::Delivered
    );
    for (topic, payload) in [
        ("/control/agents/b/progress", progress("c", TASK)),
        ("/control/agents/a/progress", progress("c", "another")),
        ("/control/agents/a/progress", progress("d", TASK)),
    ] {
        assert_eq!(tasks.deliver(&message(topic, &payload)), MessageOutcome::Unmatched, "{topic} {payload}");
    }
    assert_eq!(tasks.deliver(&message("/control/agents/a/progress", "{")), MessageOutcome::Unreadable);
    for _ in 0..10 {
        tasks.deliver(&message("/control/agents/a/progress", &progress("c", TASK)));
    }
    assert_eq!(receivers.progress.len(), 2);
    assert_eq!(tasks.deliver(&message("/conversations/c/a", "1")), MessageOutcome::Delivered);
    assert!(receivers.progress.try_recv().is_ok() && receivers.reply.try_recv().is_ok());
}

proptest! {
    #[test]
    fn r122_random_messages_never_panic_or_end_another_call(
        topic in proptest::collection::vec(any::<u8>(), 0..60),
        payload in proptest::collection::vec(any::<u8>(), 0..60),
    ) {
        let mut tasks = PendingTasks::default();
        let _receivers = expect_task(&mut tasks, "4b43b0ae-e354-4e42-9cb7-4b0a2e3c4d5e", "a");
        tasks.deliver(&IncomingMessage { topic: topic.into(), payload: payload.into(), ..message("", "") });
        prop_assert_eq!(tasks.waiting.len(), 1);
    }
}
