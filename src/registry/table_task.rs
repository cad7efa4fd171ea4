//! The task of a feed that keeps a table up to date, which the polls read.

use std::time::Duration;
use tokio::task::JoinSet;

/// How long the first poll waits for the server; less than startup waits for remote sources.
pub(super) const FIRST_POLL_TIMEOUT: Duration = Duration::from_secs(4);

/// The task that keeps the table of a feed up to date. It ends when this is dropped.
#[derive(Debug)]
pub(super) struct TableTask {
    name: &'static str,
    task: JoinSet<()>,
    polled: bool,
}

impl TableTask {
    /// Creates a task that does not run yet; `name` is for the log.
    pub(super) fn new(name: &'static str) -> Self {
        Self { name, task: JoinSet::new(), polled: false }
    }

    /// Starts the task where it does not run, as at the first poll and after a panic. Returns whether this poll is the
    /// first one, which waits for the table.
    pub(super) fn start(&mut self, task: impl Future<Output = ()> + Send + 'static) -> bool {
        if self.task.try_join_next().is_some() {
            tracing::error!("{} panicked: restarting (a defect of the gateway)", self.name);
        }
        if self.task.is_empty() {
            self.task.spawn(task);
        }
        !std::mem::replace(&mut self.polled, true)
    }

    /// Ends the task; the next poll starts it again.
    pub(super) fn stop(&mut self) {
        self.task = JoinSet::new();
    }
}
