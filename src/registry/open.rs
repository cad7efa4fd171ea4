//! From what is configured to feeds that can be looked at: every problem at once, nothing fetched yet.

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

/// Sources in one configuration.
const MOST: usize = 100;
/// How often the registry that is built in is looked at besides when it says so itself.
const REGISTRY_POLL: Duration = Duration::from_secs(5);
/// Its name among the sources.
const REGISTRY: &str = "registry";

/// What sources are reached with.
pub struct Means<'a> {
    /// How the gateway reaches out.
    pub network: &'a net::Config,
    /// Which addresses may be reached.
    pub policy: Arc<AddressPolicy>,
    /// The registry that is built in. It comes first: no other source takes an id that was published here.
    pub registry: Option<Box<dyn Feed>>,
}

/// Sources, opened and not looked at yet.
pub struct Sources(pub(super) Vec<Opened>);

pub(super) struct Opened {
    pub(super) origin: Origin,
    pub(super) feed: Box<dyn Feed>,
    pub(super) poll: Duration,
    pub(super) keeper: Option<Arc<Keeper>>,
    /// Whether the start waits for its first look, however long it takes.
    pub(super) at_hand: bool,
}

impl Sources {
    /// Opens everything that `config` names, in the order of precedence.
    ///
    /// # Errors
    /// Every problem, by its path within the section.
    pub fn open(config: &Config, means: Means<'_>) -> Result<Self, Vec<String>> {
        let mut problems = config.problems();
        let client = Client::build(means.network, Arc::clone(&means.policy));
        // What is wrong with the network's own settings is told where they stand.
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
                // It is asked for one agent at a time, and so is no feed.
                Source::Remote(remote) if remote.lazy => {}
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
    /// A source that is believed whatever it says.
    fn plain(name: Arc<str>, kind: &'static str) -> Self {
        // The bound on all agents is its own.
        Self { place: Arc::clone(&name), name, kind, hold: None, stale_after: None, most: usize::MAX }
    }
}

impl Remote {
    /// What it is called: by its name, or by its kind and host.
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

    /// Every value that cannot be used, by its name.
    pub(super) fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        let mut within = |name: &str, value: Span, least: Span, most: Span| {
            if !(least..=most).contains(&value) {
                problems.push(format!("{name}: must be {least} to {most}, not {value}"));
            }
        };
        let (second, day, year) = (Span::secs(1), Span::secs(86_400), Span::secs(366 * 86_400));
        within("poll", self.poll, second, day);
        within("timeout", self.timeout, Span::millis(100), Span::secs(300));
        within("hold_for", self.hold_for, Span::secs(0), day);
        within("stale_after", self.stale_after.unwrap_or(second), second, year);
        if !(Size::kib(1)..=Size::kib(256 << 10)).contains(&self.max_size) {
            problems.push(format!("max_size: must be 1KiB to 256MiB, not {}", self.max_size));
        }
        if !(1..=MOST_AGENTS).contains(&self.max_agents) {
            problems.push(format!("max_agents: must be 1 to {MOST_AGENTS}, not {}", self.max_agents));
        }
        if !(0.0..=1.0).contains(&self.hold_loss) {
            problems.push(format!("hold_loss: must be a share between 0 and 1, not {}", self.hold_loss));
        }
        if self.lazy && (self.publisher_keys.is_some() || self.require_signed) {
            let cure = "copy the registry, or leave them out";
            problems.push(format!("publisher_keys: are not looked at where lazy is true ({cure})"));
        }
        if self.require_signed && self.publisher_keys.is_none() {
            problems.push("require_signed: needs publisher_keys, the keys that count".to_owned());
        }
        let name = self.name.as_deref().unwrap_or("ok");
        if !(1..=64).contains(&name.len()) || !name.chars().all(plain_name) || name.starts_with('.') {
            problems.push("name: must be 1 to 64 letters, digits or ._:- , the first of them no dot".to_owned());
        }
        if name == REGISTRY {
            problems.push(format!("name: '{REGISTRY}' is the registry that is built in"));
        }
        match (self.kind, &self.mqtt) {
            (Kind::Mqtt, mqtt) => problems.extend(mqtt.clone().unwrap_or_default().problems(&self.url)),
            (_, Some(_)) => problems.push("mqtt: is for kind mqtt".to_owned()),
            (_, None) => {}
        }
        if self.kind == Kind::Mqtt && self.credential.is_some() {
            problems.push("credential: a broker takes mqtt.username and mqtt.password".to_owned());
        }
        if self.kind == Kind::Mqtt && self.publisher_keys.is_some() {
            problems.push("publisher_keys: statuses on a broker are not signed".to_owned());
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
        let bounds = Bounds { size: self.max_size, time: self.timeout };
        let session = Session::build(network, client, &self.url, self.credential.as_ref(), bounds);
        let session = session.map_err(|whys| problems.extend(whys));
        let proof = self.proof().map_err(|why| problems.push(format!("publisher_keys: {why}")));
        let (Ok(session), Ok(proof)) = (session, proof) else { return Err(problems) };
        let origin = self.origin(session.url().as_str());
        let feed = kinds::open(self.kind, Web::new(session, config.cache), proof);
        Ok((origin, self.poll.get(), feed))
    }

    /// What a broker's agents say of themselves. It connects at the first look.
    fn broker(&self) -> Result<(Origin, Duration, Box<dyn Feed>), Vec<String>> {
        let settings = self.mqtt.clone().unwrap_or_default();
        let feed = Mqtt::new(&self.url, settings, self.timeout.get(), self.max_agents).map_err(|why| vec![why])?;
        Ok((self.origin(&self.url), self.poll.get(), Box::new(feed)))
    }

    fn origin(&self, place: &str) -> Origin {
        Origin {
            name: self.label().into(),
            kind: self.kind.name(),
            place: place.into(),
            hold: Some((self.hold_loss, self.hold_for.get())),
            stale_after: self.stale_after.map(Span::get),
            most: self.max_agents,
        }
    }

    fn proof(&self) -> Result<Proof, String> {
        let Some(path) = &self.publisher_keys else { return Ok(Proof::default()) };
        let text = std::fs::read(path).map_err(|why| format!("{} cannot be read ({why})", path.display()))?;
        let set = serde_json::from_slice(&text).map_err(|why| format!("{} is not JSON ({why})", path.display()))?;
        let trusted = Trusted::from_jwks(&set).map_err(|why| format!("{}: {why}", path.display()))?;
        Ok(Proof { trusted: Some(Arc::new(trusted)), required: self.require_signed })
    }
}

fn plain_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | ':' | '-')
}

impl Config {
    /// Every value that cannot be used, by its path within this section.
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
                let cure = if matches!(source, Source::Remote(_)) { " (give one of the two another name)" } else { "" };
                problems.push(format!("from[{at}]: {name} stands twice{cure}"));
            }
        }
        if self.from.len() > MOST {
            problems.push(format!("from: names {} sources (at most {MOST})", self.from.len()));
        }
        let (hour, day) = (Span::secs(3_600), Span::secs(86_400));
        if !(Span::millis(50)..=hour).contains(&self.poll) {
            problems.push(format!("poll: must be 50ms to 1h, not {}", self.poll));
        }
        if self.cache.min > hour || self.cache.max > day || self.cache.min > self.cache.max {
            problems.push("cache: min must be at most 1h, and max at most 1d and no less than min".to_owned());
        }
        problems
    }
}

/// Where what is remembered lies unless it is written.
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
