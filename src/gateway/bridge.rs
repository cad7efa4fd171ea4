//! The agents on the MQTT bridge: which agents are announced on which brokers, and the calls of their tasks. The calls
//! are subrequests with the bridge's API key, so that grants, limits and log apply as for any caller. The announced
//! agents follow the catalogue and the configuration. `mqtt_bridge` implements the protocol.

use super::{Gateway, World, admit::Shown, errand::Errand, local::lets, route::Route};
use crate::{
    agent::{Endpoint, Status},
    auth::{Caller, Presented},
    bridge::{self, Card, House, Offer, Presence},
    fault::{Code, Fault, Result},
    transport::Passage,
    unit::{Secret, json},
};
use http::{HeaderMap, HeaderName, HeaderValue};
use std::{
    collections::HashMap,
    net::{IpAddr, Ipv4Addr},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};
use tokio::{
    sync::watch,
    task::{Id, JoinHandle, JoinSet},
};

/// The reconcile interval; a change of the catalogue reconciles at once.
const LOOK: Duration = Duration::from_secs(5);
/// How long running tasks may take when an agent is withdrawn and the gateway keeps running.
const LINGER: Duration = Duration::from_secs(30);
/// The part of a shutdown that remains for MQTT disconnects after running tasks had their time.
const GOODBYE: Duration = Duration::from_secs(2);

type Offers = Arc<Vec<Arc<Offer>>>;
/// A broker, and an agent on it.
type Place = (String, String);

/// Announces agents on MQTT brokers.
pub struct Bridge {
    gateway: Arc<Gateway>,
    offers: watch::Sender<Option<Offers>>,
    linger: watch::Sender<Duration>,
    task: Mutex<Option<JoinHandle<()>>>,
}

impl Bridge {
    /// Creates a bridge that announces no agents until it is started.
    pub fn new(gateway: &Arc<Gateway>, offers: Vec<Offer>) -> Self {
        let offers = watch::channel(Some(Arc::new(offers.into_iter().map(Arc::new).collect()))).0;
        Self { gateway: Arc::clone(gateway), offers, linger: watch::channel(LINGER).0, task: Mutex::default() }
    }

    /// Starts the bridge; needs a tokio runtime.
    pub fn begin(&self) {
        let desk = Desk {
            gateway: Arc::clone(&self.gateway),
            linger: self.linger.subscribe(),
            present: HashMap::new(),
            tasks: JoinSet::new(),
            told: HashMap::new(),
        };
        let task = tokio::spawn(desk.run(self.offers.subscribe()));
        *self.task.lock().unwrap_or_else(PoisonError::into_inner) = Some(task);
    }

    /// Replaces the offers. Agents whose offer has not changed stay connected.
    pub fn offer(&self, offers: Vec<Offer>) {
        self.offers.send_modify(|before| {
            let before = before.get_or_insert_default();
            let same = |offer: &Arc<Offer>| before.iter().find(|known| **known == *offer).cloned();
            let offers: Vec<Arc<Offer>> =
                offers.into_iter().map(Arc::new).map(|offer| same(&offer).unwrap_or(offer)).collect();
            *before = Arc::new(offers);
        });
    }

    /// Withdraws every agent; running tasks may take `linger` to finish (R119).
    pub async fn stop(&self, linger: Duration) {
        self.linger.send_replace(linger);
        self.offers.send_replace(None);
        let task = self.task.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(mut task) = task else { return };
        if tokio::time::timeout(linger + GOODBYE, &mut task).await.is_err() {
            // Aborting drops the connections, so that the brokers publish the last wills.
            task.abort();
        }
    }
}

/// The background task that reconciles the agents on the brokers with the offers.
struct Desk {
    gateway: Arc<Gateway>,
    linger: watch::Receiver<Duration>,
    present: HashMap<Place, Present>,
    tasks: JoinSet<()>,
    /// The problem that was logged last for each broker, so that it is logged once.
    told: HashMap<String, String>,
}

struct Present {
    offer: Arc<Offer>,
    card: watch::Sender<Option<Arc<Card>>>,
    task: Id,
}

impl Desk {
    async fn run(mut self, mut offers: watch::Receiver<Option<Offers>>) {
        let mut changed = self.gateway.catalogue.changed();
        loop {
            let wanted = offers.borrow_and_update().clone();
            let Some(wanted) = wanted else { break };
            changed.mark_unchanged();
            self.follow(&wanted).await;
            tokio::select! {
                changed = offers.changed() => if changed.is_err() { break },
                // The catalogue lives as long as the gateway; its channel never closes.
                _ = changed.changed() => {}
                Some(gone) = self.tasks.join_next_with_id() => self.gone(gone),
                () = tokio::time::sleep(LOOK) => {}
            }
        }
        self.present.values().for_each(|present| drop(present.card.send_replace(None)));
        while let Some(gone) = self.tasks.join_next_with_id().await {
            self.gone(gone);
        }
    }

    fn gone(&mut self, gone: std::result::Result<(Id, ()), tokio::task::JoinError>) {
        let id = gone.as_ref().map_or_else(tokio::task::JoinError::id, |(id, ())| *id);
        if let Err(why) = gone {
            tracing::error!("MQTT presence task failed: {why} (this is a defect of the gateway)");
        }
        self.present.retain(|_, present| present.task != id);
    }

    /// Announces the agents that belong on the brokers and withdraws the others.
    async fn follow(&mut self, offers: &Offers) {
        let mut wanted: HashMap<Place, (Arc<Offer>, Arc<Card>)> = HashMap::new();
        let world = self.gateway.world.load_full();
        for offer in offers.iter() {
            let (offered, trouble) = self.offered(&world, offer).await;
            self.tell(offer.address.base(), trouble);
            for (agent, card) in offered {
                wanted.entry((offer.address.base(), agent)).or_insert_with(|| (Arc::clone(offer), card));
            }
        }
        for (place, present) in &self.present {
            match wanted.remove(place) {
                Some((offer, card)) if Arc::ptr_eq(&offer, &present.offer) => {
                    present.card.send_if_modified(|known| {
                        // An agent that was told to leave leaves first, and is announced again afterwards.
                        let news = known.as_ref().is_some_and(|known| *known != card);
                        if news {
                            *known = Some(card);
                        }
                        news
                    });
                }
                _ => drop(present.card.send_if_modified(|card| card.take().is_some())),
            }
        }
        for ((base, agent), (offer, card)) in wanted {
            let (card, cards) = watch::channel(Some(card));
            let house = Arc::new(Calls { gateway: Arc::clone(&self.gateway), key: offer.key.clone() });
            let linger = self.linger.clone();
            let presence = Presence { agent: agent.clone(), offer: Arc::clone(&offer), house, card: cards, linger };
            let task = self.tasks.spawn(presence.keep()).id();
            self.present.insert((base, agent), Present { offer, card, task });
        }
    }

    /// Logs the problem of a broker's offer, if it differs from the one that was logged last.
    fn tell(&mut self, broker: String, trouble: Option<String>) {
        match trouble {
            None => drop(self.told.remove(&broker)),
            Some(trouble) if self.told.get(&broker) != Some(&trouble) => {
                tracing::warn!(broker, "{trouble}");
                self.told.insert(broker, trouble);
            }
            Some(_) => {}
        }
    }

    /// Returns the agents of one offer: in the catalogue, active, and granted to the bridge's key (R118); and a
    /// problem.
    async fn offered(&self, world: &World, offer: &Offer) -> (Vec<(String, Arc<Card>)>, Option<String>) {
        let headers = credentials(world, &offer.key);
        let presented = Presented { headers: &headers, peer: None };
        let caller = match world.auth.visit(&presented, false).await {
            Ok(caller) => caller,
            Err(fault) => {
                return (Vec::new(), Some(format!("MQTT bridge announces no agents: its API key failed: {fault}")));
            }
        };
        let snapshot = self.gateway.catalogue.snapshot();
        let fits = |route: &&Arc<Route>| {
            let id = route.agent.id.as_str();
            offer.config.agents.iter().any(|glob| glob.matches(id)) && may(world, &caller, route)
        };
        let mut routes: Vec<&Arc<Route>> = snapshot.iter().map(|(_, route)| route).filter(fits).collect();
        routes.sort_unstable_by_key(|route| route.agent.id.as_str());
        let (could, most) = (routes.len(), usize::from(offer.config.max_agents.get()));
        let trouble = (could > most)
            .then(|| format!("MQTT bridge announces only {most} of {could} agents: limit reached (raise the limit)"));
        let offered = routes.into_iter().take(most).map(|route| (route.agent.id.to_string(), Arc::new(card(route))));
        (offered.collect(), trouble)
    }
}

/// Returns whether the agent is active, is not itself reached over a broker, and may be called by the caller.
fn may(world: &World, caller: &Caller, route: &Route) -> bool {
    let agent = &route.agent;
    agent.status != Status::Inactive && !matches!(agent.endpoint, Endpoint::Mqtt(_)) && lets(&world.auth, caller, route)
}

fn card(route: &Route) -> Card {
    let agent = &route.agent;
    Card {
        description: json::cut(&agent.description, 1_000),
        capabilities: agent.capabilities.iter().take(100).map(ToString::to_string).collect(),
    }
}

/// Returns the header with the bridge's API key.
fn credentials(world: &World, key: &Secret) -> HeaderMap {
    let mut headers = HeaderMap::new();
    let name = world.key_header.clone().unwrap_or(HeaderName::from_static("x-api-key"));
    if let Ok(mut value) = HeaderValue::from_str(key.expose()) {
        value.set_sensitive(true);
        headers.insert(name, value);
    }
    headers
}

/// Makes the calls of one bridge key.
struct Calls {
    gateway: Arc<Gateway>,
    key: Secret,
}

#[async_trait::async_trait]
impl House for Calls {
    async fn call(&self, asked: bridge::Asked<'_>) -> Result<String> {
        let bridge::Asked { agent, task, instruction, input } = asked;
        let world = self.gateway.world.load_full();
        let headers = credentials(&world, &self.key);
        let address = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let passage = Passage { key_header: world.key_header.as_ref(), ..Passage::default() };
        let shown = Shown { headers: &headers, peer: None, address };
        // An instruction that is the name of an operation selects that operation: gateways write it into envelopes so.
        let names =
            |name: &&str| self.gateway.catalogue.load().get(agent).is_some_and(|route| route.named(name).is_some());
        let operation = instruction.filter(names);
        let instruction = instruction.filter(|_| operation.is_none());
        let errand =
            Errand { shown, passage, id: Some(task), part: false, agent, operation, input, instruction, until: None };
        text(&self.gateway.whole_errand(&world, errand).await?.body)
    }

    async fn reaches(&self, agent: &str) -> bool {
        let route = self.gateway.catalogue.load().get(agent).cloned();
        match route {
            Some(route) => self.gateway.transport.reaches(&route.way).await,
            None => false,
        }
    }
}

/// Returns an answer as one JSON text: JSON unchanged, other text as a string, an empty answer as null.
fn text(body: &[u8]) -> Result<String> {
    let text = std::str::from_utf8(body);
    let text = text.map_err(|why| Fault::new(Code::AgentError, "The agent's answer is not text").detail(why))?;
    Ok(match json::read(body, json::DEEPEST) {
        Ok(_) => text.to_owned(),
        Err(_) if text.trim().is_empty() => "null".to_owned(),
        Err(_) => serde_json::Value::from(text).to_string(),
    })
}
