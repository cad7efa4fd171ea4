//! Task store: the owner, gateway, expiry and record of each task. Both engines execute the statements of `task_sql`,
//! one transaction for each method. The store does not interpret the record.

mod postgres;
mod sqlite;
mod task_sql;

pub(super) use task_sql::TABLES;

use super::{Place, Refused};
use crate::{
    fault::Result,
    store::plan::{Cell, count, micros, moment},
};
use std::{fmt, sync::Arc};
use task_sql::{
    BEGIN, CLAIM, COUNT, ENDED, EXPIRED, FINISH, FORGET, GET, LEAVE, LOCK, OPEN_OF, ORPHANS, RECOUNT, SWEEP, TOLD,
};
use time::OffsetDateTime;

/// Maximum number of tasks that one query returns.
const PAGE: usize = 200;

/// A stored task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptTask {
    /// Id of the task.
    pub id: Arc<str>,
    /// The caller that owns it.
    pub owner: Arc<str>,
    /// Id of the gateway that runs it.
    pub keeper: Arc<str>,
    /// Whether it has not ended.
    pub open: bool,
    /// Time at which it is deleted.
    pub expires: OffsetDateTime,
    /// Time of the next attempt to deliver its callback; `None` if no callback is pending.
    pub due: Option<OffsetDateTime>,
    /// The rest of the record, as text.
    pub record: Arc<str>,
}

/// Store of tasks.
#[async_trait::async_trait]
pub trait Tasks: fmt::Debug + Send + Sync {
    /// Inserts a new task, unless its owner has `most.0` tasks already, or all owners together have `most.1`. The task
    /// is durable when this returns.
    ///
    /// # Errors
    /// `Overloaded` when the store cannot be reached or is too busy, as for every method below.
    async fn begin(&self, task: &KeptTask, most: (u32, u32)) -> Result<std::result::Result<(), Refused>>;

    /// Deletes at most `most` ended tasks of `owner` without a pending callback, the oldest first. Returns whether
    /// there were any.
    ///
    /// # Errors
    /// `Overloaded`.
    async fn make_room(&self, owner: &Arc<str>, most: u32) -> Result<bool>;

    /// Writes how a task ended, unless it has ended already. Returns whether it was written.
    ///
    /// # Errors
    /// `Overloaded`.
    async fn finish(&self, task: &KeptTask) -> Result<bool>;

    /// Returns the task with this id.
    ///
    /// # Errors
    /// `Overloaded`.
    async fn get(&self, id: &str) -> Result<Option<KeptTask>>;

    /// Writes the result of an attempt to deliver a callback.
    ///
    /// # Errors
    /// `Overloaded`.
    async fn told(&self, task: &KeptTask) -> Result<()>;

    /// Claims at most `most` tasks whose callback is due at `now`; other gateways do not get them before `until`.
    ///
    /// # Errors
    /// `Overloaded`.
    async fn claim(&self, now: OffsetDateTime, until: OffsetDateTime, most: usize) -> Result<Vec<KeptTask>>;

    /// Returns the ids of the running tasks of `keeper`.
    ///
    /// # Errors
    /// `Overloaded`.
    async fn open_of(&self, keeper: &str) -> Result<Vec<Arc<str>>>;

    /// Writes the heartbeat of `keeper`, and returns running tasks of gateways without a heartbeat within `lease`, by
    /// the store's own clock.
    ///
    /// # Errors
    /// `Overloaded`.
    async fn beat(&self, keeper: &str, lease: std::time::Duration) -> Result<Vec<KeptTask>>;

    /// Ends the lease of `keeper`.
    ///
    /// # Errors
    /// `Overloaded`.
    async fn leave(&self, keeper: &str) -> Result<()>;

    /// Deletes tasks that expired by `now`. Returns whether there may be more.
    ///
    /// # Errors
    /// `Overloaded`.
    async fn sweep(&self, now: OffsetDateTime) -> Result<bool>;
}

/// Opens a task store and creates missing tables. An unreachable database is no error: it is tried again with every
/// query.
///
/// # Errors
/// The location can never be used as configured.
pub async fn open_tasks(place: &Place) -> std::result::Result<Arc<dyn Tasks>, String> {
    match place {
        Place::File(path) => {
            let path = path.clone();
            let opened = tokio::task::spawn_blocking(move || sqlite::File::open(&path)).await;
            Ok(Arc::new(opened.map_err(|why| why.to_string())??))
        }
        Place::Database { address, authorities } => {
            Ok(Arc::new(postgres::Database::open(address, authorities.as_deref()).await?))
        }
    }
}

/// One statement of a transaction.
#[derive(Debug)]
struct Line {
    text: &'static str,
    values: Vec<Cell>,
    /// Refusal that rolls the transaction back if the statement changes no row.
    unless: Option<Refused>,
}

fn line(text: &'static str, values: Vec<Cell>) -> Line {
    Line { text, values, unless: None }
}

/// Result of a transaction: the rows that its last statement returned, and the number of rows it changed or returned.
type Came = std::result::Result<(Vec<KeptTask>, u64), Refused>;

/// A database engine: executes statements in one transaction.
#[async_trait::async_trait]
trait Engine: fmt::Debug + Send + Sync {
    /// Heartbeat statements, by the store's own clock in microseconds since 1970.
    const HEARTBEAT: &'static str;
    const DELETE_DEAD: &'static str;

    async fn run(&self, lines: Vec<Line>) -> Result<Came>;

    /// As [`SqlEngine::run`], for statements without a refusal.
    async fn ask(&self, lines: Vec<Line>) -> Result<(Vec<KeptTask>, u64)> {
        Ok(self.run(lines).await?.unwrap_or_default())
    }
}

#[async_trait::async_trait]
impl<E: Engine> Tasks for E {
    async fn begin(&self, task: &KeptTask, most: (u32, u32)) -> Result<std::result::Result<(), Refused>> {
        let (own, all) = (Cell::Number(most.0.into()), Cell::Number(most.1.into()));
        let mut values = vec![text(&task.id), text(&task.owner), text(&task.keeper)];
        values.extend([Cell::Number(micros(task.expires)), due(task), text(&task.record), own]);
        let lines = vec![
            Line { unless: Some(Refused::Full), ..line(COUNT, vec![all]) },
            Line { unless: Some(Refused::OwnFull), ..line(BEGIN, values) },
        ];
        Ok(self.run(lines).await?.map(drop))
    }

    async fn make_room(&self, owner: &Arc<str>, most: u32) -> Result<bool> {
        // A caller without deletable tasks costs no lock and no count.
        if self.ask(vec![line(ENDED, vec![text(owner)])]).await?.0.is_empty() {
            return Ok(false);
        }
        let values = vec![text(owner), Cell::Number(most.into())];
        let lines = vec![line(LOCK, Vec::new()), line(FORGET, values), line(RECOUNT, Vec::new())];
        self.ask(lines).await.map(|_| true)
    }

    async fn finish(&self, task: &KeptTask) -> Result<bool> {
        let values = vec![text(&task.id), Cell::Number(micros(task.expires)), due(task), text(&task.record)];
        Ok(self.ask(vec![line(FINISH, values)]).await?.1 > 0)
    }

    async fn get(&self, id: &str) -> Result<Option<KeptTask>> {
        Ok(self.ask(vec![line(GET, vec![Cell::Text(id.into())])]).await?.0.pop())
    }

    async fn told(&self, task: &KeptTask) -> Result<()> {
        self.ask(vec![line(TOLD, vec![text(&task.id), due(task), text(&task.record)])]).await.map(drop)
    }

    async fn claim(&self, now: OffsetDateTime, until: OffsetDateTime, most: usize) -> Result<Vec<KeptTask>> {
        let values = vec![Cell::Number(micros(now)), Cell::Number(micros(until)), Cell::Number(count(most))];
        Ok(self.ask(vec![line(CLAIM, values)]).await?.0)
    }

    async fn open_of(&self, keeper: &str) -> Result<Vec<Arc<str>>> {
        let (rows, _) = self.ask(vec![line(OPEN_OF, vec![Cell::Text(keeper.into())])]).await?;
        Ok(rows.into_iter().map(|row| row.id).collect())
    }

    async fn beat(&self, keeper: &str, lease: std::time::Duration) -> Result<Vec<KeptTask>> {
        let lease = i64::try_from(lease.as_micros()).unwrap_or(i64::MAX);
        let lines = vec![
            line(E::HEARTBEAT, vec![Cell::Text(keeper.into())]),
            line(E::DELETE_DEAD, vec![Cell::Number(lease)]),
            line(ORPHANS, vec![Cell::Number(count(PAGE))]),
        ];
        Ok(self.ask(lines).await?.0)
    }

    async fn leave(&self, keeper: &str) -> Result<()> {
        self.ask(vec![line(LEAVE, vec![Cell::Text(keeper.into())])]).await.map(drop)
    }

    async fn sweep(&self, now: OffsetDateTime) -> Result<bool> {
        let page = count(PAGE);
        let swept = vec![Cell::Number(micros(now)), Cell::Number(page)];
        // Without expired tasks, nothing is locked. The recount under the lock corrects the count if it ever differs.
        let (expired, _) = self.ask(vec![line(EXPIRED, vec![Cell::Number(micros(now))])]).await?;
        if expired.is_empty() {
            return Ok(false);
        }
        let lines = vec![line(LOCK, Vec::new()), line(SWEEP, swept), line(RECOUNT, Vec::new())];
        self.ask(lines).await?;
        Ok(true)
    }
}

fn text(text: &Arc<str>) -> Cell {
    Cell::Text(Arc::clone(text))
}

fn due(task: &KeptTask) -> Cell {
    task.due.map_or(Cell::Null, |due| Cell::Number(micros(due)))
}

/// Builds a task from its columns, in the order of [`SELECT_TASK`].
fn kept(texts: [String; 4], (open, expires, due): (i64, i64, Option<i64>)) -> KeptTask {
    let [id, owner, keeper, record] = texts.map(Arc::from);
    KeptTask { id, owner, keeper, open: open != 0, expires: moment(expires), due: due.map(moment), record }
}

/// Whether a statement returns rows.
fn returns(text: &str) -> bool {
    text.starts_with("select") || text.contains("returning")
}
