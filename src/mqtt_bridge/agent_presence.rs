//! Presence of one agent on one broker, while the agent is exposed there. It has its own MQTT connection, because the
//! last will belongs to one connection, and reconnects whenever the connection ends. Its task ids outlive connections.

use super::{
    AgentInvoker,
    agent_connection::AgentConnection,
    agent_health,
    agent_session::{AgentSession, AgentSessionEnd},
    config::ResolvedBridgeConfig,
    deduplication::RecentTaskIds,
    exposure::Exposure,
    mqtt_topic, payload,
    task_envelope::TaskValidator,
    task_id_file::{FinishedTask, Retention, TaskIdFile},
    task_runner::FinishedTaskIds,
};
use crate::{
    mqtt_client::{ConnectOptions, WillMessage},
    telemetry::BrokerMetrics,
    values::{Backoff, encode_hex, jittered},
};
use aws_lc_rs::hmac;
use parking_lot::Mutex;
use std::{sync::Arc, time::Duration};
use tokio::{sync::watch, time::Instant};

/// Timeout of each step of connecting, and of each acknowledgement.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Shortest and longest delay between two connection attempts, before jitter.
const MIN_RECONNECT_DELAY: Duration = Duration::from_secs(1);
const MAX_RECONNECT_DELAY: Duration = Duration::from_secs(15);
/// How much the delay varies in either direction, as a share of it.
const RECONNECT_JITTER: f64 = 0.5;
/// Shortest and longest delay between two attempts to open the file of task ids that another process has open.
const MIN_LOCK_RETRY_DELAY: Duration = Duration::from_millis(100);
const MAX_LOCK_RETRY_DELAY: Duration = Duration::from_secs(3);
/// An attempt and its connection that lasted at least this long reset the delay to the shortest one.
const STABLE_AFTER: Duration = Duration::from_secs(10);

/// One agent on one broker.
pub struct AgentPresence {
    /// Id of the agent.
    pub agent: String,
    /// The bridge entry that exposes the agent.
    pub bridge: Arc<ResolvedBridgeConfig>,
    /// The metrics of the broker.
    pub broker: Arc<BrokerMetrics>,
    /// Calls the agent.
    pub invoker: Arc<dyn AgentInvoker>,
    /// Whether the agent is offered. A dropped sender is the same as [`Exposure::Suspended`].
    pub exposure: watch::Receiver<Exposure>,
    /// Time that running tasks have to finish after the agent is withdrawn.
    pub drain_timeout: watch::Receiver<Duration>,
}

impl AgentPresence {
    /// Keeps the agent on the broker until it is withdrawn; then announces the withdrawal and finishes running tasks
    /// (R119).
    pub async fn run(mut self) {
        let mut withdrawn = self.exposure.clone();
        let (finished_ids, known_ids) = tokio::select! {
            opened = self.open_finished_ids() => opened,
            () = wait_for_withdrawal(&mut withdrawn) => return,
        };
        let (config, agent) = (&self.bridge.config, self.agent.clone());
        let mut recent_ids = RecentTaskIds::new(config.max_deduplication_ids.get() as usize, config.id_ttl());
        recent_ids.restore(known_ids, std::time::Instant::now());
        let validator = TaskValidator::new(&agent, recent_ids, config.final_destinations.clone());
        let (health, _probe) = agent_health::spawn_health_probe(&self.invoker, &agent);
        let mut session = AgentSession::new(validator, &self.bridge, &self.invoker, health, finished_ids.clone());
        let mut backoff = Backoff::new(MIN_RECONNECT_DELAY, MAX_RECONNECT_DELAY);
        while self.is_exposed() {
            let started = Instant::now();
            let connection = tokio::select! {
                connection = self.connect_with_will() => connection,
                () = wait_for_withdrawal(&mut withdrawn) => break,
            };
            let reason = match connection {
                Ok(connection) => match session.run(connection, &mut self.exposure, &self.drain_timeout).await {
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
                    () = session.tasks.wait_reaping_tasks(delay) => {}
                    () = wait_for_withdrawal(&mut withdrawn) => break,
                }
            }
        }
        // Another gateway took the connection over, or it was lost: results of running tasks go over a new connection.
        if !session.tasks.is_empty()
            && let Ok(connection) = self.connect_anonymously().await
        {
            let drain_timeout = *self.drain_timeout.borrow();
            session.drain_on(connection, &self.exposure, drain_timeout).await;
        }
        drop(session);
        if *self.exposure.borrow() == Exposure::Withdrawn
            && let Some(file) = finished_ids
        {
            self.delete_finished_ids(file).await;
        }
    }

    /// Deletes the ids of an agent that is not offered any more: the broker keeps no tasks for it.
    async fn delete_finished_ids(&self, file: Arc<Mutex<TaskIdFile>>) {
        let deleted = tokio::task::spawn_blocking(move || file.lock().delete()).await;
        if let Err(error) = deleted.map_err(std::io::Error::other).flatten() {
            tracing::warn!(agent = self.agent, %error, "cannot delete the ids of finished tasks (see mqtt_bridge.state_folder)");
        }
    }

    fn is_exposed(&self) -> bool {
        self.exposure.borrow().is_exposed() && self.exposure.has_changed().is_ok()
    }

    /// Opens the file with the ids of finished tasks, and returns the ids in it. Waits while another process serves the
    /// agent, such as the previous one of a listener handover: the broker would deliver that process's unfinished tasks
    /// to the next connection.
    async fn open_finished_ids(&self) -> (FinishedTaskIds, Vec<FinishedTask>) {
        let config = &self.bridge.config;
        let Some(folder) = &config.state_folder else { return (None, Vec::new()) };
        let retention = Retention { max_ids: config.max_deduplication_ids.get() as usize, ttl: config.id_ttl() };
        let mut is_first_attempt = true;
        let mut backoff = Backoff::new(MIN_LOCK_RETRY_DELAY, MAX_LOCK_RETRY_DELAY);
        loop {
            let (folder, name) = (folder.clone(), self.client_id());
            let opened = tokio::task::spawn_blocking(move || TaskIdFile::open(&folder, &name, retention)).await;
            match opened.map_err(std::io::Error::other).flatten() {
                Ok(Some((file, ids))) => return (Some(Arc::new(Mutex::new(file))), ids),
                Ok(None) if is_first_attempt => {
                    tracing::info!(agent = self.agent, "agent is not offered yet: another process serves it");
                }
                Ok(None) => {}
                Err(error) => {
                    let (agent, folder) = (&self.agent, config.state_folder.as_deref());
                    tracing::warn!(agent, ?folder, %error, "ids of finished tasks are not stored: a task may run again after a restart (see mqtt_bridge.state_folder)");
                    return (None, Vec::new());
                }
            }
            is_first_attempt = false;
            tokio::time::sleep(jittered(backoff.next_delay(), RECONNECT_JITTER)).await;
        }
    }

    /// Connects with a last will that announces the agent as unavailable (R118).
    async fn connect_with_will(&self) -> Result<AgentConnection, String> {
        let options = self.bridge.config.mqtt.connect_options(&self.bridge.address, CONNECT_TIMEOUT).await?;
        let will = WillMessage {
            topic: mqtt_topic::status_topic(&self.agent),
            payload: payload::status_payload(&self.agent, None).into(),
        };
        let options = ConnectOptions {
            will: Some(will),
            client_id: Some(self.client_id()),
            session_expiry: self.bridge.config.persistent_session(),
            receive_maximum: Some(self.bridge.config.max_tasks()),
            metrics: Some(Arc::clone(&self.broker)),
            ..options
        };
        AgentConnection::open(&options).await
    }

    /// Connects with a random client id and without a last will.
    async fn connect_anonymously(&self) -> Result<AgentConnection, String> {
        let options = self.bridge.config.mqtt.connect_options(&self.bridge.address, CONNECT_TIMEOUT).await?;
        AgentConnection::open(&options).await
    }

    /// Derives the MQTT client id from the key. The id is stable, so that a restarted gateway finds its session, and a
    /// gateway that takes over ends the connection of its predecessor. Without the key it cannot be guessed.
    fn client_id(&self) -> String {
        let key = hmac::Key::new(hmac::HMAC_SHA256, self.bridge.key.expose().as_bytes());
        let tag = hmac::sign(&key, format!("{} {}", self.bridge.address.base_url(), self.agent).as_bytes());
        format!("gp{}", encode_hex(tag.as_ref().get(..10).unwrap_or_default()))
    }
}

/// Resolves when the agent is withdrawn.
async fn wait_for_withdrawal(exposure: &mut watch::Receiver<Exposure>) {
    // A dropped sender also withdraws the agent.
    let _ = exposure.wait_for(|exposure| !exposure.is_exposed()).await;
}
