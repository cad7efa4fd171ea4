//! Pagination: reads all pages of a list, and caches their entries so that an unchanged page is not parsed again.
//! A page that cannot be read fails the whole list, because any agent could be missing.

use super::{
    judge::{Judge, Judged},
    listing,
};
use crate::{
    net::Url,
    registry::{
        MOST_AGENTS,
        read::sha256,
        web::{Fetched, Web},
    },
};
use std::collections::{HashMap, HashSet};

/// Maximum number of pages of one list.
const MOST_PAGES: usize = 1_000;
/// Maximum size in bytes of all pages of one poll.
const MOST_BYTES: usize = 256 << 20;

/// Number of entries after which the task yields: classifying a long list takes as long as thousands of calls.
const PAUSE: usize = 32;

/// SHA-256 of an entry and of everything that its classification depends on.
pub(super) type Key = [u8; 32];

/// A list of any number of pages.
pub(super) struct Pages {
    /// Candidate URLs of the list, in order of preference.
    starts: Vec<Url>,
    /// Index of the candidate at which the list was found.
    settled: Option<usize>,
    pages: HashMap<Url, Listed>,
    entries: HashMap<Key, Judged>,
}

/// A page as it was last read.
struct Listed {
    entries: Vec<Key>,
    next: Option<Url>,
    size: usize,
}

impl Pages {
    pub(super) fn new(starts: Vec<Url>) -> Self {
        Self { starts, settled: None, pages: HashMap::new(), entries: HashMap::new() }
    }

    /// Returns the classified entry.
    pub(super) fn entry(&self, key: &Key) -> Option<&Judged> {
        self.entries.get(key)
    }

    /// Reads all pages and returns their entries.
    ///
    /// # Errors
    /// A page cannot be read, or the list exceeds the bounds.
    pub(super) async fn list(&mut self, web: &Web, judge: &Judge) -> Result<Vec<Key>, String> {
        let mut seen = HashSet::new();
        let listed = self.walk(web, judge, &mut seen).await;
        // After a failure too: a list whose pages differ at every poll must not exhaust the memory.
        self.pages.retain(|url, _| seen.contains(url));
        let kept: HashSet<&Key> = self.pages.values().flat_map(|page| &page.entries).collect();
        self.entries.retain(|key, _| kept.contains(key));
        listed
    }

    async fn walk(&mut self, web: &Web, judge: &Judge, seen: &mut HashSet<Url>) -> Result<Vec<Key>, String> {
        let start = self.start(web, judge).await?;
        let (mut entries, mut bytes) = (Vec::new(), 0);
        let mut next = Some(start.clone());
        while let Some(url) = next {
            if seen.len() == MOST_PAGES {
                return Err(format!("{start}: the list has more than {MOST_PAGES} pages"));
            }
            if !seen.insert(url.clone()) {
                return Err(format!("{url}: the next page is one that was read already"));
            }
            if url != start {
                self.page(&url, web, judge).await?;
            }
            let page = self.pages.get(&url).ok_or_else(|| format!("{url}: the page was not cached"))?;
            bytes += page.size;
            entries.extend_from_slice(&page.entries);
            if entries.len() > MOST_AGENTS || bytes > MOST_BYTES {
                return Err(format!("{start}: the list has more than {MOST_AGENTS} entries or {MOST_BYTES} bytes"));
            }
            next = page.next.clone();
        }
        Ok(entries)
    }

    /// Returns the first candidate that has a list. A candidate that was found once is not given up for a lesser one.
    async fn start(&mut self, web: &Web, judge: &Judge) -> Result<Url, String> {
        let mut reasons = Vec::new();
        for (at, url) in self.starts.clone().into_iter().enumerate() {
            match self.page(&url, web, judge).await {
                Ok(()) => {
                    self.settled = Some(at);
                    return Ok(url);
                }
                Err(why) if self.settled == Some(at) => return Err(why),
                Err(why) => reasons.push(why),
            }
        }
        Err(reasons.join("; "))
    }

    /// Reads one page, unless it is unchanged.
    async fn page(&mut self, url: &Url, web: &Web, judge: &Judge) -> Result<(), String> {
        let page = match web.get(url).await? {
            Fetched::Unchanged if self.pages.contains_key(url) => return Ok(()),
            Fetched::Unchanged => web.whole(url).await?,
            Fetched::Fresh(page) => page,
        };
        self.pages.remove(url);
        let found = listing::read(&page.url, &page.body).map_err(|why| format!("{url}: {why}"))?;
        let mut entries = Vec::with_capacity(found.entries.len());
        for (at, raw) in found.entries.iter().enumerate() {
            if at % PAUSE == PAUSE - 1 {
                tokio::task::yield_now().await;
            }
            let name = raw.name.as_deref().unwrap_or_default();
            let why = raw.broken.as_deref().unwrap_or_default();
            let key = key(&[page.url.as_str().as_bytes(), name.as_bytes(), why.as_bytes(), &raw.text]);
            self.entries.entry(key).or_insert_with(|| judge.entry(raw, &page.url));
            entries.push(key);
        }
        self.pages.insert(url.clone(), Listed { entries, next: found.next, size: page.body.len() });
        Ok(())
    }
}

/// Returns a digest of several texts; their lengths keep them apart.
pub(super) fn key(texts: &[&[u8]]) -> Key {
    let mut whole = Vec::new();
    for text in texts {
        whole.extend_from_slice(&text.len().to_le_bytes());
        whole.extend_from_slice(text);
    }
    sha256(&whole)
}
