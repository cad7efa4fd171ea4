//! Parsing of agents' messages: replies in their forms, errors, and invalid bytes.

use crate::{
    fault::{Fault, FaultCode},
    mqtt_client::MAX_MESSAGE_BYTES,
    transport::mqtt::reply_message::{ReplyMessage, parse_progress, parse_reply},
};
use bytes::Bytes;
use proptest::prelude::*;
use serde_json::json;

const TASK: &str = "6f9619ff-8b86-4d01-b42d-00cf4fc964ff";
const OTHER: &str = "7f9619ff-8b86-4d01-b42d-00cf4fc964ff";

fn parse(text: &str) -> ReplyMessage {
    parse_reply(&Bytes::copy_from_slice(text.as_bytes()), TASK)
}

fn parse_output(text: &str) -> String {
    match parse(text) {
        ReplyMessage::Output(output) => String::from_utf8(output.to_vec()).unwrap(),
        other => panic!("{text} is {other:?}"),
    }
}

fn parse_fault(text: &str) -> Fault {
    match parse(text) {
        ReplyMessage::Error(fault) => fault,
        other => panic!("{text} is {other:?}"),
    }
}

#[test]
fn the_reply_is_the_response_member_or_the_bare_value() {
    let task = |response: &str| format!(r#"{{"response": {response}, "task_id": "{TASK}"}}"#);
    for (message, expected) in [
        (task(r#""done""#), r#""done""#),
        (task(r#"{"a": 1.0}"#), r#"{"a": 1.0}"#),
        (task("123456789012345678901234567890"), "123456789012345678901234567890"),
        (task("null"), "null"),
        (task(r#"" {\"plan\": [1]} ""#), r#"{"plan": [1]}"#),
        (task(r#""{\"cut\": ""#), r#""{\"cut\": ""#),
        (task(r#""42""#), r#""42""#),
        (r#"{"response": "no id"}"#.to_owned(), r#""no id""#),
        (r#"{"plan": []}"#.to_owned(), r#"{"plan": []}"#),
        (r#"{"plan": [], "task_id": "ticket 7"}"#.to_owned(), r#"{"plan": [], "task_id": "ticket 7"}"#),
        (r#"{"error": {"code": "x"}, "plan": 1}"#.to_owned(), r#"{"error": {"code": "x"}, "plan": 1}"#),
        (format!(r#"{{"response": "done", "error": {{"code": "x"}}, "task_id": "{TASK}"}}"#), r#""done""#),
        (r#""text""#.to_owned(), r#""text""#),
        ("[1, 2]".to_owned(), "[1, 2]"),
    ] {
        assert_eq!(parse_output(&message), expected, "{message}");
    }
}

#[test]
fn r115_errors_map_to_fault_codes_and_hide_the_agents_words() {
    for (code, expected, status) in [
        ("invalid_input", FaultCode::InvalidInput, 400),
        ("pipeline_depth_exceeded", FaultCode::InvalidInput, 400),
        ("tool_execution_failed", FaultCode::AgentError, 502),
        ("llm_error", FaultCode::AgentError, 502),
        ("internal_error", FaultCode::AgentError, 502),
        ("surprise", FaultCode::AgentError, 502),
    ] {
        let fault =
            parse_fault(&json!({"error": {"code": code, "message": "sk-123 /etc/x"}, "task_id": TASK}).to_string());
        assert_eq!((fault.code(), fault.http_status()), (expected, status), "{code}");
        assert!(!fault.message().contains("sk-123"), "{fault}");
        assert!(fault.detail().unwrap().contains("sk-123"), "{fault}");
    }
    for members in [json!({"trace": "at /srv/agent.py"}), json!({"response": null}), json!({"plan": 1})] {
        let mut message = json!({"error": {"code": "llm_error", "message": "sk-123"}, "task_id": TASK});
        message.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
        assert_eq!(parse_fault(&message.to_string()).code(), FaultCode::AgentError, "R114: {message}");
    }
    assert_eq!(parse_fault(r#"{"error": "boom"}"#).code(), FaultCode::AgentError);
    assert_eq!(parse_fault(r#"{"error": {}}"#).code(), FaultCode::AgentError);
}

#[test]
fn a_message_for_another_task_is_not_a_reply() {
    for message in [
        json!({"response": "x", "task_id": OTHER}),
        json!({"response": "x", "task_id": "ticket 7"}),
        json!({"error": {"code": "llm_error", "message": "x"}, "task_id": OTHER}),
        json!({"plan": 1, "task_id": OTHER}),
    ] {
        assert!(matches!(parse(&message.to_string()), ReplyMessage::OtherTask), "{message}");
    }
}

#[test]
fn r122_an_unreadable_message_is_a_failure_of_the_agent() {
    let deep = format!("{}{}", "[".repeat(200), "]".repeat(200));
    let large = format!("\"{}\"", "x".repeat(MAX_MESSAGE_BYTES));
    for message in ["", "   ", "not json", "{\"response\": ", "{} {}", r#"{"response":1,"response":2}"#, &deep, &large]
    {
        assert_eq!(parse_fault(message).code(), FaultCode::AgentError);
    }
    assert!(matches!(parse_reply(&Bytes::from_static(b"\"\xff\""), TASK), ReplyMessage::Error(_)));
}

#[test]
fn progress_names_its_conversation_and_task() {
    let message = json!({"agent_id": "a", "conversation_id": "c", "task_id": TASK, "event_type": "TaskStart"});
    let progress = parse_progress(message.to_string().as_bytes()).unwrap();
    assert_eq!((progress.conversation.as_str(), progress.task.as_str()), ("c", TASK));
    assert_eq!(progress.text, message.to_string());
    for message in ["", "{}", "[]", r#"{"conversation_id": "c"}"#, r#"{"conversation_id": 1, "task_id": "t"}"#] {
        assert_eq!(parse_progress(message.as_bytes()), None, "{message}");
    }
}

proptest! {
    #[test]
    fn r122_random_bytes_never_panic_and_a_reply_is_json(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        if let ReplyMessage::Output(output) = parse_reply(&bytes.clone().into(), TASK) {
            prop_assert!(serde_json::from_slice::<Box<serde_json::value::RawValue>>(&output).is_ok());
        }
        let _ = parse_progress(&bytes);
    }

    #[test]
    fn json_values_are_returned_unchanged(value in "[a-z\"\\\\{}\\[\\]0-9 ]{0,40}", wrapped in any::<bool>()) {
        let message = if wrapped { json!({"response": {"v": value}, "task_id": TASK}) } else { json!({"v": value}) };
        let output: serde_json::Value = serde_json::from_str(&parse_output(&message.to_string())).unwrap();
        prop_assert_eq!(output, json!({"v": value}));
    }
}
