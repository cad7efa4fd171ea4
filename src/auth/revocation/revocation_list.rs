//! The revocations of the process.

use super::{
    new_revocation::NewRevocation, revocation_key::RevocationKey, revocation_set::RevocationSet,
    revocation_store::RevocationStore, revocation_sync::RevocationSync, token_identity::TokenIdentity,
};
use crate::{
    store::{MAX_VALUES_PER_TRIP, SharedState, ValueKind},
    telemetry::Metrics,
};
use std::{
    fmt,
    sync::Arc,
    time::{Duration, SystemTime},
};
use tokio::{task::JoinSet, time::timeout};

/// How long the start waits for the revocations in the shared state.
const STARTUP_TIMEOUT: Duration = Duration::from_secs(3);
/// How long a revocation waits until it is in the shared state. It is in force here before.
const PUBLICATION_TIMEOUT: Duration = Duration::from_secs(1);

/// Whether the other gateways learn of a revocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Publication {
    /// Gateways share no state: it is in force at this gateway only.
    NotShared,
    /// It is in the shared state: the other gateways put it in force within a second.
    Published,
    /// It is in force at this gateway, and published when the shared state is available.
    Pending,
}

/// The gateway has its maximum of revocations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there are too many revocations (remove disabled keys from the key files, so that they need none)")]
pub struct TooManyRevocations;

/// The revocations of the process, which outlive every configuration.
#[derive(Default)]
pub struct RevocationList {
    set: Arc<RevocationSet>,
    store: Option<Arc<dyn RevocationStore>>,
    /// The exchange with the shared state. It ends with the list.
    _sync: JoinSet<()>,
}

impl fmt::Debug for RevocationList {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.debug_struct("RevocationList").field("len", &self.set.len()).finish_non_exhaustive()
    }
}

impl RevocationList {
    /// Reads the revocations in the shared state, and starts to exchange them. Without a shared state the list is this
    /// gateway's. A state that does not answer fails nothing: its revocations are read when it does. Requires a tokio
    /// runtime.
    pub async fn start(shared: Option<&Arc<SharedState>>, metrics: &Arc<Metrics>) -> Arc<Self> {
        let store = shared.map(|shared| Arc::clone(shared) as Arc<dyn RevocationStore>);
        Self::start_with(store, metrics).await
    }

    /// Starts to exchange revocations with a store.
    pub(super) async fn start_with(store: Option<Arc<dyn RevocationStore>>, metrics: &Arc<Metrics>) -> Arc<Self> {
        let set = Arc::<RevocationSet>::default();
        let mut tasks = JoinSet::new();
        match &store {
            Some(store) => {
                let mut sync = RevocationSync::new(&set, Arc::clone(store), metrics);
                // An error means that the time is over: the exchange goes on below.
                let _ = timeout(STARTUP_TIMEOUT, sync.exchange()).await;
                tasks.spawn(sync.run());
            }
            None => drop(tasks.spawn(expire(Arc::clone(&set), Arc::clone(metrics)))),
        }
        Arc::new(Self { set, store, _sync: tasks })
    }

    /// Puts revocations in force: here at once, and at the other gateways when they are published, for which it waits at
    /// most a second.
    ///
    /// # Errors
    /// There are too many; none of them is in force.
    pub async fn revoke(&self, revocations: &[NewRevocation]) -> Result<Publication, TooManyRevocations> {
        if self.set.len() + revocations.len() > ValueKind::Revocation.max_values() as usize {
            return Err(TooManyRevocations);
        }
        let mut exchanges = self.set.exchanges.subscribe();
        revocations.iter().for_each(|revocation| self.set.insert(revocation));
        if self.store.is_none() {
            return Ok(Publication::NotShared);
        }
        self.set.added.notify_one();
        let are_published = async {
            while !revocations.iter().all(|revocation| self.set.is_published(&revocation.key)) {
                // The sender lives as long as the set.
                let _ = exchanges.changed().await;
            }
        };
        let waited = timeout(PUBLICATION_TIMEOUT, are_published).await;
        Ok(if waited.is_ok() { Publication::Published } else { Publication::Pending })
    }

    /// Returns whether gateways share their revocations.
    pub fn is_shared(&self) -> bool {
        self.store.is_some()
    }

    /// Returns the time since the Unix epoch, by the clock that all gateways share if they share one.
    pub fn time(&self) -> Duration {
        let own_time = || SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        self.store.as_ref().map_or_else(own_time, |store| store.time())
    }

    /// Returns whether the API key with this prefix is revoked.
    pub fn is_api_key_revoked(&self, prefix: &[u8]) -> bool {
        if self.set.is_empty() {
            return false;
        }
        let revocation = self.set.get(&RevocationKey::of_api_key(prefix));
        revocation.is_some_and(|revocation| revocation.from <= self.seconds())
    }

    /// Returns whether a verified token is revoked.
    pub(in crate::auth) fn is_token_revoked(&self, identity: &TokenIdentity) -> bool {
        if self.set.is_empty() {
            return false;
        }
        let names = [Some(identity.token), identity.id, identity.subject];
        let mut revocations = names.into_iter().flatten().filter_map(|name| self.set.get(&name));
        revocations.any(|found| identity.issued_at <= found.issued_until && found.from <= self.seconds())
    }

    fn seconds(&self) -> i64 {
        i64::try_from(self.time().as_secs()).unwrap_or(i64::MAX)
    }
}

/// Forgets expired revocations of a gateway that shares no state.
async fn expire(set: Arc<RevocationSet>, metrics: Arc<Metrics>) {
    loop {
        // Often, so that the metric follows; the set is small.
        let _ = timeout(Duration::from_secs(10), set.added.notified()).await;
        set.remove_expired();
        metrics.keys().set_revocations(set.len(), 0);
    }
}

/// Publishes revocations for the gateways that share the state. Commands do, which are no gateways.
///
/// # Errors
/// Why they are not published, or not all of them.
pub async fn publish_revocations(shared: &SharedState, revocations: &[NewRevocation]) -> Result<(), String> {
    for batch in revocations.chunks(MAX_VALUES_PER_TRIP) {
        let values: Vec<_> = batch.iter().map(NewRevocation::to_value).collect();
        let stored = shared.put_values(ValueKind::Revocation, &values).await.map_err(|why| why.to_string())?;
        if stored.len() < batch.len() || stored.contains(&false) {
            return Err(TooManyRevocations.to_string());
        }
    }
    Ok(())
}
