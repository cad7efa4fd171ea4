//! Execution of one bridged task: waits for a permit, calls the agent and publishes the result. Every task ends in a
//! published message, even when the agent or the gateway fails (R122).

use super::{
    Asked, House,
    task::{Task, Told},
    words::{Failure, Kind},
};
use crate::{
    broker::{Speaker, Unheard},
    fault::{Code, Fault},
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
const BELATED: Duration = Duration::from_secs(30);

/// The sender of the current connection; `None` while there is no connection.
pub(super) type Line = watch::Receiver<Option<Speaker>>;

/// Everything that the execution of one task needs besides the task.
pub(super) struct Work {
    pub(super) agent: String,
    pub(super) house: Arc<dyn House>,
    /// Permits for concurrent tasks of this agent.
    pub(super) turns: Arc<Semaphore>,
    /// Becomes true when the time for finishing tasks has run out.
    pub(super) over: watch::Receiver<bool>,
    pub(super) line: Line,
}

impl Work {
    /// Executes the task and publishes its result.
    pub(super) async fn on(self, task: Box<Task>) {
        let mut over = self.over.clone();
        let done = tokio::select! {
            biased;
            done = AssertUnwindSafe(self.ask(&task)).catch_unwind() => {
                done.unwrap_or_else(|_| Err(Failure::new(Kind::InternalError, "The task failed")))
            }
            // An error means that the sender was dropped: the session is gone.
            _ = over.wait_for(|over| *over) => {
                Err(Failure::new(Kind::InternalError, "The agent was withdrawn before the task finished"))
            }
        };
        let outgoing = match &done {
            Ok(answer) => task.done(Ok(answer)),
            Err(failure) => task.done(Err(failure.clone())),
        };
        publish(self.line, outgoing).await;
    }

    async fn ask(&self, task: &Task) -> Result<Box<RawValue>, Failure> {
        let _turn = self.turns.acquire().await.map_err(|_| Failure::new(Kind::InternalError, "The task failed"))?;
        let (id, instruction) = (task.id.as_str(), task.instruction.as_deref());
        let asked = Asked { agent: &self.agent, task: id, instruction, input: task.input.clone() };
        let answer = self.house.call(asked).await.map_err(|fault| Failure::of(&fault))?;
        RawValue::from_string(answer)
            .map_err(|why| Failure::of(&Fault::new(Code::AgentError, "The agent's reply is not JSON").detail(why)))
    }
}

/// Publishes the result of a task on the current connection. If the connection is lost before the broker acknowledges a
/// response, the response is published again on the next connection (QoS 1, R105). A task for the next agent is not
/// published again, because that agent could execute it twice.
pub(super) async fn publish(mut line: Line, outgoing: Told) {
    let (until, is_answer) = (Instant::now() + BELATED, outgoing.is_answer());
    let (topic, payload) = (outgoing.topic, Bytes::from(outgoing.payload));
    let lives = |line: &Option<Speaker>| line.as_ref().is_some_and(|sender| !sender.is_over());
    loop {
        let sender = match timeout_at(until, line.wait_for(lives)).await {
            Ok(Ok(line)) => line.clone(),
            _ => None,
        };
        let Some(sender) = sender else {
            return tracing::warn!("result of a task is lost: no connection to the MQTT broker");
        };
        match sender.publish(&topic, payload.clone(), false).await {
            Ok(_) => return,
            Err(Unheard::Lost(_)) if is_answer => {}
            Err(why) => return tracing::warn!(%why, "result of a task may be lost: the MQTT broker did not accept it"),
        }
    }
}

/// Logs a task of the bridge that panicked.
pub(super) fn finished(done: Result<(), JoinError>) {
    if let Err(why) = done {
        tracing::error!("bridge task panicked: this is a defect of the gateway ({why})");
    }
}
