//! Tasks as they are kept: whose they are, which gateway runs them, when they end, and a text that says the rest. Both
//! engines run the statements of this file, each question in one transaction; what a task means is not judged here.

mod postgres;
mod sqlite;

use super::{Place, Refused};
use crate::{
    fault::Result,
    store::plan::{Cell, count, micros, moment},
};
use std::{fmt, sync::Arc};
use time::OffsetDateTime;

/// Tasks that one question returns at most.
const PAGE: usize = 200;

/// A task as it is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptTask {
    /// Its id.
    pub id: Arc<str>,
    /// Whose it is.
    pub owner: Arc<str>,
    /// The gateway that runs it.
    pub keeper: Arc<str>,
    /// Whether it has not ended.
    pub open: bool,
    /// When it is forgotten.
    pub expires: OffsetDateTime,
    /// When somebody is to be told of its end; none for never, or no longer.
    pub due: Option<OffsetDateTime>,
    /// What else there is to know.
    pub record: Arc<str>,
}

/// Where tasks are kept.
#[async_trait::async_trait]
pub trait Tasks: fmt::Debug + Send + Sync {
    /// Keeps a new task, unless its owner has `most.0` already, or there are `most.1` in all. When this returns, it
    /// survives whatever happens to this process.
    ///
    /// # Errors
    /// `Overloaded` where the store cannot be reached or is too busy, as for every question below.
    async fn begin(&self, task: &KeptTask, most: (u32, u32)) -> Result<std::result::Result<(), Refused>>;

    /// Forgets at most `most` of `owner`'s tasks that have ended, the oldest, and of which nobody is to be told any
    /// more; whether there were any.
    ///
    /// # Errors
    /// `Overloaded`.
    async fn make_room(&self, owner: &Arc<str>, most: u32) -> Result<bool>;

    /// Writes how a task ended, if it had not; whether it had not.
    ///
    /// # Errors
    /// `Overloaded`.
    async fn finish(&self, task: &KeptTask) -> Result<bool>;

    /// The task called `id`.
    ///
    /// # Errors
    /// `Overloaded`.
    async fn get(&self, id: &str) -> Result<Option<KeptTask>>;

    /// Writes what became of telling of a task's end.
    ///
    /// # Errors
    /// `Overloaded`.
    async fn told(&self, task: &KeptTask) -> Result<()>;

    /// At most `most` tasks of whose end somebody is to be told by `now`; nobody else gets them before `until`.
    ///
    /// # Errors
    /// `Overloaded`.
    async fn claim(&self, now: OffsetDateTime, until: OffsetDateTime, most: usize) -> Result<Vec<KeptTask>>;

    /// The ids of `keeper`'s tasks that have not ended.
    ///
    /// # Errors
    /// `Overloaded`.
    async fn open_of(&self, keeper: &str) -> Result<Vec<Arc<str>>>;

    /// Says that `keeper` lives, and finds tasks whose keepers have said so for the last time longer ago than
    /// `lease`, by the store's own clock.
    ///
    /// # Errors
    /// `Overloaded`.
    async fn beat(&self, keeper: &str, lease: std::time::Duration) -> Result<Vec<KeptTask>>;

    /// Says that `keeper` lives no longer.
    ///
    /// # Errors
    /// `Overloaded`.
    async fn leave(&self, keeper: &str) -> Result<()>;

    /// Forgets tasks that have expired by `now`; whether there may be more of them.
    ///
    /// # Errors
    /// `Overloaded`.
    async fn sweep(&self, now: OffsetDateTime) -> Result<bool>;
}

/// Opens a store of tasks; tables are made where there are none. A database that is down is no error: it is asked
/// again with every question.
///
/// # Errors
/// The place can never be used as it is written.
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
    /// Why nothing happens at all where this changes no row.
    unless: Option<Refused>,
}

fn line(text: &'static str, values: Vec<Cell>) -> Line {
    Line { text, values, unless: None }
}

/// What came of a transaction: what its last statement returned, and how many rows it changed or returned.
type Came = std::result::Result<(Vec<KeptTask>, u64), Refused>;

/// An engine: runs lines in one transaction.
#[async_trait::async_trait]
trait Engine: fmt::Debug + Send + Sync {
    /// The store's own clock, in microseconds since 1970.
    const BEAT: &'static str;
    const DEAD: &'static str;

    async fn run(&self, lines: Vec<Line>) -> Result<Came>;

    /// As [`Engine::run`], for lines of which none refuses.
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
        // Nothing is locked or counted for a caller of whom nothing can go.
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
            line(E::BEAT, vec![Cell::Text(keeper.into())]),
            line(E::DEAD, vec![Cell::Number(lease)]),
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
        // Nothing is locked where nothing has expired. Counting anew under the lock keeps the count right for ever.
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

/// A task of its columns, which have the order of [`GET`].
fn kept(texts: [String; 4], (open, expires, due): (i64, i64, Option<i64>)) -> KeptTask {
    let [id, owner, keeper, record] = texts.map(Arc::from);
    KeptTask { id, owner, keeper, open: open != 0, expires: moment(expires), due: due.map(moment), record }
}

/// The tables, as a step of the plan's migrations.
pub(super) const TABLES: &str = "
    create table gatepost_tasks (
        id text primary key, owner text not null, keeper text not null, open bigint not null,
        expires bigint not null, due bigint, record text not null);
    create index gatepost_tasks_owner on gatepost_tasks (owner);
    create index gatepost_tasks_keeper on gatepost_tasks (keeper, open);
    create index gatepost_tasks_expires on gatepost_tasks (expires);
    create index gatepost_tasks_due on gatepost_tasks (due);
    create table gatepost_keepers (id text primary key, seen bigint not null);
    create table gatepost_task_count (one integer primary key check (one = 1), tasks bigint not null);
    insert into gatepost_task_count values (1, 0);
";

const COUNT: &str = "update gatepost_task_count set tasks = tasks + 1 where tasks < $1";
const BEGIN: &str = "insert into gatepost_tasks (id, owner, keeper, open, expires, due, record)
    select cast($1 as text), cast($2 as text), cast($3 as text), 1, cast($4 as bigint), cast($5 as bigint),
        cast($6 as text)
    where (select count(*) from gatepost_tasks where owner = cast($2 as text)) < cast($7 as bigint)";
const ENDED: &str = "select id, owner, keeper, open, expires, due, '' from gatepost_tasks
    where owner = $1 and open = 0 and due is null limit 1";
const FORGET: &str = "delete from gatepost_tasks where id in (
    select id from gatepost_tasks where owner = $1 and open = 0 and due is null order by expires limit $2)";
const FINISH: &str =
    "update gatepost_tasks set open = 0, expires = $2, due = $3, record = $4 where id = $1 and open = 1";
const GET: &str = "select id, owner, keeper, open, expires, due, record from gatepost_tasks where id = $1";
const TOLD: &str = "update gatepost_tasks set due = $2, record = $3 where id = $1";
const CLAIM: &str = "update gatepost_tasks set due = $2
    where due <= $1 and id in (select id from gatepost_tasks where due <= $1 order by due limit $3)
    returning id, owner, keeper, open, expires, due, record";
const OPEN_OF: &str =
    "select id, owner, keeper, open, expires, due, '' from gatepost_tasks where keeper = $1 and open = 1";
const ORPHANS: &str = "select id, owner, keeper, open, expires, due, record from gatepost_tasks
    where open = 1 and keeper not in (select id from gatepost_keepers) limit $1";
const LEAVE: &str = "delete from gatepost_keepers where id = $1";
const EXPIRED: &str = "select id, owner, keeper, open, expires, due, '' from gatepost_tasks
    where expires <= $1 limit 1";
const LOCK: &str = "update gatepost_task_count set tasks = tasks";
const SWEEP: &str = "delete from gatepost_tasks
    where id in (select id from gatepost_tasks where expires <= $1 limit $2)";
const RECOUNT: &str = "update gatepost_task_count set tasks = (select count(*) from gatepost_tasks)";

/// Whether a statement returns rows.
fn returns(text: &str) -> bool {
    text.starts_with("select") || text.contains("returning")
}
