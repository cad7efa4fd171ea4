//! The order in which names are resolved (R53, R63): the operator's map, an explicit transport, what the domain
//! publishes, DID documents, WebFinger, and https at the name's own place.

use super::{
    config::{Config, Target},
    did, domain,
    explicit::{Mapped, explicit, mapped},
    finger,
    led::{Asked, Led, Place},
    library::Library,
    resolved::Resolved,
    trail::{Outcome, Trail},
    turns::Turns,
};
use crate::{
    agent::{AgentUri, Authority},
    fault::{Code, Fault, Result},
    net::{self, AddressPolicy, Client, Url},
};
use std::{sync::Arc, time::Instant};

/// Names that lead to names, one after the other.
const HOPS: usize = 5;

/// Resolves names. One for each configuration; what it remembers goes with it.
#[derive(Debug)]
pub struct Resolver {
    config: Config,
    network: net::Config,
    map: Vec<(AgentUri, Target)>,
    library: Library,
    /// For callers, and for agents: neither takes the other's.
    callers: Turns,
    agents: Turns,
}

impl Resolver {
    /// A resolver that asks only what anybody could reach, and what `policy` lists besides.
    ///
    /// # Errors
    /// Every setting that cannot be used, by its path in the section `names`; or the network's.
    pub fn new(
        config: &Config,
        network: &net::Config,
        policy: &AddressPolicy,
    ) -> std::result::Result<Self, Vec<String>> {
        let problems = config.problems();
        if !problems.is_empty() {
            return Err(problems);
        }
        let client = Client::build(network, Arc::new(policy.public_only()))?;
        Ok(Self {
            map: config.read_map()?,
            library: Library::new(config, client),
            callers: Turns::new(config.most_at_once),
            agents: Turns::new(config.most_at_once),
            config: config.clone(),
            network: network.clone(),
        })
    }

    /// Whether it was made as these settings say.
    pub fn is_as(&self, config: &Config, network: &net::Config) -> bool {
        self.config == *config && self.network == *network
    }

    /// Where the agent called `uri` is; in `version`, where one is asked for. `whose` tells askers apart.
    ///
    /// # Errors
    /// `NotFound` where nothing is there, `AgentUnavailable` where that could not be learnt, `Timeout`, `AgentError`
    /// where names lead in a circle, `NotAcceptable` for a version that there is not, `Overloaded`, `InvalidInput`.
    pub async fn resolve(&self, uri: &AgentUri, version: Option<&str>, whose: &str) -> Result<Resolved> {
        self.within((&self.callers, whose), uri, version).await
    }

    /// Where an agent whose endpoint is `uri` is called.
    ///
    /// # Errors
    /// As [`Resolver::resolve`].
    pub async fn locate(&self, uri: &AgentUri) -> Result<Resolved> {
        self.within((&self.agents, &uri.to_string()), uri, None).await
    }

    async fn within(&self, (turns, whose): (&Turns, &str), uri: &AgentUri, version: Option<&str>) -> Result<Resolved> {
        let mut trail = Trail::default();
        let within = async {
            let _turn = turns.take(whose).await?;
            self.walk(uri, version, &mut trail).await
        };
        let time = self.config.timeout;
        let walked = tokio::time::timeout(time.get(), within).await.unwrap_or_else(|_| {
            // Which of the steps was slow is not the caller's to know.
            Err(Fault::new(Code::Timeout, format!("the name could not be resolved within {time}")))
        });
        match walked {
            Ok(place) => {
                let until = trail.until();
                Ok(Resolved::new(uri, place, trail.into_steps(), until))
            }
            Err(fault) => {
                let told = trail.told();
                Err(if told.is_empty() { fault } else { fault.detail(told) })
            }
        }
    }

    /// From name to name, until there is a place.
    async fn walk(&self, uri: &AgentUri, version: Option<&str>, trail: &mut Trail) -> Result<Place> {
        let mut seen = vec![uri.bare()];
        let mut asked = Asked::of(uri, version);
        let told = |trail: &Trail| trail.steps().len() > 1;
        loop {
            let next = match self.lead(&asked, trail).await? {
                Led::To(place) => return Ok(*place),
                Led::Name(next) => next,
            };
            let bare = next.bare();
            if seen.contains(&bare) || seen.len() > HOPS {
                let why = if seen.contains(&bare) { "names lead in a circle" } else { "more than 5 names on the way" };
                trail.explain("name", &bare, Outcome::Unusable, Some(why.to_owned()));
                return Err(Fault::new(Code::AgentError, "the name leads to other names without end"));
            }
            if next.protocol().is_some_and(|protocol| protocol != "https" && protocol != "wss") && told(trail) {
                trail.note("name", &bare, Outcome::Unusable);
                return Err(Fault::new(Code::AgentError, "the name leads to a transport that it may not choose"));
            }
            trail.note("name", &bare, Outcome::Found);
            seen.push(bare);
            let (version, insists) = (asked.version.take(), asked.insists);
            asked = Asked::of(&next, None);
            (asked.version, asked.insists) = (version.or(asked.version), insists);
        }
    }

    /// Where one name leads.
    async fn lead(&self, asked: &Asked, trail: &mut Trail) -> Result<Led> {
        match mapped(&self.map, asked, trail)? {
            Some(Mapped::Led(led)) => return Ok(led),
            Some(Mapped::Descriptor(url, at)) => {
                let led = domain::descriptor(&self.library, &url, (asked, at), trail).await?;
                // The operator has said where to look, so that nowhere else is looked.
                return led.ok_or_else(|| nowhere(trail));
            }
            None => {}
        }
        if let Some(protocol) = asked.uri.protocol() {
            return explicit(&asked.uri, protocol, trail);
        }
        let library = &self.library;
        let home = match asked.uri.authority() {
            Authority::Did(text) => {
                if let Some(led) = did::did(library, text, asked, trail).await? {
                    return Ok(led);
                }
                did::home(text)
            }
            authority => {
                let root = authority.host().and_then(|host| Url::parse(&format!("https://{host}/")).ok());
                let root = root.ok_or_else(|| Fault::new(Code::InvalidInput, "the name's host is no host of a URL"))?;
                if let Some(led) = domain::map(library, &root, asked, trail).await? {
                    return Ok(led);
                }
                Some(did::Home { root, path: Vec::new() })
            }
        };
        let Some(home) = home else { return Err(nowhere(trail)) };
        // Below the path that a DID stands for, as if it were the name's own.
        let mut below = asked.clone();
        below.segments = home.path.iter().chain(&asked.segments).cloned().collect();
        if let Some(led) = domain::beside(library, &home.root, &below, trail).await? {
            return Ok(led);
        }
        if let Some(led) = finger::finger(library, &home.root, asked, trail).await? {
            return Ok(led);
        }
        self.fall_back(&home.root, &below, trail)
    }

    /// R54: what is not published anywhere is called over https where its name says.
    fn fall_back(&self, root: &Url, asked: &Asked, trail: &mut Trail) -> Result<Led> {
        if !self.config.fallback || trail.is_unsure() {
            return Err(nowhere(trail));
        }
        let root = root.as_str().trim_end_matches('/');
        // The name's own words, the version within them too: its server may read it there.
        let endpoint = match asked.uri.authority() {
            Authority::Host { .. } => format!("{root}{}", asked.uri.tail()),
            _ => asked.behind(root, 0).map_err(|why| nowhere(trail).detail(why))?,
        };
        trail.note("https", root, Outcome::Found);
        if asked.insists {
            return Err(Fault::new(Code::NotAcceptable, "the agent does not say which versions it has"));
        }
        Ok(Led::To(Box::new(Place { endpoint, ..Place::default() })))
    }

    /// Until when an answer that asked nobody may be used.
    pub fn usual(&self) -> Instant {
        Instant::now() + self.config.cache.usual.get()
    }
}

/// Nothing was found; whether there is nothing is another question.
#[cold]
fn nowhere(trail: &Trail) -> Fault {
    match trail.is_unsure() {
        true => Fault::new(Code::AgentUnavailable, "the name cannot be resolved now: not everything could be asked"),
        false => Fault::new(Code::NotFound, "the name leads nowhere"),
    }
}
