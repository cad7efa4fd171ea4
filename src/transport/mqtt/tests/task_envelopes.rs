//! Task envelopes: what is published, and which inputs are refused.

use crate::{
    fault::{Fault, FaultCode},
    mqtt_client::MAX_MESSAGE_BYTES,
    transport::mqtt::task_envelope::TaskInput,
};
use proptest::prelude::*;
use serde_json::{Value, json};

fn parse(body: &[u8]) -> Result<TaskInput, Fault> {
    TaskInput::parse(body, "plan", None)
}

fn envelope(input: &TaskInput) -> Value {
    let text = input.serialize_envelope("/control/agents/a/input", "t-1", "c-1").unwrap();
    serde_json::from_slice(&text).unwrap()
}

#[test]
fn r110_the_envelope_has_exactly_the_specified_members() {
    let envelope = envelope(&parse(br#"{"goal": "tea"}"#).unwrap());
    assert_eq!(
        envelope,
        json!({"task_id": "t-1", "conversation_id": "c-1", "topic": "/control/agents/a/input",
               "instruction": "plan", "input": {"goal": "tea"}, "next": null})
    );
}

#[test]
fn r110_the_instruction_is_that_of_the_step_else_of_the_input_else_the_operation_name() {
    let instruction = |body: &[u8], operation, step| {
        envelope(&TaskInput::parse(body, operation, step).unwrap())["instruction"].clone()
    };
    assert_eq!(instruction(br#"{"instruction": "mine"}"#, "plan", Some("step")), "step");
    assert_eq!(instruction(br#"{"instruction": "mine"}"#, "plan", None), "mine");
    assert_eq!(instruction(br#"{"instruction": 7}"#, "plan", None), "plan");
    assert_eq!(instruction(b"{}", "", None), Value::Null);
}

#[test]
fn r111_an_input_is_an_object_or_a_string_and_is_forwarded_unchanged() {
    let input = parse(br#" {"n": 123456789012345678901234567890, "n2": 1.0 } "#).unwrap();
    let text = String::from_utf8(input.serialize_envelope("/t", "t", "c").unwrap().to_vec()).unwrap();
    assert!(text.contains(r#"{"n": 123456789012345678901234567890, "n2": 1.0 }"#), "{text}");
    assert_eq!(envelope(&parse(b"\"hello\"").unwrap())["input"], "hello");
    assert_eq!(envelope(&parse(b"  ").unwrap())["input"], json!({}));
    for body in [&b"[1]"[..], b"7", b"null", b"true", b"{", b"{\"a\":1,\"a\":2}", b"\xff", b"a=b", b"{} {}"] {
        assert_eq!(parse(body).expect_err("refused").code(), FaultCode::InvalidInput, "{body:?}");
    }
}

#[test]
fn r116_an_envelope_beyond_256_kib_is_refused() {
    let envelope_length = |length: usize| {
        let input = parse(json!({"x": "x".repeat(length)}).to_string().as_bytes()).unwrap();
        input.serialize_envelope("/control/agents/a/input", &"t".repeat(36), &"c".repeat(36)).map(|text| text.len())
    };
    let overhead = envelope_length(0).unwrap();
    assert_eq!(envelope_length(MAX_MESSAGE_BYTES - overhead).unwrap(), MAX_MESSAGE_BYTES);
    let fault = envelope_length(MAX_MESSAGE_BYTES - overhead + 1).unwrap_err();
    assert_eq!((fault.code(), fault.http_status()), (FaultCode::PayloadTooLarge, 413));
}

proptest! {
    #[test]
    fn r122_random_bytes_never_panic_and_inputs_are_json(body in proptest::collection::vec(any::<u8>(), 0..300)) {
        if let Ok(input) = parse(&body) {
            envelope(&input);
        }
    }
}
