//! Messages of a caller's WebSocket: a bare input, or a JSON-RPC 2.0 request around one; and the formats of responses.

use crate::{
    fault::{Fault, FaultCode, Result},
    gateway::{
        path_router::{InvokeTarget, RequestKind, match_request},
        route::Route,
    },
};
use bytes::Bytes;
use http::Method;
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
    /// The input, or why the message is refused.
    pub(super) input: Result<Bytes>,
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
    /// As `JsonRpc`, but the parts of a streamed reply are responses with `chunk`, and the last one has `complete`: the
    /// form that the reference client of `agent://` reads.
    JsonRpcChunks(Box<RawValue>),
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

/// A part of a streamed reply, or its end, for the reference client of `agent://`.
#[derive(Serialize)]
struct JsonRpcChunk<'a> {
    jsonrpc: &'static str,
    id: &'a RawValue,
    #[serde(flatten)]
    content: ChunkContent<'a>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum ChunkContent<'a> {
    Part { chunk: &'a RawValue, streaming: bool },
    End { result: (), complete: bool },
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

/// Parses a message to the agent of `route` in the version that the WebSocket was opened for. A JSON-RPC request is
/// unwrapped if its method is an operation of the agent, `invoke`, or the path of a call to it, and refused if its method
/// is the path of a call to another agent; any other passes whole, because the agent may speak JSON-RPC itself (A2A,
/// MCP). `is_discoverable` returns whether the caller may discover the agent with an id.
pub(super) fn parse(
    text: &str,
    route: &Route,
    version: Option<&str>,
    is_discoverable: impl Fn(&str) -> bool,
) -> CallerMessage {
    let input = || Ok(Bytes::from(text.to_owned()));
    let Some(envelope) = parse_envelope(text) else {
        return CallerMessage { operation: None, input: input(), format: ResponseFormat::Plain };
    };
    let id = envelope.id.filter(|id| !id.get().starts_with(['{', '['])).map(ToOwned::to_owned);
    let method = envelope.method.as_deref().unwrap_or_default();
    let unwrapped_input = || Bytes::from(envelope.params.map_or("{}", RawValue::get).to_owned());
    // The reference client of `agent://` sends the path of the name, also over a connection for another name.
    let path = method.starts_with("agents/").then(|| format!("/{method}"));
    let request = path.as_deref().and_then(|path| match_request(&Method::POST, path).ok());
    if let Some(RequestKind::Invoke(InvokeTarget { call: target, .. })) = request {
        let is_own = target.agent == route.agent.id.as_str() && target.version == version;
        // A method of the agent itself may begin with `agents/`, such as `agents/tasks/create`.
        if is_own || method.ends_with("/invoke") || is_discoverable(target.agent) {
            return CallerMessage {
                operation: target.operation_of(&route.agent).filter(|_| is_own).map(str::to_owned),
                input: if is_own { Ok(unwrapped_input()) } else { Err(other_agent_fault()) },
                format: id.map_or(ResponseFormat::Notification, ResponseFormat::JsonRpcChunks),
            };
        }
    }
    if method != INVOKE_METHOD && route.operation_index(method).is_none() {
        return CallerMessage {
            operation: None,
            input: input(),
            format: id.map_or(ResponseFormat::Notification, ResponseFormat::JsonRpcPassthrough),
        };
    }
    let operation = route.operation_index(method).map(|_| method.to_owned());
    CallerMessage {
        operation,
        input: Ok(unwrapped_input()),
        format: id.map_or(ResponseFormat::Notification, ResponseFormat::JsonRpc),
    }
}

fn other_agent_fault() -> Fault {
    Fault::new(FaultCode::InvalidInput, "The method names another agent or version than the path of this WebSocket")
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
            Self::JsonRpc(id) | Self::JsonRpcChunks(id) | Self::JsonRpcPassthrough(id) => {
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
            Self::JsonRpcChunks(id) => {
                format_chunk(id, ChunkContent::Part { chunk: &to_raw_json(data), streaming: true })
            }
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
            Self::JsonRpcChunks(id) => format_chunk(id, ChunkContent::End { result: (), complete: true }),
        }
    }

    /// Formats a fault.
    pub(super) fn format_fault(&self, fault: &Fault, request_id: &str) -> Option<String> {
        match self {
            Self::Notification => None,
            Self::Plain => Some(fault.to_message_object(request_id).to_string()),
            Self::JsonRpc(id) | Self::JsonRpcChunks(id) | Self::JsonRpcPassthrough(id) => {
                Some(format_response(id, None, Some(fault.to_json_rpc_error(request_id))))
            }
        }
    }
}

fn format_chunk(id: &RawValue, content: ChunkContent<'_>) -> Option<String> {
    serde_json::to_string(&JsonRpcChunk { jsonrpc: "2.0", id, content }).ok()
}

fn format_response(id: &RawValue, result: Option<&RawValue>, error: Option<serde_json::Value>) -> String {
    serde_json::to_string(&JsonRpcResponse { jsonrpc: "2.0", id, result, error }).unwrap_or_default()
}

/// Returns `text` as JSON: unchanged if it is JSON, else as a string.
fn to_raw_json(text: &str) -> Box<RawValue> {
    let json = serde_json::from_str::<Box<RawValue>>(text.trim_ascii()).ok();
    json.or_else(|| serde_json::value::to_raw_value(text).ok()).unwrap_or_default()
}
