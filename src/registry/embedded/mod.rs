//! The embedded registry: documents that publishers sent (R16–R20), each owned by whoever published it.

use crate::{
    agent::AgentId,
    fault::{Code, Fault, Result},
    net::AddressPolicy,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::sync::Arc;
use time::OffsetDateTime;

/// The registry that is built in; without this section nothing can be published here.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[schemars(rename = "Registry")]
#[serde(deny_unknown_fields, default)]
pub struct PublishConfig {}

/// Whoever publishes: a caller that was authenticated.
#[derive(Clone, Copy, Debug)]
pub struct Publisher<'a> {
    /// The caller's whole id, such as `key:team-a`.
    pub id: &'a str,
    /// The groups that it is in.
    pub groups: &'a [Arc<str>],
}

/// A document as it is kept.
#[derive(Clone, Debug)]
pub struct Stored {
    /// Its id.
    pub id: AgentId,
    /// The document, as compact JSON.
    pub document: Arc<str>,
    /// Whose it is.
    pub owner: Arc<str>,
    /// When it was first published.
    pub created: OffsetDateTime,
    /// When it was last changed.
    pub updated: OffsetDateTime,
}

/// What became of a document that was sent.
#[derive(Clone, Debug)]
pub enum Saved {
    /// It is new.
    Created(Stored),
    /// It replaced one of the same publisher's.
    Updated(Stored),
}

/// What must hold for a write to happen (RFC 9110 §13.1).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum When {
    /// Nothing.
    #[default]
    Always,
    /// `If-Match`: the document is there with one of these entity tags (quotes included), made by
    /// [`crate::unit::etag`] of its text; `*` is any.
    Matches(Vec<String>),
    /// `If-None-Match: *`: there is no such document.
    Absent,
}

/// One change in a document's history.
#[derive(Clone, Debug)]
pub struct Past {
    /// When.
    pub at: OffsetDateTime,
    /// Who.
    pub by: Arc<str>,
    /// The document since then; `None` where it was removed.
    pub document: Option<Arc<str>>,
}

/// The documents published here.
#[derive(Debug)]
pub struct Registry {}

impl Registry {
    /// Opens the store; tables are made where there are none.
    ///
    /// # Errors
    /// Every value of `config` that cannot be used, by its path in that section.
    pub async fn open(_config: &PublishConfig, _policy: Arc<AddressPolicy>) -> std::result::Result<Self, Vec<String>> {
        Ok(Self {})
    }

    /// `POST /agents`: publishes a new document, or changes the publisher's own of the same id. Without `id` one is
    /// assigned. When this returns, the change is durable.
    ///
    /// # Errors
    /// `InvalidInput` with every violation, `PermissionDenied`, `Conflict` where the id is another publisher's,
    /// `Overloaded` where the store cannot be reached.
    pub async fn publish(&self, by: Publisher<'_>, document: Value) -> Result<Saved> {
        let _ = (by, document);
        Err(Fault::new(Code::Overloaded, "the registry cannot be reached"))
    }

    /// `PUT /agents/{id}`.
    ///
    /// # Errors
    /// As [`Registry::publish`], and `PreconditionFailed`.
    pub async fn put(&self, by: Publisher<'_>, id: &AgentId, document: Value, when: &When) -> Result<Saved> {
        let _ = (id, when);
        self.publish(by, document).await
    }

    /// `PATCH /agents/{id}`: a JSON Merge Patch (RFC 7396).
    ///
    /// # Errors
    /// As [`Registry::put`], and `NotFound`.
    pub async fn patch(&self, by: Publisher<'_>, id: &AgentId, patch: Value, when: &When) -> Result<Stored> {
        let _ = (by, id, patch, when);
        Err(Fault::new(Code::NotFound, "there is no such agent"))
    }

    /// `DELETE /agents/{id}`.
    ///
    /// # Errors
    /// As [`Registry::patch`].
    pub async fn remove(&self, by: Publisher<'_>, id: &AgentId, when: &When) -> Result<()> {
        let _ = (by, id, when);
        Err(Fault::new(Code::NotFound, "there is no such agent"))
    }

    /// The document as it was published, where `by` may change it.
    ///
    /// # Errors
    /// `Overloaded` where the store cannot be reached.
    pub async fn own(&self, by: Publisher<'_>, id: &AgentId) -> Result<Option<Stored>> {
        let _ = (by, id);
        Ok(None)
    }

    /// What happened to the document, the newest first, at most `most` changes; where `by` may change it.
    ///
    /// # Errors
    /// `NotFound` where there never was one that `by` may see; `Overloaded`.
    pub async fn history(&self, by: Publisher<'_>, id: &AgentId, most: usize) -> Result<Vec<Past>> {
        let _ = (by, id, most);
        Err(Fault::new(Code::NotFound, "there is no such agent"))
    }

    /// Whether `by` may publish at all.
    pub fn admits(&self, by: Publisher<'_>) -> bool {
        let _ = by;
        false
    }
}
