//! Configuration of upstream calls: timeouts, TLS, credentials, circuit breaking.
//! Every key may be omitted; its value then comes from the more general settings, then from the defaults here.

use super::{
    CredentialDestinations, EndpointConfig, MatrixConfig,
    headers::{CallerHeadersConfig, ForwardedHeaders},
    timeouts::TimeoutConfig,
};
use crate::agent::Agent;
use crate::values::{ConfigDuration, ConfigPath, SecretRef};
use std::{net::SocketAddr, sync::Arc};

/// How agents are called.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Deserialize, serde::Serialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct TransportConfig {
    /// How long each part of a call may take.
    pub timeouts: TimeoutConfig,
    /// TLS to the agent.
    pub tls: UpstreamTlsConfig,
    /// The MQTT connections to the brokers of agents. They use `tls`, `allow_plaintext` and `timeouts` as other
    /// transports do; `credential` applies to HTTP only.
    pub mqtt: UpstreamMqttConfig,
    /// The credential that the gateway sends to the agent. Default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub credential: Option<UpstreamCredential>,
    /// Header fields of callers that the agent receives over HTTP besides the standard ones: names such as `X-Team`, or
    /// prefixes such as `X-Team-*`. Fields that carry credentials or claim an identity in a known way never pass.
    /// Default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub forwarded_headers: Option<Vec<String>>,
    /// Header fields that tell the agent who calls, by name, such as `X-User`, with the source of each: `value` (a
    /// property of the caller), `claim` (a claim of its token) or `token` (a signed JWT). Agents over HTTP, WebSocket and
    /// unix sockets only. What the caller sends in these fields, in any spelling, never reaches the agent. At most 16
    /// fields. Default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub caller_headers: Option<CallerHeadersConfig>,
    /// Whether plain `http` endpoints and Unix sockets are called with HTTP/2 prior knowledge (h2c). Default: false.
    /// Over `https`, HTTP/2 is used wherever the agent offers it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub h2c: Option<bool>,
    /// Whether plain `http` and `mqtt` are allowed beyond this machine. Default: false.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allow_plaintext: Option<bool>,
    /// How long an idle connection is kept. Keep it below the agent's own idle timeout (often 5s), or calls race with
    /// the agent closing the connection. A shorter `Keep-Alive: timeout` of the agent wins. Default: 4s.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idle_connection_timeout: Option<ConfigDuration>,
    /// The maximum number of idle connections per host. Default: 256; 0 opens a connection for each call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_idle_connections: Option<usize>,
    /// The WebSocket connections to agents (`wss`, `agent+wss`).
    #[serde(skip_serializing_if = "is_default")]
    pub websocket: super::UpstreamWebSocketConfig,
    /// The account that sends calls to agents on Matrix. Default: none, and no agent on Matrix can be called.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub matrix: Option<MatrixConfig>,
    /// When a failing endpoint is taken out of use for a while.
    pub circuit_breaker: CircuitBreakerConfig,
    /// Additional endpoints of the same agents, at most 15, in the forms of an agent's own endpoint; `{id}` stands for
    /// the agent's id. A call goes to the endpoint with the fewest calls in flight, and the calls of one session go to
    /// one endpoint. Only in rules. Default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub additional_endpoints: Option<Vec<String>>,
    /// Whether the endpoint may be at a public address only, because the operator did not write or list it. Not a
    /// setting: the compiler of routes decides it for each agent.
    #[serde(skip)]
    pub public_addresses_only: bool,
    /// The address to connect to instead of looking up the endpoint's host. Not a setting: an agent's source may know the
    /// addresses of its server.
    #[serde(skip)]
    pub connect_address: Option<SocketAddr>,
    /// What the agent's server speaks, if it does not take calls as they are. Not a setting of its own: the setting
    /// `endpoint` of a rule.
    #[serde(skip)]
    pub endpoint: Option<Arc<EndpointConfig>>,
}

fn is_default(settings: &super::UpstreamWebSocketConfig) -> bool {
    *settings == super::UpstreamWebSocketConfig::default()
}

/// When a failing endpoint is taken out of use for a while. Only failures to reach the endpoint count: connections that
/// are refused or closed without a reply, and timeouts. Any reply of the agent, even an error, counts as success.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Deserialize, serde::Serialize, schemars::JsonSchema)]
#[schemars(rename = "Breaker")]
#[serde(deny_unknown_fields, default)]
pub struct CircuitBreakerConfig {
    /// Consecutive failures after which calls are refused with 503 at once; 0 to 1000, 0 disables this. Default: 5.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub consecutive_failures: Option<u32>,
    /// The time until one call is let through as a probe, and between two probes; 100ms to 1h. Default: 2s.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub open_duration: Option<ConfigDuration>,
}

/// TLS to an agent. Certificates are always verified.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, serde::Deserialize, serde::Serialize, schemars::JsonSchema)]
#[schemars(rename = "AgentTls")]
#[serde(deny_unknown_fields, default)]
pub struct UpstreamTlsConfig {
    /// A PEM file with the trusted certificate authorities, instead of those of the system.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ca: Option<ConfigPath>,
    /// A PEM file with the gateway's client certificate chain. Requires `key`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub certificate: Option<ConfigPath>,
    /// A PEM file with the private key of `certificate`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<ConfigPath>,
    /// The name that the agent's certificate must contain. Default: the endpoint's host.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server_name: Option<String>,
    /// To which agents the gateway presents `certificate`. Required with `certificate`.
    #[serde(skip_serializing_if = "CredentialDestinations::is_unset")]
    pub destinations: CredentialDestinations,
}

/// The gateway's MQTT login. Agents of one broker share a connection if these settings are equal.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Deserialize, serde::Serialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct UpstreamMqttConfig {
    /// The user name. Default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub username: Option<SecretRef>,
    /// The password; requires a username. Default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub password: Option<SecretRef>,
    /// The MQTT keep-alive interval, after which an idle connection is probed with a ping; 1s to 10m. Default: 30s.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keep_alive: Option<ConfigDuration>,
    /// The brokers that receive user name and password. Required with `username`.
    #[serde(skip_serializing_if = "CredentialDestinations::is_unset")]
    pub destinations: CredentialDestinations,
}

/// The credential that the gateway sends to the agent, as a header of the request.
#[derive(Clone, Debug, PartialEq, Eq, serde::Deserialize, serde::Serialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct UpstreamCredential {
    /// The header. Default: `Authorization`.
    #[serde(default = "default_credential_header")]
    pub header: String,
    /// The scheme before the secret. Default: `Bearer` with `Authorization`, otherwise none; "" for none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scheme: Option<String>,
    /// Where the secret is stored.
    pub value: SecretRef,
    /// The agents that receive the credential. Required.
    #[serde(default, skip_serializing_if = "CredentialDestinations::is_unset")]
    pub destinations: CredentialDestinations,
}

fn default_credential_header() -> String {
    "Authorization".to_owned()
}

impl TransportConfig {
    /// Returns these settings as those of the rule at this index.
    #[must_use]
    pub fn of_rule(&self, index: usize) -> Self {
        Self { timeouts: self.timeouts.of_rule(index), ..self.clone() }
    }

    /// Returns these settings, with omitted values taken from `base`. A credential is taken whole, and so is a client
    /// certificate with its key.
    #[must_use]
    pub fn with_fallback(&self, base: &Self) -> Self {
        Self {
            timeouts: self.timeouts.with_fallback(&base.timeouts),
            tls: self.tls.with_fallback(&base.tls),
            mqtt: self.mqtt.with_fallback(&base.mqtt),
            credential: self.credential.clone().or_else(|| base.credential.clone()),
            forwarded_headers: self.forwarded_headers.clone().or_else(|| base.forwarded_headers.clone()),
            caller_headers: self.caller_headers.clone().or_else(|| base.caller_headers.clone()),
            h2c: self.h2c.or(base.h2c),
            allow_plaintext: self.allow_plaintext.or(base.allow_plaintext),
            idle_connection_timeout: self.idle_connection_timeout.or(base.idle_connection_timeout),
            max_idle_connections: self.max_idle_connections.or(base.max_idle_connections),
            websocket: self.websocket.with_fallback(&base.websocket),
            matrix: match (&self.matrix, &base.matrix) {
                (Some(own), Some(base)) => Some(own.with_fallback(base)),
                (own, base) => own.clone().or_else(|| base.clone()),
            },
            circuit_breaker: CircuitBreakerConfig {
                consecutive_failures: self
                    .circuit_breaker
                    .consecutive_failures
                    .or(base.circuit_breaker.consecutive_failures),
                open_duration: self.circuit_breaker.open_duration.or(base.circuit_breaker.open_duration),
            },
            additional_endpoints: self.additional_endpoints.clone().or_else(|| base.additional_endpoints.clone()),
            public_addresses_only: self.public_addresses_only || base.public_addresses_only,
            connect_address: self.connect_address,
            endpoint: self.endpoint.clone().or_else(|| base.endpoint.clone()),
        }
    }
}

impl TransportConfig {
    /// Returns the problems of `forwarded_headers` and `caller_headers`.
    pub(super) fn header_problems(&self) -> Vec<String> {
        let forwarded = ForwardedHeaders::compile(self.forwarded_headers.as_deref().unwrap_or_default());
        let caller = self.caller_headers.as_ref().map(CallerHeadersConfig::problems).unwrap_or_default();
        forwarded.err().unwrap_or_default().into_iter().chain(caller).collect()
    }

    /// Returns the problems of credentials that may be sent nowhere.
    pub(super) fn destination_problems(&self) -> Vec<String> {
        let credential = self.credential.iter().map(|credential| ("credential", &credential.destinations));
        let certificate = self.tls.certificate.iter().map(|_| ("tls", &self.tls.destinations));
        let login = self.mqtt.username.iter().map(|_| ("mqtt", &self.mqtt.destinations));
        let account = self.matrix.iter().filter(|matrix| matrix.access_token.is_some());
        let account = account.map(|matrix| ("matrix", &matrix.destinations));
        let all = credential.chain(certificate).chain(login).chain(account);
        all.filter_map(|(section, destinations)| destinations.problem(&format!("{section}.destinations"))).collect()
    }

    /// Returns the settings for calls to the endpoint of `agent`, without the credentials that may not be sent there.
    #[must_use]
    pub(super) fn for_endpoint(&self, agent: &Agent) -> Self {
        let mut settings = self.clone();
        settings.credential = settings.credential.filter(|credential| credential.destinations.contains(agent));
        if !settings.tls.destinations.contains(agent) {
            (settings.tls.certificate, settings.tls.key) = (None, None);
        }
        if !settings.mqtt.destinations.contains(agent) {
            (settings.mqtt.username, settings.mqtt.password) = (None, None);
        }
        settings.matrix = settings.matrix.filter(|matrix| matrix.destinations.contains(agent));
        settings
    }

    /// Returns the settings for an `agent://` name, which [`TransportConfig::for_endpoint`] narrows once the name is
    /// resolved. A name leads wherever its domain says, so only a name that the operator wrote leads to a server with a
    /// credential.
    #[must_use]
    pub(super) fn for_name(&self, agent: &Agent) -> Self {
        let mut settings = self.clone();
        if !agent.source.is_operator() {
            (settings.credential, settings.matrix) = (None, None);
            (settings.tls.certificate, settings.tls.key) = (None, None);
            (settings.mqtt.username, settings.mqtt.password) = (None, None);
        }
        settings
    }
}

impl UpstreamMqttConfig {
    /// User name, password and their destinations are taken together.
    fn with_fallback(&self, base: &Self) -> Self {
        let own = self.username.is_some() || self.password.is_some();
        let login = if own { self } else { base };
        Self {
            username: login.username.clone(),
            password: login.password.clone(),
            keep_alive: self.keep_alive.or(base.keep_alive),
            destinations: login.destinations.clone(),
        }
    }
}

impl UpstreamTlsConfig {
    fn with_fallback(&self, base: &Self) -> Self {
        let own = self.certificate.is_some() || self.key.is_some();
        let identity = if own { self } else { base };
        Self {
            ca: self.ca.clone().or_else(|| base.ca.clone()),
            certificate: identity.certificate.clone(),
            key: identity.key.clone(),
            server_name: self.server_name.clone().or_else(|| base.server_name.clone()),
            destinations: identity.destinations.clone(),
        }
    }
}
