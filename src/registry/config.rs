//! Configuration of the agent sources: files by their path, remote sources as objects.
//! The order of the list is the precedence.

use super::MqttSourceConfig;
use crate::{
    agent::OriginPattern,
    net::SourceCredential,
    signing::TrustedKeys,
    values::{ByteSize, ConfigDuration, ConfigPath},
};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, de};
use std::{borrow::Cow, fmt, sync::Arc};

/// One source of agents. An earlier source of the list wins an id that several have.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum SourceConfig {
    /// A remote source.
    Remote(Box<RemoteSourceConfig>),
    /// A file of agent documents, or a folder of such files.
    Files(ConfigPath),
}

/// Protocol of a remote source.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[schemars(rename = "SourceKind")]
#[serde(rename_all = "snake_case")]
pub enum SourceKind {
    /// An AIDIP registry: the list at `url`, each document at `url/{id}`.
    Aidip,
    /// An Agent Framework publisher: `/.well-known/agentframework/v1/agents` on the host of `url`, or `url` itself.
    AgentFramework,
    /// An agent:// domain: `/.well-known/agents.json`, `agent.json` and A2A agent cards.
    AgentUri,
    /// An AI Catalog: `/.well-known/ai-catalog.json`.
    Catalog,
    /// An ARD registry: `GET /agents` with `urn:air:` identifiers.
    Ard,
    /// An MQTT broker on which agents of the 2389 protocol publish their status.
    Mqtt,
}

/// A remote source.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[schemars(rename = "RemoteSource")]
#[serde(deny_unknown_fields)]
pub struct RemoteSourceConfig {
    /// Protocol of the source.
    pub kind: SourceKind,
    /// Address of the source: https, or http on this machine; brokers: mqtts://host:port, or mqtt:// on this machine.
    pub url: String,
    /// Name of the source in logs, metrics and admin pages; 1 to 64 letters, digits or ._:- . Default: its kind and
    /// host, such as aidip:registry.example.com.
    #[serde(default)]
    pub name: Option<String>,
    /// Credential that the gateway sends to the source. Default: none.
    #[serde(default)]
    pub credential: Option<SourceCredential>,
    /// Poll interval, varied by ±10 %; 1s to 1d. Longer where the source's Cache-Control or Retry-After asks for it.
    /// Default 30s.
    #[serde(default = "default_poll_interval")]
    pub poll_interval: ConfigDuration,
    /// Whether agents are looked up individually when they are called, for a registry that is too large to copy.
    /// Results are cached for `poll_interval`, and for `max_staleness` while the registry is down. Such agents are in
    /// no list and no search, and every other source has precedence. Only for kind aidip. Default false.
    #[serde(default)]
    pub on_demand: bool,
    /// Maximum duration of one fetch, redirects included; 100ms to 5m. Default 10s.
    #[serde(default = "default_fetch_timeout")]
    pub fetch_timeout: ConfigDuration,
    /// Maximum size of one response; 1KiB to 256MiB. Default 16MiB.
    #[serde(default = "default_max_response_size")]
    pub max_response_size: ByteSize,
    /// Maximum number of agents of the source; 1 to 200000. A poll with more is rejected as a whole. Default 100000.
    #[serde(default = "default_max_agents")]
    #[schemars(range(min = 1, max = 200_000))]
    pub max_agents: usize,
    /// Time without a successful poll after which the source's agents are removed; 1s to 366d, null for never.
    /// Default 1d.
    #[serde(default = "default_max_staleness")]
    pub max_staleness: Option<ConfigDuration>,
    /// Protects against a source that suddenly lists far fewer agents.
    #[serde(default)]
    pub loss_guard: LossGuardConfig,
    /// File with the publishers' public keys (a JWK Set): a signed card whose signature is not valid under one of them
    /// is rejected. Default: signatures are not verified.
    #[serde(default)]
    pub publisher_jwks: Option<ConfigPath>,
    /// Whether a card without a signature is rejected too; requires publisher_jwks. Default false.
    #[serde(default)]
    pub require_signature: bool,
    /// Servers that the source's agents may be at: `https://*.example.com`, `mqtts://broker.example.com:8883`. Servers
    /// in private networks, servers of other owners' agents, brokers and Matrix rooms must be listed. Default: every
    /// public server that no agent of another owner is at; for kind mqtt the broker too.
    #[serde(default)]
    pub endpoints: Option<Vec<OriginPattern>>,
    /// Connection to the broker; only for kind mqtt, which allows neither credential nor publisher_jwks, and no message
    /// of more than 256KiB.
    #[serde(default)]
    pub mqtt: Option<MqttSourceConfig>,
}

/// The loss guard: withholds a poll result that would remove many agents at once.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[schemars(rename = "LossGuard")]
#[serde(deny_unknown_fields, default)]
pub struct LossGuardConfig {
    /// A poll that would remove more than this share of the source's agents (of 10 or more), or all of several, is
    /// withheld; 0 to 1, and 1 turns the guard off. Default 0.5.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub threshold: f64,
    /// A withheld result is accepted when three consecutive polls over at least this time agree, or when an operator
    /// confirms it (POST /sources/{name}/confirm on the admin listener); 0s to 1d. Default 5m.
    pub confirm_after: ConfigDuration,
}

impl Default for LossGuardConfig {
    fn default() -> Self {
        Self { threshold: 0.5, confirm_after: ConfigDuration::from_secs(300) }
    }
}

/// Bounds on the cache lifetimes that servers declare for their responses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct CacheBounds {
    /// Minimum lifetime of a cacheable response; at most 1h. Default 1s.
    pub min_ttl: ConfigDuration,
    /// Maximum lifetime of a response; at most 1d. Default 1h.
    pub max_ttl: ConfigDuration,
}

impl Default for CacheBounds {
    fn default() -> Self {
        Self { min_ttl: ConfigDuration::from_secs(1), max_ttl: ConfigDuration::from_secs(3_600) }
    }
}

fn default_poll_interval() -> ConfigDuration {
    ConfigDuration::from_secs(30)
}

fn default_fetch_timeout() -> ConfigDuration {
    ConfigDuration::from_secs(10)
}

fn default_max_response_size() -> ByteSize {
    ByteSize::from_kib(16 << 10)
}

fn default_max_agents() -> usize {
    100_000
}

#[expect(clippy::unnecessary_wraps, reason = "the default of an optional setting")]
fn default_max_staleness() -> Option<ConfigDuration> {
    Some(ConfigDuration::from_secs(86_400))
}

/// Requirements on the signatures of a source's documents.
#[derive(Clone, Debug, Default)]
pub(super) struct SignaturePolicy {
    /// Trusted publishers: a document whose signature is not valid under one of their keys is rejected.
    pub(super) trusted_keys: Option<Arc<TrustedKeys>>,
    /// Whether a document without a signature is rejected too.
    pub(super) require_signature: bool,
}

impl SourceKind {
    /// Returns the kind as written in the configuration.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Aidip => "aidip",
            Self::AgentFramework => "agent_framework",
            Self::AgentUri => "agent_uri",
            Self::Catalog => "catalog",
            Self::Ard => "ard",
            Self::Mqtt => "mqtt",
        }
    }
}

impl<'de> Deserialize<'de> for SourceConfig {
    /// Written by hand, so that an error inside an object is reported with its position.
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct SourceVisitor;
        impl<'de> de::Visitor<'de> for SourceVisitor {
            type Value = SourceConfig;

            fn expecting(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
                to.write_str("a path, or an object with kind and url")
            }

            fn visit_str<E: de::Error>(self, path: &str) -> Result<SourceConfig, E> {
                path.parse().map(SourceConfig::Files).map_err(E::custom)
            }

            fn visit_map<A: de::MapAccess<'de>>(self, members: A) -> Result<SourceConfig, A::Error> {
                let remote = RemoteSourceConfig::deserialize(de::value::MapAccessDeserializer::new(members))?;
                Ok(SourceConfig::Remote(Box::new(remote)))
            }
        }
        from.deserialize_any(SourceVisitor)
    }
}

impl JsonSchema for SourceConfig {
    fn schema_name() -> Cow<'static, str> {
        "Source".into()
    }

    fn json_schema(schemas: &mut SchemaGenerator) -> Schema {
        let (remote, files) = (schemas.subschema_for::<RemoteSourceConfig>(), schemas.subschema_for::<ConfigPath>());
        json_schema!({
            "description": "A file or folder by its path, or a remote source as an object.",
            "anyOf": [remote, files],
        })
    }
}
