//! MQTT session: the sender publishes and waits for acknowledgements, the receiver reads messages at its own pace. A
//! background task reads from the connection, so that a sender that reads messages itself does not wait for its own
//! acknowledgement.

use super::{
    connect_options::ConnectOptions,
    protocol_versions::{IncomingMessage, MqttConnection, OutgoingPublish, PacketReceiver, PacketSender, PublishAck},
};
use crate::telemetry::BrokerMetrics;
use bytes::Bytes;
use std::{fmt, sync::Arc, time::Duration};
use tokio::{
    sync::{Notify, mpsc, watch},
    task::JoinSet,
};

/// Capacity of the receive queue; a full queue stops reading from the broker.
const RECEIVE_QUEUE: usize = 64;
/// Maximum number of bytes of a PUBLISH packet besides topic and payload.
const PACKET_OVERHEAD: usize = 16;
/// Number of bytes of a user property besides its texts, with its share of the length of all properties.
const PROPERTY_OVERHEAD: usize = 9;
/// Minimum timeout for an acknowledgement, even if the timeout for connecting is shorter.
const MIN_ACK_TIMEOUT: Duration = Duration::from_secs(10);
/// Error for a broker that does not acknowledge a packet within the timeout.
const ACK_TIMED_OUT: &str = "the MQTT broker did not acknowledge in time";

/// Why the broker did not acknowledge a packet. The text is for operators, not for callers.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MqttSendError {
    /// The message exceeds the broker's maximum packet size and was not sent.
    #[error("message exceeds the MQTT broker's maximum packet size of {0} bytes")]
    TooLarge(usize),
    /// The broker refused the packet, or it violates the protocol.
    #[error("{0}")]
    Refused(String),
    /// The connection ended. It is unknown whether the broker received the packet; it is not sent again.
    #[error("MQTT connection closed: {0}")]
    ConnectionLost(String),
}

/// Sending half of an MQTT session. Cheap to clone.
#[derive(Clone)]
pub struct MqttSender {
    sender: Arc<dyn PacketSender>,
    is_version_5: bool,
    max_packet_size: usize,
    ack_timeout: Duration,
    closed: watch::Receiver<Option<String>>,
    abort: Arc<Notify>,
}

impl fmt::Debug for MqttSender {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.debug_struct("MqttSender").field("closed", &*self.closed.borrow()).finish_non_exhaustive()
    }
}

/// Receiving half of an MQTT session. Dropping it closes the connection without DISCONNECT: the last will is published.
#[derive(Debug)]
pub struct MqttReceiver {
    messages: mpsc::Receiver<IncomingMessage>,
    closed: watch::Receiver<Option<String>>,
    _task: JoinSet<()>,
}

/// Starts the session of an established connection.
pub(super) fn start_session(connection: MqttConnection, options: &ConnectOptions) -> (MqttSender, MqttReceiver) {
    let open = options.metrics.as_ref().map(BrokerMetrics::track_connection);
    let (close, closed) = watch::channel(None);
    let (queue, messages) = mpsc::channel(RECEIVE_QUEUE);
    let abort = Arc::new(Notify::new());
    let mut task = JoinSet::new();
    let (mut receiver, aborted) = (connection.receiver, Arc::clone(&abort));
    task.spawn(async move {
        let reason = tokio::select! {
            reason = read_messages(receiver.as_mut(), &queue) => reason,
            () = aborted.notified() => ACK_TIMED_OUT.to_owned(),
        };
        drop(open);
        // Senders that wait for an acknowledgement get this reason, before the library reports a dropped channel.
        close.send_replace(Some(reason));
    });
    let sender = MqttSender {
        sender: connection.sender,
        is_version_5: connection.is_version_5,
        max_packet_size: connection.max_packet_size,
        ack_timeout: options.timeout.max(MIN_ACK_TIMEOUT),
        closed: closed.clone(),
        abort,
    };
    (sender, MqttReceiver { messages, closed, _task: task })
}

async fn read_messages(receiver: &mut dyn PacketReceiver, queue: &mpsc::Sender<IncomingMessage>) -> String {
    loop {
        match receiver.next().await {
            Ok(None) => {}
            Ok(Some(message)) => {
                if queue.send(message).await.is_err() {
                    return "the receiver was dropped".to_owned();
                }
            }
            Err(reason) => return reason,
        }
    }
}

impl MqttReceiver {
    /// Receives the next message. Cancel-safe.
    ///
    /// # Errors
    /// The session ended; returns the reason, now and in each later call. The text is for operators, not for callers.
    pub async fn next(&mut self) -> Result<IncomingMessage, String> {
        match self.messages.recv().await {
            Some(message) => Ok(message),
            None => Err(wait_until_closed(self.closed.clone()).await),
        }
    }
}

impl MqttSender {
    /// Returns whether the connection speaks MQTT 5, and not 3.1.1.
    pub fn is_version_5(&self) -> bool {
        self.is_version_5
    }

    /// Publishes with QoS 1 (R105) and resolves when the broker acknowledges. The message is sent once: after
    /// [`MqttSendError::ConnectionLost`], or if the future is dropped, it is unknown whether the message arrived.
    ///
    /// # Errors
    /// The broker did not acknowledge the message and never will.
    pub async fn publish(
        &self,
        topic: &str,
        payload: impl Into<Bytes>,
        retain: bool,
    ) -> Result<PublishAck, MqttSendError> {
        self.publish_with_properties(topic, payload, retain, Vec::new()).await
    }

    /// Publishes as [`MqttSender::publish`] does, with user properties where the connection has MQTT 5. Properties that
    /// would make the message too large for the broker are left out.
    ///
    /// # Errors
    /// As [`MqttSender::publish`].
    pub async fn publish_with_properties(
        &self,
        topic: &str,
        payload: impl Into<Bytes>,
        retain: bool,
        mut user_properties: Vec<(String, String)>,
    ) -> Result<PublishAck, MqttSendError> {
        let payload = payload.into();
        let size = PACKET_OVERHEAD + topic.len() + payload.len();
        if size > self.max_packet_size {
            return Err(MqttSendError::TooLarge(self.max_packet_size));
        }
        let properties_size: usize =
            user_properties.iter().map(|(name, value)| name.len() + value.len() + PROPERTY_OVERHEAD).sum();
        if size + properties_size > self.max_packet_size {
            user_properties.clear();
        }
        self.await_ack(self.sender.publish(OutgoingPublish { topic, payload, retain, user_properties })).await
    }

    /// Subscribes to `filters` and resolves with the SUBACK: for each filter, whether the broker granted it. Messages
    /// that are published after that are received.
    ///
    /// # Errors
    /// The broker did not respond and never will.
    pub async fn subscribe(&self, filters: &[&str]) -> Result<Vec<bool>, MqttSendError> {
        self.await_ack(self.sender.subscribe(filters)).await
    }

    /// Unsubscribes from `filters` and resolves with the UNSUBACK.
    ///
    /// # Errors
    /// The broker did not respond and never will.
    pub async fn unsubscribe(&self, filters: &[&str]) -> Result<(), MqttSendError> {
        self.await_ack(self.sender.unsubscribe(filters)).await
    }

    /// Acknowledges a message that was received on this connection, once, where the session is kept (see
    /// [`ConnectOptions::session_expiry`](super::ConnectOptions::session_expiry)). If the connection is lost before, the
    /// broker delivers the message again.
    ///
    /// The order of acknowledgements is that in which the messages are handled, not that of their arrival, so that one
    /// slow message does not stop the delivery of the others.
    pub async fn acknowledge(&self, packet_id: u16) {
        if let Err(error) = self.sender.acknowledge(packet_id).await {
            tracing::debug!(error, "cannot acknowledge a message to the MQTT broker");
        }
    }

    /// Sends DISCONNECT after pending acknowledgements, and waits until the connection is closed, at most for the
    /// acknowledgement timeout. The broker then does not publish the last will.
    pub async fn disconnect(&self) {
        let disconnect = async {
            match self.sender.disconnect().await {
                Ok(()) => drop(wait_until_closed(self.closed.clone()).await),
                Err(error) => tracing::debug!(error, "cannot send DISCONNECT to the MQTT broker"),
            }
        };
        if tokio::time::timeout(self.ack_timeout, disconnect).await.is_err() {
            self.abort.notify_one();
        }
    }

    /// Whether the session ended.
    pub fn is_closed(&self) -> bool {
        self.closed.borrow().is_some() || self.closed.has_changed().is_err()
    }

    /// Resolves with the reason when the session ends.
    pub async fn closed(&self) -> String {
        wait_until_closed(self.closed.clone()).await
    }

    async fn await_ack<T>(&self, ack: impl Future<Output = Result<T, String>>) -> Result<T, MqttSendError> {
        let ack = tokio::time::timeout(self.ack_timeout, ack);
        tokio::select! {
            biased;
            result = ack => match result {
                Ok(Ok(result)) => Ok(result),
                // The library reports only a dropped channel; the end of the session has the reason.
                Ok(Err(_)) if self.is_closed() => {
                    Err(MqttSendError::ConnectionLost(wait_until_closed(self.closed.clone()).await))
                }
                Ok(Err(error)) => Err(MqttSendError::Refused(error)),
                Err(_) => {
                    self.abort.notify_one();
                    Err(MqttSendError::ConnectionLost(ACK_TIMED_OUT.to_owned()))
                }
            },
            reason = wait_until_closed(self.closed.clone()) => Err(MqttSendError::ConnectionLost(reason)),
        }
    }
}

async fn wait_until_closed(mut closed: watch::Receiver<Option<String>>) -> String {
    let reason = closed.wait_for(Option::is_some).await;
    // The sender was dropped: the reading task panicked, or was stopped together with the receiver.
    reason.ok().and_then(|reason| reason.clone()).unwrap_or_else(|| "reading from the MQTT broker ended".to_owned())
}
