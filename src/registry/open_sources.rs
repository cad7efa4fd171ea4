//! Opens the configured sources: validates every setting, reports all problems at once, and fetches nothing.

use super::{
    AgentSourcesConfig, MAX_AGENTS, MqttFeed, SourceKind,
    conditional_get::ConditionalClient,
    config::{RemoteSourceConfig, SignaturePolicy, SourceConfig},
    feed::Feed,
    file_feed::FileFeed,
    http_feed,
    last_known_good::LastKnownGoodFile,
    loss_guard::LossGuardPolicy,
    source_state::SourceSpec,
};
use crate::{
    agent::AgentSource,
    net::{self, AddressPolicy, FetchClient, FetchLimits, SourceClient},
    signing::TrustedKeys,
    values::{ByteSize, ConfigDuration, ConfigPath},
};
use std::{collections::HashMap, path::PathBuf, sync::Arc, time::Duration};

/// Maximum number of sources in one configuration.
const MAX_SOURCES: usize = 100;
/// Poll interval of the embedded registry, in addition to its change notifications.
const REGISTRY_POLL_INTERVAL: Duration = Duration::from_secs(5);
/// Name of the embedded registry among the sources.
const REGISTRY_SOURCE_NAME: &str = AgentSource::REGISTRY;

/// Dependencies of opening the sources, besides their configuration.
pub struct SourceDependencies<'a> {
    /// Outbound network settings.
    pub network: &'a net::NetworkConfig,
    /// Addresses that may be reached.
    pub policy: Arc<AddressPolicy>,
    /// Feed of the embedded registry. It has the highest precedence: no other source takes an id published here.
    pub registry: Option<Box<dyn Feed>>,
}

/// Sources that are opened and not polled yet.
pub struct OpenedSources(pub(super) Vec<OpenedSource>);

pub(super) struct OpenedSource {
    pub(super) spec: SourceSpec,
    pub(super) feed: Box<dyn Feed>,
    pub(super) poll_interval: Duration,
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
        let folder = config.last_known_good.as_ref().filter(|_| !config.check_only);
        let last_known_good_file = |spec: &SourceSpec| {
            folder.map(|folder| Arc::new(LastKnownGoodFile::new(folder.clone(), &spec.name, spec.kind, &spec.location)))
        };
        let mut opened: Vec<OpenedSource> = Vec::new();
        opened.extend(dependencies.registry.map(|feed| {
            let spec = SourceSpec::local(REGISTRY_SOURCE_NAME.into(), REGISTRY_SOURCE_NAME);
            OpenedSource {
                last_known_good: last_known_good_file(&spec),
                spec,
                feed,
                poll_interval: REGISTRY_POLL_INTERVAL,
                is_local: false,
            }
        }));
        for (at, source) in config.sources.iter().enumerate() {
            match source {
                // The agents of an on-demand source are looked up one at a time: it has no feed.
                SourceConfig::Remote(remote) if remote.on_demand => {}
                SourceConfig::Files(path) => opened.push(open_files(path, config.poll_interval)),
                SourceConfig::Remote(remote) => match remote.open_feed(config, dependencies.network, &client) {
                    Ok((spec, poll_interval, feed)) if !config.check_only => {
                        opened.push(OpenedSource {
                            last_known_good: last_known_good_file(&spec),
                            spec,
                            feed,
                            poll_interval,
                            is_local: false,
                        });
                    }
                    Ok(_) => {}
                    Err(errors) => problems.extend(errors.iter().map(|why| format!("sources[{at}].{why}"))),
                },
            }
        }
        if problems.is_empty() { Ok(Self(opened)) } else { Err(problems) }
    }
}

fn open_files(path: &ConfigPath, poll_interval: ConfigDuration) -> OpenedSource {
    let name: Arc<str> = path.display().to_string().into();
    OpenedSource {
        spec: SourceSpec::local(name, SourceSpec::FILES_KIND),
        feed: Box::new(FileFeed::new(path.to_path_buf())),
        poll_interval: poll_interval.get(),
        last_known_good: None,
        is_local: true,
    }
}

impl RemoteSourceConfig {
    /// Returns the configured name, or kind and host where no name is configured.
    pub fn effective_name(&self) -> String {
        if let Some(name) = &self.name {
            return name.clone();
        }
        let host = net::Url::parse(&self.url).ok().and_then(|url| {
            let host = url.host_str()?.to_owned();
            Some(url.port().map_or(host.clone(), |port| format!("{host}:{port}")))
        });
        let host = host.unwrap_or_default();
        let host: String = host.chars().map(|c| if is_name_char(c) { c } else { '-' }).collect();
        let mut label = format!("{}:{host}", self.kind.as_str());
        label.truncate(64);
        label
    }

    /// Returns every value that cannot be used, by its key.
    pub(super) fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        let mut check = |name: &str, value: ConfigDuration, min: ConfigDuration, max: ConfigDuration| {
            if !(min..=max).contains(&value) {
                problems.push(format!("{name}: must be {min} to {max}, not {value}"));
            }
        };
        let (second, day, year) =
            (ConfigDuration::from_secs(1), ConfigDuration::from_secs(86_400), ConfigDuration::from_secs(366 * 86_400));
        check("poll_interval", self.poll_interval, second, day);
        check("fetch_timeout", self.fetch_timeout, ConfigDuration::from_millis(100), ConfigDuration::from_secs(300));
        check("loss_guard.confirm_after", self.loss_guard.confirm_after, ConfigDuration::from_secs(0), day);
        check("max_staleness", self.max_staleness.unwrap_or(second), second, year);
        if !(ByteSize::from_kib(1)..=ByteSize::from_kib(256 << 10)).contains(&self.max_response_size) {
            problems.push(format!("max_response_size: must be 1KiB to 256MiB, not {}", self.max_response_size));
        }
        if !(1..=MAX_AGENTS).contains(&self.max_agents) {
            problems.push(format!("max_agents: must be 1 to {MAX_AGENTS}, not {}", self.max_agents));
        }
        if !(0.0..=1.0).contains(&self.loss_guard.threshold) {
            problems.push(format!(
                "loss_guard.threshold: must be a share between 0 and 1, not {}",
                self.loss_guard.threshold
            ));
        }
        if self.on_demand && (self.publisher_jwks.is_some() || self.require_signature) {
            let hint = "set on_demand: false, or remove publisher_jwks and require_signature";
            problems.push(format!("publisher_jwks: has no effect where on_demand is true ({hint})"));
        }
        if self.require_signature && self.publisher_jwks.is_none() {
            problems.push("require_signature: requires publisher_jwks".to_owned());
        }
        let name = self.name.as_deref().unwrap_or("ok");
        if !(1..=64).contains(&name.len()) || !name.chars().all(is_name_char) || name.starts_with('.') {
            problems.push("name: must be 1 to 64 letters, digits or ._:- and must not begin with a dot".to_owned());
        }
        if [AgentSource::REGISTRY, AgentSource::FILES].contains(&name) {
            problems.push(format!(
                "name: '{name}' is reserved ('registry' for the built-in registry, 'files' for all files)"
            ));
        }
        match (self.kind, &self.mqtt) {
            (SourceKind::Mqtt, mqtt) => problems.extend(mqtt.clone().unwrap_or_default().problems(&self.url)),
            (_, Some(_)) => problems.push("mqtt: is only for kind mqtt".to_owned()),
            (_, None) => {}
        }
        if self.kind == SourceKind::Mqtt && self.credential.is_some() {
            problems.push("credential: is not for kind mqtt (use mqtt.username and mqtt.password)".to_owned());
        }
        if self.kind == SourceKind::Mqtt && self.publisher_jwks.is_some() {
            problems.push("publisher_jwks: is not for kind mqtt, whose statuses are not signed".to_owned());
        }
        problems
    }

    fn open_feed(
        &self,
        config: &AgentSourcesConfig,
        network: &net::NetworkConfig,
        client: &FetchClient,
    ) -> Result<(SourceSpec, Duration, Box<dyn Feed>), Vec<String>> {
        if self.kind == SourceKind::Mqtt {
            return self.open_mqtt_feed();
        }
        let mut problems = Vec::new();
        let limits = FetchLimits { size: self.max_response_size, time: self.fetch_timeout };
        let source_client = SourceClient::build(network, client, &self.url, self.credential.as_ref(), limits);
        let source_client = source_client.map_err(|errors| problems.extend(errors));
        let signatures = self.load_signature_policy().map_err(|why| problems.push(format!("publisher_jwks: {why}")));
        let (Ok(source_client), Ok(signatures)) = (source_client, signatures) else { return Err(problems) };
        let spec = self.source_spec(source_client.url().as_str());
        let feed = http_feed::open_feed(self.kind, ConditionalClient::new(source_client, config.cache), signatures);
        Ok((spec, self.poll_interval.get(), feed))
    }

    /// Builds the feed of an MQTT broker. The feed connects at its first poll.
    fn open_mqtt_feed(&self) -> Result<(SourceSpec, Duration, Box<dyn Feed>), Vec<String>> {
        let settings = self.mqtt.clone().unwrap_or_default();
        let feed =
            MqttFeed::new(&self.url, settings, self.fetch_timeout.get(), self.max_agents).map_err(|why| vec![why])?;
        Ok((self.source_spec(&self.url), self.poll_interval.get(), Box::new(feed)))
    }

    fn source_spec(&self, location: &str) -> SourceSpec {
        SourceSpec {
            name: self.effective_name().into(),
            kind: self.kind.as_str(),
            location: location.into(),
            loss_guard: Some(LossGuardPolicy {
                threshold: self.loss_guard.threshold,
                confirm_after: self.loss_guard.confirm_after.get(),
            }),
            max_staleness: self.max_staleness.map(ConfigDuration::get),
            max_agents: self.max_agents,
        }
    }

    fn load_signature_policy(&self) -> Result<SignaturePolicy, String> {
        let Some(path) = &self.publisher_jwks else { return Ok(SignaturePolicy::default()) };
        let text = std::fs::read(path).map_err(|why| format!("{} cannot be read ({why})", path.display()))?;
        let jwks = serde_json::from_slice(&text).map_err(|why| format!("{} is not JSON ({why})", path.display()))?;
        let trusted_keys = TrustedKeys::from_jwks(&jwks).map_err(|why| format!("{}: {why}", path.display()))?;
        Ok(SignaturePolicy { trusted_keys: Some(Arc::new(trusted_keys)), require_signature: self.require_signature })
    }
}

fn is_name_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | ':' | '-')
}

impl AgentSourcesConfig {
    /// Returns every value that cannot be used, by its path within this section.
    pub fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        let mut names: HashMap<String, usize> = HashMap::new();
        for (at, source) in self.sources.iter().enumerate() {
            let name = match source {
                SourceConfig::Files(path) => {
                    if let Err(why) = std::fs::metadata(path) {
                        problems.push(format!("sources[{at}]: {} cannot be read ({why})", path.display()));
                    }
                    path.display().to_string()
                }
                SourceConfig::Remote(remote) => {
                    problems.extend(remote.problems().iter().map(|why| format!("sources[{at}].{why}")));
                    remote.effective_name()
                }
            };
            if names.insert(name.clone(), at).is_some() {
                let hint =
                    if matches!(source, SourceConfig::Remote(_)) { " (give one of them another name)" } else { "" };
                problems.push(format!("sources[{at}]: {name} is listed twice{hint}"));
            }
        }
        if self.sources.len() > MAX_SOURCES {
            problems.push(format!("sources: has {} sources (at most {MAX_SOURCES})", self.sources.len()));
        }
        let (hour, day) = (ConfigDuration::from_secs(3_600), ConfigDuration::from_secs(86_400));
        if !(ConfigDuration::from_millis(50)..=hour).contains(&self.poll_interval) {
            problems.push(format!("poll_interval: must be 50ms to 1h, not {}", self.poll_interval));
        }
        if self.cache.min_ttl > hour || self.cache.max_ttl > day || self.cache.min_ttl > self.cache.max_ttl {
            problems.push(
                "cache: min_ttl must be at most 1h, and max_ttl must be at most 1d and at least min_ttl".to_owned(),
            );
        }
        problems
    }
}

/// Returns the default folder of the last known good agents.
pub fn default_last_known_good_folder() -> Option<ConfigPath> {
    "gatepost.state".parse().ok()
}

impl Default for AgentSourcesConfig {
    fn default() -> Self {
        Self {
            sources: Vec::new(),
            poll_interval: ConfigDuration::from_millis(500),
            last_known_good: None::<PathBuf>,
            cache: super::CacheBounds::default(),
            check_only: false,
        }
    }
}
