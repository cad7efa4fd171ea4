//! The data of the admin pages, and the trait through which the gateway provides it.

use crate::{
    agent::{Agent, AgentId, AgentStatus},
    audit::AuditLog,
    auth::{Caller, NewPairingCode, RevocationList, TokenRevocationRequest},
    fault::{Fault, FaultCode},
    registry::SourceHealth,
    telemetry::{Outage, redact, redact_agent_text},
};
use bytes::Bytes;
use futures_util::{FutureExt as _, future::BoxFuture};
use http::{HeaderMap, HeaderName};
use serde::Serialize;
use serde_json::Value;
use std::{collections::BTreeMap, net::IpAddr, sync::Arc, time::Duration};

/// The gateway's state and the actions of operators, as the admin listener needs them.
pub trait AdminState: Send + Sync + 'static {
    /// Returns the health of the gateway.
    fn health(&self) -> GatewayHealth;
    /// Returns the first `limit` agents after the id `after`, ordered by id; [`select_page`] selects them.
    fn list_agents(&self, after: Option<&str>, limit: usize) -> Vec<AgentRow>;
    /// Returns the first `limit` documents that were rejected.
    fn list_rejected_documents(&self, limit: usize) -> Vec<RejectedDocument>;
    /// Returns every source of agents in the order of precedence. Must return quickly, because readiness probes call
    /// it.
    fn list_sources(&self) -> Vec<SourceRow>;
    /// Confirms the agent loss that the loss guard holds back for the source `name`. Returns whether there was one;
    /// `None` if there is no such source.
    fn confirm_agent_loss(&self, name: &str) -> Option<bool>;
    /// Polls the source `name` at once, whatever pause its failures or its cache lifetime caused. Returns whether there
    /// is such a source.
    fn refresh_source(&self, name: &str) -> bool;

    /// Registers a runtime of this machine from the JSON text `_registration`.
    ///
    /// # Errors
    /// The registration is invalid, or `NotFound` if registration is disabled.
    fn register_runtime(&self, _name: &str, _registration: &[u8]) -> Result<RuntimeRegistration, Fault> {
        Err(Fault::new(FaultCode::NotFound, "Registration is disabled"))
    }

    /// Removes a registration; returns whether there was one.
    fn remove_registration(&self, _name: &str) -> bool {
        false
    }

    /// Explains what would become of the call that the JSON text describes.
    ///
    /// # Errors
    /// The text describes no call that can be explained.
    fn explain(&self, _body: Bytes) -> BoxFuture<'static, Result<Value, Fault>> {
        async { Err(Fault::new(FaultCode::NotFound, "Calls are not explained here")) }.boxed()
    }

    /// Returns the recent refusals of calls with this id, the newest first.
    fn find_decisions(&self, _request_id: &str) -> Vec<Value> {
        Vec::new()
    }

    /// Returns the recent refusals and failures of calls of this agent, the newest first.
    fn find_decisions_of_agent(&self, _agent: &str) -> Vec<Value> {
        Vec::new()
    }

    /// Returns the audit log; `None` records no changes.
    fn audit_log(&self) -> Option<Arc<AuditLog>> {
        None
    }

    /// Returns the revoked tokens; `None` if there are no tokens here.
    fn revocations(&self) -> Option<Arc<RevocationList>> {
        None
    }

    /// Checks that the tokens of a revocation can exist.
    ///
    /// # Errors
    /// The configuration in force accepts no such token.
    fn require_possible_revocation(&self, _request: &TokenRevocationRequest) -> Result<(), String> {
        Ok(())
    }

    /// Authenticates the credential in `headers`, as that of a call.
    fn authenticate(&self, _headers: HeaderMap, _address: IpAddr) -> BoxFuture<'static, Result<Arc<Caller>, Fault>> {
        async { Err(Fault::new(FaultCode::Unauthorized, "There are no callers here")) }.boxed()
    }

    /// Returns the header fields that carry credentials.
    fn credential_headers(&self) -> Vec<HeaderName> {
        Vec::new()
    }

    /// Returns the header that carries an API key, if keys are accepted.
    fn api_key_header(&self) -> Option<HeaderName> {
        None
    }

    /// Creates a code that pairs one page.
    fn create_pairing_code(&self) -> BoxFuture<'static, Result<NewPairingCode, Fault>> {
        async { Err(Fault::new(FaultCode::NotFound, "Pages are not paired here")) }.boxed()
    }
}

/// The registration of a runtime of this machine.
#[derive(Clone, Copy, Debug)]
pub struct RuntimeRegistration {
    /// How long the registration is valid.
    pub ttl: Duration,
    /// Whether there was none before.
    pub is_new: bool,
    /// Whether there was none before, or one with another address.
    pub has_new_address: bool,
}

/// The health of the gateway.
#[derive(Clone, Debug, Default)]
pub struct GatewayHealth {
    /// Whether the gateway is shutting down and accepts no new calls.
    pub draining: bool,
    /// Number of agents served; `None` until the first snapshot was published.
    pub agents: Option<usize>,
    /// The required sources that were never read, while the gateway waits for them.
    pub awaited_sources: Vec<String>,
    /// Number of rejected documents.
    pub rejected_documents: usize,
    /// Problems of the last configuration, if a reload rejected it and the previous configuration is in force.
    pub config_error: Option<String>,
    /// Files and sources that cannot be read at the moment, with reasons.
    pub problems: Vec<String>,
    /// Services that cannot be used at the moment; the gateway is ready without them.
    pub outages: Vec<Outage>,
}

impl GatewayHealth {
    /// Returns the codes of what operators should look at, each once. They name nothing, because a probe shows them to
    /// clients without a role.
    pub fn warning_codes(&self) -> Vec<&'static str> {
        let mut codes: Vec<&str> = self.outages.iter().map(Outage::code).collect();
        let conditions = [
            (self.config_error.is_some(), "config_rejected"),
            (self.rejected_documents > 0, "documents_rejected"),
            (!self.problems.is_empty(), "sources_unreadable"),
        ];
        codes.extend(conditions.into_iter().filter(|(applies, _)| *applies).map(|(_, code)| code));
        codes.sort_unstable();
        codes.dedup();
        codes
    }

    /// Returns the codes of why the gateway is not ready for calls, as [`GatewayHealth::warning_codes`] does.
    pub fn not_ready_codes(&self) -> Vec<&'static str> {
        let conditions = [
            (self.draining, "draining"),
            (self.agents.is_none(), "agents_not_loaded"),
            (!self.awaited_sources.is_empty(), "sources_not_read"),
        ];
        conditions.into_iter().filter(|(applies, _)| *applies).map(|(_, code)| code).collect()
    }

    /// Returns why the gateway is not ready for calls. A rejected configuration is no reason, because the previous
    /// configuration is in force.
    pub fn not_ready_reasons(&self) -> Vec<String> {
        let mut reasons = Vec::new();
        if self.draining {
            reasons.push("draining".to_owned());
        }
        if self.agents.is_none() {
            reasons.push("no agents loaded yet".to_owned());
        }
        reasons.extend(self.awaited_sources.iter().map(|name| format!("source {name} was not read yet")));
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
    /// State of the circuit breaker of the first endpoint.
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
        let named_operations = agent.operations.iter().filter(|operation| !operation.name.is_empty());
        Self {
            id: agent.id.to_string(),
            name: redact_agent_text(&agent.name).into_owned(),
            version: agent.version.as_deref().map(|version| redact_agent_text(version).into_owned()),
            status: match agent.status {
                AgentStatus::Active => "active",
                AgentStatus::Inactive => "inactive",
                AgentStatus::Deprecated(_) => "deprecated",
            },
            authentication: agent.authentication.method.document_type(),
            endpoint: redact(&agent.endpoint.to_string()).into_owned(),
            operations: named_operations.map(|operation| operation.name.to_string()).collect(),
            in_flight,
            circuit_breaker: "closed",
            endpoints: Vec::new(),
        }
    }

    /// Adds the agent's endpoints, the one of its document first, each with the state of its circuit breaker.
    #[must_use]
    pub fn with_endpoints<'a>(mut self, endpoints: impl Iterator<Item = (&'a str, &'static str)>) -> Self {
        let row =
            |(endpoint, circuit_breaker)| EndpointRow { endpoint: redact(endpoint).into_owned(), circuit_breaker };
        let mut endpoints: Vec<EndpointRow> = endpoints.map(row).collect();
        if let Some(first) = endpoints.first() {
            self.circuit_breaker = first.circuit_breaker;
        }
        if endpoints.len() < 2 {
            endpoints.clear();
        }
        Self { endpoints, ..self }
    }

    /// Returns the agent's id.
    pub fn id(&self) -> &str {
        &self.id
    }
}

/// One source of agents.
#[derive(Clone, Debug, Serialize)]
pub struct SourceRow {
    /// The name.
    pub name: String,
    /// The protocol.
    pub kind: &'static str,
    /// Number of agents that can be called.
    pub agents: usize,
    /// Whether the gateway is not ready before the source was read once.
    pub required: bool,
    /// Whether the source was read once since the start, or from disk.
    pub read: bool,
    /// Seconds since the last successful poll.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub age_seconds: Option<u64>,
    /// Whether the last successful poll is too long ago, so that the source's agents are not served.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub stale: bool,
    /// Whether the agents were read from disk, and the source was not polled successfully since the start.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub from_last_known_good: bool,
    /// Number of agents that a poll result would remove while the loss guard holds it back.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub withheld: Option<usize>,
    /// The error of the last poll, redacted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// What operators should know, redacted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub warning: Option<String>,
    /// The first parts of the source, such as nested catalogues, that cannot be read, each with the reason, redacted.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unreadable: Vec<String>,
    /// Number of documents that are served and have findings.
    #[serde(skip_serializing_if = "is_zero")]
    pub documents_with_findings: usize,
    /// The findings of the first of them, each with the agent's id, redacted.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub document_findings: Vec<String>,
    /// Number of documents of what the gateway does not call, such as an MCP server without a rule for its API.
    #[serde(skip_serializing_if = "is_zero")]
    pub unsupported_documents: usize,
    /// The first of them, each with the reason, redacted.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unsupported: Vec<String>,
}

/// Returns whether there is nothing to serialize.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(count: &usize) -> bool {
    *count == 0
}

impl SourceRow {
    /// Creates the row of a source.
    pub fn new(source: &SourceHealth) -> Self {
        let redacted = |text: String| redact(&text).into_owned();
        let all_redacted = |texts: &[String]| texts.iter().map(|text| redact(text).into_owned()).collect();
        let (findings, unsupported) = (&source.document_warnings, &source.unsupported_documents);
        Self {
            name: source.name.to_string(),
            kind: source.kind,
            agents: source.agents,
            required: source.is_required,
            read: source.is_read,
            age_seconds: source.age().map(|age| age.as_secs()),
            stale: source.stale,
            from_last_known_good: source.from_disk,
            withheld: source.withheld_loss,
            error: source.error.clone().map(redacted),
            warning: source.warning().map(redacted),
            unreadable: all_redacted(&source.unreadable_parts),
            documents_with_findings: findings.documents,
            document_findings: all_redacted(&findings.first),
            unsupported_documents: unsupported.documents,
            unsupported: all_redacted(&unsupported.first),
        }
    }

    /// Returns whether the source has a warning for operators.
    pub fn has_warning(&self) -> bool {
        self.warning.is_some()
    }
}

/// A rejected document.
#[derive(Clone, Debug, Serialize)]
pub struct RejectedDocument {
    /// The file, or other part of a source, that contains the document.
    pub source: String,
    /// Index of the document in that part, from 0.
    pub index: usize,
    /// The document's id, if it could be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// Every reason for the rejection.
    pub reasons: Vec<String>,
}

/// Returns the `limit` items with the lowest ids after `after`, in order. Iterates once, and keeps only those items.
pub fn select_page<'a, T>(items: impl Iterator<Item = (&'a AgentId, T)>, after: Option<&str>, limit: usize) -> Vec<T> {
    let mut page = BTreeMap::new();
    for (id, item) in items.filter(|(id, _)| after.is_none_or(|after| id.as_str() > after)) {
        let is_full = page.len() >= limit;
        if is_full && page.last_key_value().is_none_or(|(last_id, _)| id >= *last_id) {
            continue;
        }
        page.insert(id, item);
        if is_full {
            page.pop_last();
        }
    }
    page.into_values().collect()
}
