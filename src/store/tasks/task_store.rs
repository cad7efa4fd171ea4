//! The trait of a task store, and the tasks that pass through it.

use crate::{fault::Result, store::store_connections::StoreConnections, values::ClientKey};
use std::{fmt, sync::Arc};
use time::OffsetDateTime;

/// The maximum number and size of stored tasks.
#[derive(Clone, Copy, Debug)]
pub struct TaskLimits {
    /// Of one owner.
    pub per_owner: u32,
    /// Of one client, whose users are owners of their own.
    pub per_client: u32,
    /// Of all owners together.
    pub total: u32,
    /// The size in bytes with which a running task counts.
    pub reserved_size: usize,
    /// The size in bytes of the tasks of one client.
    pub size_per_client: usize,
    /// The size in bytes of all tasks.
    pub total_size: usize,
}

/// Why a task was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaskRefusal {
    /// The owner has its maximum number of tasks.
    OwnerLimit,
    /// The client has its maximum number or size of tasks.
    ClientLimit,
    /// The store has the maximum number or size of tasks.
    TotalLimit,
}

/// How many tasks are stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TaskCounts {
    /// Tasks that have not ended.
    pub running: u64,
    /// Tasks that have ended.
    pub ended: u64,
    /// Tasks whose callback is not delivered yet.
    pub pending_callbacks: u64,
}

/// What lists of tasks show and select by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskSummary {
    /// When the task was started.
    pub created: OffsetDateTime,
    /// Id of the agent.
    pub agent: Arc<str>,
    /// Name of the state.
    pub state: Arc<str>,
    /// What else lists show, as text. Short, unlike the record.
    pub text: Arc<str>,
}

/// Which tasks a list has.
#[derive(Clone, Debug, Default)]
pub struct TaskPage {
    /// Tasks that are listed behind the one with this creation and id; `None` begins with the newest.
    pub after: Option<(OffsetDateTime, Arc<str>)>,
    /// Only tasks of this agent.
    pub agent: Option<Arc<str>>,
    /// Only tasks in this state.
    pub state: Option<Arc<str>>,
    /// Maximum number of tasks.
    pub limit: usize,
}

/// A task in a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedTask {
    /// Id of the task.
    pub id: Arc<str>,
    /// The caller that owns it.
    pub owner: Arc<str>,
    /// Time of the next attempt to deliver its callback; `None` if no callback is pending.
    pub callback_due: Option<OffsetDateTime>,
    /// [`TaskSummary::text`]; empty if an earlier gateway stored the task.
    pub text: Arc<str>,
}

/// How many tasks are in a state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskStateCount {
    /// Name of the state; empty for tasks that an earlier gateway stored.
    pub state: Arc<str>,
    /// The number of tasks.
    pub count: u64,
}

/// A stored task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredTask {
    /// Id of the task.
    pub id: Arc<str>,
    /// The caller that owns it.
    pub owner: Arc<str>,
    /// Id of the gateway that runs it.
    pub gateway_id: Arc<str>,
    /// Whether it has not ended.
    pub is_running: bool,
    /// Time at which it is deleted.
    pub expires: OffsetDateTime,
    /// Time of the next attempt to deliver its callback; `None` if no callback is pending.
    pub callback_due: Option<OffsetDateTime>,
    /// The rest of the record, as text.
    pub record: Arc<str>,
    /// What lists show; `None` in a task that was read.
    pub summary: Option<TaskSummary>,
}

/// A task whose callback is due.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DueCallback {
    /// Id of the task.
    pub task: Arc<str>,
    /// The client that it counts for.
    pub client: ClientKey,
}

/// Store of tasks.
#[async_trait::async_trait]
pub trait TaskStore: fmt::Debug + Send + Sync {
    /// Inserts a new task, within the limits; the task is durable when this returns. Returns why the task was refused,
    /// or `None` if it was inserted.
    ///
    /// # Errors
    /// `Overloaded` when the store cannot be reached or is too busy, as for every method below.
    async fn insert(&self, task: &StoredTask, client: ClientKey, limits: TaskLimits) -> Result<Option<TaskRefusal>>;

    /// Deletes at most `limit` ended tasks of `owner`, who is a user of `client`, without a pending callback, the oldest
    /// first. Returns whether there were any.
    ///
    /// # Errors
    /// `Overloaded`.
    async fn delete_ended(&self, owner: &Arc<str>, client: ClientKey, limit: u32) -> Result<bool>;

    /// Whether `client` has room for one more task once `deletions` ended tasks of `owner` are deleted.
    ///
    /// # Errors
    /// `Overloaded`.
    async fn can_make_room(
        &self,
        owner: &Arc<str>,
        client: ClientKey,
        limits: TaskLimits,
        deletions: u32,
    ) -> Result<bool>;

    /// Writes how a task ended, unless it has ended already. Returns whether it was written.
    ///
    /// # Errors
    /// `Overloaded`.
    async fn record_end(&self, task: &StoredTask) -> Result<bool>;

    /// Returns the task with this id.
    ///
    /// # Errors
    /// `Overloaded`.
    async fn get(&self, id: &str) -> Result<Option<StoredTask>>;

    /// Writes the result of an attempt to deliver a callback.
    ///
    /// # Errors
    /// `Overloaded`.
    async fn record_callback_attempt(&self, task: &StoredTask) -> Result<()>;

    /// Returns at most `limit` tasks whose callback is due at `now`, the oldest first, and of each client at most
    /// `limit_per_client`.
    ///
    /// # Errors
    /// `Overloaded`.
    async fn due_callbacks(
        &self,
        now: OffsetDateTime,
        limit_per_client: usize,
        limit: usize,
    ) -> Result<Vec<DueCallback>>;

    /// Claims a task whose callback is due at `now`; other gateways do not get it before `until`. `None` if another one
    /// has it, or its callback is not due any more.
    ///
    /// # Errors
    /// `Overloaded`.
    async fn claim_callback(
        &self,
        id: &Arc<str>,
        now: OffsetDateTime,
        until: OffsetDateTime,
    ) -> Result<Option<StoredTask>>;

    /// Returns the ids of the running tasks of the gateway `gateway_id`.
    ///
    /// # Errors
    /// `Overloaded`.
    async fn running_on(&self, gateway_id: &str) -> Result<Vec<Arc<str>>>;

    /// Writes the heartbeat of `gateway_id`, and returns running tasks of gateways without a heartbeat within `lease`,
    /// by the store's own clock.
    ///
    /// # Errors
    /// `Overloaded`.
    async fn heartbeat(&self, gateway_id: &str, lease: std::time::Duration) -> Result<Vec<StoredTask>>;

    /// Ends the lease of `gateway_id`.
    ///
    /// # Errors
    /// `Overloaded`.
    async fn end_lease(&self, gateway_id: &str) -> Result<()>;

    /// Deletes tasks that expired by `now`. Returns whether there may be more.
    ///
    /// # Errors
    /// `Overloaded`.
    async fn delete_expired(&self, now: OffsetDateTime) -> Result<bool>;

    /// Returns how many tasks are stored.
    ///
    /// # Errors
    /// `Overloaded`.
    async fn count(&self) -> Result<TaskCounts>;

    /// Returns tasks of all owners, the newest first, without their records.
    ///
    /// # Errors
    /// `Overloaded`.
    async fn list(&self, page: &TaskPage) -> Result<Vec<ListedTask>>;

    /// Returns how many tasks are in each state.
    ///
    /// # Errors
    /// `Overloaded`.
    async fn count_states(&self) -> Result<Vec<TaskStateCount>>;

    /// Returns the connections to the database, if the store has one.
    fn connections(&self) -> Option<StoreConnections> {
        None
    }
}
