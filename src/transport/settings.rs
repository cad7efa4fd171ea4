//! How agents are called, as a person writes it: bounds in time, TLS, the gateway's own credential.
//! Every field may be left out; what is left out comes from the more general settings, then from here.

use super::MatrixSettings;
use crate::unit::{FilePath, SecretRef, Span};
use std::time::Duration;

/// How agents are called.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Deserialize, serde::Serialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Settings {
    /// How long each part of a call may take.
    pub timeouts: Timeouts,
    /// TLS towards the agent.
    pub tls: Tls,
    /// How the brokers of agents over MQTT are spoken to. TLS is that of `tls`, and `insecure_plaintext` and the bounds
    /// in time hold as elsewhere; `credential` is for HTTP.
    pub mqtt: MqttLogin,
    /// The credential that the gateway shows to the agent. Default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub credential: Option<Credential>,
    /// Whether plain `http` endpoints and sockets are spoken to in HTTP/2 without negotiation. Default: false.
    /// Over `https`, HTTP/2 is used wherever the agent offers it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub h2c: Option<bool>,
    /// Whether plain `http` and `mqtt` may be used beyond this machine. Default: false.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub insecure_plaintext: Option<bool>,
    /// How long an unused connection is kept. Keep it below the agent's own bound (often 5s), or calls
    /// race with the agent closing. A shorter `Keep-Alive: timeout` of the agent wins. Default: 4s.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keep_alive: Option<Span>,
    /// How many unused connections are kept per host. Default: 256; 0 opens one for each call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idle_connections: Option<usize>,
    /// How agents over WebSocket (`wss`, `agent+wss`) are spoken to.
    #[serde(skip_serializing_if = "is_default")]
    pub websocket: super::WebSocketSettings,
    /// The account with which agents on Matrix are spoken to. Default: none, and no such agent can be called.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub matrix: Option<MatrixSettings>,
    /// When an endpoint that fails is left alone for a while.
    pub breaker: BreakerSettings,
    /// Further endpoints of the same agents, at most 15, in the forms that an agent's own endpoint has; `{id}` stands
    /// for the agent's id. Calls go to the one with the least to do, and those of one session to one. Only in rules.
    /// Default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub endpoints: Option<Vec<String>>,
}

fn is_default(settings: &super::WebSocketSettings) -> bool {
    *settings == super::WebSocketSettings::default()
}

/// When an endpoint that fails is left alone for a while. Only what says that it is not there counts: connections that
/// are refused or die without an answer, and silence beyond the time bounds. Whatever an agent answers is an answer.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Deserialize, serde::Serialize, schemars::JsonSchema)]
#[schemars(rename = "Breaker")]
#[serde(deny_unknown_fields, default)]
pub struct BreakerSettings {
    /// Failures in a row after which calls are answered 503 at once; 0 to 1000, 0 never does so. Default: 5.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failures: Option<u32>,
    /// How long until one call is let through to try it, and again between two such tries; 100ms to 1h. Default: 2s.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub open_for: Option<Span>,
}

/// How long each part of a call may take. What is exceeded ends the call with 504.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Deserialize, serde::Serialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Timeouts {
    /// Finding the address, connecting and the TLS handshake together. Default: 5s.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub connect: Option<Span>,
    /// From the request until the whole head of the answer is there. Default: 60s.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_byte: Option<Span>,
    /// Between two pieces of the answer's body. Default: 60s.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idle: Option<Span>,
    /// The whole call, all tries together. `X-Request-Timeout` may shorten it. Default: 5m.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total: Option<Span>,
}

/// TLS towards an agent. Certificates are always verified.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, serde::Deserialize, serde::Serialize, schemars::JsonSchema)]
#[schemars(rename = "AgentTls")]
#[serde(deny_unknown_fields, default)]
pub struct Tls {
    /// A PEM file of the certificate authorities that are believed, instead of the system's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ca: Option<FilePath>,
    /// A PEM file with the gateway's own certificate chain, shown to the agent. Needs `key`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub certificate: Option<FilePath>,
    /// A PEM file with the key of `certificate`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<FilePath>,
    /// The name that the agent's certificate must hold. Default: the endpoint's host.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server_name: Option<String>,
}

/// Who the gateway is to a broker. Agents of one broker share a connection where these settings are the same.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Deserialize, serde::Serialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct MqttLogin {
    /// The user name. Default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub username: Option<SecretRef>,
    /// The password; needs a username. Default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub password: Option<SecretRef>,
    /// After so long without a word the broker is asked whether it is still there; 1s to 10m. Default: 30s.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keep_alive: Option<Span>,
}

/// The gateway's credential, as a header of the request.
#[derive(Clone, Debug, PartialEq, Eq, serde::Deserialize, serde::Serialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Credential {
    /// The header. Default: `Authorization`.
    #[serde(default = "authorization")]
    pub header: String,
    /// The word before the secret. Default: `Bearer` with `Authorization`, otherwise none; "" for none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scheme: Option<String>,
    /// Where the secret is.
    pub value: SecretRef,
}

fn authorization() -> String {
    "Authorization".to_owned()
}

impl Settings {
    /// These settings, with what they leave open taken from `base`. A credential is taken whole, and so
    /// is a client certificate with its key.
    #[must_use]
    pub fn over(&self, base: &Self) -> Self {
        Self {
            timeouts: self.timeouts.over(&base.timeouts),
            tls: self.tls.over(&base.tls),
            mqtt: self.mqtt.over(&base.mqtt),
            credential: self.credential.clone().or_else(|| base.credential.clone()),
            h2c: self.h2c.or(base.h2c),
            insecure_plaintext: self.insecure_plaintext.or(base.insecure_plaintext),
            keep_alive: self.keep_alive.or(base.keep_alive),
            idle_connections: self.idle_connections.or(base.idle_connections),
            websocket: self.websocket.over(&base.websocket),
            matrix: match (&self.matrix, &base.matrix) {
                (Some(own), Some(base)) => Some(own.over(base)),
                (own, base) => own.clone().or_else(|| base.clone()),
            },
            breaker: BreakerSettings {
                failures: self.breaker.failures.or(base.breaker.failures),
                open_for: self.breaker.open_for.or(base.breaker.open_for),
            },
            endpoints: self.endpoints.clone().or_else(|| base.endpoints.clone()),
        }
    }
}

impl MqttLogin {
    /// User and password are taken together.
    fn over(&self, base: &Self) -> Self {
        let own = self.username.is_some() || self.password.is_some();
        let login = if own { self } else { base };
        Self {
            username: login.username.clone(),
            password: login.password.clone(),
            keep_alive: self.keep_alive.or(base.keep_alive),
        }
    }
}

impl Timeouts {
    fn over(&self, base: &Self) -> Self {
        Self {
            connect: self.connect.or(base.connect),
            first_byte: self.first_byte.or(base.first_byte),
            idle: self.idle.or(base.idle),
            total: self.total.or(base.total),
        }
    }
}

impl Tls {
    fn over(&self, base: &Self) -> Self {
        let own = self.certificate.is_some() || self.key.is_some();
        let identity = if own { self } else { base };
        Self {
            ca: self.ca.clone().or_else(|| base.ca.clone()),
            certificate: identity.certificate.clone(),
            key: identity.key.clone(),
            server_name: self.server_name.clone().or_else(|| base.server_name.clone()),
        }
    }
}

/// The bounds in force for one agent.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Address, connection and TLS.
    pub connect: Duration,
    /// Until the head of the answer.
    pub first_byte: Duration,
    /// Between pieces of the body.
    pub idle: Duration,
    /// All of it.
    pub total: Duration,
}

impl From<&Timeouts> for Bounds {
    fn from(from: &Timeouts) -> Self {
        let or = |span: Option<Span>, secs| span.unwrap_or(Span::secs(secs)).get();
        Self {
            connect: or(from.connect, 5),
            first_byte: or(from.first_byte, 60),
            idle: or(from.idle, 60),
            total: or(from.total, 300),
        }
    }
}
