//! Agents over MQTT (2389 Agent Protocol): a call becomes a task envelope on the agent's input topic, and the reply
//! arrives on a conversation topic with an unguessable name (R110–R112, R115). Agents of one broker share a connection.
//! A task is published once: if the connection is lost, the task's outcome is unknown, and the call is not retried.

mod broker_connection;
mod broker_session;
mod pending_tasks;
mod progress_events;
mod reply_message;
mod task_call;
mod task_envelope;

use super::{
    Transport,
    config::{TransportConfig, UpstreamMqttConfig, UpstreamTimeouts, UpstreamTlsConfig},
};
use crate::{
    agent::{Agent, AgentId},
    mqtt_client::BrokerAddress,
    net::AddressPolicy,
    values::{ConfigDuration, SecretRef},
};
use arc_swap::ArcSwap;
use broker_connection::BrokerConnection;
use http::Uri;
use parking_lot::Mutex;
use std::{
    collections::HashMap,
    sync::{Arc, Weak},
    time::Duration,
};
use task_call::MqttTransport;
use task_envelope::agent_from_topic;
use tokio::sync::watch;

/// The key of a broker connection: agents with equal keys share the connection.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct BrokerKey {
    address: BrokerAddress,
    username: Option<SecretRef>,
    password: Option<SecretRef>,
    tls: Option<UpstreamTlsConfig>,
    keep_alive: Duration,
    /// The timeout of each step of connecting.
    connect_timeout: Duration,
}

/// The address policy in force, with notifications of changes.
#[derive(Debug)]
struct PolicyWatch {
    current: ArcSwap<AddressPolicy>,
    changed: watch::Sender<()>,
}

/// All connections to brokers. It outlives every configuration, and so do connections that an upstream set still uses.
#[derive(Debug)]
pub(super) struct MqttConnections {
    policy: Arc<PolicyWatch>,
    connections: Mutex<HashMap<BrokerKey, Weak<BrokerConnection>>>,
}

impl MqttConnections {
    pub(super) fn new(policy: Arc<AddressPolicy>) -> Arc<Self> {
        let policy = Arc::new(PolicyWatch { current: ArcSwap::new(policy), changed: watch::channel(()).0 });
        Arc::new(Self { policy, connections: Mutex::default() })
    }

    /// Replaces the address policy. Connections opened under the old one serve no further call.
    pub(super) fn set_policy(&self, policy: Arc<AddressPolicy>) {
        self.policy.current.store(policy);
        self.policy.changed.send_replace(());
    }

    /// Builds the transport to the agent whose input topic is the path of `uri`. Connects at the first call.
    pub(super) fn build_transport(
        &self,
        uri: &Uri,
        agent: &Agent,
        settings: &TransportConfig,
    ) -> Result<Arc<dyn Transport>, Vec<String>> {
        let mut problems = problems(settings);
        let address = broker_address(uri, settings).map_err(|problem| problems.push(problem)).ok();
        let agent_id = agent_from_topic(uri.path()).filter(|id| AgentId::is_valid(id));
        if agent_id.is_none() {
            // R107, R108: a message on another topic would not be a task, and could be something else.
            problems
                .push("endpoint: does not end with the input topic of an agent (/control/agents/id/input)".to_owned());
        }
        let (Some(address), Some(agent_id), true) = (address, agent_id, problems.is_empty()) else {
            return Err(problems);
        };
        let timeouts = UpstreamTimeouts::from(&settings.timeouts);
        let login = settings.mqtt.clone();
        let key = BrokerKey {
            tls: address.tls.then(|| settings.tls.clone()),
            address,
            username: login.username,
            password: login.password,
            keep_alive: login.keep_alive.unwrap_or(DEFAULT_KEEP_ALIVE).get(),
            connect_timeout: timeouts.connect,
        };
        Ok(Arc::new(MqttTransport::new(agent_id, agent, self.get_or_create_connection(key), timeouts)))
    }

    fn get_or_create_connection(&self, key: BrokerKey) -> Arc<BrokerConnection> {
        let mut connections = self.connections.lock();
        connections.retain(|_, connection| connection.strong_count() > 0);
        if let Some(connection) = connections.get(&key).and_then(Weak::upgrade) {
            return connection;
        }
        let connection = Arc::new(BrokerConnection::new(key.clone(), Arc::clone(&self.policy)));
        connections.insert(key, Arc::downgrade(&connection));
        connection
    }
}

/// The default keep-alive interval, after which an idle connection is probed with a ping.
const DEFAULT_KEEP_ALIVE: ConfigDuration = ConfigDuration::from_secs(30);

/// Returns the values of `settings` that cannot be used, for any agent. Reads the secrets that are named.
pub(super) fn problems(settings: &TransportConfig) -> Vec<String> {
    let UpstreamMqttConfig { username, password, keep_alive } = &settings.mqtt;
    let mut problems = Vec::new();
    if password.is_some() && username.is_none() {
        problems.push("mqtt.password: needs mqtt.username".to_owned());
    }
    for (name, secret) in [("username", username), ("password", password)] {
        let unusable = secret.as_ref().and_then(|secret| secret.load().err());
        problems.extend(unusable.map(|problem| format!("mqtt.{name}: {problem}")));
    }
    if let Some(keep_alive) = keep_alive
        .filter(|keep_alive| !(ConfigDuration::from_secs(1)..=ConfigDuration::from_secs(600)).contains(keep_alive))
    {
        problems.push(format!("mqtt.keep_alive: is {keep_alive} (must be 1s to 10m)"));
    }
    problems
}

/// Returns the broker's address. Plain text beyond this machine is refused unless the configuration allows it.
fn broker_address(uri: &Uri, settings: &TransportConfig) -> Result<BrokerAddress, String> {
    let host = uri.host().ok_or("endpoint: cannot be called (it has no host)")?;
    let address = BrokerAddress::new(uri.scheme_str() == Some("mqtts"), host, uri.port_u16());
    match address.tls || address.is_loopback() || settings.allow_plaintext == Some(true) {
        true => Ok(address),
        false => {
            Err("endpoint: is plain mqtt beyond this machine (use mqtts, or set allow_plaintext: true)".to_owned())
        }
    }
}

#[cfg(test)]
mod tests;
