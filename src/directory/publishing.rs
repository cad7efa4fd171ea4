//! Publishing: `POST /agents`, `PUT`, `PATCH` and `DELETE /agents/{id}`, and the history of a document (R17–R19). The
//! registry decides who may write what; this file converts requests and responses.

use super::{
    DirectoryCall, DirectoryResponse,
    conditional_response::Representation,
    directory_call::no_agent_fault,
    document_changes::{DocumentChange, RequestedChange},
    media_types,
    query_params::QueryParams,
    request_body,
};
use crate::{
    agent::AgentId,
    audit::AuditAction,
    fault::{Fault, FaultCode, Result},
    registry::{self, DocumentRevision, EmbeddedRegistry, PublishOutcome, PublishedDocument, WritePrecondition},
    values::etag,
};
use http::{HeaderMap, Method, StatusCode, header};
use serde_json::{Value, json};
use time::format_description::well_known::Rfc3339;

/// Maximum size of a document in bytes.
const MAX_DOCUMENT_BYTES: usize = 1 << 20;
/// Media types of a document in a request.
pub(super) const WRITE_MEDIA_TYPES: &[&str] = &[media_types::JSON, "application/agent-metadata+json"];
/// Media types of a change of a document in a request.
pub(super) const PATCH_MEDIA_TYPES: &[&str] = &[media_types::MERGE_PATCH, media_types::JSON];
/// Maximum number of changes in one response.
pub(super) const MAX_HISTORY: usize = 100;
/// Maximum number of entity tags in one precondition.
const MAX_ENTITY_TAGS: usize = 20;

/// Serves writes of documents, and their history.
pub(super) struct PublishingHandler<'a> {
    /// Registry that stores published agents; `None` if publishing is disabled.
    pub(super) registry: Option<&'a EmbeddedRegistry>,
}

impl PublishingHandler<'_> {
    /// `POST /agents`.
    pub(super) async fn publish_agent(&self, call: &DirectoryCall<'_>) -> Result<DirectoryResponse> {
        let registry = self.registry_for_publisher(call)?;
        if call.headers.contains_key(header::IF_MATCH) || call.headers.contains_key(header::IF_NONE_MATCH) {
            // Ignoring a precondition would perform a write that the caller wanted to prevent.
            return Err(invalid_input(
                "POST /agents supports neither If-Match nor If-None-Match (PUT /agents/{id} does)",
            ));
        }
        let document = read_document(call, WRITE_MEDIA_TYPES)?;
        let id = document.get("id").and_then(Value::as_str).and_then(|id| id.parse().ok());
        let requested = RequestedChange { action: AuditAction::DocumentPublished, id, registry };
        let change = DocumentChange::begin(call, requested).await?;
        let saved = registry.writes().publish(call.publisher(), document).await;
        change.end_saved(&saved).await;
        Ok(saved_response(call.base_url, saved?))
    }

    /// `PUT`, `PATCH` and `DELETE /agents/{id}`.
    pub(super) async fn change_agent(&self, call: &DirectoryCall<'_>) -> Result<DirectoryResponse> {
        let registry = self.registry_for_publisher(call)?;
        let writes = registry.writes();
        let id: AgentId = call.id.parse().map_err(|why: String| Fault::new(FaultCode::InvalidInput, why))?;
        let (publisher, precondition) = (call.publisher(), parse_precondition(call.headers)?);
        let requested = |action| RequestedChange { action, id: Some(id.clone()), registry };
        match *call.method {
            Method::PUT => {
                let document = read_document(call, WRITE_MEDIA_TYPES)?;
                let change = DocumentChange::begin(call, requested(AuditAction::DocumentPublished)).await?;
                let saved = writes.put(publisher, &id, document, &precondition).await;
                change.end_saved(&saved).await;
                Ok(saved_response(call.base_url, saved?))
            }
            Method::PATCH => {
                let patch = read_document(call, PATCH_MEDIA_TYPES);
                let patch = patch.map_err(|fault| fault.with_header("Accept-Patch", media_types::MERGE_PATCH))?;
                let change = DocumentChange::begin(call, requested(AuditAction::DocumentPatched)).await?;
                let patched = writes.patch(publisher, &id, patch, &precondition).await;
                change.end(&patched.as_ref().map(Some).map_err(Fault::clone)).await;
                Ok(stored_response(StatusCode::OK, &patched.map_err(|fault| hide_invisible_agent(call, fault))?))
            }
            _ => {
                let change = DocumentChange::begin(call, requested(AuditAction::DocumentRemoved)).await?;
                let removed = writes.remove(publisher, &id, &precondition).await;
                change.end(&removed.as_ref().map(|()| None).map_err(Fault::clone)).await;
                removed.map_err(|fault| hide_invisible_agent(call, fault))?;
                Ok(DirectoryResponse::uncacheable(StatusCode::NO_CONTENT, Vec::new()))
            }
        }
    }

    /// `GET /agents/{id}/history`.
    pub(super) async fn document_history(&self, call: &DirectoryCall<'_>) -> Result<Representation> {
        let media = media_types::negotiate(call.headers, &[media_types::JSON])?;
        let limit = QueryParams::parse(call.query)?.number(&["top", "limit"], 1..=MAX_HISTORY)?.unwrap_or(20);
        let (Some(registry), Ok(id)) = (self.registry, call.id.parse::<AgentId>()) else {
            return Err(no_agent_fault());
        };
        if !registry.may_publish(call.publisher()) {
            return Err(no_agent_fault());
        }
        let history = registry.history(call.publisher(), &id, limit).await?;
        let changes: Vec<Value> = history.iter().map(history_entry).collect();
        let last_changed = history.first().map(|latest| latest.at);
        let representation = Representation::json(media, &json!({"id": id.as_str(), "changes": changes}))?;
        Ok(last_changed.map(Into::into).into_iter().fold(representation, Representation::with_last_modified))
    }

    /// Returns the registry if the caller may publish at all; called before the body is read.
    fn registry_for_publisher(&self, call: &DirectoryCall<'_>) -> Result<&EmbeddedRegistry> {
        let Some(registry) = self.registry else {
            let message = "Publishing is disabled (the gateway has no registry of its own)";
            return Err(Fault::new(FaultCode::MethodNotAllowed, message).with_header("Allow", "GET, HEAD"));
        };
        if call.caller.is_anonymous() {
            return Err(Fault::new(FaultCode::Unauthorized, "Publishing requires a credential"));
        }
        if !registry.may_publish(call.publisher()) {
            return Err(Fault::new(FaultCode::PermissionDenied, "This caller may not publish agents"));
        }
        Ok(registry)
    }
}

/// Parses the document or patch with the registry's parser, whose errors explain common mistakes (R74).
fn read_document(call: &DirectoryCall<'_>, media_types: &[&'static str]) -> Result<Value> {
    request_body::check_body(call, media_types, MAX_DOCUMENT_BYTES)?;
    registry::parse_document(call.body.clone())
}

pub(super) fn saved_response(base: &str, outcome: PublishOutcome) -> DirectoryResponse {
    match outcome {
        PublishOutcome::Created(document) => stored_response(StatusCode::CREATED, &document)
            .with_header(header::LOCATION, &format!("{base}/agents/{}", document.id)),
        PublishOutcome::Updated(document) => stored_response(StatusCode::OK, &document),
    }
}

/// Responds with the stored document, and with the tag that guards the next write.
fn stored_response(status: StatusCode, stored: &PublishedDocument) -> DirectoryResponse {
    let document = stored.document.as_bytes();
    DirectoryResponse::uncacheable(status, document.to_vec()).with_header(header::ETAG, &etag(document))
}

pub(super) fn history_entry(revision: &DocumentRevision) -> Value {
    let document = revision.document.as_deref().and_then(|text| serde_json::from_str::<Value>(text).ok());
    json!({
        "at": revision.at.format(&Rfc3339).ok(),
        "by": revision.writer,
        "removed": revision.document.is_none(),
        "document": document,
    })
}

/// Parses the preconditions of a write.
///
/// # Errors
/// `InvalidInput` for an invalid or unsupported precondition, which must never be ignored.
pub(super) fn parse_precondition(headers: &HeaderMap) -> Result<WritePrecondition> {
    let matches = entity_tags(headers, &header::IF_MATCH)?;
    let absent = entity_tags(headers, &header::IF_NONE_MATCH)?;
    match (matches, absent) {
        (None, None) => Ok(WritePrecondition::Always),
        (Some(_), Some(_)) => Err(invalid_input("If-Match and If-None-Match exclude each other")),
        (None, Some(tags)) if tags == ["*"] => Ok(WritePrecondition::Absent),
        (None, Some(_)) => Err(invalid_input("If-None-Match of a write must be '*' (the document must not exist yet)")),
        // A weak tag never guards a write (RFC 9110 §13.1.1).
        (Some(tags), None) => {
            Ok(WritePrecondition::Matches(tags.into_iter().filter(|tag| !tag.starts_with("W/")).collect()))
        }
    }
}

fn entity_tags(headers: &HeaderMap, name: &header::HeaderName) -> Result<Option<Vec<String>>> {
    if !headers.contains_key(name) {
        return Ok(None);
    }
    let invalid =
        || invalid_input(&format!("{name} must be * or a list of at most {MAX_ENTITY_TAGS} quoted entity tags"));
    let mut tags = Vec::new();
    for value in headers.get_all(name) {
        let list = value.to_str().map_err(|_| invalid())?;
        for tag in list.split(',').map(str::trim).filter(|tag| !tag.is_empty()) {
            let opaque = tag.strip_prefix("W/").unwrap_or(tag);
            let quoted = opaque.len() > 1 && opaque.starts_with('"') && opaque.ends_with('"');
            if tags.len() == MAX_ENTITY_TAGS || !(quoted || tag == "*") {
                return Err(invalid());
            }
            tags.push(tag.to_owned());
        }
    }
    if tags.is_empty() || tags.len() > 1 && tags.iter().any(|tag| tag == "*") { Err(invalid()) } else { Ok(Some(tags)) }
}

#[cold]
fn invalid_input(why: &str) -> Fault {
    Fault::new(FaultCode::InvalidInput, why.to_owned())
}

/// Hides an agent that the caller may neither change nor see: it is reported as unknown.
fn hide_invisible_agent(call: &DirectoryCall<'_>, fault: Fault) -> Fault {
    match fault.code() {
        FaultCode::PermissionDenied if call.visibility.visible_agent(call.id).is_none() => no_agent_fault(),
        _ => fault,
    }
}
