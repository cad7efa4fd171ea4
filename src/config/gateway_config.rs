//! The configuration file as one structure, composed of the sections of the modules.

use crate::{
    admin::{AdminAccessConfig, OperatorRole},
    audit,
    auth::{self, AcceptedTokens},
    contract, directory, explain,
    fault::ErrorFormat,
    gateway::{self, CorsConfig, websocket},
    http_server, idempotency, limit, mqtt_bridge, net, registry, resolver, store, task, telemetry, trace,
    transport::{EndpointConfig, LocalRuntimeConfig, TransportConfig, UpstreamTimeouts},
    values::{ByteSize, ConfigDuration, ConfigPath, Glob, Rate},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::{
    net::{Ipv4Addr, SocketAddr},
    num::NonZeroU32,
    time::Duration,
};

/// Gatepost's configuration.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GatewayConfig {
    /// Addresses for callers. Required, at least one.
    #[schemars(length(min = 1))]
    pub listeners: Vec<http_server::ListenerConfig>,
    /// Limits of each connection of a caller.
    #[serde(default)]
    pub connections: http_server::ConnectionLimits,
    /// Address for operators: metrics, health, agents and sources.
    #[serde(default)]
    pub admin: AdminConfig,
    /// Address for probes of an orchestrator, and for metrics. Default: none; the admin listener has both.
    #[serde(default)]
    pub health: Option<HealthConfig>,
    /// WebSocket connections of callers, at /agents/{id}/invoke.
    #[serde(default)]
    pub websocket: websocket::CallerWebSocketConfig,
    /// The agents, and how the gateway reaches them.
    #[serde(default)]
    pub agents: AgentsConfig,
    /// The built-in registry, where publishers put agents. Default: none; publishing is off.
    #[serde(default)]
    pub registry: Option<registry::PublishConfig>,
    /// How callers find agents, and what they read about them.
    #[serde(default)]
    pub directory: directory::DirectoryConfig,
    /// The addresses that agents and issuers may have.
    #[serde(default)]
    pub network: net::NetworkConfig,
    /// MQTT brokers on which the gateway offers its agents as agents of the 2389 protocol. Only one gateway may offer
    /// an agent on a broker: a second gateway takes its connection over. Default: none.
    #[serde(default)]
    pub mqtt_bridge: Vec<mqtt_bridge::MqttBridgeConfig>,
    /// How `agent://` names are resolved: endpoints of agents, and POST /resolve.
    #[serde(default)]
    pub resolver: resolver::ResolverConfig,
    /// How callers authenticate. A method that is left out is off.
    #[serde(default)]
    pub auth: auth::AuthConfig,
    /// Which callers may call which agents. Without a grant a caller may call no agent.
    #[serde(default)]
    pub access: auth::AccessConfig,
    /// Web pages that may call. Default: none; the gateway sends no CORS headers, and no web page reaches agent+unix
    /// and agent+local.
    #[serde(default)]
    pub cors: Option<CorsConfig>,
    /// Where runtimes on this machine register (agent+local://NAME). Default: none; registration is off.
    #[serde(default)]
    pub local_runtimes: Option<LocalRuntimeConfig>,
    /// The signed chain of callers that agents receive (X-Delegation-Chain). Default: none; the gateway passes the
    /// header like any other.
    #[serde(default)]
    pub delegation: Option<gateway::DelegationConfig>,
    /// Rate limits, quotas and concurrency. A call must pass each limit that applies to it.
    #[serde(default)]
    pub limits: limit::LimitConfig,
    /// State that several gateways share, so that limits, idempotency keys and withdrawn credentials are those of one
    /// gateway. Default: none; each gateway has its own.
    #[serde(default)]
    pub state: Option<store::StateConfig>,
    /// Calls with a later result (Prefer: respond-async), and streams that callers resume. Default: none; both are off.
    #[serde(default)]
    pub tasks: Option<task::TaskConfig>,
    /// Calls and pipelines with an `Idempotency-Key`, which run once.
    #[serde(default)]
    pub idempotency: idempotency::IdempotencyConfig,
    /// Validation of bodies against the schemas in agents' documents.
    #[serde(default)]
    pub contract: contract::ContractConfig,
    /// The format of errors.
    #[serde(default)]
    pub errors: ErrorsConfig,
    /// Where the access log goes.
    #[serde(default)]
    pub access_log: telemetry::AccessLogConfig,
    /// The audit log: who changed the configuration, keys, documents and sources. Default: none.
    #[serde(default)]
    pub audit: Option<audit::AuditConfig>,
    /// OpenTelemetry traces, exported by OTLP. OTEL_* environment variables are not read. Default: none; the gateway
    /// records no traces, and passes the callers' trace context through.
    #[serde(default)]
    pub tracing: Option<trace::TracingConfig>,
    /// What `gatepost explain` can tell of past calls.
    #[serde(default)]
    pub explain: explain::ExplainConfig,
    /// The labels of metrics.
    #[serde(default)]
    pub metrics: telemetry::MetricsConfig,
    /// How the process drains, stops, and hands its listeners over.
    #[serde(default)]
    pub shutdown: ShutdownConfig,
}

/// How much longer than the longest call a drain waits by default, for the response to be written.
const DRAIN_MARGIN: Duration = Duration::from_secs(5);

impl GatewayConfig {
    /// Returns the longest time that a call may take: the longest `timeouts.total` of the defaults, of all rules and of
    /// their APIs.
    pub fn longest_call(&self) -> Duration {
        let defaults = &self.agents.defaults;
        let rules = self.agents.rules.iter().map(|rule| {
            let timeouts = rule.settings.with_fallback(defaults).timeouts;
            let preset = rule.api.as_ref().and_then(|api| api.preset);
            preset.map_or(timeouts.clone(), |preset| timeouts.with_api_preset(preset.timeouts()))
        });
        let all = rules.chain([defaults.timeouts.clone()]);
        all.map(|timeouts| UpstreamTimeouts::from(&timeouts).total).max().unwrap_or_default()
    }

    /// Returns how long calls in flight may take to finish after SIGTERM.
    pub fn drain_timeout(&self) -> Duration {
        self.shutdown.drain_timeout.map_or_else(|| self.default_drain_timeout(), ConfigDuration::get)
    }

    /// Returns the drain timeout of a configuration that sets none.
    pub fn default_drain_timeout(&self) -> Duration {
        self.longest_call() + DRAIN_MARGIN
    }

    /// Returns the limits of callers' connections, where those of one address are its share unless they are set.
    pub fn connection_limits(&self) -> http_server::ConnectionLimits {
        self.connections.clone().with_share_of_address(self.limits.max_share)
    }

    /// Returns the bearer tokens that the gateway accepts.
    pub fn accepted_tokens(&self) -> AcceptedTokens<'_> {
        let grants = self.access.grants.iter().map(|grant| (&grant.callers[..], &grant.groups[..]));
        let roles = self.admin.access.iter().flat_map(|access| &access.roles);
        let roles = roles.map(|rule| (&rule.callers[..], &rule.groups[..]));
        let publishers = self.registry.iter().flat_map(|registry| &registry.publishers);
        let publishers = publishers.map(|rule| (&rule.callers[..], &rule.groups[..]));
        AcceptedTokens::new(self.auth.bearer.as_ref(), grants.chain(roles).chain(publishers))
    }

    /// Returns the sections whose settings differ from `startup` and take effect at the next start only.
    pub fn changed_startup_sections(&self, startup: &Self) -> Vec<&'static str> {
        let unchanged = [
            ("listeners", self.listeners == startup.listeners),
            ("connections", self.connection_limits() == startup.connection_limits()),
            ("admin", !self.admin.differs_at_start(&startup.admin)),
            ("health", self.health == startup.health),
            ("access_log", self.access_log == startup.access_log),
            ("audit", self.audit == startup.audit),
            ("shutdown", self.shutdown == startup.shutdown),
            ("state", self.state == startup.state),
            ("tasks", task_startup_settings(&self.tasks) == task_startup_settings(&startup.tasks)),
            ("registry", registry_startup_settings(&self.registry) == registry_startup_settings(&startup.registry)),
        ];
        unchanged.into_iter().filter(|(_, unchanged)| !unchanged).map(|(section, _)| section).collect()
    }
}

/// Returns the settings of the registry's store, which is opened at startup.
fn registry_startup_settings(registry: &Option<registry::PublishConfig>) -> impl PartialEq + '_ {
    registry.as_ref().map(|config| (&config.sqlite_file, &config.database, &config.database_ca))
}

/// Returns the settings of the task store, which is opened at startup, and the limits on tasks and streams, whose
/// permits are created at startup.
fn task_startup_settings(tasks: &Option<task::TaskConfig>) -> impl PartialEq + '_ {
    tasks.as_ref().map(|config| {
        let max_streams = config.resume.as_ref().map(|resume| resume.max_streams);
        (&config.sqlite_file, &config.database, &config.database_ca, config.max_running, max_streams)
    })
}

/// The admin listener.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct AdminConfig {
    /// Address and port of the admin listener. It speaks plain HTTP: keep it on loopback, or behind a proxy with TLS and
    /// with `access`. With port 0 the system chooses a port. Default 127.0.0.1:9901.
    #[schemars(with = "String")]
    pub address: SocketAddr,
    /// Host names under which operators and monitoring reach the admin listener. Others are refused as DNS rebinding,
    /// except localhost and loopback addresses and, if the listener is not on loopback, every IP address. Default: none.
    pub allowed_hosts: Vec<String>,
    /// Operators with their roles, and how their browsers log in. Metrics and probes need no operator. Default: none;
    /// everybody who reaches the listener may use it, and the console only on loopback.
    pub access: Option<AdminAccessConfig>,
    /// The console: pages for operators at /console.
    pub console: ConsoleConfig,
}

/// The console.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ConsoleConfig {
    /// Whether the admin listener serves the console. Default true.
    pub enabled: bool,
    /// The role in the console of everybody who reaches a listener on loopback, without `admin.access`. Default viewer.
    pub role_on_loopback: OperatorRole,
}

impl Default for ConsoleConfig {
    fn default() -> Self {
        Self { enabled: true, role_on_loopback: OperatorRole::default() }
    }
}

impl AdminConfig {
    /// Returns whether a setting differs from `startup` that takes effect at the next start only.
    fn differs_at_start(&self, startup: &Self) -> bool {
        let settings = |admin: &Self| (admin.address, admin.allowed_hosts.clone(), admin.console.enabled);
        settings(self) != settings(startup)
    }
}

impl Default for AdminConfig {
    fn default() -> Self {
        Self {
            address: SocketAddr::from((Ipv4Addr::LOCALHOST, 9901)),
            allowed_hosts: Vec::new(),
            access: None,
            console: ConsoleConfig::default(),
        }
    }
}

/// The health listener: `/livez`, `/healthz`, `/readyz` and `/startupz`. It speaks plain HTTP without authentication, and
/// changes nothing, so that it may be reachable in a cluster.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct HealthConfig {
    /// Address and port of the health listener, such as 0.0.0.0:9902. With port 0 the system chooses a port. Required.
    #[schemars(with = "String")]
    pub address: SocketAddr,
    /// Whether /metrics is served there too. Metrics name agents and sources, and no callers. Default false.
    #[serde(default)]
    pub metrics: bool,
}

/// The agents, and how the gateway reaches them.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AgentsConfig {
    /// The sources of agents, at most 100; where two sources have an id, the earlier source wins. A path is a file of
    /// AIDIP documents (JSON or YAML: one document, an array, or an object with `agents`; at most 256MiB for a file and
    /// 1MiB for a document), or a folder of such files (*.json, *.yaml, *.yml; no subfolders). An object is a remote
    /// source. Default: none, which requires the section registry.
    #[serde(default)]
    pub sources: Vec<registry::SourceConfig>,
    /// Folder for the last good document of each remote source and of the built-in registry, used at a start while the
    /// source is down. Created when needed; null keeps none. Default gatepost.state, beside the configuration file.
    #[serde(default = "default_last_known_good")]
    pub last_known_good: Option<ConfigPath>,
    /// Bounds on the cache lifetimes that sources declare (Cache-Control).
    #[serde(default)]
    pub cache: registry::CacheBounds,
    /// How often the files are checked for changes; 50ms to 1h. Default 500ms.
    #[serde(default = "default_poll_interval")]
    pub poll_interval: ConfigDuration,
    /// Settings for every agent.
    #[serde(default)]
    pub defaults: TransportConfig,
    /// Settings for the agents that match. A later rule overrides an earlier one, setting by setting. Default: none.
    #[serde(default)]
    pub rules: Vec<AgentRule>,
    /// Maximum size of a body that is streamed without validation, because the operation has no schema or validation is
    /// off. Default 64MiB.
    #[serde(default = "default_max_streamed_body_size")]
    pub max_streamed_body_size: ByteSize,
    /// Bounds for calls to agents whose documents have an A2A agent card.
    #[serde(default)]
    pub a2a: gateway::A2aConfig,
    /// Time between keep-alive comments on an idle event stream; 0s sends none. Default 15s.
    #[serde(default = "default_sse_keep_alive_interval")]
    pub sse_keep_alive_interval: ConfigDuration,
    /// Whether the configuration is only checked (`gatepost check`): the gateway fetches no documents of sources and
    /// writes no files. Not a setting.
    #[serde(skip)]
    pub check_only: bool,
    /// What is read although the configuration is only checked (`gatepost doctor`). Not a setting.
    #[serde(skip)]
    pub inspection: InspectionScope,
}

/// What is read besides files while a configuration is only checked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InspectionScope {
    /// Whether remote sources are polled.
    pub polls_sources: bool,
    /// Whether the built-in registry is read. Its store must have the schema of this gateway.
    pub reads_registry: bool,
}

impl Default for AgentsConfig {
    fn default() -> Self {
        Self {
            sources: Vec::new(),
            last_known_good: default_last_known_good(),
            cache: registry::CacheBounds::default(),
            poll_interval: default_poll_interval(),
            defaults: TransportConfig::default(),
            rules: Vec::new(),
            max_streamed_body_size: default_max_streamed_body_size(),
            a2a: gateway::A2aConfig::default(),
            sse_keep_alive_interval: default_sse_keep_alive_interval(),
            check_only: false,
            inspection: InspectionScope::default(),
        }
    }
}

fn default_last_known_good() -> Option<ConfigPath> {
    registry::default_last_known_good_folder()
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
    /// Agents by id, or patterns. Required, at least one.
    #[schemars(length(min = 1))]
    pub agents: Vec<Glob>,
    /// The settings of `defaults` that differ for these agents.
    #[serde(default)]
    pub settings: TransportConfig,
    /// Rate limit of each agent, for all callers together. Default: none.
    #[serde(default)]
    pub rate_limit: Option<Rate>,
    /// Maximum number of concurrent calls to each agent; at least 1. Default: `limits.concurrency.max_per_agent`.
    #[serde(default)]
    pub max_concurrency: Option<NonZeroU32>,
    /// Maximum number of concurrent calls to each agent of all gateways that share `state`; at least 1. Default:
    /// `limits.concurrency.shared_max_per_agent`.
    #[serde(default)]
    pub shared_max_concurrency: Option<NonZeroU32>,
    /// Whether the gateway learns a lower limit for each agent from its latency. Default:
    /// `limits.concurrency.adaptive`.
    #[serde(default)]
    pub adaptive_concurrency: Option<bool>,
    /// Whether every call becomes a task, as with `Prefer: respond-async` (RFC 7240). Requires the section tasks.
    /// Default false.
    #[serde(default, rename = "async")]
    pub always_async: Option<bool>,
    /// Which credential a caller needs: `declared` (the kind that the agent's document declares; another kind is refused),
    /// or `any` (every kind that the section auth accepts; scopes still apply to tokens). Default declared.
    #[serde(default)]
    pub authentication: Option<gateway::CallerAuthentication>,
    /// What happens with the query of a POST: `forward` (the agent receives it, unless it only repeats the body), or
    /// `refuse` (400). Agents over HTTP only. Default forward.
    #[serde(default)]
    pub query: Option<gateway::QueryPolicy>,
    /// Which parts of an agent's error the caller reads, without internals and secrets in any case: `message` (the
    /// message of an error that the caller can correct), `all` (the message of every error, and the error body as
    /// `agent_error`), `none`, or `pointer: /error/message` (the text at a JSON Pointer in the error body). Default:
    /// message.
    #[serde(default)]
    pub error_details: Option<gateway::ErrorDetails>,
    /// Whether the agents can be called with `GET`, with the query as input; otherwise 405. Default true.
    #[serde(default)]
    pub get: Option<bool>,
    /// The agents' own API: requests below `/agents/{id}/api` that pass as they are. Default: none passes.
    #[serde(default)]
    pub api: Option<gateway::ApiConfig>,
    /// How clients of OpenAI's API (`/openai/v1`) call the agents, where their schemas do not say it. Default: by the
    /// schemas.
    #[serde(default)]
    pub openai: Option<gateway::OpenAiConfig>,
    /// Bounds for calls to the agents that have an A2A card. Default: `agents.a2a`.
    #[serde(default)]
    pub a2a: Option<gateway::A2aConfig>,
    /// How inputs and outputs are validated, where it differs from the section contract. Default: as there.
    #[serde(default)]
    pub contract: Option<contract::ContractRule>,
    /// What the agents' servers speak, where they do not take the input of a call as it is: servers of OpenAI's API. A later
    /// rule replaces the whole setting. Default: the input passes as it is.
    #[serde(default)]
    pub endpoint: Option<EndpointConfig>,
}

/// The format of errors.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ErrorsConfig {
    /// Format for callers whose `Accept` has no preference: `error` (AIDIP) or `problem` (RFC 9457). Default error.
    pub format: ErrorFormat,
    /// Whether the log has the bodies of agents' errors, without secrets. They repeat the caller's input in many
    /// frameworks. Default false.
    pub log_agent_bodies: bool,
}

/// How the process drains, stops, and hands its listeners over.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ShutdownConfig {
    /// How long calls in flight may take to finish after SIGTERM; a drain ends with the last of them. Calls that take
    /// longer end with 503 `Overloaded`. Default: null, for the longest `timeouts.total` of all agents and 5s.
    pub drain_timeout: Option<ConfigDuration>,
    /// Time between the drop of readiness and the close of the listeners, in which load balancers notice. Default 0s.
    pub listener_close_delay: ConfigDuration,
    /// Path of the unix socket over which a second process (`gatepost run --take-over`) takes over the listeners.
    /// Default: none; a takeover is not possible.
    pub handover_socket: Option<ConfigPath>,
}

impl Default for ShutdownConfig {
    fn default() -> Self {
        Self { drain_timeout: None, listener_close_delay: ConfigDuration::from_secs(0), handover_socket: None }
    }
}

/// Returns the JSON Schema of the file, which editors and the validation use.
pub fn json_schema() -> serde_json::Value {
    serde_json::to_value(schemars::schema_for!(GatewayConfig)).unwrap_or_default()
}
