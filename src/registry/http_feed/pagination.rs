//! Pagination: reads all pages of a list, and caches their entries so that an unchanged page is not parsed again.
//! A page that cannot be read fails the whole list, because any agent could be missing.

use super::{
    entry_classifier::{ClassifiedEntry, EntryClassifier},
    list_parser::{self, RawEntry},
};
use crate::{
    net::Url,
    registry::{
        MAX_AGENTS,
        conditional_get::{ConditionalClient, ConditionalResponse},
    },
    values::sha256,
};
use std::collections::{HashMap, HashSet};

/// What a list may take.
#[derive(Clone, Copy, Debug)]
pub(super) struct ListBudget {
    /// Number of pages.
    pub(super) pages: usize,
    /// Number of entries.
    pub(super) entries: usize,
    /// Size of all pages in bytes.
    pub(super) bytes: usize,
}

impl ListBudget {
    /// The budget of one poll of a source.
    pub(super) const POLL: Self = Self { pages: 1_000, entries: MAX_AGENTS, bytes: 256 << 20 };

    /// Returns what is left after a list took `used`.
    pub(super) fn without(self, used: Self) -> Self {
        Self {
            pages: self.pages.saturating_sub(used.pages),
            entries: self.entries.saturating_sub(used.entries),
            bytes: self.bytes.saturating_sub(used.bytes),
        }
    }

    /// Returns the smaller of both budgets.
    pub(super) fn min(self, other: Self) -> Self {
        Self {
            pages: self.pages.min(other.pages),
            entries: self.entries.min(other.entries),
            bytes: self.bytes.min(other.bytes),
        }
    }

    /// Returns whether `used` is within the budget.
    pub(super) fn allows(self, used: Self) -> bool {
        used.pages <= self.pages && used.entries <= self.entries && used.bytes <= self.bytes
    }
}

/// Number of entries that are classified together, between those of other sources. The digests of a long list take long
/// too, so that the task yields after as many.
const BATCH_SIZE: usize = 16;
/// Size of the entries that are classified together, in bytes. A longer entry is a batch of its own.
const BATCH_BYTES: usize = 64 << 10;

/// SHA-256 of an entry and of everything that its classification depends on.
pub(super) type DigestKey = [u8; 32];

/// A list of any number of pages.
pub(super) struct ListReader {
    /// Candidate URLs of the list, in order of preference.
    start_urls: Vec<Url>,
    /// Index of the candidate at which the list was found.
    found_at: Option<usize>,
    pages: HashMap<Url, CachedPage>,
    entries: HashMap<DigestKey, ClassifiedEntry>,
    /// The entries when all pages were last read.
    last_read: Vec<DigestKey>,
}

/// A page as it was last read.
struct CachedPage {
    entries: Vec<DigestKey>,
    next: Option<Url>,
    size: usize,
}

impl ListReader {
    pub(super) fn new(start_urls: Vec<Url>) -> Self {
        Self { start_urls, found_at: None, pages: HashMap::new(), entries: HashMap::new(), last_read: Vec::new() }
    }

    /// Discards the entries, so that the next poll classifies every one again.
    pub(super) fn clear(&mut self) {
        self.pages.clear();
        self.entries.clear();
        self.last_read.clear();
    }

    /// Returns the URLs of the pages that were read.
    pub(super) fn page_urls(&self) -> impl Iterator<Item = &Url> {
        self.pages.keys()
    }

    /// Returns the entries when all pages were last read; later failures do not change them.
    pub(super) fn last_read(&self) -> &[DigestKey] {
        &self.last_read
    }

    /// Returns what the list takes now.
    pub(super) fn size(&self) -> ListBudget {
        let bytes = self.pages.values().map(|page| page.size).sum();
        ListBudget { pages: self.pages.len(), entries: self.last_read.len(), bytes }
    }

    /// Returns the classified entry.
    pub(super) fn entry(&self, key: &DigestKey) -> Option<&ClassifiedEntry> {
        self.entries.get(key)
    }

    /// Reads all pages and returns their entries.
    ///
    /// # Errors
    /// A page cannot be read, or the list exceeds the budget.
    pub(super) async fn read_all(
        &mut self,
        client: &ConditionalClient,
        classifier: &EntryClassifier,
        budget: ListBudget,
    ) -> Result<Vec<DigestKey>, String> {
        let mut visited = HashSet::new();
        let entries = self.follow_pages(client, classifier, budget, &mut visited).await;
        if let Ok(entries) = &entries {
            self.last_read.clone_from(entries);
        }
        // After a failure too: a list whose pages differ at every poll must not exhaust the memory.
        self.pages.retain(|url, _| visited.contains(url));
        let in_pages = self.pages.values().flat_map(|page| &page.entries);
        let cached_keys: HashSet<&DigestKey> = in_pages.chain(&self.last_read).collect();
        self.entries.retain(|key, _| cached_keys.contains(key));
        entries
    }

    async fn follow_pages(
        &mut self,
        client: &ConditionalClient,
        classifier: &EntryClassifier,
        budget: ListBudget,
        visited: &mut HashSet<Url>,
    ) -> Result<Vec<DigestKey>, String> {
        let start = self.find_start(client, classifier).await?;
        let (mut entries, mut bytes) = (Vec::new(), 0);
        let mut next = Some(start.clone());
        while let Some(url) = next {
            if visited.len() >= budget.pages {
                return Err(format!("{start}: the list has more than {} pages", budget.pages));
            }
            if !visited.insert(url.clone()) {
                return Err(format!("{url}: the next page is one that was read already"));
            }
            if url != start {
                self.read_page(&url, client, classifier).await?;
            }
            let page = self.pages.get(&url).ok_or_else(|| format!("{url}: the page was not cached"))?;
            bytes += page.size;
            entries.extend_from_slice(&page.entries);
            if !budget.allows(ListBudget { pages: visited.len(), entries: entries.len(), bytes }) {
                let ListBudget { entries, bytes, .. } = budget;
                return Err(format!("{start}: the list has more than {entries} entries or {bytes} bytes"));
            }
            next = page.next.clone();
        }
        Ok(entries)
    }

    /// Returns the first candidate that has a list. If the list was found at a candidate before, later candidates are
    /// not tried when it fails.
    async fn find_start(&mut self, client: &ConditionalClient, classifier: &EntryClassifier) -> Result<Url, String> {
        let mut reasons = Vec::new();
        for (at, url) in self.start_urls.clone().into_iter().enumerate() {
            match self.read_page(&url, client, classifier).await {
                Ok(()) => {
                    self.found_at = Some(at);
                    return Ok(url);
                }
                Err(why) if self.found_at == Some(at) => return Err(why),
                Err(why) => reasons.push(why),
            }
        }
        Err(reasons.join("; "))
    }

    /// Reads one page, unless it is unchanged.
    async fn read_page(
        &mut self,
        url: &Url,
        client: &ConditionalClient,
        classifier: &EntryClassifier,
    ) -> Result<(), String> {
        let response = match client.get(url).await? {
            ConditionalResponse::NotModified if self.pages.contains_key(url) => return Ok(()),
            ConditionalResponse::NotModified => client.get_unconditional(url).await?,
            ConditionalResponse::Modified(response) => response,
        };
        self.pages.remove(url);
        let list = list_parser::parse_page(&response.url, &response.body).map_err(|why| format!("{url}: {why}"))?;
        let mut entries = Vec::with_capacity(list.entries.len());
        let mut level = list.entries;
        // Catalogues within the list are at most as deep as JSON may be nested.
        while !level.is_empty() {
            let keys = self.classify_entries(&level, &response.url, classifier).await;
            let keys = keys.map_err(|why| format!("{url}: {why}"))?;
            let inline = keys.iter().filter_map(|key| match self.entries.get(key) {
                Some(ClassifiedEntry::InlineCatalog(inline)) => Some(inline),
                _ => None,
            });
            level = inline.flatten().cloned().collect();
            entries.extend(keys);
            if entries.len() + level.len() > MAX_AGENTS {
                return Err(format!("{url}: the list has more than {MAX_AGENTS} entries"));
            }
        }
        self.pages.insert(url.clone(), CachedPage { entries, next: list.next, size: response.body.len() });
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
