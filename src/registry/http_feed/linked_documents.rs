//! Documents that a list links to. Changed entries are fetched again at once, the others are revalidated in turn.
//! A document that cannot be fetched keeps its previous content.

use super::{
    converted_document::ConvertedDocument,
    document_shape::DocumentForm,
    document_shares::{Branch, DocumentShares, SizeChange},
    entry_classifier::{ConversionResult, EntryClassifier, EntryLink, LinkedDocument},
    link_backoff::LinkBackoff,
    pagination::{DigestKey, digest_key},
};
use crate::{
    net::LinkAuthor,
    registry::conditional_get::{ConditionalClient, ConditionalResponse, FetchFailure, LinkTarget},
    values::json::truncate,
};
use futures_util::{
    Stream, StreamExt,
    stream::{self, select},
};
use parking_lot::Mutex;
use std::{
    collections::{HashMap, HashSet},
    time::{Duration, Instant},
};

/// Maximum number of new or changed documents fetched in one poll; the next poll continues.
const MAX_FETCHES_PER_POLL: usize = 10_000;
/// Maximum number of unchanged documents revalidated in one poll. A list with more documents is revalidated in turn,
/// over several polls.
const MAX_REVALIDATIONS_PER_POLL: usize = 256;
/// Maximum duration of fetching documents in one poll; the next poll continues.
const FETCH_TIME_LIMIT: Duration = Duration::from_secs(60);
/// The same for documents of nested catalogues before the source's own list is in force.
const FIRST_NESTED_TIME_LIMIT: Duration = Duration::from_secs(5);
/// The part of it in which links that failed before are fetched again.
const RETRY_TIME_LIMIT: Duration = Duration::from_secs(15);
/// How long the fetches that fail of one nested catalogue and those below it may take together, before its other documents
/// wait for the next poll.
const FAILING_TIME_LIMIT: Duration = Duration::from_secs(20);
/// Maximum number of concurrent fetches.
const MAX_CONCURRENT_FETCHES: usize = 8;
/// How many of them are for links that failed before.
const MAX_CONCURRENT_RETRIES: usize = 1;
/// How many of them are for revalidations, while there are new documents.
const MAX_CONCURRENT_REVALIDATIONS: usize = 4;

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
    /// Who named the link, as far as it counts at its server.
    pub(super) author: LinkAuthor,
    /// The list that has the entry, by its number.
    pub(super) list: usize,
    pub(super) branch: Branch,
}

/// A document that was fetched.
struct CachedDocument {
    /// Digest of the list entry at that time.
    entry: DigestKey,
    branch: Branch,
    received: ReceivedDocument,
    /// Why the last fetch failed.
    error: Option<String>,
    backoff: LinkBackoff,
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
struct DueFetch {
    key: DigestKey,
    entry: DigestKey,
    link: EntryLink,
    author: LinkAuthor,
    branch: Branch,
    /// Whether the cached content may still be current.
    conditional: bool,
}

/// The documents to fetch in one poll.
pub(super) struct FetchPlan {
    /// Documents that are new or changed.
    new: Vec<DueFetch>,
    /// Documents whose last fetch failed.
    failed: Vec<DueFetch>,
    /// Documents that are revalidated.
    unchanged: Vec<DueFetch>,
    /// The number of catalogues in the source's own list.
    branches: usize,
    /// Whether no result of the source was accepted yet.
    pub(super) is_first: bool,
}

impl LinkedDocuments {
    /// Returns the document as it was last fetched; `None` where it was not fetched yet.
    pub(super) fn get(&self, link: &EntryLink, author: LinkAuthor) -> Option<&ConversionResult> {
        self.cache.get(&cache_key(link, author)).map(|cached| &cached.received.document)
    }

    /// Fetches documents that failed in the next poll, however often they failed.
    pub(super) fn reset_backoffs(&mut self) {
        self.cache.values_mut().for_each(|cached| cached.backoff = LinkBackoff::default());
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

    /// Returns the links to fetch in this poll: new ones of every list in turn, those that failed and are due, and some of
    /// the unchanged ones.
    pub(super) fn plan_fetches<'a>(&mut self, links: impl Iterator<Item = DocumentLink<'a>>) -> FetchPlan {
        let (mut new, mut failed, mut unchanged) = (Vec::new(), Vec::new(), Vec::new());
        let (mut keys, mut new_of_list, mut branches) = (HashSet::new(), HashMap::new(), 0);
        for DocumentLink { entry, link, author, list, branch } in links {
            branches = branch.max(branches);
            let key = cache_key(link, author);
            if !keys.insert(key) {
                continue;
            }
            let cached = self.cache.get_mut(&key);
            let is_unchanged = cached.as_ref().is_some_and(|cached| cached.entry == entry && cached.error.is_none());
            let fetch = DueFetch { key, entry, link: link.clone(), author, branch, conditional: is_unchanged };
            match cached {
                Some(cached) => {
                    cached.branch = branch;
                    // A nested catalogue whose entries change at every poll would have its failing links fetched always.
                    let has_failed = cached.error.is_some() && (cached.entry == entry || branch > 0);
                    if is_unchanged {
                        unchanged.push(fetch);
                    } else if !has_failed {
                        push_in_turn(&mut new, &mut new_of_list, InTurn { list, fetch });
                    } else if cached.backoff.count_poll() {
                        failed.push(fetch);
                    }
                }
                None => push_in_turn(&mut new, &mut new_of_list, InTurn { list, fetch }),
            }
        }
        self.cache.retain(|key, _| keys.contains(key));
        new.sort_by_key(|(turn, _)| *turn);
        new.truncate(MAX_FETCHES_PER_POLL);
        let count = unchanged.len().min(MAX_REVALIDATIONS_PER_POLL);
        let start = self.next_revalidation % unchanged.len().max(1);
        unchanged.rotate_left(start);
        unchanged.truncate(count);
        self.next_revalidation = start + count;
        let new = new.into_iter().map(|(_, fetch)| fetch).collect();
        FetchPlan { new, failed, unchanged, branches, is_first: false }
    }

    /// Fetches documents concurrently, and converts each. Hanging links take a part of the concurrency and the time only.
    pub(super) async fn fetch(&mut self, plan: FetchPlan, client: &ConditionalClient, classifier: &EntryClassifier) {
        let FetchPlan { new, failed, unchanged, branches, is_first } = plan;
        let mut shares = DocumentShares::new(branches);
        self.cache.values().for_each(|cached| shares.record(cached.branch, cached.received.size()));
        let (retries, mut revalidations) = (MAX_CONCURRENT_RETRIES.min(failed.len()), unchanged.len());
        if !new.is_empty() {
            revalidations = revalidations.min(MAX_CONCURRENT_REVALIDATIONS);
        }
        let revalidations = revalidations.min(MAX_CONCURRENT_FETCHES - retries);
        let others = MAX_CONCURRENT_FETCHES - retries - revalidations;
        let failing_times = Mutex::default();
        let (fetching, now) = (Fetching { client, classifier, failing_times: &failing_times }, Instant::now());
        let (end, retry_end) = (now + FETCH_TIME_LIMIT, now + RETRY_TIME_LIMIT);
        let nested_end = if is_first { now + FIRST_NESTED_TIME_LIMIT } else { end };
        let new = fetching.fetch_all(new, Phase { concurrency: others, end, nested_end });
        let failed = fetching.fetch_all(failed, Phase { concurrency: retries, end: retry_end, nested_end: retry_end });
        let unchanged = fetching.fetch_all(unchanged, Phase { concurrency: revalidations, end, nested_end });
        let mut responses = std::pin::pin!(select(select(new, failed), unchanged));
        while let Some((fetch, result)) = responses.next().await {
            self.record_response(fetch, result, &mut shares);
        }
    }

    /// Keeps what was received, or why nothing was.
    fn record_response(&mut self, fetch: DueFetch, result: FetchResult, shares: &mut DocumentShares) {
        let cached = self.cache.get_mut(&fetch.key);
        let failure = match result {
            Ok(None) => {
                // Where nothing is cached, the next poll fetches again.
                if let Some(cached) = cached {
                    (cached.error, cached.backoff) = (None, LinkBackoff::default());
                }
                return;
            }
            Ok(Some(received)) => {
                let previous = cached.as_ref().map_or(0, |cached| cached.received.size());
                let change = SizeChange { branch: fetch.branch, previous, next: received.size() };
                match shares.replace(change) {
                    Ok(()) => {
                        let (entry, branch) = (fetch.entry, fetch.branch);
                        let backoff = LinkBackoff::default();
                        let cached = CachedDocument { entry, branch, received, error: None, backoff };
                        self.cache.insert(fetch.key, cached);
                        return;
                    }
                    Err(why) => FetchFailure::from(format!("{}: {why}", fetch.link.url)),
                }
            }
            Err(failure) => failure,
        };
        let FetchFailure { why, retry_after } = failure;
        match cached {
            Some(cached) if cached.received.is_current() => {
                cached.backoff.record_failure(retry_after);
                cached.error = Some(why);
            }
            cached => {
                let mut backoff = cached.map(|cached| std::mem::take(&mut cached.backoff)).unwrap_or_default();
                backoff.record_failure(retry_after);
                let document = Err(format!("the document cannot be fetched: {why}").into());
                let received = ReceivedDocument { document, original: None };
                let (entry, branch) = (fetch.entry, fetch.branch);
                self.cache.insert(fetch.key, CachedDocument { entry, branch, received, error: Some(why), backoff });
            }
        }
    }
}

/// A new document of a list.
struct InTurn {
    list: usize,
    fetch: DueFetch,
}

/// Adds a document with its turn: the first of every list comes before the second of any.
fn push_in_turn(new: &mut Vec<(usize, DueFetch)>, counts: &mut HashMap<usize, usize>, item: InTurn) {
    let turn = counts.entry(item.list).or_default();
    new.push((*turn, item.fetch));
    *turn += 1;
}

/// Result of a fetch: `None` where the document is unchanged, an error where no document was received.
type FetchResult = Result<Option<ReceivedDocument>, FetchFailure>;

/// How many documents are fetched at once, and until when fetches begin.
#[derive(Clone, Copy)]
struct Phase {
    concurrency: usize,
    end: Instant,
    /// The end for the documents of nested catalogues.
    nested_end: Instant,
}

/// What fetches documents.
#[derive(Clone, Copy)]
struct Fetching<'a> {
    client: &'a ConditionalClient,
    classifier: &'a EntryClassifier,
    /// How long the fetches that failed took, by branch.
    failing_times: &'a Mutex<HashMap<Branch, Duration>>,
}

impl<'a> Fetching<'a> {
    /// Fetches documents until the end of the phase. A fetch that was started is awaited: its validators are cached
    /// already.
    fn fetch_all(self, fetches: Vec<DueFetch>, phase: Phase) -> impl Stream<Item = (DueFetch, FetchResult)> + use<'a> {
        let fetches = fetches.into_iter().filter(move |fetch| self.has_time(fetch.branch, phase));
        stream::iter(fetches.map(move |fetch| self.fetch_one(fetch))).buffer_unordered(phase.concurrency.max(1))
    }

    fn has_time(self, branch: Branch, phase: Phase) -> bool {
        if branch == 0 {
            return Instant::now() < phase.end;
        }
        let failing_time = self.failing_times.lock().get(&branch).copied().unwrap_or_default();
        Instant::now() < phase.nested_end && failing_time < FAILING_TIME_LIMIT
    }

    async fn fetch_one(self, fetch: DueFetch) -> (DueFetch, FetchResult) {
        let began = Instant::now();
        let result = self.receive(&fetch).await;
        if result.is_err() {
            *self.failing_times.lock().entry(fetch.branch).or_default() += began.elapsed();
        }
        (fetch, result)
    }

    async fn receive(self, fetch: &DueFetch) -> FetchResult {
        let target = LinkTarget { url: &fetch.link.url, author: fetch.author };
        let response = if fetch.conditional {
            match self.client.get_link(target).await? {
                ConditionalResponse::NotModified => return Ok(None),
                ConditionalResponse::Modified(response) => response,
            }
        } else {
            self.client.get_link_unconditional(target).await?
        };
        let linked = LinkedDocument { response, listed_name: fetch.link.listed_name.clone(), form: fetch.link.form };
        let original = self.classifier.signature_policy.reads_domain_keys.then(|| linked.clone());
        let document = self.classifier.convert_linked(linked).await;
        let document = document.map_err(|why| format!("{}: {why}", fetch.link.url))?;
        Ok(Some(ReceivedDocument { document, original }))
    }
}

/// Returns the cache key of a document: URL and listed name, because one card under two names is two agents, and who named
/// it, because the source's credential may show another document.
fn cache_key(link: &EntryLink, author: LinkAuthor) -> DigestKey {
    let form: &[u8] = match link.form {
        DocumentForm::OfMembers => b"",
        DocumentForm::McpServer => b"mcp",
    };
    let author: &[u8] = match author {
        LinkAuthor::Source => b"",
        LinkAuthor::Foreign => b"foreign",
    };
    let name = link.listed_name.as_deref().unwrap_or_default();
    digest_key(&[link.url.as_str().as_bytes(), name.as_bytes(), form, author])
}
