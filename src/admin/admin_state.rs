//! The state that the admin listener shows, and the trait through which the gateway provides it.

use crate::{
    agent::{Agent, AgentId, AgentStatus, AuthenticationType},
    fault::{Fault, FaultCode},
    registry::SourceHealth,
    telemetry::redact,
};
use serde::Serialize;
use std::{collections::BTreeMap, time::Duration};

/// The gateway's state, as the admin listener needs it.
pub trait AdminState: Send + Sync + 'static {
    /// Returns the health of the gateway.
    fn health(&self) -> GatewayHealth;
    /// Returns the first `limit` agents after the id `after`, ordered by id; [`select_page`] selects them.
    fn list_agents(&self, after: Option<&str>, limit: usize) -> Vec<AgentRow>;
    /// Returns the first `limit` documents that were rejected.
    fn list_rejected_documents(&self, limit: usize) -> Vec<RejectedDocument>;
    /// Returns every source of agents in the order of precedence. Must not take long.
    fn list_sources(&self) -> Vec<SourceRow>;
    /// Confirms the agent loss that the loss guard holds back for the feed `name`. Returns whether there was one;
    /// `None` if there is no such feed.
    fn confirm_agent_loss(&self, name: &str) -> Option<bool>;

    /// Registers a runtime of this machine from its JSON. Returns how long the registration is valid, and whether it
    /// is new.
    ///
    /// # Errors
    /// The registration is invalid, or `NotFound` where registrations are disabled.
    fn register_runtime(&self, _name: &str, _wanted: &[u8]) -> Result<(Duration, bool), Fault> {
        Err(Fault::new(FaultCode::NotFound, "Registration is disabled"))
    }

    /// Removes a registration; returns whether there was one.
    fn remove_registration(&self, _name: &str) -> bool {
        false
    }

    /// Creates a code with which one page can be paired; returns it with its validity. `None` if pairing is disabled.
    fn create_pairing_code(&self) -> Option<(String, Duration)> {
        None
    }
}

/// The health of the gateway.
#[derive(Clone, Debug, Default)]
pub struct GatewayHealth {
    /// Whether the gateway is shutting down and wants no new calls.
    pub draining: bool,
    /// Number of agents served; `None` until the first snapshot was published.
    pub agents: Option<usize>,
    /// Number of rejected documents.
    pub rejected_documents: usize,
    /// Why the newest configuration was rejected, while an older one is in force.
    pub config_error: Option<String>,
    /// What currently cannot be read, such as a feed whose last known good agents are served.
    pub problems: Vec<String>,
}

impl GatewayHealth {
    /// Returns why no calls should be sent here. A rejected configuration is no reason: the previous one is in force.
    pub fn not_ready_reasons(&self) -> Vec<&'static str> {
        let mut reasons = Vec::new();
        if self.draining {
            reasons.push("draining");
        }
        if self.agents.is_none() {
            reasons.push("no agents loaded yet");
        }
        reasons
    }
}

/// One agent.
#[derive(Clone, Debug, Serialize)]
pub struct AgentRow {
    id: String,
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    version: Option<String>,
    status: &'static str,
    authentication: &'static str,
    endpoint: String,
    operations: Vec<String>,
    in_flight: u32,
    /// State of the circuit breaker of its first endpoint.
    circuit_breaker: &'static str,
    /// All endpoints, if there are several.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    endpoints: Vec<EndpointRow>,
}

/// One endpoint of an agent.
#[derive(Clone, Debug, Serialize)]
struct EndpointRow {
    endpoint: String,
    circuit_breaker: &'static str,
}

impl AgentRow {
    /// Creates the row of an agent with `in_flight` calls.
    pub fn new(agent: &Agent, in_flight: u32) -> Self {
        let named = agent.operations.iter().filter(|operation| !operation.name.is_empty());
        Self {
            id: agent.id.to_string(),
            name: agent.name.clone(),
            version: agent.version.clone(),
            status: match agent.status {
                AgentStatus::Active => "active",
                AgentStatus::Inactive => "inactive",
                AgentStatus::Deprecated(_) => "deprecated",
            },
            authentication: match agent.authentication.kind {
                AuthenticationType::ApiKey => "api_key",
                AuthenticationType::Bearer => "oauth2_bearer",
                AuthenticationType::Mtls => "mtls",
                AuthenticationType::Open => "none",
            },
            endpoint: redact(&agent.endpoint.to_string()).into_owned(),
            operations: named.map(|operation| operation.name.to_string()).collect(),
            in_flight,
            circuit_breaker: "closed",
            endpoints: Vec::new(),
        }
    }

    /// Adds the agent's endpoints, its own first, and the state of each one's circuit breaker.
    #[must_use]
    pub fn with_endpoints<'a>(mut self, endpoints: impl Iterator<Item = (&'a str, &'static str)>) -> Self {
        let shown =
            |(endpoint, circuit_breaker)| EndpointRow { endpoint: redact(endpoint).into_owned(), circuit_breaker };
        let mut endpoints: Vec<EndpointRow> = endpoints.map(shown).collect();
        if let Some(own) = endpoints.first() {
            self.circuit_breaker = own.circuit_breaker;
        }
        if endpoints.len() < 2 {
            endpoints.clear();
        }
        Self { endpoints, ..self }
    }

    /// The agent's id.
    pub fn id(&self) -> &str {
        &self.id
    }
}

/// One source of agents.
#[derive(Clone, Debug, Serialize)]
pub struct SourceRow {
    name: String,
    kind: &'static str,
    agents: usize,
    /// Seconds since the last successful poll.
    #[serde(skip_serializing_if = "Option::is_none")]
    age_seconds: Option<u64>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    stale: bool,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    from_last_known_good: bool,
    /// Number of agents that a poll result would remove, while the loss guard holds it back.
    #[serde(skip_serializing_if = "Option::is_none")]
    withheld: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    warning: Option<String>,
}

impl SourceRow {
    /// Creates the row of a source.
    pub fn new(source: &SourceHealth) -> Self {
        let shown = |text: String| redact(&text).into_owned();
        Self {
            name: source.name.to_string(),
            kind: source.kind,
            agents: source.agents,
            age_seconds: source.age().map(|age| age.as_secs()),
            stale: source.stale,
            from_last_known_good: source.from_disk,
            withheld: source.withheld_loss,
            error: source.error.clone().map(shown),
            warning: source.warning().map(shown),
        }
    }

    /// Whether the source has a warning for operators.
    pub fn has_warning(&self) -> bool {
        self.warning.is_some()
    }
}

/// A rejected document.
#[derive(Clone, Debug, Serialize)]
pub struct RejectedDocument {
    /// The file, or other part of a feed, that contains the document.
    pub source: String,
    /// Index of the document in that part, from 0.
    pub index: usize,
    /// The document's id, if it could be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// Every reason for the rejection.
    pub reasons: Vec<String>,
}

/// Returns the `limit` items with the lowest ids after `after`, in order. Iterates once, keeping only those items.
pub fn select_page<'a, T>(all: impl Iterator<Item = (&'a AgentId, T)>, after: Option<&str>, limit: usize) -> Vec<T> {
    let mut found = BTreeMap::new();
    for (id, thing) in all.filter(|(id, _)| after.is_none_or(|after| id.as_str() > after)) {
        let full = found.len() >= limit;
        if full && found.last_key_value().is_none_or(|(last, _)| id >= *last) {
            continue;
        }
        found.insert(id, thing);
        if full {
            found.pop_last();
        }
    }
    found.into_values().collect()
}
