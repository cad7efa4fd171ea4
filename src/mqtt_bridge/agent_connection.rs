//! One MQTT connection of a bridged agent.

use crate::mqtt_client::{self, ConnectOptions, MqttReceiver, MqttSender};

/// Both halves of a connection.
#[derive(Debug)]
pub(super) struct AgentConnection {
    pub(super) sender: MqttSender,
    pub(super) receiver: MqttReceiver,
}

impl AgentConnection {
    /// Connects to the broker.
    ///
    /// # Errors
    /// Why that failed, for the log.
    pub(super) async fn open(options: &ConnectOptions) -> Result<Self, String> {
        let (sender, receiver) = mqtt_client::connect(options).await?;
        Ok(Self { sender, receiver })
    }
}
