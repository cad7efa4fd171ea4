//! Configuration of listeners and of connection limits. Validated here without access to the network or to files.

use crate::values::{AddressRange, ByteRate, ByteSize, ConfigDuration, ConfigPath, MaxShare};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;

/// One address on which the gateway accepts callers.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[schemars(rename = "Listener")]
#[serde(deny_unknown_fields)]
pub struct ListenerConfig {
    /// Address and port, such as `0.0.0.0:8443` or `[::]:8443`. With port 0 the system chooses a port. Required.
    pub address: SocketAddr,
    /// TLS settings. Default: none; the listener then serves plain HTTP, on loopback addresses only.
    #[serde(default)]
    pub tls: Option<ListenerTlsConfig>,
    /// Whether to serve plain HTTP on an address other than loopback. Credentials are then sent unencrypted: use it
    /// only behind a proxy that terminates TLS. Default false.
    #[serde(default)]
    pub allow_plaintext: bool,
    /// The networks of the load balancers and reverse proxies in front of this listener. Only they may say which client
    /// they forward; `client_address` says how. A peer that can connect from these networks can pretend to be any client.
    /// Default: none; the peer of the connection is the client.
    #[serde(default)]
    pub trusted_proxies: Vec<AddressRange>,
    /// Where the trusted proxies write the client's address. Required with `trusted_proxies`. Default: connection.
    #[serde(default)]
    pub client_address: ClientAddressSource,
}

/// Where the address of a client comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ClientAddressSource {
    /// The connection: its peer is the client.
    #[default]
    Connection,
    /// The PROXY protocol, version 1 or 2, before the TLS handshake. Every connection of a trusted proxy begins with its
    /// header.
    ProxyProtocol,
    /// The header `Forwarded` (RFC 7239), with `proto` and `host`.
    Forwarded,
    /// The headers `X-Forwarded-For`, `X-Forwarded-Proto` and `X-Forwarded-Host`.
    XForwardedFor,
}

/// The certificate of a listener, and whether callers are asked for client certificates.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[schemars(rename = "ListenerTls")]
#[serde(deny_unknown_fields)]
pub struct ListenerTlsConfig {
    /// File with the certificate chain (PEM, leaf first). Reloaded when it changes. Required.
    pub certificate: ConfigPath,
    /// File with the private key (PEM). Reloaded when it changes. Required.
    pub key: ConfigPath,
    /// File with the certificate authorities (PEM) whose client certificates are accepted. If set, callers are asked
    /// for a certificate; each agent's `authentication` decides whether one is required. Reloaded when it changes;
    /// open connections with certificates of removed authorities get no further requests. Default: none; callers are
    /// not asked.
    #[serde(default)]
    pub client_ca: Option<ConfigPath>,
    /// Files with certificate revocation lists (PEM). If set, every certificate of a client's chain needs the list of its
    /// authority; an unknown status or an expired list refuses the certificate. Reloaded when they change; open
    /// connections of revoked certificates get no further requests. Requires `client_ca`. Default: none.
    #[serde(default)]
    pub client_crl: Vec<ConfigPath>,
    /// Minimum TLS version: `1.2` or `1.3`. Default 1.2.
    #[serde(default)]
    pub min_version: TlsVersion,
}

/// A version of TLS.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub enum TlsVersion {
    /// TLS 1.2 (RFC 5246).
    #[default]
    #[serde(rename = "1.2")]
    Tls12,
    /// TLS 1.3 (RFC 8446).
    #[serde(rename = "1.3")]
    Tls13,
}

/// Limits of connections and of reading requests; they apply to every listener.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[schemars(rename = "Connections")]
#[serde(deny_unknown_fields, default)]
pub struct ConnectionLimits {
    /// Maximum open connections per listener; further connections are closed at once. At least 1. Default 10000.
    pub max_connections: usize,
    /// Maximum open connections of one address per listener; further connections are closed at once. IPv6 addresses
    /// count by their /64. At least 1. Default: null, the share `limits.max_share` of `max_connections`.
    pub max_connections_per_address: Option<usize>,
    /// Maximum TLS handshakes of one address in progress per listener; further connections are closed at once. At least
    /// 1. Default: null, as many as connections.
    pub max_handshakes_per_address: Option<usize>,
    /// Maximum time to complete a TLS handshake. Longer than 0s. Default 10s.
    pub tls_handshake_timeout: ConfigDuration,
    /// Maximum time to receive a complete request head, from its first byte; then 408. Longer than 0s. Default 10s.
    pub header_timeout: ConfigDuration,
    /// Time after which a connection without a request is closed. Longer than 0s. Default 60s.
    pub idle_timeout: ConfigDuration,
    /// Maximum age of a connection, shortened or extended by up to a tenth so that connections do not end all at once.
    /// An older connection gets no further requests: HTTP/1 responses then have `Connection: close`, and HTTP/2
    /// connections receive GOAWAY. Requests in progress finish. WebSockets have a limit of their own. Longer than 0s;
    /// null for no limit. Default 1h.
    pub max_connection_age: Option<ConfigDuration>,
    /// Maximum pause while the request body is read, and while the caller reads the response. Longer than 0s.
    /// Default 30s.
    pub body_idle_timeout: ConfigDuration,
    /// Minimum rate of a request body, measured over 10 s in which the gateway waits for the caller; then 408. Null or
    /// 0B/s for none. Default 1KiB/s.
    pub min_body_rate: Option<ByteRate>,
    /// Maximum size of a request head, including the request line; beyond it 431. 1KiB to 1MiB. Default 64KiB.
    pub max_header_size: ByteSize,
    /// Maximum number of header lines; beyond it 431. 1 to 256. Default 100.
    pub max_headers: usize,
    /// Number of requests after which an HTTP/1 connection is closed. At least 1. Default: unlimited.
    pub max_requests_per_connection: Option<u32>,
    /// Maximum concurrent requests on one HTTP/2 connection. At least 1. Default 128.
    pub max_http2_streams: u32,
}

impl Default for ConnectionLimits {
    fn default() -> Self {
        Self {
            max_connections: 10_000,
            max_connections_per_address: None,
            max_handshakes_per_address: None,
            tls_handshake_timeout: ConfigDuration::from_secs(10),
            header_timeout: ConfigDuration::from_secs(10),
            idle_timeout: ConfigDuration::from_secs(60),
            max_connection_age: Some(ConfigDuration::from_secs(3_600)),
            body_idle_timeout: ConfigDuration::from_secs(30),
            min_body_rate: Some(ByteRate::per_second(ByteSize::from_kib(1))),
            max_header_size: ByteSize::from_kib(64),
            max_headers: 100,
            max_requests_per_connection: None,
            max_http2_streams: 128,
        }
    }
}

impl ListenerConfig {
    /// Returns the problems of this listener that can be found without opening sockets or files.
    pub fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        let has_unused_crl = self.tls.as_ref().is_some_and(|tls| tls.client_ca.is_none() && !tls.client_crl.is_empty());
        if has_unused_crl {
            problems.push("tls.client_crl: has no effect without client_ca (add the authorities)".to_owned());
        }
        let is_exposed = self.tls.is_none() && !self.allow_plaintext && !self.address.ip().is_loopback();
        problems.extend(self.proxy_problems());
        let text = "address: plain HTTP is allowed on loopback addresses only (add `tls`, or set `allow_plaintext: true` behind a proxy that terminates TLS)";
        if is_exposed {
            problems.push(text.to_owned());
        }
        problems
    }

    fn proxy_problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        let reads_connection = self.client_address == ClientAddressSource::Connection;
        if reads_connection && !self.trusted_proxies.is_empty() {
            problems.push("client_address: is missing beside trusted_proxies (write proxy_protocol, forwarded or x_forwarded_for, whichever the proxies send)".to_owned());
        }
        if !reads_connection && self.trusted_proxies.is_empty() {
            problems.push(
                "client_address: has no effect without trusted_proxies (list the networks of the proxies)".to_owned(),
            );
        }
        for (index, network) in self.trusted_proxies.iter().enumerate() {
            if network.has_port() {
                problems
                    .push(format!("trusted_proxies[{index}]: '{network}' has a port (proxies connect from any port)"));
            }
            if network.is_ipv4_mapped() {
                problems.push(format!(
                    "trusted_proxies[{index}]: '{network}' matches no proxy (write the IPv4 network, such as 10.0.0.0/8)"
                ));
            }
            if network.is_unbounded() {
                problems.push(format!(
                    "trusted_proxies[{index}]: '{network}' trusts clients of the whole internet (list the networks of the proxies, of at least /8, or /7 of IPv6)"
                ));
            }
        }
        problems
    }
}

impl ConnectionLimits {
    /// Returns these limits with the maximums of an address, where they are not set, as its share.
    #[must_use]
    pub fn with_share_of_address(mut self, max_share: MaxShare) -> Self {
        self.max_connections_per_address.get_or_insert(max_share.of(self.max_connections));
        self
    }

    /// Returns the problems of these limits.
    pub fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        let mut require = |condition: bool, text: &str| {
            if !condition {
                problems.push(text.to_owned());
            }
        };
        require(self.max_connections > 0, "max_connections: must be at least 1");
        require(self.max_connections_per_address != Some(0), "max_connections_per_address: must be at least 1");
        require(self.max_handshakes_per_address != Some(0), "max_handshakes_per_address: must be at least 1");
        require(self.max_http2_streams > 0, "max_http2_streams: must be at least 1");
        require((1..=256).contains(&self.max_headers), "max_headers: must be between 1 and 256");
        require(
            (1 << 10..=1 << 20).contains(&self.max_header_size.get()),
            "max_header_size: must be between 1KiB and 1MiB",
        );
        require(self.max_requests_per_connection != Some(0), "max_requests_per_connection: must be at least 1");
        let durations = [
            (self.tls_handshake_timeout, "tls_handshake_timeout: must be longer than 0s"),
            (self.header_timeout, "header_timeout: must be longer than 0s"),
            (self.idle_timeout, "idle_timeout: must be longer than 0s"),
            (self.body_idle_timeout, "body_idle_timeout: must be longer than 0s"),
        ];
        let max_age = self.max_connection_age.unwrap_or(ConfigDuration::from_secs(1));
        require(!max_age.get().is_zero(), "max_connection_age: must be longer than 0s (null for no limit)");
        for (duration, text) in durations {
            require(!duration.get().is_zero(), text);
        }
        problems
    }
}
