//! The exchange of revocations with the shared state: reads those of other gateways, and publishes those of this one.

use super::{
    new_revocation::NewRevocation, revocation_key::RevocationKey, revocation_set::RevocationSet,
    revocation_store::RevocationStore,
};
use crate::{
    store::{MAX_VALUES_PER_TRIP, StateError},
    telemetry::Metrics,
    values::{jittered, random_duration},
};
use std::{
    collections::HashSet,
    sync::Arc,
    time::{Duration, Instant, SystemTime},
};
use tokio::time::timeout;

/// Time between two exchanges; it is varied by a fifth.
const EXCHANGE_INTERVAL: Duration = Duration::from_millis(250);
/// Maximum number of revocations in a page.
const PAGE_SIZE: u32 = 1_000;
/// How often everything is read: it finds what the store has lost in a failover.
const FULL_READ_INTERVAL: Duration = Duration::from_secs(60);
/// Time between two full reads that a difference in numbers causes.
const MIN_FULL_READ_INTERVAL: Duration = Duration::from_secs(5);
/// Longest time after which a gateway publishes what the store has lost. It differs between gateways: what one has
/// published, the others do not.
const MAX_REPUBLISH_DELAY: Duration = Duration::from_secs(2);
/// Time between two attempts to publish what a full store refuses.
const REFUSED_RETRY_INTERVAL: Duration = Duration::from_secs(10);

/// The exchange of one gateway.
pub(super) struct RevocationSync {
    set: Arc<RevocationSet>,
    store: Arc<dyn RevocationStore>,
    metrics: Arc<Metrics>,
    /// The position of the newest revocation that was read.
    position: u64,
    last_full_read: Option<Instant>,
    /// When publishing goes on, after the store has lost data or refused revocations.
    publish_at: Instant,
    is_failing: bool,
}

impl RevocationSync {
    pub(super) fn new(set: &Arc<RevocationSet>, store: Arc<dyn RevocationStore>, metrics: &Arc<Metrics>) -> Self {
        Self {
            set: Arc::clone(set),
            store,
            metrics: Arc::clone(metrics),
            position: 0,
            last_full_read: None,
            publish_at: Instant::now(),
            is_failing: false,
        }
    }

    /// Exchanges revocations until it is dropped: several times a second, and at once after one was added.
    pub(super) async fn run(mut self) {
        loop {
            // An error means that the time is over.
            let _ = timeout(jittered(EXCHANGE_INTERVAL, 0.2), self.set.added.notified()).await;
            self.exchange().await;
        }
    }

    /// Reads and publishes once.
    pub(super) async fn exchange(&mut self) {
        self.set.remove_expired();
        let result = if self.store.is_available() { self.try_exchange().await } else { Err(StateError::Unavailable) };
        self.record_result(&result);
        let unpublished = self.set.unpublished_count();
        self.metrics.keys().set_revocations(self.set.len(), unpublished);
        self.set.exchanges.send_modify(|count| *count += 1);
    }

    async fn try_exchange(&mut self) -> Result<(), StateError> {
        self.read().await?;
        // After reading, so that what another gateway has published meanwhile is not published again.
        while self.publish_at <= Instant::now() {
            let batch = self.set.unpublished(MAX_VALUES_PER_TRIP);
            if batch.is_empty() {
                break;
            }
            self.publish(&batch).await?;
            self.read_changes().await?;
        }
        Ok(())
    }

    async fn read(&mut self) -> Result<(), StateError> {
        if self.last_full_read.is_none_or(|last| last.elapsed() >= FULL_READ_INTERVAL) {
            return self.read_all().await;
        }
        self.read_changes().await
    }

    /// Reads what was stored since the last time.
    async fn read_changes(&mut self) -> Result<(), StateError> {
        loop {
            let page = self.store.read_after(self.position, PAGE_SIZE).await?;
            if page.newest < self.position {
                return self.read_all().await;
            }
            page.values.iter().for_each(|value| self.set.insert_stored(value));
            self.position = page.position;
            if page.has_more() {
                continue;
            }
            let known = self.set.len().saturating_sub(self.set.unpublished_count());
            let has_lost = page.count < known as u64;
            if has_lost && self.last_full_read.is_none_or(|last| last.elapsed() >= MIN_FULL_READ_INTERVAL) {
                return self.read_all().await;
            }
            return Ok(());
        }
    }

    /// Reads everything, and finds out what the store has lost.
    async fn read_all(&mut self) -> Result<(), StateError> {
        let (mut position, mut present) = (0, HashSet::new());
        loop {
            let page = self.store.read_after(position, PAGE_SIZE).await?;
            page.values.iter().for_each(|value| self.set.insert_stored(value));
            present.extend(page.values.iter().map(|value| RevocationKey(value.key)));
            position = page.position;
            if !page.has_more() {
                break;
            }
        }
        let unpublished = self.set.unpublished_count();
        self.set.set_lost_except(&present);
        let lost = self.set.unpublished_count() - unpublished;
        if lost > 0 && self.last_full_read.is_some() {
            tracing::warn!(
                revocations = lost,
                "the shared state has lost revocations; this gateway publishes those that it knows"
            );
            self.publish_at = Instant::now() + random_duration(MAX_REPUBLISH_DELAY);
        }
        (self.position, self.last_full_read) = (position, Some(Instant::now()));
        Ok(())
    }

    /// Publishes a batch.
    async fn publish(&mut self, batch: &[NewRevocation]) -> Result<(), StateError> {
        let values: Vec<_> = batch.iter().map(NewRevocation::to_value).collect();
        let stored = self.store.publish(&values).await?;
        for (revocation, _) in batch.iter().zip(&stored).filter(|(_, is_stored)| **is_stored) {
            self.set.set_published(revocation);
        }
        if stored.len() < batch.len() || stored.contains(&false) {
            tracing::error!(
                "the shared state has its maximum of revocations; new ones are in force at this gateway only (remove \
                 disabled keys from the key files, so that they need none)"
            );
            self.publish_at = Instant::now() + REFUSED_RETRY_INTERVAL;
        }
        Ok(())
    }

    fn record_result(&mut self, result: &Result<(), StateError>) {
        match result {
            Ok(()) => {
                if std::mem::take(&mut self.is_failing) {
                    tracing::info!("revocations are exchanged with the other gateways again");
                }
                let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs();
                self.metrics.keys().set_revocations_exchanged(now);
            }
            Err(why) => {
                if !std::mem::replace(&mut self.is_failing, true) {
                    tracing::warn!(
                        error = %why,
                        "revocations are not exchanged with the other gateways: those that this gateway knows stay in \
                         force, and new ones are published when the shared state is available"
                    );
                }
            }
        }
    }
}
