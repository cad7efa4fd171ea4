//! Endpoint rules: which endpoints the documents of a source may name. The operator's files may name every endpoint.
//! Publishers and remote sources may name public addresses, and what the operator lists for them; what another owner's
//! agent is reached at, and private addresses, must be listed.

use super::{PublishConfig, RemoteSourceConfig, SourceConfig, SourceKind};
use crate::agent::{Agent, AgentEndpoint, DocumentWriter, EndpointAccess, EndpointOrigin, OriginPattern};
use std::collections::HashMap;

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
}

#[derive(Debug)]
struct SourceRule {
    listed: Option<Vec<OriginPattern>>,
    /// The broker of a source of kind mqtt, which its agents are reached at.
    broker: Option<EndpointOrigin>,
}

impl SourceRule {
    fn new(source: &RemoteSourceConfig) -> Self {
        // A topic makes the broker's URL an endpoint.
        let broker_endpoint = || format!("{}/t", source.url.trim_end_matches('/')).parse::<AgentEndpoint>().ok();
        let broker = if source.kind == SourceKind::Mqtt { broker_endpoint() } else { None };
        Self { listed: source.endpoints.clone(), broker: broker.as_ref().map(EndpointOrigin::from) }
    }
}

impl EndpointRules {
    /// Creates the rules of a configuration.
    pub fn new(sources: &[SourceConfig], registry: Option<&PublishConfig>) -> Self {
        let remote = sources.iter().filter_map(|source| match source {
            SourceConfig::Remote(remote) => Some((remote.effective_name(), SourceRule::new(remote))),
            SourceConfig::Files(_) => None,
        });
        Self { sources: remote.collect(), registry: registry.cloned() }
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
                    unlisted(&agent.endpoint, &agent.source.name)
                }
            }
            DocumentWriter::RemoteSource => {
                let rule = self.sources.get(&*agent.source.name);
                let listed = rule.and_then(|rule| rule.listed.as_deref());
                let is_broker = rule.is_some_and(|rule| rule.broker.as_ref() == Some(&origin));
                if is_broker || listed.is_some_and(|listed| listed.iter().any(|pattern| pattern.matches(&origin))) {
                    Ok(EndpointTrust::Listed)
                } else if listed.is_some() {
                    Err(format!(
                        "endpoint: is not among those that the source {} may name (an operator may add it to \
                         endpoints of the source)",
                        agent.source.name
                    ))
                } else {
                    unlisted(&agent.endpoint, &agent.source.name)
                }
            }
        }
    }
}

/// Returns the trust in an endpoint that is not listed: it must not use an account of the gateway.
fn unlisted(endpoint: &AgentEndpoint, source: &str) -> Result<EndpointTrust, String> {
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
}
