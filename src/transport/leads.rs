//! Compiles an agent's record and its settings into an upstream set, when the record is read. Circuit breakers
//! outlive the upstream sets that use them.

use super::{
    Settings, Transport,
    breaker::{Breaker, Rules},
    ends::{End, Lead, Route},
    named, websocket,
};
use crate::agent::{Agent, Endpoint};
use std::{
    collections::{BTreeSet, HashMap},
    sync::{Arc, PoisonError, Weak},
};

/// The maximum number of additional endpoints of an agent.
const MOST_FURTHER: usize = 15;

/// The circuit breakers of all endpoints, by agent and address. Entries that no upstream set uses are removed when the
/// map has twice the size it had after the last cleanup.
#[derive(Debug, Default)]
pub(super) struct Breakers {
    pub(super) known: HashMap<Box<str>, Weak<Breaker>>,
    sweep_at: usize,
}

impl Transport {
    /// Compiles the upstream set of `agent`. Reads the files and secrets that `settings` name.
    ///
    /// # Errors
    /// Every reason why the agent cannot be called as configured, each prefixed with its field.
    pub fn route(&self, agent: &Agent, settings: &Settings) -> Result<Route, Vec<String>> {
        let mut problems = Vec::new();
        let rules = Rules::of(&settings.circuit_breaker).map_err(|whys| problems.extend(whys)).ok();
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

    /// Builds the transport to `agent`'s primary endpoint.
    pub(super) fn lead(&self, agent: &Agent, settings: &Settings) -> Result<Lead, Vec<String>> {
        match &agent.endpoint {
            Endpoint::Http(_) | Endpoint::Unix { .. } => self.http.target(agent, settings).map(Lead::Http),
            Endpoint::WebSocket(_) => websocket::way(&self.http, agent, settings).map(Lead::Other),
            Endpoint::Mqtt(at) => self.mqtt.way(at, agent, settings).map(Lead::Other),
            Endpoint::Matrix(address) => self.matrix.way(address, settings).map(Lead::Other),
            Endpoint::Local(name) => self.local.way(name, settings).map(Lead::Other),
            Endpoint::Name(uri) => {
                let problems = self.check(settings);
                let named = || Lead::Other(named::Named::new(uri, agent, settings, self));
                if problems.is_empty() { Ok(named()) } else { Err(problems) }
            }
        }
    }

    /// Returns the circuit breaker of one agent's endpoint. The key contains the agent, because another agent at the
    /// same address has other timeouts.
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
}

/// Parses the additional endpoints that `settings` name for the agent `id`.
pub(super) fn further(settings: &Settings, id: &str) -> Result<Vec<Endpoint>, Vec<String>> {
    let texts = settings.additional_endpoints.as_deref().unwrap_or_default();
    if texts.len() > MOST_FURTHER {
        return Err(vec![format!("endpoints: has {} entries (at most {MOST_FURTHER})", texts.len())]);
    }
    let (mut seen, mut endpoints, mut problems) = (BTreeSet::new(), Vec::new(), Vec::new());
    for (at, text) in texts.iter().enumerate() {
        match text.replace("{id}", id).parse::<Endpoint>() {
            Ok(endpoint) if seen.insert(endpoint.to_string()) => endpoints.push(endpoint),
            Ok(_) => problems.push(format!("endpoints[{at}]: is a duplicate (list each endpoint once)")),
            Err(why) => problems.push(format!("endpoints[{at}]: {why}")),
        }
    }
    if problems.is_empty() { Ok(endpoints) } else { Err(problems) }
}
