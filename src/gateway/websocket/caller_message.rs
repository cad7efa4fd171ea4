//! Messages of a caller's WebSocket: a bare input, or a JSON-RPC 2.0 request around one; and the formats of responses.

use crate::{
    fault::{Fault, FaultCode, Result},
    gateway::route::Route,
};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use std::borrow::Cow;

/// The JSON-RPC method that names no operation.
const INVOKE_METHOD: &str = "invoke";

/// A parsed message of a caller.
#[derive(Debug)]
pub(super) struct CallerMessage {
    /// The operation that the message names.
    pub(super) operation: Option<String>,
    /// The input.
    pub(super) input: Bytes,
    /// The format of the response.
    pub(super) format: ResponseFormat,
}

/// The format of the responses to a message.
#[derive(Clone, Debug)]
pub(super) enum ResponseFormat {
    /// The bare reply.
    Plain,
    /// A JSON-RPC response with this id.
    JsonRpc(Box<RawValue>),
    /// As `JsonRpc`, but a JSON-RPC response of the agent itself passes unchanged.
    JsonRpcPassthrough(Box<RawValue>),
    /// No response: the message is a notification.
    Notification,
}

#[derive(Deserialize)]
struct JsonRpcEnvelope<'a> {
    #[serde(borrow)]
    jsonrpc: Cow<'a, str>,
    #[serde(borrow, default)]
    id: Option<&'a RawValue>,
    #[serde(borrow, default)]
    method: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    params: Option<&'a RawValue>,
}

#[derive(Serialize)]
struct JsonRpcResponse<'a> {
    jsonrpc: &'static str,
    id: &'a RawValue,
    #[serde(skip_serializing_if = "Option::is_none")]
    result: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<serde_json::Value>,
}

#[derive(Serialize)]
struct JsonRpcEvent<'a> {
    jsonrpc: &'static str,
    method: &'static str,
    params: JsonRpcEventParams<'a>,
}

#[derive(Serialize)]
struct JsonRpcEventParams<'a> {
    id: &'a RawValue,
    data: &'a RawValue,
}

/// Parses a message. A JSON-RPC request is unwrapped if its method is an operation of the agent or `invoke`; any other
/// passes whole, because the agent may speak JSON-RPC itself (A2A, MCP).
pub(super) fn parse(text: &str, route: &Route) -> CallerMessage {
    let input = || Bytes::from(text.to_owned());
    let Some(envelope) = parse_envelope(text) else {
        return CallerMessage { operation: None, input: input(), format: ResponseFormat::Plain };
    };
    let id = envelope.id.filter(|id| !id.get().starts_with(['{', '['])).map(ToOwned::to_owned);
    let method = envelope.method.as_deref().unwrap_or_default();
    if method != INVOKE_METHOD && route.operation_index(method).is_none() {
        return CallerMessage {
            operation: None,
            input: input(),
            format: id.map_or(ResponseFormat::Notification, ResponseFormat::JsonRpcPassthrough),
        };
    }
    let operation = route.operation_index(method).map(|_| method.to_owned());
    let input = Bytes::from(envelope.params.map_or("{}", RawValue::get).to_owned());
    CallerMessage { operation, input, format: id.map_or(ResponseFormat::Notification, ResponseFormat::JsonRpc) }
}

fn parse_envelope(text: &str) -> Option<JsonRpcEnvelope<'_>> {
    // Objects only: serde would also accept an array of the members in order. An agent would read such an array as a
    // batch, and execute other requests than the one that was validated.
    let is_object = text.trim_ascii_start().starts_with('{');
    let envelope = is_object.then(|| serde_json::from_str::<JsonRpcEnvelope<'_>>(text).ok()).flatten();
    envelope.filter(|envelope| envelope.jsonrpc == "2.0")
}

/// Returns the operation and input of a message to an agent that speaks JSON-RPC; `None` for a response to the agent.
/// Where inputs are validated, only JSON-RPC passes.
///
/// # Errors
/// The message is not JSON-RPC 2.0, or its method is not an operation.
pub(super) fn parse_json_rpc_input(text: &str, route: &Route) -> Result<Option<(Option<usize>, Bytes)>> {
    let envelope = parse_envelope(text).ok_or_else(|| {
        Fault::new(FaultCode::InvalidInput, "The message is not JSON-RPC 2.0 (this agent accepts nothing else)")
    })?;
    let Some(method) = envelope.method.as_deref() else {
        return Ok(None);
    };
    let operation = route.operation_index(method);
    if operation.is_none() && method != INVOKE_METHOD {
        return Err(Fault::new(
            FaultCode::CapabilityNotFound,
            "This agent has no operation with the name of the method",
        ));
    }
    Ok(Some((operation, Bytes::from(envelope.params.map_or("{}", RawValue::get).to_owned()))))
}

/// Returns the format of a fault that replaces an agent's JSON-RPC response, and the result in the response; `None` if
/// there is no result.
pub(super) fn parse_result(text: &str) -> Option<(ResponseFormat, &str)> {
    #[derive(Deserialize)]
    struct Response<'a> {
        #[serde(borrow)]
        id: &'a RawValue,
        #[serde(borrow)]
        result: &'a RawValue,
    }
    let is_object = text.trim_ascii_start().starts_with('{');
    let Response { id, result } = is_object.then(|| serde_json::from_str(text).ok()).flatten()?;
    Some((ResponseFormat::JsonRpc(id.to_owned()), result.get()))
}

/// Returns the format in which a message is refused.
pub(super) fn refusal_format(text: &str) -> ResponseFormat {
    let id = parse_envelope(text).and_then(|envelope| envelope.id.map(ToOwned::to_owned));
    id.map_or(ResponseFormat::Plain, ResponseFormat::JsonRpc)
}

impl ResponseFormat {
    /// Formats a complete reply.
    pub(super) fn format_complete(&self, body: &str) -> Option<String> {
        match self {
            Self::Notification => None,
            Self::Plain => Some(body.to_owned()),
            Self::JsonRpcPassthrough(_) if parse_envelope(body).is_some() => Some(body.to_owned()),
            Self::JsonRpc(id) | Self::JsonRpcPassthrough(id) => {
                Some(format_response(id, Some(&to_raw_json(body)), None))
            }
        }
    }

    /// Formats a part of a streamed reply.
    pub(super) fn format_part(&self, data: &str) -> Option<String> {
        match self {
            Self::Notification => None,
            Self::Plain => Some(data.to_owned()),
            Self::JsonRpcPassthrough(_) if parse_envelope(data).is_some() => Some(data.to_owned()),
            Self::JsonRpc(id) | Self::JsonRpcPassthrough(id) => {
                let event = JsonRpcEvent {
                    jsonrpc: "2.0",
                    method: "event",
                    params: JsonRpcEventParams { id, data: &to_raw_json(data) },
                };
                serde_json::to_string(&event).ok()
            }
        }
    }

    /// Formats the message after the last part.
    pub(super) fn format_end(&self, configured: Option<&str>) -> Option<String> {
        match self {
            Self::Notification | Self::JsonRpcPassthrough(_) => None,
            Self::Plain => configured.map(str::to_owned),
            Self::JsonRpc(id) => Some(format_response(id, Some(&to_raw_json("null")), None)),
        }
    }

    /// Formats a fault.
    pub(super) fn format_fault(&self, fault: &Fault, request_id: &str) -> Option<String> {
        match self {
            Self::Notification => None,
            Self::Plain => Some(fault.to_message_object(request_id).to_string()),
            Self::JsonRpc(id) | Self::JsonRpcPassthrough(id) => {
                Some(format_response(id, None, Some(fault.to_json_rpc_error(request_id))))
            }
        }
    }
}

fn format_response(id: &RawValue, result: Option<&RawValue>, error: Option<serde_json::Value>) -> String {
    serde_json::to_string(&JsonRpcResponse { jsonrpc: "2.0", id, result, error }).unwrap_or_default()
}

/// Returns `text` as JSON: unchanged if it is JSON, else as a string.
fn to_raw_json(text: &str) -> Box<RawValue> {
    let json = serde_json::from_str::<Box<RawValue>>(text.trim_ascii()).ok();
    json.or_else(|| serde_json::value::to_raw_value(text).ok()).unwrap_or_default()
}
