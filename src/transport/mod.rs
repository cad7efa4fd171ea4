//! The one way out: how an agent is reached. It strips the caller's credentials, adds the gateway's,
//! keeps the call within its time, and tries again only where that is safe.
//! It decides nothing about who may call, and writes no answer.
//!
//! A kind of transport is a folder here, an implementation of [`Way`] and an arm of [`Transport::lead`]; HTTP alone is
//! a variant of [`Lead`], so that it costs no allocation.

mod body;
mod breaker;
mod ends;
mod headers;
mod http;
mod mqtt;
mod reply;
mod session;
mod settings;
mod way;

pub use self::http::Target;
pub use body::{Body, Closed, Feed, Intake};
pub use breaker::Standing;
pub use ends::{Lead, Route};
pub use headers::{Passage, incoming_headers};
pub use reply::{Beginning, Reply, ReplyBody};
pub use session::hash;
pub use settings::{Bounds, BreakerSettings, Credential, Settings, Timeouts, Tls};
pub use way::Way;

use self::{
    breaker::{Breaker, Rules},
    ends::End,
    http::Http,
};
use crate::{
    agent::{Agent, Endpoint},
    fault::Fault,
    net::AddressPolicy,
};
use ::http::{HeaderMap, Method, uri::PathAndQuery};
use std::{
    collections::{BTreeSet, HashMap},
    sync::{Arc, Mutex, PoisonError, Weak},
};
use tokio::time::Instant;

/// The proof that a call was admitted. `gateway` has the one type that implements it and the one
/// function that makes it, so what was not admitted cannot be sent.
pub trait Admission: Sync {
    /// Where the call goes.
    fn route(&self) -> &Route;

    /// When its time is over, all tries together.
    fn deadline(&self) -> Instant;

    /// What stands for the caller's session, where it has one: its calls go to one endpoint. See [`hash`].
    fn session(&self) -> Option<u64> {
        None
    }
}

/// A call for an agent.
#[derive(Debug)]
pub struct Request<'a> {
    /// The call's id, for peers that take it elsewhere than in a field.
    pub id: &'a str,
    /// The operation's name; empty for the implied one.
    pub operation: &'a str,
    /// The method.
    pub method: Method,
    /// Path and query, where they are not those of the agent's endpoint.
    pub path: Option<PathAndQuery>,
    /// The caller's fields as they came; what may not pass is left out here.
    pub headers: &'a HeaderMap,
    /// The body.
    pub body: Body,
    /// What the agent is told about the caller.
    pub passage: Passage<'a>,
}

/// Further endpoints that an agent may have.
const MOST_FURTHER: usize = 15;

/// Every connection to agents. One for the life of the process: routes made under another
/// configuration share its pools, and what is known of their endpoints.
#[derive(Clone, Debug)]
pub struct Transport {
    http: Arc<Http>,
    breakers: Arc<Mutex<Breakers>>,
}

/// What is known of the endpoints that any route leads to, by agent and address. What none leads to any more is
/// forgotten when there are twice as many as were needed.
#[derive(Debug, Default)]
struct Breakers {
    known: HashMap<Box<str>, Weak<Breaker>>,
    sweep_at: usize,
}

impl Transport {
    /// A transport that reaches what `policy` permits. Needs a tokio runtime, in which it keeps house.
    pub fn new(policy: Arc<AddressPolicy>) -> Self {
        Self { http: Http::new(policy), breakers: Arc::default() }
    }

    /// Puts another policy in force; connections made under the old one are not used for another call.
    pub fn set_policy(&self, policy: Arc<AddressPolicy>) {
        self.http.set_policy(policy);
    }

    /// Works out how `agent` is reached. Reads the files and secrets that `settings` name.
    ///
    /// # Errors
    /// Every reason why it cannot be reached like this, each with its field.
    pub fn route(&self, agent: &Agent, settings: &Settings) -> Result<Route, Vec<String>> {
        let mut problems = Vec::new();
        let rules = Rules::of(&settings.breaker).map_err(|whys| problems.extend(whys)).ok();
        let first = self.end(agent, settings).map_err(|whys| problems.extend(whys)).ok();
        let mut ends = Vec::new();
        for endpoint in further(settings, agent.id.as_str()).unwrap_or_else(|whys| {
            problems.extend(whys);
            Vec::new()
        }) {
            if endpoint == agent.endpoint {
                continue;
            }
            let within = |why: String| format!("endpoints: {endpoint}: {why}");
            match self.end(&agent.at(endpoint.clone()), settings) {
                Ok(end) => ends.push(end),
                Err(whys) => problems.extend(whys.into_iter().map(within)),
            }
        }
        match (first, rules) {
            (Some(first), Some(rules)) if problems.is_empty() => Ok(Route::new(&agent.id, (first, ends), rules)),
            _ => Err(problems),
        }
    }

    fn end(&self, agent: &Agent, settings: &Settings) -> Result<End, Vec<String>> {
        let name: Box<str> = agent.endpoint.to_string().into();
        Ok(End { lead: self.lead(agent, settings)?, breaker: self.breaker(agent, &name), name })
    }

    fn lead(&self, agent: &Agent, settings: &Settings) -> Result<Lead, Vec<String>> {
        match &agent.endpoint {
            Endpoint::Http(_) | Endpoint::Unix { .. } => self.http.target(agent, settings).map(Lead::Http),
            Endpoint::Mqtt(_) => Ok(Lead::Other(mqtt::unsupported(settings))),
        }
    }

    /// The breaker of one agent's endpoint: another agent at the same address has other bounds.
    fn breaker(&self, agent: &Agent, name: &str) -> Arc<Breaker> {
        let mut breakers = self.breakers.lock().unwrap_or_else(PoisonError::into_inner);
        let key = format!("{} {name}", agent.id).into_boxed_str();
        if let Some(breaker) = breakers.known.get(&key).and_then(Weak::upgrade) {
            return breaker;
        }
        if breakers.known.len() >= breakers.sweep_at {
            breakers.known.retain(|_, breaker| breaker.strong_count() > 0);
            breakers.sweep_at = (breakers.known.len() * 2).max(64);
        }
        let breaker = Arc::new(Breaker::new());
        breakers.known.insert(key, Arc::downgrade(&breaker));
        breaker
    }

    /// What keeps `settings` from being used for any agent: files and secrets that are not there.
    pub fn check(&self, settings: &Settings) -> Vec<String> {
        let mut problems = http::problems(settings);
        problems.extend(Rules::of(&settings.breaker).err().unwrap_or_default());
        problems.extend(further(settings, "id").err().unwrap_or_default());
        problems
    }

    /// Makes the call and waits for the head of the answer.
    ///
    /// # Errors
    /// The agent cannot be reached, does not answer in time, or does not speak HTTP; or it has failed so often that
    /// it is left alone.
    pub async fn call(&self, admitted: &impl Admission, request: Request<'_>) -> Result<Reply, Fault> {
        self.at_ends(admitted.route(), request, admitted.session(), admitted.deadline()).await
    }

    /// Connections to agents that no call is using.
    pub fn idle(&self) -> usize {
        self.http.idle()
    }
}

/// The further endpoints that `settings` name for the agent `id`.
fn further(settings: &Settings, id: &str) -> Result<Vec<Endpoint>, Vec<String>> {
    let texts = settings.endpoints.as_deref().unwrap_or_default();
    if texts.len() > MOST_FURTHER {
        return Err(vec![format!("endpoints: there are {} (at most {MOST_FURTHER})", texts.len())]);
    }
    let (mut seen, mut endpoints, mut problems) = (BTreeSet::new(), Vec::new(), Vec::new());
    for (at, text) in texts.iter().enumerate() {
        match text.replace("{id}", id).parse::<Endpoint>() {
            Ok(endpoint) if seen.insert(endpoint.to_string()) => endpoints.push(endpoint),
            Ok(_) => problems.push(format!("endpoints[{at}]: stands there twice")),
            Err(why) => problems.push(format!("endpoints[{at}]: {why}")),
        }
    }
    if problems.is_empty() { Ok(endpoints) } else { Err(problems) }
}

#[cfg(test)]
mod tests;
