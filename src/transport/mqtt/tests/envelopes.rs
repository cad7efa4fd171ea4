//! Task envelopes: what is published, and which inputs are refused.

use crate::{
    broker::LARGEST,
    fault::{Code, Fault},
    transport::mqtt::envelope::Asked,
};
use proptest::prelude::*;
use serde_json::{Value, json};

fn read(body: &[u8]) -> Result<Asked, Fault> {
    Asked::read(body, "plan", None)
}

fn written(asked: &Asked) -> Value {
    let text = asked.write("/control/agents/a/input", "t-1", "c-1").unwrap();
    serde_json::from_slice(&text).unwrap()
}

#[test]
fn r110_the_envelope_has_exactly_the_specified_members() {
    let envelope = written(&read(br#"{"goal": "tea"}"#).unwrap());
    assert_eq!(
        envelope,
        json!({"task_id": "t-1", "conversation_id": "c-1", "topic": "/control/agents/a/input",
               "instruction": "plan", "input": {"goal": "tea"}, "next": null})
    );
}

#[test]
fn r110_the_instruction_is_that_of_the_step_else_of_the_input_else_the_operation_name() {
    let instruction =
        |body: &[u8], operation, step| written(&Asked::read(body, operation, step).unwrap())["instruction"].clone();
    assert_eq!(instruction(br#"{"instruction": "mine"}"#, "plan", Some("step")), "step");
    assert_eq!(instruction(br#"{"instruction": "mine"}"#, "plan", None), "mine");
    assert_eq!(instruction(br#"{"instruction": 7}"#, "plan", None), "plan");
    assert_eq!(instruction(b"{}", "", None), Value::Null);
}

#[test]
fn r111_an_input_is_an_object_or_a_string_and_is_forwarded_unchanged() {
    let asked = read(br#" {"n": 123456789012345678901234567890, "n2": 1.0 } "#).unwrap();
    let text = String::from_utf8(asked.write("/t", "t", "c").unwrap().to_vec()).unwrap();
    assert!(text.contains(r#"{"n": 123456789012345678901234567890, "n2": 1.0 }"#), "{text}");
    assert_eq!(written(&read(b"\"hello\"").unwrap())["input"], "hello");
    assert_eq!(written(&read(b"  ").unwrap())["input"], json!({}));
    for body in [&b"[1]"[..], b"7", b"null", b"true", b"{", b"{\"a\":1,\"a\":2}", b"\xff", b"a=b", b"{} {}"] {
        assert_eq!(read(body).expect_err("refused").code(), Code::InvalidInput, "{body:?}");
    }
}

#[test]
fn r116_an_envelope_beyond_256_kib_is_refused() {
    let fits = |length: usize| {
        let asked = read(json!({"x": "x".repeat(length)}).to_string().as_bytes()).unwrap();
        asked.write("/control/agents/a/input", &"t".repeat(36), &"c".repeat(36)).map(|text| text.len())
    };
    let around = fits(0).unwrap();
    assert_eq!(fits(LARGEST - around).unwrap(), LARGEST);
    let fault = fits(LARGEST - around + 1).unwrap_err();
    assert_eq!((fault.code(), fault.http_status()), (Code::PayloadTooLarge, 413));
}

proptest! {
    #[test]
    fn r122_random_bytes_never_panic_and_inputs_are_json(body in proptest::collection::vec(any::<u8>(), 0..300)) {
        if let Ok(asked) = read(&body) {
            written(&asked);
        }
    }
}
