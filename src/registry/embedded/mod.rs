//! The embedded registry: documents that publishers sent (R16–R20), each owned by its publisher.
//! It decides who may write which agent, and validates documents; the store checks preconditions and ownership in one
//! transaction. The registry serves nothing: its feed brings the documents to the catalogue.

mod config;
mod document_validation;
mod document_writes;
mod export_import;
mod published_feed;
mod publisher;

pub use crate::store::WritePrecondition;
pub use config::{PublishConfig, PublisherRule};
pub use export_import::{ImportReport, RejectedFile};
pub use published_feed::PublishedFeed;
pub use publisher::Publisher;

use super::{PublisherBudget, document_parser, feed::DocumentBody};
use crate::{
    agent::AgentId,
    contract::{ContractConfig, SchemaBudget},
    fault::{Fault, FaultCode, Result},
    net::AddressPolicy,
    store::{self, DocumentStore, StoredDocument},
};
use arc_swap::{ArcSwap, ArcSwapOption};
use bytes::Bytes;
use published_feed::RevisionTracker;
use serde_json::Value;
use std::{fmt, sync::Arc};
use time::OffsetDateTime;

/// A published document.
#[derive(Clone, Debug)]
pub struct PublishedDocument {
    /// Id of the agent.
    pub id: AgentId,
    /// The document, as compact JSON.
    pub document: Arc<str>,
    /// Id of the caller that owns the document.
    pub owner: Arc<str>,
    /// When the document was first published.
    pub created: OffsetDateTime,
    /// When the document was last changed.
    pub updated: OffsetDateTime,
}

/// Result of publishing a document.
#[derive(Clone, Debug)]
pub enum PublishOutcome {
    /// The document is new.
    Created(PublishedDocument),
    /// The document replaced an earlier one of the publisher.
    Updated(PublishedDocument),
}

/// One change in a document's history.
#[derive(Clone, Debug)]
pub struct DocumentRevision {
    /// When the change was made.
    pub at: OffsetDateTime,
    /// Id of the caller that made the change.
    pub writer: Arc<str>,
    /// The document after the change; `None` where it was removed.
    pub document: Option<Arc<str>>,
}

/// Returns whether an id belongs to an agent of another source.
pub type IdReservation = dyn Fn(&AgentId) -> bool + Send + Sync;

/// Returns the budget of a publisher for a document with this id.
pub type BudgetLookup = dyn Fn(&str, Option<&AgentId>) -> PublisherBudget + Send + Sync;

/// The embedded registry.
pub struct EmbeddedRegistry {
    store: Arc<dyn DocumentStore>,
    config: ArcSwap<PublishConfig>,
    policy: ArcSwap<AddressPolicy>,
    /// In two `Arc`s, because `ArcSwapOption` needs a sized type.
    reserved: ArcSwapOption<Arc<IdReservation>>,
    budgets: ArcSwapOption<Arc<BudgetLookup>>,
    revision_tracker: Arc<RevisionTracker>,
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
        let problems = config.problems();
        if !problems.is_empty() {
            return Err(problems);
        }
        let section = config.store_key();
        let store =
            store::open_documents(&config.store_location()).await.map_err(|why| vec![format!("{section}: {why}")])?;
        Ok(Self {
            store,
            config: ArcSwap::from_pointee(config.clone()),
            policy: ArcSwap::new(policy),
            reserved: ArcSwapOption::empty(),
            budgets: ArcSwapOption::empty(),
            revision_tracker: Arc::default(),
        })
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
        let problems = config.problems();
        if !problems.is_empty() {
            return Err(problems);
        }
        self.config.store(Arc::new(config.clone()));
        self.policy.store(policy);
        Ok(())
    }

    /// Reserves ids for other sources: an id for which `reserved` returns true cannot be newly published. It is called
    /// for ids that the registry does not have.
    pub fn set_reserved_ids(&self, reserved: Arc<IdReservation>) {
        self.reserved.store(Some(Arc::new(reserved)));
    }

    /// Sets how the budgets of publishers are looked up. Without it, the default limits hold for each document.
    pub fn set_budgets(&self, budgets: Arc<BudgetLookup>) {
        self.budgets.store(Some(Arc::new(budgets)));
    }

    fn publisher_budget(&self, publisher: &str, id: Option<&AgentId>) -> PublisherBudget {
        match &*self.budgets.load() {
            Some(budgets) => budgets(publisher, id),
            None => {
                let limits = ContractConfig::default().schema_limits();
                PublisherBudget { limits, budget: SchemaBudget::of_publisher(limits) }
            }
        }
    }

    /// Creates a feed of the published documents. Publishing waits for the feed, so that an agent can be called once
    /// its publisher has the response.
    pub fn feed(&self) -> PublishedFeed {
        PublishedFeed::new(
            Arc::clone(&self.store),
            Arc::clone(&self.revision_tracker),
            self.config.load().poll_interval.get(),
        )
    }

    /// Parses a document or patch that was sent.
    ///
    /// # Errors
    /// `InvalidInput`, with a hint where the mistake is a known one (R74).
    pub fn parse_document(text: Bytes) -> Result<Value> {
        document_parser::parse_value(DocumentBody::Text(text)).map_err(|why| match why.strip_prefix("version: ") {
            Some(hint) => document_validation::invalid_document(vec![document_validation::violation("/version", hint)]),
            None => Fault::new(FaultCode::InvalidInput, why),
        })
    }

    /// Returns the published document, if `publisher` may change it.
    ///
    /// # Errors
    /// `Overloaded` where the store cannot be reached.
    pub async fn owned_document(&self, publisher: Publisher<'_>, id: &AgentId) -> Result<Option<PublishedDocument>> {
        let stored = self.store.get_document(id.as_str()).await?;
        Ok(stored.filter(|stored| self.may_change(publisher, id, stored)).and_then(published_document))
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
        let allowed = match self.store.get_document(id.as_str()).await? {
            Some(stored) => self.may_change(publisher, id, &stored),
            // A removed document has no owner.
            None => self.config.load().rules_for(publisher).any(|rule| rule.any_owner && rule.allows_id(id.as_str())),
        };
        let changes = if allowed { self.store.history(id.as_str(), max_changes).await? } else { Vec::new() };
        if changes.is_empty() {
            return Err(not_found());
        }
        // Before a removal, the document may have been another publisher's.
        let reads_all =
            self.config.load().rules_for(publisher).any(|rule| rule.any_owner && rule.allows_id(id.as_str()));
        let visible = changes.into_iter().take_while(|change| reads_all || change.document.is_some());
        Ok(visible
            .map(|change| DocumentRevision { at: change.at, writer: change.writer, document: change.document })
            .collect())
    }

    /// Returns whether `publisher` may publish at all.
    pub fn may_publish(&self, publisher: Publisher<'_>) -> bool {
        self.config.load().rules_for(publisher).next().is_some()
    }

    fn may_change(&self, publisher: Publisher<'_>, id: &AgentId, stored: &StoredDocument) -> bool {
        let is_owner = *stored.owner == *publisher.id;
        self.config.load().rules_for(publisher).any(|rule| rule.allows_id(id.as_str()) && (is_owner || rule.any_owner))
    }
}

/// Converts a stored document; `None` where its id is invalid, which only another program could have written.
fn published_document(stored: StoredDocument) -> Option<PublishedDocument> {
    Some(PublishedDocument {
        id: stored.id.parse().ok()?,
        document: stored.document,
        owner: stored.owner,
        created: stored.created,
        updated: stored.updated,
    })
}

#[cfg(test)]
mod tests;
