//! Connection settings of an MQTT broker, as configured. Rejects settings that would send messages or passwords in
//! plain text beyond this machine, unless the configuration allows it.

use super::{BrokerAddress, ConnectOptions};
use crate::{
    net::TlsClientSettings,
    values::{ConfigDuration, ConfigPath, SecretRef},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Connection settings of an MQTT broker.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct BrokerSettings {
    /// The user name. Default: none.
    pub username: Option<SecretRef>,
    /// The password; requires `username`. Default: none.
    pub password: Option<SecretRef>,
    /// A PEM file of certificate authorities to trust besides the system's. Default: only the system's.
    pub ca: Option<ConfigPath>,
    /// Whether mqtt:// (plain text) may leave this machine. Default: false.
    pub allow_plaintext: bool,
    /// Interval of inactivity after which the gateway sends a PINGREQ; 1s to 10m. Default: 30s.
    pub keep_alive: ConfigDuration,
}

impl Default for BrokerSettings {
    fn default() -> Self {
        Self {
            username: None,
            password: None,
            ca: None,
            allow_plaintext: false,
            keep_alive: ConfigDuration::from_secs(30),
        }
    }
}

impl BrokerSettings {
    /// Returns every value that cannot be used with the broker at `url`. Problems of a setting begin with `mqtt.`,
    /// problems of the address with `url: `. Reads the referenced files and secrets.
    pub fn problems(&self, url: &str) -> Vec<String> {
        let mut problems = Vec::new();
        match BrokerAddress::parse(url) {
            Ok(address) if !address.tls && !address.is_loopback() && !self.allow_plaintext => problems.push(
                "url: is plain text beyond this machine (write mqtts://, or set mqtt.allow_plaintext: true)".to_owned(),
            ),
            Ok(_) => {}
            Err(problem) => problems.push(problem),
        }
        if self.password.is_some() && self.username.is_none() {
            problems.push("mqtt.password: needs mqtt.username".to_owned());
        }
        let user = self.username.as_ref().and_then(|name| name.load_name().err());
        problems.extend(user.map(|problem| format!("mqtt.username: {problem}")));
        let unusable = self.password.as_ref().and_then(|secret| secret.load().err());
        problems.extend(unusable.map(|problem| format!("mqtt.password: {problem}")));
        if let Some(ca) = &self.ca {
            problems.extend(TlsClientSettings::load(Some(ca)).err().map(|problem| format!("mqtt.{problem}")));
        }
        if !(ConfigDuration::from_secs(1)..=ConfigDuration::from_secs(600)).contains(&self.keep_alive) {
            problems.push(format!("mqtt.keep_alive: must be 1s to 10m, not {}", self.keep_alive));
        }
        problems
    }

    /// Builds the options for connecting to the broker at `address`, without a last will; `timeout` limits each step.
    /// Reads secrets and files again, so that changed ones take effect with the next connection.
    ///
    /// # Errors
    /// A secret or a file cannot be read.
    pub async fn connect_options(&self, address: &BrokerAddress, timeout: Duration) -> Result<ConnectOptions, String> {
        let (settings, use_tls) = (self.clone(), address.tls);
        let loading = tokio::task::spawn_blocking(move || {
            let load = |secret: &Option<SecretRef>| secret.as_ref().map(SecretRef::load).transpose();
            let name = settings.username.as_ref().map(SecretRef::load_name).transpose()?;
            let credentials = name.map(|name| Ok::<_, String>((name, load(&settings.password)?)));
            let authorities = use_tls.then(|| TlsClientSettings::load(settings.ca.as_deref())).transpose()?;
            Ok::<_, String>((credentials.transpose()?, authorities))
        });
        let (credentials, authorities) =
            loading.await.map_err(|_| "the task that reads secrets failed".to_owned())??;
        Ok(ConnectOptions {
            credentials,
            authorities,
            keep_alive: self.keep_alive.get(),
            ..ConnectOptions::new(address.clone(), timeout)
        })
    }
}
