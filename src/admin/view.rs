//! What operators see of the gateway, and what it must tell for that.

use crate::{
    agent::{Agent, AgentId, AuthKind, Status},
    fault::{Code, Fault},
    registry::SourceHealth,
    telemetry::redact,
};
use serde::Serialize;
use std::{collections::BTreeMap, time::Duration};

/// What the gateway tells about itself.
pub trait State: Send + Sync + 'static {
    /// How it is.
    fn health(&self) -> Health;
    /// The first `most` agents after the id `after`, in the order of their ids; [`page`] finds them.
    fn agents(&self, after: Option<&str>, most: usize) -> Vec<AgentRow>;
    /// The first `most` documents that are not served.
    fn refused(&self, most: usize) -> Vec<Refused>;
    /// Every source of agents in the order of precedence. It must not take long.
    fn feeds(&self) -> Vec<FeedRow>;
    /// Puts in force what the feed called `name` holds back; `None` if there is no such feed, and whether there was
    /// anything.
    fn confirm(&self, name: &str) -> Option<bool>;

    /// Registers a runtime of this machine, as its JSON says; how long that holds, and whether it is new.
    ///
    /// # Errors
    /// What is wrong with it, or `NotFound` where none may register.
    fn lease(&self, _name: &str, _wanted: &[u8]) -> Result<(Duration, bool), Fault> {
        Err(Fault::new(Code::NotFound, "Nothing registers here."))
    }

    /// Ends such a registration; whether there was one.
    fn release(&self, _name: &str) -> bool {
        false
    }

    /// A code with which one page is paired, and how long it holds; `None` where pages are not paired.
    fn pair(&self) -> Option<(String, Duration)> {
        None
    }
}

/// How the gateway is.
#[derive(Clone, Debug, Default)]
pub struct Health {
    /// Whether it is about to end and wants no new calls.
    pub draining: bool,
    /// How many agents it serves; `None` until the first catalogue is in force.
    pub agents: Option<usize>,
    /// How many documents it refused.
    pub refused: usize,
    /// Why the newest configuration was refused, while an older one is in force.
    pub config_refused: Option<String>,
    /// What cannot be read at present, such as a feed whose last good agents are served.
    pub troubles: Vec<String>,
}

impl Health {
    /// Why no calls should be sent here. A refused configuration is no reason: the last good one serves.
    pub fn reasons(&self) -> Vec<&'static str> {
        let mut reasons = Vec::new();
        if self.draining {
            reasons.push("draining");
        }
        if self.agents.is_none() {
            reasons.push("no catalogue yet");
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
    /// How the breaker of its own endpoint stands.
    breaker: &'static str,
    /// All its endpoints, where it has several.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    endpoints: Vec<EndpointRow>,
}

/// One of the endpoints of an agent.
#[derive(Clone, Debug, Serialize)]
struct EndpointRow {
    endpoint: String,
    breaker: &'static str,
}

impl AgentRow {
    /// The row of an agent that has `in_flight` calls.
    pub fn new(agent: &Agent, in_flight: u32) -> Self {
        let named = agent.operations.iter().filter(|operation| !operation.name.is_empty());
        Self {
            id: agent.id.to_string(),
            name: agent.name.clone(),
            version: agent.version.clone(),
            status: match agent.status {
                Status::Active => "active",
                Status::Inactive => "inactive",
                Status::Deprecated(_) => "deprecated",
            },
            authentication: match agent.authentication.kind {
                AuthKind::ApiKey => "api_key",
                AuthKind::Bearer => "oauth2_bearer",
                AuthKind::Mtls => "mtls",
                AuthKind::Open => "none",
            },
            endpoint: redact(&agent.endpoint.to_string()).into_owned(),
            operations: named.map(|operation| operation.name.to_string()).collect(),
            in_flight,
            breaker: "closed",
            endpoints: Vec::new(),
        }
    }

    /// The row with the agent's endpoints, its own first, and how the breaker of each stands.
    #[must_use]
    pub fn at<'a>(mut self, endpoints: impl Iterator<Item = (&'a str, &'static str)>) -> Self {
        let shown = |(endpoint, breaker)| EndpointRow { endpoint: redact(endpoint).into_owned(), breaker };
        let mut endpoints: Vec<EndpointRow> = endpoints.map(shown).collect();
        if let Some(own) = endpoints.first() {
            self.breaker = own.breaker;
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
pub struct FeedRow {
    name: String,
    kind: &'static str,
    agents: usize,
    /// Since it was last well.
    #[serde(skip_serializing_if = "Option::is_none")]
    age_seconds: Option<u64>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    stale: bool,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    from_last_known_good: bool,
    /// Agents that would go by a look that waits to be confirmed.
    #[serde(skip_serializing_if = "Option::is_none")]
    held: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    trouble: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    warning: Option<String>,
}

impl FeedRow {
    /// The row of a source.
    pub fn new(source: &SourceHealth) -> Self {
        let shown = |text: String| redact(&text).into_owned();
        Self {
            name: source.name.to_string(),
            kind: source.kind,
            agents: source.agents,
            age_seconds: source.age().map(|age| age.as_secs()),
            stale: source.stale,
            from_last_known_good: source.remembered,
            held: source.losing,
            trouble: source.trouble.clone().map(shown),
            warning: source.warning().map(shown),
        }
    }

    /// Whether there is anything that an operator should know.
    pub fn warns(&self) -> bool {
        self.warning.is_some()
    }
}

/// A document that is not served.
#[derive(Clone, Debug, Serialize)]
pub struct Refused {
    /// The file, or other part of a feed, in which it stands.
    pub source: String,
    /// Which document of that part, from 0.
    pub index: usize,
    /// Its id, where that could be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// Every reason.
    pub reasons: Vec<String>,
}

/// The `most` things with the lowest ids after `after`, in order. Goes through all once and keeps only those.
pub fn page<'a, T>(all: impl Iterator<Item = (&'a AgentId, T)>, after: Option<&str>, most: usize) -> Vec<T> {
    let mut found = BTreeMap::new();
    for (id, thing) in all.filter(|(id, _)| after.is_none_or(|after| id.as_str() > after)) {
        let full = found.len() >= most;
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
