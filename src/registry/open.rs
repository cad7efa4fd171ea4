//! Opens the configured sources: validates every setting, reports all problems at once, and fetches nothing.

use super::{
    Config, Kind, MOST_AGENTS, Mqtt,
    config::{Proof, Remote, Source},
    feed::Feed,
    file::Files,
    keep::Keeper,
    kinds,
    source::Origin,
    web::Web,
};
use crate::{
    net::{self, AddressPolicy, Bounds, Client, Session},
    seal::Trusted,
    unit::{FilePath, Size, Span},
};
use std::{collections::HashMap, path::PathBuf, sync::Arc, time::Duration};

/// Maximum number of sources in one configuration.
const MOST: usize = 100;
/// Poll interval of the embedded registry, in addition to its change notifications.
const REGISTRY_POLL: Duration = Duration::from_secs(5);
/// Name of the embedded registry among the sources.
const REGISTRY: &str = "registry";

/// What opening the sources needs besides their configuration.
pub struct Means<'a> {
    /// Outbound network settings.
    pub network: &'a net::Config,
    /// Which addresses may be reached.
    pub policy: Arc<AddressPolicy>,
    /// Feed of the embedded registry. It has the highest precedence: no other source takes an id published here.
    pub registry: Option<Box<dyn Feed>>,
}

/// Sources that are opened and not polled yet.
pub struct Sources(pub(super) Vec<Opened>);

pub(super) struct Opened {
    pub(super) origin: Origin,
    pub(super) feed: Box<dyn Feed>,
    pub(super) poll: Duration,
    pub(super) keeper: Option<Arc<Keeper>>,
    /// Whether the source is local, so that startup waits for its first poll without a time limit.
    pub(super) at_hand: bool,
}

impl Sources {
    /// Opens every source of `config` in order of precedence.
    ///
    /// # Errors
    /// Every problem, by its path within the section.
    pub fn open(config: &Config, means: Means<'_>) -> Result<Self, Vec<String>> {
        let mut problems = config.problems();
        let client = Client::build(means.network, Arc::clone(&means.policy));
        // Problems of the network settings are reported by their own section.
        let Ok(client) = client else { return Err(problems) };
        let folder = config.last_known_good.as_ref().filter(|_| !config.rehearsal);
        let kept = |origin: &Origin| {
            folder.map(|folder| Arc::new(Keeper::new(folder.clone(), &origin.name, origin.kind, &origin.place)))
        };
        let mut list: Vec<Opened> = Vec::new();
        list.extend(means.registry.map(|feed| {
            let origin = Origin::plain(REGISTRY.into(), REGISTRY);
            Opened { keeper: kept(&origin), origin, feed, poll: REGISTRY_POLL, at_hand: false }
        }));
        for (at, source) in config.from.iter().enumerate() {
            match source {
                // A lazy source is looked up one agent at a time and has no feed.
                Source::Remote(remote) if remote.on_demand => {}
                Source::Files(path) => list.push(files(path, config.poll)),
                Source::Remote(remote) => match remote.open(config, means.network, &client) {
                    Ok((origin, poll, feed)) if !config.rehearsal => {
                        list.push(Opened { keeper: kept(&origin), origin, feed, poll, at_hand: false });
                    }
                    Ok(_) => {}
                    Err(whys) => problems.extend(whys.iter().map(|why| format!("from[{at}].{why}"))),
                },
            }
        }
        if problems.is_empty() { Ok(Self(list)) } else { Err(problems) }
    }
}

fn files(path: &FilePath, poll: Span) -> Opened {
    let name: Arc<str> = path.display().to_string().into();
    Opened {
        origin: Origin::plain(name, "files"),
        feed: Box::new(Files::new(path.to_path_buf())),
        poll: poll.get(),
        keeper: None,
        at_hand: true,
    }
}

impl Origin {
    /// Settings of a local source, which has no loss guard.
    fn plain(name: Arc<str>, kind: &'static str) -> Self {
        // MAX_AGENTS alone bounds a local source.
        Self { place: Arc::clone(&name), name, kind, hold: None, stale_after: None, most: usize::MAX }
    }
}

impl Remote {
    /// Returns the configured name, or kind and host where no name is configured.
    pub fn label(&self) -> String {
        if let Some(name) = &self.name {
            return name.clone();
        }
        let place = net::Url::parse(&self.url).ok().and_then(|url| {
            let host = url.host_str()?.to_owned();
            Some(url.port().map_or(host.clone(), |port| format!("{host}:{port}")))
        });
        let place = place.unwrap_or_default();
        let place: String = place.chars().map(|c| if plain_name(c) { c } else { '-' }).collect();
        let mut label = format!("{}:{place}", self.kind.name());
        label.truncate(64);
        label
    }

    /// Returns every value that cannot be used, by its key.
    pub(super) fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        let mut within = |name: &str, value: Span, least: Span, most: Span| {
            if !(least..=most).contains(&value) {
                problems.push(format!("{name}: must be {least} to {most}, not {value}"));
            }
        };
        let (second, day, year) = (Span::secs(1), Span::secs(86_400), Span::secs(366 * 86_400));
        within("poll", self.poll_interval, second, day);
        within("timeout", self.fetch_timeout, Span::millis(100), Span::secs(300));
        within("hold_for", self.hold_for, Span::secs(0), day);
        within("stale_after", self.max_staleness.unwrap_or(second), second, year);
        if !(Size::kib(1)..=Size::kib(256 << 10)).contains(&self.max_response_size) {
            problems.push(format!("max_size: must be 1KiB to 256MiB, not {}", self.max_response_size));
        }
        if !(1..=MOST_AGENTS).contains(&self.max_agents) {
            problems.push(format!("max_agents: must be 1 to {MOST_AGENTS}, not {}", self.max_agents));
        }
        if !(0.0..=1.0).contains(&self.hold_loss) {
            problems.push(format!("hold_loss: must be a share between 0 and 1, not {}", self.hold_loss));
        }
        if self.on_demand && (self.publisher_jwks.is_some() || self.require_signature) {
            let cure = "set lazy: false, or remove publisher_keys and require_signed";
            problems.push(format!("publisher_keys: has no effect where lazy is true ({cure})"));
        }
        if self.require_signature && self.publisher_jwks.is_none() {
            problems.push("require_signed: requires publisher_keys".to_owned());
        }
        let name = self.name.as_deref().unwrap_or("ok");
        if !(1..=64).contains(&name.len()) || !name.chars().all(plain_name) || name.starts_with('.') {
            problems.push("name: must be 1 to 64 letters, digits or ._:- and must not begin with a dot".to_owned());
        }
        if name == REGISTRY {
            problems.push(format!("name: '{REGISTRY}' is reserved for the embedded registry"));
        }
        match (self.kind, &self.mqtt) {
            (Kind::Mqtt, mqtt) => problems.extend(mqtt.clone().unwrap_or_default().problems(&self.url)),
            (_, Some(_)) => problems.push("mqtt: is only for kind mqtt".to_owned()),
            (_, None) => {}
        }
        if self.kind == Kind::Mqtt && self.credential.is_some() {
            problems.push("credential: is not for kind mqtt (use mqtt.username and mqtt.password)".to_owned());
        }
        if self.kind == Kind::Mqtt && self.publisher_jwks.is_some() {
            problems.push("publisher_keys: is not for kind mqtt, whose statuses are not signed".to_owned());
        }
        problems
    }

    fn open(
        &self,
        config: &Config,
        network: &net::Config,
        client: &Client,
    ) -> Result<(Origin, Duration, Box<dyn Feed>), Vec<String>> {
        if self.kind == Kind::Mqtt {
            return self.broker();
        }
        let mut problems = Vec::new();
        let bounds = Bounds { size: self.max_response_size, time: self.fetch_timeout };
        let session = Session::build(network, client, &self.url, self.credential.as_ref(), bounds);
        let session = session.map_err(|whys| problems.extend(whys));
        let proof = self.proof().map_err(|why| problems.push(format!("publisher_keys: {why}")));
        let (Ok(session), Ok(proof)) = (session, proof) else { return Err(problems) };
        let origin = self.origin(session.url().as_str());
        let feed = kinds::open(self.kind, Web::new(session, config.cache), proof);
        Ok((origin, self.poll_interval.get(), feed))
    }

    /// Builds the feed of an MQTT broker. The feed connects at its first poll.
    fn broker(&self) -> Result<(Origin, Duration, Box<dyn Feed>), Vec<String>> {
        let settings = self.mqtt.clone().unwrap_or_default();
        let feed =
            Mqtt::new(&self.url, settings, self.fetch_timeout.get(), self.max_agents).map_err(|why| vec![why])?;
        Ok((self.origin(&self.url), self.poll_interval.get(), Box::new(feed)))
    }

    fn origin(&self, place: &str) -> Origin {
        Origin {
            name: self.label().into(),
            kind: self.kind.name(),
            place: place.into(),
            hold: Some((self.hold_loss, self.hold_for.get())),
            stale_after: self.max_staleness.map(Span::get),
            most: self.max_agents,
        }
    }

    fn proof(&self) -> Result<Proof, String> {
        let Some(path) = &self.publisher_jwks else { return Ok(Proof::default()) };
        let text = std::fs::read(path).map_err(|why| format!("{} cannot be read ({why})", path.display()))?;
        let set = serde_json::from_slice(&text).map_err(|why| format!("{} is not JSON ({why})", path.display()))?;
        let trusted = Trusted::from_jwks(&set).map_err(|why| format!("{}: {why}", path.display()))?;
        Ok(Proof { trusted: Some(Arc::new(trusted)), required: self.require_signature })
    }
}

fn plain_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | ':' | '-')
}

impl Config {
    /// Returns every value that cannot be used, by its path within this section.
    pub fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        let mut names: HashMap<String, usize> = HashMap::new();
        for (at, source) in self.from.iter().enumerate() {
            let name = match source {
                Source::Files(path) => {
                    if let Err(why) = std::fs::metadata(path) {
                        problems.push(format!("from[{at}]: {} cannot be read ({why})", path.display()));
                    }
                    path.display().to_string()
                }
                Source::Remote(remote) => {
                    problems.extend(remote.problems().iter().map(|why| format!("from[{at}].{why}")));
                    remote.label()
                }
            };
            if names.insert(name.clone(), at).is_some() {
                let cure = if matches!(source, Source::Remote(_)) { " (give one of them another name)" } else { "" };
                problems.push(format!("from[{at}]: {name} is listed twice{cure}"));
            }
        }
        if self.from.len() > MOST {
            problems.push(format!("from: has {} sources (at most {MOST})", self.from.len()));
        }
        let (hour, day) = (Span::secs(3_600), Span::secs(86_400));
        if !(Span::millis(50)..=hour).contains(&self.poll) {
            problems.push(format!("poll: must be 50ms to 1h, not {}", self.poll));
        }
        if self.cache.min_ttl > hour || self.cache.max_ttl > day || self.cache.min_ttl > self.cache.max_ttl {
            problems.push("cache: min must be at most 1h, and max must be at most 1d and at least min".to_owned());
        }
        problems
    }
}

/// Default folder of the last known good agents.
pub fn usual_folder() -> Option<FilePath> {
    "gatepost.state".parse().ok()
}

impl Default for Config {
    fn default() -> Self {
        Self {
            from: Vec::new(),
            poll: Span::millis(500),
            last_known_good: None::<PathBuf>,
            cache: super::Caching::default(),
            rehearsal: false,
        }
    }
}
