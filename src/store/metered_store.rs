//! Stores whose operations are measured: each operation of the store inside, with its time and whether it succeeded.

use super::{
    document_store::{
        ChangeBatch, ChangeCursor, DeletedId, DocumentStore, DocumentWrite, HistoryEntry, StoredDocument, WriteOutcome,
    },
    store_connections::StoreConnections,
    tasks::{
        DueCallback, ListedTask, StoredTask, TaskCounts, TaskLimits, TaskPage, TaskRefusal, TaskStateCount, TaskStore,
    },
};
use crate::{
    fault::Result,
    telemetry::{Metrics, StoreConnectionState, StoreKind},
    values::ClientKey,
};
use std::{
    fmt,
    sync::Arc,
    time::{Duration, Instant},
};
use time::OffsetDateTime;
use tokio::sync::watch;

/// Measures the operations of a document store.
pub fn measure_documents(store: Arc<dyn DocumentStore>, metrics: &Arc<Metrics>) -> Arc<dyn DocumentStore> {
    let sampled = Arc::downgrade(&store);
    metrics.set_sampler("registry connections", move |metrics| {
        let connections = sampled.upgrade().and_then(|store| store.connections());
        record_connections(metrics, StoreKind::Registry, connections);
    });
    Arc::new(MeteredStore::new(StoreKind::Registry, metrics, store))
}

/// Measures the operations of a task store.
pub fn measure_tasks(store: Arc<dyn TaskStore>, metrics: &Arc<Metrics>) -> Arc<dyn TaskStore> {
    let sampled = Arc::downgrade(&store);
    metrics.set_sampler("tasks connections", move |metrics| {
        let connections = sampled.upgrade().and_then(|store| store.connections());
        record_connections(metrics, StoreKind::Tasks, connections);
    });
    Arc::new(MeteredStore::new(StoreKind::Tasks, metrics, store))
}

fn record_connections(metrics: &Metrics, store: StoreKind, connections: Option<StoreConnections>) {
    if let Some(StoreConnections { idle, used }) = connections {
        metrics.stores().set_connections(store, StoreConnectionState::Idle, idle);
        metrics.stores().set_connections(store, StoreConnectionState::Used, used);
    }
}

/// A store of one kind, and where its operations are counted.
struct MeteredStore<S: ?Sized> {
    kind: StoreKind,
    metrics: Arc<Metrics>,
    inner: Arc<S>,
}

impl<S: ?Sized> MeteredStore<S> {
    fn new(kind: StoreKind, metrics: &Arc<Metrics>, inner: Arc<S>) -> Self {
        Self { kind, metrics: Arc::clone(metrics), inner }
    }

    async fn measure<T>(&self, operation: impl Future<Output = Result<T>> + Send) -> Result<T> {
        let started = Instant::now();
        let result = operation.await;
        self.metrics.stores().record_operation(self.kind, started.elapsed(), result.is_ok());
        result
    }
}

impl<S: ?Sized + fmt::Debug> fmt::Debug for MeteredStore<S> {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(to)
    }
}

#[async_trait::async_trait]
impl DocumentStore for MeteredStore<dyn DocumentStore> {
    async fn write(&self, write: DocumentWrite) -> Result<WriteOutcome> {
        self.measure(self.inner.write(write)).await
    }

    async fn get_document(&self, id: &str) -> Result<Option<StoredDocument>> {
        self.measure(self.inner.get_document(id)).await
    }

    async fn changes_since(&self, cursor: Option<&ChangeCursor>, limit: usize) -> Result<ChangeBatch> {
        self.measure(self.inner.changes_since(cursor, limit)).await
    }

    async fn history(&self, id: &str, limit: usize) -> Result<Vec<HistoryEntry>> {
        self.measure(self.inner.history(id, limit)).await
    }

    async fn delete_history_before(&self, limit: OffsetDateTime) -> Result<u64> {
        self.measure(self.inner.delete_history_before(limit)).await
    }

    async fn deleted_id(&self, id: &str) -> Result<Option<DeletedId>> {
        self.measure(self.inner.deleted_id(id)).await
    }

    fn watch_changes(&self) -> watch::Receiver<u64> {
        self.inner.watch_changes()
    }

    fn connections(&self) -> Option<StoreConnections> {
        self.inner.connections()
    }
}

#[async_trait::async_trait]
impl TaskStore for MeteredStore<dyn TaskStore> {
    async fn insert(&self, task: &StoredTask, client: ClientKey, limits: TaskLimits) -> Result<Option<TaskRefusal>> {
        self.measure(self.inner.insert(task, client, limits)).await
    }

    async fn delete_ended(&self, owner: &Arc<str>, client: ClientKey, limit: u32) -> Result<bool> {
        self.measure(self.inner.delete_ended(owner, client, limit)).await
    }

    async fn can_make_room(
        &self,
        owner: &Arc<str>,
        client: ClientKey,
        limits: TaskLimits,
        deletions: u32,
    ) -> Result<bool> {
        self.measure(self.inner.can_make_room(owner, client, limits, deletions)).await
    }

    async fn record_end(&self, task: &StoredTask) -> Result<bool> {
        self.measure(self.inner.record_end(task)).await
    }

    async fn get(&self, id: &str) -> Result<Option<StoredTask>> {
        self.measure(self.inner.get(id)).await
    }

    async fn record_callback_attempt(&self, task: &StoredTask) -> Result<()> {
        self.measure(self.inner.record_callback_attempt(task)).await
    }

    async fn due_callbacks(
        &self,
        now: OffsetDateTime,
        limit_per_client: usize,
        limit: usize,
    ) -> Result<Vec<DueCallback>> {
        self.measure(self.inner.due_callbacks(now, limit_per_client, limit)).await
    }

    async fn claim_callback(
        &self,
        id: &Arc<str>,
        now: OffsetDateTime,
        until: OffsetDateTime,
    ) -> Result<Option<StoredTask>> {
        self.measure(self.inner.claim_callback(id, now, until)).await
    }

    async fn running_on(&self, gateway_id: &str) -> Result<Vec<Arc<str>>> {
        self.measure(self.inner.running_on(gateway_id)).await
    }

    async fn heartbeat(&self, gateway_id: &str, lease: Duration) -> Result<Vec<StoredTask>> {
        self.measure(self.inner.heartbeat(gateway_id, lease)).await
    }

    async fn end_lease(&self, gateway_id: &str) -> Result<()> {
        self.measure(self.inner.end_lease(gateway_id)).await
    }

    async fn delete_expired(&self, now: OffsetDateTime) -> Result<bool> {
        self.measure(self.inner.delete_expired(now)).await
    }

    async fn count(&self) -> Result<TaskCounts> {
        self.measure(self.inner.count()).await
    }

    async fn list(&self, page: &TaskPage) -> Result<Vec<ListedTask>> {
        self.measure(self.inner.list(page)).await
    }

    async fn count_states(&self) -> Result<Vec<TaskStateCount>> {
        self.measure(self.inner.count_states()).await
    }

    fn connections(&self) -> Option<StoreConnections> {
        self.inner.connections()
    }
}
