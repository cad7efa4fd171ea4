//! Feed of the published documents: each document is a part, the first poll reports all, later polls the changes since.
//! It also lets a publisher wait until the agent can be called.

use super::{
    super::feed::{Body, Change as PollResult, Document, Feed, News, Part},
    sha256,
};
use crate::store::{Change, Kept, Mark, Store};
use std::{
    collections::HashSet,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};
use tokio::{sync::watch, time::Instant};

/// Number of changes that are read at a time.
const PAGE: usize = 500;
/// How long a publisher waits for its agent to be in force. The change is durable in any case.
const PATIENCE: Duration = Duration::from_secs(1);
/// Prefix of the names of all parts.
const ALL: &str = "registry";

/// Tracks which revision the feeds of one registry have brought into force.
#[derive(Debug, Default)]
pub(super) struct Force {
    feeds: AtomicUsize,
    revision: watch::Sender<u64>,
}

impl Force {
    /// Waits until `revision` is in force, for a bounded time; returns at once where there is no feed.
    pub(super) async fn reached(&self, revision: u64) {
        if self.feeds.load(Ordering::Acquire) == 0 {
            return;
        }
        let mut now = self.revision.subscribe();
        let reached = now.wait_for(|now| *now >= revision);
        if tokio::time::timeout(PATIENCE, reached).await.is_err() {
            tracing::warn!(revision, "published agent is durable but not yet in force");
        }
    }

    fn advance(&self, to: u64) {
        self.revision.send_if_modified(|now| {
            let further = to > *now;
            *now = to.max(*now);
            further
        });
    }
}

/// Feed of the published documents.
#[derive(Debug)]
pub struct Published {
    store: Arc<dyn Store>,
    force: Arc<Force>,
    changes: watch::Receiver<u64>,
    poll: Duration,
    looked: Instant,
    mark: Option<Mark>,
    /// Ids that were reported, in case the store is replaced by another one.
    there: HashSet<Arc<str>>,
}

impl Published {
    pub(super) fn new(store: Arc<dyn Store>, force: Arc<Force>, poll: Duration) -> Self {
        force.feeds.fetch_add(1, Ordering::AcqRel);
        let changes = store.changes();
        let looked = Instant::now();
        Self { store, force, changes, poll, looked, mark: None, there: HashSet::new() }
    }

    /// Reads the changes. A page that fails discards all pages, so that the next poll reads them again.
    async fn look(&mut self) -> Result<Vec<Part>, String> {
        let (mut changes, mut mark, mut whole) = (Vec::new(), self.mark.clone(), false);
        loop {
            let page = self.store.since(mark.as_ref(), PAGE).await.map_err(|why| why.to_string())?;
            if page.whole {
                whole = true;
                changes.clear();
            }
            changes.extend(page.changes);
            mark = Some(page.mark);
            if !page.more {
                break;
            }
        }
        self.mark = mark;
        let before = if whole { std::mem::take(&mut self.there) } else { HashSet::new() };
        let mut parts: Vec<Part> = changes.into_iter().map(|change| self.tell(change)).collect();
        // Ids that were reported and are not in the store are removed.
        parts.extend(before.difference(&self.there).map(|id| part(id, News::Gone)));
        Ok(parts)
    }

    fn tell(&mut self, change: Change) -> Part {
        match change {
            Change::Put(kept) => {
                let told = part(&kept.id, News::Whole(vec![document(&kept)]));
                self.there.insert(kept.id);
                told
            }
            Change::Gone(id) => {
                self.there.remove(&id);
                part(&id, News::Gone)
            }
        }
    }
}

#[async_trait::async_trait]
impl Feed for Published {
    async fn next(&mut self) -> PollResult {
        self.changes.mark_unchanged();
        let looked = self.look().await;
        self.looked = Instant::now();
        match looked {
            Ok(parts) => PollResult { parts, ..PollResult::default() },
            Err(why) => PollResult::failed(format!("the registry's store cannot be read: {why}")),
        }
    }

    async fn wake(&mut self) {
        let due = tokio::time::sleep_until(self.looked + self.poll);
        tokio::select! {
            changed = self.changes.changed() => if changed.is_err() {
                // The store is closing: there will be no further change.
                std::future::pending().await
            },
            () = due => {}
        }
    }

    fn taken(&mut self) {
        if let Some(mark) = &self.mark {
            self.force.advance(mark.revision());
        }
    }
}

impl Drop for Published {
    fn drop(&mut self) {
        self.force.feeds.fetch_sub(1, Ordering::AcqRel);
    }
}

fn part(id: &str, news: News) -> Part {
    Part { name: format!("{ALL}/{id}").into(), news }
}

fn document(kept: &Kept) -> Document {
    let text = bytes::Bytes::copy_from_slice(kept.document.as_bytes());
    Document { digest: sha256(&text), body: Body::Text(text) }
}
