//! Configuration of the agent sources: files by their path, remote sources as objects.
//! The order of the list is the precedence.

use super::{KubernetesSourceConfig, MAX_AGENTS, MqttSourceConfig};
use crate::{
    agent::{AgentSource, DocumentWriter, OriginPattern},
    net::{SourceCredential, Url},
    values::{ByteSize, ConfigDuration, ConfigPath, shown_url},
};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, de};
use std::{borrow::Cow, collections::HashMap, fmt, path::PathBuf};

/// Maximum number of sources in one configuration.
const MAX_SOURCES: usize = 100;
/// Name of the embedded registry among the sources.
pub(super) const REGISTRY_SOURCE_NAME: &str = AgentSource::REGISTRY;

/// Configuration of the agent sources.
#[derive(Clone, Debug, PartialEq)]
pub struct AgentSourcesConfig {
    /// The sources in order of precedence: on a conflict of ids the earlier source wins.
    pub sources: Vec<SourceConfig>,
    /// Interval between two polls of a file or folder.
    pub poll_interval: ConfigDuration,
    /// Folder of the last known good agents of remote sources; `None` stores nothing.
    pub last_known_good: Option<PathBuf>,
    /// Bounds on the cache lifetimes that servers declare.
    pub cache: CacheBounds,
    /// Whether the gateway is not ready before the built-in registry was read once.
    pub registry_required: bool,
    /// Whether the configuration is only checked: no remote source is contacted, and nothing is written.
    pub check_only: bool,
    /// Whether remote sources are polled nevertheless, although nothing is written.
    pub polls_when_checking: bool,
}

impl Default for AgentSourcesConfig {
    fn default() -> Self {
        Self {
            sources: Vec::new(),
            poll_interval: ConfigDuration::from_millis(500),
            last_known_good: None::<PathBuf>,
            cache: CacheBounds::default(),
            registry_required: true,
            check_only: false,
            polls_when_checking: false,
        }
    }
}

impl AgentSourcesConfig {
    /// Returns every value that cannot be used, by its path within this section.
    pub fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        let mut names: HashMap<String, usize> = HashMap::new();
        for (at, source) in self.sources.iter().enumerate() {
            let name = match source {
                SourceConfig::Files(path) => {
                    if let Err(why) = std::fs::metadata(path) {
                        let is_url = path.to_string_lossy().contains(":/");
                        let hint = if is_url { "; write {kind: …, url: …} for a source at a URL" } else { "" };
                        let shown = path.to_string_lossy();
                        let shown = if is_url { shown_url(&shown) } else { shown };
                        problems.push(format!("sources[{at}]: {shown} cannot be read ({why}{hint})"));
                    }
                    path.display().to_string()
                }
                SourceConfig::Remote(remote) => {
                    problems.extend(remote.problems().iter().map(|why| format!("sources[{at}].{why}")));
                    remote.effective_name()
                }
            };
            if names.insert(name.clone(), at).is_some() {
                let hint =
                    if matches!(source, SourceConfig::Remote(_)) { " (give one of them another name)" } else { "" };
                problems.push(format!("sources[{at}]: {name} is listed twice{hint}"));
            }
        }
        if self.sources.len() > MAX_SOURCES {
            problems.push(format!("sources: has {} sources (at most {MAX_SOURCES})", self.sources.len()));
        }
        let (hour, day) = (ConfigDuration::from_secs(3_600), ConfigDuration::from_secs(86_400));
        if !(ConfigDuration::from_millis(50)..=hour).contains(&self.poll_interval) {
            problems.push(format!("poll_interval: must be 50ms to 1h, not {}", self.poll_interval));
        }
        if self.cache.min_ttl > hour || self.cache.max_ttl > day || self.cache.min_ttl > self.cache.max_ttl {
            problems.push(
                "cache: min_ttl must be at most 1h, and max_ttl must be at most 1d and at least min_ttl".to_owned(),
            );
        }
        problems
    }
}

/// Returns the default folder of the last known good agents.
pub fn default_last_known_good_folder() -> Option<ConfigPath> {
    "gatepost.state".parse().ok()
}

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
    /// A Kubernetes cluster in which labelled Services are agents.
    Kubernetes,
}

/// A remote source.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[schemars(rename = "RemoteSource")]
#[serde(deny_unknown_fields)]
pub struct RemoteSourceConfig {
    /// Protocol of the source.
    pub kind: SourceKind,
    /// Address of the source: https, or http on this machine; brokers: mqtts://host:port, or mqtt:// on this machine.
    /// Required, except for kind kubernetes, where the default is the API server of the gateway's own cluster.
    #[serde(default, skip_serializing_if = "String::is_empty")]
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
    /// Longest pause after polls that fail; pauses double from `poll_interval` up to it, and Retry-After of the source
    /// may make one longer. POST /sources/{name}/refresh on the admin listener, SIGHUP and a changed configuration end
    /// the pause. 1s to 1d. Default 5m.
    #[serde(default = "default_max_backoff")]
    pub max_backoff: ConfigDuration,
    /// Whether agents are looked up individually when they are called, for a registry that is too large to copy.
    /// Results are cached for `poll_interval`, and for `max_staleness` while the registry is down. Such agents are in
    /// no list and no search, and every other source has precedence. Only for kind aidip. Default false.
    #[serde(default)]
    pub on_demand: bool,
    /// Whether the gateway waits for this source: until the source was read once, or its last known good agents were
    /// loaded, the gateway is not ready (`/readyz`), and calls to unknown agents get 503 instead of 404. A source with
    /// `on_demand` has nothing to copy and is never waited for. Default true.
    #[serde(default = "default_required")]
    pub required: bool,
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
    /// Whether the publishers' keys are those that the domain publishes at /.well-known/jwks.json, instead of a file. A
    /// poll without these keys fails, which keeps the agents. Only for kind agent_uri. Default false.
    #[serde(default)]
    pub domain_jwks: bool,
    /// Whether a card or descriptor without a signature is rejected too; requires publisher_jwks or domain_jwks. Default
    /// false.
    #[serde(default)]
    pub require_signature: bool,
    /// Whether the operations of a descriptor that names its agent by `url` alone are called at `url/OPERATION`, as the
    /// reference implementation of agent:// serves them; false calls all at `url`. A capability with an `endpoint` is
    /// called there. Only for kind agent_uri. Default true.
    #[serde(default = "default_operation_paths")]
    pub operation_paths: bool,
    /// Servers that the source's agents may be at: `https://*.example.com`, `mqtts://broker.example.com:8883`. Servers
    /// in private networks, servers of other owners' agents, brokers and Matrix rooms must be listed. Default: every
    /// public server that no agent of another owner is at; for kind mqtt the broker too. With on_demand the listed
    /// servers belong to the source, and the list is required where publishers or other sources may name every server.
    #[serde(default)]
    pub endpoints: Option<Vec<OriginPattern>>,
    /// Connection to the broker; only for kind mqtt, which allows neither credential nor publisher_jwks, and no message
    /// of more than 256KiB.
    #[serde(default)]
    pub mqtt: Option<MqttSourceConfig>,
    /// Which Services are agents, and how the API server is reached; only for kind kubernetes, which takes a
    /// `credential` of bearer and mtls, and no `endpoints`: its agents are at their own Services.
    #[serde(default)]
    pub kubernetes: Option<KubernetesSourceConfig>,
}

impl RemoteSourceConfig {
    /// Returns the configured name, or kind and host where no name is configured.
    pub fn effective_name(&self) -> String {
        if let Some(name) = &self.name {
            return name.clone();
        }
        let url = match self.kind {
            SourceKind::Kubernetes => KubernetesSourceConfig::api_server_url(&self.url),
            _ => &self.url,
        };
        let host = Url::parse(url).ok().and_then(|url| {
            let host = url.host_str()?.to_owned();
            Some(url.port().map_or(host.clone(), |port| format!("{host}:{port}")))
        });
        let host = host.unwrap_or_default();
        let host: String = host.chars().map(|c| if is_name_char(c) { c } else { '-' }).collect();
        let mut label = format!("{}:{host}", self.kind.as_str());
        label.truncate(64);
        label
    }

    /// Returns the source that the agents of this remote source have.
    pub(super) fn agent_source(&self) -> AgentSource {
        AgentSource { name: self.effective_name().into(), writer: DocumentWriter::RemoteSource }
    }

    /// Returns every value that cannot be used, by its key.
    fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        let mut check = |name: &str, value: ConfigDuration, min: ConfigDuration, max: ConfigDuration| {
            if !(min..=max).contains(&value) {
                problems.push(format!("{name}: must be {min} to {max}, not {value}"));
            }
        };
        let (second, day, year) =
            (ConfigDuration::from_secs(1), ConfigDuration::from_secs(86_400), ConfigDuration::from_secs(366 * 86_400));
        check("poll_interval", self.poll_interval, second, day);
        check("max_backoff", self.max_backoff, second, day);
        check("fetch_timeout", self.fetch_timeout, ConfigDuration::from_millis(100), ConfigDuration::from_secs(300));
        check("loss_guard.confirm_after", self.loss_guard.confirm_after, ConfigDuration::from_secs(0), day);
        check("max_staleness", self.max_staleness.unwrap_or(second), second, year);
        if !(ByteSize::from_kib(1)..=ByteSize::from_kib(256 << 10)).contains(&self.max_response_size) {
            problems.push(format!("max_response_size: must be 1KiB to 256MiB, not {}", self.max_response_size));
        }
        if !(1..=MAX_AGENTS).contains(&self.max_agents) {
            problems.push(format!("max_agents: must be 1 to {MAX_AGENTS}, not {}", self.max_agents));
        }
        if !(0.0..=1.0).contains(&self.loss_guard.threshold) {
            problems.push(format!(
                "loss_guard.threshold: must be a share between 0 and 1, not {}",
                self.loss_guard.threshold
            ));
        }
        if self.on_demand && (self.publisher_jwks.is_some() || self.require_signature) {
            let hint = "set on_demand: false, or remove publisher_jwks and require_signature";
            problems.push(format!("publisher_jwks: has no effect where on_demand is true ({hint})"));
        }
        if self.require_signature && self.publisher_jwks.is_none() && !self.domain_jwks {
            problems.push("require_signature: requires publisher_jwks or domain_jwks".to_owned());
        }
        if self.domain_jwks && self.kind != SourceKind::AgentUri {
            problems.push("domain_jwks: is only for kind agent_uri".to_owned());
        } else if self.domain_jwks && self.publisher_jwks.is_some() {
            problems.push("domain_jwks: cannot be combined with publisher_jwks (set one of them)".to_owned());
        }
        let name = self.name.as_deref().unwrap_or("ok");
        if !(1..=64).contains(&name.len()) || !name.chars().all(is_name_char) || name.starts_with('.') {
            problems.push("name: must be 1 to 64 letters, digits or ._:- and must not begin with a dot".to_owned());
        }
        if [AgentSource::REGISTRY, AgentSource::FILES].contains(&name) {
            let meaning = "'registry' is the built-in registry, and 'files' are all files";
            problems.push(format!("name: '{name}' is reserved ({meaning})"));
        }
        if !self.operation_paths && self.kind != SourceKind::AgentUri {
            problems.push("operation_paths: is only for kind agent_uri".to_owned());
        }
        match (self.kind, &self.mqtt) {
            (SourceKind::Mqtt, mqtt) => problems.extend(mqtt.clone().unwrap_or_default().problems(&self.url)),
            (_, Some(_)) => problems.push("mqtt: is only for kind mqtt".to_owned()),
            (_, None) => {}
        }
        match (self.kind, &self.kubernetes) {
            (SourceKind::Kubernetes, settings) => {
                problems.extend(settings.iter().flat_map(KubernetesSourceConfig::problems));
                problems.extend(self.cluster_problems());
            }
            (_, Some(_)) => problems.push("kubernetes: is only for kind kubernetes".to_owned()),
            (_, None) => {}
        }
        if self.kind == SourceKind::Mqtt && self.credential.is_some() {
            problems.push("credential: is not for kind mqtt (use mqtt.username and mqtt.password)".to_owned());
        }
        if self.kind == SourceKind::Mqtt && self.publisher_jwks.is_some() {
            problems.push("publisher_jwks: is not for kind mqtt, whose statuses are not signed".to_owned());
        }
        problems
    }

    /// Returns the settings that a source of kind kubernetes does not take.
    fn cluster_problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        if self.credential.as_ref().is_some_and(|own| own.header.is_some() || own.client_credentials.is_some()) {
            problems.push("credential: must be bearer or mtls for kind kubernetes".to_owned());
        }
        if self.endpoints.is_some() {
            problems.push("endpoints: is not for kind kubernetes, whose agents are at their own Services".to_owned());
        }
        problems
    }
}

fn is_name_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | ':' | '-')
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

pub(super) fn default_max_backoff() -> ConfigDuration {
    ConfigDuration::from_secs(300)
}

fn default_required() -> bool {
    true
}

fn default_operation_paths() -> bool {
    true
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
            Self::Kubernetes => "kubernetes",
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
                if remote.url.is_empty() && remote.kind != SourceKind::Kubernetes {
                    return Err(de::Error::missing_field("url"));
                }
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
