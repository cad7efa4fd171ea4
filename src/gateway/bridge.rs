//! Which agents are offered on which brokers, and the calls that their tasks ask for: errands with the bridge's own key,
//! so that its grants, limits and log are those of any caller. What is offered follows the catalogue and the
//! configuration. The protocol is `bridge`'s.

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

/// How often it is looked whether what may be offered has changed, besides whenever the catalogue has.
const LOOK: Duration = Duration::from_secs(5);
/// How long tasks in hand may take when an agent is offered no longer and the gateway goes on.
const LINGER: Duration = Duration::from_secs(30);
/// What is left of a stop for saying good-bye, after tasks in hand had their time.
const GOODBYE: Duration = Duration::from_secs(2);

type Offers = Arc<Vec<Arc<Offer>>>;
/// A broker, and an agent there.
type Place = (String, String);

/// The agents that are offered on brokers.
pub struct Bridge {
    gateway: Arc<Gateway>,
    offers: watch::Sender<Option<Offers>>,
    linger: watch::Sender<Duration>,
    task: Mutex<Option<JoinHandle<()>>>,
}

impl Bridge {
    /// A bridge that offers nothing until it begins.
    pub fn new(gateway: &Arc<Gateway>, offers: Vec<Offer>) -> Self {
        let offers = watch::channel(Some(Arc::new(offers.into_iter().map(Arc::new).collect()))).0;
        Self { gateway: Arc::clone(gateway), offers, linger: watch::channel(LINGER).0, task: Mutex::default() }
    }

    /// Offers, from now on; needs a tokio runtime.
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

    /// Offers this instead. What stays the same goes on undisturbed.
    pub fn offer(&self, offers: Vec<Offer>) {
        self.offers.send_modify(|before| {
            let before = before.get_or_insert_default();
            let same = |offer: &Arc<Offer>| before.iter().find(|known| **known == *offer).cloned();
            let offers: Vec<Arc<Offer>> =
                offers.into_iter().map(Arc::new).map(|offer| same(&offer).unwrap_or(offer)).collect();
            *before = Arc::new(offers);
        });
    }

    /// Takes every offer back; tasks in hand may take `linger` to finish (R119).
    pub async fn stop(&self, linger: Duration) {
        self.linger.send_replace(linger);
        self.offers.send_replace(None);
        let task = self.task.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(mut task) = task else { return };
        if tokio::time::timeout(linger + GOODBYE, &mut task).await.is_err() {
            // Their connections break, and the last wills are carried out.
            task.abort();
        }
    }
}

/// Whoever is present now.
struct Desk {
    gateway: Arc<Gateway>,
    linger: watch::Receiver<Duration>,
    present: HashMap<Place, Present>,
    tasks: JoinSet<()>,
    /// What was logged of each broker last, so that it is not logged again and again.
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
                // The catalogue lives as long as the gateway does.
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
            tracing::error!("an agent's presence on a broker failed in a way that is a defect of the gateway ({why})");
        }
        self.present.retain(|_, present| present.task != id);
    }

    /// Makes whoever is present whoever should be.
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
                        // Whoever was told to leave leaves, and may come again afterwards.
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

    /// Logs what keeps agents of this broker from being offered, whenever that is something else than before.
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

    /// The agents of one offer that pass: in the catalogue, active, within what its key may call (R118).
    async fn offered(&self, world: &World, offer: &Offer) -> (Vec<(String, Arc<Card>)>, Option<String>) {
        let headers = credentials(world, &offer.key);
        let presented = Presented { headers: &headers, peer: None };
        let caller = match world.auth.visit(&presented, false).await {
            Ok(caller) => caller,
            Err(fault) => {
                return (Vec::new(), Some(format!("no agent is offered, for the key of the bridge: {fault}")));
            }
        };
        let snapshot = self.gateway.catalogue.snapshot();
        let fits = |route: &&Arc<Route>| {
            let id = route.agent.id.as_str();
            offer.config.agents.iter().any(|glob| glob.matches(id)) && may(world, &caller, route)
        };
        let mut routes: Vec<&Arc<Route>> = snapshot.iter().map(|(_, route)| route).filter(fits).collect();
        routes.sort_unstable_by_key(|route| route.agent.id.as_str());
        let (could, most) = (routes.len(), usize::from(offer.config.most.get()));
        let trouble = (could > most).then(|| format!("{could} agents could be offered, and {most} are"));
        let offered = routes.into_iter().take(most).map(|route| (route.agent.id.to_string(), Arc::new(card(route))));
        (offered.collect(), trouble)
    }
}

/// Whether the agent is served, is not reached over a broker already, and is one that the caller may call.
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

/// What the bridge shows of itself.
fn credentials(world: &World, key: &Secret) -> HeaderMap {
    let mut headers = HeaderMap::new();
    let name = world.key_header.clone().unwrap_or(HeaderName::from_static("x-api-key"));
    if let Ok(mut value) = HeaderValue::from_str(key.expose()) {
        value.set_sensitive(true);
        headers.insert(name, value);
    }
    headers
}

/// The calls for one key.
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
        // An instruction that is the name of an operation asks for that one: so gateways put it into envelopes.
        let names =
            |name: &&str| self.gateway.catalogue.load().get(agent).is_some_and(|route| route.named(name).is_some());
        let operation = instruction.filter(names);
        let instruction = instruction.filter(|_| operation.is_none());
        let errand = Errand { shown, passage, id: Some(task), agent, operation, input, instruction, until: None };
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

/// An answer as one JSON text: JSON as it is, other text as a string, nothing as null.
fn text(body: &[u8]) -> Result<String> {
    let text = std::str::from_utf8(body);
    let text = text.map_err(|why| Fault::new(Code::AgentError, "the agent's answer is no text").detail(why))?;
    Ok(match json::read(body, json::DEEPEST) {
        Ok(_) => text.to_owned(),
        Err(_) if text.trim().is_empty() => "null".to_owned(),
        Err(_) => serde_json::Value::from(text).to_string(),
    })
}
