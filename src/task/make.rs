//! How the parts of a task are made: its record, the bounds of its events, the words about its end.

use super::{
    callback::Teller,
    config::Config,
    desk::{New, Services},
    record::{Outcome, State, Task},
    shelf::Room,
};
use crate::{
    fault::{Code, Fault},
    net::{self, Client},
    store::KeptTask,
};
use serde_json::Value;
use std::{sync::Arc, time::Duration};
use time::OffsetDateTime;

/// The longest result that the last event repeats.
const TOLD: usize = 64 << 10;

/// What tells of tasks' ends, where that is wanted.
///
/// # Errors
/// Every value of `config` that cannot be used.
pub(super) fn prepare(
    config: &Config,
    services: &Services<'_>,
) -> std::result::Result<Option<Arc<Teller>>, Vec<String>> {
    let problems = config.problems();
    if !problems.is_empty() {
        return Err(problems);
    }
    let Some(callbacks) = &config.callbacks else { return Ok(None) };
    // Addresses that callers choose are https, whatever holds for documents.
    let network = net::Config { insecure: false, ..services.network.clone() };
    let client = Client::build(&network, Arc::new(services.policy.public_only()))?;
    Teller::new(callbacks, client).map(|teller| Some(Arc::new(teller)))
}

/// The fault for what is not there, or not the caller's.
pub(super) fn nothing() -> Fault {
    Fault::new(Code::NotFound, "there is no such task")
}

/// The record of a task that begins.
pub(super) fn fresh(new: &New<'_>, now: OffsetDateTime) -> Task {
    Task {
        // 122 random bits: whoever does not know it cannot guess it.
        id: uuid::Uuid::new_v4().simple().to_string().into(),
        agent: new.agent.into(),
        operation: new.operation.into(),
        request: new.request.into(),
        state: State::Working,
        created: now,
        updated: now,
        expires: now + new.time,
        end: Value::Null,
        result: None,
        last: 0,
        streamed: false,
        callback: new.callback.map(|url| (url.into(), 0)),
    }
}

/// The bounds of its events.
pub(super) fn room(config: &Config, lossless: bool) -> Room {
    let resume = config.resume.clone().unwrap_or_default();
    Room { size: resume.size.get(), events: resume.events as usize, lossless }
}

/// What the last event says: the task, without a result that is long.
pub(super) fn brief(task: &Task, poll: Duration) -> String {
    let is_long = task.result.as_ref().is_some_and(|result| result.get().len() > TOLD);
    if is_long { task.brief(poll).to_string() } else { task.view(poll) }
}

/// The record of a task that nobody runs any longer.
pub(super) fn lost(kept: &KeptTask, keep: Duration) -> Option<Task> {
    let mut task = Task::read(kept)?;
    let fault = Fault::new(
        Code::AgentUnavailable,
        "the gateway that ran this task is gone; whether the agent finished is not known",
    );
    task.ends(&Outcome::Failed(fault), keep);
    Some(task)
}
