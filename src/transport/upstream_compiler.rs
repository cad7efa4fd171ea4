//! Compiles an agent's record and its settings into an upstream set, when the record is read.

use super::{
    circuit_breaker::BreakerPolicy,
    circuit_breaker_registry::BreakerRegistry,
    config::TransportConfig,
    transport_kind::TransportBuilder,
    upstream_set::{UpstreamEndpoint, UpstreamSet},
};
use crate::agent::{AddressSyntax, Agent, AgentEndpoint, EndpointAccess, ServerAddress};
use http::uri::PathAndQuery;
use std::collections::BTreeSet;

/// The maximum number of additional endpoints of an agent.
const MAX_ADDITIONAL_ENDPOINTS: usize = 15;

/// Compiles the upstream sets of agents.
pub(super) struct UpstreamCompiler<'a> {
    pub(super) transports: &'a dyn TransportBuilder,
    pub(super) breakers: &'a BreakerRegistry,
    pub(super) settings: &'a TransportConfig,
}

impl UpstreamCompiler<'_> {
    /// Compiles the upstream set of `agent`. Reads the files and secrets that the settings name.
    ///
    /// # Errors
    /// Every reason why the agent cannot be called as configured, each prefixed with its field.
    pub(super) fn compile(&self, agent: &Agent) -> Result<UpstreamSet, Vec<String>> {
        let mut problems = Vec::new();
        let breaker_policy =
            BreakerPolicy::from_settings(&self.settings.circuit_breaker).map_err(|errors| problems.extend(errors)).ok();
        let mut at_addresses = self.compile_addresses(agent).into_iter();
        let first = at_addresses.next().unwrap_or_else(|| self.compile_endpoint(agent));
        let primary = first.map_err(|errors| problems.extend(errors)).ok();
        // The settings are the same at each address, and so are their problems.
        let mut additional: Vec<UpstreamEndpoint> = at_addresses.filter_map(Result::ok).collect();
        for endpoint in parse_additional_endpoints(self.settings, agent.id.as_str()).unwrap_or_else(|errors| {
            problems.extend(errors);
            Vec::new()
        }) {
            if endpoint == agent.endpoint {
                continue;
            }
            let with_address = |error: String| format!("additional_endpoints: {endpoint}: {error}");
            match self.compile_endpoint(&agent.with_endpoint(endpoint.clone())) {
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

    /// Compiles the endpoint at each address of the agent's server that its source knows, the preferred ones first.
    fn compile_addresses(&self, agent: &Agent) -> Vec<Result<UpstreamEndpoint, Vec<String>>> {
        let mut addresses = agent.addresses.to_vec();
        addresses.sort_by_key(|address| !address.is_preferred);
        let at_address = |server: ServerAddress| {
            let settings = TransportConfig { connect_address: Some(server.address), ..self.settings.clone() };
            let address = format!("{} at {}", agent.endpoint, server.address).into_boxed_str();
            let compiled = self.compile_with(agent, &settings, address)?;
            Ok(UpstreamEndpoint { is_preferred: server.is_preferred, ..compiled })
        };
        addresses.into_iter().map(at_address).collect()
    }

    fn compile_endpoint(&self, agent: &Agent) -> Result<UpstreamEndpoint, Vec<String>> {
        self.compile_with(agent, self.settings, agent.endpoint.to_string().into())
    }

    fn compile_with(
        &self,
        agent: &Agent,
        settings: &TransportConfig,
        address: Box<str>,
    ) -> Result<UpstreamEndpoint, Vec<String>> {
        Ok(UpstreamEndpoint {
            transport: self.transports.build_transport(agent, settings)?,
            breaker: self.breakers.get_or_create(&agent.id, &address),
            is_local: agent.endpoint.scheme().access() == EndpointAccess::ThisMachine,
            address,
            path: http_path(&agent.endpoint),
            is_preferred: true,
        })
    }
}

/// Returns the HTTP path of an endpoint; that of a name is known when it is resolved.
fn http_path(endpoint: &AgentEndpoint) -> Option<PathAndQuery> {
    match endpoint {
        AgentEndpoint::Url(url) => match url.scheme().syntax() {
            AddressSyntax::HttpUrl | AddressSyntax::WebSocketUrl => {
                Some(url.uri().path_and_query().cloned().unwrap_or_else(|| PathAndQuery::from_static("/")))
            }
            _ => None,
        },
        AgentEndpoint::Unix { path, .. } => path.parse().ok(),
        AgentEndpoint::AgentUri(_) | AgentEndpoint::Matrix(_) | AgentEndpoint::Local(_) => None,
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
