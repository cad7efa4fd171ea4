//! Records in the audit log who published, changed or removed a document, with digests of the document before and after.

use super::directory_call::DirectoryCall;
use crate::{
    agent::AgentId,
    audit::{AuditAction, AuditEntry, AuditLog},
    fault::{Fault, Result},
    registry::{EmbeddedRegistry, PublishOutcome, PublishedDocument},
    values::{encode_hex, sha256},
};
use std::sync::Arc;

/// A change that is recorded when it has ended; `None` without an audit log.
pub(super) struct DocumentChange<'a>(Option<ChangeInProgress<'a>>);

struct ChangeInProgress<'a> {
    log: &'a Arc<AuditLog>,
    entry: AuditEntry,
}

/// A change that a publisher asked for.
pub(super) struct RequestedChange<'a> {
    pub(super) action: AuditAction,
    /// The agent's id; `None` where the registry assigns one.
    pub(super) id: Option<AgentId>,
    pub(super) registry: &'a EmbeddedRegistry,
}

impl<'a> DocumentChange<'a> {
    /// Begins a change: reads the digest of the document that is there, if the publisher may change it.
    ///
    /// # Errors
    /// `Overloaded` where the store cannot be reached or, for a change that publishes, the audit log cannot be written.
    pub(super) async fn begin(call: &DirectoryCall<'a>, change: RequestedChange<'_>) -> Result<Self> {
        let Some(log) = call.audit.log else { return Ok(Self(None)) };
        // A document can be removed while the log cannot be written: what withdraws something must not wait for a disk.
        if change.action != AuditAction::DocumentRemoved {
            log.require_writable_in_background().await.map_err(Fault::from)?;
        }
        let before = match &change.id {
            Some(id) => change.registry.owned_document(call.publisher(), id).await?.as_ref().map(digest_of),
            None => None,
        };
        let subject = change.id.as_ref().map_or("", |id| id.as_str());
        let mut entry = AuditEntry::new(change.action, &*call.caller.id, subject).with_digests(before, None);
        entry.request_id = Some(call.audit.request_id.to_owned());
        entry.address = call.audit.address;
        Ok(Self(Some(ChangeInProgress { log, entry })))
    }

    /// Records how the change ended.
    pub(super) async fn end(self, result: &Result<Option<&PublishedDocument>>) {
        let Some(ChangeInProgress { log, mut entry }) = self.0 else { return };
        // The time of the change is that of its end.
        entry.time = time::OffsetDateTime::now_utc();
        match result {
            Ok(Some(document)) => {
                entry.subject = document.id.to_string();
                entry.after = Some(digest_of(document));
            }
            Ok(None) => {}
            Err(fault) => entry = entry.refused(format!("{}: {}", fault.code().row().name, fault.message())),
        }
        log.record_in_background(entry).await;
    }

    /// As [`DocumentChange::end`], for a document that was saved.
    pub(super) async fn end_saved(self, result: &Result<PublishOutcome>) {
        match result {
            Ok(PublishOutcome::Created(document) | PublishOutcome::Updated(document)) => {
                self.end(&Ok(Some(document))).await;
            }
            Err(fault) => self.end(&Err(fault.clone())).await,
        }
    }
}

fn digest_of(document: &PublishedDocument) -> String {
    encode_hex(&sha256(document.document.as_bytes()))
}
