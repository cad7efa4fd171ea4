//! Where agents come from, as it is written: files by their path, everything beyond this machine as an object.
//! The order in the list is the precedence.

use crate::seal::Trusted;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

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
        }
    }
}

/// What a source's signed documents must show; `kinds::open(kind, web, proof)` takes it.
#[cfg_attr(not(test), expect(dead_code, reason = "the kinds of feeds that use it are being built"))]
#[derive(Clone, Debug, Default)]
pub(super) struct Proof {
    /// The publishers that are believed: a signature that does not hold under these refuses its document.
    pub(super) trusted: Option<Arc<Trusted>>,
    /// Whether a document without a signature is refused too.
    pub(super) required: bool,
}
