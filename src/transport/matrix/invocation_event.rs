//! The event that carries a call: a text for people, and the input for programs under a key of its own. The ids are
//! part of the event (R78), because Matrix has no header fields.

use super::error_mapping::TOO_LARGE_MESSAGE;
use crate::{
    fault::{Fault, FaultCode},
    transport::UpstreamCall,
    values::{encode_hex, json::truncate},
};
use aws_lc_rs::digest;
use http::{HeaderMap, HeaderValue};
use serde_json::{Map, Value, json};

/// The key of a call in an event's content.
pub(super) const INVOCATION_KEY: &str = "gatepost.invocation";

/// The maximum size of the content. Matrix limits whole events to 65536 bytes, and the homeserver adds members.
pub(super) const MAX_CONTENT_BYTES: usize = 60 << 10;

/// The maximum number of characters of the input in the text for people.
const MAX_DISPLAY_CHARS: usize = 2000;

/// Members of an input that contain its text.
const TEXT_MEMBERS: [&str; 6] = ["text", "message", "prompt", "query", "question", "input"];

/// A call besides its input.
pub(super) struct InvocationEvent<'a> {
    /// An unguessable token, which only the members of the agent's room see.
    pub(super) token: &'a str,
    pub(super) operation: &'a str,
    pub(super) user: &'a str,
    /// The gateway's own header fields, then the caller's.
    pub(super) fields: [&'a HeaderMap; 2],
}

impl InvocationEvent<'_> {
    /// Builds the content of the event.
    ///
    /// # Errors
    /// `PayloadTooLarge` where an event cannot hold the input, `UnsupportedMediaType` where the input is not text.
    pub(super) fn content(&self, input: &[u8]) -> Result<Vec<u8>, Fault> {
        let text = std::str::from_utf8(input).map_err(|_| {
            Fault::new(
                FaultCode::UnsupportedMediaType,
                "This agent takes JSON or text (it is reached through a chat room)",
            )
        })?;
        let value: Value = if text.is_empty() { Value::Null } else { parse_or_string(text) };
        let mut call = Map::new();
        call.insert("call".to_owned(), self.token.into());
        if !self.operation.is_empty() {
            call.insert("operation".to_owned(), self.operation.into());
        }
        for (name, field) in [("requestId", "x-request-id"), ("sessionId", "x-session-id"), ("taskId", "x-task-id")] {
            let value = self.fields.iter().find_map(|fields| fields.get(field)?.to_str().ok());
            call.extend(value.map(|value| (name.to_owned(), value.into())));
        }
        let body = display_text(&value, text);
        // Events cannot contain fractions (Matrix specification, "Canonical JSON"); a string of JSON can.
        if is_canonical_json(&value) {
            call.insert("input".to_owned(), value);
        } else {
            call.insert("input_json".to_owned(), text.into());
        }
        let content = json!({
            "msgtype": "m.text",
            "body": body,
            "m.mentions": {"user_ids": [self.user]},
            INVOCATION_KEY: call,
        });
        let content = content.to_string().into_bytes();
        if content.len() > MAX_CONTENT_BYTES {
            Err(Fault::new(FaultCode::PayloadTooLarge, TOO_LARGE_MESSAGE))
        } else {
            Ok(content)
        }
    }
}

fn parse_or_string(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|_| text.into())
}

fn display_text(value: &Value, text: &str) -> String {
    let display = match value {
        Value::String(text) => Some(text.as_str()),
        Value::Object(members) => TEXT_MEMBERS.iter().find_map(|name| members.get(*name)?.as_str()),
        _ => None,
    };
    truncate(display.unwrap_or(text), MAX_DISPLAY_CHARS)
}

/// Whether an event may contain every number in `value`.
fn is_canonical_json(value: &Value) -> bool {
    const LARGEST: u64 = (1 << 53) - 1;
    match value {
        Value::Number(number) => number.as_i64().is_some_and(|number| number.unsigned_abs() <= LARGEST),
        Value::Array(items) => items.iter().all(is_canonical_json),
        Value::Object(members) => members.values().all(is_canonical_json),
        _ => true,
    }
}

/// Returns the transaction id, the homeserver's idempotency key: equal for calls that a caller repeats with the same
/// `Idempotency-Key`, unique for all others. It covers the caller's credential, so that a caller who guesses a key gets
/// no reply to another caller. The call's id is not suitable, because callers may choose it.
pub(super) fn transaction_id(request: &UpstreamCall<'_>, destination: [&str; 2], input: &[u8]) -> Option<String> {
    let headers = request.headers;
    let key = headers.get("idempotency-key")?;
    let credential = ["authorization", "x-api-key"].iter().find_map(|name| headers.get(*name));
    let configured = || request.header_mutations.credential_headers.iter().find_map(|name| headers.get(name));
    let credential = credential.or_else(configured)?;
    let mut hash = digest::Context::new(&digest::SHA256);
    let parts: [&[u8]; 6] = [
        key.as_bytes(),
        credential.as_bytes(),
        destination[0].as_bytes(),
        destination[1].as_bytes(),
        request.operation.as_bytes(),
        input,
    ];
    for part in parts {
        hash.update(&(part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    let hash = hash.finish();
    Some(format!("gatepost-{}", encode_hex(hash.as_ref().get(..20)?)))
}

/// Returns the gateway's own header fields.
pub(super) fn gateway_fields(request: &UpstreamCall<'_>) -> HeaderMap {
    request.header_mutations.set.iter().map(|(name, value)| (name.clone(), HeaderValue::clone(value))).collect()
}
