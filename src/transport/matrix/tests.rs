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
    for (relates, structured, answered) in [
        (reply("$a"), Value::Null, "a"),
        (reply("$b"), Value::Null, "b"),
        (thread("$a", "$b", false), Value::Null, "b"),
        (thread("$a", "$b", true), Value::Null, "a"),
        (thread("$a", "$other", true), Value::Null, "a"),
        (json!({"rel_type": "m.thread", "event_id": "$a"}), Value::Null, "a"),
        (json!({"rel_type": "m.reference", "event_id": "$b"}), json!({"output": 1}), "b"),
        (Value::Null, json!({"call": "a", "output": 1}), "a"),
    ] {
        let pending = Arc::new(PendingCalls::default());
        let register = |token: &str| {
            let call = pending.register(token, "!r:h", "@bot:h").unwrap();
            call.guard.set_event(format!("${token}"));
            call
        };
        let calls = [("a", register("a")), ("b", register("b"))];
        pending.deliver("!r:h", message(relates.clone(), structured.clone()));
        for (token, mut call) in calls {
            let reply = call.reply.try_recv();
            assert_eq!(reply.is_ok(), token == answered, "{relates} {structured}: {token}");
            assert!(reply.is_err() || matches!(reply, Ok(Ok(ReplyContent::Output(_)))));
        }
    }
}
