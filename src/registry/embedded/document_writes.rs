//! Writes to the registry: authorises the publisher, validates the document, and reports why a write was refused.

use super::{
    EmbeddedRegistry, PublishOutcome, PublishedDocument, Publisher, WritePrecondition,
    document_validation::{self, ValidDocument, invalid_document, validate_document, violation},
    published_document,
};
use crate::{
    agent::AgentId,
    fault::{Fault, FaultCode, Result},
    store::{DocumentWrite, StoredDocument, WriteEffect, WriteRefusal},
    values::{etag, json},
};
use serde_json::Value;
use std::sync::Arc;

/// Maximum number of attempts at a patch when other writers come in between.
const MAX_PATCH_ATTEMPTS: usize = 5;

/// Which kind of URL a document was written to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum WriteTarget {
    Collection,
    Agent,
}

/// A publisher's rights to one agent.
#[derive(Clone, Copy)]
struct WriteAccess<'a> {
    publisher: &'a str,
    any_owner: bool,
}

impl EmbeddedRegistry {
    /// `POST /agents`: publishes a new document, or changes the publisher's own with this id. A missing `id` is
    /// assigned. On return the change is durable.
    ///
    /// # Errors
    /// `InvalidInput` with every violation, `PermissionDenied`, `Conflict` where another publisher owns the id,
    /// `Overloaded` where the store cannot be reached.
    pub async fn publish(&self, by: Publisher<'_>, mut document: Value) -> Result<PublishOutcome> {
        self.require_publisher(by)?;
        if let Value::Object(members) = &mut document
            && members.get("id").is_none_or(Value::is_null)
        {
            members.insert("id".to_owned(), Value::String(uuid::Uuid::now_v7().to_string()));
        }
        let judged = validate_document(document, &self.config.load(), &self.policy.load()).await?;
        let right = self.authorize_write(by, &judged.id)?;
        self.store_document(right, judged, WritePrecondition::Always, WriteTarget::Collection).await
    }

    /// `PUT /agents/{id}`: creates the document, or replaces the publisher's own.
    ///
    /// # Errors
    /// As [`EmbeddedRegistry::publish`], and `PreconditionFailed`.
    pub async fn put(
        &self,
        by: Publisher<'_>,
        id: &AgentId,
        document: Value,
        when: &WritePrecondition,
    ) -> Result<PublishOutcome> {
        let right = self.authorize_write(by, id)?;
        let judged = self.validate_for_path(id, document).await?;
        self.store_document(right, judged, when.clone(), WriteTarget::Agent).await
    }

    /// `PATCH /agents/{id}`: a JSON Merge Patch (RFC 7396).
    ///
    /// # Errors
    /// As [`EmbeddedRegistry::put`], and `NotFound`.
    pub async fn patch(
        &self,
        by: Publisher<'_>,
        id: &AgentId,
        patch: Value,
        when: &WritePrecondition,
    ) -> Result<PublishedDocument> {
        let right = self.authorize_write(by, id)?;
        if !patch.is_object() {
            return Err(invalid_document(vec![violation(
                "",
                format!("must be an object, not {}", json::type_name(&patch)),
            )]));
        }
        for _ in 0..MAX_PATCH_ATTEMPTS {
            let Some(kept) = self.store.get_document(id.as_str()).await? else { return Err(not_found()) };
            if *kept.owner != *right.publisher && !right.any_owner {
                return Err(refusal_fault(WriteRefusal::NotOwner, WriteTarget::Agent, (0, 0)));
            }
            let tag = etag(kept.document.as_bytes());
            match when {
                WritePrecondition::Absent => return Err(precondition_failed()),
                WritePrecondition::Matches(tags) if !tags.iter().any(|wanted| wanted == "*" || *wanted == tag) => {
                    return Err(precondition_failed());
                }
                _ => {}
            }
            let mut document = serde_json::from_str(&kept.document).map_err(|why| {
                Fault::new(FaultCode::Internal, "The stored document cannot be read").with_detail(why)
            })?;
            document_validation::apply_merge_patch(&mut document, patch.clone());
            let judged = self.validate_for_path(id, document).await?;
            // The write requires the document that was patched: a concurrent change is not overwritten.
            match self.store_document(right, judged, WritePrecondition::Matches(vec![tag]), WriteTarget::Agent).await {
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
    /// As [`EmbeddedRegistry::patch`].
    pub async fn remove(&self, by: Publisher<'_>, id: &AgentId, when: &WritePrecondition) -> Result<()> {
        let right = self.authorize_write(by, id)?;
        let write = self.new_write(right, id, None, when.clone());
        match self.store.write(write).await? {
            Ok(WriteEffect::Removed(revision)) => {
                tracing::info!(agent = %id, publisher = by.id, revision, "agent removed from the registry");
                self.revision_tracker.wait_until_applied(revision).await;
                Ok(())
            }
            Ok(_) => Ok(()),
            Err(refused) => Err(refusal_fault(refused, WriteTarget::Agent, (0, 0))),
        }
    }

    fn require_publisher(&self, by: Publisher<'_>) -> Result<()> {
        match self.may_publish(by) {
            true => Ok(()),
            false => Err(Fault::new(FaultCode::PermissionDenied, "This caller may not publish agents")),
        }
    }

    fn authorize_write<'a>(&self, by: Publisher<'a>, id: &AgentId) -> Result<WriteAccess<'a>> {
        self.require_publisher(by)?;
        let config = self.config.load();
        let mut covering = config.rules_for(by).filter(|rule| rule.allows_id(id.as_str())).peekable();
        if covering.peek().is_some() {
            return Ok(WriteAccess { publisher: by.id, any_owner: covering.any(|rule| rule.any_owner) });
        }
        let patterns: Vec<&str> =
            config.rules_for(by).flat_map(|rule| &rule.agents).map(|ids| ids.as_str()).take(20).collect();
        let message = format!("This caller may publish only agents that match {}, not '{id}'", patterns.join(", "));
        Err(Fault::new(FaultCode::PermissionDenied, message))
    }

    /// Validates a document for a URL that names its agent.
    async fn validate_for_path(&self, id: &AgentId, mut document: Value) -> Result<ValidDocument> {
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
        validate_document(document, &self.config.load(), &self.policy.load()).await
    }

    async fn store_document(
        &self,
        right: WriteAccess<'_>,
        judged: ValidDocument,
        when: WritePrecondition,
        target: WriteTarget,
    ) -> Result<PublishOutcome> {
        let ValidDocument { id, text } = judged;
        let reserved = self.reserved.load_full();
        if let Some(taken) = reserved.filter(|taken| taken(&id))
            && self.store.get_document(id.as_str()).await?.is_none()
        {
            drop(taken);
            return Err(Fault::new(FaultCode::Conflict, "Another source has an agent with this id"));
        }
        let write = self.new_write(right, &id, Some(text), when);
        let most = write.limits;
        let written = self.store.write(write).await?.map_err(|refused| refusal_fault(refused, target, most))?;
        let (kept, saved): (StoredDocument, fn(PublishedDocument) -> PublishOutcome) = match written {
            WriteEffect::Created(kept) => (kept, PublishOutcome::Created),
            WriteEffect::Updated(kept) => (kept, PublishOutcome::Updated),
            WriteEffect::Removed(_) => return Err(not_found()),
        };
        tracing::info!(agent = %id, publisher = right.publisher, revision = kept.revision, "agent published");
        self.revision_tracker.wait_until_applied(kept.revision).await;
        published_document(kept).map(saved).ok_or_else(not_found)
    }

    fn new_write(
        &self,
        right: WriteAccess<'_>,
        id: &AgentId,
        document: Option<Arc<str>>,
        when: WritePrecondition,
    ) -> DocumentWrite {
        let config = self.config.load();
        DocumentWrite {
            id: id.to_shared_str(),
            document,
            writer: right.publisher.into(),
            any_owner: right.any_owner,
            precondition: when,
            limits: (config.max_documents_per_publisher, config.max_documents),
            restored: None,
        }
    }
}

fn not_found() -> Fault {
    Fault::new(FaultCode::NotFound, "There is no such agent")
}

fn precondition_failed() -> Fault {
    Fault::new(FaultCode::PreconditionFailed, "The document is not the one expected (GET it for its current ETag)")
}

/// Returns the fault for a write that the store refused.
pub(super) fn refused_write_fault(refused: WriteRefusal, most: (u32, u32)) -> Fault {
    refusal_fault(refused, WriteTarget::Agent, most)
}

fn refusal_fault(refused: WriteRefusal, door: WriteTarget, (own, all): (u32, u32)) -> Fault {
    match refused {
        WriteRefusal::NotFound => not_found(),
        WriteRefusal::PreconditionFailed => precondition_failed(),
        WriteRefusal::NotOwner if door == WriteTarget::Collection => {
            Fault::new(FaultCode::Conflict, "Another publisher owns this id (omit the id to have one assigned)")
        }
        WriteRefusal::NotOwner => Fault::new(FaultCode::PermissionDenied, "Another publisher owns this agent"),
        WriteRefusal::OwnerLimit => Fault::new(
            FaultCode::PermissionDenied,
            format!("This publisher has {own} agents, the maximum for one publisher (max_documents_per_publisher)"),
        ),
        WriteRefusal::TotalLimit => Fault::new(
            FaultCode::Conflict,
            format!("The registry has {all} agents, the maximum for all publishers (max_documents)"),
        ),
    }
}
