//! The shape of the file: each room's own settings, composed.

use crate::{
    auth, bridge, contract, directory,
    fault::Format,
    gateway::{self, CorsConfig, listen, socket},
    limit, names, net, once, registry, task, telemetry,
    transport::{LocalConfig, Settings},
    unit::{FilePath, Glob, Rate, Size, Span},
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
pub struct File {
    /// Where callers connect; at least one.
    #[schemars(length(min = 1))]
    pub listeners: Vec<listen::Config>,
    /// Bounds on every connection.
    #[serde(default)]
    pub connections: listen::Limits,
    /// Where operators connect: metrics, health, state.
    #[serde(default)]
    pub admin: Admin,
    /// Callers with a WebSocket of their own.
    #[serde(default)]
    pub websocket: socket::Config,
    /// The agents and how they are reached.
    #[serde(default)]
    pub agents: Agents,
    /// The registry that is built in: where agents are published. Without this section nothing can be.
    #[serde(default)]
    pub registry: Option<registry::PublishConfig>,
    /// How agents are found and described.
    #[serde(default)]
    pub directory: directory::Config,
    /// Which addresses agents, and whatever else is fetched, may have.
    #[serde(default)]
    pub network: net::Config,
    /// Brokers on which agents of this gateway are offered as agents of the 2389 protocol over MQTT. An agent is to be
    /// offered on a broker by one gateway only. Default: none.
    #[serde(default)]
    pub mqtt_bridge: Vec<bridge::Config>,
    /// How `agent://` names are resolved, of agents that have one for an endpoint and for `POST /resolve`.
    #[serde(default)]
    pub resolver: names::Config,
    /// How callers prove who they are.
    #[serde(default)]
    pub auth: auth::Config,
    /// Who may call what. Nothing is granted unless it is written here.
    #[serde(default)]
    pub access: auth::AccessConfig,
    /// Which pages in a browser may call. Without this section browsers are told nothing.
    #[serde(default)]
    pub cors: Option<CorsConfig>,
    /// Where runtimes of this machine register (agent+local://name). Without this section none can.
    #[serde(default)]
    pub local_runtimes: Option<LocalConfig>,
    /// What agents are told of who called whom before. Without this section: nothing by the gateway.
    #[serde(default)]
    pub delegation: Option<gateway::DelegationConfig>,
    /// How much a caller may call.
    #[serde(default)]
    pub limits: limit::Config,
    /// Calls that are answered later, and streams that are taken up again. Without this section there are none.
    #[serde(default)]
    pub tasks: Option<task::Config>,
    /// Calls with an `Idempotency-Key`, which are made once.
    #[serde(default)]
    pub idempotency: once::Config,
    /// How bodies are checked.
    #[serde(default)]
    pub contract: contract::Config,
    /// How errors are written.
    #[serde(default)]
    pub errors: Errors,
    /// Where the line of each call goes.
    #[serde(default)]
    pub access_log: telemetry::AccessLogConfig,
    /// What is measured.
    #[serde(default)]
    pub metrics: telemetry::MetricsConfig,
    /// How the process ends and is replaced.
    #[serde(default)]
    pub shutdown: Shutdown,
}

impl File {
    /// The sections that differ from `other` and are read at the start only.
    pub fn fixed_but_changed(&self, other: &Self) -> Vec<&'static str> {
        let same = [
            ("listen", self.listeners == other.listeners),
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
fn tasks_place(tasks: &Option<task::Config>) -> impl PartialEq + '_ {
    tasks.as_ref().map(|config| {
        let places = config.resume.as_ref().map(|resume| resume.most);
        (&config.store, &config.database, &config.database_ca, config.most_running, places)
    })
}

/// The operators' side.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Admin {
    /// Address of the admin listener; plain HTTP without authentication, so keep it on loopback or behind
    /// something. Default 127.0.0.1:9901; port 0 takes any free one.
    #[schemars(with = "String")]
    pub address: SocketAddr,
}

impl Default for Admin {
    fn default() -> Self {
        Self { address: SocketAddr::from((Ipv4Addr::LOCALHOST, 9901)) }
    }
}

/// The agents.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Agents {
    /// Where they come from, at most 100 sources; where two have an id, the earlier wins. A path is a file of AIDIP
    /// metadata documents (JSON or YAML: one document, an array, or an object with `agents`; at most 256MiB a file,
    /// 1MiB a document) or a folder of such files (*.json, *.yaml, *.yml; not the folders within). An object is a
    /// source beyond this machine. It may be empty where the section registry is there.
    #[serde(default)]
    pub sources: Vec<registry::Source>,
    /// A folder in which is kept what sources beyond this machine, and the registry that is built in, said last: a
    /// start at which they are down serves that. It is made when there is something to keep; null keeps nothing.
    /// Default gatepost.state, beside the configuration file.
    #[serde(default = "registry::usual_folder")]
    pub last_known_good: Option<FilePath>,
    /// How far the words of sources count about how long their answers may be used (Cache-Control).
    #[serde(default)]
    pub cache: registry::Caching,
    /// How often the files are looked at for changes; 50ms to 1h. Default 500ms.
    #[serde(default = "poll")]
    pub poll_interval: Span,
    /// How every agent is reached.
    #[serde(default)]
    pub defaults: Settings,
    /// How certain agents are reached; of several that match, the later one wins, setting by setting.
    #[serde(default)]
    pub rules: Vec<Rule>,
    /// The largest body that passes unchecked, because the operation has no schema or checking is off; it is
    /// streamed, never held. Default 64MiB.
    #[serde(default = "max_stream")]
    pub max_streamed_body_size: Size,
    /// Interval of the keep-alive comment on an idle event stream; 0s sends none. Default 15s.
    #[serde(default = "keep_alive")]
    pub sse_keep_alive_interval: Span,
    /// Whether this is only tried (`gatepost check`): nothing beyond this machine is asked, and nothing is written.
    #[serde(skip)]
    pub rehearsal: bool,
}

impl Default for Agents {
    fn default() -> Self {
        Self {
            sources: Vec::new(),
            last_known_good: registry::usual_folder(),
            cache: registry::Caching::default(),
            poll_interval: poll(),
            defaults: Settings::default(),
            rules: Vec::new(),
            max_streamed_body_size: max_stream(),
            sse_keep_alive_interval: keep_alive(),
            rehearsal: false,
        }
    }
}

fn poll() -> Span {
    Span::millis(500)
}

fn max_stream() -> Size {
    Size::kib(64 << 10)
}

fn keep_alive() -> Span {
    Span::secs(15)
}

/// Settings for the agents that match.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    /// Agents by id.
    #[schemars(length(min = 1))]
    pub agents: Vec<Glob>,
    /// How they are reached.
    #[serde(default)]
    pub settings: Settings,
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
pub struct Errors {
    /// The format where `Accept` prefers none: `error` (AIDIP) or `problem` (RFC 9457). Default `error`.
    pub format: Format,
}

/// How the process ends and is replaced.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Shutdown {
    /// How long calls in flight may take to finish after SIGTERM. Default 30s.
    pub drain_timeout: Span,
    /// How long the listeners stay open after readiness has dropped, so that load balancers notice.
    /// Default 0s.
    pub listener_close_delay: Span,
    /// A unix socket over which a second process (`gatepost run --upgrade`) takes over the listeners.
    pub handover_socket: Option<FilePath>,
}

impl Default for Shutdown {
    fn default() -> Self {
        Self { drain_timeout: Span::secs(30), listener_close_delay: Span::secs(0), handover_socket: None }
    }
}
