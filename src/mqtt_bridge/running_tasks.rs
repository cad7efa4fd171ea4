//! The tasks of one bridged agent that are being executed, and the publications of their results. They outlive
//! connections.

use super::{
    AgentInvoker,
    config::ResolvedBridgeConfig,
    delivery::{Delivery, UnfinishedDeliveries},
    mqtt_topic,
    payload::{TaskError, TaskErrorCode},
    task_envelope::{BridgeTask, OutgoingMessage},
    task_runner::{FinishedTaskIds, ResultPublisher, TaskRunner, log_panic},
};
use crate::mqtt_client::{MAX_MESSAGE_BYTES, MqttReceiver, MqttSender};
use std::{
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::{
    sync::{Semaphore, watch},
    task::{JoinError, JoinSet},
    time::{Instant as TokioInstant, sleep_until},
};
use uuid::Uuid;

/// Maximum number of concurrent publications for messages that the broker does not keep; further ones are dropped.
const MAX_PUBLICATIONS: usize = 64;
/// Memory for the tasks of a session that wait beyond `max_queued`: a task counts with its message and
/// [`TASK_OVERHEAD`], so that 64 of the longest wait, and some 3,000 short ones. Brokers deliver more than the Receive
/// Maximum: MQTT 3.1.1 has none, and mosquitto 2.0.11 sends several messages for each acknowledgement.
const MAX_KEPT_KIB: usize = 64 * (MAX_MESSAGE_BYTES + TASK_OVERHEAD) / 1024;
/// What a waiting task takes beside its message, in bytes, at most.
pub(super) const TASK_OVERHEAD: usize = 5 * 1024;
/// Time for publishing the errors of tasks that did not finish.
const ERROR_TIMEOUT: Duration = Duration::from_secs(1);
/// Maximum number of discarded messages that are logged a second.
const MAX_LOGGED: u32 = 10;

/// What happens to tasks that do not finish in time when an agent is withdrawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LateTasks {
    /// Their senders get an error.
    Fail,
    /// They are not acknowledged, so that the broker delivers them to the next connection.
    StayWithBroker,
}

/// The running tasks of one agent.
pub(super) struct RunningTasks {
    agent: String,
    broker: String,
    invoker: Arc<dyn AgentInvoker>,
    permits: Arc<Semaphore>,
    /// Slots of the tasks that run or are queued.
    slots: Arc<Semaphore>,
    /// Memory for further tasks that wait, in KiB, where the broker keeps them until they are acknowledged.
    kept_memory: Arc<Semaphore>,
    max_tasks: usize,
    tasks: JoinSet<()>,
    /// Becomes true when the drain timeout has passed.
    drain_expired: watch::Sender<bool>,
    /// The sender of the current connection, for results.
    current_sender: watch::Sender<Option<MqttSender>>,
    session_expiry: Option<Duration>,
    repetitions: Arc<tokio::sync::Mutex<()>>,
    unfinished: UnfinishedDeliveries,
    finished_ids: FinishedTaskIds,
    discard_log: (Instant, u32),
}

impl RunningTasks {
    pub(super) fn new(
        agent: &str,
        bridge: &ResolvedBridgeConfig,
        invoker: &Arc<dyn AgentInvoker>,
        finished_ids: FinishedTaskIds,
    ) -> Self {
        let concurrency = usize::from(bridge.config.max_concurrency.get());
        let max_tasks = usize::from(bridge.config.max_tasks().get());
        Self {
            agent: agent.to_owned(),
            broker: bridge.address.base_url(),
            invoker: Arc::clone(invoker),
            permits: Arc::new(Semaphore::new(concurrency)),
            slots: Arc::new(Semaphore::new(max_tasks)),
            kept_memory: Arc::new(Semaphore::new(MAX_KEPT_KIB)),
            max_tasks,
            tasks: JoinSet::new(),
            drain_expired: watch::channel(false).0,
            current_sender: watch::channel(None).0,
            session_expiry: bridge.config.persistent_session(),
            repetitions: Arc::default(),
            unfinished: UnfinishedDeliveries::default(),
            finished_ids,
            discard_log: (Instant::now(), 0),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.tasks.is_empty()
    }

    /// Sets the sender of the current connection; `None` while there is no connection.
    pub(super) fn set_sender(&self, sender: Option<MqttSender>) {
        self.current_sender.send_replace(sender);
    }

    /// Waits for the end of the next task; `None` where no task runs.
    pub(super) async fn join_next(&mut self) -> Option<Result<(), JoinError>> {
        self.tasks.join_next().await
    }

    /// Whether the broker keeps tasks until they are acknowledged.
    pub(super) fn keeps_session(&self) -> bool {
        self.session_expiry.is_some()
    }

    fn publisher(&self) -> ResultPublisher {
        ResultPublisher {
            current_sender: self.current_sender.subscribe(),
            session_expiry: self.session_expiry,
            repetitions: Arc::clone(&self.repetitions),
        }
    }

    /// Executes a task, or publishes an error where too many tasks are queued.
    pub(super) fn start(&mut self, task: Box<BridgeTask>, delivery: Option<Delivery>) {
        // Later tasks may have displaced its id from those of recent tasks.
        if self.unfinished.has(task.uuid) {
            return self.discard_duplicate(task.uuid, delivery);
        }
        // A broker with MQTT 5 knows this bound as the Receive Maximum. One that delivers more tasks keeps them meanwhile.
        let mut slot = Arc::clone(&self.slots).try_acquire_owned();
        if let (Err(_), Some(delivery)) = (&slot, &delivery) {
            let size = u32::try_from((delivery.length + TASK_OVERHEAD).div_ceil(1024)).unwrap_or(u32::MAX);
            slot = Arc::clone(&self.kept_memory).try_acquire_many_owned(size);
        }
        let Ok(slot) = slot else {
            let error = TaskError::new(TaskErrorCode::InternalError, "Too many tasks; try again later");
            return self.refuse(task.result_message(Err(error)), delivery);
        };
        if let Some(delivery) = delivery {
            self.unfinished.hold(task.uuid, delivery);
        }
        let runner = TaskRunner {
            agent: self.agent.clone(),
            invoker: Arc::clone(&self.invoker),
            permits: Arc::clone(&self.permits),
            slot,
            drain_expired: self.drain_expired.subscribe(),
            publisher: self.publisher(),
            unfinished: self.unfinished.clone(),
            finished_ids: self.finished_ids.clone(),
        };
        self.tasks.spawn(runner.run(task));
    }

    /// Discards a further delivery of a task. If the broker repeats a task that is running, the end of the task
    /// acknowledges it.
    pub(super) fn discard_duplicate(&mut self, task: Uuid, delivery: Option<Delivery>) {
        self.acknowledge(delivery.and_then(|delivery| self.unfinished.hold_if_repeated(task, delivery)));
        self.log_discarded("duplicate task");
    }

    /// Takes the ids of the tasks whose results could not be published.
    pub(super) fn take_abandoned(&self) -> Vec<Uuid> {
        self.unfinished.take_abandoned()
    }

    /// Acknowledges a message in the background; the broker bounds the number of messages that are not acknowledged.
    pub(super) fn acknowledge(&self, delivery: Option<Delivery>) {
        if let Some(delivery) = delivery {
            tokio::spawn(delivery.acknowledge());
        }
    }

    /// Publishes the error of a refused task and acknowledges the task. Without a session, the error is dropped where too
    /// many publications are pending; with one, the broker bounds the number of tasks that are not acknowledged.
    pub(super) fn refuse(&mut self, outgoing: OutgoingMessage, delivery: Option<Delivery>) {
        if delivery.is_some() || self.tasks.len() < self.max_tasks + MAX_PUBLICATIONS {
            let publisher = self.publisher();
            self.tasks.spawn(async move {
                publisher.publish(outgoing).await;
                if let Some(delivery) = delivery {
                    delivery.acknowledge().await;
                }
            });
        } else {
            self.discard("too many pending publications", delivery);
        }
    }

    /// Acknowledges a message that is not processed, and logs why.
    pub(super) fn discard(&mut self, reason: &str, delivery: Option<Delivery>) {
        self.acknowledge(delivery);
        self.log_discarded(reason);
    }

    /// Publishes the agent's status.
    pub(super) fn publish_status(&mut self, sender: MqttSender, status: Vec<u8>) {
        let topic = mqtt_topic::status_topic(&self.agent);
        self.tasks.spawn(async move {
            if let Err(error) = sender.publish(&topic, status, true).await {
                tracing::debug!(%error, "cannot publish the agent's status");
            }
        });
    }

    /// Logs a discarded message, with a rate limit.
    fn log_discarded(&mut self, reason: &str) {
        if self.discard_log.0.elapsed() >= Duration::from_secs(1) {
            self.discard_log = (Instant::now(), 0);
        }
        self.discard_log.1 += 1;
        if self.discard_log.1 <= MAX_LOGGED {
            tracing::info!(agent = self.agent, broker = self.broker, "MQTT message discarded: {reason}");
        }
    }

    /// Waits for running tasks, and disconnects. Tasks that exceed the time get an error (R122), or stay with the broker
    /// for the next connection (R161).
    pub(super) async fn drain(
        &mut self,
        sender: &MqttSender,
        receiver: &mut MqttReceiver,
        mut deadline: TokioInstant,
        late_tasks: LateTasks,
    ) {
        while !self.tasks.is_empty() {
            tokio::select! {
                Some(result) = self.tasks.join_next() => log_panic(result),
                // Further messages are ignored, but acknowledgements have to be received.
                message = receiver.next() => if message.is_err() { break },
                () = sleep_until(deadline), if late_tasks == LateTasks::StayWithBroker => {
                    let count = self.tasks.len();
                    tracing::warn!(agent = self.agent, count, "unfinished tasks stay with the MQTT broker");
                    self.tasks.shutdown().await;
                }
                () = sleep_until(deadline), if late_tasks == LateTasks::Fail => {
                    let had_expired = self.drain_expired.send_replace(true);
                    if had_expired {
                        self.tasks.shutdown().await;
                    } else {
                        tracing::warn!(agent = self.agent, "agent withdrawn before all its tasks finished");
                        deadline += ERROR_TIMEOUT;
                    }
                }
            }
        }
        sender.disconnect().await;
    }

    /// Waits for `pause` while there is no connection, and reaps the tasks that end meanwhile.
    pub(super) async fn wait_reaping_tasks(&mut self, pause: Duration) {
        let deadline = TokioInstant::now() + pause;
        loop {
            tokio::select! {
                () = sleep_until(deadline) => return,
                Some(result) = self.tasks.join_next() => log_panic(result),
            }
        }
    }
}
