//! Builders for the parts of a task: its record, the limits of its event buffer, its final event.

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

/// Maximum size of a result that the final event includes, in bytes.
const TOLD: usize = 64 << 10;

/// Builds the callback sender, if callbacks are configured.
///
/// # Errors
/// Returns every value of `config` that cannot be used.
pub(super) fn prepare(
    config: &Config,
    services: &Services<'_>,
) -> std::result::Result<Option<Arc<Teller>>, Vec<String>> {
    let problems = config.problems();
    if !problems.is_empty() {
        return Err(problems);
    }
    let Some(callbacks) = &config.callbacks else { return Ok(None) };
    // Callers choose callback URLs, so these are https even if documents may be fetched over http.
    let network = net::Config { allow_plaintext: false, ..services.network.clone() };
    let client = Client::build(&network, Arc::new(services.policy.public_only()))?;
    Teller::new(callbacks, client).map(|teller| Some(Arc::new(teller)))
}

/// Returns the fault for a task that does not exist or belongs to another caller.
pub(super) fn nothing() -> Fault {
    Fault::new(Code::NotFound, "There is no such task")
}

/// Builds the record of a new task.
pub(super) fn fresh(new: &New<'_>, now: OffsetDateTime) -> Task {
    Task {
        // 122 random bits: the id cannot be guessed.
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

/// Returns the limits of a task's event buffer.
pub(super) fn room(config: &Config, lossless: bool) -> Room {
    let resume = config.resume.clone().unwrap_or_default();
    Room { size: resume.size.get(), events: resume.events as usize, lossless }
}

/// Returns the data of the final event: the task, without its result if that is long.
pub(super) fn brief(task: &Task, poll: Duration) -> String {
    let is_long = task.result.as_ref().is_some_and(|result| result.get().len() > TOLD);
    if is_long { task.brief(poll).to_string() } else { task.view(poll) }
}

/// Builds the final record of a task whose gateway died.
pub(super) fn lost(kept: &KeptTask, keep: Duration) -> Option<Task> {
    let mut task = Task::read(kept)?;
    let fault = Fault::new(
        Code::AgentUnavailable,
        "The gateway that ran this task stopped; whether the agent finished is unknown",
    );
    task.ends(&Outcome::Failed(fault), keep);
    Some(task)
}
