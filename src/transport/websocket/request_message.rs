//! Builds the message for an agent in the agent's framing, and negotiates the format of the reply for the caller.

use super::config::MessageFraming;
use crate::fault::{Fault, FaultCode, Result};
use bytes::Bytes;
use http::{HeaderMap, header};
use serde::Serialize;
use serde_json::value::RawValue;

/// The JSON-RPC method for an operation without a name (R14).
const DEFAULT_METHOD: &str = "invoke";

/// Builds the message for an agent.
///
/// # Errors
/// The input cannot be written as a message of this framing.
pub(super) fn build_message(framing: MessageFraming, id: &str, operation: &str, input: &Bytes) -> Result<String> {
    let text = match std::str::from_utf8(input).map(str::trim_ascii) {
        Ok("") => "{}",
        Ok(text) => text,
        Err(_) => {
            return Err(Fault::new(FaultCode::UnsupportedMediaType, "This agent takes text (send JSON in UTF-8)"));
        }
    };
    if framing == MessageFraming::Bare {
        return Ok(text.to_owned());
    }
    let Ok(params) = serde_json::from_str::<&RawValue>(text) else {
        return Err(Fault::new(FaultCode::InvalidInput, "The body is not valid JSON"));
    };
    match framing {
        MessageFraming::JsonRpc => build_json_rpc(id, operation, params),
        _ => {
            // JSON strings contain no raw line breaks, so every line break here is white space between tokens.
            let mut line: String = params.get().replace(['\r', '\n'], " ");
            line.push('\n');
            Ok(line)
        }
    }
}

/// A JSON-RPC 2.0 request.
#[derive(Serialize)]
struct JsonRpcRequest<'a> {
    jsonrpc: &'static str,
    id: &'a str,
    method: &'a str,
    params: JsonRpcParams<'a>,
}

/// JSON-RPC takes an object or an array; any other value becomes the only item of an array.
#[derive(Serialize)]
#[serde(untagged)]
enum JsonRpcParams<'a> {
    Whole(&'a RawValue),
    Only([&'a RawValue; 1]),
}

fn build_json_rpc(id: &str, operation: &str, params: &RawValue) -> Result<String> {
    let params =
        if params.get().starts_with(['{', '[']) { JsonRpcParams::Whole(params) } else { JsonRpcParams::Only([params]) };
    let method = if operation.is_empty() { DEFAULT_METHOD } else { operation };
    serde_json::to_string(&JsonRpcRequest { jsonrpc: "2.0", id, method, params })
        .map_err(|error| Fault::from(FaultCode::Internal).with_detail(error))
}

/// The format in which the caller wants the reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReplyFormat {
    /// One JSON document.
    Document,
    /// One line for each message.
    Lines,
    /// One server-sent event for each message.
    Events,
}

impl ReplyFormat {
    pub(super) const fn media_type(self) -> &'static str {
        match self {
            Self::Document => "application/json",
            Self::Lines => "application/x-ndjson",
            Self::Events => "text/event-stream",
        }
    }

    /// Negotiates the format from `Accept`; without a preference a document, unless the input asks for a stream (R43).
    pub(super) fn negotiate(headers: &HeaderMap, input: &[u8]) -> Self {
        let document = accept_weight(headers, &["application/json"]);
        let lines = accept_weight(headers, &["application/x-ndjson", "application/ndjson", "application/jsonl"]);
        let events = accept_weight(headers, &["text/event-stream"]);
        let stream = if lines >= events { Self::Lines } else { Self::Events };
        match lines.max(events) {
            weight if weight > document => stream,
            weight if weight == document && has_stream_flag(input) => stream,
            _ => Self::Document,
        }
    }
}

/// Returns the highest weight that `Accept` gives to the media types, in thousandths; the most specific range decides.
fn accept_weight(headers: &HeaderMap, media: &[&str]) -> u16 {
    if !headers.contains_key(header::ACCEPT) {
        return 1000;
    }
    let values = headers.get_all(header::ACCEPT).into_iter().filter_map(|value| value.to_str().ok());
    let ranges: Vec<_> = values.flat_map(|value| value.split(',')).map(parse_media_range).collect();
    let weight_of = |media: &&str| {
        let specificity = |name: &str| match name {
            name if name.eq_ignore_ascii_case(media) => 3,
            "*/*" => 1,
            name => name.strip_suffix("/*").map_or(0, |major| 2 * u8::from(media.split('/').next() == Some(major))),
        };
        let matching = ranges
            .iter()
            .map(|(name, weight)| (specificity(name), *weight))
            .filter(|(specificity, _)| *specificity > 0);
        matching.max_by_key(|(specificity, _)| *specificity).map_or(0, |(_, weight)| weight)
    };
    media.iter().map(weight_of).max().unwrap_or_default()
}

fn parse_media_range(text: &str) -> (&str, u16) {
    let mut parts = text.split(';').map(str::trim);
    let name = parts.next().unwrap_or_default();
    let q = parts.find_map(|part| part.strip_prefix("q=").or_else(|| part.strip_prefix("Q=")));
    (name, q.map_or(1000, |q| q.parse::<f32>().map_or(0, |q| (q.clamp(0.0, 1.0) * 1000.0) as u16)))
}

fn has_stream_flag(input: &[u8]) -> bool {
    #[derive(serde::Deserialize)]
    struct StreamFlag {
        stream: bool,
    }
    serde_json::from_slice::<StreamFlag>(input).is_ok_and(|flag| flag.stream)
}
