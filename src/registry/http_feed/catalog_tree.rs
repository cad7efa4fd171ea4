//! A list with the catalogues that its entries lead to, and theirs (nested AI Catalogs). A nested catalogue that cannot be
//! read, or takes more than its share, keeps its previous entries; the others are not affected.

use super::{
    catalog_selection::{CatalogEntry, CatalogLink, CatalogSelection, ParentList, SelectedCatalog},
    document_shares::Branch,
    entry_classifier::{ClassifiedEntry, EntryClassifier},
    link_backoff::LinkBackoff,
    list_budget::ListBudget,
    pagination::{DigestKey, ListReader, ListReading, ReadList},
};
use crate::{
    net::{LinkAuthor, Url},
    registry::conditional_get::{ConditionalClient, FetchFailure, LinkTarget},
    values::{json::truncate, shown_url},
};
use futures_util::StreamExt;
use std::{collections::HashMap, ops::Range, sync::Arc, time::Duration};
use tokio::time::{Instant, timeout, timeout_at};

/// Maximum duration of reading the list of a source with all its pages.
const LIST_TIMEOUT: Duration = Duration::from_secs(120);
/// Maximum duration of reading one nested catalogue.
const CATALOG_TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum duration of reading all nested catalogues; the next poll reads the others.
const NESTED_TIME_LIMIT: Duration = Duration::from_secs(60);
/// The same before the source's own list is in force: a gateway that starts does not wait for nested catalogues.
const FIRST_NESTED_TIME_LIMIT: Duration = Duration::from_secs(5);
/// Maximum number of nested catalogues that are read at once.
const MAX_CONCURRENT_READS: usize = 8;

/// The list of a source, and its nested catalogues.
pub(super) struct CatalogTree {
    root: ListReader,
    nested: HashMap<Arc<CatalogLink>, NestedCatalog>,
    selection: CatalogSelection,
    /// Maximum number of agents of the source.
    max_agents: usize,
}

/// One of the lists of a source, as it was last read.
pub(super) struct TreeList {
    /// The nested catalogue; `None` for the source's own list.
    catalog: Option<Arc<CatalogLink>>,
    pub(super) entries: Vec<DigestKey>,
    /// Who names what the entries lead to.
    pub(super) author: LinkAuthor,
    /// The catalogue of the source's own list that it belongs to; 0 for the own list.
    pub(super) branch: Branch,
    /// Why the entries are unknown, where the list was never read.
    pub(super) unread: Option<String>,
}

/// A nested catalogue.
struct NestedCatalog {
    reader: ListReader,
    /// Why it could not be read.
    error: Option<String>,
    backoff: LinkBackoff,
}

/// A nested catalogue in the turn of its level.
struct CatalogRead {
    at: usize,
    selected: SelectedCatalog,
    catalog: NestedCatalog,
    budget: ListBudget,
}

impl CatalogRead {
    /// Reads the catalogue, unless it failed before and waits. One that cannot be read keeps its previous entries.
    async fn read(mut self, client: &ConditionalClient, classifier: &EntryClassifier, deadline: Instant) -> Self {
        if !self.catalog.backoff.count_poll() {
            return self;
        }
        let url = &self.selected.link.url;
        let end = deadline.min(Instant::now() + CATALOG_TIMEOUT);
        let reading = ListReading { client, classifier, budget: &self.budget };
        let read = timeout_at(end, self.catalog.reader.read_all(reading)).await;
        let failure = match read {
            Ok(result) => result.err(),
            Err(_) => {
                Some(FetchFailure::from(format!("{}: reading the catalogue takes too long", shown_url(url.as_str()))))
            }
        };
        match failure {
            None => {
                self.catalog.error = None;
                self.catalog.backoff = LinkBackoff::default();
            }
            Some(FetchFailure { why, retry_after }) => {
                let shown = shown_url(url.as_str());
                self.catalog.error = Some(if why.contains(&*shown) { why } else { format!("{shown}: {why}") });
                self.catalog.backoff.record_failure(retry_after);
            }
        }
        self
    }
}

impl TreeList {
    fn of_source(list: ReadList) -> Self {
        Self { catalog: None, entries: list.entries, author: list.author, branch: 0, unread: None }
    }

    /// Returns the name of the list among those of the source at `source`.
    pub(super) fn name(&self, source: &Url) -> Arc<str> {
        match &self.catalog {
            None => source.as_str().into(),
            Some(catalog) if catalog.author == LinkAuthor::Foreign && catalog.url.origin() == source.origin() => {
                format!("{} (named by another server)", catalog.url).into()
            }
            Some(catalog) => catalog.url.as_str().into(),
        }
    }

    /// Returns whether this is the source's own list.
    pub(super) fn is_own(&self) -> bool {
        self.catalog.is_none()
    }
}

impl CatalogTree {
    pub(super) fn new(start_urls: Vec<Url>, max_agents: usize) -> Self {
        let root = ListReader::new(start_urls);
        Self { root, nested: HashMap::new(), selection: CatalogSelection::default(), max_agents }
    }

    /// Discards the entries, so that the next poll classifies every one again.
    pub(super) fn clear(&mut self) {
        self.root.clear();
        self.nested.clear();
    }

    /// Reads catalogues that failed in the next poll, however often they failed.
    pub(super) fn reset_backoffs(&mut self) {
        self.nested.values_mut().for_each(|catalog| catalog.backoff = LinkBackoff::default());
    }

    /// Returns the classified entry of one of the lists.
    pub(super) fn entry(&self, list: &TreeList, key: &DigestKey) -> Option<&ClassifiedEntry> {
        match &list.catalog {
            None => self.root.entry(key),
            Some(link) => self.nested.get(link)?.reader.entry(key),
        }
    }

    /// Returns why the catalogue of an entry is not read a second time.
    pub(super) fn duplicate_reason(&self, key: &DigestKey) -> Option<&str> {
        self.selection.duplicate_reason(key)
    }

    /// Returns a warning about nested catalogues for which there is no place.
    pub(super) fn left_out_summary(&self) -> Option<String> {
        self.selection.left_out_summary()
    }

    /// Returns how many nested catalogues keep their previous entries because they cannot be read, with one reason.
    pub(super) fn error_summary(&self) -> Option<String> {
        let mut errors: Vec<&String> = self.nested.values().filter_map(|catalog| catalog.error.as_ref()).collect();
        errors.sort_unstable();
        let first = errors.first()?;
        Some(format!("{} nested catalogues cannot be read: {}", errors.len(), truncate(first, 300)))
    }

    /// Reads the list of the source, and then the nested catalogues, level by level. Returns the lists in order of
    /// precedence. `is_first` says whether no result was accepted yet.
    ///
    /// # Errors
    /// The list of the source cannot be read, or exceeds the bounds.
    pub(super) async fn read_all(
        &mut self,
        client: &ConditionalClient,
        classifier: &EntryClassifier,
        is_first: bool,
    ) -> Result<Vec<TreeList>, String> {
        let source_budget = ListBudget::of_source();
        let reading = ListReading { client, classifier, budget: &source_budget };
        let read = timeout(LIST_TIMEOUT, self.root.read_all(reading)).await;
        let own = read
            .map_err(|_| format!("{}: reading the list takes longer than {LIST_TIMEOUT:?}", client.url()))?
            .map_err(|failure| failure.why)?;
        self.selection = CatalogSelection::new(self.root.page_urls());
        let mut lists = vec![TreeList::of_source(own)];
        let (mut branches, mut level): (Vec<Arc<ListBudget>>, Range<usize>) = (Vec::new(), 0..1);
        let deadline = Instant::now() + if is_first { FIRST_NESTED_TIME_LIMIT } else { NESTED_TIME_LIMIT };
        for depth in 1.. {
            let parents = lists.get(level.clone()).unwrap_or_default();
            let parents = parents.iter().map(|list| self.parent_list(list, client)).collect();
            let selected = self.selection.select_level(parents, depth);
            if selected.is_empty() {
                break;
            }
            if depth == 1 {
                let count = selected.len();
                branches = (0..count).map(|_| ListBudget::of_branch(&source_budget, self.max_agents, count)).collect();
            }
            let reads = self.begin_reads(selected, &branches);
            let reads = reads.into_iter().map(|read| read.read(client, classifier, deadline));
            let reads = futures_util::stream::iter(reads).buffer_unordered(MAX_CONCURRENT_READS);
            let mut reads: Vec<CatalogRead> = reads.collect().await;
            reads.sort_unstable_by_key(|read| read.at);
            level = lists.len()..lists.len();
            lists.extend(reads.into_iter().filter_map(|read| self.finish_read(read)));
            level.end = lists.len();
        }
        let selection = &self.selection;
        self.nested.retain(|link, _| selection.is_followed(link));
        Ok(lists)
    }

    /// Returns the catalogues to which a list leads.
    fn parent_list(&self, list: &TreeList, client: &ConditionalClient) -> ParentList {
        let entry = |key: &DigestKey| match self.entry(list, key) {
            Some(ClassifiedEntry::Catalog(url)) => {
                let author = client.effective_author(url, list.author);
                Some(CatalogEntry { key: *key, link: CatalogLink { url: url.clone(), author } })
            }
            _ => None,
        };
        ParentList { branch: list.branch, entries: list.entries.iter().filter_map(entry).collect() }
    }

    /// Prepares the reads of a level: catalogues that failed last are read last, so that they do not take the time of the
    /// others.
    fn begin_reads(&mut self, selected: Vec<SelectedCatalog>, branches: &[Arc<ListBudget>]) -> Vec<CatalogRead> {
        let reads = selected.into_iter().enumerate().filter_map(|(at, selected)| {
            let branch = branches.get(selected.branch.checked_sub(1)?)?;
            let SelectedCatalog { link, .. } = &selected;
            let catalog = self.nested.remove(link).unwrap_or_else(|| NestedCatalog {
                reader: ListReader::of_link(LinkTarget { url: &link.url, author: link.author }),
                error: None,
                backoff: LinkBackoff::default(),
            });
            Some(CatalogRead { at, selected, catalog, budget: ListBudget::of_catalog(branch) })
        });
        let mut reads: Vec<CatalogRead> = reads.collect();
        reads.sort_by_key(|read| read.catalog.error.is_some());
        reads
    }

    /// Keeps a catalogue, and returns its list unless another entry leads to that already.
    fn finish_read(&mut self, read: CatalogRead) -> Option<TreeList> {
        let CatalogRead { selected: SelectedCatalog { link, branch }, catalog, .. } = read;
        let list = catalog.reader.last_read().cloned();
        let is_only_here = list.as_ref().is_none_or(|list| self.selection.record_found(&link, list));
        let unread = catalog.error.clone().filter(|_| list.is_none());
        self.nested.insert(Arc::clone(&link), catalog);
        let (entries, author) = list.map_or((Vec::new(), LinkAuthor::Foreign), |list| (list.entries, list.author));
        is_only_here.then_some(TreeList { catalog: Some(link), entries, author, branch, unread })
    }
}
