//! The embedded registry: documents that publishers sent (R16–R20), each owned by whoever published it.
//! It decides who may write what and whether a document may be kept; the store decides, in one transaction, whether
//! the document is the one expected. It serves nothing: what it keeps reaches the catalogue as a feed.

mod archive;
mod config;
mod feed;
mod judge;
mod write;

pub use crate::store::When;
pub use archive::{Restored, Told};
pub use config::{PublishConfig, PublisherRule};
pub use feed::Published;

use super::{
    feed::Body,
    read::{self, sha256},
};
use crate::{
    agent::AgentId,
    fault::{Code, Fault, Result},
    net::AddressPolicy,
    store::{self, Kept, Store},
};
use arc_swap::{ArcSwap, ArcSwapOption};
use bytes::Bytes;
use feed::Force;
use serde_json::Value;
use std::{fmt, sync::Arc};
use time::OffsetDateTime;

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

/// Whether an id is taken elsewhere.
pub type Taken = dyn Fn(&AgentId) -> bool + Send + Sync;

/// The documents published here.
pub struct Registry {
    store: Arc<dyn Store>,
    config: ArcSwap<PublishConfig>,
    policy: ArcSwap<AddressPolicy>,
    /// Held twice, because what is swapped has to have a size.
    taken: ArcSwapOption<Arc<Taken>>,
    force: Arc<Force>,
}

impl fmt::Debug for Registry {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.debug_struct("Registry").field("store", &self.store).finish_non_exhaustive()
    }
}

impl Registry {
    /// Opens the store; tables are made where there are none. A database that is down is asked again later.
    ///
    /// # Errors
    /// Every value of `config` that cannot be used, by its path in that section.
    pub async fn open(config: &PublishConfig, policy: Arc<AddressPolicy>) -> std::result::Result<Self, Vec<String>> {
        let problems = config.problems();
        if !problems.is_empty() {
            return Err(problems);
        }
        let section = config.section();
        let store = store::open(&config.place()).await.map_err(|why| vec![format!("{section}: {why}")])?;
        Ok(Self {
            store,
            config: ArcSwap::from_pointee(config.clone()),
            policy: ArcSwap::new(policy),
            taken: ArcSwapOption::empty(),
            force: Arc::default(),
        })
    }

    /// Puts other rules and another policy in force. The store stays the one that was opened.
    ///
    /// # Errors
    /// As [`Registry::open`]; then nothing has changed.
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

    /// Keeps ids free for others: one for which `taken` answers yes cannot be published anew. It is asked of ids
    /// that are not kept here.
    pub fn reserve(&self, taken: Arc<Taken>) {
        self.taken.store(Some(Arc::new(taken)));
    }

    /// What is kept, as a feed. What is published waits for it, so that an agent can be called once its
    /// publisher has the answer.
    pub fn feed(&self) -> Published {
        Published::new(Arc::clone(&self.store), Arc::clone(&self.force), self.config.load().poll.get())
    }

    /// Reads a document that was sent, or a patch.
    ///
    /// # Errors
    /// `InvalidInput`, with the cure where the mistake is a known one (R74).
    pub fn read(text: Bytes) -> Result<Value> {
        read::value(Body::Text(text)).map_err(|why| match why.strip_prefix("version: ") {
            Some(cure) => judge::refuse(vec![judge::at("/version", cure)]),
            None => Fault::new(Code::InvalidInput, why),
        })
    }

    /// The document as it was published, where `by` may change it.
    ///
    /// # Errors
    /// `Overloaded` where the store cannot be reached.
    pub async fn own(&self, by: Publisher<'_>, id: &AgentId) -> Result<Option<Stored>> {
        let kept = self.store.get(id.as_str()).await?;
        Ok(kept.filter(|kept| self.may_change(by, id, kept)).and_then(stored))
    }

    /// What happened to the document, the newest first, at most `most` changes; where `by` may change it.
    ///
    /// # Errors
    /// `NotFound` where there never was one that `by` may see; `Overloaded`.
    pub async fn history(&self, by: Publisher<'_>, id: &AgentId, most: usize) -> Result<Vec<Past>> {
        let nothing = || Fault::new(Code::NotFound, "there is no such agent");
        let may = match self.store.get(id.as_str()).await? {
            Some(kept) => self.may_change(by, id, &kept),
            // Of what is gone nobody is the owner any more.
            None => self.config.load().rules(by).any(|rule| rule.any_owner && rule.covers(id.as_str())),
        };
        let past = if may { self.store.history(id.as_str(), most).await? } else { Vec::new() };
        if past.is_empty() {
            return Err(nothing());
        }
        // What came before a removal may have been somebody else's.
        let all = self.config.load().rules(by).any(|rule| rule.any_owner && rule.covers(id.as_str()));
        let own = past.into_iter().take_while(|past| all || past.document.is_some());
        Ok(own.map(|past| Past { at: past.at, by: past.by, document: past.document }).collect())
    }

    /// Whether `by` may publish at all.
    pub fn admits(&self, by: Publisher<'_>) -> bool {
        self.config.load().rules(by).next().is_some()
    }

    fn may_change(&self, by: Publisher<'_>, id: &AgentId, kept: &Kept) -> bool {
        let own = *kept.owner == *by.id;
        self.config.load().rules(by).any(|rule| rule.covers(id.as_str()) && (own || rule.any_owner))
    }
}

/// Nothing is kept under what is not an id; `None` would be another program's doing.
fn stored(kept: Kept) -> Option<Stored> {
    Some(Stored {
        id: kept.id.parse().ok()?,
        document: kept.document,
        owner: kept.owner,
        created: kept.created,
        updated: kept.updated,
    })
}

#[cfg(test)]
mod tests;
