//! One task's work: its turn, the agent's answer, and what is published for it. Whatever happens to the agent or the
//! gateway, something is published (R122).

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

/// How long an answer waits for a connection.
const BELATED: Duration = Duration::from_secs(30);

/// The connection of the moment.
pub(super) type Line = watch::Receiver<Option<Speaker>>;

/// What a task needs besides itself.
pub(super) struct Work {
    pub(super) agent: String,
    pub(super) house: Arc<dyn House>,
    /// As many as tasks may be done at once.
    pub(super) turns: Arc<Semaphore>,
    /// Whether there is no time left for it.
    pub(super) over: watch::Receiver<bool>,
    pub(super) line: Line,
}

impl Work {
    /// Does the task, and publishes what becomes of it.
    pub(super) async fn on(self, task: Box<Task>) {
        let mut over = self.over.clone();
        let done = tokio::select! {
            biased;
            done = AssertUnwindSafe(self.ask(&task)).catch_unwind() => {
                done.unwrap_or_else(|_| Err(Failure::new(Kind::InternalError, "the task failed")))
            }
            // Nobody is left to say so where there is no sender any more.
            _ = over.wait_for(|over| *over) => {
                Err(Failure::new(Kind::InternalError, "the agent leaves before the task is done"))
            }
        };
        let told = match &done {
            Ok(answer) => task.done(Ok(answer)),
            Err(failure) => task.done(Err(failure.clone())),
        };
        publish(self.line, told).await;
    }

    async fn ask(&self, task: &Task) -> Result<Box<RawValue>, Failure> {
        let _turn = self.turns.acquire().await.map_err(|_| Failure::new(Kind::InternalError, "the task failed"))?;
        let (id, instruction) = (task.id.as_str(), task.instruction.as_deref());
        let asked = Asked { agent: &self.agent, task: id, instruction, input: task.input.clone() };
        let answer = self.house.call(asked).await.map_err(|fault| Failure::of(&fault))?;
        RawValue::from_string(answer)
            .map_err(|why| Failure::of(&Fault::new(Code::AgentError, "the agent's answer is not JSON").detail(why)))
    }
}

/// Publishes what becomes of a task, on the connection of the moment. An answer whose connection is lost before the broker
/// has acknowledged it is said once more on the next (QoS 1, R105); a task for another agent is not, or it might be done
/// twice.
pub(super) async fn publish(mut line: Line, told: Told) {
    let (until, is_answer) = (Instant::now() + BELATED, told.is_answer());
    let (topic, payload) = (told.topic, Bytes::from(told.payload));
    let lives = |line: &Option<Speaker>| line.as_ref().is_some_and(|speaker| !speaker.is_over());
    loop {
        let speaker = match timeout_at(until, line.wait_for(lives)).await {
            Ok(Ok(line)) => line.clone(),
            _ => None,
        };
        let Some(speaker) = speaker else {
            return tracing::warn!("the answer to a task is lost: there was no connection to its broker");
        };
        match speaker.publish(&topic, payload.clone(), false).await {
            Ok(_) => return,
            Err(Unheard::Lost(_)) if is_answer => {}
            Err(why) => return tracing::warn!(%why, "the answer to a task may be lost"),
        }
    }
}

pub(super) fn finished(done: Result<(), JoinError>) {
    if let Err(why) = done {
        tracing::error!("a task of the bridge failed in a way that is a defect of the gateway ({why})");
    }
}
