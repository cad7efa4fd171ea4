//! A published task: its progress, its reply, and the broker's acknowledgement.

use super::{
    broker_connection::BrokerConnection,
    broker_session::{Conversation, ProgressGuard, connection_lost_fault, request_fault},
};
use crate::{
    fault::{CallProgress, Fault, FaultCode},
    mqtt_client::{MqttSendError, PublishAck},
};
use bytes::Bytes;
use std::{sync::Arc, time::Duration};
use tokio::{
    sync::{mpsc, oneshot},
    task::JoinHandle,
};

/// A published task whose reply is awaited.
#[derive(Debug)]
pub(super) struct PublishedTask {
    pub(super) reply: oneshot::Receiver<Result<Bytes, Fault>>,
    pub(super) progress: mpsc::Receiver<String>,
    pub(super) publish_ack: Option<JoinHandle<Result<PublishAck, MqttSendError>>>,
    pub(super) conversation: Conversation,
    /// Keeps the broker connection open while a reply may arrive.
    pub(super) _connection: Arc<BrokerConnection>,
    pub(super) _progress: Option<ProgressGuard>,
}

/// The next event of a task.
pub(super) enum TaskEvent {
    Progress(String),
    Reply(Bytes),
}

impl PublishedTask {
    /// Waits for the next event.
    ///
    /// # Errors
    /// The agent failed or is not subscribed, or the outcome can never be known.
    pub(super) async fn next_event(&mut self) -> Result<TaskEvent, Fault> {
        loop {
            tokio::select! {
                biased;
                // Progress that arrived before the reply is delivered before it.
                Some(text) = self.progress.recv() => return Ok(TaskEvent::Progress(text)),
                reply = &mut self.reply => return match reply {
                    Ok(reply) => reply.map(TaskEvent::Reply),
                    Err(_) => Err(connection_lost_fault(self.conversation.session.sender.closed().await)),
                },
                ack = await_publish_ack(&mut self.publish_ack) => match ack {
                    Ok(PublishAck::Accepted) => {}
                    Ok(PublishAck::NoSubscribers) => return Err(no_subscriber_fault()),
                    Err(error) => return Err(request_fault(&error)),
                },
            }
        }
    }

    /// Waits for the reply and drops progress messages.
    pub(super) async fn wait_for_reply(&mut self) -> Result<Bytes, Fault> {
        loop {
            if let TaskEvent::Reply(reply) = self.next_event().await? {
                return Ok(reply);
            }
        }
    }
}

/// Resolves once, when the broker has acknowledged the task or the publish has failed.
async fn await_publish_ack(
    publish_task: &mut Option<JoinHandle<Result<PublishAck, MqttSendError>>>,
) -> Result<PublishAck, MqttSendError> {
    let Some(handle) = publish_task else { return std::future::pending().await };
    let ack = handle.await;
    *publish_task = None;
    ack.unwrap_or_else(|error| Err(MqttSendError::ConnectionLost(error.to_string())))
}

fn no_subscriber_fault() -> Fault {
    Fault::new(FaultCode::AgentUnavailable, "The agent is not connected")
        .with_detail("the broker reports no subscriber of the agent's input topic")
        .with_retry_after(Duration::from_secs(1))
        .with_progress(CallProgress::NotSent)
}
