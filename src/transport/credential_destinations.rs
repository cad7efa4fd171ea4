//! Where a credential of the gateway may be sent. The endpoint that it is sent to stands in a document, and documents
//! are written by publishers and remote sources, so each credential names its destinations.

use crate::{
    agent::{Agent, AgentSource, EndpointOrigin, OriginPattern},
    values::Glob,
};

/// Where a credential of the gateway may be sent; at least one of both.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, serde::Deserialize, serde::Serialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct CredentialDestinations {
    /// Servers that may receive the credential, whichever document names them: `https://*.example.com`,
    /// `mqtts://broker.example.com`; `*` for all.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub origins: Vec<OriginPattern>,
    /// Sources of agents by name, whose documents may send the credential to every endpoint that they name: `files`
    /// for all files and folders, `registry` for published agents.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub sources: Vec<Glob>,
}

impl CredentialDestinations {
    /// Returns the destinations of a credential that may be sent everywhere.
    pub fn everywhere() -> Self {
        Self { origins: "*".parse().into_iter().collect(), sources: Vec::new() }
    }

    /// Whether neither origins nor sources are named.
    pub(super) fn is_unset(&self) -> bool {
        self.origins.is_empty() && self.sources.is_empty()
    }

    /// Whether the endpoint of `agent` may receive the credential.
    pub fn contains(&self, agent: &Agent) -> bool {
        let origin = EndpointOrigin::from(&agent.endpoint);
        self.origins.iter().any(|pattern| pattern.matches(&origin))
            || self.sources.iter().any(|source| {
                source.matches(&agent.source.name) || (agent.source.is_operator() && source.matches(AgentSource::FILES))
            })
    }

    /// Returns the problem of destinations that name neither origins nor sources.
    pub(super) fn problem(&self, path: &str) -> Option<String> {
        self.is_unset().then(|| {
            format!(
                "{path}: is missing: name the servers (origins: [\"https://*.example.com\"]) or the sources of agents \
                 (sources: [files]) that may receive the credential"
            )
        })
    }
}
