//! Which nested catalogues a poll reads: each once, a bounded number, and places for those of every parent.

use super::{
    json_members::quote_name,
    list_budget::equal_share,
    pagination::{DigestKey, ReadList},
};
use crate::net::{LinkAuthor, Url};
use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

/// Maximum number of catalogues between the list of the source and an entry.
const MAX_DEPTH: usize = 3;
/// Maximum number of nested catalogues of one source.
const MAX_CATALOGS: usize = 100;

/// What a nested catalogue is known by: the same URL is read once with the source's credential and once without it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct CatalogLink {
    pub(super) url: Url,
    pub(super) author: LinkAuthor,
}

/// An entry that leads to a catalogue.
pub(super) struct CatalogEntry {
    pub(super) key: DigestKey,
    pub(super) link: CatalogLink,
}

/// The catalogues to which one list leads.
pub(super) struct ParentList {
    /// The catalogue of the source's own list that it belongs to; 0 for the own list.
    pub(super) branch: usize,
    pub(super) entries: Vec<CatalogEntry>,
}

/// A catalogue to read.
pub(super) struct SelectedCatalog {
    pub(super) link: Arc<CatalogLink>,
    /// The catalogue of the source's own list that it belongs to, from 1.
    pub(super) branch: usize,
}

/// The catalogues that were selected so far.
#[derive(Default)]
pub(super) struct CatalogSelection {
    /// The lists that are read, by every URL that leads to them.
    seen: HashSet<CatalogLink>,
    followed: HashMap<Arc<CatalogLink>, DigestKey>,
    /// The number of catalogues in each branch.
    sizes: HashMap<usize, usize>,
    /// Entries that lead to a catalogue which is read already, with the reason.
    duplicates: HashMap<DigestKey, String>,
    /// Catalogues for which there is no place.
    left_out: Vec<String>,
}

impl CatalogSelection {
    /// Starts with the pages of the source's own list.
    pub(super) fn new<'a>(own_pages: impl Iterator<Item = &'a Url>) -> Self {
        let seen = own_pages.map(|url| CatalogLink { url: url.clone(), author: LinkAuthor::Source }).collect();
        Self { seen, ..Self::default() }
    }

    /// Returns why the catalogue of an entry is not read a second time.
    pub(super) fn duplicate_reason(&self, key: &DigestKey) -> Option<&str> {
        self.duplicates.get(key).map(String::as_str)
    }

    /// Returns a warning about the catalogues for which there is no place.
    pub(super) fn left_out_summary(&self) -> Option<String> {
        let first = self.left_out.first()?;
        Some(format!("{} nested catalogues are left out: {first}", self.left_out.len()))
    }

    /// Returns whether the catalogue was selected in this poll.
    pub(super) fn is_followed(&self, link: &CatalogLink) -> bool {
        self.followed.contains_key(link)
    }

    /// Selects the catalogues of one level, one of each parent at a time.
    pub(super) fn select_level(&mut self, parents: Vec<ParentList>, depth: usize) -> Vec<SelectedCatalog> {
        let most = parents.iter().map(|parent| parent.entries.len()).max().unwrap_or_default();
        let mut selected = Vec::new();
        // With the catalogues of the own list, every further one is of a branch, which has a share of the places.
        let share = equal_share(MAX_CATALOGS, 0, self.sizes.len());
        for at in 0..most {
            for parent in &parents {
                let Some(entry) = parent.entries.get(at) else { continue };
                let in_branch = self.sizes.get(&parent.branch).copied().unwrap_or_default();
                let has_place = self.followed.len() < MAX_CATALOGS && (depth == 1 || in_branch < share);
                if self.is_seen(&entry.link) {
                    // Equal entries are one.
                    if self.followed.get(&entry.link) != Some(&entry.key) {
                        self.duplicates.insert(entry.key, duplicate_reason(&entry.link.url));
                    }
                    continue;
                }
                let name = quote_name(entry.link.url.as_str());
                if depth > MAX_DEPTH {
                    self.left_out.push(format!("{name} is below more than {MAX_DEPTH} nested catalogues"));
                } else if !has_place {
                    let why = format!("{name} is beyond the {MAX_CATALOGS} nested catalogues of a source");
                    self.left_out.push(why);
                } else {
                    let link = Arc::new(entry.link.clone());
                    self.seen.insert(entry.link.clone());
                    self.followed.insert(Arc::clone(&link), entry.key);
                    let branch = if depth == 1 { self.sizes.len() + 1 } else { parent.branch };
                    *self.sizes.entry(branch).or_default() += 1;
                    selected.push(SelectedCatalog { link, branch });
                }
            }
        }
        selected
    }

    /// Records where a list was found after redirects. Returns whether this list is read only here: not where a redirect
    /// leads to a list that another entry leads to already.
    pub(super) fn record_found(&mut self, link: &CatalogLink, list: &ReadList) -> bool {
        if list.url == link.url {
            return true;
        }
        let found = CatalogLink { url: list.url.clone(), author: list.author };
        if !self.is_seen(&found) {
            self.seen.insert(found);
            return true;
        }
        if let Some(key) = self.followed.get(link) {
            self.duplicates.insert(*key, duplicate_reason(&link.url));
        }
        false
    }

    fn is_seen(&self, link: &CatalogLink) -> bool {
        let of_source = || CatalogLink { author: LinkAuthor::Source, ..link.clone() };
        self.seen.contains(link) || self.seen.contains(&of_source())
    }
}

fn duplicate_reason(url: &Url) -> String {
    format!("is the catalogue {}, which another entry leads to already", quote_name(url.as_str()))
}
