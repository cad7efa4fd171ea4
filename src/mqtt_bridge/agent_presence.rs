//! Presence of one agent on one broker, while the agent is exposed there. It has its own MQTT connection, because the
//! last will belongs to one connection, and reconnects whenever the connection ends. Its task ids outlive connections.

use super::{
    AgentInvoker, MqttBridgeConfig, StatusDetails, agent_health,
    agent_session::{AgentSession, AgentSessionEnd},
    deduplication::RecentTaskIds,
    mqtt_topic, payload,
    task_envelope::TaskValidator,
};
use crate::{
    mqtt_client::{self, BrokerAddress, ConnectOptions, MqttReceiver, MqttSender, WillMessage},
    values::{Backoff, Secret, encode_hex, jittered},
};
use aws_lc_rs::hmac;
use std::{sync::Arc, time::Duration};
use tokio::{sync::watch, time::Instant};

/// Timeout of each step of connecting, and of each acknowledgement.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Shortest and longest delay between two connection attempts, before jitter.
const MIN_RECONNECT_DELAY: Duration = Duration::from_secs(1);
const MAX_RECONNECT_DELAY: Duration = Duration::from_secs(15);
/// How much the delay varies in either direction, as a share of it.
const RECONNECT_JITTER: f64 = 0.5;
/// An attempt and its connection that lasted at least this long reset the delay to the shortest one.
const STABLE_AFTER: Duration = Duration::from_secs(10);

/// One entry of the bridge configuration, with its address parsed and its key loaded.
#[derive(Debug, PartialEq, Eq)]
pub struct ResolvedBridgeConfig {
    /// Address of the broker.
    pub address: BrokerAddress,
    /// The configuration entry: connection settings and limits.
    pub config: MqttBridgeConfig,
    /// API key for the calls to agents; the MQTT client ids are derived from it.
    pub key: Secret,
}

/// One agent on one broker.
pub struct AgentPresence {
    /// Id of the agent.
    pub agent: String,
    /// The bridge entry that exposes the agent.
    pub bridge: Arc<ResolvedBridgeConfig>,
    /// Calls the agent.
    pub invoker: Arc<dyn AgentInvoker>,
    /// Details for the status. `None`, or a dropped sender, withdraws the agent.
    pub details: watch::Receiver<Option<Arc<StatusDetails>>>,
    /// Time that running tasks have to finish after the agent is withdrawn.
    pub drain_timeout: watch::Receiver<Duration>,
}

impl AgentPresence {
    /// Keeps the agent on the broker until it is withdrawn; then announces the withdrawal and finishes running tasks
    /// (R119).
    pub async fn run(mut self) {
        let (config, agent) = (&self.bridge.config, self.agent.clone());
        let recent_ids =
            RecentTaskIds::new(config.max_deduplication_ids.get() as usize, config.deduplication_ttl.get());
        let (health, _probe) = agent_health::spawn_health_probe(&self.invoker, &agent);
        let mut session =
            AgentSession::new(TaskValidator::new(&agent, recent_ids), &self.bridge, &self.invoker, health);
        let mut backoff = Backoff::new(MIN_RECONNECT_DELAY, MAX_RECONNECT_DELAY);
        let mut withdrawn = self.details.clone();
        while self.is_exposed() {
            let started = Instant::now();
            let connection = tokio::select! {
                connection = self.connect_with_will() => connection,
                () = wait_for_withdrawal(&mut withdrawn) => break,
            };
            let reason = match connection {
                Ok(connection) => match session.run(connection, &mut self.details, &self.drain_timeout).await {
                    AgentSessionEnd::Withdrawn => break,
                    AgentSessionEnd::Disconnected(reason) => reason,
                },
                Err(reason) => reason,
            };
            if started.elapsed() >= STABLE_AFTER {
                backoff.reset();
            }
            if self.is_exposed() {
                let broker = self.bridge.address.base_url();
                tracing::warn!(agent, %broker, reason, "no MQTT connection for the agent");
                let delay = jittered(backoff.next_delay(), RECONNECT_JITTER);
                tokio::select! {
                    () = session.wait_reaping_tasks(delay) => {}
                    () = wait_for_withdrawal(&mut withdrawn) => break,
                }
            }
        }
        // Another gateway took the connection over, or it was lost: results of running tasks go over a new connection.
        if session.has_running_tasks()
            && let Ok(connection) = self.connect_anonymously().await
        {
            let drain_timeout = *self.drain_timeout.borrow();
            session.drain_on(connection, drain_timeout).await;
        }
    }

    fn is_exposed(&self) -> bool {
        self.details.borrow().is_some() && self.details.has_changed().is_ok()
    }

    /// Connects with a last will that announces the agent as unavailable (R118).
    async fn connect_with_will(&self) -> Result<(MqttSender, MqttReceiver), String> {
        let options = self.bridge.config.mqtt.connect_options(&self.bridge.address, CONNECT_TIMEOUT).await?;
        let will = WillMessage {
            topic: mqtt_topic::status_topic(&self.agent),
            payload: payload::status_payload(&self.agent, None).into(),
        };
        mqtt_client::connect(&ConnectOptions { will: Some(will), client_id: Some(self.client_id()), ..options }).await
    }

    /// Connects with a random client id and without a last will.
    async fn connect_anonymously(&self) -> Result<(MqttSender, MqttReceiver), String> {
        mqtt_client::connect(&self.bridge.config.mqtt.connect_options(&self.bridge.address, CONNECT_TIMEOUT).await?)
            .await
    }

    /// Derives the MQTT client id from the key. The id is stable, so that a gateway that takes over ends the connection
    /// of its predecessor and no task is executed by both. Without the key it cannot be guessed.
    fn client_id(&self) -> String {
        let key = hmac::Key::new(hmac::HMAC_SHA256, self.bridge.key.expose().as_bytes());
        let tag = hmac::sign(&key, format!("{} {}", self.bridge.address.base_url(), self.agent).as_bytes());
        format!("gp{}", encode_hex(tag.as_ref().get(..10).unwrap_or_default()))
    }
}

/// Resolves when the agent is withdrawn.
async fn wait_for_withdrawal(details: &mut watch::Receiver<Option<Arc<StatusDetails>>>) {
    // A dropped sender also withdraws the agent.
    let _ = details.wait_for(Option::is_none).await;
}
