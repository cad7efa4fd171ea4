//! The embedded registry: documents that publishers sent (R16–R20), each owned by its publisher.
//! It decides who may write which agent, and validates documents; the store checks preconditions and ownership in one
//! transaction. The registry serves nothing: its feed brings the documents to the catalogue.

mod config;
mod document_validation;
mod document_writes;
mod export_import;
mod publish_rules;
mod published_document;
mod published_feed;
mod publisher;

pub use crate::store::WritePrecondition;
pub use config::{PublishConfig, PublisherRule};
pub use document_validation::parse_document;
pub use document_writes::DocumentWrites;
pub use export_import::{ImportReport, RegistryArchive, RejectedFile};
pub use published_document::{DocumentRevision, PublishOutcome, PublishedDocument};
pub use published_feed::PublishedFeed;
pub use publisher::Publisher;

use super::AgentOwnership;
use crate::{
    agent::AgentId,
    fault::{Fault, FaultCode, Result},
    net::AddressPolicy,
    store::{self, DocumentStore, HistoryEntry},
    telemetry::Metrics,
};
use document_writes::ServerLocks;
use publish_rules::PublishRules;
use published_feed::RevisionTracker;
use std::{fmt, sync::Arc};
use time::OffsetDateTime;

/// Maximum number of statements that delete old changes at a time; the rest waits for the next time.
const MAX_CLEANUP_BATCHES: usize = 100;

/// The embedded registry.
pub struct EmbeddedRegistry {
    store: Arc<dyn DocumentStore>,
    rules: PublishRules,
    revision_tracker: Arc<RevisionTracker>,
    server_locks: ServerLocks,
}

impl fmt::Debug for EmbeddedRegistry {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.debug_struct("Registry").field("store", &self.store).finish_non_exhaustive()
    }
}

impl EmbeddedRegistry {
    /// Opens the store and creates missing tables. A database that is down is connected to later.
    ///
    /// # Errors
    /// Every value of `config` that cannot be used, by its path in that section.
    pub async fn open(config: &PublishConfig, policy: Arc<AddressPolicy>) -> std::result::Result<Self, Vec<String>> {
        let rules = PublishRules::new(config, policy)?;
        let section = config.store_key();
        let store =
            store::open_documents(&config.store_location()).await.map_err(|why| vec![format!("{section}: {why}")])?;
        Ok(Self { store, rules, revision_tracker: Arc::default(), server_locks: ServerLocks::default() })
    }

    /// Measures the operations of the store.
    #[must_use]
    pub fn with_metrics(self, metrics: &Arc<Metrics>) -> Self {
        Self { store: store::measure_documents(self.store, metrics), ..self }
    }

    /// Replaces the rules and the address policy. The store stays the one that was opened.
    ///
    /// # Errors
    /// As [`EmbeddedRegistry::open`]; then nothing is changed.
    pub fn reconfigure(
        &self,
        config: &PublishConfig,
        policy: Arc<AddressPolicy>,
    ) -> std::result::Result<(), Vec<String>> {
        self.rules.replace(config, policy)
    }

    /// Sets where the registry asks who owns the agents in force.
    pub fn set_ownership(&self, ownership: Arc<dyn AgentOwnership>) {
        self.rules.set_ownership(ownership);
    }

    /// Creates a feed of the published documents. Publishing waits for the feed, so that an agent can be called once
    /// its publisher has the response.
    pub fn feed(&self) -> PublishedFeed {
        PublishedFeed::new(Arc::clone(&self.store), Arc::clone(&self.revision_tracker), self.rules.poll_interval())
    }

    /// Returns the writes of publishers.
    pub fn writes(&self) -> DocumentWrites<'_> {
        DocumentWrites {
            store: &*self.store,
            rules: &self.rules,
            revision_tracker: &self.revision_tracker,
            server_locks: &self.server_locks,
        }
    }

    /// Returns the export and import of all documents, for operators.
    pub fn archive(&self) -> RegistryArchive<'_> {
        RegistryArchive { store: &*self.store, rules: &self.rules }
    }

    /// Returns the published document, if `publisher` may change it.
    ///
    /// # Errors
    /// `Overloaded` where the store cannot be reached.
    pub async fn owned_document(&self, publisher: Publisher<'_>, id: &AgentId) -> Result<Option<PublishedDocument>> {
        let stored = self.store.get_document(id.as_str()).await?;
        Ok(stored
            .filter(|stored| self.rules.may_change(publisher, id, stored))
            .and_then(PublishedDocument::from_stored))
    }

    /// Returns the history of the document, newest first, at most `max_changes` changes, if `publisher` may change it.
    ///
    /// # Errors
    /// `NotFound` where there is no history that `publisher` may see; `Overloaded`.
    pub async fn history(
        &self,
        publisher: Publisher<'_>,
        id: &AgentId,
        max_changes: usize,
    ) -> Result<Vec<DocumentRevision>> {
        let not_found = || Fault::from(FaultCode::NotFound);
        let reads_all = self.rules.may_change_any_owner(publisher, id);
        let (allowed, is_removed) = match self.store.get_document(id.as_str()).await? {
            Some(stored) => (self.rules.may_change(publisher, id, &stored), false),
            None if reads_all => (true, true),
            // The history follows the id: it is its owner's as long as the id is reserved.
            None => {
                let deleted = self.store.deleted_id(id.as_str()).await?;
                (deleted.is_some_and(|deleted| self.rules.has_reserved(publisher, id, &deleted)), true)
            }
        };
        let changes = if allowed { self.store.history(id.as_str(), max_changes).await? } else { Vec::new() };
        // The changes of a document may be older than `history_retention`.
        if changes.is_empty() && (is_removed || !allowed) {
            return Err(not_found());
        }
        // Before an earlier removal, the document may have been another publisher's.
        let removals = usize::from(is_removed);
        let is_visible =
            |(at, change): &(usize, HistoryEntry)| reads_all || change.document.is_some() || *at < removals;
        let visible = changes.into_iter().enumerate().take_while(is_visible);
        Ok(visible.map(|(_, change)| DocumentRevision::from(change)).collect())
    }

    /// Returns the whole history of the document, newest first, for operators; checks no rights.
    ///
    /// # Errors
    /// `Overloaded`.
    pub async fn full_history(&self, id: &AgentId) -> Result<Vec<DocumentRevision>> {
        let history = self.store.history(id.as_str(), store::MAX_HISTORY_CHANGES).await?;
        Ok(history.into_iter().map(DocumentRevision::from).collect())
    }

    /// Deletes the changes of all documents that are older than `history_retention`, if there are any.
    ///
    /// # Errors
    /// `Overloaded`.
    pub async fn delete_old_history(&self) -> Result<()> {
        let Some(retention) = self.rules.history_retention() else { return Ok(()) };
        let limit = OffsetDateTime::now_utc() - retention;
        let mut deleted = 0;
        for _ in 0..MAX_CLEANUP_BATCHES {
            let count = self.store.delete_history_before(limit).await?;
            deleted += count;
            if count == 0 {
                break;
            }
        }
        if deleted > 0 {
            tracing::info!(changes = deleted, "changes older than registry.history_retention deleted");
        }
        Ok(())
    }

    /// Returns whether `publisher` may publish at all.
    pub fn may_publish(&self, publisher: Publisher<'_>) -> bool {
        self.rules.may_publish(publisher)
    }
}

#[cfg(test)]
mod tests;
