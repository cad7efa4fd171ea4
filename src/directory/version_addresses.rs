//! Addresses of an agent's versions (R67): each is the gateway's URL that calls the version. A version that the gateway
//! cannot call, because it is on another server, has none.

use super::address_redaction::invoke_url;
use crate::{
    agent::{Agent, AgentVersions},
    resolver::version_url,
};
use serde_json::{Map, Value};

/// Returns the versions that callers can select.
pub(super) fn callable_versions(agent: &Agent) -> AgentVersions {
    let is_at_endpoint = |location: &str| version_url(&agent.endpoint, location).is_some();
    agent.versions.filter(|version| version.location.as_deref().is_none_or(is_at_endpoint))
}

/// Returns the gateway's URL of each version that callers can select, by the version's label.
pub(super) fn version_addresses(base: &str, agent: &Agent) -> Map<String, Value> {
    let address_of = |label: &str| Value::from(invoke_url(base, &format!("{}@{label}", agent.id), ""));
    callable_versions(agent).iter().map(|version| (version.label.to_string(), address_of(&version.label))).collect()
}
