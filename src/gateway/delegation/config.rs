//! What people write about chains of delegation.

use crate::unit::{FilePath, Glob, Span};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Chains of delegation (`X-Delegation-Chain`, R85, R87): each call tells its agent, as claims that the gateway signs,
/// who called whom before. Needs `directory.signing_key`. Without this section the field passes unread, as any other.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[schemars(rename = "Delegation")]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Which callers each agent is when it calls others itself, by the agent's id: only they may go on with a chain
    /// that was sent to it. Besides these, an agent is always the caller `key:` with its own id. Default: no others.
    pub actors: BTreeMap<String, Vec<Glob>>,
    /// Callers that must go on with a chain, because they are agents and never the first to call. Default: none.
    pub required_of: Vec<Glob>,
    /// Other gateways whose chains are gone on with; at most 16. Default: none.
    pub trusted: Vec<TrustedGateway>,
    /// How long an agent may go on with the chain it was sent; 1s to 1d. Default 10m.
    pub lifetime: Span,
    /// Actors that a chain may have; 1 to 16. Default 16.
    pub most_actors: u8,
    /// What becomes of a call to an agent that is in the chain already. Default: refuse.
    pub loops: Loops,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            actors: BTreeMap::new(),
            required_of: Vec::new(),
            trusted: Vec::new(),
            lifetime: Span::secs(600),
            most_actors: 16,
            loops: Loops::Refuse,
        }
    }
}

/// What becomes of a call to an agent that is in the chain already.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Loops {
    /// It is answered 403.
    #[default]
    Refuse,
    /// It is made; the bound on actors ends it.
    Allow,
}

/// Another gateway whose chains are gone on with.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TrustedGateway {
    /// The `iss` of its chains: its `directory.url`.
    pub issuer: String,
    /// A file with its public keys, a JWK Set: what it publishes at /.well-known/jwks.json. Read at the start and when
    /// the configuration changes.
    pub keys: FilePath,
    /// The callers that may present its chains.
    pub callers: Vec<Glob>,
}

impl Config {
    /// Every value that cannot be used, by its path within this section.
    pub(super) fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        if !(Span::secs(1)..=Span::secs(86_400)).contains(&self.lifetime) {
            problems.push(format!("lifetime: must be 1s to 1d, not {}", self.lifetime));
        }
        if !(1..=16).contains(&self.most_actors) {
            problems.push(format!("most_actors: must be 1 to 16, not {}", self.most_actors));
        }
        if self.trusted.len() > 16 {
            problems.push(format!("trusted: there are {} (at most 16)", self.trusted.len()));
        }
        problems
    }
}
