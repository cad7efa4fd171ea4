//! The transport to agents over WebSocket: a call is one connection, one message and the reply to it.

use super::{
    close_reason::WebSocketPeer,
    config::{DocumentSelection, WebSocketOptions},
    message_pump::MessagePump,
    reply_message::{ReplyPart, ReplyReader, reports_failure},
    request_message::{self, ReplyFormat},
    upstream_websocket::{UpstreamWebSocket, WebSocketOutcome},
    websocket_connection::{WebSocketConnection, WebSocketIo, WebSocketLimits},
};
use crate::{
    agent::{Agent, DeclaredMembers},
    fault::{Fault, FaultCode},
    transport::{
        attempt_span::TracedEndpoint,
        config::TransportConfig,
        endpoint_probe::{ProbeFailure, ReachedEndpoint},
        endpoint_transport::EndpointTransport,
        http::{self, HttpTarget, HttpUpstreamClient, UpgradeOutcome, UpgradeRequest, WebSocketOffer},
        timeouts::UpstreamTimeouts,
        transport_kind::TransportKind,
        upstream_reply::{ReplyBody, UpstreamReply},
        upstream_transport::{Transport, UpstreamCall},
    },
};
use ::http::{HeaderMap, HeaderValue, StatusCode, header};
use std::{collections::HashMap, sync::Arc};
use tokio::{
    sync::mpsc,
    time::{Instant, timeout_at},
};

/// The maximum number of chunks queued for the caller.
const MAX_QUEUED_CHUNKS: usize = 4;

/// Builds the transports to agents over WebSocket.
#[derive(Debug)]
pub(in crate::transport) struct WebSocketTransports {
    http: Arc<HttpUpstreamClient>,
}

/// The transport to one agent.
#[derive(Debug)]
struct WebSocketTransport {
    target: Arc<HttpTarget>,
    options: WebSocketOptions,
    /// Members that are data of an operation's output, for operations that declare any.
    declared_members: HashMap<Box<str>, DeclaredMembers>,
}

impl WebSocketTransports {
    /// Creates the kind; the handshakes use the TLS profiles and the address policy of `http`.
    pub(in crate::transport) fn new(http: &Arc<HttpUpstreamClient>) -> Self {
        Self { http: Arc::clone(http) }
    }
}

impl TransportKind for WebSocketTransports {
    fn problems(&self, settings: &TransportConfig) -> Vec<String> {
        settings.websocket.problems()
    }

    fn build_transport(&self, agent: &Agent, settings: &TransportConfig) -> Result<EndpointTransport, Vec<String>> {
        let target = self.http.build_target(&agent.endpoint, settings)?;
        let declared =
            agent.operations.iter().map(|operation| ((&*operation.name).into(), operation.declared_members()));
        let declared_members = declared.filter(|(_, members)| *members != DeclaredMembers::default()).collect();
        Ok(EndpointTransport::Other(Arc::new(WebSocketTransport {
            target,
            options: WebSocketOptions::from(&settings.websocket),
            declared_members,
        })))
    }
}

#[async_trait::async_trait]
impl Transport for WebSocketTransport {
    fn timeouts(&self) -> &UpstreamTimeouts {
        &self.target.timeouts
    }

    fn traced_endpoint(&self) -> Option<TracedEndpoint> {
        Some(TracedEndpoint { transport: "websocket", ..self.target.traced_endpoint() })
    }

    async fn is_reachable(&self) -> bool {
        http::is_reachable(&self.target).await
    }

    async fn probe(&self, deadline: Instant) -> Result<ReachedEndpoint, ProbeFailure> {
        http::probe_connection(&self.target, deadline).await
    }

    async fn call(&self, request: UpstreamCall<'_>, deadline: Instant) -> Result<UpstreamReply, Fault> {
        let UpstreamCall { id, operation, path, headers, body, header_mutations, metrics, trace, .. } = request;
        let late = |_| Fault::new(FaultCode::Timeout, "The request body did not arrive in time").with_status(408);
        let input = timeout_at(deadline, body.collect(self.options.max_message_size)).await.map_err(late)??;
        let message = request_message::build_message(self.options.framing, id, operation, &input)?;
        let format = ReplyFormat::negotiate(headers, &input);
        let upgrade = UpgradeRequest {
            path,
            headers,
            header_mutations,
            offer: WebSocketOffer::default(),
            metrics,
            outlives_call: false,
            trace,
        };
        let mut connection = match http::upgrade_to_websocket(&self.target, upgrade, deadline).await? {
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
        self.options.relay
    }

    async fn open_websocket(
        &self,
        request: UpstreamCall<'_>,
        deadline: Instant,
    ) -> Option<Result<WebSocketOutcome, Fault>> {
        let UpstreamCall { path, headers, header_mutations, metrics, trace, .. } = request;
        let offer =
            WebSocketOffer { subprotocols: headers.get(header::SEC_WEBSOCKET_PROTOCOL), ..WebSocketOffer::default() };
        let upgrade = UpgradeRequest { path, headers, header_mutations, offer, metrics, outlives_call: true, trace };
        let outcome = http::upgrade_to_websocket(&self.target, upgrade, deadline).await;
        Some(match outcome {
            Err(fault) => Err(fault),
            Ok(UpgradeOutcome::Refused(reply)) => Ok(WebSocketOutcome::Refused(Box::new(reply))),
            Ok(UpgradeOutcome::Upgraded(io, head)) => Ok(WebSocketOutcome::Open(Box::new(UpstreamWebSocket {
                connection: self.open_connection(io).await,
                subprotocol: head.get(header::SEC_WEBSOCKET_PROTOCOL).cloned(),
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
        let declared_members = self.declared_members.get(operation).copied().unwrap_or_default();
        let first = match reader.next_part().await? {
            ReplyPart::Failure(status, error) => return Ok(build_reply(status, ReplyFormat::Document, error.into())),
            ReplyPart::End => return Err(no_reply_fault()),
            ReplyPart::Item(_, part) | ReplyPart::Last(part) if reports_failure(&part, declared_members) => {
                return Ok(build_reply(StatusCode::OK, ReplyFormat::Document, part.into()));
            }
            first => first,
        };
        let (chunks, body) = mpsc::channel(MAX_QUEUED_CHUNKS);
        let pump = MessagePump { reader, format, declared_members, chunks };
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
    UpstreamReply { status, headers, body, credential_sent: false }
}
