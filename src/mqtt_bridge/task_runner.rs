//! Execution of one bridged task: waits for a permit, calls the agent and publishes the result. Every task ends in a
//! published message, even when the agent or the gateway fails (R122).

use super::{
    AgentInvoker, TaskInvocation,
    payload::{TaskError, TaskErrorCode},
    task_envelope::{BridgeTask, OutgoingMessage},
};
use crate::{
    fault::{Fault, FaultCode},
    mqtt_client::{MqttSendError, MqttSender},
};
use bytes::Bytes;
use futures_util::FutureExt;
use serde_json::value::RawValue;
use std::{panic::AssertUnwindSafe, sync::Arc, time::Duration};
use tokio::{
    sync::{Semaphore, watch},
    task::JoinError,
    time::{Instant, timeout_at},
};

/// How long a result waits for a connection to the broker.
const RECONNECT_TIMEOUT: Duration = Duration::from_secs(30);

/// The sender of the current connection; `None` while there is no connection.
pub(super) type CurrentSender = watch::Receiver<Option<MqttSender>>;

/// The context in which one task is executed.
pub(super) struct TaskRunner {
    pub(super) agent: String,
    pub(super) invoker: Arc<dyn AgentInvoker>,
    /// Permits for concurrent tasks of this agent.
    pub(super) permits: Arc<Semaphore>,
    /// Becomes true when the drain timeout has passed.
    pub(super) drain_expired: watch::Receiver<bool>,
    pub(super) current_sender: CurrentSender,
}

impl TaskRunner {
    /// Executes the task and publishes its result.
    pub(super) async fn run(self, task: Box<BridgeTask>) {
        let mut drain_expired = self.drain_expired.clone();
        let result = tokio::select! {
            biased;
            result = AssertUnwindSafe(self.invoke_agent(&task)).catch_unwind() => {
                result.unwrap_or_else(|_| Err(TaskError::new(TaskErrorCode::InternalError, "The task failed")))
            }
            // An error means that the sender was dropped: the session is gone.
            _ = drain_expired.wait_for(|is_expired| *is_expired) => {
                Err(TaskError::new(TaskErrorCode::InternalError, "The agent was withdrawn before the task finished"))
            }
        };
        let outgoing = match &result {
            Ok(response) => task.result_message(Ok(response)),
            Err(error) => task.result_message(Err(error.clone())),
        };
        publish_result(self.current_sender, outgoing).await;
    }

    async fn invoke_agent(&self, task: &BridgeTask) -> Result<Box<RawValue>, TaskError> {
        let _permit = self
            .permits
            .acquire()
            .await
            .map_err(|_| TaskError::new(TaskErrorCode::InternalError, "The task failed"))?;
        let (id, instruction) = (task.id.as_str(), task.instruction.as_deref());
        let invocation = TaskInvocation { agent: &self.agent, task_id: id, instruction, input: task.input.clone() };
        let response = self.invoker.invoke(invocation).await.map_err(|fault| TaskError::from_fault(&fault))?;
        RawValue::from_string(response).map_err(|error| {
            TaskError::from_fault(
                &Fault::new(FaultCode::AgentError, "The agent's reply is not JSON").with_detail(error),
            )
        })
    }
}

/// Publishes the result of a task on the current connection. If the connection is lost before the broker acknowledges a
/// response, the response is published again on the next connection (QoS 1, R105). A task for the next agent is not
/// published again, because that agent could execute it twice.
pub(super) async fn publish_result(mut current_sender: CurrentSender, outgoing: OutgoingMessage) {
    let (deadline, is_response) = (Instant::now() + RECONNECT_TIMEOUT, outgoing.is_response());
    let (topic, payload) = (outgoing.topic, Bytes::from(outgoing.payload));
    let is_connected = |sender: &Option<MqttSender>| sender.as_ref().is_some_and(|sender| !sender.is_closed());
    loop {
        let sender = match timeout_at(deadline, current_sender.wait_for(is_connected)).await {
            Ok(Ok(sender)) => sender.clone(),
            _ => None,
        };
        let Some(sender) = sender else {
            return tracing::warn!("result of a task is lost: no connection to the MQTT broker");
        };
        match sender.publish(&topic, payload.clone(), false).await {
            Ok(_) => return,
            Err(MqttSendError::ConnectionLost(_)) if is_response => {}
            Err(error) => {
                return tracing::warn!(%error, "result of a task may be lost: the MQTT broker did not accept it");
            }
        }
    }
}

/// Logs the panic of a background task of the bridge.
pub(super) fn log_panic(result: Result<(), JoinError>) {
    if let Err(error) = result {
        tracing::error!("bridge task panicked: this is a defect of the gateway ({error})");
    }
}
