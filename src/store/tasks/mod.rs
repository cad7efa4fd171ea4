//! Task store: the owner, gateway, expiry and record of each task. Both engines execute the statements of `task_sql`,
//! one transaction for each method. The store does not interpret the record.

mod postgres_tasks;
mod sql_engine;
mod sqlite_tasks;
mod task_sql;
mod task_store;

pub(super) use postgres_tasks::PostgresTaskStore;
pub(super) use sqlite_tasks::SqliteTaskStore;
pub(super) use task_sql::TABLES;
pub use task_store::{
    DueCallback, ListedTask, StoredTask, TaskCounts, TaskLimits, TaskPage, TaskRefusal, TaskStateCount, TaskStore,
    TaskSummary,
};
