//! Address of an MQTT broker, without topic and credentials.

use crate::{net::Url, values::is_loopback_host};

/// Parsed address of a broker.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct BrokerAddress {
    /// Whether to use TLS.
    pub tls: bool,
    /// Host name or IP address, in lower case; an IPv6 address in brackets.
    pub host: String,
    /// Port, never 0.
    pub port: u16,
}

impl BrokerAddress {
    /// Parses `mqtts://host` (default port 8883) or `mqtt://host` (default port 1883), with an optional port.
    ///
    /// # Errors
    /// Describes what is wrong, beginning with `url: `.
    pub fn parse(url: &str) -> Result<Self, String> {
        let parsed = Url::parse(url).map_err(|_| "url: is not a URL (write mqtts://host:port)".to_owned())?;
        let tls = match parsed.scheme() {
            "mqtts" => true,
            "mqtt" => false,
            _ => return Err("url: must begin with mqtts:// (or mqtt:// on this machine)".to_owned()),
        };
        if !parsed.username().is_empty() || parsed.password().is_some() {
            return Err("url: contains a user name or password (write mqtt.username: env:NAME)".to_owned());
        }
        if !matches!(parsed.path(), "" | "/") || parsed.query().is_some() || parsed.fragment().is_some() {
            return Err("url: contains a path, query or fragment (write mqtts://host:port)".to_owned());
        }
        let host = parsed.host_str().filter(|host| !host.is_empty()).ok_or("url: has no host")?;
        match parsed.port() {
            Some(0) => Err("url: has port 0 (use 1 to 65535)".to_owned()),
            port => Ok(Self::new(tls, host, port)),
        }
    }

    /// Address of the broker at `host`, by default on the standard port of the scheme.
    pub fn new(tls: bool, host: &str, port: Option<u16>) -> Self {
        let port = port.unwrap_or(if tls { 8883 } else { 1883 });
        Self { tls, host: host.to_ascii_lowercase(), port }
    }

    /// Formats the address as a URL without a path.
    pub fn base_url(&self) -> String {
        let scheme = if self.tls { "mqtts" } else { "mqtt" };
        format!("{scheme}://{}:{}", self.host, self.port)
    }

    /// Formats the address as host and port, as the metrics have it.
    pub fn metric_label(&self) -> String {
        format!("{}:{}", self.host, self.port)
    }

    /// Whether the host is `localhost` or a loopback address, where plain text does not leave the machine.
    pub fn is_loopback(&self) -> bool {
        is_loopback_host(&self.host)
    }
}
