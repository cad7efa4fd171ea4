//! The shape of the file: each room's own settings, composed.

use crate::{
    auth, contract, directory,
    fault::ErrorFormat,
    gateway::{self, CorsConfig, http_server, websocket},
    idempotency, limit, mqtt_bridge, net, registry, resolver, task, telemetry,
    transport::{LocalRuntimeConfig, TransportConfig},
    values::{ByteSize, ConfigDuration, ConfigPath, Glob, Rate},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::{
    net::{Ipv4Addr, SocketAddr},
    num::NonZeroU32,
};

/// Gatepost's configuration.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GatewayConfig {
    /// Where callers connect; at least one.
    #[schemars(length(min = 1))]
    pub listeners: Vec<http_server::ListenerConfig>,
    /// Bounds on every connection.
    #[serde(default)]
    pub connections: http_server::ConnectionLimits,
    /// Where operators connect: metrics, health, state.
    #[serde(default)]
    pub admin: AdminConfig,
    /// Callers with a WebSocket of their own.
    #[serde(default)]
    pub websocket: websocket::CallerWebSocketConfig,
    /// The agents and how they are reached.
    #[serde(default)]
    pub agents: AgentsConfig,
    /// The registry that is built in: where agents are published. Without this section nothing can be.
    #[serde(default)]
    pub registry: Option<registry::PublishConfig>,
    /// How agents are found and described.
    #[serde(default)]
    pub directory: directory::DirectoryConfig,
    /// Which addresses agents, and whatever else is fetched, may have.
    #[serde(default)]
    pub network: net::NetworkConfig,
    /// Brokers on which agents of this gateway are offered as agents of the 2389 protocol over MQTT. An agent is to be
    /// offered on a broker by one gateway only. Default: none.
    #[serde(default)]
    pub mqtt_bridge: Vec<mqtt_bridge::MqttBridgeConfig>,
    /// How `agent://` names are resolved, of agents that have one for an endpoint and for `POST /resolve`.
    #[serde(default)]
    pub resolver: resolver::ResolverConfig,
    /// How callers prove who they are.
    #[serde(default)]
    pub auth: auth::AuthConfig,
    /// Who may call what. Nothing is granted unless it is written here.
    #[serde(default)]
    pub access: auth::AccessConfig,
    /// Which pages in a browser may call. Without this section browsers are told nothing.
    #[serde(default)]
    pub cors: Option<CorsConfig>,
    /// Where runtimes of this machine register (agent+local://name). Without this section none can.
    #[serde(default)]
    pub local_runtimes: Option<LocalRuntimeConfig>,
    /// What agents are told of who called whom before. Without this section: nothing by the gateway.
    #[serde(default)]
    pub delegation: Option<gateway::DelegationConfig>,
    /// How much a caller may call.
    #[serde(default)]
    pub limits: limit::LimitConfig,
    /// Calls that are answered later, and streams that are taken up again. Without this section there are none.
    #[serde(default)]
    pub tasks: Option<task::TaskConfig>,
    /// Calls with an `Idempotency-Key`, which are made once.
    #[serde(default)]
    pub idempotency: idempotency::IdempotencyConfig,
    /// How bodies are checked.
    #[serde(default)]
    pub contract: contract::ContractConfig,
    /// How errors are written.
    #[serde(default)]
    pub errors: ErrorsConfig,
    /// Where the line of each call goes.
    #[serde(default)]
    pub access_log: telemetry::AccessLogConfig,
    /// What is measured.
    #[serde(default)]
    pub metrics: telemetry::MetricsConfig,
    /// How the process ends and is replaced.
    #[serde(default)]
    pub shutdown: ShutdownConfig,
}

impl GatewayConfig {
    /// The sections that differ from `other` and are read at the start only.
    pub fn fixed_but_changed(&self, other: &Self) -> Vec<&'static str> {
        let same = [
            ("listeners", self.listeners == other.listeners),
            ("connections", self.connections == other.connections),
            ("admin", self.admin == other.admin),
            ("access_log", self.access_log == other.access_log),
            ("shutdown", self.shutdown == other.shutdown),
            ("tasks", tasks_place(&self.tasks) == tasks_place(&other.tasks)),
            ("registry", places(&self.registry) == places(&other.registry)),
        ];
        same.into_iter().filter(|(_, same)| !same).map(|(section, _)| section).collect()
    }
}

/// Where published documents are kept, which is opened at the start only.
fn places(registry: &Option<registry::PublishConfig>) -> impl PartialEq + '_ {
    registry.as_ref().map(|config| (&config.sqlite_file, &config.database, &config.database_ca))
}

/// Whether there are tasks, where they are kept, and how many may run, which is settled at the start only.
fn tasks_place(tasks: &Option<task::TaskConfig>) -> impl PartialEq + '_ {
    tasks.as_ref().map(|config| {
        let places = config.resume.as_ref().map(|resume| resume.max_streams);
        (&config.sqlite_file, &config.database, &config.database_ca, config.max_running, places)
    })
}

/// The operators' side.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct AdminConfig {
    /// Address of the admin listener; plain HTTP without authentication, so keep it on loopback or behind
    /// something. Default 127.0.0.1:9901; port 0 takes any free one.
    #[schemars(with = "String")]
    pub address: SocketAddr,
}

impl Default for AdminConfig {
    fn default() -> Self {
        Self { address: SocketAddr::from((Ipv4Addr::LOCALHOST, 9901)) }
    }
}

/// The agents.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AgentsConfig {
    /// Where they come from, at most 100 sources; where two have an id, the earlier wins. A path is a file of AIDIP
    /// metadata documents (JSON or YAML: one document, an array, or an object with `agents`; at most 256MiB a file,
    /// 1MiB a document) or a folder of such files (*.json, *.yaml, *.yml; not the folders within). An object is a
    /// source beyond this machine. It may be empty where the section registry is there.
    #[serde(default)]
    pub sources: Vec<registry::SourceConfig>,
    /// A folder in which is kept what sources beyond this machine, and the registry that is built in, said last: a
    /// start at which they are down serves that. It is made when there is something to keep; null keeps nothing.
    /// Default gatepost.state, beside the configuration file.
    #[serde(default = "registry::usual_folder")]
    pub last_known_good: Option<ConfigPath>,
    /// How far the words of sources count about how long their answers may be used (Cache-Control).
    #[serde(default)]
    pub cache: registry::CacheBounds,
    /// How often the files are looked at for changes; 50ms to 1h. Default 500ms.
    #[serde(default = "default_poll_interval")]
    pub poll_interval: ConfigDuration,
    /// How every agent is reached.
    #[serde(default)]
    pub defaults: TransportConfig,
    /// How certain agents are reached; of several that match, the later one wins, setting by setting.
    #[serde(default)]
    pub rules: Vec<AgentRule>,
    /// The largest body that passes unchecked, because the operation has no schema or checking is off; it is
    /// streamed, never held. Default 64MiB.
    #[serde(default = "default_max_streamed_body_size")]
    pub max_streamed_body_size: ByteSize,
    /// Interval of the keep-alive comment on an idle event stream; 0s sends none. Default 15s.
    #[serde(default = "default_sse_keep_alive_interval")]
    pub sse_keep_alive_interval: ConfigDuration,
    /// Whether this is only tried (`gatepost check`): nothing beyond this machine is asked, and nothing is written.
    #[serde(skip)]
    pub rehearsal: bool,
}

impl Default for AgentsConfig {
    fn default() -> Self {
        Self {
            sources: Vec::new(),
            last_known_good: registry::usual_folder(),
            cache: registry::CacheBounds::default(),
            poll_interval: default_poll_interval(),
            defaults: TransportConfig::default(),
            rules: Vec::new(),
            max_streamed_body_size: default_max_streamed_body_size(),
            sse_keep_alive_interval: default_sse_keep_alive_interval(),
            rehearsal: false,
        }
    }
}

fn default_poll_interval() -> ConfigDuration {
    ConfigDuration::from_millis(500)
}

fn default_max_streamed_body_size() -> ByteSize {
    ByteSize::from_kib(64 << 10)
}

fn default_sse_keep_alive_interval() -> ConfigDuration {
    ConfigDuration::from_secs(15)
}

/// Settings for the agents that match.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AgentRule {
    /// Agents by id.
    #[schemars(length(min = 1))]
    pub agents: Vec<Glob>,
    /// How they are reached.
    #[serde(default)]
    pub settings: TransportConfig,
    /// Calls per period to each of them, by all callers together.
    #[serde(default)]
    pub rate_limit: Option<Rate>,
    /// Calls at once to each of them.
    #[serde(default)]
    pub max_concurrency: Option<NonZeroU32>,
    /// Whether their bound is learnt, instead of `limits.concurrency.adaptive`.
    #[serde(default)]
    pub adaptive_concurrency: Option<bool>,
    /// Whether every call of them is answered with a task at once, as if its caller preferred that (RFC 7240); needs
    /// the section tasks. Default: false.
    #[serde(default, rename = "async")]
    pub slow: Option<bool>,
}

/// How errors are written.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ErrorsConfig {
    /// The format where `Accept` prefers none: `error` (AIDIP) or `problem` (RFC 9457). Default `error`.
    pub format: ErrorFormat,
}

/// How the process ends and is replaced.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ShutdownConfig {
    /// How long calls in flight may take to finish after SIGTERM. Default 30s.
    pub drain_timeout: ConfigDuration,
    /// How long the listeners stay open after readiness has dropped, so that load balancers notice.
    /// Default 0s.
    pub listener_close_delay: ConfigDuration,
    /// A unix socket over which a second process (`gatepost run --upgrade`) takes over the listeners.
    pub handover_socket: Option<ConfigPath>,
}

impl Default for ShutdownConfig {
    fn default() -> Self {
        Self {
            drain_timeout: ConfigDuration::from_secs(30),
            listener_close_delay: ConfigDuration::from_secs(0),
            handover_socket: None,
        }
    }
}
