//! Entry points for fuzzing: inputs of tasks, and messages that agents publish.

use super::{
    reply_message::{ReplyMessage, parse_progress, parse_reply},
    task_envelope::TaskInput,
};
use bytes::Bytes;
use serde_json::Value;

const TASK: &str = "6f9619ff-8b86-4d01-b42d-00cf4fc964ff";

/// Reads a message of an agent, and makes an envelope of an input: both are JSON, and the input is in it as it came.
pub fn check_mqtt_messages(data: &[u8]) {
    let payload = Bytes::copy_from_slice(data);
    if let ReplyMessage::Output(output) = parse_reply(&payload, TASK) {
        assert!(serde_json::from_slice::<Value>(&output).is_ok(), "an output is not JSON");
    }
    let _ = parse_progress(data);
    let Ok(input) = TaskInput::parse(data, "operation", None) else { return };
    let Ok(envelope) = input.serialize_envelope("/control/agents/a/input", TASK, "conversation") else { return };
    let envelope: Option<Value> = serde_json::from_slice(&envelope).ok();
    let body = if data.trim_ascii().is_empty() { b"{}" } else { data };
    assert_eq!(envelope.and_then(|envelope| envelope.get("input").cloned()), serde_json::from_slice(body).ok());
}
