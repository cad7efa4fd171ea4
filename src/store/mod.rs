//! Persistent and shared state: published documents with their history, and tasks. Embedded in a SQLite file, or in a
//! PostgreSQL database that several gateways share, behind the same traits. The store knows the owner and revision of a
//! document; it does not validate its content or decide who may publish.

mod database_url;
mod document_sql;
mod document_store;
mod metered_store;
mod postgres;
mod shared;
mod sqlite_documents;
mod store_connections;
mod store_inspection;
mod store_opening;
mod tasks;

pub use database_url::DatabaseUrl;
pub use document_store::{
    ChangeBatch, ChangeCursor, DeletedId, DocumentChange, DocumentStore, DocumentWrite, HistoryEntry,
    MAX_HISTORY_BYTES, MAX_HISTORY_CHANGES, MAX_REMOVED_DOCUMENTS, StoredDocument, WriteEffect, WriteOutcome,
    WritePrecondition, WriteRefusal,
};
pub use metered_store::{measure_documents, measure_tasks};
pub use shared::{
    ClaimRelease, ClaimReply, ClaimRequest, ExtensionReply, IdempotencyRecords, KeyBounds, KeyClaim, KeyReply,
    KeyShard, LeaseBatch, LeaseEntry, LeaseReply, LogAppend, LogPage, MAX_VALUES_PER_TRIP, NewValue, OutcomeReply,
    OutcomeRequest, Redemption, RedemptionAttempt, RedisConfig, SentinelConfig, ShardReply, SharedState, StateConfig,
    StateError, StoredValue, TokenBatch, TokenEntry, TokenLimit, TokenReply, TripKind, UpkeepReply, UpkeepRequest,
    ValueChanges, ValueKey, ValueKind, inspect_state,
};
#[cfg(test)]
pub use shared::{FakeBehavior, FakeServer, FakeTokens};
pub use store_connections::StoreConnections;
pub use store_inspection::{StoreProblem, StoreSchema, inspect_store};
pub use store_opening::{StoreLocation, check_location, open_documents, open_tasks};
pub use tasks::{
    DueCallback, ListedTask, StoredTask, TaskCounts, TaskLimits, TaskPage, TaskRefusal, TaskStateCount, TaskStore,
    TaskSummary,
};

#[cfg(test)]
mod tests;
