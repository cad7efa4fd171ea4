//! How a broker is reached, as it is written. It refuses what would send statuses or passwords in plain text beyond
//! this machine without saying so.

use crate::{
    net::{Authorities, Url},
    unit::{FilePath, SecretRef, Span},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::net::IpAddr;

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

/// A broker's address, taken apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Address {
    pub(super) secure: bool,
    pub(super) host: String,
    pub(super) port: u16,
}

impl Address {
    /// Reads `mqtts://host` or `mqtt://host`, with a port or without.
    pub(super) fn read(url: &str) -> Result<Self, String> {
        let parsed = Url::parse(url).map_err(|_| "url: is not a URL (write mqtts://host:port)".to_owned())?;
        let secure = match parsed.scheme() {
            "mqtts" => true,
            "mqtt" => false,
            _ => return Err("url: must begin with mqtts:// (or mqtt:// on this machine)".to_owned()),
        };
        if !parsed.username().is_empty() || parsed.password().is_some() {
            return Err("url: must not hold a user or password (write mqtt.username: env:NAME)".to_owned());
        }
        if !matches!(parsed.path(), "" | "/") || parsed.query().is_some() || parsed.fragment().is_some() {
            return Err("url: ends with the host and port; the topics are those of the 2389 protocol".to_owned());
        }
        let host = parsed.host_str().filter(|host| !host.is_empty()).ok_or("url: has no host")?;
        let port = parsed.port().unwrap_or(if secure { 8883 } else { 1883 });
        match port {
            0 => Err("url: port 0 cannot be connected to".to_owned()),
            _ => Ok(Self { secure, host: host.to_ascii_lowercase(), port }),
        }
    }

    /// The address as a URL without a path.
    pub(super) fn base(&self) -> String {
        let scheme = if self.secure { "mqtts" } else { "mqtt" };
        format!("{scheme}://{}:{}", self.host, self.port)
    }

    fn is_this_machine(&self) -> bool {
        let bare = self.host.trim_start_matches('[').trim_end_matches(']');
        bare == "localhost" || bare.parse::<IpAddr>().is_ok_and(|ip| ip.to_canonical().is_loopback())
    }
}

impl MqttSettings {
    /// Every value that cannot be used with the broker at `url`, by its path within the source. Reads the files and
    /// secrets that are named.
    pub fn problems(&self, url: &str) -> Vec<String> {
        let mut problems = Vec::new();
        match Address::read(url) {
            Ok(address) if !address.secure && !address.is_this_machine() && !self.insecure => problems.push(
                "url: is plain text beyond this machine (write mqtts://, or spell mqtt.insecure: true)".to_owned(),
            ),
            Ok(_) => {}
            Err(why) => problems.push(why),
        }
        if self.password.is_some() && self.username.is_none() {
            problems.push("mqtt.password: needs mqtt.username".to_owned());
        }
        for (name, secret) in [("username", &self.username), ("password", &self.password)] {
            let unusable = secret.as_ref().and_then(|secret| secret.load().err());
            problems.extend(unusable.map(|why| format!("mqtt.{name}: {why}")));
        }
        if let Some(ca) = &self.ca {
            problems.extend(Authorities::load(Some(ca)).err().map(|why| format!("mqtt.{why}")));
        }
        if !(Span::secs(1)..=Span::secs(600)).contains(&self.keep_alive) {
            problems.push(format!("mqtt.keep_alive: must be 1s to 10m, not {}", self.keep_alive));
        }
        if !(Span::millis(100)..=Span::secs(3_600)).contains(&self.settle) {
            problems.push(format!("mqtt.settle: must be 100ms to 1h, not {}", self.settle));
        }
        problems
    }
}
