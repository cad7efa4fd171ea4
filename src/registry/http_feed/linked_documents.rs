//! Documents that a list links to. Changed entries are fetched again at once, the others are revalidated in turn.
//! A document that cannot be fetched keeps its previous content.

use super::{
    entry_classifier::{ConvertedDocument, EntryClassifier},
    pagination::{DigestKey, digest_key},
};
use crate::{
    net::Url,
    registry::conditional_get::{ConditionalClient, ConditionalResponse, FetchedDocument},
    values::json::truncate,
};
use futures_util::StreamExt;
use std::{
    collections::{HashMap, HashSet},
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    time::{Duration, Instant},
};

/// Maximum size in bytes of all documents of one list.
const MAX_TOTAL_SIZE: usize = 256 << 20;
/// Maximum number of new or changed documents fetched in one poll; the next poll continues.
const MAX_FETCHES_PER_POLL: usize = 10_000;
/// Maximum number of unchanged documents revalidated in one poll: in turn, so that each one is sooner or later. Up to
/// this number, every poll revalidates all.
const MAX_REVALIDATIONS_PER_POLL: usize = 256;
/// Maximum duration of fetching documents in one poll; the next poll continues.
const FETCH_TIME_LIMIT: Duration = Duration::from_secs(60);
/// Maximum number of concurrent fetches.
const MAX_CONCURRENT_FETCHES: usize = 8;

/// Cached documents by URL and listed name.
#[derive(Default)]
pub(super) struct LinkedDocuments {
    cache: HashMap<DigestKey, CachedDocument>,
    next_revalidation: usize,
}

/// Link of a list to a document.
pub(super) struct DocumentLink<'a> {
    /// Digest of the list entry.
    pub(super) entry: DigestKey,
    pub(super) url: &'a Url,
    pub(super) known_as: Option<&'a str>,
}

/// A document that was fetched.
struct CachedDocument {
    /// Digest of the list entry at that time.
    entry: DigestKey,
    document: Result<ConvertedDocument, String>,
    /// Why the last fetch failed.
    error: Option<String>,
}

/// A document to fetch.
pub(super) struct DueFetch {
    key: DigestKey,
    entry: DigestKey,
    url: Url,
    known_as: Option<String>,
    /// Whether the cached content may still be current.
    conditional: bool,
}

impl LinkedDocuments {
    /// Returns the document as it was last fetched; `None` where it was not fetched yet.
    pub(super) fn get(&self, url: &Url, known_as: Option<&str>) -> Option<&Result<ConvertedDocument, String>> {
        self.cache.get(&cache_key(url, known_as)).map(|held| &held.document)
    }

    /// Returns how many documents keep their previous content because they cannot be fetched, with one reason.
    pub(super) fn error_summary(&self) -> Option<String> {
        let stale = self.cache.values().filter(|held| held.document.is_ok());
        let mut reasons: Vec<&String> = stale.filter_map(|held| held.error.as_ref()).collect();
        reasons.sort_unstable();
        reasons.first().map(|why| format!("{} documents cannot be fetched: {}", reasons.len(), truncate(why, 300)))
    }

    /// Returns the links to fetch in this poll, and whether some are left for the next.
    pub(super) fn plan_fetches<'a>(&mut self, named: impl Iterator<Item = DocumentLink<'a>>) -> (Vec<DueFetch>, bool) {
        let (mut new, mut old, mut places) = (Vec::new(), Vec::new(), HashSet::new());
        for DocumentLink { entry, url, known_as } in named {
            let place = cache_key(url, known_as);
            if !places.insert(place) {
                continue;
            }
            let held = self.cache.get(&place);
            let known = held.is_some_and(|held| held.entry == entry && held.error.is_none());
            let due = DueFetch {
                key: place,
                entry,
                url: url.clone(),
                known_as: known_as.map(str::to_owned),
                conditional: known,
            };
            if known { old.push(due) } else { new.push(due) }
        }
        self.cache.retain(|place, _| places.contains(place));
        let left = new.len() > MAX_FETCHES_PER_POLL;
        new.truncate(MAX_FETCHES_PER_POLL);
        let again = old.len().min(MAX_REVALIDATIONS_PER_POLL);
        let turn = self.next_revalidation % old.len().max(1);
        old.rotate_left(turn);
        old.truncate(again);
        self.next_revalidation = turn + again;
        new.extend(old);
        (new, left)
    }

    /// Fetches documents concurrently, and converts each; returns whether time ran out before all were fetched.
    ///
    /// # Errors
    /// All documents together exceed the maximum size.
    pub(super) async fn fetch(
        &mut self,
        due: Vec<DueFetch>,
        web: &ConditionalClient,
        judge: &EntryClassifier,
    ) -> Result<bool, String> {
        let began = Instant::now();
        let mut bytes: usize = self.cache.values().filter_map(|held| Some(held.document.as_ref().ok()?.size())).sum();
        let late = AtomicBool::new(false);
        // A fetch that was started is awaited: its validators are cached already.
        let due = due.into_iter().take_while(|_| {
            late.store(began.elapsed() > FETCH_TIME_LIMIT, Relaxed);
            !late.load(Relaxed)
        });
        let mut coming = futures_util::stream::iter(due.map(|due| fetch_one(web, judge, due)))
            .buffer_unordered(MAX_CONCURRENT_FETCHES);
        while let Some((due, found)) = coming.next().await {
            let held = self.cache.get_mut(&due.key);
            match (found, held) {
                (Ok(None), Some(held)) => held.error = None,
                // Nothing is cached and nothing was received: the next poll fetches again.
                (Ok(None), None) => {}
                (Ok(Some(found)), held) => {
                    let size = found.as_ref().map_or(0, ConvertedDocument::size);
                    let before = held.and_then(|held| Some(held.document.as_ref().ok()?.size())).unwrap_or_default();
                    bytes = bytes + size - before;
                    if bytes > MAX_TOTAL_SIZE {
                        if let Some(held) = self.cache.get_mut(&due.key) {
                            held.error = Some("all documents together are too large".to_owned());
                        }
                        return Err(format!("{}: all documents have more than {MAX_TOTAL_SIZE} bytes", due.url));
                    }
                    self.cache.insert(due.key, CachedDocument { entry: due.entry, document: found, error: None });
                }
                (Err(why), Some(held)) if held.document.is_ok() => held.error = Some(why),
                (Err(why), _) => {
                    let found = Err(format!("the document cannot be fetched: {why}"));
                    self.cache.insert(due.key, CachedDocument { entry: due.entry, document: found, error: Some(why) });
                }
            }
        }
        Ok(late.load(Relaxed))
    }
}

/// Result of a fetch: `None` where the document is unchanged, an error where no document was received.
type FetchResult = Result<Option<Result<ConvertedDocument, String>>, String>;

async fn fetch_one(web: &ConditionalClient, judge: &EntryClassifier, due: DueFetch) -> (DueFetch, FetchResult) {
    let page: Result<Option<FetchedDocument>, String> = match due.conditional {
        false => web.get_unconditional(&due.url).await.map(Some),
        true => web.get(&due.url).await.map(|fetched| match fetched {
            ConditionalResponse::NotModified => None,
            ConditionalResponse::Modified(page) => Some(page),
        }),
    };
    let found = page.and_then(|page| {
        let judged = page.map(|page| judge.convert_document(&page.body, due.known_as.as_deref(), &page.url));
        judged.transpose().map_err(|why| format!("{}: {why}", due.url))
    });
    (due, found)
}

/// Returns the cache key of a document: URL and listed name, because one card under two names is two agents.
fn cache_key(url: &Url, known_as: Option<&str>) -> DigestKey {
    digest_key(&[url.as_str().as_bytes(), known_as.unwrap_or_default().as_bytes()])
}
