//! All connections to the brokers of agents. Agents with equal settings share a connection.

use super::{
    broker_connection::BrokerConnection,
    broker_key::{BrokerKey, PolicyWatch},
    mqtt_transport::MqttTransport,
    task_envelope::agent_from_topic,
};
use crate::{
    agent::{Agent, AgentEndpoint, AgentId, EndpointUrl},
    mqtt_client::BrokerAddress,
    net::AddressPolicy,
    telemetry::Metrics,
    transport::{
        config::{TransportConfig, UpstreamMqttConfig},
        endpoint_transport::EndpointTransport,
        timeouts::UpstreamTimeouts,
        transport_kind::{TransportKind, unsuitable_endpoint},
    },
    values::ConfigDuration,
};
use parking_lot::Mutex;
use std::{
    collections::HashMap,
    sync::{Arc, OnceLock, Weak},
};

/// All connections to brokers. It outlives every configuration, and so do connections that an upstream set still uses.
#[derive(Debug)]
pub(in crate::transport) struct MqttConnections {
    policy: Arc<PolicyWatch>,
    metrics: Arc<OnceLock<Arc<Metrics>>>,
    connections: Mutex<HashMap<BrokerKey, Weak<BrokerConnection>>>,
}

impl MqttConnections {
    pub(in crate::transport) fn new(policy: Arc<AddressPolicy>) -> Self {
        Self { policy: Arc::new(PolicyWatch::new(policy)), metrics: Arc::default(), connections: Mutex::default() }
    }

    /// Sets the metrics of the brokers.
    pub(in crate::transport) fn set_metrics(&self, metrics: &Arc<Metrics>) {
        drop(self.metrics.set(Arc::clone(metrics)));
    }

    fn get_or_create_connection(&self, key: BrokerKey) -> Arc<BrokerConnection> {
        let mut connections = self.connections.lock();
        connections.retain(|_, connection| connection.strong_count() > 0);
        if let Some(connection) = connections.get(&key).and_then(Weak::upgrade) {
            return connection;
        }
        let connection =
            Arc::new(BrokerConnection::new(key.clone(), Arc::clone(&self.policy), Arc::clone(&self.metrics)));
        connections.insert(key, Arc::downgrade(&connection));
        connection
    }
}

impl TransportKind for MqttConnections {
    fn problems(&self, settings: &TransportConfig) -> Vec<String> {
        let UpstreamMqttConfig { username, password, keep_alive, .. } = &settings.mqtt;
        let mut problems = Vec::new();
        if password.is_some() && username.is_none() {
            problems.push("mqtt.password: needs mqtt.username".to_owned());
        }
        let user = username.as_ref().and_then(|name| name.load_name().err());
        problems.extend(user.map(|problem| format!("mqtt.username: {problem}")));
        let unusable = password.as_ref().and_then(|secret| secret.load().err());
        problems.extend(unusable.map(|problem| format!("mqtt.password: {problem}")));
        if let Some(keep_alive) = keep_alive
            .filter(|keep_alive| !(ConfigDuration::from_secs(1)..=ConfigDuration::from_secs(600)).contains(keep_alive))
        {
            problems.push(format!("mqtt.keep_alive: is {keep_alive} (must be 1s to 10m)"));
        }
        problems
    }

    /// Builds the transport to the agent whose input topic is the path of the endpoint. Connects at the first call.
    fn build_transport(&self, agent: &Agent, settings: &TransportConfig) -> Result<EndpointTransport, Vec<String>> {
        let AgentEndpoint::Url(url) = &agent.endpoint else { return Err(unsuitable_endpoint(&agent.endpoint)) };
        let mut problems = self.problems(settings);
        let address = broker_address(url, settings).map_err(|problem| problems.push(problem)).ok();
        let agent_id = agent_from_topic(url.uri().path()).filter(|id| AgentId::is_valid(id));
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
        let connection = self.get_or_create_connection(key);
        Ok(EndpointTransport::Other(Arc::new(MqttTransport::new(agent_id, agent, connection, timeouts))))
    }

    fn set_address_policy(&self, policy: &Arc<AddressPolicy>) {
        self.policy.set(Arc::clone(policy));
    }
}

/// The default keep-alive interval, after which an idle connection is probed with a ping.
const DEFAULT_KEEP_ALIVE: ConfigDuration = ConfigDuration::from_secs(30);

/// Returns the broker's address. Plain text beyond this machine is refused unless the configuration allows it.
fn broker_address(url: &EndpointUrl, settings: &TransportConfig) -> Result<BrokerAddress, String> {
    let host = url.uri().host().ok_or("endpoint: cannot be called (it has no host)")?;
    let uses_tls = url.scheme().is_encrypted_or_local();
    let address = BrokerAddress::new(uses_tls, host, url.uri().port_u16());
    if !address.tls && !address.is_loopback() && settings.allow_plaintext != Some(true) {
        return Err("endpoint: is plain mqtt beyond this machine (use mqtts, or set allow_plaintext: true)".to_owned());
    }
    Ok(address)
}
