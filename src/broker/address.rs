//! Where a broker is. It holds no topic and no credential.

use crate::net::Url;
use std::net::IpAddr;

/// A broker's address, taken apart.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Address {
    /// Whether TLS is spoken.
    pub secure: bool,
    /// The name or address, in lower case; an IPv6 address in brackets.
    pub host: String,
    /// The port, never 0.
    pub port: u16,
}

impl Address {
    /// Reads `mqtts://host` (port 8883) or `mqtt://host` (port 1883), with another port or without.
    ///
    /// # Errors
    /// What would be right, beginning with `url: `.
    pub fn read(url: &str) -> Result<Self, String> {
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
        match parsed.port() {
            Some(0) => Err("url: port 0 cannot be connected to".to_owned()),
            port => Ok(Self::new(secure, host, port)),
        }
    }

    /// The broker at `host`; the port is the protocol's own unless given.
    pub fn new(secure: bool, host: &str, port: Option<u16>) -> Self {
        let port = port.unwrap_or(if secure { 8883 } else { 1883 });
        Self { secure, host: host.to_ascii_lowercase(), port }
    }

    /// The address as a URL without a path.
    pub fn base(&self) -> String {
        let scheme = if self.secure { "mqtts" } else { "mqtt" };
        format!("{scheme}://{}:{}", self.host, self.port)
    }

    /// Whether it is spelled as an address of this machine, where plain text stays.
    pub fn is_this_machine(&self) -> bool {
        let bare = self.host.trim_start_matches('[').trim_end_matches(']');
        bare == "localhost" || bare.parse::<IpAddr>().is_ok_and(|ip| ip.to_canonical().is_loopback())
    }
}
