//! Feed of the published documents: each document is a part, the first poll reports all, later polls the changes since.
//! It also lets a publisher wait until the agent can be called.

use super::super::{
    document_parser::MAX_DOCUMENT_SIZE,
    feed::{DocumentBody, Feed, FeedPart, PartUpdate, PollResult, RawDocument},
};
use crate::{
    store::{ChangeCursor, DocumentChange, DocumentStore, StoredDocument},
    values::sha256,
};
use serde_json::Value;
use std::{
    collections::HashSet,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};
use time::{UtcOffset, format_description::well_known::Rfc3339};
use tokio::{sync::watch, time::Instant};

/// Number of changes that are read at a time.
const PAGE_SIZE: usize = 500;
/// How long a publisher waits for its agent to be in force. The change is durable in any case.
const APPLY_TIMEOUT: Duration = Duration::from_secs(1);
/// Prefix of the names of all parts.
const PART_PREFIX: &str = "registry";

/// Tracks which revision the feeds of one registry have brought into force.
#[derive(Debug, Default)]
pub(super) struct RevisionTracker {
    feed_count: AtomicUsize,
    applied_revision: watch::Sender<u64>,
}

impl RevisionTracker {
    /// Waits until `revision` is in force, for a bounded time; returns at once where there is no feed.
    pub(super) async fn wait_until_applied(&self, revision: u64) {
        if self.feed_count.load(Ordering::Acquire) == 0 {
            return;
        }
        let mut applied = self.applied_revision.subscribe();
        let reached = applied.wait_for(|applied| *applied >= revision);
        if tokio::time::timeout(APPLY_TIMEOUT, reached).await.is_err() {
            tracing::warn!(revision, "published agent stored, but not served yet (the next poll serves it)");
        }
    }

    fn advance(&self, revision: u64) {
        self.applied_revision.send_if_modified(|applied| {
            let advances = revision > *applied;
            *applied = revision.max(*applied);
            advances
        });
    }
}

/// Feed of the published documents.
#[derive(Debug)]
pub struct PublishedFeed {
    store: Arc<dyn DocumentStore>,
    revision_tracker: Arc<RevisionTracker>,
    changes: watch::Receiver<u64>,
    poll_interval: Duration,
    last_poll: Instant,
    cursor: Option<ChangeCursor>,
    /// Ids that were reported, in case the store is replaced by another one.
    reported_ids: HashSet<Arc<str>>,
}

impl PublishedFeed {
    pub(super) fn new(
        store: Arc<dyn DocumentStore>,
        revision_tracker: Arc<RevisionTracker>,
        poll_interval: Duration,
    ) -> Self {
        revision_tracker.feed_count.fetch_add(1, Ordering::AcqRel);
        let changes = store.watch_changes();
        let now = Instant::now();
        Self {
            store,
            revision_tracker,
            changes,
            poll_interval,
            last_poll: now,
            cursor: None,
            reported_ids: HashSet::new(),
        }
    }

    /// Reads the changes. A page that fails discards all pages, so that the next poll reads them again.
    async fn read_changes(&mut self) -> Result<Vec<FeedPart>, String> {
        let (mut changes, mut cursor, mut restarted) = (Vec::new(), self.cursor.clone(), false);
        loop {
            let page = self.store.changes_since(cursor.as_ref(), PAGE_SIZE).await.map_err(|why| why.to_string())?;
            if page.is_restart {
                restarted = true;
                changes.clear();
            }
            changes.extend(page.changes);
            cursor = Some(page.cursor);
            if !page.has_more {
                break;
            }
        }
        self.cursor = cursor;
        let previously_reported = if restarted { std::mem::take(&mut self.reported_ids) } else { HashSet::new() };
        let mut parts: Vec<FeedPart> = changes.into_iter().map(|change| self.part_of_change(change)).collect();
        // Ids that were reported and are not in the store are removed.
        parts.extend(previously_reported.difference(&self.reported_ids).map(|id| new_part(id, PartUpdate::Removed)));
        Ok(parts)
    }

    fn part_of_change(&mut self, change: DocumentChange) -> FeedPart {
        match change {
            DocumentChange::Put(stored) => {
                let part = new_part(&stored.id, PartUpdate::Replaced(vec![raw_document(&stored)]));
                self.reported_ids.insert(stored.id);
                part
            }
            DocumentChange::Removed(id) => {
                self.reported_ids.remove(&id);
                new_part(&id, PartUpdate::Removed)
            }
        }
    }
}

#[async_trait::async_trait]
impl Feed for PublishedFeed {
    async fn poll(&mut self) -> PollResult {
        self.changes.mark_unchanged();
        let result = self.read_changes().await;
        self.last_poll = Instant::now();
        match result {
            Ok(parts) => PollResult { parts, ..PollResult::default() },
            Err(why) => PollResult::failed(format!("the registry's store cannot be read: {why}")),
        }
    }

    async fn wait_for_update(&mut self) {
        let next_poll = tokio::time::sleep_until(self.last_poll + self.poll_interval);
        tokio::select! {
            changed = self.changes.changed() => if changed.is_err() {
                // The store is closing: there will be no further change.
                std::future::pending().await
            },
            () = next_poll => {}
        }
    }

    fn acknowledge(&mut self) {
        if let Some(cursor) = &self.cursor {
            self.revision_tracker.advance(cursor.revision());
        }
    }
}

impl Drop for PublishedFeed {
    fn drop(&mut self) {
        self.revision_tracker.feed_count.fetch_sub(1, Ordering::AcqRel);
    }
}

fn new_part(id: &str, update: PartUpdate) -> FeedPart {
    FeedPart { name: format!("{PART_PREFIX}/{id}").into(), update }
}

fn raw_document(stored: &StoredDocument) -> RawDocument {
    let text = bytes::Bytes::from(document_with_times(stored));
    let publisher = Some(Arc::clone(&stored.owner));
    RawDocument { publisher, ..RawDocument::new(sha256(&text), DocumentBody::Text(text)) }
}

/// Returns the document with the times that the registry keeps (R160), where the document has none of its own. Its
/// publisher reads the stored document, which is unchanged.
fn document_with_times(stored: &StoredDocument) -> String {
    let text = &*stored.document;
    let declares = |name: &str| {
        // Most documents do not have the word anywhere, and need not be parsed.
        text.contains(name) && serde_json::from_str::<Value>(text).is_ok_and(|document| document.get(name).is_some())
    };
    let mut times = String::new();
    for (name, time) in [("created_at", stored.created), ("updated_at", stored.updated)] {
        let time = time.replace_nanosecond(0).unwrap_or(time).to_offset(UtcOffset::UTC).format(&Rfc3339);
        if let (Ok(time), false) = (time, declares(name)) {
            times.push_str(&format!("\"{name}\":\"{time}\","));
        }
    }
    // Documents are compact objects that have an id.
    match text.strip_prefix('{').filter(|rest| rest.starts_with('"') && text.len() + times.len() <= MAX_DOCUMENT_SIZE) {
        Some(members) => format!("{{{times}{members}"),
        None => text.to_owned(),
    }
}
