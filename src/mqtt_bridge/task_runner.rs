//! Execution of one bridged task: waits for a permit, calls the agent and publishes the result. Every task ends in a
//! published message, even when the agent fails (R122); then its id is stored and the broker gets its acknowledgement
//! (R161).

use super::{
    AgentInvoker, TaskInvocation,
    delivery::UnfinishedDeliveries,
    payload::{TaskError, TaskErrorCode},
    task_envelope::{BridgeTask, OutgoingMessage},
    task_id_file::TaskIdFile,
};
use crate::{
    fault::{Fault, FaultCode},
    mqtt_client::{MqttSendError, MqttSender},
};
use bytes::Bytes;
use futures_util::FutureExt;
use parking_lot::Mutex;
use serde_json::value::RawValue;
use std::{panic::AssertUnwindSafe, sync::Arc, time::Duration};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore, watch},
    task::JoinError,
    time::{Instant, timeout_at},
};
use uuid::Uuid;

/// How long a result waits for a connection to the broker, if the broker keeps no session.
const RECONNECT_TIMEOUT: Duration = Duration::from_secs(30);
/// A message whose publication meets the end of so many connections counts as refused: some brokers close the connection
/// for a message that they do not accept.
const MAX_LOST_CONNECTIONS: usize = 2;

/// The sender of the current connection; `None` while there is no connection.
pub(super) type CurrentSender = watch::Receiver<Option<MqttSender>>;

/// Publishes results on the current connection.
pub(super) struct ResultPublisher {
    pub(super) current_sender: CurrentSender,
    /// How long the broker keeps the session, if it does.
    pub(super) session_expiry: Option<Duration>,
    /// Held during a repetition: one message is repeated at a time, so that a message for which the broker closes the
    /// connection does not end the repetitions of others.
    pub(super) repetitions: Arc<tokio::sync::Mutex<()>>,
}

/// The finished tasks on disk; `None` where the bridge has no state folder.
pub(super) type FinishedTaskIds = Option<Arc<Mutex<TaskIdFile>>>;

/// The context in which one task is executed.
pub(super) struct TaskRunner {
    pub(super) agent: String,
    pub(super) invoker: Arc<dyn AgentInvoker>,
    /// Permits for concurrent tasks of this agent.
    pub(super) permits: Arc<Semaphore>,
    /// The slot of this task among those that run or are queued.
    pub(super) slot: OwnedSemaphorePermit,
    /// Becomes true when the drain timeout has passed.
    pub(super) drain_expired: watch::Receiver<bool>,
    pub(super) publisher: ResultPublisher,
    pub(super) unfinished: UnfinishedDeliveries,
    pub(super) finished_ids: FinishedTaskIds,
}

impl TaskRunner {
    /// Executes the task, publishes its result, and acknowledges the task.
    pub(super) async fn run(self, mut task: Box<BridgeTask>) {
        if !self.invoker.records_traces() {
            task.trace_context.clear();
        }
        let mut drain_expired = self.drain_expired.clone();
        let result = tokio::select! {
            biased;
            result = AssertUnwindSafe(self.invoke_agent(&task)).catch_unwind() => {
                result.unwrap_or_else(|_| Err(TaskError::new(TaskErrorCode::InternalError, "The task failed")))
            }
            // An error means that the sender was dropped: the session is gone.
            _ = drain_expired.wait_for(|is_expired| *is_expired) => Err(withdrawn()),
        };
        let outgoing = match &result {
            Ok(response) => task.result_message(Ok(response)),
            Err(error) => task.result_message(Err(error.clone())),
        };
        if !self.publisher.publish(outgoing).await {
            return self.unfinished.abandon(task.uuid);
        }
        store_finished_id(self.finished_ids.clone(), task.uuid).await;
        // The broker may deliver the next task as soon as this one is acknowledged.
        drop(self.slot);
        if let Some(delivery) = self.unfinished.take(task.uuid) {
            delivery.acknowledge().await;
        }
    }

    async fn invoke_agent(&self, task: &BridgeTask) -> Result<Box<RawValue>, TaskError> {
        let _permit = self
            .permits
            .acquire()
            .await
            .map_err(|_| TaskError::new(TaskErrorCode::InternalError, "The task failed"))?;
        // The end of the drain ends the running tasks, whose permits a queued task may get before it sees that end.
        if *self.drain_expired.borrow() {
            return Err(withdrawn());
        }
        let (id, instruction) = (task.id.as_str(), task.instruction.as_deref());
        let invocation = TaskInvocation {
            agent: &self.agent,
            task_id: id,
            session_id: task.call_ids.session.as_deref(),
            caller_task_id: task.call_ids.task.as_deref(),
            instruction,
            input: task.input.clone(),
            trace_context: &task.trace_context,
        };
        let response = self.invoker.invoke(invocation).await.map_err(|fault| TaskError::from_fault(&fault))?;
        RawValue::from_string(response).map_err(|error| {
            TaskError::from_fault(
                &Fault::new(FaultCode::AgentError, "The agent's reply is not JSON").with_detail(error),
            )
        })
    }
}

fn withdrawn() -> TaskError {
    TaskError::new(TaskErrorCode::InternalError, "The agent was withdrawn before the task finished")
}

impl ResultPublisher {
    /// Publishes the result of a task on the current connection, and returns whether the task is done. It is not where
    /// no connection was possible in time: a broker that keeps the session delivers the task again.
    ///
    /// If the connection is lost before the broker acknowledges a response, the response is published again on the next
    /// connection (QoS 1, R105), once. A task for the next agent is published again only where the broker keeps the session:
    /// otherwise a task may get lost, but does not run twice at an agent that does not recognise duplicates.
    pub(super) async fn publish(mut self, outgoing: OutgoingMessage) -> bool {
        let deadline = Instant::now() + RECONNECT_TIMEOUT.max(self.session_expiry.unwrap_or_default());
        let may_repeat = !outgoing.is_task || self.session_expiry.is_some();
        let OutgoingMessage { mut topic, payload, mut on_refusal, mut trace_context, .. } = outgoing;
        let mut payload = Bytes::from(payload);
        let mut lost_connections = 0;
        loop {
            let mut repetition = None;
            if lost_connections > 0 {
                repetition = timeout_at(deadline, self.repetitions.lock()).await.ok();
            }
            let Some(sender) = next_sender(&mut self.current_sender, deadline).await else {
                tracing::warn!("result of a task is lost: no connection to the MQTT broker");
                return false;
            };
            let properties = trace_context.clone();
            let published = sender.publish_with_properties(&topic, payload.clone(), false, properties).await;
            drop(repetition);
            lost_connections += 1;
            match published {
                Ok(_) => return true,
                Err(MqttSendError::ConnectionLost(_)) if may_repeat && lost_connections < MAX_LOST_CONNECTIONS => {}
                Err(error) => {
                    tracing::warn!(%error, "result of a task may be lost: the MQTT broker did not accept it");
                    let Some(refusal) = on_refusal.take() else { return true };
                    (topic, payload) = (refusal.topic, refusal.payload.into());
                    trace_context = Vec::new();
                    lost_connections = 0;
                }
            }
        }
    }
}

/// Waits for a connection to the broker; `None` where there is none in time.
async fn next_sender(current_sender: &mut CurrentSender, deadline: Instant) -> Option<MqttSender> {
    let is_connected = |sender: &Option<MqttSender>| sender.as_ref().is_some_and(|sender| !sender.is_closed());
    timeout_at(deadline, current_sender.wait_for(is_connected)).await.ok()?.ok()?.clone()
}

/// Stores the id of a task that is done, so that a restarted gateway does not execute the task again.
async fn store_finished_id(finished_ids: FinishedTaskIds, task: Uuid) {
    let Some(file) = finished_ids else { return };
    match tokio::task::spawn_blocking(move || file.lock().append(task)).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => {
            tracing::warn!(%error, "cannot store the id of a finished task (see mqtt_bridge.state_folder)")
        }
        Err(error) => log_panic(Err(error)),
    }
}

/// Logs the panic of a background task of the bridge.
pub(super) fn log_panic(result: Result<(), JoinError>) {
    if let Err(error) = result {
        tracing::error!("bridge task panicked: this is a defect of the gateway ({error})");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mqtt_bridge::{
        deduplication::RecentTaskIds,
        running_tasks::TASK_OVERHEAD,
        task_envelope::{IncomingTask, TaskValidator, TaskVerdict},
    };
    use serde_json::json;

    struct EchoInvoker;

    #[async_trait::async_trait]
    impl AgentInvoker for EchoInvoker {
        async fn invoke(&self, invocation: TaskInvocation<'_>) -> Result<String, Fault> {
            Ok(String::from_utf8(invocation.input.to_vec()).unwrap())
        }

        async fn is_reachable(&self, _agent: &str) -> bool {
            true
        }
    }

    #[tokio::test(start_paused = true)]
    async fn r125_r161_a_task_whose_result_cannot_be_published_is_executed_again() {
        let unfinished = UnfinishedDeliveries::default();
        let recent_ids = RecentTaskIds::new(10, Duration::from_secs(3_600));
        let mut validator = TaskValidator::new("a", recent_ids, Vec::new());
        let topic = "/control/agents/a/input";
        let payload =
            json!({"task_id": Uuid::new_v4().to_string(), "conversation_id": "c", "topic": topic, "input": "hi"})
                .to_string();
        let mut validate = |abandoned: &[Uuid]| {
            validator.forget(abandoned);
            let message = IncomingTask { topic, payload: payload.as_bytes(), retained: false, repeated: false };
            validator.validate_and_deduplicate(&message, std::time::Instant::now())
        };
        let TaskVerdict::Process(task) = validate(&[]) else { panic!("it is valid") };
        let (_connections, current_sender) = watch::channel(None);
        let (_drain, drain_expired) = watch::channel(false);
        let runner = TaskRunner {
            agent: "a".to_owned(),
            invoker: Arc::new(EchoInvoker),
            permits: Arc::new(Semaphore::new(1)),
            slot: Arc::new(Semaphore::new(1)).acquire_owned().await.unwrap(),
            drain_expired,
            publisher: ResultPublisher {
                current_sender,
                session_expiry: Some(Duration::from_secs(3_600)),
                repetitions: Arc::default(),
            },
            unfinished: unfinished.clone(),
            finished_ids: None,
        };
        let (id, started) = (task.uuid, Instant::now());
        let run = runner.run(task);
        let size = size_of_val(&run) + size_of::<BridgeTask>();
        assert!(size < TASK_OVERHEAD, "a waiting task has {size} bytes beside its message");
        run.await;
        assert_eq!(started.elapsed().as_secs(), 3_600, "as long as the broker keeps the session");
        assert!(matches!(validate(&[]), TaskVerdict::Duplicate(_)));
        let abandoned = unfinished.take_abandoned();
        assert_eq!(abandoned, [id]);
        assert!(matches!(validate(&abandoned), TaskVerdict::Process(_)) && unfinished.take_abandoned().is_empty());
    }
}
