//! Writes to the registry: authorises the publisher, validates the document, and reports why a write was refused.

use super::{
    Publisher, Registry, Saved, Stored, When,
    judge::{self, Judged, at, judge, refuse},
    stored,
};
use crate::{
    agent::AgentId,
    fault::{Code, Fault, Result},
    store::{Kept, Refused, Write, Written},
    unit::{etag, json},
};
use serde_json::Value;
use std::sync::Arc;

/// Maximum number of attempts at a patch when other writers come in between.
const TRIES: usize = 5;

/// Which kind of URL a document was written to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Door {
    Post,
    Named,
}

/// A publisher's rights to one agent.
#[derive(Clone, Copy)]
struct Right<'a> {
    by: &'a str,
    any_owner: bool,
}

impl Registry {
    /// `POST /agents`: publishes a new document, or changes the publisher's own with this id. A missing `id` is
    /// assigned. On return the change is durable.
    ///
    /// # Errors
    /// `InvalidInput` with every violation, `PermissionDenied`, `Conflict` where another publisher owns the id,
    /// `Overloaded` where the store cannot be reached.
    pub async fn publish(&self, by: Publisher<'_>, mut document: Value) -> Result<Saved> {
        self.admit(by)?;
        if let Value::Object(members) = &mut document
            && members.get("id").is_none_or(Value::is_null)
        {
            members.insert("id".to_owned(), Value::String(uuid::Uuid::now_v7().to_string()));
        }
        let judged = judge(document, &self.config.load(), &self.policy.load()).await?;
        let right = self.right(by, &judged.id)?;
        self.save(right, judged, When::Always, Door::Post).await
    }

    /// `PUT /agents/{id}`: creates the document, or replaces the publisher's own.
    ///
    /// # Errors
    /// As [`EmbeddedRegistry::publish`], and `PreconditionFailed`.
    pub async fn put(&self, by: Publisher<'_>, id: &AgentId, document: Value, when: &When) -> Result<Saved> {
        let right = self.right(by, id)?;
        let judged = self.judge_named(id, document).await?;
        self.save(right, judged, when.clone(), Door::Named).await
    }

    /// `PATCH /agents/{id}`: a JSON Merge Patch (RFC 7396).
    ///
    /// # Errors
    /// As [`EmbeddedRegistry::put`], and `NotFound`.
    pub async fn patch(&self, by: Publisher<'_>, id: &AgentId, patch: Value, when: &When) -> Result<Stored> {
        let right = self.right(by, id)?;
        if !patch.is_object() {
            return Err(refuse(vec![at("", format!("must be an object, not {}", json::kind(&patch)))]));
        }
        for _ in 0..TRIES {
            let Some(kept) = self.store.get(id.as_str()).await? else { return Err(nothing()) };
            if *kept.owner != *right.by && !right.any_owner {
                return Err(said(Refused::NotYours, Door::Named, (0, 0)));
            }
            let tag = etag(kept.document.as_bytes());
            match when {
                When::Absent => return Err(unexpected()),
                When::Matches(tags) if !tags.iter().any(|wanted| wanted == "*" || *wanted == tag) => {
                    return Err(unexpected());
                }
                _ => {}
            }
            let mut document = serde_json::from_str(&kept.document)
                .map_err(|why| Fault::new(Code::Internal, "The stored document cannot be read").detail(why))?;
            judge::merge(&mut document, patch.clone());
            let judged = self.judge_named(id, document).await?;
            // The write requires the document that was patched: a concurrent change is not overwritten.
            match self.save(right, judged, When::Matches(vec![tag]), Door::Named).await {
                Ok(Saved::Created(stored) | Saved::Updated(stored)) => return Ok(stored),
                Err(why) if why.code() != Code::PreconditionFailed => return Err(why),
                Err(_) => {}
            }
        }
        Err(Fault::new(Code::Conflict, "Concurrent writers keep changing the document (try again)"))
    }

    /// `DELETE /agents/{id}`.
    ///
    /// # Errors
    /// As [`EmbeddedRegistry::patch`].
    pub async fn remove(&self, by: Publisher<'_>, id: &AgentId, when: &When) -> Result<()> {
        let right = self.right(by, id)?;
        let write = self.write_of(right, id, None, when.clone());
        match self.store.write(write).await? {
            Ok(Written::Removed(revision)) => {
                tracing::info!(agent = %id, publisher = by.id, revision, "agent removed from the registry");
                self.force.reached(revision).await;
                Ok(())
            }
            Ok(_) => Ok(()),
            Err(refused) => Err(said(refused, Door::Named, (0, 0))),
        }
    }

    fn admit(&self, by: Publisher<'_>) -> Result<()> {
        match self.admits(by) {
            true => Ok(()),
            false => Err(Fault::new(Code::PermissionDenied, "This caller may not publish agents")),
        }
    }

    fn right<'a>(&self, by: Publisher<'a>, id: &AgentId) -> Result<Right<'a>> {
        self.admit(by)?;
        let config = self.config.load();
        let mut covering = config.rules(by).filter(|rule| rule.covers(id.as_str())).peekable();
        if covering.peek().is_some() {
            return Ok(Right { by: by.id, any_owner: covering.any(|rule| rule.any_owner) });
        }
        let patterns: Vec<&str> =
            config.rules(by).flat_map(|rule| &rule.agents).map(|ids| ids.as_str()).take(20).collect();
        let told = format!("This caller may publish only agents that match {}, not '{id}'", patterns.join(", "));
        Err(Fault::new(Code::PermissionDenied, told))
    }

    /// Validates a document for a URL that names its agent.
    async fn judge_named(&self, id: &AgentId, mut document: Value) -> Result<Judged> {
        if let Value::Object(members) = &mut document {
            match members.get("id") {
                None | Some(Value::Null) => {
                    members.insert("id".to_owned(), Value::String(id.to_string()));
                }
                Some(Value::String(own)) if own != id.as_str() => {
                    return Err(refuse(vec![at("/id", format!("must be '{id}', as in the path, or absent"))]));
                }
                Some(_) => {}
            }
        }
        judge(document, &self.config.load(), &self.policy.load()).await
    }

    async fn save(&self, right: Right<'_>, judged: Judged, when: When, door: Door) -> Result<Saved> {
        let Judged { id, text } = judged;
        let taken = self.taken.load_full();
        if let Some(taken) = taken.filter(|taken| taken(&id))
            && self.store.get(id.as_str()).await?.is_none()
        {
            drop(taken);
            return Err(Fault::new(Code::Conflict, "Another source has an agent with this id"));
        }
        let write = self.write_of(right, &id, Some(text), when);
        let most = write.most;
        let written = self.store.write(write).await?.map_err(|refused| said(refused, door, most))?;
        let (kept, saved): (Kept, fn(Stored) -> Saved) = match written {
            Written::Created(kept) => (kept, Saved::Created),
            Written::Updated(kept) => (kept, Saved::Updated),
            Written::Removed(_) => return Err(nothing()),
        };
        tracing::info!(agent = %id, publisher = right.by, revision = kept.revision, "agent published");
        self.force.reached(kept.revision).await;
        stored(kept).map(saved).ok_or_else(nothing)
    }

    fn write_of(&self, right: Right<'_>, id: &AgentId, document: Option<Arc<str>>, when: When) -> Write {
        let config = self.config.load();
        Write {
            id: id.shared(),
            document,
            by: right.by.into(),
            any_owner: right.any_owner,
            when,
            most: (config.max_documents_per_publisher, config.max_documents),
            restored: None,
        }
    }
}

fn nothing() -> Fault {
    Fault::new(Code::NotFound, "There is no such agent")
}

fn unexpected() -> Fault {
    Fault::new(Code::PreconditionFailed, "The document is not the one expected (GET it for its current ETag)")
}

/// Returns the fault for a write that the store refused.
pub(super) fn refused(refused: Refused, most: (u32, u32)) -> Fault {
    said(refused, Door::Named, most)
}

fn said(refused: Refused, door: Door, (own, all): (u32, u32)) -> Fault {
    match refused {
        Refused::NotThere => nothing(),
        Refused::Unexpected => unexpected(),
        Refused::NotYours if door == Door::Post => {
            Fault::new(Code::Conflict, "Another publisher owns this id (omit the id to have one assigned)")
        }
        Refused::NotYours => Fault::new(Code::PermissionDenied, "Another publisher owns this agent"),
        Refused::OwnFull => Fault::new(
            Code::PermissionDenied,
            format!("This publisher has {own} agents, the maximum for one publisher (most_documents)"),
        ),
        Refused::Full => Fault::new(
            Code::Conflict,
            format!("The registry has {all} agents, the maximum for all publishers (most_in_all)"),
        ),
    }
}
