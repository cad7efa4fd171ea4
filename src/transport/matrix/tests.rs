//! The matching of messages with the calls they answer.

use super::{
    pending_calls::PendingCalls,
    reply_message::{ReplyContent, RoomMessage},
};
use serde_json::{Value, json};
use std::sync::Arc;

fn message(relates: Value, own: Value) -> RoomMessage {
    let mut content = json!({"msgtype": "m.text", "body": "words", "m.relates_to": relates});
    if !own.is_null() {
        content["gatepost.answer"] = own;
    }
    let event = json!({"type": "m.room.message", "sender": "@bot:h", "event_id": "$x", "content": content});
    RoomMessage::parse(&event).unwrap()
}

fn thread(root: &str, reply: &str, fallback: bool) -> Value {
    let reply = json!({"event_id": reply});
    json!({"rel_type": "m.thread", "event_id": root, "m.in_reply_to": reply, "is_falling_back": fallback})
}

#[test]
fn r51_a_reply_in_a_thread_answers_one_call_and_not_the_thread_root_as_well() {
    let reply = |event: &str| json!({"m.in_reply_to": {"event_id": event}});
    for (relates, own, answered) in [
        (reply("$a"), Value::Null, "a"),
        (reply("$b"), Value::Null, "b"),
        (thread("$a", "$b", false), Value::Null, "b"),
        (thread("$a", "$b", true), Value::Null, "a"),
        (thread("$a", "$other", true), Value::Null, "a"),
        (json!({"rel_type": "m.thread", "event_id": "$a"}), Value::Null, "a"),
        (json!({"rel_type": "m.reference", "event_id": "$b"}), json!({"output": 1}), "b"),
        (Value::Null, json!({"call": "a", "output": 1}), "a"),
    ] {
        let waiting = Arc::new(PendingCalls::default());
        let open = |token: &str| {
            let (ticket, hears) = waiting.register(token, "!r:h", "@bot:h").unwrap();
            ticket.set_event(format!("${token}"));
            (ticket, hears)
        };
        let calls = [("a", open("a")), ("b", open("b"))];
        waiting.deliver("!r:h", message(relates.clone(), own.clone()));
        for (token, (_ticket, mut hears)) in calls {
            let said = hears.try_recv();
            assert_eq!(said.is_ok(), token == answered, "{relates} {own}: {token}");
            assert!(said.is_err() || matches!(said, Ok(Ok(ReplyContent::Output(_)))));
        }
    }
}
