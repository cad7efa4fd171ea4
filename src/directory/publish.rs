//! Publishing: `POST /agents`, `PUT`, `PATCH` and `DELETE /agents/{id}`, and the history of a document (R17–R19). The
//! registry decides who may write what; this file converts requests and responses.

use super::{
    Answer, Ask, Directory, body,
    caching::Page,
    document::{no_agent, publisher},
    media,
    query::Params,
};
use crate::{
    agent::AgentId,
    auth::CallerKind,
    fault::{Code, Fault, Result},
    registry::{Past, Registry, Saved, Stored, When},
    unit::etag,
};
use http::{HeaderMap, Method, StatusCode, header};
use serde_json::{Value, json};
use time::format_description::well_known::Rfc3339;

/// Maximum size of a document in bytes.
const LARGEST: usize = 1 << 20;
/// Media types of a document in a request.
const DOCUMENT: &[&str] = &[media::JSON, "application/agent-metadata+json"];
/// Maximum number of entity tags in one precondition.
const MOST_TAGS: usize = 20;

impl Directory {
    /// `POST /agents`.
    pub(super) async fn publish(&self, call: &Ask<'_>) -> Result<Answer> {
        let registry = self.writable(call)?;
        if call.headers.contains_key(header::IF_MATCH) || call.headers.contains_key(header::IF_NONE_MATCH) {
            // Ignoring a precondition would perform a write that the caller wanted to prevent.
            return Err(refuse("POST /agents supports neither If-Match nor If-None-Match (PUT /agents/{id} does)"));
        }
        let document = read(call, DOCUMENT)?;
        Ok(saved(call.base, registry.publish(publisher(call), document).await?))
    }

    /// `PUT`, `PATCH` and `DELETE /agents/{id}`.
    pub(super) async fn change(&self, call: &Ask<'_>) -> Result<Answer> {
        let registry = self.writable(call)?;
        let id: AgentId = call.id.parse().map_err(|why: String| Fault::new(Code::InvalidInput, why))?;
        let (by, when) = (publisher(call), when(call.headers)?);
        match *call.method {
            Method::PUT => {
                let document = read(call, DOCUMENT)?;
                Ok(saved(call.base, registry.put(by, &id, document, &when).await?))
            }
            Method::PATCH => {
                let patch = read(call, &[media::MERGE_PATCH, media::JSON]);
                let patch = patch.map_err(|fault| fault.header("Accept-Patch", media::MERGE_PATCH))?;
                let patched = registry.patch(by, &id, patch, &when).await;
                Ok(stored(StatusCode::OK, &patched.map_err(|fault| unseen(call, fault))?))
            }
            _ => {
                registry.remove(by, &id, &when).await.map_err(|fault| unseen(call, fault))?;
                Ok(Answer::written(StatusCode::NO_CONTENT, Vec::new()))
            }
        }
    }

    /// `GET /agents/{id}/history`.
    pub(super) async fn history(&self, call: &Ask<'_>) -> Result<Answer> {
        let media = media::choose(call.headers, &[media::JSON])?;
        let most = Params::read(call.query)?.number(&["top", "limit"], 1..=100)?.unwrap_or(20);
        let (Some(registry), Ok(id)) = (&self.registry, call.id.parse::<AgentId>()) else { return Err(no_agent()) };
        if !registry.admits(publisher(call)) {
            return Err(no_agent());
        }
        let past = registry.history(publisher(call), &id, most).await?;
        let changes: Vec<Value> = past.iter().map(change).collect();
        let changed = past.first().map(|newest| newest.at);
        let page = Page::json(media, &json!({"id": id.as_str(), "changes": changes}))?;
        Ok(self.give(call, changed.map(Into::into).into_iter().fold(page, Page::changed)))
    }

    /// Returns the registry if the caller may publish at all; called before the body is read.
    fn writable(&self, call: &Ask<'_>) -> Result<&Registry> {
        let Some(registry) = &self.registry else {
            let message = "Publishing is disabled (the gateway has no registry of its own)";
            return Err(Fault::new(Code::MethodNotAllowed, message).header("Allow", "GET, HEAD"));
        };
        match call.caller.kind {
            CallerKind::Anonymous => Err(Fault::new(Code::Unauthorized, "Publishing requires a credential")),
            _ if !registry.admits(publisher(call)) => {
                Err(Fault::new(Code::PermissionDenied, "This caller may not publish agents"))
            }
            _ => Ok(registry),
        }
    }
}

/// Parses the document or patch through the registry, whose errors explain common mistakes (R74).
fn read(call: &Ask<'_>, taken: &[&'static str]) -> Result<Value> {
    body::check(call, taken, LARGEST)?;
    Registry::read(call.body.clone())
}

pub(super) fn saved(base: &str, saved: Saved) -> Answer {
    match saved {
        Saved::Created(new) => {
            stored(StatusCode::CREATED, &new).with(header::LOCATION, &format!("{base}/agents/{}", new.id))
        }
        Saved::Updated(changed) => stored(StatusCode::OK, &changed),
    }
}

/// Responds with the stored document, and with the tag that guards the next write.
fn stored(status: StatusCode, stored: &Stored) -> Answer {
    let document = stored.document.as_bytes();
    Answer::written(status, document.to_vec()).with(header::ETAG, &etag(document))
}

pub(super) fn change(past: &Past) -> Value {
    let document = past.document.as_deref().and_then(|text| serde_json::from_str::<Value>(text).ok());
    json!({
        "at": past.at.format(&Rfc3339).ok(),
        "by": past.by,
        "removed": past.document.is_none(),
        "document": document,
    })
}

/// Parses the preconditions of a write.
///
/// # Errors
/// `InvalidInput` for an invalid or unsupported precondition, which must never be ignored.
pub(super) fn when(headers: &HeaderMap) -> Result<When> {
    let matches = tags(headers, &header::IF_MATCH)?;
    let absent = tags(headers, &header::IF_NONE_MATCH)?;
    match (matches, absent) {
        (None, None) => Ok(When::Always),
        (Some(_), Some(_)) => Err(refuse("If-Match and If-None-Match exclude each other")),
        (None, Some(tags)) if tags == ["*"] => Ok(When::Absent),
        (None, Some(_)) => Err(refuse("If-None-Match of a write must be '*' (the document must not exist yet)")),
        // A weak tag never guards a write (RFC 9110 §13.1.1).
        (Some(tags), None) => Ok(When::Matches(tags.into_iter().filter(|tag| !tag.starts_with("W/")).collect())),
    }
}

fn tags(headers: &HeaderMap, name: &header::HeaderName) -> Result<Option<Vec<String>>> {
    if !headers.contains_key(name) {
        return Ok(None);
    }
    let broken = || refuse(&format!("{name} must be * or a list of at most {MOST_TAGS} quoted entity tags"));
    let mut tags = Vec::new();
    for value in headers.get_all(name) {
        let list = value.to_str().map_err(|_| broken())?;
        for tag in list.split(',').map(str::trim).filter(|tag| !tag.is_empty()) {
            let opaque = tag.strip_prefix("W/").unwrap_or(tag);
            let quoted = opaque.len() > 1 && opaque.starts_with('"') && opaque.ends_with('"');
            if tags.len() == MOST_TAGS || !(quoted || tag == "*") {
                return Err(broken());
            }
            tags.push(tag.to_owned());
        }
    }
    match tags.is_empty() || tags.len() > 1 && tags.iter().any(|tag| tag == "*") {
        true => Err(broken()),
        false => Ok(Some(tags)),
    }
}

#[cold]
fn refuse(why: &str) -> Fault {
    Fault::new(Code::InvalidInput, why.to_owned())
}

/// Hides an agent that the caller may neither change nor see: it is reported as unknown.
fn unseen(call: &Ask<'_>, fault: Fault) -> Fault {
    match fault.code() {
        Code::PermissionDenied if call.sight.find(call.id).is_none() => no_agent(),
        _ => fault,
    }
}
