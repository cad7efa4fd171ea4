//! Compiles an agent's record and its settings into an upstream set, when the record is read. Circuit breakers
//! outlive the upstream sets that use them.

use super::{
    TransportConfig, UpstreamClient, agent_uri_transport,
    circuit_breaker::{BreakerPolicy, CircuitBreaker},
    upstream_set::{EndpointTransport, UpstreamEndpoint, UpstreamSet},
    websocket,
};
use crate::agent::{Agent, AgentEndpoint};
use std::{
    collections::{BTreeSet, HashMap},
    sync::{Arc, Weak},
};

/// The maximum number of additional endpoints of an agent.
const MAX_ADDITIONAL_ENDPOINTS: usize = 15;

/// The circuit breakers of all endpoints, by agent and address. Entries that no upstream set uses are removed when the
/// map has twice the size it had after the last cleanup.
#[derive(Debug, Default)]
pub(super) struct BreakerRegistry {
    pub(super) breakers: HashMap<Box<str>, Weak<CircuitBreaker>>,
    cleanup_at: usize,
}

impl UpstreamClient {
    /// Compiles the upstream set of `agent`. Reads the files and secrets that `settings` name.
    ///
    /// # Errors
    /// Every reason why the agent cannot be called as configured, each prefixed with its field.
    pub fn compile_upstream_set(&self, agent: &Agent, settings: &TransportConfig) -> Result<UpstreamSet, Vec<String>> {
        let mut problems = Vec::new();
        let breaker_policy =
            BreakerPolicy::from_settings(&settings.circuit_breaker).map_err(|errors| problems.extend(errors)).ok();
        let primary = self.compile_endpoint(agent, settings).map_err(|errors| problems.extend(errors)).ok();
        let mut additional = Vec::new();
        for endpoint in parse_additional_endpoints(settings, agent.id.as_str()).unwrap_or_else(|errors| {
            problems.extend(errors);
            Vec::new()
        }) {
            if endpoint == agent.endpoint {
                continue;
            }
            let with_address = |error: String| format!("additional_endpoints: {endpoint}: {error}");
            match self.compile_endpoint(&agent.with_endpoint(endpoint.clone()), settings) {
                Ok(compiled) => additional.push(compiled),
                Err(errors) => problems.extend(errors.into_iter().map(with_address)),
            }
        }
        match (primary, breaker_policy) {
            (Some(primary), Some(policy)) if problems.is_empty() => {
                Ok(UpstreamSet::new(&agent.id, primary, additional, policy))
            }
            _ => Err(problems),
        }
    }

    fn compile_endpoint(&self, agent: &Agent, settings: &TransportConfig) -> Result<UpstreamEndpoint, Vec<String>> {
        let address: Box<str> = agent.endpoint.to_string().into();
        Ok(UpstreamEndpoint {
            transport: self.build_transport(agent, settings)?,
            breaker: self.get_or_create_breaker(agent, &address),
            address,
        })
    }

    /// Builds the transport to `agent`'s primary endpoint.
    pub(super) fn build_transport(
        &self,
        agent: &Agent,
        settings: &TransportConfig,
    ) -> Result<EndpointTransport, Vec<String>> {
        match &agent.endpoint {
            AgentEndpoint::Http(_) | AgentEndpoint::Unix { .. } => {
                self.http.build_target(agent, settings).map(EndpointTransport::Http)
            }
            AgentEndpoint::WebSocket(_) => {
                websocket::build_transport(&self.http, agent, settings).map(EndpointTransport::Other)
            }
            AgentEndpoint::Mqtt(uri) => self.mqtt.build_transport(uri, agent, settings).map(EndpointTransport::Other),
            AgentEndpoint::Matrix(address) => {
                self.matrix.build_transport(address, settings).map(EndpointTransport::Other)
            }
            AgentEndpoint::Local(name) => self.local.build_transport(name, settings).map(EndpointTransport::Other),
            AgentEndpoint::AgentUri(uri) => {
                let problems = self.config_problems(settings);
                let build = || {
                    EndpointTransport::Other(agent_uri_transport::AgentUriTransport::new(uri, agent, settings, self))
                };
                if problems.is_empty() { Ok(build()) } else { Err(problems) }
            }
        }
    }

    /// Returns the circuit breaker of one agent's endpoint. The key contains the agent, because another agent at the
    /// same address has other timeouts.
    fn get_or_create_breaker(&self, agent: &Agent, address: &str) -> Arc<CircuitBreaker> {
        let mut breakers = self.breakers.lock();
        let key = format!("{} {address}", agent.id).into_boxed_str();
        if let Some(breaker) = breakers.breakers.get(&key).and_then(Weak::upgrade) {
            return breaker;
        }
        if breakers.breakers.len() >= breakers.cleanup_at {
            breakers.breakers.retain(|_, breaker| breaker.strong_count() > 0);
            breakers.cleanup_at = (breakers.breakers.len() * 2).max(64);
        }
        let breaker = Arc::new(CircuitBreaker::new());
        breakers.breakers.insert(key, Arc::downgrade(&breaker));
        breaker
    }
}

/// Parses the additional endpoints that `settings` name for the agent `id`.
pub(super) fn parse_additional_endpoints(
    settings: &TransportConfig,
    id: &str,
) -> Result<Vec<AgentEndpoint>, Vec<String>> {
    let templates = settings.additional_endpoints.as_deref().unwrap_or_default();
    if templates.len() > MAX_ADDITIONAL_ENDPOINTS {
        let count = templates.len();
        return Err(vec![format!("additional_endpoints: has {count} entries (at most {MAX_ADDITIONAL_ENDPOINTS})")]);
    }
    let (mut seen, mut endpoints, mut problems) = (BTreeSet::new(), Vec::new(), Vec::new());
    for (index, template) in templates.iter().enumerate() {
        match template.replace("{id}", id).parse::<AgentEndpoint>() {
            Ok(endpoint) if seen.insert(endpoint.to_string()) => endpoints.push(endpoint),
            Ok(_) => problems.push(format!("additional_endpoints[{index}]: is a duplicate (list each endpoint once)")),
            Err(error) => problems.push(format!("additional_endpoints[{index}]: {error}")),
        }
    }
    if problems.is_empty() { Ok(endpoints) } else { Err(problems) }
}
