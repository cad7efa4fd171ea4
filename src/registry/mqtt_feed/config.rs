//! Configuration of an MQTT source: connection settings and timing. The MQTT client validates the connection settings
//! itself.

use crate::{
    mqtt_client::BrokerSettings,
    values::{ConfigDuration, ConfigPath, SecretRef},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Connection settings of an MQTT source, besides its address.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[schemars(rename = "MqttSettings")]
#[serde(deny_unknown_fields, default)]
pub struct MqttSourceConfig {
    /// User name. Default: none.
    pub username: Option<SecretRef>,
    /// Password; requires a username. Default: none.
    pub password: Option<SecretRef>,
    /// PEM file of certificate authorities to trust besides the system's. Default: only the system's.
    pub ca: Option<ConfigPath>,
    /// Whether mqtt:// (plain text) is allowed to brokers beyond this machine. Default false.
    pub allow_plaintext: bool,
    /// MQTT keep-alive: after this time without a packet the client sends a ping; 1s to 10m. Default 30s.
    pub keep_alive: ConfigDuration,
    /// Time after each connection within which a known agent must publish its status again, or it is removed; 100ms to
    /// 1h. A broker that lost its retained messages receives them again only as agents reconnect. Default 30s.
    pub resync_timeout: ConfigDuration,
}

impl Default for MqttSourceConfig {
    fn default() -> Self {
        Self {
            username: None,
            password: None,
            ca: None,
            allow_plaintext: false,
            keep_alive: ConfigDuration::from_secs(30),
            resync_timeout: ConfigDuration::from_secs(30),
        }
    }
}

impl MqttSourceConfig {
    /// Returns the settings of the MQTT client.
    pub fn client_settings(&self) -> BrokerSettings {
        BrokerSettings {
            username: self.username.clone(),
            password: self.password.clone(),
            ca: self.ca.clone(),
            allow_plaintext: self.allow_plaintext,
            keep_alive: self.keep_alive,
        }
    }

    /// Returns every value that cannot be used with the broker at `url`, by its path within the source. Reads the files
    /// and secrets that the settings name.
    pub fn problems(&self, url: &str) -> Vec<String> {
        let mut problems = self.client_settings().problems(url);
        if !(ConfigDuration::from_millis(100)..=ConfigDuration::from_secs(3_600)).contains(&self.resync_timeout) {
            problems.push(format!("mqtt.resync_timeout: must be 100ms to 1h, not {}", self.resync_timeout));
        }
        problems
    }
}
