//! A list with the catalogues that its entries lead to, and theirs (nested AI Catalogs). A nested catalogue that cannot be
//! read keeps its previous entries; the others are not affected.

use super::{
    entry_classifier::{ClassifiedEntry, EntryClassifier},
    json_members::quote_name,
    pagination::{DigestKey, ListBudget, ListReader},
};
use crate::{
    net::Url,
    registry::{MAX_AGENTS, conditional_get::ConditionalClient},
    values::json::truncate,
};
use futures_util::StreamExt;
use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::Duration,
};
use tokio::time::{Instant, timeout, timeout_at};

/// Maximum duration of reading the list of a source with all its pages.
const LIST_TIMEOUT: Duration = Duration::from_secs(120);
/// Maximum duration of reading one nested catalogue.
const CATALOG_TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum duration of reading all nested catalogues; the next poll reads the others.
const NESTED_TIME_LIMIT: Duration = Duration::from_secs(60);
/// Maximum number of catalogues between the list of the source and an entry.
const MAX_DEPTH: usize = 3;
/// Maximum number of nested catalogues of one source.
const MAX_CATALOGS: usize = 100;
/// Maximum number of nested catalogues that are read at once.
const MAX_CONCURRENT_READS: usize = 8;

/// What one nested catalogue may take. Several are read at once before the budget of the source is charged.
const CATALOG_BUDGET: ListBudget = ListBudget { pages: 100, entries: MAX_AGENTS, bytes: 32 << 20 };

/// The list of a source, and its nested catalogues.
pub(super) struct CatalogTree {
    root: ListReader,
    nested: HashMap<Arc<Url>, ListReader>,
    /// Entries that lead to a catalogue which is not followed, with the reason.
    not_followed: HashMap<DigestKey, String>,
    /// Why nested catalogues cannot be read.
    errors: Vec<String>,
}

/// An entry of one of the lists.
#[derive(Clone, Debug)]
pub(super) struct TreeEntry {
    pub(super) key: DigestKey,
    /// The nested catalogue that has the entry; `None` for the list of the source.
    catalog: Option<Arc<Url>>,
}

/// What a tree has in all its lists.
pub(super) struct TreeEntries {
    pub(super) entries: Vec<TreeEntry>,
    /// Whether a nested catalogue was never read, so that its entries are unknown.
    pub(super) is_incomplete: bool,
}

/// An entry that leads to a catalogue.
struct CatalogLink {
    key: DigestKey,
    url: Arc<Url>,
}

/// A nested catalogue, and why it could not be read.
struct NestedCatalog {
    url: Arc<Url>,
    reader: ListReader,
    error: Option<String>,
}

impl NestedCatalog {
    /// Reads the catalogue. One that cannot be read keeps its previous entries.
    async fn read(mut self, reading: CatalogReading<'_>) -> Self {
        let CatalogReading { client, classifier, deadline, budget } = reading;
        let end = deadline.min(Instant::now() + CATALOG_TIMEOUT);
        self.error = match timeout_at(end, self.reader.read_all(client, classifier, budget)).await {
            Ok(Ok(_)) => None,
            Ok(Err(why)) => Some(why),
            Err(_) => Some(format!("{}: reading the catalogue takes too long", self.url)),
        };
        self
    }
}

/// How nested catalogues are read.
#[derive(Clone, Copy)]
struct CatalogReading<'a> {
    client: &'a ConditionalClient,
    classifier: &'a EntryClassifier,
    deadline: Instant,
    budget: ListBudget,
}

impl CatalogTree {
    pub(super) fn new(start_urls: Vec<Url>) -> Self {
        let root = ListReader::new(start_urls);
        Self { root, nested: HashMap::new(), not_followed: HashMap::new(), errors: Vec::new() }
    }

    /// Discards the entries, so that the next poll classifies every one again.
    pub(super) fn clear(&mut self) {
        self.root.clear();
        self.nested.clear();
    }

    /// Returns the classified entry.
    pub(super) fn entry(&self, entry: &TreeEntry) -> Option<&ClassifiedEntry> {
        match &entry.catalog {
            None => self.root.entry(&entry.key),
            Some(url) => self.nested.get(url)?.entry(&entry.key),
        }
    }

    /// Returns why the catalogue of an entry is not followed.
    pub(super) fn reason_not_followed(&self, entry: &TreeEntry) -> Option<&str> {
        self.not_followed.get(&entry.key).map(String::as_str)
    }

    /// Returns how many nested catalogues keep their previous entries because they cannot be read, with one reason.
    pub(super) fn error_summary(&self) -> Option<String> {
        let first = self.errors.first()?;
        Some(format!("{} nested catalogues cannot be read: {}", self.errors.len(), truncate(first, 300)))
    }

    /// Reads the list of the source, and then the nested catalogues, level by level.
    ///
    /// # Errors
    /// The list of the source cannot be read, or exceeds the bounds.
    pub(super) async fn read_all(
        &mut self,
        client: &ConditionalClient,
        classifier: &EntryClassifier,
    ) -> Result<TreeEntries, String> {
        let read = timeout(LIST_TIMEOUT, self.root.read_all(client, classifier, ListBudget::POLL)).await;
        let keys =
            read.map_err(|_| format!("{}: reading the list takes longer than {LIST_TIMEOUT:?}", client.url()))??;
        self.not_followed.clear();
        self.errors.clear();
        let mut seen: HashSet<Arc<Url>> = self.root.page_urls().cloned().map(Arc::new).collect();
        let mut followed = HashMap::new();
        let mut budget = ListBudget::POLL.without(self.root.size());
        let mut links = self.catalog_links(None, &keys);
        let entries = keys.into_iter().map(|key| TreeEntry { key, catalog: None });
        let mut tree = TreeEntries { entries: entries.collect(), is_incomplete: false };
        let deadline = Instant::now() + NESTED_TIME_LIMIT;
        for depth in 1.. {
            let due = self.select_links(std::mem::take(&mut links), depth, &mut seen, &mut followed);
            if due.is_empty() {
                break;
            }
            let reading = CatalogReading { client, classifier, deadline, budget: budget.min(CATALOG_BUDGET) };
            let catalogs: Vec<NestedCatalog> = due.into_iter().map(|url| self.take_catalog(url)).collect();
            let reads = catalogs.into_iter().map(|catalog| catalog.read(reading));
            let mut reads = futures_util::stream::iter(reads).buffered(MAX_CONCURRENT_READS);
            while let Some(NestedCatalog { url, reader, error }) = reads.next().await {
                let size = reader.size();
                let is_allowed = budget.allows(size);
                let error = error.or_else(|| (!is_allowed).then(|| format!("{url}: the catalogues are too large")));
                tree.is_incomplete |= error.is_some() && reader.last_read().is_empty();
                self.errors.extend(error);
                if is_allowed {
                    budget = budget.without(size);
                    let keys = reader.last_read().to_vec();
                    self.nested.insert(Arc::clone(&url), reader);
                    links.extend(self.catalog_links(Some(&url), &keys));
                    tree.entries.extend(keys.into_iter().map(|key| TreeEntry { key, catalog: Some(Arc::clone(&url)) }));
                }
            }
        }
        self.nested.retain(|url, _| followed.contains_key(url));
        self.errors.sort_unstable();
        Ok(tree)
    }

    /// Returns the entries of a list that lead to catalogues.
    fn catalog_links(&self, catalog: Option<&Arc<Url>>, keys: &[DigestKey]) -> Vec<CatalogLink> {
        let reader = catalog.map_or(Some(&self.root), |url| self.nested.get(url));
        let links = keys.iter().filter_map(|key| match reader?.entry(key) {
            Some(ClassifiedEntry::Catalog(url)) => Some(CatalogLink { key: *key, url: Arc::new(url.clone()) }),
            _ => None,
        });
        links.collect()
    }

    /// Selects the catalogues to read, each once, and records why the others are not followed.
    fn select_links(
        &mut self,
        links: Vec<CatalogLink>,
        depth: usize,
        seen: &mut HashSet<Arc<Url>>,
        followed: &mut HashMap<Arc<Url>, DigestKey>,
    ) -> Vec<Arc<Url>> {
        let mut due = Vec::new();
        for CatalogLink { key, url } in links {
            let name = quote_name(url.as_str());
            // Equal entries are one.
            if followed.get(&url) == Some(&key) {
                continue;
            }
            let reason = if seen.contains(&url) {
                format!("is the catalogue {name}, which another entry leads to already")
            } else if depth > MAX_DEPTH {
                format!("is the catalogue {name}, below more than {MAX_DEPTH} nested catalogues")
            } else if followed.len() == MAX_CATALOGS {
                format!("is the catalogue {name}, beyond the {MAX_CATALOGS} nested catalogues of a source")
            } else {
                seen.insert(Arc::clone(&url));
                followed.insert(Arc::clone(&url), key);
                due.push(url);
                continue;
            };
            self.not_followed.insert(key, reason);
        }
        due
    }

    /// Returns a nested catalogue as it was last read.
    fn take_catalog(&mut self, url: Arc<Url>) -> NestedCatalog {
        let reader = self.nested.remove(&url).unwrap_or_else(|| ListReader::new(vec![url.as_ref().clone()]));
        NestedCatalog { url, reader, error: None }
    }
}
