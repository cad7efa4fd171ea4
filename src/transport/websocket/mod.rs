//! Agents over WebSocket (R51, R80, RFC 6455): a call is one connection, one message and the reply to it; a caller that
//! uses a WebSocket gets a connection to the agent's WebSocket. The handshake, addresses, TLS and credentials are those
//! of the HTTP transport. A connection serves one call only, so that a late message cannot reach another call.

mod close_reason;
mod config;
mod reply_message;
mod request_message;
mod websocket_connection;

pub use close_reason::{WebSocketError, WebSocketPeer};
use config::DocumentSelection;
pub use config::{MessageFraming, UpstreamWebSocketConfig};
pub use websocket_connection::{WebSocketConnection, WebSocketEvent, WebSocketIo, WebSocketLimits};

use super::{
    ReplyBody, Transport, UpstreamCall, UpstreamReply, UpstreamTimeouts,
    http::{HttpTarget, HttpUpstreamClient, UpgradeOutcome, UpgradeRequest},
};
use crate::{
    agent::Agent,
    fault::{Fault, FaultCode},
};
use ::http::{HeaderMap, HeaderValue, StatusCode, header};
use bytes::Bytes;
use config::WebSocketOptions;
use reply_message::{ReplyPart, ReplyReader, is_error_object};
use request_message::ReplyFormat;
use std::{collections::HashSet, fmt, sync::Arc};
use tokio::{
    sync::mpsc,
    time::{Instant, timeout_at},
};

/// The maximum number of chunks queued for the caller.
const MAX_QUEUED_CHUNKS: usize = 4;

/// The outcome of opening an agent's WebSocket.
#[derive(Debug)]
pub enum WebSocketOutcome {
    /// The WebSocket is open.
    Open(Box<UpstreamWebSocket>),
    /// The agent refused the handshake with an ordinary reply.
    Refused(UpstreamReply),
}

/// An agent's WebSocket, for a caller that uses a WebSocket.
#[derive(Debug)]
pub struct UpstreamWebSocket {
    /// The connection.
    pub connection: WebSocketConnection,
    /// The subprotocol that the agent chose.
    pub subprotocol: Option<HeaderValue>,
    /// The framing of messages.
    pub framing: MessageFraming,
    /// Whether the caller's messages are validated; `None` validates them where there is a schema.
    pub validate: Option<bool>,
}

/// The transport to one agent.
pub(super) struct WebSocketTransport {
    http: Arc<HttpUpstreamClient>,
    target: Arc<HttpTarget>,
    options: WebSocketOptions,
    /// Operations whose output schema declares a member `error`: there it is data.
    operations_with_error_output: HashSet<Box<str>>,
}

pub(super) fn build_transport(
    http: &Arc<HttpUpstreamClient>,
    agent: &Agent,
    settings: &super::TransportConfig,
) -> Result<Arc<dyn Transport>, Vec<String>> {
    let target = http.build_target(agent, settings)?;
    let declaring = agent.operations.iter().filter(|operation| operation.declares_error());
    let operations_with_error_output = declaring.map(|operation| (&*operation.name).into()).collect();
    Ok(Arc::new(WebSocketTransport {
        http: Arc::clone(http),
        target,
        options: WebSocketOptions::from(&settings.websocket),
        operations_with_error_output,
    }))
}

impl fmt::Debug for WebSocketTransport {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.debug_struct("WebSocketTransport")
            .field("target", &self.target)
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}

#[async_trait::async_trait]
impl Transport for WebSocketTransport {
    fn timeouts(&self) -> &UpstreamTimeouts {
        self.target.timeouts()
    }

    async fn is_reachable(&self) -> bool {
        self.http.is_reachable(&self.target).await
    }

    async fn call(&self, request: UpstreamCall<'_>, deadline: Instant) -> Result<UpstreamReply, Fault> {
        let UpstreamCall { id, operation, headers, body, header_mutations, .. } = request;
        let late = |_| Fault::new(FaultCode::Timeout, "The request body did not arrive in time").with_status(408);
        let input = timeout_at(deadline, body.collect(self.options.max_message_size)).await.map_err(late)??;
        let message = request_message::build_message(self.options.framing, id, operation, &input)?;
        let format = ReplyFormat::negotiate(headers, &input);
        let upgrade = UpgradeRequest { headers, header_mutations, subprotocols: None, outlives_call: false };
        let mut connection = match self.http.upgrade_to_websocket(&self.target, upgrade, deadline).await? {
            UpgradeOutcome::Refused(reply) => return Ok(reply),
            UpgradeOutcome::Upgraded(io, _) => self.open_connection(io).await,
        };
        connection.queue_text(message);
        connection.flush().await.map_err(|lost| lost.to_fault())?;
        let reader = ReplyReader::new(connection, self.options.clone(), id, *self.timeouts(), deadline);
        match format {
            ReplyFormat::Document => self.read_document(reader).await,
            format => self.stream_messages(reader, format, operation).await,
        }
    }

    fn has_websocket(&self) -> bool {
        true
    }

    async fn open_websocket(
        &self,
        request: UpstreamCall<'_>,
        deadline: Instant,
    ) -> Option<Result<WebSocketOutcome, Fault>> {
        let UpstreamCall { headers, header_mutations, .. } = request;
        let subprotocols = headers.get(header::SEC_WEBSOCKET_PROTOCOL);
        let upgrade = UpgradeRequest { headers, header_mutations, subprotocols, outlives_call: true };
        let outcome = self.http.upgrade_to_websocket(&self.target, upgrade, deadline).await;
        Some(match outcome {
            Err(fault) => Err(fault),
            Ok(UpgradeOutcome::Refused(reply)) => Ok(WebSocketOutcome::Refused(reply)),
            Ok(UpgradeOutcome::Upgraded(io, subprotocol)) => Ok(WebSocketOutcome::Open(Box::new(UpstreamWebSocket {
                connection: self.open_connection(io).await,
                subprotocol,
                framing: self.options.framing,
                validate: self.options.validate,
            }))),
        })
    }
}

impl WebSocketTransport {
    async fn open_connection(&self, io: Box<dyn WebSocketIo>) -> WebSocketConnection {
        let WebSocketOptions { max_message_size, ping_interval, pong_timeout, .. } = self.options;
        let limits =
            WebSocketLimits { max_message_size, ping_interval, pong_timeout, write_timeout: self.timeouts().idle };
        WebSocketConnection::new(io, WebSocketPeer::Agent, Vec::new(), limits).await
    }

    /// Reads one document, by the framing: the only message, a line, or the response.
    async fn read_document(&self, mut reader: ReplyReader) -> Result<UpstreamReply, Fault> {
        let takes_last = self.options.result_message == DocumentSelection::Last;
        let mut last_line = None;
        let reply = loop {
            match reader.next_part().await? {
                // A notification is not a reply.
                ReplyPart::Item(Some(_), _) => {}
                ReplyPart::Item(None, line) if takes_last => last_line = Some(line),
                ReplyPart::Item(None, line) | ReplyPart::Last(line) => {
                    break build_reply(StatusCode::OK, ReplyFormat::Document, line.into());
                }
                ReplyPart::Failure(status, body) => break build_reply(status, ReplyFormat::Document, body.into()),
                ReplyPart::End => {
                    let line = last_line.ok_or_else(no_reply_fault)?;
                    break build_reply(StatusCode::OK, ReplyFormat::Document, line.into());
                }
            }
            if reader.is_over_message_limit() {
                return Err(Fault::new(FaultCode::AgentError, "The agent sent too many messages without a reply"));
            }
        };
        // The close frame tells the agent that the reply is complete; the call does not wait for the closing handshake.
        tokio::spawn(reader.connection.close(Some((1000, ""))));
        Ok(reply)
    }

    /// Streams every message as it arrives. Awaits the first one, because a failure is then a reply of its own.
    async fn stream_messages(
        &self,
        mut reader: ReplyReader,
        format: ReplyFormat,
        operation: &str,
    ) -> Result<UpstreamReply, Fault> {
        let declares_error = self.operations_with_error_output.contains(operation);
        let first = match reader.next_part().await? {
            ReplyPart::Failure(status, error) => return Ok(build_reply(status, ReplyFormat::Document, error.into())),
            ReplyPart::End => return Err(no_reply_fault()),
            ReplyPart::Item(_, part) | ReplyPart::Last(part) if !declares_error && is_error_object(&part) => {
                return Ok(build_reply(StatusCode::OK, ReplyFormat::Document, part.into()));
            }
            first => first,
        };
        let (chunks, body) = mpsc::channel(MAX_QUEUED_CHUNKS);
        let pump = MessagePump { reader, format, declares_error, chunks };
        tokio::spawn(pump.run(first));
        Ok(build_reply(StatusCode::OK, format, ReplyBody::from_channel(body)))
    }
}

fn no_reply_fault() -> Fault {
    Fault::new(FaultCode::AgentError, "The agent closed the connection without a reply")
}

fn build_reply(status: StatusCode, format: ReplyFormat, body: ReplyBody) -> UpstreamReply {
    let mut headers = HeaderMap::with_capacity(1);
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(format.media_type()));
    UpstreamReply { status, headers, body }
}

/// Forwards messages at the caller's pace, until the reply ends, its time is over, or the caller leaves.
struct MessagePump {
    reader: ReplyReader,
    format: ReplyFormat,
    declares_error: bool,
    chunks: ChunkSender,
}

impl MessagePump {
    async fn run(mut self, first: ReplyPart) {
        let mut next = Ok(first);
        let close_frame = loop {
            let (name, data, is_last) = match next {
                Ok(ReplyPart::Item(name, data)) => (name, data, false),
                Ok(ReplyPart::Last(data)) => (None, data, true),
                Ok(ReplyPart::End) => break (1000, ""),
                Ok(ReplyPart::Failure(_, error)) => break send_fault(&self.chunks, agent_failed_fault(&error)).await,
                Err(fault) => break send_fault(&self.chunks, fault).await,
            };
            if !self.declares_error && is_error_object(&data) {
                break send_fault(&self.chunks, agent_failed_fault(&data)).await;
            }
            let chunk = encode_message(self.format, name.as_deref(), &data);
            if self.chunks.send(Ok(chunk)).await.is_err() {
                break (1001, "");
            }
            if is_last {
                break (1000, "");
            }
            next = tokio::select! {
                biased;
                () = self.chunks.closed() => break (1001, ""),
                part = self.reader.next_part() => part,
            };
        };
        drop(self.chunks);
        self.reader.connection.close(Some(close_frame)).await;
    }
}

type ChunkSender = mpsc::Sender<Result<Bytes, Fault>>;

async fn send_fault(chunks: &ChunkSender, fault: Fault) -> (u16, &'static str) {
    // A caller that has left needs no reason.
    drop(chunks.send(Err(fault)).await);
    (1000, "")
}

/// The fault of a failure within a stream; the agent's words go to the log (R41).
fn agent_failed_fault(error: &[u8]) -> Fault {
    let detail: String = String::from_utf8_lossy(error).chars().take(2048).collect();
    Fault::from(FaultCode::AgentError).with_detail(detail)
}

/// Encodes a message in the caller's format.
fn encode_message(format: ReplyFormat, name: Option<&str>, data: &[u8]) -> Bytes {
    let text = String::from_utf8_lossy(data);
    if format == ReplyFormat::Lines {
        return Bytes::from(format!("{}\n", text.replace(['\r', '\n'], " ")));
    }
    let mut event = String::with_capacity(text.len() + 32);
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "._/-".contains(c);
    // The event name `error` is reserved for the gateway's own event at the end of a stream.
    if let Some(name) = name.filter(|name| *name != "error" && name.len() <= 64 && name.chars().all(is_plain)) {
        event.push_str("event: ");
        event.push_str(name);
        event.push('\n');
    }
    for line in text.split(['\r', '\n']).filter(|line| !line.is_empty()) {
        event.push_str("data: ");
        event.push_str(line);
        event.push('\n');
    }
    event.push('\n');
    Bytes::from(event)
}

#[cfg(test)]
mod tests;
