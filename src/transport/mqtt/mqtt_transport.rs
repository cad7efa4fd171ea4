//! The transport to agents over MQTT: one call is a conversation, the task published for it, and the first reply to
//! that task.

use super::{
    broker_connection::BrokerConnection,
    broker_session::{BrokerSession, connection_lost_fault},
    pending_tasks::{MAX_QUEUED_PROGRESS, PendingTask},
    progress_events,
    published_task::{PublishedTask, TaskEvent},
    status_reading,
    task_envelope::{CallIds, TaskInput},
};
use crate::{
    agent::Agent,
    fault::{CallProgress, Fault, FaultCode},
    mqtt_client::{MAX_MESSAGE_BYTES, MqttSendError},
    trace::SpanScope,
    transport::{
        attempt_span::TracedEndpoint,
        endpoint_probe::{ProbeFailure, ReachedEndpoint},
        timeouts::{CallEnd, TimeoutKind, UpstreamTimeouts},
        upstream_reply::{ReplyBody, UpstreamReply},
        upstream_transport::{Transport, UpstreamCall},
    },
    values::AcceptHeader,
};
use http::{HeaderMap, HeaderValue, StatusCode, header};
use std::{num::NonZeroU32, sync::Arc};
use tokio::{
    sync::{mpsc, oneshot},
    time::{Instant, timeout, timeout_at},
};

/// The number of connections that a task may use. The broker may close two of them for the subscription to a status.
const MAX_CONNECTIONS: usize = status_reading::MAX_ENDS as usize + 1;
/// The highest concurrency that an agent's own record may declare.
const MAX_DECLARED_CONCURRENCY: u32 = 1_000;

/// The transport to one agent.
#[derive(Debug)]
pub(super) struct MqttTransport {
    /// The agent's input topic, in canonical form.
    topic: String,
    /// The agent's id at the broker, under which it replies.
    agent_id: String,
    max_concurrency: NonZeroU32,
    connection: Arc<BrokerConnection>,
    timeouts: UpstreamTimeouts,
}

impl MqttTransport {
    pub(super) fn new(
        agent_id: String,
        agent: &Agent,
        connection: Arc<BrokerConnection>,
        timeouts: UpstreamTimeouts,
    ) -> Self {
        let topic = format!("/control/agents/{agent_id}/input");
        Self { agent_id, max_concurrency: declared_concurrency(agent), topic, connection, timeouts }
    }

    /// Returns a broker session, within twice the connect timeout. After a timeout, nothing was published.
    async fn session(&self) -> Result<Arc<BrokerSession>, Fault> {
        // Both versions of MQTT may have to be tried.
        let session = timeout(self.timeouts.connect * 2, self.connection.session()).await;
        session.unwrap_or_else(|_| {
            let detail = "connecting to the agent's broker took too long";
            Err(self.timeouts.fault(TimeoutKind::Connect, detail).with_progress(CallProgress::NotSent))
        })
    }

    /// Publishes the task, after subscribing to a conversation for its reply.
    async fn publish_task(&self, input: &TaskInput, wants_progress: bool) -> Result<PublishedTask, Fault> {
        // A connection that is lost before publishing has carried nothing: the task may use the next connection.
        for _ in 0..MAX_CONNECTIONS {
            let session = self.session().await?;
            let (watched, conversation) =
                tokio::join!(session.watch_status(&self.agent_id), session.acquire_conversation());
            let (Ok(()), Some(conversation)) = (watched, conversation?) else { continue };
            let mut progress_guard = None;
            if wants_progress {
                match session.subscribe_progress(&self.agent_id).await {
                    Ok(guard) => progress_guard = Some(guard),
                    Err(MqttSendError::ConnectionLost(_)) => continue,
                    // The reply arrives even without progress messages.
                    Err(MqttSendError::TooLarge(_) | MqttSendError::Refused(_)) => {}
                }
            }
            let task = uuid::Uuid::new_v4().to_string();
            let message = input.serialize_envelope(&self.topic, &task, &conversation.id)?;
            let ((reply_sender, reply), (progress_sender, progress)) =
                (oneshot::channel(), mpsc::channel(MAX_QUEUED_PROGRESS));
            let pending = PendingTask {
                task,
                agent_id: self.agent_id.clone(),
                reply: reply_sender,
                progress: wants_progress.then_some(progress_sender),
            };
            if !conversation.register(pending) {
                continue;
            }
            let (sender, topic, properties) = (session.sender.clone(), self.topic.clone(), input.trace_context.clone());
            // The publishing task outlives the call, so that a broker that does not acknowledge is detected.
            let publish_ack =
                tokio::spawn(async move { sender.publish_with_properties(&topic, message, false, properties).await });
            return Ok(PublishedTask {
                reply,
                progress,
                publish_ack: Some(publish_ack),
                conversation,
                _connection: Arc::clone(&self.connection),
                _progress: progress_guard,
            });
        }
        Err(connection_lost_fault("the connection was lost repeatedly").with_progress(CallProgress::NotSent))
    }

    async fn start_reply(&self, input: &TaskInput, deadline: Option<Instant>) -> Result<UpstreamReply, Fault> {
        let mut task = self.publish_task(input, deadline.is_some()).await?;
        let (media, body) = match (task.next_event().await?, deadline) {
            (TaskEvent::Progress(text), Some(deadline)) => {
                ("text/event-stream", progress_events::stream_events(task, text, self.timeouts, deadline))
            }
            (TaskEvent::Progress(_), None) => ("application/json", ReplyBody::from(task.wait_for_reply().await?)),
            (TaskEvent::Reply(reply), Some(_)) => {
                ("text/event-stream", ReplyBody::from(progress_events::result_event(&reply)))
            }
            (TaskEvent::Reply(reply), None) => ("application/json", ReplyBody::from(reply)),
        };
        let headers = HeaderMap::from_iter([(header::CONTENT_TYPE, HeaderValue::from_static(media))]);
        Ok(UpstreamReply { status: StatusCode::OK, headers, body, credential_sent: false })
    }
}

/// Returns the concurrency that the agent's record declares (`max_concurrency`), else one: agents of this protocol
/// execute one task after the other.
fn declared_concurrency(agent: &Agent) -> NonZeroU32 {
    #[derive(serde::Deserialize)]
    struct DeclaredLimits {
        #[serde(default)]
        max_concurrency: serde_json::Value,
    }
    let limits = serde_json::from_str::<DeclaredLimits>(&agent.document).ok();
    let declared = limits.and_then(|limits| u32::try_from(limits.max_concurrency.as_u64()?).ok());
    declared.and_then(|max| NonZeroU32::new(max.min(MAX_DECLARED_CONCURRENCY))).unwrap_or(NonZeroU32::MIN)
}

#[async_trait::async_trait]
impl Transport for MqttTransport {
    fn timeouts(&self) -> &UpstreamTimeouts {
        &self.timeouts
    }

    fn max_concurrency(&self) -> Option<NonZeroU32> {
        Some(self.max_concurrency)
    }

    fn traced_endpoint(&self) -> Option<TracedEndpoint> {
        let address = self.connection.address();
        Some(TracedEndpoint { transport: "mqtt", host: address.host.clone(), port: Some(address.port) })
    }

    fn accepts_instructions(&self) -> bool {
        true
    }

    async fn probe(&self, _deadline: Instant) -> Result<ReachedEndpoint, ProbeFailure> {
        let unreachable = |fault: Fault| ProbeFailure::Unreachable(fault.log_message().to_owned());
        self.session().await.map(|_| ReachedEndpoint::default()).map_err(unreachable)
    }

    async fn call(&self, request: UpstreamCall<'_>, deadline: Instant) -> Result<UpstreamReply, Fault> {
        let UpstreamCall { operation, headers, body, instruction, header_mutations, trace, .. } = request;
        let late = |_| Fault::new(FaultCode::Timeout, "The request body did not arrive in time").with_status(408);
        let body = timeout_at(deadline, body.collect(MAX_MESSAGE_BYTES)).await.map_err(late)??;
        let mut input = TaskInput::parse(&body, operation, instruction)?;
        input.call_ids = CallIds::from_fields(&header_mutations, headers);
        input.trace_context = trace.map(SpanScope::context_properties).unwrap_or_default();
        let until = deadline.min(Instant::now() + self.timeouts.first_byte);
        let reply = timeout_at(
            until,
            self.start_reply(&input, AcceptHeader::from_headers(headers).prefers_event_stream().then_some(deadline)),
        )
        .await;
        reply.unwrap_or_else(|_| {
            let detail = format_args!("no message on the conversation: {}", self.topic);
            Err(self.timeouts.fault_at(TimeoutKind::FirstByte, CallEnd { until, deadline }, detail))
        })
    }
}
