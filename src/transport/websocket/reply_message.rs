//! Parses an agent's reply: splits messages by the agent's framing, until the reply is complete. Everything is bounded:
//! a message by its size, the messages before a reply by their number, waiting by the agent's timeouts.

use super::{
    close_reason::{WebSocketError, close_fault},
    config::{MessageFraming, WebSocketOptions},
    websocket_connection::{WebSocketConnection, WebSocketEvent},
};
use crate::{
    agent::{self, DeclaredMembers, MemberScan},
    fault::{CallProgress, Fault, FaultCode, Result},
    transport::timeouts::{CallEnd, TimeoutKind, UpstreamTimeouts},
};
use bytes::{Buf, Bytes};
use http::StatusCode;
use serde_json::{Map, Value, json, value::RawValue};
use std::borrow::Cow;
use tokio::time::{Instant, timeout_at};

/// Members that may accompany an `error` without being a result.
const ERROR_MEMBERS: [&str; 11] =
    ["error", "code", "message", "detail", "details", "status", "type", "request_id", "id", "task_id", "jsonrpc"];

/// A part of a reply.
pub(super) enum ReplyPart {
    /// One of several parts, with its event name if it has one.
    Item(Option<String>, Bytes),
    /// The last part.
    Last(Bytes),
    /// The agent's own failure, in the form of an agent over HTTP.
    Failure(StatusCode, Bytes),
    /// The reply is complete.
    End,
}

/// Reads the reply to one message.
pub(super) struct ReplyReader {
    pub(super) connection: WebSocketConnection,
    options: WebSocketOptions,
    id: String,
    timeouts: UpstreamTimeouts,
    deadline: Instant,
    /// The unread rest of a message. It is split line by line as it is read, so that a message of many short lines uses
    /// no more memory than its size.
    unread: Option<Bytes>,
    parts_seen: u32,
    /// The number of messages that belong to no call.
    parts_skipped: u32,
}

impl ReplyReader {
    pub(super) fn new(
        connection: WebSocketConnection,
        options: WebSocketOptions,
        id: &str,
        timeouts: UpstreamTimeouts,
        deadline: Instant,
    ) -> Self {
        Self {
            connection,
            options,
            id: id.to_owned(),
            timeouts,
            deadline,
            unread: None,
            parts_seen: 0,
            parts_skipped: 0,
        }
    }

    /// Returns the next part.
    ///
    /// # Errors
    /// The agent does not reply in time, closes before the reply is complete, or sends an invalid reply.
    pub(super) async fn next_part(&mut self) -> Result<ReplyPart> {
        loop {
            while let Some(line) = self.next_line() {
                self.parts_seen = self.parts_seen.saturating_add(1);
                if let Some(part) = self.parse_part(line)? {
                    return Ok(part);
                }
                self.parts_skipped += 1;
                if self.parts_skipped > self.options.max_messages {
                    return Err(Fault::new(FaultCode::AgentError, "The agent sent too many messages without a reply"));
                }
            }
            let (kind, timeout) = match self.parts_seen {
                0 => (TimeoutKind::FirstByte, self.timeouts.first_byte),
                _ => (TimeoutKind::Idle, self.timeouts.idle),
            };
            let end = CallEnd { until: self.deadline.min(Instant::now() + timeout), deadline: self.deadline };
            let event = timeout_at(end.until, self.connection.next_event()).await;
            match event.map_err(|_| self.timeouts.fault_at(kind, end, "no message in time"))? {
                WebSocketEvent::Text(text) => self.unread = Some(text.into()),
                WebSocketEvent::Binary(_) => {
                    return Err(Fault::new(FaultCode::AgentError, "The agent's reply is not text"));
                }
                WebSocketEvent::Closed(close) => {
                    return close_fault(close, self.parts_seen > 0).map_or(Ok(ReplyPart::End), Err);
                }
                WebSocketEvent::Lost(lost) => {
                    let fault = lost.to_fault();
                    return Err(match (self.parts_seen, lost) {
                        // As with an agent over HTTP that closes without a reply.
                        (0, WebSocketError::Disconnected) => fault.with_progress(CallProgress::PossiblySent),
                        (0, _) => fault,
                        (_, lost) => fault.with_detail(format_args!("{lost:?}, within the reply")),
                    });
                }
            }
        }
    }

    /// Whether more messages arrived before the reply than allowed.
    pub(super) fn is_over_message_limit(&self) -> bool {
        self.parts_seen > self.options.max_messages
    }

    /// Takes the next line of a message, or the whole message where the framing has no lines.
    fn next_line(&mut self) -> Option<Bytes> {
        loop {
            let mut rest = self.unread.take()?;
            if self.options.framing != MessageFraming::Ndjson {
                return Some(rest.slice_ref(rest.trim_ascii()));
            }
            let line = match rest.iter().position(|byte| *byte == b'\n') {
                None => std::mem::take(&mut rest),
                Some(end) => {
                    let line = rest.split_to(end);
                    rest.advance(1);
                    line
                }
            };
            self.unread = Some(rest).filter(|rest| !rest.is_empty());
            let line = line.slice_ref(line.trim_ascii());
            if !line.is_empty() {
                return Some(line);
            }
        }
    }

    fn parse_part(&self, line: Bytes) -> Result<Option<ReplyPart>> {
        if self.options.framing == MessageFraming::JsonRpc {
            return parse_json_rpc(&line, &self.id);
        }
        let end_marker = self.options.end_marker.as_deref().filter(|_| self.options.framing == MessageFraming::Ndjson);
        if end_marker.is_some_and(|end_marker| *end_marker.as_bytes() == *line) {
            return Ok(Some(ReplyPart::End));
        }
        if serde_json::from_slice::<&RawValue>(&line).is_err() {
            return Err(invalid_json_fault());
        }
        Ok(Some(if self.options.framing == MessageFraming::Bare {
            ReplyPart::Last(line)
        } else {
            ReplyPart::Item(None, line)
        }))
    }
}

fn invalid_json_fault() -> Fault {
    Fault::new(FaultCode::AgentError, "The agent's reply is not valid JSON")
}

/// The members of a JSON-RPC message that are used here.
#[derive(serde::Deserialize)]
struct JsonRpcMessage<'a> {
    #[serde(borrow, default)]
    method: Option<Cow<'a, str>>,
    #[serde(default)]
    id: Option<Value>,
    #[serde(borrow, default)]
    params: Option<&'a RawValue>,
    #[serde(borrow, default)]
    result: Option<&'a RawValue>,
    #[serde(default)]
    error: Option<Value>,
}

/// Parses the response to `id`, or a notification; other messages are skipped. An error without an id is a response,
/// too: the agent could not read the only request that it was sent (JSON-RPC 2.0 §5).
pub(super) fn parse_json_rpc(line: &Bytes, id: &str) -> Result<Option<ReplyPart>> {
    let is_object = line.first() == Some(&b'{');
    let message: JsonRpcMessage<'_> =
        serde_json::from_slice(line).ok().filter(|_| is_object).ok_or_else(invalid_json_fault)?;
    let bytes =
        |raw: Option<&RawValue>| raw.map_or(Bytes::from_static(b"null"), |raw| line.slice_ref(raw.get().as_bytes()));
    Ok(match message {
        JsonRpcMessage { method: Some(method), id: None, params, .. } => {
            Some(ReplyPart::Item(Some(method.into_owned()), bytes(params)))
        }
        JsonRpcMessage { method: None, id: None, error: Some(error), .. } => Some(json_rpc_failure(&error)),
        JsonRpcMessage { method: None, id: Some(Value::String(own)), error, result, .. } if own == id => {
            Some(match error {
                Some(error) => json_rpc_failure(&error),
                None => ReplyPart::Last(bytes(result)),
            })
        }
        JsonRpcMessage { .. } => None,
    })
}

/// Maps a JSON-RPC error to the form of an HTTP error, which the gateway redacts for its caller.
fn json_rpc_failure(error: &Value) -> ReplyPart {
    let status = match error.get("code").and_then(Value::as_i64) {
        Some(-32600 | -32602) => StatusCode::BAD_REQUEST,
        Some(-32601) => StatusCode::NOT_FOUND,
        Some(-32603) => StatusCode::INTERNAL_SERVER_ERROR,
        _ => StatusCode::BAD_GATEWAY,
    };
    let body = json!({"error": {"message": error.get("message"), "details": error.pointer("/data/details")}});
    ReplyPart::Failure(status, Bytes::from(body.to_string()))
}

/// Whether a part of a stream is a failure; parts of streams are not inspected again later.
pub(super) fn reports_failure(part: &[u8], declared: DeclaredMembers) -> bool {
    if agent::scan_members(part) != MemberScan::ErrorMember {
        return false;
    }
    let Ok(members) = serde_json::from_slice::<Map<String, Value>>(part) else {
        return false;
    };
    // Beside the forms of HTTP, `error` may be the error of a protocol that the framing does not know.
    let has_error =
        members.get("error").is_some_and(|error| error.is_object() || error.as_str().is_some_and(|e| !e.is_empty()));
    let is_error_object = has_error && members.keys().all(|name| ERROR_MEMBERS.contains(&name.as_str()));
    (is_error_object && !declared.has("error")) || agent::reports_failure(&members, declared)
}
