//! Endpoint rules: which endpoints the documents of a source may name. The operator's files may name every endpoint.
//! Publishers and remote sources may name public addresses, and what the operator lists for them; what another owner's
//! agent is reached at, and private addresses, must be listed.

use super::{PublishConfig, RemoteSourceConfig, SourceConfig, SourceKind};
use crate::agent::{Agent, AgentEndpoint, AgentSource, DocumentWriter, EndpointAccess, EndpointOrigin, OriginPattern};
use std::{collections::HashMap, sync::Arc};

/// Why a document is refused whose endpoint is at a server of another owner's agent: it would be called with the
/// gateway's credential for that server, past the grants for the agent there.
pub(super) const SERVER_OF_OTHER_OWNER: &str =
    "is at the server of another owner's agent (an operator may list it in endpoints of the publisher or source)";

/// Whether the operator named an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndpointTrust {
    /// The operator wrote the document, or listed the origin for its writer.
    Listed,
    /// Only the writer of the document named the endpoint: it must be at a public address, and at a server that no
    /// other owner's agent has.
    Unlisted,
}

/// The endpoints that the documents of each source may name.
#[derive(Debug, Default)]
pub struct EndpointRules {
    /// By the name of the source.
    sources: HashMap<String, SourceRule>,
    /// The built-in registry, with the lists of its publishers.
    registry: Option<PublishConfig>,
    on_demand_servers: OnDemandServers,
}

/// The servers of sources that are queried on demand. The catalogue learns only from calls which servers their agents
/// are at, so that every server in the list of such a source belongs to it.
#[derive(Clone, Debug, Default)]
pub struct OnDemandServers(Arc<[(Arc<AgentSource>, Vec<OriginPattern>)]>);

impl OnDemandServers {
    /// Returns the source that a server belongs to.
    pub fn owner(&self, server: &EndpointOrigin) -> Option<&Arc<AgentSource>> {
        self.0
            .iter()
            .find(|(_, listed)| listed.iter().any(|pattern| pattern.matches_server(server)))
            .map(|(source, _)| source)
    }
}

#[derive(Debug)]
struct SourceRule {
    listed: Option<Vec<OriginPattern>>,
    /// The broker of a source of kind mqtt, which its agents are reached at.
    broker: Option<EndpointOrigin>,
    /// Whether the source is a cluster, whose agents are at their own Services.
    is_cluster: bool,
}

impl SourceRule {
    fn new(source: &RemoteSourceConfig) -> Self {
        // A topic makes the broker's URL an endpoint.
        let broker_endpoint = || format!("{}/t", source.url.trim_end_matches('/')).parse::<AgentEndpoint>().ok();
        let broker = if source.kind == SourceKind::Mqtt { broker_endpoint() } else { None };
        Self {
            listed: source.endpoints.clone(),
            broker: broker.as_ref().map(EndpointOrigin::from),
            is_cluster: source.kind == SourceKind::Kubernetes,
        }
    }
}

impl EndpointRules {
    /// Creates the rules of a configuration.
    pub fn new(sources: &[SourceConfig], registry: Option<&PublishConfig>) -> Self {
        let on_demand = remote_sources(sources).filter(|remote| remote.on_demand).filter_map(|remote| {
            let listed = remote.endpoints.clone()?;
            Some((Arc::new(remote.agent_source()), listed))
        });
        let rules = remote_sources(sources).map(|remote| (remote.effective_name(), SourceRule::new(remote)));
        Self {
            on_demand_servers: OnDemandServers(on_demand.collect()),
            sources: rules.collect(),
            registry: registry.cloned(),
        }
    }

    /// Returns every problem of the lists, by its path in the section `agents`.
    pub fn problems(sources: &[SourceConfig], registry: Option<&PublishConfig>) -> Vec<String> {
        let names_any_server = |remote: &RemoteSourceConfig| remote.endpoints.is_none();
        let writers = usize::from(registry.is_some()) + remote_sources(sources).filter(|r| names_any_server(r)).count();
        let unlisted = sources.iter().enumerate().filter_map(|(at, source)| match source {
            SourceConfig::Remote(remote) if remote.on_demand && names_any_server(remote) && writers > 1 => Some(at),
            _ => None,
        });
        let hint = "is required where on_demand is true and other sources or publishers may name every server: until an \
                    agent is called, nothing else shows that its server is not theirs";
        unlisted.map(|at| format!("sources[{at}].endpoints: {hint}")).collect()
    }

    /// Returns the servers of sources that are queried on demand.
    pub fn on_demand_servers(&self) -> &OnDemandServers {
        &self.on_demand_servers
    }

    /// Decides whether the document of `agent` may name its endpoint.
    ///
    /// # Errors
    /// Why it may not, for the writer and the operator.
    pub fn check(&self, agent: &Agent) -> Result<EndpointTrust, String> {
        let origin = EndpointOrigin::from(&agent.endpoint);
        match &agent.source.writer {
            DocumentWriter::Operator => Ok(EndpointTrust::Listed),
            DocumentWriter::Publisher(owner) => {
                let is_listed = |config: &PublishConfig| {
                    config.allows_socket_of(&agent.endpoint) || config.lists_endpoint_of(owner, &origin)
                };
                if self.registry.as_ref().is_some_and(is_listed) {
                    Ok(EndpointTrust::Listed)
                } else {
                    self.check_unlisted(agent, &origin)
                }
            }
            DocumentWriter::RemoteSource => {
                let rule = self.sources.get(&*agent.source.name);
                let listed = rule.and_then(|rule| rule.listed.as_deref());
                let is_broker = rule.is_some_and(|rule| rule.broker.as_ref() == Some(&origin));
                let is_service = rule.is_some_and(|rule| rule.is_cluster) && is_service_name(&agent.endpoint);
                if is_broker
                    || is_service
                    || listed.is_some_and(|listed| listed.iter().any(|pattern| pattern.matches(&origin)))
                {
                    Ok(EndpointTrust::Listed)
                } else if listed.is_some() {
                    Err(format!(
                        "endpoint: is not among those that the source {} may name (an operator may add it to \
                         endpoints of the source)",
                        agent.source.name
                    ))
                } else {
                    self.check_unlisted(agent, &origin)
                }
            }
        }
    }

    fn check_unlisted(&self, agent: &Agent, origin: &EndpointOrigin) -> Result<EndpointTrust, String> {
        if self.on_demand_servers.owner(origin).is_some_and(|owner| **owner != *agent.source) {
            return Err(format!("endpoint: {SERVER_OF_OTHER_OWNER}"));
        }
        check_access(&agent.endpoint, &agent.source.name)
    }
}

/// Returns whether an endpoint is at the name of a Service, which the feed gives every agent of a cluster.
fn is_service_name(endpoint: &AgentEndpoint) -> bool {
    match endpoint {
        AgentEndpoint::Url(url) => url.uri().host().is_some_and(|host| host.ends_with(".svc")),
        _ => false,
    }
}

fn remote_sources(sources: &[SourceConfig]) -> impl Iterator<Item = &RemoteSourceConfig> {
    sources.iter().filter_map(|source| match source {
        SourceConfig::Remote(remote) => Some(&**remote),
        SourceConfig::Files(_) => None,
    })
}

/// Returns the trust in an endpoint that is not listed: it must not use an account of the gateway.
fn check_access(endpoint: &AgentEndpoint, source: &str) -> Result<EndpointTrust, String> {
    match endpoint.scheme().access() {
        EndpointAccess::Network | EndpointAccess::Resolution => Ok(EndpointTrust::Unlisted),
        // `network.allowed_sockets` decides on sockets.
        EndpointAccess::ThisMachine if matches!(endpoint, AgentEndpoint::Unix { .. }) => Ok(EndpointTrust::Unlisted),
        EndpointAccess::MessageBroker | EndpointAccess::GatewayAccount | EndpointAccess::ThisMachine => Err(format!(
            "endpoint: uses an account or a socket of the gateway, which documents of {source} may not (an operator may \
             list it in endpoints)"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::AgentSource;
    use serde_json::json;
    use std::sync::Arc;

    #[test]
    fn r41_a_server_that_is_listed_for_one_publisher_is_not_listed_for_another() {
        let registry: PublishConfig = serde_json::from_value(json!({"publishers": [
            {"callers": ["key:a", "oauth:corp/app"]},
            {"callers": ["key:b"], "endpoints": ["https://b.example"]},
            {"callers": ["oauth:corp/app"], "endpoints": ["https://app.example"]},
            {"groups": ["team"], "endpoints": ["https://team.example"]},
        ]}))
        .unwrap();
        let rules = EndpointRules::new(&[], Some(&registry));
        for (publisher, host, expected) in [
            ("key:b", "b.example", EndpointTrust::Listed),
            ("oauth:corp/app|sub=alice", "app.example", EndpointTrust::Listed),
            ("key:member", "team.example", EndpointTrust::Listed),
            ("key:a", "b.example", EndpointTrust::Unlisted),
            ("key:a", "team.example", EndpointTrust::Unlisted),
            ("key:member", "b.example", EndpointTrust::Unlisted),
            ("oauth:corp/app2|sub=alice", "app.example", EndpointTrust::Unlisted),
            ("", "b.example", EndpointTrust::Unlisted),
        ] {
            let document = json!({"id": "x", "name": "x", "endpoint": format!("https://{host}/x")});
            let writer = DocumentWriter::Publisher(publisher.into());
            let source = AgentSource { name: "registry".into(), writer };
            let agent = Agent::from_document(&document, [0; 32]).unwrap().with_source(Arc::new(source));
            assert_eq!(rules.check(&agent), Ok(expected), "{publisher} {host}");
        }
    }

    #[test]
    fn r41_a_server_that_is_listed_for_a_pattern_of_callers_is_not_listed_for_callers_without_a_credential() {
        let listed_for = |callers: &str| {
            let rule = json!({"callers": [callers], "endpoints": ["https://listed.example"]});
            serde_json::from_value::<PublishConfig>(json!({"publishers": [rule]})).unwrap()
        };
        let endpoint: AgentEndpoint = "https://listed.example/x".parse().unwrap();
        let origin = EndpointOrigin::from(&endpoint);
        for (callers, owner, expected) in [
            ("*", "key:a", true),
            ("*", "anonymous", false),
            ("a*", "anonymous", false),
            ("anonymous", "anonymous", true),
        ] {
            assert_eq!(listed_for(callers).lists_endpoint_of(owner, &origin), expected, "{callers} {owner}");
        }
    }
}
