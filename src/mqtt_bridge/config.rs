//! Configuration of the MQTT bridge: the brokers, and the agents that are exposed on them.

use super::mqtt_topic::is_topic_filter;
use crate::{
    mqtt_client::{BrokerAddress, BrokerSettings},
    values::{ConfigDuration, ConfigPath, Glob, Secret, SecretRef},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::{
    num::{NonZeroU16, NonZeroU32},
    time::Duration,
};

/// An MQTT broker on which agents of the gateway are exposed as agents of the 2389 protocol. When several gateways
/// expose an agent on a broker, one of them serves it: the last to connect takes it over.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[schemars(rename = "Bridge")]
#[serde(deny_unknown_fields)]
pub struct MqttBridgeConfig {
    /// URL of the broker: `mqtts://host:port`, or `mqtt://host:port` on this machine.
    pub url: String,
    /// How to connect to the broker.
    #[serde(default)]
    pub mqtt: BrokerSettings,
    /// API key of the calls to agents. Grants, limits and access log are those of the key's caller.
    pub api_key: SecretRef,
    /// Ids or patterns of the agents to expose. Only active agents that the key may call are exposed, and no agents
    /// whose own endpoint is MQTT.
    #[schemars(length(min = 1))]
    pub agents: Vec<Glob>,
    /// Maximum number of exposed agents, each with its own connection; 1 to 10000. Default: 100.
    #[serde(default = "default_max_agents")]
    pub max_agents: NonZeroU16,
    /// Maximum number of concurrent tasks of one agent; at least 1. Default: 16.
    #[serde(default = "default_max_concurrency")]
    pub max_concurrency: NonZeroU16,
    /// Maximum number of queued tasks of one agent. With a session, further ones of 16 MiB
    /// together wait (64 of the longest). Others get an error.
    /// Default: 64.
    #[serde(default = "default_max_queued")]
    pub max_queued: u16,
    /// How long the broker keeps tasks for an agent while the gateway is not connected, such as during a restart; whole
    /// seconds, 0s to 7d. With 0s it keeps none. Brokers with MQTT 3.1.1 have a setting of their own. Default: 1h.
    #[serde(default = "default_session_expiry")]
    pub session_expiry: ConfigDuration,
    /// Folder for the ids of tasks that are done, so that a restart repeats none of them. The processes of one machine
    /// share it; one of them serves an agent at a time. Null for none. Default: gatepost.state/mqtt_bridge.
    #[serde(default = "default_state_folder")]
    pub state_folder: Option<ConfigPath>,
    /// Topic filters (with + and #) of the final destinations that a task may name in its last `next`, besides inputs of
    /// agents and conversations. The gateway publishes there with its own login. The protocol's own topics and those of
    /// the broker ($…) are never permitted. Default: none.
    #[serde(default)]
    pub final_destinations: Vec<String>,
    /// How long the id of a task is remembered to discard duplicates; 1s to 7d, and at least `session_expiry`.
    /// Default: 1h.
    #[serde(default = "default_deduplication_ttl")]
    pub deduplication_ttl: ConfigDuration,
    /// Maximum number of remembered ids of each agent; the oldest are forgotten first; 1 to 1000000. Default: 10000.
    #[serde(default = "default_max_deduplication_ids")]
    pub max_deduplication_ids: NonZeroU32,
}

fn default_max_agents() -> NonZeroU16 {
    const { NonZeroU16::new(100).expect("it is not zero") }
}

fn default_max_concurrency() -> NonZeroU16 {
    const { NonZeroU16::new(16).expect("it is not zero") }
}

fn default_max_queued() -> u16 {
    64
}

fn default_session_expiry() -> ConfigDuration {
    ConfigDuration::from_secs(3_600)
}

fn default_state_folder() -> Option<ConfigPath> {
    "gatepost.state/mqtt_bridge".parse().ok()
}

fn default_deduplication_ttl() -> ConfigDuration {
    ConfigDuration::from_secs(3_600)
}

fn default_max_deduplication_ids() -> NonZeroU32 {
    const { NonZeroU32::new(10_000).expect("it is not zero") }
}

impl MqttBridgeConfig {
    /// Returns every unusable value, by its path within this entry. Reads the referenced files and secrets.
    pub fn problems(&self) -> Vec<String> {
        let mut problems = self.mqtt.problems(&self.url);
        problems.extend(self.api_key.load().err().map(|problem| format!("api_key: {problem}")));
        if self.agents.is_empty() {
            problems.push("agents: is empty (list agent ids or patterns; '*' is all agents)".to_owned());
        }
        if self.max_agents.get() > 10_000 {
            problems.push(format!("max_agents: must be 1 to 10000, not {}", self.max_agents));
        }
        if self.max_deduplication_ids.get() > 1_000_000 {
            problems.push(format!("max_deduplication_ids: must be 1 to 1000000, not {}", self.max_deduplication_ids));
        }
        if !(ConfigDuration::from_secs(1)..=ConfigDuration::from_secs(7 * 86_400)).contains(&self.deduplication_ttl) {
            problems.push(format!("deduplication_ttl: must be 1s to 7d, not {}", self.deduplication_ttl));
        }
        let expiry = self.session_expiry.get();
        if expiry > Duration::from_secs(7 * 86_400) || expiry.subsec_nanos() > 0 {
            problems.push(format!("session_expiry: must be 0s to 7d in whole seconds, not {}", self.session_expiry));
        }
        let invalid = self.final_destinations.iter().enumerate().filter(|(_, filter)| !is_topic_filter(filter));
        problems.extend(invalid.map(|(index, _)| {
            format!("final_destinations[{index}]: is not a topic filter (write results/#, or '#' for every topic)")
        }));
        problems
    }

    /// Returns how long the broker keeps a session; `None` where each connection has a session of its own.
    pub(super) fn persistent_session(&self) -> Option<Duration> {
        Some(self.session_expiry.get()).filter(|expiry| !expiry.is_zero())
    }

    /// Returns the maximum number of tasks of one agent that run or are queued, at most 65535.
    pub(super) fn max_tasks(&self) -> NonZeroU16 {
        self.max_concurrency.saturating_add(self.max_queued)
    }

    /// Returns how long ids of tasks are remembered: at least as long as the broker may deliver a task again.
    pub(super) fn id_ttl(&self) -> Duration {
        self.deduplication_ttl.get().max(self.session_expiry.get())
    }
}

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
