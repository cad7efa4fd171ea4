//! Writes to the registry: authorises the publisher, validates the document, and reports why a write was refused.

use super::{
    document_validation::{self, ValidDocument, document_of_card, invalid_document, violation},
    publish_rules::{DocumentLimits, PublishRules, WriteAccess},
    published_document::{PublishOutcome, PublishedDocument},
    published_feed::RevisionTracker,
    publisher::Publisher,
};
use crate::{
    agent::{AgentId, EndpointOrigin},
    fault::{Fault, FaultCode, Result},
    store::{DocumentStore, DocumentWrite, StoredDocument, WriteEffect, WritePrecondition, WriteRefusal},
    values::{etag, json},
};
use parking_lot::Mutex;
use serde_json::Value;
use std::{
    collections::HashMap,
    sync::{Arc, Weak},
};
use tokio::sync::OwnedMutexGuard;

/// Maximum number of attempts at a patch when other writers come in between.
const MAX_PATCH_ATTEMPTS: usize = 5;

/// Which kind of URL a document was written to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum WriteTarget {
    Collection,
    Agent,
}

/// For writes that add no document.
const NO_LIMITS: DocumentLimits = DocumentLimits { per_publisher: 0, total: 0 };

/// The writes of publishers to the registry.
pub struct DocumentWrites<'a> {
    pub(super) store: &'a dyn DocumentStore,
    pub(super) rules: &'a PublishRules,
    pub(super) revision_tracker: &'a RevisionTracker,
    pub(super) server_locks: &'a ServerLocks,
}

/// One lock for each server that is not listed for the owner of a document that is being written.
#[derive(Default)]
pub(super) struct ServerLocks(Mutex<HashMap<String, Weak<ServerLock>>>);

type ServerLock = tokio::sync::Mutex<()>;

impl ServerLocks {
    pub(super) fn of_server(&self, origin: &EndpointOrigin) -> Arc<ServerLock> {
        let mut locks = self.0.lock();
        locks.retain(|_, lock| lock.strong_count() > 0);
        let existing = locks.entry(origin.server()).or_default();
        existing.upgrade().unwrap_or_else(|| {
            let lock = Arc::default();
            *existing = Arc::downgrade(&lock);
            lock
        })
    }
}

impl DocumentWrites<'_> {
    /// `POST /agents`: publishes a new document or A2A card, or changes the publisher's own with this id. A missing `id`
    /// is assigned; that of a card is made from its name. On return the change is durable.
    ///
    /// # Errors
    /// `InvalidInput` with every violation, `PermissionDenied`, `Conflict` where another publisher owns the id,
    /// `Overloaded` where the store cannot be reached.
    pub async fn publish(&self, publisher: Publisher<'_>, document: Value) -> Result<PublishOutcome> {
        self.rules.require_publisher(publisher)?;
        let mut document = document_of_card(document).await?;
        if let Value::Object(members) = &mut document
            && members.get("id").is_none_or(Value::is_null)
        {
            members.insert("id".to_owned(), Value::String(uuid::Uuid::now_v7().to_string()));
        }
        let valid_document = self.rules.validate_document(publisher.owner_key, document).await?;
        let access = self.rules.authorize_write(publisher, &valid_document.id)?;
        self.store_document(access, valid_document, WritePrecondition::Always, WriteTarget::Collection).await
    }

    /// `PUT /agents/{id}`: creates the document, or replaces the publisher's own.
    ///
    /// # Errors
    /// As [`DocumentWrites::publish`], and `PreconditionFailed`.
    pub async fn put(
        &self,
        publisher: Publisher<'_>,
        id: &AgentId,
        document: Value,
        precondition: &WritePrecondition,
    ) -> Result<PublishOutcome> {
        let access = self.rules.authorize_write(publisher, id)?;
        let document = document_of_card(with_id_of_path(id, document)?).await?;
        let valid_document = self.rules.validate_document(publisher.owner_key, document).await?;
        self.store_document(access, valid_document, precondition.clone(), WriteTarget::Agent).await
    }

    /// `PATCH /agents/{id}`: a JSON Merge Patch (RFC 7396).
    ///
    /// # Errors
    /// As [`DocumentWrites::put`], and `NotFound`.
    pub async fn patch(
        &self,
        publisher: Publisher<'_>,
        id: &AgentId,
        patch: Value,
        precondition: &WritePrecondition,
    ) -> Result<PublishedDocument> {
        let access = self.rules.authorize_write(publisher, id)?;
        if !patch.is_object() {
            return Err(invalid_document(vec![violation(
                "",
                format!("must be an object, not {}", json::type_name(&patch)),
            )]));
        }
        for _ in 0..MAX_PATCH_ATTEMPTS {
            let Some(stored) = self.store.get_document(id.as_str()).await? else { return Err(not_found()) };
            if *stored.owner != *access.publisher.owner_key && !access.any_owner {
                return Err(refusal_fault(WriteRefusal::NotOwner, WriteTarget::Agent, NO_LIMITS));
            }
            let tag = etag(stored.document.as_bytes());
            match precondition {
                WritePrecondition::Absent => return Err(precondition_failed()),
                WritePrecondition::Matches(tags)
                    if !tags.iter().any(|expected| expected == "*" || *expected == tag) =>
                {
                    return Err(precondition_failed());
                }
                _ => {}
            }
            let mut document = serde_json::from_str(&stored.document).map_err(|why| {
                Fault::new(FaultCode::Internal, "The stored document cannot be read").with_detail(why)
            })?;
            document_validation::check_patch_of_card(&document, &patch)?;
            document_validation::apply_merge_patch(&mut document, patch.clone());
            let document = with_id_of_path(id, document)?;
            let valid_document = self.rules.validate_document(publisher.owner_key, document).await?;
            // The write requires the document that was patched: a concurrent change is not overwritten.
            match self
                .store_document(access, valid_document, WritePrecondition::Matches(vec![tag]), WriteTarget::Agent)
                .await
            {
                Ok(PublishOutcome::Created(stored) | PublishOutcome::Updated(stored)) => return Ok(stored),
                Err(why) if why.code() != FaultCode::PreconditionFailed => return Err(why),
                Err(_) => {}
            }
        }
        Err(Fault::new(FaultCode::Conflict, "Concurrent writers keep changing the document (try again)"))
    }

    /// `DELETE /agents/{id}`.
    ///
    /// # Errors
    /// As [`DocumentWrites::patch`].
    pub async fn remove(&self, publisher: Publisher<'_>, id: &AgentId, precondition: &WritePrecondition) -> Result<()> {
        let access = self.rules.authorize_write(publisher, id)?;
        let write = self.new_write(access, id, None, precondition.clone());
        match self.store.write(write).await?.into_result() {
            Ok(WriteEffect::Removed(revision)) => {
                tracing::info!(agent = %id, publisher = publisher.owner_key, revision, "agent removed from the registry");
                self.revision_tracker.wait_until_applied(revision).await;
                Ok(())
            }
            Ok(_) => Ok(()),
            Err(refusal) => Err(refusal_fault(refusal, WriteTarget::Agent, NO_LIMITS)),
        }
    }

    async fn store_document(
        &self,
        access: WriteAccess<'_>,
        valid_document: ValidDocument,
        precondition: WritePrecondition,
        target: WriteTarget,
    ) -> Result<PublishOutcome> {
        let existing = self.store.get_document(valid_document.id.as_str()).await?;
        match &existing {
            // The store checks the owner again in its transaction; here it decides which error comes first.
            Some(stored) if *stored.owner != *access.publisher.owner_key && !access.any_owner => {
                return Err(refusal_fault(WriteRefusal::NotOwner, target, NO_LIMITS));
            }
            None if self.rules.is_id_of_an_agent(&valid_document.id) => {
                return Err(Fault::new(FaultCode::Conflict, "Another source has an agent with this id"));
            }
            _ => {}
        }
        // A publisher that changes another's document does not become its owner.
        let owner = existing.as_ref().map_or(access.publisher.owner_key, |stored| &stored.owner);
        self.rules.validate_endpoint(Some(access.publisher), Some(owner), &valid_document).await?;
        // Until the document is applied: of two publishers that name one server at once, the second is refused.
        let _server_guard = self.lock_unlisted_server(owner, &valid_document).await?;
        let ValidDocument { id, text, .. } = valid_document;
        let write = self.new_write(access, &id, Some(text), precondition);
        let (per_publisher, total) = write.limits;
        let limits = DocumentLimits { per_publisher, total };
        let effect =
            self.store.write(write).await?.into_result().map_err(|refusal| refusal_fault(refusal, target, limits))?;
        let (stored, outcome): (StoredDocument, fn(PublishedDocument) -> PublishOutcome) = match effect {
            WriteEffect::Created(stored) => (stored, PublishOutcome::Created),
            WriteEffect::Updated(stored) => (stored, PublishOutcome::Updated),
            WriteEffect::Removed(_) => return Err(not_found()),
        };
        tracing::info!(agent = %id, publisher = access.publisher.owner_key, revision = stored.revision, "agent published");
        self.revision_tracker.wait_until_applied(stored.revision).await;
        PublishedDocument::from_stored(stored).map(outcome).ok_or_else(not_found)
    }

    /// Locks the server of a document, unless its endpoint is listed for the owner: then other owners may be there too.
    ///
    /// # Errors
    /// `InvalidInput` if another owner has the server.
    async fn lock_unlisted_server(&self, owner: &str, document: &ValidDocument) -> Result<Option<OwnedMutexGuard<()>>> {
        if self.rules.lists_endpoint_of(owner, document) {
            return Ok(None);
        }
        let server = self.server_locks.of_server(&EndpointOrigin::from(&document.endpoint));
        let guard = server.lock_owned().await;
        self.rules.validate_server_owner(owner, document)?;
        Ok(Some(guard))
    }

    fn new_write(
        &self,
        access: WriteAccess<'_>,
        id: &AgentId,
        document: Option<Arc<str>>,
        precondition: WritePrecondition,
    ) -> DocumentWrite {
        let limits = self.rules.document_limits();
        DocumentWrite {
            id: id.to_shared_str(),
            document,
            writer: access.publisher.owner_key.into(),
            any_owner: access.any_owner,
            precondition,
            limits: (limits.per_publisher, limits.total),
            deleted_id_retention: self.rules.deleted_id_retention(),
            restored: None,
        }
    }
}

/// Returns a document for a URL that names its agent, with the agent's id.
///
/// # Errors
/// `InvalidInput` if the document has another id.
fn with_id_of_path(id: &AgentId, mut document: Value) -> Result<Value> {
    if let Value::Object(members) = &mut document {
        match members.get("id") {
            None | Some(Value::Null) => {
                members.insert("id".to_owned(), Value::String(id.to_string()));
            }
            Some(Value::String(own)) if own != id.as_str() => {
                return Err(invalid_document(vec![violation(
                    "/id",
                    format!("must be '{id}', as in the path, or absent"),
                )]));
            }
            Some(_) => {}
        }
    }
    Ok(document)
}

fn not_found() -> Fault {
    Fault::from(FaultCode::NotFound)
}

fn precondition_failed() -> Fault {
    Fault::new(FaultCode::PreconditionFailed, "The document is not the one expected (GET it for its current ETag)")
}

/// Returns the fault for a write that the store refused.
pub(super) fn refused_write_fault(refusal: WriteRefusal, limits: DocumentLimits) -> Fault {
    refusal_fault(refusal, WriteTarget::Agent, limits)
}

fn refusal_fault(refusal: WriteRefusal, target: WriteTarget, limits: DocumentLimits) -> Fault {
    let DocumentLimits { per_publisher, total } = limits;
    match refusal {
        WriteRefusal::NotFound => not_found(),
        WriteRefusal::PreconditionFailed => precondition_failed(),
        WriteRefusal::NotOwner if target == WriteTarget::Collection => {
            Fault::new(FaultCode::Conflict, "Another publisher owns this id (omit the id to have one assigned)")
        }
        WriteRefusal::NotOwner => Fault::new(FaultCode::PermissionDenied, "Another publisher owns this agent"),
        WriteRefusal::OwnerLimit => Fault::new(
            FaultCode::PermissionDenied,
            format!(
                "This publisher has {per_publisher} agents, the maximum for one publisher \
                 (max_documents_per_publisher)"
            ),
        ),
        WriteRefusal::TotalLimit => Fault::new(
            FaultCode::Conflict,
            format!("The registry has {total} agents, the maximum for all publishers (max_documents)"),
        ),
    }
}
