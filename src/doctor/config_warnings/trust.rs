//! Warnings about what documents and callers may make the gateway do: which addresses it connects to, and where its
//! credentials go.

use super::{config_walk::ConfigWalk, config_warning::UnlocatedWarning};
use crate::{
    agent::OriginPattern,
    auth::IssuerConfig,
    config::GatewayConfig,
    doctor::finding_codes::FindingCode,
    net::AddressRange,
    registry::SourceConfig,
    transport::TransportConfig,
    values::{host_without_port, is_loopback_host},
};

pub(super) fn trust_warnings(config: &GatewayConfig, walk: &ConfigWalk) -> Vec<UnlocatedWarning> {
    let mut warnings = Vec::new();
    for (at, range) in config.network.allowed_addresses.iter().enumerate() {
        if range.contains_metadata_service() && !range.is_one_address() {
            warnings.push(UnlocatedWarning::new(
                FindingCode::MetadataReachable,
                format!(
                    "network.allowed_addresses[{at}]: {range} includes the cloud's metadata service, which hands out \
                 credentials, and so agents' documents may name it (list the networks of your agents)"
                ),
            ));
        }
    }
    let callbacks =
        config.tasks.iter().flat_map(|tasks| &tasks.callbacks).flat_map(|section| &section.allowed_addresses);
    warnings.extend(caller_address_warnings("tasks.callbacks.allowed_addresses", "webhooks", callbacks));
    let names = config.resolver.allowed_addresses.iter();
    warnings.extend(caller_address_warnings("resolver.allowed_addresses", "names", names));
    warnings.extend(publisher_warnings(config));
    warnings.extend(credential_warnings(config, walk));
    warnings.extend(plaintext_key_warning(config));
    warnings
}

/// Callers choose these addresses: a whole network lets them reach servers that the operator did not think of.
fn caller_address_warnings<'a>(
    path: &str,
    chosen: &str,
    ranges: impl Iterator<Item = &'a AddressRange>,
) -> Vec<UnlocatedWarning> {
    let wide = ranges.enumerate().filter(|(_, range)| !range.is_one_address() && !range.has_port());
    let warning = |(at, range): (usize, &AddressRange)| {
        UnlocatedWarning::new(
            FindingCode::CallersChooseServers,
            format!(
                "{path}[{at}]: callers choose the {chosen}, and so make the gateway send requests to every server in {range} \
             (list single servers, or a port: 10.0.0.7, 10.0.0.0/24:443)"
            ),
        )
    };
    wide.map(warning).collect()
}

fn publisher_warnings(config: &GatewayConfig) -> Vec<UnlocatedWarning> {
    let is_unrestricted = |endpoints: &Option<Vec<OriginPattern>>| {
        endpoints.as_ref().is_some_and(|endpoints| endpoints.iter().any(OriginPattern::is_unrestricted))
    };
    let publishers = config.registry.iter().flat_map(|registry| registry.publishers.iter().enumerate());
    let mut unrestricted: Vec<String> = publishers
        .clone()
        .filter(|(_, publisher)| is_unrestricted(&publisher.endpoints))
        .map(|(at, _)| format!("registry.publishers[{at}].endpoints"))
        .collect();
    for (at, source) in config.agents.sources.iter().enumerate() {
        if let SourceConfig::Remote(remote) = source
            && is_unrestricted(&remote.endpoints)
        {
            unrestricted.push(format!("agents.sources[{at}].endpoints"));
        }
    }
    let mut warnings: Vec<UnlocatedWarning> = unrestricted
        .into_iter()
        .map(|path| {
            UnlocatedWarning::new(FindingCode::EveryServer, format!(
                "{path}: documents may name every server, also in private networks and those of other owners' agents \
                 (list the servers, or remove the setting for public servers of no other owner)"
            ))
        })
        .collect();
    for (at, publisher) in publishers {
        if publisher.any_owner && publisher.callers.iter().any(|caller| caller.as_str() == "*") {
            warnings.push(UnlocatedWarning::new(FindingCode::EveryPublisher, format!(
                "registry.publishers[{at}].any_owner: every caller with a credential may replace every published agent \
                 (name the callers)"
            )));
        }
    }
    warnings
}

fn credential_warnings(config: &GatewayConfig, walk: &ConfigWalk) -> Vec<UnlocatedWarning> {
    let has_other_writers = config.registry.is_some()
        || config.agents.sources.iter().any(|source| matches!(source, SourceConfig::Remote(_)));
    let everywhere = walk.unrestricted_credentials.iter().filter(|_| has_other_writers).map(|path| {
        UnlocatedWarning::new(FindingCode::CredentialEverywhere, format!(
            "{path}: the gateway's credential goes to every server that a publisher or remote source names (list the \
             servers in origins, or the sources)"
        ))
    });
    let mut warnings: Vec<UnlocatedWarning> = everywhere.collect();
    let defaults = &config.agents.defaults;
    let of_defaults =
        AgentSettings { path: "agents.defaults".to_owned(), written: defaults, effective: defaults.clone() };
    let rules = config.agents.rules.iter().enumerate().map(|(at, rule)| AgentSettings {
        path: format!("agents.rules[{at}].settings"),
        written: &rule.settings,
        effective: rule.settings.with_fallback(defaults),
    });
    warnings.extend([of_defaults].into_iter().chain(rules).filter_map(|settings| settings.plain_text_warning()));
    warnings
}

/// Settings of agents: those of the defaults, or of a rule.
struct AgentSettings<'a> {
    path: String,
    /// What is written there.
    written: &'a TransportConfig,
    /// What applies to the agents.
    effective: TransportConfig,
}

impl AgentSettings<'_> {
    fn plain_text_warning(&self) -> Option<UnlocatedWarning> {
        // Reported where it is written, and not again for each rule that inherits it.
        let is_written_here = self.written.allow_plaintext.is_some() || self.written.credential.is_some();
        (is_written_here && sends_credential_in_plain_text(&self.effective)).then(|| {
            UnlocatedWarning::new(FindingCode::CredentialInPlaintext, format!(
                "{}.allow_plaintext: the gateway's credential crosses the network in plain text to agents at http:// \
                 (use https, or list https:// origins in the credential's destinations)",
                self.path
            ))
        })
    }
}

fn sends_credential_in_plain_text(settings: &TransportConfig) -> bool {
    let Some(credential) = &settings.credential else { return false };
    let destinations = &credential.destinations;
    let is_plain = |origin: &OriginPattern| !origin.to_string().starts_with("https://");
    let may_be_plain = !destinations.sources.is_empty() || destinations.origins.iter().any(is_plain);
    settings.allow_plaintext == Some(true) && may_be_plain
}

/// An attacker that changes keys in transit forges tokens.
fn plaintext_key_warning(config: &GatewayConfig) -> Option<UnlocatedWarning> {
    let bearer = config.auth.bearer.as_ref().filter(|_| config.network.allow_plaintext)?;
    let urls_of = |issuer: &IssuerConfig| {
        [Some(issuer.issuer.clone()), issuer.jwks_url.clone(), issuer.discovery_url.clone()].into_iter().flatten()
    };
    let endpoint = bearer.introspection.iter().map(|introspection| introspection.endpoint.clone());
    let mut urls = bearer.issuers.iter().flat_map(urls_of).chain(endpoint);
    let url = urls.find(|url| is_plain_beyond_this_machine(url))?;
    Some(UnlocatedWarning::new(
        FindingCode::KeysInPlaintext,
        format!(
            "network.allow_plaintext: the keys or answers by which tokens are accepted come in plain text from {url}, so that \
         everyone on the way can forge callers (use https)"
        ),
    ))
}

fn is_plain_beyond_this_machine(url: &str) -> bool {
    let Some(rest) = url.strip_prefix("http://") else { return false };
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    !is_loopback_host(host_without_port(authority))
}
