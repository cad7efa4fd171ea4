//! Configuration of delegation chains.

use crate::values::{ConfigDuration, ConfigPath, Glob};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Delegation chains (`X-Delegation-Chain`, R85, R87): each call tells its agent, as claims signed by the gateway,
/// which calls led to it. Needs `directory.signing_key` and `directory.external_url`. Without this section the gateway
/// forwards the header unread.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[schemars(rename = "Delegation")]
#[serde(deny_unknown_fields, default)]
pub struct DelegationConfig {
    /// Caller names that each agent uses when it calls other agents, by the agent's id: only these callers may continue
    /// a chain that was sent to the agent. An agent may always call as `key:` and its own id. Default: no other names.
    pub actors: BTreeMap<String, Vec<Glob>>,
    /// Callers that must send a chain, because they are agents and never the first to call. Default: none.
    pub required_for: Vec<Glob>,
    /// Other gateways whose chains are accepted; at most 16. Default: none.
    pub trusted_issuers: Vec<TrustedGatewayConfig>,
    /// How long an agent may use the chain that it was sent; 1s to 1d. Default 10m.
    pub ttl: ConfigDuration,
    /// Maximum number of actors in a chain; 1 to 16. Default 16.
    pub max_actors: u8,
    /// What happens to a call to an agent that is already in the chain. Default: refuse.
    pub loops: LoopPolicy,
}

impl Default for DelegationConfig {
    fn default() -> Self {
        Self {
            actors: BTreeMap::new(),
            required_for: Vec::new(),
            trusted_issuers: Vec::new(),
            ttl: ConfigDuration::from_secs(600),
            max_actors: 16,
            loops: LoopPolicy::Refuse,
        }
    }
}

/// What happens to a call to an agent that is already in the chain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LoopPolicy {
    /// The call is refused with 403.
    #[default]
    Refuse,
    /// The call is made; `max_actors` bounds the loop.
    Allow,
}

/// Another gateway whose chains are accepted.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TrustedGatewayConfig {
    /// The `iss` of its chains, which is its `directory.external_url`. Required.
    pub issuer: String,
    /// File with its public keys, a JWK Set as published at /.well-known/jwks.json. Read at startup and when the
    /// configuration changes. Required.
    pub jwks: ConfigPath,
    /// The callers that may present its chains. Required.
    pub callers: Vec<Glob>,
}

impl DelegationConfig {
    /// Returns every invalid value, by its path within this section.
    pub(super) fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        if !(ConfigDuration::from_secs(1)..=ConfigDuration::from_secs(86_400)).contains(&self.ttl) {
            problems.push(format!("ttl: must be 1s to 1d, not {}", self.ttl));
        }
        if !(1..=16).contains(&self.max_actors) {
            problems.push(format!("max_actors: must be 1 to 16, not {}", self.max_actors));
        }
        if self.trusted_issuers.len() > 16 {
            problems.push(format!("trusted_issuers: has {} entries (at most 16)", self.trusted_issuers.len()));
        }
        problems
    }
}
