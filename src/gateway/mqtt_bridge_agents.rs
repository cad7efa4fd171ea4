//! The agents on the MQTT bridge: which agents are announced on which brokers, and the calls of their tasks. The calls
//! are subrequests with the bridge's API key, so that grants, limits and log apply as for any caller. The announced
//! agents follow the catalogue and the configuration. `mqtt_bridge` implements the protocol.

use super::{
    ConfigSnapshot, Gateway, admission::CallerContext, directory_handler::may_call, route::Route,
    subrequest::Subrequest,
};
use crate::{
    agent::{AgentEndpoint, AgentStatus},
    auth::{Caller, PresentedCredentials},
    fault::{Fault, FaultCode, Result},
    mqtt_bridge::{self, AgentInvoker, AgentPresence, ResolvedBridgeConfig, StatusDetails},
    transport::HeaderMutations,
    values::{Secret, json},
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
const RECONCILE_INTERVAL: Duration = Duration::from_secs(5);
/// How long running tasks may take when an agent is withdrawn and the gateway keeps running.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(30);
/// The part of a shutdown that remains for MQTT disconnects after running tasks had their time.
const DISCONNECT_TIMEOUT: Duration = Duration::from_secs(2);

type Offers = Arc<Vec<Arc<ResolvedBridgeConfig>>>;
/// A broker, and an agent on it.
type BrokerAgent = (String, String);

/// Announces agents on MQTT brokers.
pub struct MqttBridge {
    gateway: Arc<Gateway>,
    offers: watch::Sender<Option<Offers>>,
    drain_timeout: watch::Sender<Duration>,
    task: Mutex<Option<JoinHandle<()>>>,
}

impl MqttBridge {
    /// Creates a bridge that announces no agents until it is started.
    pub fn new(gateway: &Arc<Gateway>, offers: Vec<ResolvedBridgeConfig>) -> Self {
        let offers = watch::channel(Some(Arc::new(offers.into_iter().map(Arc::new).collect()))).0;
        Self {
            gateway: Arc::clone(gateway),
            offers,
            drain_timeout: watch::channel(DRAIN_TIMEOUT).0,
            task: Mutex::default(),
        }
    }

    /// Starts the bridge; needs a tokio runtime.
    pub fn start(&self) {
        let announcer = AgentAnnouncer {
            gateway: Arc::clone(&self.gateway),
            drain_timeout: self.drain_timeout.subscribe(),
            announced: HashMap::new(),
            tasks: JoinSet::new(),
            last_problems: HashMap::new(),
        };
        let task = tokio::spawn(announcer.run(self.offers.subscribe()));
        *self.task.lock().unwrap_or_else(PoisonError::into_inner) = Some(task);
    }

    /// Replaces the offers. Agents whose offer has not changed stay connected.
    pub fn set_offers(&self, offers: Vec<ResolvedBridgeConfig>) {
        self.offers.send_modify(|before| {
            let before = before.get_or_insert_default();
            let same = |offer: &Arc<ResolvedBridgeConfig>| before.iter().find(|known| **known == *offer).cloned();
            let offers: Vec<Arc<ResolvedBridgeConfig>> =
                offers.into_iter().map(Arc::new).map(|offer| same(&offer).unwrap_or(offer)).collect();
            *before = Arc::new(offers);
        });
    }

    /// Withdraws every agent; running tasks may take `linger` to finish (R119).
    pub async fn stop(&self, drain_timeout: Duration) {
        self.drain_timeout.send_replace(drain_timeout);
        self.offers.send_replace(None);
        let task = self.task.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(mut task) = task else { return };
        if tokio::time::timeout(drain_timeout + DISCONNECT_TIMEOUT, &mut task).await.is_err() {
            // Aborting drops the connections, so that the brokers publish the last wills.
            task.abort();
        }
    }
}

/// The background task that reconciles the agents on the brokers with the offers.
struct AgentAnnouncer {
    gateway: Arc<Gateway>,
    drain_timeout: watch::Receiver<Duration>,
    announced: HashMap<BrokerAgent, AnnouncedAgent>,
    tasks: JoinSet<()>,
    /// The problem that was logged last for each broker, so that it is logged once.
    last_problems: HashMap<String, String>,
}

struct AnnouncedAgent {
    offer: Arc<ResolvedBridgeConfig>,
    card: watch::Sender<Option<Arc<StatusDetails>>>,
    task: Id,
}

impl AgentAnnouncer {
    async fn run(mut self, mut offers: watch::Receiver<Option<Offers>>) {
        let mut changed = self.gateway.catalogue.subscribe();
        loop {
            let wanted = offers.borrow_and_update().clone();
            let Some(wanted) = wanted else { break };
            changed.mark_unchanged();
            self.reconcile(&wanted).await;
            tokio::select! {
                changed = offers.changed() => if changed.is_err() { break },
                // The catalogue lives as long as the gateway; its channel never closes.
                _ = changed.changed() => {}
                Some(gone) = self.tasks.join_next_with_id() => self.remove_finished(gone),
                () = tokio::time::sleep(RECONCILE_INTERVAL) => {}
            }
        }
        self.announced.values().for_each(|present| drop(present.card.send_replace(None)));
        while let Some(gone) = self.tasks.join_next_with_id().await {
            self.remove_finished(gone);
        }
    }

    fn remove_finished(&mut self, gone: std::result::Result<(Id, ()), tokio::task::JoinError>) {
        let id = gone.as_ref().map_or_else(tokio::task::JoinError::id, |(id, ())| *id);
        if let Err(why) = gone {
            tracing::error!("MQTT presence task failed: {why} (this is a defect of the gateway)");
        }
        self.announced.retain(|_, present| present.task != id);
    }

    /// Announces the agents that belong on the brokers and withdraws the others.
    async fn reconcile(&mut self, offers: &Offers) {
        let mut wanted: HashMap<BrokerAgent, (Arc<ResolvedBridgeConfig>, Arc<StatusDetails>)> = HashMap::new();
        let config = self.gateway.config.load_full();
        for offer in offers.iter() {
            let (offered, trouble) = self.eligible(&config, offer).await;
            self.log_problem_once(offer.address.base_url(), trouble);
            for (agent, card) in offered {
                wanted.entry((offer.address.base_url(), agent)).or_insert_with(|| (Arc::clone(offer), card));
            }
        }
        for (place, present) in &self.announced {
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
            let house = Arc::new(BridgeCaller { gateway: Arc::clone(&self.gateway), key: offer.key.clone() });
            let linger = self.drain_timeout.clone();
            let presence = AgentPresence {
                agent: agent.clone(),
                bridge: Arc::clone(&offer),
                invoker: house,
                details: cards,
                drain_timeout: linger,
            };
            let task = self.tasks.spawn(presence.run()).id();
            self.announced.insert((base, agent), AnnouncedAgent { offer, card, task });
        }
    }

    /// Logs the problem of a broker's offer, if it differs from the one that was logged last.
    fn log_problem_once(&mut self, broker: String, problem: Option<String>) {
        match problem {
            None => drop(self.last_problems.remove(&broker)),
            Some(trouble) if self.last_problems.get(&broker) != Some(&trouble) => {
                tracing::warn!(broker, "{trouble}");
                self.last_problems.insert(broker, trouble);
            }
            Some(_) => {}
        }
    }

    /// Returns the agents of one offer: in the catalogue, active, and granted to the bridge's key (R118); and a
    /// problem.
    async fn eligible(
        &self,
        config: &ConfigSnapshot,
        offer: &ResolvedBridgeConfig,
    ) -> (Vec<(String, Arc<StatusDetails>)>, Option<String>) {
        let headers = bridge_credentials(config, &offer.key);
        let presented = PresentedCredentials { headers: &headers, client_certificate: None };
        let caller = match config.auth.authenticate_or_anonymous(&presented, false).await {
            Ok(caller) => caller,
            Err(fault) => {
                return (Vec::new(), Some(format!("MQTT bridge announces no agents: its API key failed: {fault}")));
            }
        };
        let snapshot = self.gateway.catalogue.snapshot();
        let fits = |route: &&Arc<Route>| {
            let id = route.agent.id.as_str();
            offer.config.agents.iter().any(|glob| glob.matches(id)) && may_be_announced(config, &caller, route)
        };
        let mut routes: Vec<&Arc<Route>> = snapshot.iter().map(|(_, route)| route).filter(fits).collect();
        routes.sort_unstable_by_key(|route| route.agent.id.as_str());
        let (could, most) = (routes.len(), usize::from(offer.config.max_agents.get()));
        let trouble = (could > most)
            .then(|| format!("MQTT bridge announces only {most} of {could} agents: limit reached (raise the limit)"));
        let offered =
            routes.into_iter().take(most).map(|route| (route.agent.id.to_string(), Arc::new(agent_card(route))));
        (offered.collect(), trouble)
    }
}

/// Returns whether the agent is active, is not itself reached over a broker, and may be called by the caller.
fn may_be_announced(config: &ConfigSnapshot, caller: &Caller, route: &Route) -> bool {
    let agent = &route.agent;
    agent.status != AgentStatus::Inactive
        && !matches!(agent.endpoint, AgentEndpoint::Mqtt(_))
        && may_call(&config.auth, caller, route)
}

fn agent_card(route: &Route) -> StatusDetails {
    let agent = &route.agent;
    StatusDetails {
        description: json::truncate(&agent.description, 1_000),
        capabilities: agent.capabilities.iter().take(100).map(ToString::to_string).collect(),
    }
}

/// Returns the header with the bridge's API key.
fn bridge_credentials(config: &ConfigSnapshot, key: &Secret) -> HeaderMap {
    let mut headers = HeaderMap::new();
    let name = config.api_key_header.clone().unwrap_or(HeaderName::from_static("x-api-key"));
    if let Ok(mut value) = HeaderValue::from_str(key.expose()) {
        value.set_sensitive(true);
        headers.insert(name, value);
    }
    headers
}

/// Makes the calls of one bridge key.
struct BridgeCaller {
    gateway: Arc<Gateway>,
    key: Secret,
}

#[async_trait::async_trait]
impl AgentInvoker for BridgeCaller {
    async fn invoke(&self, asked: mqtt_bridge::TaskInvocation<'_>) -> Result<String> {
        let mqtt_bridge::TaskInvocation { agent, task_id, instruction, input } = asked;
        let config = self.gateway.config.load_full();
        let headers = bridge_credentials(&config, &self.key);
        let address = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let forwarding =
            HeaderMutations { api_key_header: config.api_key_header.as_ref(), ..HeaderMutations::default() };
        let context = CallerContext { headers: &headers, peer: None, address };
        // An instruction that is the name of an operation selects that operation: gateways write it into envelopes so.
        let is_operation = |name: &&str| {
            self.gateway.catalogue.load().get(agent).is_some_and(|route| route.operation_index(name).is_some())
        };
        let operation = instruction.filter(is_operation);
        let instruction = instruction.filter(|_| operation.is_none());
        let subrequest = Subrequest {
            context,
            forwarding,
            call_id: Some(task_id),
            exempt_from_shedding: false,
            agent,
            operation,
            input,
            instruction,
            deadline: None,
        };
        to_json_text(&self.gateway.fetch_subrequest(&config, subrequest).await?.body)
    }

    async fn is_reachable(&self, agent: &str) -> bool {
        let route = self.gateway.catalogue.load().get(agent).cloned();
        match route {
            Some(route) => self.gateway.transport.is_reachable(&route.upstream).await,
            None => false,
        }
    }
}

/// Returns an answer as one JSON text: JSON unchanged, other text as a string, an empty answer as null.
fn to_json_text(body: &[u8]) -> Result<String> {
    let text = std::str::from_utf8(body);
    let text =
        text.map_err(|why| Fault::new(FaultCode::AgentError, "The agent's answer is not text").with_detail(why))?;
    Ok(match json::parse(body, json::MAX_DEPTH) {
        Ok(_) => text.to_owned(),
        Err(_) if text.trim().is_empty() => "null".to_owned(),
        Err(_) => serde_json::Value::from(text).to_string(),
    })
}
