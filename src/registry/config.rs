//! Where agents come from, as it is written: files by their path, everything beyond this machine as an object.
//! The order in the list is the precedence.

use super::MqttSettings;
use crate::{
    net::Credential,
    seal::Trusted,
    unit::{FilePath, Size, Span},
};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, de};
use std::{borrow::Cow, fmt, sync::Arc};

/// One source of agents.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Source {
    /// A source beyond this machine.
    Remote(Box<Remote>),
    /// A file of metadata documents, or a folder of such files.
    Files(FilePath),
}

/// What a source beyond this machine speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[schemars(rename = "SourceKind")]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// An AIDIP registry: the list at `url`, each document at `url/{id}`.
    Aidip,
    /// A publisher of Agent Framework: `/.well-known/agentframework/v1/agents` on the host of `url`, or `url` itself.
    AgentFramework,
    /// A domain of agent:// : `/.well-known/agents.json`, `agent.json` and A2A agent cards.
    AgentUri,
    /// An AI Catalog: `/.well-known/ai-catalog.json`.
    Catalog,
    /// An ARD registry: `GET /agents` with `urn:air:` identifiers.
    Ard,
    /// An MQTT broker on which agents of the 2389 protocol show their status.
    Mqtt,
}

/// A source beyond this machine.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[schemars(rename = "RemoteSource")]
#[serde(deny_unknown_fields)]
pub struct Remote {
    /// What it speaks.
    pub kind: Kind,
    /// Where it is; https, or http on this machine; a broker's is mqtts://host:port, or mqtt:// on this machine.
    pub url: String,
    /// What it is called in logs, metrics and the admin pages; letters, digits and ._:- , at most 64. Default: its
    /// kind and host, such as aidip:registry.example.com.
    #[serde(default)]
    pub name: Option<String>,
    /// What the gateway shows to it. Default: nothing.
    #[serde(default)]
    pub credential: Option<Credential>,
    /// How often it is looked at, one part in ten more or less; 1s to 1d. Less often where it says so itself
    /// (Cache-Control). Default 30s.
    #[serde(default = "poll")]
    pub poll: Span,
    /// Whether it is too large to copy: it is asked for one agent at a time, when that is called and no other source
    /// has it; what it says is remembered for `poll`, and while it is down for `stale_after`. Its agents are in no
    /// list and no search, and whatever another source has, or is published here, wins. For kind aidip. Default false.
    #[serde(default)]
    pub lazy: bool,
    /// How long one fetch may take, redirects included; 100ms to 5m. Default 10s.
    #[serde(default = "timeout")]
    pub timeout: Span,
    /// The longest answer; at most 256MiB. Default 16MiB.
    #[serde(default = "max_size")]
    pub max_size: Size,
    /// Agents that it may have; 1 to 200000. A look with more is refused as a whole. Default 100000.
    #[serde(default = "max_agents")]
    #[schemars(range(min = 1, max = 200_000))]
    pub max_agents: usize,
    /// After so long without a good look its agents are taken out; null keeps them for ever. Default 1d.
    #[serde(default = "stale_after")]
    pub stale_after: Option<Span>,
    /// A look that would lose more than this share of its agents (of 10 or more), or all of several, is not taken at
    /// once; 0 to 1, and 1 takes everything. Default 0.5.
    #[serde(default = "hold_loss")]
    #[schemars(range(min = 0.0, max = 1.0))]
    pub hold_loss: f64,
    /// Such a look is taken when three looks in a row, over at least this time, say the same, or when an operator
    /// confirms it (POST /feeds/{name}/confirm on the admin listener). Default 5m.
    #[serde(default = "hold_for")]
    pub hold_for: Span,
    /// A file with the publishers' keys (a JWK Set): a signed card that does not hold under them is refused.
    /// Default: signatures are not looked at.
    #[serde(default)]
    pub publisher_keys: Option<FilePath>,
    /// Whether a card without a signature is refused too; needs publisher_keys. Default false.
    #[serde(default)]
    pub require_signed: bool,
    /// How a broker is reached; for kind mqtt alone, which has neither credential nor keys of publishers and takes no
    /// message of more than 256KiB.
    #[serde(default)]
    pub mqtt: Option<MqttSettings>,
}

/// How far a server's own words about how long an answer may be used count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Caching {
    /// An answer that may be used at all is used for at least this long; at most an hour. Default 1s.
    pub min: Span,
    /// And for no longer than this; at most 1d. Default 1h.
    pub max: Span,
}

impl Default for Caching {
    fn default() -> Self {
        Self { min: Span::secs(1), max: Span::secs(3_600) }
    }
}

fn poll() -> Span {
    Span::secs(30)
}

fn timeout() -> Span {
    Span::secs(10)
}

fn max_size() -> Size {
    Size::kib(16 << 10)
}

fn max_agents() -> usize {
    100_000
}

#[expect(clippy::unnecessary_wraps, reason = "the default of an optional setting")]
fn stale_after() -> Option<Span> {
    Some(Span::secs(86_400))
}

fn hold_loss() -> f64 {
    0.5
}

fn hold_for() -> Span {
    Span::secs(300)
}

/// What a source's signed documents must show; `kinds::open(kind, web, proof)` takes it.
#[derive(Clone, Debug, Default)]
pub(super) struct Proof {
    /// The publishers that are believed: a signature that does not hold under these refuses its document.
    pub(super) trusted: Option<Arc<Trusted>>,
    /// Whether a document without a signature is refused too.
    pub(super) required: bool,
}

impl Kind {
    /// The kind as it is written.
    pub fn name(self) -> &'static str {
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

impl<'de> Deserialize<'de> for Source {
    /// By hand, so that a mistake inside an object is told where it is.
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Either;
        impl<'de> de::Visitor<'de> for Either {
            type Value = Source;

            fn expecting(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
                to.write_str("a path, or an object with kind and url")
            }

            fn visit_str<E: de::Error>(self, path: &str) -> Result<Source, E> {
                path.parse().map(Source::Files).map_err(E::custom)
            }

            fn visit_map<A: de::MapAccess<'de>>(self, members: A) -> Result<Source, A::Error> {
                let remote = Remote::deserialize(de::value::MapAccessDeserializer::new(members))?;
                Ok(Source::Remote(Box::new(remote)))
            }
        }
        from.deserialize_any(Either)
    }
}

impl JsonSchema for Source {
    fn schema_name() -> Cow<'static, str> {
        "Source".into()
    }

    fn json_schema(schemas: &mut SchemaGenerator) -> Schema {
        let (remote, files) = (schemas.subschema_for::<Remote>(), schemas.subschema_for::<FilePath>());
        json_schema!({
            "description": "A file or folder by its path, or a source beyond this machine as an object.",
            "anyOf": [remote, files],
        })
    }
}
