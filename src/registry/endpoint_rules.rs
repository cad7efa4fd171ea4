//! Endpoint rules: which endpoints the documents of a source may name. The operator's files may name every endpoint.
//! Publishers and remote sources may name public addresses, and what the operator lists for them; what another owner's
//! agent is reached at, and private addresses, must be listed.

use super::{PublishConfig, RemoteSourceConfig, SourceConfig, SourceKind};
use crate::{
    agent::{Agent, AgentEndpoint, DocumentWriter, EndpointAccess, EndpointOrigin, OriginPattern},
    values::Glob,
};
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
    /// Origins listed for any publisher. Which publisher may name which is decided when a document is published.
    published: Vec<OriginPattern>,
    /// Sockets that published agents may name.
    published_sockets: Vec<Glob>,
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
        let publishers = registry.iter().flat_map(|config| &config.publishers);
        Self {
            sources: remote.collect(),
            published: publishers.flat_map(|rule| rule.endpoints.iter().flatten()).cloned().collect(),
            published_sockets: registry.map(|config| config.allowed_sockets.clone()).unwrap_or_default(),
        }
    }

    /// Decides whether the document of `agent` may name its endpoint.
    ///
    /// # Errors
    /// Why it may not, for the writer and the operator.
    pub fn check(&self, agent: &Agent) -> Result<EndpointTrust, String> {
        let origin = EndpointOrigin::from(&agent.endpoint);
        match &agent.source.writer {
            DocumentWriter::Operator => Ok(EndpointTrust::Listed),
            DocumentWriter::Publisher(_) => {
                let is_socket = |socket: &str| self.published_sockets.iter().any(|allowed| allowed.matches(socket));
                let is_listed = self.published.iter().any(|pattern| pattern.matches(&origin))
                    || matches!(&agent.endpoint, AgentEndpoint::Unix { socket, .. } if is_socket(&socket.to_string_lossy()));
                if is_listed { Ok(EndpointTrust::Listed) } else { unlisted(&agent.endpoint, &agent.source.name) }
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
