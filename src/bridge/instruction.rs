//! An instruction and its input, for agents that take one body. It rewrites nothing that it need not.

use bytes::Bytes;
use serde_json::Value;

/// An input together with what is to be done with it, for agents that take one body: the member `instruction` of an
/// object that has none; whatever else the input is, an object of both. Without an instruction the input stays as it
/// is, byte for byte. `input` is one JSON text.
pub fn instructed(input: Bytes, instruction: Option<&str>) -> Bytes {
    let Some(instruction) = instruction else { return input };
    let instruction = Value::from(instruction);
    let members = std::str::from_utf8(&input).ok().and_then(|text| text.trim_start().strip_prefix('{'));
    let text = match (members, serde_json::from_slice::<Instructed>(&input)) {
        (Some(_), Ok(Instructed { instruction: Some(_) })) => return input,
        (Some(rest), Ok(_)) if rest.trim_start().starts_with('}') => format!("{{\"instruction\":{instruction}{rest}"),
        (Some(rest), Ok(_)) => format!("{{\"instruction\":{instruction},{rest}"),
        _ => format!("{{\"instruction\":{instruction},\"input\":{}}}", String::from_utf8_lossy(&input)),
    };
    text.into()
}

/// Whether an object has an instruction of its own, be it null.
#[derive(serde::Deserialize)]
struct Instructed {
    #[serde(default, deserialize_with = "some")]
    instruction: Option<serde::de::IgnoredAny>,
}

fn some<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Option<serde::de::IgnoredAny>, D::Error> {
    serde::Deserialize::deserialize(from).map(Some)
}
