//! Merges a task's instruction into its input, for agents that take one JSON body. Keeps the input's bytes unchanged.

use bytes::Bytes;
use serde_json::Value;

/// Merges `instruction` into `input`, which is one JSON text. An object without a member `instruction` gets that
/// member; an object that has one stays unchanged; any other input becomes an object with the members `instruction` and
/// `input`. Without an instruction the input is returned byte for byte.
pub fn merge_instruction(input: Bytes, instruction: Option<&str>) -> Bytes {
    let Some(instruction) = instruction else { return input };
    let instruction = Value::from(instruction);
    let members = std::str::from_utf8(&input).ok().and_then(|text| text.trim_start().strip_prefix('{'));
    let text = match (members, serde_json::from_slice::<ExplicitInstruction>(&input)) {
        (Some(_), Ok(ExplicitInstruction { instruction: Some(_) })) => return input,
        (Some(rest), Ok(_)) if rest.trim_start().starts_with('}') => format!("{{\"instruction\":{instruction}{rest}"),
        (Some(rest), Ok(_)) => format!("{{\"instruction\":{instruction},{rest}"),
        _ => format!("{{\"instruction\":{instruction},\"input\":{}}}", String::from_utf8_lossy(&input)),
    };
    text.into()
}

/// Detects whether an object has a member `instruction`, even if it is null.
#[derive(serde::Deserialize)]
struct ExplicitInstruction {
    #[serde(default, deserialize_with = "present")]
    instruction: Option<serde::de::IgnoredAny>,
}

/// Deserializes a present member as `Some`, null included.
fn present<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Option<serde::de::IgnoredAny>, D::Error> {
    serde::Deserialize::deserialize(from).map(Some)
}
