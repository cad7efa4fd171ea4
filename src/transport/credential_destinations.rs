//! Where a credential of the gateway may be sent. The endpoint that it is sent to stands in a document, and documents
//! are written by publishers and remote sources, so each credential names its destinations.

use super::config::TransportConfig;
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

    fn include(&self, agent: &Agent) -> bool {
        let origin = EndpointOrigin::from(&agent.endpoint);
        self.origins.iter().any(|pattern| pattern.matches(&origin))
            || self.sources.iter().any(|source| {
                source.matches(&agent.source.name) || (agent.source.is_operator() && source.matches(AgentSource::FILES))
            })
    }

    /// Returns the problem of destinations that name neither origins nor sources.
    fn problem(&self, path: &str) -> Option<String> {
        (self.origins.is_empty() && self.sources.is_empty()).then(|| {
            format!(
                "{path}: is missing: name the servers (origins: [\"https://*.example.com\"]) or the sources of agents \
                 (sources: [files]) that may receive the credential"
            )
        })
    }
}

/// Returns the problems of credentials without destinations.
pub(super) fn destination_problems(settings: &TransportConfig) -> Vec<String> {
    let mut problems = Vec::new();
    if let Some(credential) = &settings.credential {
        problems.extend(credential.destinations.problem("credential.destinations"));
    }
    if settings.tls.certificate.is_some() {
        problems.extend(settings.tls.destinations.problem("tls.destinations"));
    }
    if settings.mqtt.username.is_some() {
        problems.extend(settings.mqtt.destinations.problem("mqtt.destinations"));
    }
    if let Some(matrix) = settings.matrix.as_ref().filter(|matrix| matrix.access_token.is_some()) {
        problems.extend(matrix.destinations.problem("matrix.destinations"));
    }
    problems
}

/// Returns the settings for calls to the endpoint of `agent`, without the credentials that may not be sent there.
pub(super) fn settings_for_endpoint(settings: &TransportConfig, agent: &Agent) -> TransportConfig {
    let mut settings = settings.clone();
    settings.credential = settings.credential.filter(|credential| credential.destinations.include(agent));
    if !settings.tls.destinations.include(agent) {
        (settings.tls.certificate, settings.tls.key) = (None, None);
    }
    if !settings.mqtt.destinations.include(agent) {
        (settings.mqtt.username, settings.mqtt.password) = (None, None);
    }
    settings.matrix = settings.matrix.filter(|matrix| matrix.destinations.include(agent));
    settings
}

/// Returns the settings for an `agent://` name, which [`settings_for_endpoint`] narrows once the name is resolved. The
/// author of a remote document may let a name of their own resolve to any server, so that only names that the operator
/// wrote lead to a server with a credential.
pub(super) fn settings_for_name(settings: &TransportConfig, agent: &Agent) -> TransportConfig {
    if agent.source.is_operator() {
        return settings.clone();
    }
    let mut settings = settings.clone();
    (settings.credential, settings.matrix) = (None, None);
    (settings.tls.certificate, settings.tls.key) = (None, None);
    (settings.mqtt.username, settings.mqtt.password) = (None, None);
    settings
}
