//! The agents on the MQTT bridge: announces agents on the configured brokers, and follows changes of the catalogue and
//! of the configuration. `mqtt_bridge` implements the protocol; `mqtt_bridge_invoker` makes the calls.

use super::mqtt_bridge_invoker::{BridgeInvoker, bridge_credentials};
use crate::{
    agent::{AgentStatus, EndpointAccess},
    auth::{Caller, PresentedCredentials},
    gateway::{
        admission::may_call,
        gateway_state::{ConfigSnapshot, Gateway},
        route::Route,
    },
    mqtt_bridge::{AgentPresence, Exposure, ResolvedBridgeConfig, StatusDetails},
    values::json,
};
use parking_lot::Mutex;
use std::{
    collections::HashMap,
    net::{IpAddr, Ipv4Addr},
    sync::Arc,
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
/// How long MQTT disconnects may take at a shutdown, after the time for running tasks.
const DISCONNECT_TIMEOUT: Duration = Duration::from_secs(2);

type BridgeConfigs = Arc<Vec<Arc<ResolvedBridgeConfig>>>;
/// A broker, and an agent on it.
type BrokerAgent = (String, String);

/// Announces agents on MQTT brokers.
pub struct MqttBridge {
    gateway: Arc<Gateway>,
    bridges: watch::Sender<Option<BridgeConfigs>>,
    drain_timeout: watch::Sender<Duration>,
    task: Mutex<Option<JoinHandle<()>>>,
}

impl MqttBridge {
    /// Creates a bridge that announces no agents until it is started.
    pub fn new(gateway: &Arc<Gateway>, bridges: Vec<ResolvedBridgeConfig>) -> Self {
        let bridges = watch::channel(Some(Arc::new(bridges.into_iter().map(Arc::new).collect()))).0;
        Self {
            gateway: Arc::clone(gateway),
            bridges,
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
        let task = tokio::spawn(announcer.run(self.bridges.subscribe()));
        *self.task.lock() = Some(task);
    }

    /// Replaces the configurations. Agents of an unchanged configuration stay connected.
    pub fn set_bridges(&self, bridges: Vec<ResolvedBridgeConfig>) {
        self.bridges.send_modify(|current| {
            let current = current.get_or_insert_default();
            let find_unchanged =
                |bridge: &Arc<ResolvedBridgeConfig>| current.iter().find(|unchanged| **unchanged == *bridge).cloned();
            let bridges: Vec<Arc<ResolvedBridgeConfig>> =
                bridges.into_iter().map(Arc::new).map(|bridge| find_unchanged(&bridge).unwrap_or(bridge)).collect();
            *current = Arc::new(bridges);
        });
    }

    /// Withdraws every agent; running tasks may take `drain_timeout` to finish (R119).
    pub async fn stop(&self, drain_timeout: Duration) {
        self.drain_timeout.send_replace(drain_timeout);
        self.bridges.send_replace(None);
        let task = self.task.lock().take();
        let Some(mut task) = task else { return };
        if tokio::time::timeout(drain_timeout + DISCONNECT_TIMEOUT, &mut task).await.is_err() {
            // Aborting drops the connections, so that the brokers publish the last wills.
            task.abort();
        }
    }
}

/// The background task that reconciles the agents on the brokers with the configuration.
struct AgentAnnouncer {
    gateway: Arc<Gateway>,
    drain_timeout: watch::Receiver<Duration>,
    announced: HashMap<BrokerAgent, AnnouncedAgent>,
    tasks: JoinSet<()>,
    /// The problem that was logged last for each broker, so that it is logged once.
    last_problems: HashMap<String, String>,
}

struct AnnouncedAgent {
    bridge: Arc<ResolvedBridgeConfig>,
    exposure: watch::Sender<Exposure>,
    task: Id,
}

impl AnnouncedAgent {
    /// Changes the details in the agent's status. An agent that is being withdrawn is announced again by a later
    /// reconciliation.
    fn update(&self, details: Arc<StatusDetails>) {
        let exposed = Exposure::Exposed(details);
        self.exposure.send_if_modified(|current| {
            let is_changed = current.is_exposed() && *current != exposed;
            if is_changed {
                *current = exposed;
            }
            is_changed
        });
    }

    /// Ends the offer; the broker keeps the agent's tasks for the next one.
    fn suspend(&self) {
        self.end_offer(Exposure::Suspended);
    }

    /// Ends the offer for good.
    fn withdraw(&self) {
        self.end_offer(Exposure::Withdrawn);
    }

    fn end_offer(&self, end: Exposure) {
        self.exposure.send_if_modified(|current| {
            let was_exposed = current.is_exposed();
            if was_exposed {
                *current = end;
            }
            was_exposed
        });
    }
}

impl AgentAnnouncer {
    async fn run(mut self, mut bridges: watch::Receiver<Option<BridgeConfigs>>) {
        let mut catalogue_changes = self.gateway.catalogue.subscribe();
        loop {
            let configured = bridges.borrow_and_update().clone();
            let Some(configured) = configured else { break };
            catalogue_changes.mark_unchanged();
            self.reconcile(&configured).await;
            tokio::select! {
                result = bridges.changed() => if result.is_err() { break },
                // The catalogue lives as long as the gateway; its channel never closes.
                _ = catalogue_changes.changed() => {}
                Some(finished) = self.tasks.join_next_with_id() => self.remove_finished(finished),
                () = tokio::time::sleep(RECONCILE_INTERVAL) => {}
            }
        }
        self.announced.values().for_each(|announced| announced.suspend());
        while let Some(finished) = self.tasks.join_next_with_id().await {
            self.remove_finished(finished);
        }
    }

    fn remove_finished(&mut self, result: std::result::Result<(Id, ()), tokio::task::JoinError>) {
        let id = result.as_ref().map_or_else(tokio::task::JoinError::id, |(id, ())| *id);
        if let Err(error) = result {
            tracing::error!("MQTT presence task failed: {error} (this is a defect of the gateway)");
        }
        self.announced.retain(|_, announced| announced.task != id);
    }

    /// Announces the agents that belong on the brokers and withdraws the others.
    async fn reconcile(&mut self, bridges: &BridgeConfigs) {
        let mut wanted: HashMap<BrokerAgent, (Arc<ResolvedBridgeConfig>, Arc<StatusDetails>)> = HashMap::new();
        let config = self.gateway.config.load_full();
        for bridge in bridges.iter() {
            let (agents, problem) = self.announceable_agents(&config, bridge).await;
            self.log_problem_once(bridge.address.base_url(), problem);
            for (agent, details) in agents {
                wanted.entry((bridge.address.base_url(), agent)).or_insert_with(|| (Arc::clone(bridge), details));
            }
        }
        for (broker_agent, announced) in &self.announced {
            match wanted.remove(broker_agent) {
                Some((bridge, details)) if Arc::ptr_eq(&bridge, &announced.bridge) => announced.update(details),
                // Another configuration of the bridge offers it again: the broker keeps its tasks meanwhile.
                Some(_) => announced.suspend(),
                None => announced.withdraw(),
            }
        }
        for ((broker, agent), (bridge, details)) in wanted {
            let (exposure, exposure_receiver) = watch::channel(Exposure::Exposed(details));
            let invoker = Arc::new(BridgeInvoker { gateway: Arc::clone(&self.gateway), key: bridge.key.clone() });
            let drain_timeout = self.drain_timeout.clone();
            let presence = AgentPresence {
                agent: agent.clone(),
                bridge: Arc::clone(&bridge),
                broker: self.gateway.metrics.brokers().broker(&bridge.address.metric_label()),
                invoker,
                exposure: exposure_receiver,
                drain_timeout,
            };
            let task = self.tasks.spawn(presence.run()).id();
            self.announced.insert((broker, agent), AnnouncedAgent { bridge, exposure, task });
        }
    }

    /// Logs the problem of a broker, if it differs from the one that was logged last.
    fn log_problem_once(&mut self, broker: String, problem: Option<String>) {
        match problem {
            None => drop(self.last_problems.remove(&broker)),
            Some(problem) if self.last_problems.get(&broker) != Some(&problem) => {
                tracing::warn!(broker, problem, "MQTT bridge has a problem with this broker");
                self.last_problems.insert(broker, problem);
            }
            Some(_) => {}
        }
    }

    /// Returns the agents of one bridge: in the catalogue, active, and granted to the bridge's key (R118). The second
    /// value is a problem to log.
    async fn announceable_agents(
        &self,
        config: &ConfigSnapshot,
        bridge: &ResolvedBridgeConfig,
    ) -> (Vec<(String, Arc<StatusDetails>)>, Option<String>) {
        let headers = bridge_credentials(config, &bridge.key);
        let client_address = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let presented =
            PresentedCredentials { headers: &headers, client_certificate: None, client_address, assumed_key: None };
        let caller = match config.auth.authenticate_or_anonymous(&presented, false).await {
            Ok(caller) => caller,
            Err(fault) => {
                return (Vec::new(), Some(format!("MQTT bridge announces no agents: its API key failed: {fault}")));
            }
        };
        let snapshot = self.gateway.catalogue.snapshot();
        let is_announceable = |route: &&Arc<Route>| {
            let id = route.agent.id.as_str();
            bridge.config.agents.iter().any(|glob| glob.matches(id)) && may_be_announced(config, &caller, route)
        };
        let mut routes: Vec<&Arc<Route>> = snapshot.iter().map(|(_, route)| route).filter(is_announceable).collect();
        routes.sort_unstable_by_key(|route| route.agent.id.as_str());
        let (eligible, max_agents) = (routes.len(), usize::from(bridge.config.max_agents.get()));
        let problem = (eligible > max_agents)
            .then(|| format!("MQTT bridge announces only {max_agents} of {eligible} agents: limit reached (raise mqtt_bridge.max_agents)"));
        let agents = routes
            .into_iter()
            .take(max_agents)
            .map(|route| (route.agent.id.to_string(), Arc::new(status_details(route))));
        (agents.collect(), problem)
    }
}

/// Returns whether the agent is active, is not itself reached over a broker, and may be called by the caller.
fn may_be_announced(config: &ConfigSnapshot, caller: &Caller, route: &Route) -> bool {
    let agent = &route.agent;
    agent.status != AgentStatus::Inactive
        && agent.endpoint.scheme().access() != EndpointAccess::MessageBroker
        && may_call(&config.auth, caller, route)
}

fn status_details(route: &Route) -> StatusDetails {
    let agent = &route.agent;
    StatusDetails {
        description: json::truncate(&agent.description, 1_000),
        capabilities: agent.capabilities.iter().take(100).map(ToString::to_string).collect(),
    }
}
