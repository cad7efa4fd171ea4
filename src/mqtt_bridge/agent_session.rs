//! MQTT session of one agent: subscribes, announces the agent as available (R118), receives tasks (R120), until the
//! connection is lost or the agent is withdrawn (R119). The receive loop awaits only messages; publications run in
//! background tasks, whose number is bounded.

use super::{
    AgentInvoker,
    agent_connection::AgentConnection,
    agent_health::AgentHealth,
    config::ResolvedBridgeConfig,
    delivery::Delivery,
    exposure::Exposure,
    mqtt_topic, payload,
    running_tasks::{LateTasks, RunningTasks},
    task_envelope::{IncomingTask, TaskValidator, TaskVerdict},
    task_runner::{FinishedTaskIds, log_panic},
};
use crate::{
    mqtt_client::{IncomingMessage, MqttReceiver, MqttSender},
    trace::{BAGGAGE, TRACEPARENT, TRACESTATE},
};
use serde_json::Value;
use std::{
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::sync::watch;

/// Minimum interval between two publications of the status, which corrects a status that another client published.
const STATUS_INTERVAL: Duration = Duration::from_secs(1);

/// How a session ended.
#[derive(Debug)]
pub(super) enum AgentSessionEnd {
    /// The agent was announced as unavailable, and the connection closed in order.
    Withdrawn,
    /// The connection was lost.
    Disconnected(String),
}

type ExposureWatch = watch::Receiver<Exposure>;

/// State of an agent that outlives connections: running tasks, and the ids of recent ones.
pub(super) struct AgentSession {
    validator: TaskValidator,
    agent: String,
    broker: String,
    pub(super) tasks: RunningTasks,
    health: AgentHealth,
    /// The availability that was announced last.
    announced: Option<bool>,
}

impl AgentSession {
    pub(super) fn new(
        validator: TaskValidator,
        bridge: &ResolvedBridgeConfig,
        invoker: &Arc<dyn AgentInvoker>,
        health: AgentHealth,
        finished_ids: FinishedTaskIds,
    ) -> Self {
        Self {
            agent: validator.agent().to_owned(),
            broker: bridge.address.base_url(),
            tasks: RunningTasks::new(validator.agent(), bridge, invoker, finished_ids),
            validator,
            health,
            announced: None,
        }
    }

    /// Runs the session on one connection until it ends.
    pub(super) async fn run(
        &mut self,
        connection: AgentConnection,
        exposure: &mut ExposureWatch,
        drain_timeout: &watch::Receiver<Duration>,
    ) -> AgentSessionEnd {
        let AgentConnection { sender, mut receiver } = connection;
        self.announced = None;
        let end = match self.subscribe_and_announce(&sender, &mut receiver, exposure).await {
            Ok(true) => self.receive_tasks(&sender, &mut receiver, exposure).await,
            Ok(false) => AgentSessionEnd::Withdrawn,
            Err(reason) => AgentSessionEnd::Disconnected(reason),
        };
        if matches!(end, AgentSessionEnd::Withdrawn) {
            let drain_timeout = *drain_timeout.borrow();
            let late_tasks = self.late_tasks(exposure);
            self.withdraw(&sender, &mut receiver, late_tasks, drain_timeout).await;
        }
        self.tasks.set_sender(None);
        end
    }

    /// Subscribes, then announces the agent as available: after the broker granted the subscription and a probe reached
    /// the agent (R118). Returns false if the agent was withdrawn meanwhile.
    async fn subscribe_and_announce(
        &mut self,
        sender: &MqttSender,
        receiver: &mut MqttReceiver,
        exposure: &mut ExposureWatch,
    ) -> Result<bool, String> {
        let (input, status) = (mqtt_topic::input_topic(&self.agent), mqtt_topic::status_topic(&self.agent));
        let (mut health, agent) = (self.health.clone(), self.agent.clone());
        // A broker that kept the session delivers its tasks before it answers the subscription.
        self.tasks.set_sender(Some(sender.clone()));
        let announcement = async {
            // Without the first slash, it is another topic for the broker, but the same topic in the protocol (R109).
            let filters = [input.as_str(), input.trim_start_matches('/'), status.as_str()];
            let granted = sender.subscribe(&filters).await.map_err(|error| error.to_string())?;
            if granted.first() != Some(&true) {
                return Err(format!("MQTT broker refused the subscription to {input} (check the broker's ACL)"));
            }
            let is_reachable =
                health.wait_for(Option::is_some).await.is_ok_and(|is_reachable| *is_reachable == Some(true));
            let status_details = exposure.borrow_and_update().details().cloned();
            let Some(status_details) = status_details else { return Ok::<_, String>(None) };
            let announcement = sender
                .publish(&status, payload::status_payload(&agent, is_reachable.then_some(&*status_details)), true)
                .await;
            announcement.map(|_| Some(is_reachable)).map_err(|error| error.to_string())
        };
        let mut announcement = std::pin::pin!(announcement);
        loop {
            // Messages are received from the start, because the acknowledgement arrives among them.
            tokio::select! {
                announcement = &mut announcement => {
                    let announcement = announcement?;
                    self.record_announcement(announcement);
                    return Ok(announcement.is_some());
                }
                message = receiver.next() => { self.handle_message(&message?, sender); }
            }
        }
    }

    /// Records the announced availability, and logs a change.
    fn record_announcement(&mut self, available: Option<bool>) {
        if self.announced == available {
            return;
        }
        self.announced = available;
        let (agent, broker) = (&self.agent, &self.broker);
        match available {
            Some(true) => tracing::info!(agent, broker, "agent announced as available on the MQTT broker"),
            Some(false) => tracing::warn!(agent, broker, "agent announced as unavailable: it cannot be reached"),
            None => {}
        }
    }

    /// Receives tasks until the connection is lost or the agent is withdrawn.
    async fn receive_tasks(
        &mut self,
        sender: &MqttSender,
        receiver: &mut MqttReceiver,
        exposure: &mut ExposureWatch,
    ) -> AgentSessionEnd {
        let (mut must_republish, mut republished_at) = (false, Instant::now());
        loop {
            tokio::select! {
                message = receiver.next() => match message {
                    Ok(message) => must_republish |= self.handle_message(&message, sender),
                    Err(reason) => return AgentSessionEnd::Disconnected(reason),
                },
                changed = exposure.changed() => match changed {
                    Ok(()) if exposure.borrow().is_exposed() => must_republish = true,
                    _ => return AgentSessionEnd::Withdrawn,
                },
                Ok(()) = self.health.changed() => must_republish = true,
                () = tokio::time::sleep_until((republished_at + STATUS_INTERVAL).into()), if must_republish => {
                    (must_republish, republished_at) = (false, Instant::now());
                    let status_details = exposure.borrow_and_update().details().cloned();
                    let Some(status_details) = status_details else { return AgentSessionEnd::Withdrawn };
                    let is_reachable = *self.health.borrow_and_update() == Some(true);
                    self.record_announcement(Some(is_reachable));
                    let status = payload::status_payload(&self.agent, is_reachable.then_some(&*status_details));
                    self.tasks.publish_status(sender.clone(), status);
                }
                Some(result) = self.tasks.join_next() => log_panic(result),
            }
        }
    }

    /// Handles one message. Returns whether the agent's status has to be published again.
    fn handle_message(&mut self, message: &IncomingMessage, sender: &MqttSender) -> bool {
        let topic = String::from_utf8_lossy(&message.topic);
        let delivery = self.tasks.keeps_session().then(|| Delivery::of(message, sender)).flatten();
        if *topic == mqtt_topic::status_topic(&self.agent) {
            self.tasks.acknowledge(delivery);
            return !message.retained
                && self.announced.is_some_and(|available| available != is_available_status(&message.payload));
        }
        let IncomingMessage { ref payload, retained, repeated, .. } = *message;
        let incoming = IncomingTask { topic: &topic, payload, retained, repeated };
        self.validator.forget(&self.tasks.take_abandoned());
        match self.validator.validate_and_deduplicate(&incoming, Instant::now()) {
            TaskVerdict::Discard(reason) => self.tasks.discard(reason, delivery),
            TaskVerdict::Duplicate(task) => self.tasks.discard_duplicate(task, delivery),
            TaskVerdict::Refuse(outgoing) => self.tasks.refuse(outgoing, delivery),
            TaskVerdict::Process(mut task) => {
                task.trace_context = trace_context(&message.user_properties);
                self.tasks.start(task, delivery);
            }
        }
        false
    }

    /// What happens to the tasks that do not finish after the agent was withdrawn: the broker keeps them for an agent
    /// that is offered again (R161).
    fn late_tasks(&self, exposure: &ExposureWatch) -> LateTasks {
        let is_withdrawn = *exposure.borrow() == Exposure::Withdrawn;
        if is_withdrawn || !self.tasks.keeps_session() { LateTasks::Fail } else { LateTasks::StayWithBroker }
    }

    /// Announces the agent as unavailable, finishes running tasks and disconnects (R119).
    async fn withdraw(
        &mut self,
        sender: &MqttSender,
        receiver: &mut MqttReceiver,
        late_tasks: LateTasks,
        drain_timeout: Duration,
    ) {
        let deadline = tokio::time::Instant::now() + drain_timeout;
        let (status, input) = (mqtt_topic::status_topic(&self.agent), mqtt_topic::input_topic(&self.agent));
        let unavailable = payload::status_payload(&self.agent, None);
        let announcement = async {
            // A kept session would collect statuses otherwise.
            sender.unsubscribe(&[&status]).await?;
            sender.publish(&status, unavailable, true).await?;
            if late_tasks == LateTasks::StayWithBroker {
                return Ok(());
            }
            sender.unsubscribe(&[&input]).await?;
            sender.unsubscribe(&[input.trim_start_matches('/')]).await
        };
        let mut announcement = std::pin::pin!(announcement);
        // Messages that arrive before that were sent to an available agent. Later ones stay with the broker.
        while let Some(message) = tokio::select! {
            announcement = &mut announcement => {
                if let Err(error) = announcement {
                    tracing::debug!(%error, "cannot announce the withdrawal of the agent");
                }
                None
            },
            message = receiver.next() => message.ok(),
        } {
            self.handle_message(&message, sender);
        }
        self.tasks.drain(sender, receiver, deadline, late_tasks).await;
        tracing::info!(agent = self.agent, broker = self.broker, "agent withdrawn from the MQTT broker");
    }

    /// Finishes running tasks on another connection.
    pub(super) async fn drain_on(
        &mut self,
        connection: AgentConnection,
        exposure: &ExposureWatch,
        drain_timeout: Duration,
    ) {
        let AgentConnection { sender, mut receiver } = connection;
        self.tasks.set_sender(Some(sender.clone()));
        let (deadline, late_tasks) = (tokio::time::Instant::now() + drain_timeout, self.late_tasks(exposure));
        self.tasks.drain(&sender, &mut receiver, deadline, late_tasks).await;
    }
}

/// Returns the user properties that carry the context of a trace.
fn trace_context(properties: &[(String, String)]) -> Vec<(String, String)> {
    let is_context = |name: &str| [TRACEPARENT, TRACESTATE, BAGGAGE].iter().any(|field| field.as_str() == name);
    properties.iter().filter(|(name, _)| is_context(name)).cloned().collect()
}

fn is_available_status(payload: &[u8]) -> bool {
    let status: Option<Value> = serde_json::from_slice(payload).ok();
    status.is_some_and(|status| status.get("status").is_some_and(|value| value == "available"))
}
