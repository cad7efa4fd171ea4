//! Opens the configured sources: validates every setting, reports all problems at once, and fetches nothing.

use super::{
    KubernetesFeed, MqttFeed,
    conditional_get::ConditionalClient,
    config::{
        AgentSourcesConfig, REGISTRY_SOURCE_NAME, RemoteSourceConfig, SourceConfig, SourceKind, default_max_backoff,
    },
    feed::Feed,
    file_feed::FileFeed,
    http_feed::{self, RegistryFeedSettings},
    last_known_good::LastKnownGoodFile,
    signature_policy::SignaturePolicy,
    source_spec::SourceSpec,
};
use crate::{
    net::{self, AddressPolicy, FetchClient, FetchLimits, SourceClient},
    telemetry::Metrics,
    values::ConfigPath,
};
use std::{sync::Arc, time::Duration};

/// Poll interval of the embedded registry, in addition to its change notifications.
const REGISTRY_POLL_INTERVAL: Duration = Duration::from_secs(5);

/// Dependencies of opening the sources, besides their configuration.
pub struct SourceDependencies<'a> {
    /// Outbound network settings.
    pub network: &'a net::NetworkConfig,
    /// Addresses that may be reached.
    pub policy: Arc<AddressPolicy>,
    /// Feed of the embedded registry. It has the highest precedence: no other source takes an id published here.
    pub registry: Option<Box<dyn Feed>>,
    /// The metrics of brokers that are sources.
    pub metrics: Option<&'a Metrics>,
}

/// Sources that are opened and not polled yet.
pub struct OpenedSources(pub(super) Vec<OpenedSource>);

pub(super) struct OpenedSource {
    pub(super) spec: SourceSpec,
    pub(super) feed: Box<dyn Feed>,
    pub(super) poll_interval: Duration,
    /// Maximum delay between polls that fail.
    pub(super) max_backoff: Duration,
    pub(super) last_known_good: Option<Arc<LastKnownGoodFile>>,
    /// Whether the source is local, so that startup waits for its first poll without a time limit.
    pub(super) is_local: bool,
}

impl OpenedSources {
    /// Opens every source of `config` in order of precedence.
    ///
    /// # Errors
    /// Every problem, by its path within the section.
    pub fn open(config: &AgentSourcesConfig, dependencies: SourceDependencies<'_>) -> Result<Self, Vec<String>> {
        let mut problems = config.problems();
        let client = FetchClient::build(dependencies.network, Arc::clone(&dependencies.policy));
        // Problems of the network settings are reported by their own section.
        let Ok(client) = client else { return Err(problems) };
        let opener =
            SourceOpener { config, network: dependencies.network, client: &client, metrics: dependencies.metrics };
        let mut opened: Vec<OpenedSource> = Vec::new();
        opened.extend(dependencies.registry.map(|feed| opener.open_registry(feed)));
        for (at, source) in config.sources.iter().enumerate() {
            match source {
                // The agents of an on-demand source are looked up one at a time: it has no feed.
                SourceConfig::Remote(remote) if remote.on_demand => {}
                SourceConfig::Files(path) => opened.push(opener.open_files(path)),
                SourceConfig::Remote(remote) => match opener.open_remote(remote) {
                    Ok(source) if !config.check_only || config.polls_when_checking => opened.push(source),
                    Ok(_) => {}
                    Err(errors) => problems.extend(errors.iter().map(|why| format!("sources[{at}].{why}"))),
                },
            }
        }
        if problems.is_empty() { Ok(Self(opened)) } else { Err(problems) }
    }
}

/// Opens one source at a time.
struct SourceOpener<'a> {
    config: &'a AgentSourcesConfig,
    network: &'a net::NetworkConfig,
    client: &'a FetchClient,
    metrics: Option<&'a Metrics>,
}

impl SourceOpener<'_> {
    fn open_registry(&self, feed: Box<dyn Feed>) -> OpenedSource {
        let spec = SourceSpec {
            is_required: self.config.registry_required,
            ..SourceSpec::local(REGISTRY_SOURCE_NAME.into(), REGISTRY_SOURCE_NAME)
        };
        OpenedSource {
            last_known_good: self.last_known_good_file(&spec),
            spec,
            feed,
            poll_interval: REGISTRY_POLL_INTERVAL,
            max_backoff: default_max_backoff().get(),
            is_local: false,
        }
    }

    fn open_files(&self, path: &ConfigPath) -> OpenedSource {
        let name: Arc<str> = path.display().to_string().into();
        OpenedSource {
            spec: SourceSpec::local(name, SourceSpec::FILES_KIND),
            feed: Box::new(FileFeed::new(path.to_path_buf())),
            poll_interval: self.config.poll_interval.get(),
            max_backoff: default_max_backoff().get(),
            last_known_good: None,
            is_local: true,
        }
    }

    fn open_remote(&self, remote: &RemoteSourceConfig) -> Result<OpenedSource, Vec<String>> {
        let (spec, feed) = match remote.kind {
            SourceKind::Mqtt => open_mqtt_feed(remote, self.metrics)?,
            SourceKind::Kubernetes => self.open_kubernetes_feed(remote)?,
            _ => self.open_http_feed(remote)?,
        };
        Ok(OpenedSource {
            last_known_good: self.last_known_good_file(&spec),
            spec,
            feed,
            poll_interval: remote.poll_interval.get(),
            max_backoff: remote.max_backoff.get(),
            is_local: false,
        })
    }

    fn open_http_feed(&self, remote: &RemoteSourceConfig) -> Result<(SourceSpec, Box<dyn Feed>), Vec<String>> {
        let mut problems = Vec::new();
        let limits = FetchLimits { size: remote.max_response_size, time: remote.fetch_timeout };
        let source_client =
            SourceClient::build(self.network, self.client, &remote.url, remote.credential.as_ref(), limits);
        let source_client = source_client.map_err(|errors| problems.extend(errors));
        let signatures = SignaturePolicy::load(remote).map_err(|why| problems.push(format!("publisher_jwks: {why}")));
        let (Ok(source_client), Ok(signatures)) = (source_client, signatures) else { return Err(problems) };
        let spec = SourceSpec::remote(remote, source_client.url().as_str());
        let client = ConditionalClient::new(source_client, self.config.cache);
        let settings = RegistryFeedSettings {
            kind: remote.kind,
            signature_policy: signatures,
            operation_paths: remote.operation_paths,
            max_agents: remote.max_agents,
        };
        Ok((spec, http_feed::open_feed(client, settings)))
    }

    /// Opens the feed of a cluster. The feed connects at its first poll.
    fn open_kubernetes_feed(&self, remote: &RemoteSourceConfig) -> Result<(SourceSpec, Box<dyn Feed>), Vec<String>> {
        let location = remote.kubernetes.clone().unwrap_or_default().location(&remote.url);
        let feed = KubernetesFeed::new(remote, self.network)?;
        Ok((SourceSpec::remote(remote, &location), Box::new(feed)))
    }

    /// Returns the file of the last known good agents, if the configuration stores them.
    fn last_known_good_file(&self, spec: &SourceSpec) -> Option<Arc<LastKnownGoodFile>> {
        let folder = self.config.last_known_good.as_ref().filter(|_| !self.config.check_only)?;
        Some(Arc::new(LastKnownGoodFile::new(folder.clone(), &spec.name, spec.kind, &spec.location)))
    }
}

/// Opens the feed of an MQTT broker. The feed connects at its first poll.
fn open_mqtt_feed(
    remote: &RemoteSourceConfig,
    metrics: Option<&Metrics>,
) -> Result<(SourceSpec, Box<dyn Feed>), Vec<String>> {
    let settings = remote.mqtt.clone().unwrap_or_default();
    let feed = MqttFeed::new(&remote.url, settings, remote.fetch_timeout.get(), remote.max_agents);
    let feed = feed.map_err(|why| vec![why])?.with_metrics(metrics);
    Ok((SourceSpec::remote(remote, &remote.url), Box::new(feed)))
}
