//! Agents over MQTT (2389 Agent Protocol): a call becomes a task envelope on the agent's input topic, and the reply
//! arrives on a conversation topic with an unguessable name (R110–R112, R115). Agents of one broker share a connection.
//! A task is published once: if the connection is lost, the task's outcome is unknown, and the call is not retried.

mod answer;
mod desk;
mod envelope;
mod events;
mod link;
mod session;
mod way;

use super::{
    Way,
    settings::{Bounds, MqttLogin, Settings, Tls},
};
use crate::{
    agent::{Agent, AgentId},
    broker::Address,
    net::AddressPolicy,
    unit::{SecretRef, Span},
};
use arc_swap::ArcSwap;
use envelope::agent_of;
use http::Uri;
use link::Link;
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError, Weak},
    time::Duration,
};
use tokio::sync::watch;
use way::Task;

/// The key of a broker connection: agents with equal keys share it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Key {
    address: Address,
    username: Option<SecretRef>,
    password: Option<SecretRef>,
    tls: Option<Tls>,
    keep_alive: Duration,
    /// The timeout of each step of connecting.
    patience: Duration,
}

/// The address policy in force, with notifications of changes.
#[derive(Debug)]
struct Policy {
    now: ArcSwap<AddressPolicy>,
    changed: watch::Sender<()>,
}

/// All connections to brokers. It outlives every configuration, and so do connections that an upstream set still uses.
#[derive(Debug)]
pub(super) struct Mqtt {
    policy: Arc<Policy>,
    links: Mutex<HashMap<Key, Weak<Link>>>,
}

impl Mqtt {
    pub(super) fn new(policy: Arc<AddressPolicy>) -> Arc<Self> {
        let policy = Arc::new(Policy { now: ArcSwap::new(policy), changed: watch::channel(()).0 });
        Arc::new(Self { policy, links: Mutex::default() })
    }

    /// Replaces the address policy. Connections opened under the old one serve no further call.
    pub(super) fn set_policy(&self, policy: Arc<AddressPolicy>) {
        self.policy.now.store(policy);
        self.policy.changed.send_replace(());
    }

    /// Builds the transport to the agent whose input topic is the path of `at`. Connects at the first call.
    pub(super) fn way(&self, at: &Uri, agent: &Agent, settings: &Settings) -> Result<Arc<dyn Way>, Vec<String>> {
        let mut problems = problems(settings);
        let address = address(at, settings).map_err(|why| problems.push(why)).ok();
        let named = agent_of(at.path()).filter(|id| AgentId::fits(id));
        if named.is_none() {
            // R107, R108: a message on another topic would not be a task, and could be something else.
            problems
                .push("endpoint: does not end with the input topic of an agent (/control/agents/id/input)".to_owned());
        }
        let (Some(address), Some(named), true) = (address, named, problems.is_empty()) else { return Err(problems) };
        let bounds = Bounds::from(&settings.timeouts);
        let login = settings.mqtt.clone();
        let key = Key {
            tls: address.secure.then(|| settings.tls.clone()),
            address,
            username: login.username,
            password: login.password,
            keep_alive: login.keep_alive.unwrap_or(KEEP_ALIVE).get(),
            patience: bounds.connect,
        };
        Ok(Arc::new(Task::new(named, agent, (self.link(key), bounds))))
    }

    fn link(&self, key: Key) -> Arc<Link> {
        let mut links = self.links.lock().unwrap_or_else(PoisonError::into_inner);
        links.retain(|_, link| link.strong_count() > 0);
        if let Some(link) = links.get(&key).and_then(Weak::upgrade) {
            return link;
        }
        let link = Arc::new(Link::new(key.clone(), Arc::clone(&self.policy)));
        links.insert(key, Arc::downgrade(&link));
        link
    }
}

/// The default keep-alive interval, after which an idle connection is probed with a ping.
const KEEP_ALIVE: Span = Span::secs(30);

/// Returns the values of `settings` that cannot be used, for any agent. Reads the secrets that are named.
pub(super) fn problems(settings: &Settings) -> Vec<String> {
    let MqttLogin { username, password, keep_alive } = &settings.mqtt;
    let mut problems = Vec::new();
    if password.is_some() && username.is_none() {
        problems.push("mqtt.password: needs mqtt.username".to_owned());
    }
    for (name, secret) in [("username", username), ("password", password)] {
        let unusable = secret.as_ref().and_then(|secret| secret.load().err());
        problems.extend(unusable.map(|why| format!("mqtt.{name}: {why}")));
    }
    if let Some(span) = keep_alive.filter(|span| !(Span::secs(1)..=Span::secs(600)).contains(span)) {
        problems.push(format!("mqtt.keep_alive: is {span} (must be 1s to 10m)"));
    }
    problems
}

/// Returns the broker's address. Plain text beyond this machine is refused unless the configuration allows it.
fn address(at: &Uri, settings: &Settings) -> Result<Address, String> {
    let host = at.host().ok_or("endpoint: cannot be called (it has no host)")?;
    let address = Address::new(at.scheme_str() == Some("mqtts"), host, at.port_u16());
    match address.secure || address.is_this_machine() || settings.allow_plaintext == Some(true) {
        true => Ok(address),
        false => {
            Err("endpoint: is plain mqtt beyond this machine (use mqtts, or set insecure_plaintext: true)".to_owned())
        }
    }
}

#[cfg(test)]
mod tests;
