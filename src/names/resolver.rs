//! The resolver, and the order of its steps (R53, R63): the operator's map, an explicit transport, documents of the
//! domain, DID documents, WebFinger, and https at the name's own host and path.

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

/// Maximum number of names that lead to another name.
const HOPS: usize = 5;

/// Resolves names. There is one for each configuration, with a document cache of its own.
#[derive(Debug)]
pub struct Resolver {
    config: Config,
    network: net::Config,
    map: Vec<(AgentUri, Target)>,
    documents: Library,
    /// Separate limits, so that callers and agents cannot exhaust each other's.
    callers: Turns,
    agents: Turns,
}

impl Resolver {
    /// Creates a resolver that fetches from public addresses, and from those that `policy` lists.
    ///
    /// # Errors
    /// Returns every invalid setting, by its key in the section `names`, or those of `network`.
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
            documents: Library::new(config, client),
            callers: Turns::new(config.max_concurrency),
            agents: Turns::new(config.max_concurrency),
            config: config.clone(),
            network: network.clone(),
        })
    }

    /// Whether the resolver was created with this configuration.
    pub fn is_as(&self, config: &Config, network: &net::Config) -> bool {
        self.config == *config && self.network == *network
    }

    /// Resolves `uri`, in `version` if one is requested. `caller` identifies the caller for the concurrency limit.
    ///
    /// # Errors
    /// `NotFound` if there is no agent, `AgentUnavailable` if a source could not be read, `Timeout`, `AgentError` if
    /// names form a loop, `NotAcceptable` if the agent lacks the version, `Overloaded`, `InvalidInput`.
    pub async fn resolve(&self, uri: &AgentUri, version: Option<&str>, caller: &str) -> Result<Resolved> {
        self.within((&self.callers, caller), uri, version).await
    }

    /// Resolves the endpoint `uri` of an agent.
    ///
    /// # Errors
    /// As [`UriResolver::resolve`].
    pub async fn locate(&self, uri: &AgentUri) -> Result<Resolved> {
        self.within((&self.agents, &uri.to_string()), uri, None).await
    }

    async fn within(
        &self,
        (limiter, caller): (&Turns, &str),
        uri: &AgentUri,
        version: Option<&str>,
    ) -> Result<Resolved> {
        let mut trace = Trail::default();
        let within = async {
            let _turn = limiter.take(caller).await?;
            self.walk(uri, version, &mut trace).await
        };
        let time = self.config.resolution_timeout;
        let walked = tokio::time::timeout(time.get(), within).await.unwrap_or_else(|_| {
            // The message does not say which step was slow: that is internal.
            Err(Fault::new(Code::Timeout, format!("The name could not be resolved within {time}")))
        });
        match walked {
            Ok(place) => {
                let until = trace.until();
                Ok(Resolved::new(uri, place, trace.into_steps(), until))
            }
            Err(fault) => {
                let told = trace.told();
                Err(if told.is_empty() { fault } else { fault.detail(told) })
            }
        }
    }

    /// Follows names until one resolves to an endpoint.
    async fn walk(&self, uri: &AgentUri, version: Option<&str>, trace: &mut Trail) -> Result<Place> {
        let mut seen = vec![uri.bare()];
        let mut request = Asked::of(uri, version);
        let told = |trace: &Trail| trace.steps().len() > 1;
        loop {
            let next = match self.lead(&request, trace).await? {
                Led::To(place) => return Ok(*place),
                Led::Name(next) => next,
            };
            let bare = next.bare();
            if seen.contains(&bare) || seen.len() > HOPS {
                let why = if seen.contains(&bare) { "the names form a loop" } else { "more than 5 names in a row" };
                trace.explain("name", &bare, Outcome::Unusable, Some(why.to_owned()));
                return Err(Fault::new(Code::AgentError, "The name resolves through a loop or too many other names"));
            }
            if next.protocol().is_some_and(|protocol| protocol != "https" && protocol != "wss") && told(trace) {
                trace.note("name", &bare, Outcome::Unusable);
                return Err(Fault::new(Code::AgentError, "The name resolves to a transport documents may not choose"));
            }
            trace.note("name", &bare, Outcome::Found);
            seen.push(bare);
            let (version, insists) = (request.version.take(), request.insists);
            request = Asked::of(&next, None);
            (request.version, request.insists) = (version.or(request.version), insists);
        }
    }

    /// Resolves one name by one step.
    async fn lead(&self, request: &Asked, trace: &mut Trail) -> Result<Led> {
        match mapped(&self.map, request, trace)? {
            Some(Mapped::Led(step)) => return Ok(step),
            Some(Mapped::Descriptor(url, at)) => {
                let step = domain::descriptor(&self.documents, &url, (request, at), trace).await?;
                // The operator's entry is final: no other step is tried.
                return step.ok_or_else(|| nowhere(trace));
            }
            None => {}
        }
        if let Some(protocol) = request.uri.protocol() {
            return explicit(&request.uri, protocol, trace);
        }
        let documents = &self.documents;
        let home = match request.uri.authority() {
            Authority::Did(text) => {
                if let Some(step) = did::did(documents, text, request, trace).await? {
                    return Ok(step);
                }
                did::home(text)
            }
            authority => {
                let root = authority.host().and_then(|host| Url::parse(&format!("https://{host}/")).ok());
                let root =
                    root.ok_or_else(|| Fault::new(Code::InvalidInput, "The name's host is not valid in a URL"))?;
                if let Some(step) = domain::map(documents, &root, request, trace).await? {
                    return Ok(step);
                }
                Some(did::Home { root, path: Vec::new() })
            }
        };
        let Some(home) = home else { return Err(nowhere(trace)) };
        // The path of a DID is a prefix of the name's path.
        let mut below = request.clone();
        below.segments = home.path.iter().chain(&request.segments).cloned().collect();
        if let Some(step) = domain::beside(documents, &home.root, &below, trace).await? {
            return Ok(step);
        }
        if let Some(step) = finger::finger(documents, &home.root, request, trace).await? {
            return Ok(step);
        }
        self.fall_back(&home.root, &below, trace)
    }

    /// Falls back to https at the name's own host and path, if nothing is published (R54).
    fn fall_back(&self, root: &Url, request: &Asked, trace: &mut Trail) -> Result<Led> {
        if !self.config.https_fallback || trace.is_unsure() {
            return Err(nowhere(trace));
        }
        let root = root.as_str().trim_end_matches('/');
        // The path is kept as written, including its version: the agent's server may read it.
        let endpoint = match request.uri.authority() {
            Authority::Host { .. } => format!("{root}{}", request.uri.tail()),
            _ => request.behind(root, 0).map_err(|why| nowhere(trace).detail(why))?,
        };
        trace.note("https", root, Outcome::Found);
        if request.insists {
            return Err(Fault::new(Code::NotAcceptable, "The agent does not list its versions"));
        }
        Ok(Led::To(Box::new(Place { endpoint, ..Place::default() })))
    }

    /// Returns the expiry of a result for which no document was fetched.
    pub fn usual(&self) -> Instant {
        Instant::now() + self.config.cache.default_ttl.get()
    }
}

/// Builds the fault of a name without result; it tells "no agent" from "a source could not be read".
#[cold]
fn nowhere(trace: &Trail) -> Fault {
    match trace.is_unsure() {
        true => Fault::new(Code::AgentUnavailable, "The name cannot be resolved now: a source did not respond"),
        false => Fault::new(Code::NotFound, "The name does not resolve to an agent"),
    }
}
