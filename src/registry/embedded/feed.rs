//! What was published, as a feed: each document a part of its own, the first look everything, later ones what changed
//! since. It also lets a publisher wait until the agent can be called.

use super::{
    super::feed::{Body, Change as Found, Document, Feed, News, Part},
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

/// Changes that are read at a time.
const PAGE: usize = 500;
/// How long a publisher waits for its agent to be in force. Then it is durable all the same.
const PATIENCE: Duration = Duration::from_secs(1);
/// The part that stands for the registry itself, above those of its documents.
const ALL: &str = "registry";

/// How far the feeds of one registry are in force.
#[derive(Debug, Default)]
pub(super) struct Force {
    feeds: AtomicUsize,
    revision: watch::Sender<u64>,
}

impl Force {
    /// Waits until `revision` is in force, for a bounded time; not at all where no feed would bring it.
    pub(super) async fn reached(&self, revision: u64) {
        if self.feeds.load(Ordering::Acquire) == 0 {
            return;
        }
        let mut now = self.revision.subscribe();
        let reached = now.wait_for(|now| *now >= revision);
        if tokio::time::timeout(PATIENCE, reached).await.is_err() {
            tracing::warn!(revision, "a published agent is durable and not yet in force");
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

/// The feed of what is published here.
#[derive(Debug)]
pub struct Published {
    store: Arc<dyn Store>,
    force: Arc<Force>,
    changes: watch::Receiver<u64>,
    poll: Duration,
    looked: Instant,
    mark: Option<Mark>,
    /// The ids that were told of, for the day that the store is another one.
    there: HashSet<Arc<str>>,
    trouble: Option<String>,
}

impl Published {
    pub(super) fn new(store: Arc<dyn Store>, force: Arc<Force>, poll: Duration) -> Self {
        force.feeds.fetch_add(1, Ordering::AcqRel);
        let changes = store.changes();
        let looked = Instant::now();
        Self { store, force, changes, poll, looked, mark: None, there: HashSet::new(), trouble: None }
    }

    /// What changed. Only what was read to its end counts: a page that fails leaves everything to the next look.
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
        // Whatever was there and is not named again has gone.
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
    async fn next(&mut self) -> Found {
        self.changes.mark_unchanged();
        let looked = self.look().await;
        self.looked = Instant::now();
        let mut parts = Vec::new();
        let trouble = match looked {
            Ok(found) => {
                parts = found;
                None
            }
            Err(why) => Some(format!("the registry cannot be read: {why}")),
        };
        // A trouble is told once, and its end once.
        match (&trouble, &self.trouble) {
            (Some(why), None) => parts.push(Part { name: ALL.into(), news: News::Kept(why.clone()) }),
            (None, Some(_)) => parts.push(Part { name: ALL.into(), news: News::Gone }),
            _ => {}
        }
        self.trouble = trouble;
        Found { parts, soon: false }
    }

    async fn wake(&mut self) {
        let due = tokio::time::sleep_until(self.looked + self.poll);
        tokio::select! {
            changed = self.changes.changed() => if changed.is_err() {
                // The store is going, and nothing will ever be told of again.
                std::future::pending().await
            },
            () = due => {}
        }
    }

    fn taken(&mut self) {
        if let (Some(mark), None) = (&self.mark, &self.trouble) {
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
