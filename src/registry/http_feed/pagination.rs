//! Pagination: reads all pages of a list, and caches their entries so that an unchanged page is not parsed again.
//! A page that cannot be read fails the whole list, because any agent could be missing.

use super::{
    entry_classifier::{ClassifiedEntry, EntryClassifier},
    list_budget::{ListBudget, ListSize},
    list_parser::{self, RawEntry},
};
use crate::{
    net::{LinkAuthor, Url},
    registry::conditional_get::{ConditionalClient, ConditionalResponse, FetchFailure, LinkTarget},
    values::sha256,
};
use std::collections::{HashMap, HashSet};

/// Number of entries that are classified together, between those of other sources. The digests of a long list take long
/// too, so that the task yields after as many.
const BATCH_SIZE: usize = 16;
/// Size of the entries that are classified together, in bytes. A longer entry is a batch of its own.
const BATCH_BYTES: usize = 64 << 10;

/// SHA-256 of an entry and of everything that its classification depends on.
pub(super) type DigestKey = [u8; 32];

/// How a list is read.
#[derive(Clone, Copy)]
pub(super) struct ListReading<'a> {
    pub(super) client: &'a ConditionalClient,
    pub(super) classifier: &'a EntryClassifier,
    pub(super) budget: &'a ListBudget,
}

/// A list of any number of pages.
pub(super) struct ListReader {
    /// Candidate URLs of the list, in order of preference.
    start_urls: Vec<Url>,
    /// Who named the list; `None` for the source's own list.
    named_by: Option<LinkAuthor>,
    /// Index of the candidate at which the list was found.
    found_at: Option<usize>,
    pages: HashMap<Url, CachedPage>,
    entries: HashMap<DigestKey, ClassifiedEntry>,
    /// The list when all pages were last read.
    last_read: Option<ReadList>,
}

/// A list of which all pages were read.
#[derive(Clone, Debug)]
pub(super) struct ReadList {
    pub(super) entries: Vec<DigestKey>,
    /// Where its first page was after redirects.
    pub(super) url: Url,
    /// Who names what its entries lead to.
    pub(super) author: LinkAuthor,
}

/// A page as it was last read.
struct CachedPage {
    /// Where it was after redirects.
    url: Url,
    entries: Vec<DigestKey>,
    next: Option<Url>,
    size: usize,
}

impl ListReader {
    /// Creates the reader of the source's own list.
    pub(super) fn new(start_urls: Vec<Url>) -> Self {
        Self {
            start_urls,
            named_by: None,
            found_at: None,
            pages: HashMap::new(),
            entries: HashMap::new(),
            last_read: None,
        }
    }

    /// Creates the reader of a list that another list names.
    pub(super) fn of_link(link: LinkTarget<'_>) -> Self {
        Self { named_by: Some(link.author), ..Self::new(vec![link.url.clone()]) }
    }

    /// Discards the entries, so that the next poll classifies every one again.
    pub(super) fn clear(&mut self) {
        self.pages.clear();
        self.entries.clear();
        self.last_read = None;
    }

    /// Returns the URLs of the pages that were read, before and after redirects.
    pub(super) fn page_urls(&self) -> impl Iterator<Item = &Url> {
        self.pages.iter().flat_map(|(url, page)| [url, &page.url])
    }

    /// Returns the list when all pages were last read; later failures do not change it.
    pub(super) fn last_read(&self) -> Option<&ReadList> {
        self.last_read.as_ref()
    }

    /// Returns the classified entry.
    pub(super) fn entry(&self, key: &DigestKey) -> Option<&ClassifiedEntry> {
        self.entries.get(key)
    }

    /// Reads all pages and returns their entries.
    ///
    /// # Errors
    /// A page cannot be read, or the list exceeds the budget.
    pub(super) async fn read_all(&mut self, reading: ListReading<'_>) -> Result<ReadList, FetchFailure> {
        let mut visited = HashSet::new();
        let list = self.follow_pages(reading, &mut visited).await;
        if let Ok(list) = &list {
            self.last_read = Some(list.clone());
        }
        // After a failure too: a list whose pages differ at every poll must not exhaust the memory.
        self.pages.retain(|url, _| visited.contains(url));
        let in_pages = self.pages.values().flat_map(|page| &page.entries);
        let cached_keys: HashSet<&DigestKey> =
            in_pages.chain(self.last_read.iter().flat_map(|list| &list.entries)).collect();
        self.entries.retain(|key, _| cached_keys.contains(key));
        list
    }

    async fn follow_pages(
        &mut self,
        reading: ListReading<'_>,
        visited: &mut HashSet<Url>,
    ) -> Result<ReadList, FetchFailure> {
        let start = self.find_start(reading).await?;
        let mut author = self.named_by.unwrap_or(LinkAuthor::Source);
        let (mut entries, mut first_url) = (Vec::new(), None);
        let mut next = Some(start.clone());
        while let Some(url) = next {
            if !visited.insert(url.clone()) {
                return Err(format!("{url}: the next page is one that was read already").into());
            }
            if url != start {
                self.read_page(LinkTarget { url: &url, author }, reading).await?;
            }
            let page = self.pages.get(&url).ok_or_else(|| format!("{url}: the page was not cached"))?;
            author = reading.client.effective_author(&page.url, author);
            entries.extend_from_slice(&page.entries);
            first_url.get_or_insert_with(|| page.url.clone());
            next = page.next.clone();
        }
        Ok(ReadList { entries, url: first_url.unwrap_or(start), author })
    }

    /// Returns the first candidate that has a list. If the list was found at a candidate before, later candidates are
    /// not tried when it fails.
    async fn find_start(&mut self, reading: ListReading<'_>) -> Result<Url, FetchFailure> {
        let author = self.named_by.unwrap_or(LinkAuthor::Source);
        let mut reasons = Vec::new();
        let mut retry_after = None;
        for (at, url) in self.start_urls.clone().into_iter().enumerate() {
            match self.read_page(LinkTarget { url: &url, author }, reading).await {
                Ok(()) => {
                    self.found_at = Some(at);
                    return Ok(url);
                }
                Err(failure) if self.found_at == Some(at) => return Err(failure),
                Err(failure) => {
                    retry_after = retry_after.max(failure.retry_after);
                    reasons.push(failure.why);
                }
            }
        }
        Err(FetchFailure { why: reasons.join("; "), retry_after })
    }

    /// Reads one page, unless it is unchanged, and charges it.
    async fn read_page(&mut self, target: LinkTarget<'_>, reading: ListReading<'_>) -> Result<(), FetchFailure> {
        let ListReading { client, classifier, budget } = reading;
        let url = target.url;
        let charge = |size: ListSize| budget.charge(size).map_err(|why| format!("{url}: {why}"));
        charge(ListSize::PAGE)?;
        let response = match client.get_link(target).await {
            Ok(ConditionalResponse::NotModified) => match self.pages.get(url) {
                Some(page) => return Ok(charge(ListSize::of_page(page.entries.len(), page.size))?),
                None => client.get_link_unconditional(target).await,
            },
            Ok(ConditionalResponse::Modified(document)) => Ok(document),
            Err(failure) => Err(failure),
        };
        let is_own = self.named_by.is_none() && target.author == LinkAuthor::Source;
        // A Retry-After of the source's own list delays the source.
        let response =
            response.map_err(|failure| if is_own { client.record_source_failure(failure).into() } else { failure })?;
        self.pages.remove(url);
        charge(ListSize::of_page(0, response.body.len()))?;
        let list = list_parser::parse_page(&response.url, &response.body).map_err(|why| format!("{url}: {why}"))?;
        let mut entries = Vec::with_capacity(list.entries.len());
        let mut level = list.entries;
        // Catalogues within the list are at most as deep as JSON may be nested.
        while !level.is_empty() {
            charge(ListSize::of_page(level.len(), 0))?;
            let keys = self.classify_entries(&level, &response.url, classifier).await;
            let keys = keys.map_err(|why| format!("{url}: {why}"))?;
            let inline = keys.iter().filter_map(|key| match self.entries.get(key) {
                Some(ClassifiedEntry::InlineCatalog(inline)) => Some(inline),
                _ => None,
            });
            level = inline.flatten().cloned().collect();
            entries.extend(keys);
        }
        let page = CachedPage { url: response.url, entries, next: list.next, size: response.body.len() };
        self.pages.insert(url.clone(), page);
        Ok(())
    }

    /// Classifies the entries of a page that are not cached, and returns the keys of all.
    async fn classify_entries(
        &mut self,
        raw_entries: &[RawEntry],
        base: &Url,
        classifier: &EntryClassifier,
    ) -> Result<Vec<DigestKey>, String> {
        let mut keys = Vec::with_capacity(raw_entries.len());
        for batch in batches(raw_entries) {
            let (mut new_keys, mut new_entries) = (Vec::new(), Vec::new());
            for raw in batch {
                let name = raw.name.as_deref().unwrap_or_default();
                let why = raw.error.as_deref().unwrap_or_default();
                let key = digest_key(&[base.as_str().as_bytes(), name.as_bytes(), why.as_bytes(), &raw.text]);
                if !self.entries.contains_key(&key) {
                    new_keys.push(key);
                    new_entries.push(raw.clone());
                }
                keys.push(key);
            }
            if new_entries.is_empty() {
                tokio::task::yield_now().await;
            } else {
                let classified = classifier.classify_entries(new_entries, base).await?;
                self.entries.extend(new_keys.into_iter().zip(classified));
            }
        }
        Ok(keys)
    }
}

/// Splits entries into batches.
fn batches(entries: &[RawEntry]) -> Vec<&[RawEntry]> {
    let (mut batches, mut rest) = (Vec::new(), entries);
    while !rest.is_empty() {
        let mut bytes = 0;
        let fits = |entry: &&RawEntry| {
            bytes += entry.text.len();
            bytes <= BATCH_BYTES
        };
        let count = rest.iter().take(BATCH_SIZE).take_while(fits).count().max(1);
        let (batch, others) = rest.split_at(count);
        batches.push(batch);
        rest = others;
    }
    batches
}

/// Returns a digest of several texts; their lengths keep them apart.
pub(super) fn digest_key(texts: &[&[u8]]) -> DigestKey {
    let mut joined = Vec::new();
    for text in texts {
        joined.extend_from_slice(&text.len().to_le_bytes());
        joined.extend_from_slice(text);
    }
    sha256(&joined)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_split_by_number_and_by_size() {
        let sizes_of = |sizes: &[usize]| -> Vec<usize> {
            let entries = sizes.iter().map(|size| RawEntry { name: None, text: vec![b'a'; *size].into(), error: None });
            batches(&entries.collect::<Vec<_>>()).into_iter().map(<[RawEntry]>::len).collect()
        };
        assert_eq!(sizes_of(&[]), [0; 0]);
        assert_eq!(sizes_of(&[1; BATCH_SIZE * 2 + 1]), [BATCH_SIZE, BATCH_SIZE, 1]);
        assert_eq!(sizes_of(&[BATCH_BYTES, 1, 1]), [1, 2]);
        assert_eq!(sizes_of(&[1, BATCH_BYTES + 1, BATCH_BYTES, 1]), [1, 1, 1, 1]);
    }
}
