//! The tasks of one bridged agent that are being executed, and the publications of their results. They outlive
//! connections.

use super::{
    AgentInvoker,
    config::ResolvedBridgeConfig,
    mqtt_topic,
    payload::{TaskError, TaskErrorCode},
    task_envelope::{BridgeTask, OutgoingMessage},
    task_runner::{TaskRunner, log_panic, publish_result},
};
use crate::mqtt_client::{MqttReceiver, MqttSender};
use std::{
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::{
    sync::{Semaphore, watch},
    task::{JoinError, JoinSet},
    time::{Instant as TokioInstant, sleep_until},
};

/// Maximum number of concurrent publications besides tasks; further messages are dropped.
const MAX_PUBLICATIONS: usize = 64;
/// Time for publishing the errors of tasks that did not finish.
const ERROR_TIMEOUT: Duration = Duration::from_secs(1);
/// Maximum number of discarded messages that are logged a second.
const MAX_LOGGED: u32 = 10;

/// The running tasks of one agent.
pub(super) struct RunningTasks {
    agent: String,
    broker: String,
    invoker: Arc<dyn AgentInvoker>,
    permits: Arc<Semaphore>,
    max_tasks: usize,
    tasks: JoinSet<()>,
    /// Becomes true when the drain timeout has passed.
    drain_expired: watch::Sender<bool>,
    /// The sender of the current connection, for results.
    current_sender: watch::Sender<Option<MqttSender>>,
    discard_log: (Instant, u32),
}

impl RunningTasks {
    pub(super) fn new(agent: &str, bridge: &ResolvedBridgeConfig, invoker: &Arc<dyn AgentInvoker>) -> Self {
        let concurrency = usize::from(bridge.config.max_concurrency.get());
        Self {
            agent: agent.to_owned(),
            broker: bridge.address.base_url(),
            invoker: Arc::clone(invoker),
            permits: Arc::new(Semaphore::new(concurrency)),
            max_tasks: concurrency + usize::from(bridge.config.max_queued),
            tasks: JoinSet::new(),
            drain_expired: watch::channel(false).0,
            current_sender: watch::channel(None).0,
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

    /// Executes a task, or publishes an error where too many tasks are queued.
    pub(super) fn start(&mut self, task: Box<BridgeTask>) {
        if self.tasks.len() >= self.max_tasks {
            let error = TaskError::new(TaskErrorCode::InternalError, "Too many tasks; try again later");
            return self.publish_in_background(task.result_message(Err(error)));
        }
        let runner = TaskRunner {
            agent: self.agent.clone(),
            invoker: Arc::clone(&self.invoker),
            permits: Arc::clone(&self.permits),
            drain_expired: self.drain_expired.subscribe(),
            current_sender: self.current_sender.subscribe(),
        };
        self.tasks.spawn(runner.run(task));
    }

    /// Publishes a message, unless too many publications are pending.
    pub(super) fn publish_in_background(&mut self, outgoing: OutgoingMessage) {
        if self.tasks.len() < self.max_tasks + MAX_PUBLICATIONS {
            self.tasks.spawn(publish_result(self.current_sender.subscribe(), outgoing));
        } else {
            self.log_discarded("too many pending publications");
        }
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
    pub(super) fn log_discarded(&mut self, reason: &str) {
        if self.discard_log.0.elapsed() >= Duration::from_secs(1) {
            self.discard_log = (Instant::now(), 0);
        }
        self.discard_log.1 += 1;
        if self.discard_log.1 <= MAX_LOGGED {
            tracing::info!(agent = self.agent, broker = self.broker, "MQTT message discarded: {reason}");
        }
    }

    /// Waits for running tasks, publishes errors for those that exceed the time (R122), and disconnects.
    pub(super) async fn drain(&mut self, sender: &MqttSender, receiver: &mut MqttReceiver, mut deadline: TokioInstant) {
        while !self.tasks.is_empty() {
            tokio::select! {
                Some(result) = self.tasks.join_next() => log_panic(result),
                // Further messages are ignored, but acknowledgements have to be received.
                message = receiver.next() => if message.is_err() { break },
                () = sleep_until(deadline) => {
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
