//! Which parts of an agent's error a caller reads, as the operator set for the agent.

use super::public_text::public_text;
use serde_json::{Map, Value};

/// Maximum size of an agent's error body that a caller reads, in bytes of JSON.
const MAX_ERROR_BODY: usize = 16 << 10;
/// Maximum nesting of an agent's error body that a caller reads.
const MAX_DEPTH: usize = 16;
/// What stands for a text that reveals internals.
const WITHHELD: &str = "[redacted]";

/// Which parts of an agent's error the caller reads. No setting lets internals or secrets pass (R117, R133).
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Deserialize, serde::Serialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ErrorDetails {
    /// The message and the violations of an error that the caller can correct (4xx).
    #[default]
    Message,
    /// The message of every error, and the whole error body as the member `agent_error`.
    All,
    /// Nothing: the caller reads the gateway's general sentences.
    None,
    /// The text at a JSON Pointer (RFC 6901) in the error body, such as `/error/message`, of every error.
    Pointer(#[schemars(regex(pattern = r"^(/.*)$"))] String),
}

impl ErrorDetails {
    /// Returns why the setting is not valid.
    pub fn problem(&self) -> Option<String> {
        match self {
            Self::Pointer(pointer) if !pointer.starts_with('/') => {
                Some(format!("pointer: '{pointer}' is not a JSON Pointer (write /error/message)"))
            }
            _ => None,
        }
    }

    /// Returns the agent's error body for the caller: every text that reveals internals is replaced.
    pub(super) fn public_body(&self, body: &Map<String, Value>) -> Option<Value> {
        if *self != Self::All {
            return None;
        }
        let public = public_members(body, MAX_DEPTH)?;
        (public.to_string().len() <= MAX_ERROR_BODY).then_some(public)
    }
}

fn public_members(members: &Map<String, Value>, depth_left: usize) -> Option<Value> {
    let public = members.iter().map(|(name, value)| {
        let name = if is_name(name) { name.as_str() } else { WITHHELD };
        Some((name.to_owned(), public_value(value, depth_left.checked_sub(1)?)?))
    });
    public.collect::<Option<Map<_, _>>>().map(Value::Object)
}

fn public_value(value: &Value, depth_left: usize) -> Option<Value> {
    Some(match value {
        Value::String(text) if text.is_empty() || is_name(text) => value.clone(),
        Value::String(text) => public_text(text).map_or(WITHHELD.into(), |text| text.into_owned().into()),
        Value::Array(items) => {
            let items = items.iter().map(|item| public_value(item, depth_left.checked_sub(1)?));
            items.collect::<Option<Vec<_>>>()?.into()
        }
        Value::Object(members) => public_members(members, depth_left)?,
        // A number may be a card number.
        Value::Number(number) => public_text(&number.to_string()).map_or(WITHHELD.into(), |_| value.clone()),
        other => other.clone(),
    })
}

/// Returns whether `text` is an identifier, such as a name or a code of an error.
pub(super) fn is_name(text: &str) -> bool {
    (1..=64).contains(&text.len())
        && text.bytes().all(|byte| byte.is_ascii_alphabetic() || byte == b'_' || byte == b'-')
        && public_text(text).is_some()
}
