//! How a broker is reached and its agents are settled, as it is written. What a conversation may be opened with is
//! judged where conversations are.

use crate::{
    broker::BrokerSettings,
    unit::{FilePath, SecretRef, Span},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How a broker is reached, beyond its address.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[schemars(rename = "MqttSettings")]
#[serde(deny_unknown_fields, default)]
pub struct MqttSettings {
    /// The user name; default none.
    pub username: Option<SecretRef>,
    /// The password; needs a username. Default none.
    pub password: Option<SecretRef>,
    /// A PEM file of certificate authorities to believe besides the system's. Default: only the system's.
    pub ca: Option<FilePath>,
    /// Whether mqtt:// (plain text) may leave this machine. Default false.
    pub insecure: bool,
    /// After so long without a word the broker is asked whether it is still there; 1s to 10m. Default 30s.
    pub keep_alive: Span,
    /// After each connection, how long an agent that was known has to show its status again before it is gone;
    /// 100ms to 1h. A broker that lost its retained messages gets them back only as agents return. Default 30s.
    pub settle: Span,
}

impl Default for MqttSettings {
    fn default() -> Self {
        Self {
            username: None,
            password: None,
            ca: None,
            insecure: false,
            keep_alive: Span::secs(30),
            settle: Span::secs(30),
        }
    }
}

impl MqttSettings {
    /// What the conversation itself needs.
    pub(super) fn broker(&self) -> BrokerSettings {
        BrokerSettings {
            username: self.username.clone(),
            password: self.password.clone(),
            ca: self.ca.clone(),
            insecure: self.insecure,
            keep_alive: self.keep_alive,
        }
    }

    /// Every value that cannot be used with the broker at `url`, by its path within the source. Reads the files and
    /// secrets that are named.
    pub fn problems(&self, url: &str) -> Vec<String> {
        let mut problems = self.broker().problems(url);
        if !(Span::millis(100)..=Span::secs(3_600)).contains(&self.settle) {
            problems.push(format!("mqtt.settle: must be 100ms to 1h, not {}", self.settle));
        }
        problems
    }
}
