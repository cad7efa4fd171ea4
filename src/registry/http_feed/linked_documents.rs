//! Documents that a list links to. Changed entries are fetched again at once, the others are revalidated in turn.
//! A document that cannot be fetched keeps its previous content.

use super::{
    converted_document::ConvertedDocument,
    document_shape::DocumentForm,
    entry_classifier::{ConversionResult, EntryClassifier, EntryLink, LinkedDocument},
    pagination::{DigestKey, digest_key},
};
use crate::{
    registry::conditional_get::{ConditionalClient, ConditionalResponse},
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
/// Maximum number of unchanged documents revalidated in one poll. A list with more documents is revalidated in turn,
/// over several polls.
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
    pub(super) link: &'a EntryLink,
}

/// A document that was fetched.
struct CachedDocument {
    /// Digest of the list entry at that time.
    entry: DigestKey,
    received: ReceivedDocument,
    /// Why the last fetch failed.
    error: Option<String>,
}

/// A document that was converted or rejected.
struct ReceivedDocument {
    document: ConversionResult,
    /// What the server sent, where its signatures have to be verified again when the keys change.
    original: Option<LinkedDocument>,
}

impl ReceivedDocument {
    /// Whether this says something about the agent, also after a fetch that failed.
    fn is_current(&self) -> bool {
        self.document.is_ok() || self.original.is_some()
    }

    fn size(&self) -> usize {
        let original = self.original.as_ref().map_or(0, |original| original.response.body.len());
        self.document.as_ref().map_or(0, ConvertedDocument::size) + original
    }
}

/// A document to fetch.
pub(super) struct DueFetch {
    key: DigestKey,
    entry: DigestKey,
    link: EntryLink,
    /// Whether the cached content may still be current.
    conditional: bool,
}

impl LinkedDocuments {
    /// Returns the document as it was last fetched; `None` where it was not fetched yet.
    pub(super) fn get(&self, link: &EntryLink) -> Option<&ConversionResult> {
        self.cache.get(&cache_key(link)).map(|cached| &cached.received.document)
    }

    /// Converts every document again, with the keys that `classifier` has now.
    ///
    /// # Errors
    /// A conversion was interrupted.
    pub(super) async fn convert_again(&mut self, classifier: &EntryClassifier) -> Result<(), String> {
        for received in self.cache.values_mut().map(|cached| &mut cached.received) {
            if let Some(original) = received.original.clone() {
                received.document = classifier.convert_linked(original).await?;
            }
        }
        Ok(())
    }

    /// Returns how many documents keep their previous content because they cannot be fetched, with one reason.
    pub(super) fn error_summary(&self) -> Option<String> {
        let stale = self.cache.values().filter(|cached| cached.received.document.is_ok());
        let mut reasons: Vec<&String> = stale.filter_map(|cached| cached.error.as_ref()).collect();
        reasons.sort_unstable();
        reasons.first().map(|why| format!("{} documents cannot be fetched: {}", reasons.len(), truncate(why, 300)))
    }

    /// Returns the links to fetch in this poll, and whether some remain for the next poll.
    pub(super) fn plan_fetches<'a>(&mut self, links: impl Iterator<Item = DocumentLink<'a>>) -> (Vec<DueFetch>, bool) {
        let (mut new, mut old, mut keys) = (Vec::new(), Vec::new(), HashSet::new());
        for DocumentLink { entry, link } in links {
            let key = cache_key(link);
            if !keys.insert(key) {
                continue;
            }
            let cached = self.cache.get(&key);
            let unchanged = cached.is_some_and(|cached| cached.entry == entry && cached.error.is_none());
            let fetch = DueFetch { key, entry, link: link.clone(), conditional: unchanged };
            if unchanged { old.push(fetch) } else { new.push(fetch) }
        }
        self.cache.retain(|key, _| keys.contains(key));
        let incomplete = new.len() > MAX_FETCHES_PER_POLL;
        new.truncate(MAX_FETCHES_PER_POLL);
        let count = old.len().min(MAX_REVALIDATIONS_PER_POLL);
        let start = self.next_revalidation % old.len().max(1);
        old.rotate_left(start);
        old.truncate(count);
        self.next_revalidation = start + count;
        new.extend(old);
        (new, incomplete)
    }

    /// Fetches documents concurrently, and converts each; returns whether time ran out before all were fetched.
    ///
    /// # Errors
    /// All documents together exceed the maximum size.
    pub(super) async fn fetch(
        &mut self,
        fetches: Vec<DueFetch>,
        client: &ConditionalClient,
        classifier: &EntryClassifier,
    ) -> Result<bool, String> {
        let began = Instant::now();
        let mut bytes: usize = self.cache.values().map(|cached| cached.received.size()).sum();
        let timed_out = AtomicBool::new(false);
        // A fetch that was started is awaited: its validators are cached already.
        let fetches = fetches.into_iter().take_while(|_| {
            timed_out.store(began.elapsed() > FETCH_TIME_LIMIT, Relaxed);
            !timed_out.load(Relaxed)
        });
        let mut responses = futures_util::stream::iter(fetches.map(|fetch| fetch_one(client, classifier, fetch)))
            .buffer_unordered(MAX_CONCURRENT_FETCHES);
        while let Some((fetch, result)) = responses.next().await {
            let cached = self.cache.get_mut(&fetch.key);
            match (result, cached) {
                (Ok(None), Some(cached)) => cached.error = None,
                // Nothing is cached and nothing was received: the next poll fetches again.
                (Ok(None), None) => {}
                (Ok(Some(received)), cached) => {
                    let previous_size = cached.map_or(0, |cached| cached.received.size());
                    bytes = bytes + received.size() - previous_size;
                    if bytes > MAX_TOTAL_SIZE {
                        if let Some(cached) = self.cache.get_mut(&fetch.key) {
                            cached.error = Some("all documents together are too large".to_owned());
                        }
                        return Err(format!("{}: all documents have more than {MAX_TOTAL_SIZE} bytes", fetch.link.url));
                    }
                    self.cache.insert(fetch.key, CachedDocument { entry: fetch.entry, received, error: None });
                }
                (Err(why), Some(cached)) if cached.received.is_current() => cached.error = Some(why),
                (Err(why), _) => {
                    let document = Err(format!("the document cannot be fetched: {why}").into());
                    let received = ReceivedDocument { document, original: None };
                    self.cache.insert(fetch.key, CachedDocument { entry: fetch.entry, received, error: Some(why) });
                }
            }
        }
        Ok(timed_out.load(Relaxed))
    }
}

/// Result of a fetch: `None` where the document is unchanged, an error where no document was received.
type FetchResult = Result<Option<ReceivedDocument>, String>;

async fn fetch_one(
    client: &ConditionalClient,
    classifier: &EntryClassifier,
    fetch: DueFetch,
) -> (DueFetch, FetchResult) {
    let result = receive(client, classifier, &fetch).await;
    (fetch, result)
}

async fn receive(client: &ConditionalClient, classifier: &EntryClassifier, fetch: &DueFetch) -> FetchResult {
    let response = if fetch.conditional {
        match client.get(&fetch.link.url).await? {
            ConditionalResponse::NotModified => return Ok(None),
            ConditionalResponse::Modified(response) => response,
        }
    } else {
        client.get_unconditional(&fetch.link.url).await?
    };
    let linked = LinkedDocument { response, listed_name: fetch.link.listed_name.clone(), form: fetch.link.form };
    let original = classifier.signature_policy.reads_domain_keys.then(|| linked.clone());
    let document = classifier.convert_linked(linked).await.map_err(|why| format!("{}: {why}", fetch.link.url))?;
    Ok(Some(ReceivedDocument { document, original }))
}

/// Returns the cache key of a document: URL and listed name, because one card under two names is two agents.
fn cache_key(link: &EntryLink) -> DigestKey {
    let form: &[u8] = match link.form {
        DocumentForm::OfMembers => b"",
        DocumentForm::McpServer => b"mcp",
    };
    digest_key(&[link.url.as_str().as_bytes(), link.listed_name.as_deref().unwrap_or_default().as_bytes(), form])
}
