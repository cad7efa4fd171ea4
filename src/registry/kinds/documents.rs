//! Documents that a list links to. Changed entries are fetched again at once, the others are revalidated in turn.
//! A document that cannot be fetched keeps its previous content.

use super::{
    judge::{Judge, Ready},
    pages::{Key, key},
};
use crate::{
    net::Url,
    registry::web::{Fetched, Page, Web},
    unit::json::cut,
};
use futures_util::StreamExt;
use std::{
    collections::{HashMap, HashSet},
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    time::{Duration, Instant},
};

/// Maximum size in bytes of all documents of one list.
const MOST_BYTES: usize = 256 << 20;
/// Maximum number of new or changed documents fetched in one poll; the next poll continues.
const FETCHED: usize = 10_000;
/// Maximum number of unchanged documents revalidated in one poll: in turn, so that each one is sooner or later. Up to
/// this number, every poll revalidates all.
const REVALIDATED: usize = 256;
/// Maximum duration of fetching documents in one poll; the next poll continues.
const LONGEST: Duration = Duration::from_secs(60);
/// Maximum number of concurrent fetches.
const AT_ONCE: usize = 8;

/// Cached documents by URL and listed name.
#[derive(Default)]
pub(super) struct Documents {
    held: HashMap<Key, Held>,
    turn: usize,
}

/// Link of a list to a document.
pub(super) struct Named<'a> {
    /// Digest of the list entry.
    pub(super) entry: Key,
    pub(super) url: &'a Url,
    pub(super) known_as: Option<&'a str>,
}

/// A document that was fetched.
struct Held {
    /// Digest of the list entry at that time.
    entry: Key,
    found: Result<Ready, String>,
    /// Why the last fetch failed.
    trouble: Option<String>,
}

/// A document to fetch.
pub(super) struct Due {
    place: Key,
    entry: Key,
    url: Url,
    known_as: Option<String>,
    /// Whether the cached content may still be current.
    known: bool,
}

impl Documents {
    /// Returns the document as it was last fetched; `None` where it was not fetched yet.
    pub(super) fn get(&self, url: &Url, known_as: Option<&str>) -> Option<&Result<Ready, String>> {
        self.held.get(&place(url, known_as)).map(|held| &held.found)
    }

    /// Returns how many documents keep their previous content because they cannot be fetched, with one reason.
    pub(super) fn trouble(&self) -> Option<String> {
        let stale = self.held.values().filter(|held| held.found.is_ok());
        let mut reasons: Vec<&String> = stale.filter_map(|held| held.trouble.as_ref()).collect();
        reasons.sort_unstable();
        reasons.first().map(|why| format!("{} documents cannot be fetched: {}", reasons.len(), cut(why, 300)))
    }

    /// Returns the links to fetch in this poll, and whether some are left for the next.
    pub(super) fn due<'a>(&mut self, named: impl Iterator<Item = Named<'a>>) -> (Vec<Due>, bool) {
        let (mut new, mut old, mut places) = (Vec::new(), Vec::new(), HashSet::new());
        for Named { entry, url, known_as } in named {
            let place = place(url, known_as);
            if !places.insert(place) {
                continue;
            }
            let held = self.held.get(&place);
            let known = held.is_some_and(|held| held.entry == entry && held.trouble.is_none());
            let due = Due { place, entry, url: url.clone(), known_as: known_as.map(str::to_owned), known };
            if known { old.push(due) } else { new.push(due) }
        }
        self.held.retain(|place, _| places.contains(place));
        let left = new.len() > FETCHED;
        new.truncate(FETCHED);
        let again = old.len().min(REVALIDATED);
        let turn = self.turn % old.len().max(1);
        old.rotate_left(turn);
        old.truncate(again);
        self.turn = turn + again;
        new.extend(old);
        (new, left)
    }

    /// Fetches documents concurrently, and converts each; returns whether time ran out before all were fetched.
    ///
    /// # Errors
    /// All documents together exceed the maximum size.
    pub(super) async fn fetch(&mut self, due: Vec<Due>, web: &Web, judge: &Judge) -> Result<bool, String> {
        let began = Instant::now();
        let mut bytes: usize = self.held.values().filter_map(|held| Some(held.found.as_ref().ok()?.size())).sum();
        let late = AtomicBool::new(false);
        // A fetch that was started is awaited: its validators are cached already.
        let due = due.into_iter().take_while(|_| {
            late.store(began.elapsed() > LONGEST, Relaxed);
            !late.load(Relaxed)
        });
        let mut coming = futures_util::stream::iter(due.map(|due| fetched(web, judge, due))).buffer_unordered(AT_ONCE);
        while let Some((due, found)) = coming.next().await {
            let held = self.held.get_mut(&due.place);
            match (found, held) {
                (Ok(None), Some(held)) => held.trouble = None,
                // Nothing is cached and nothing was received: the next poll fetches again.
                (Ok(None), None) => {}
                (Ok(Some(found)), held) => {
                    let size = found.as_ref().map_or(0, Ready::size);
                    let before = held.and_then(|held| Some(held.found.as_ref().ok()?.size())).unwrap_or_default();
                    bytes = bytes + size - before;
                    if bytes > MOST_BYTES {
                        if let Some(held) = self.held.get_mut(&due.place) {
                            held.trouble = Some("all documents together are too large".to_owned());
                        }
                        return Err(format!("{}: all documents have more than {MOST_BYTES} bytes", due.url));
                    }
                    self.held.insert(due.place, Held { entry: due.entry, found, trouble: None });
                }
                (Err(why), Some(held)) if held.found.is_ok() => held.trouble = Some(why),
                (Err(why), _) => {
                    let found = Err(format!("the document cannot be fetched: {why}"));
                    self.held.insert(due.place, Held { entry: due.entry, found, trouble: Some(why) });
                }
            }
        }
        Ok(late.load(Relaxed))
    }
}

/// Result of a fetch: `None` where the document is unchanged, an error where no document was received.
type Come = Result<Option<Result<Ready, String>>, String>;

async fn fetched(web: &Web, judge: &Judge, due: Due) -> (Due, Come) {
    let page: Result<Option<Page>, String> = match due.known {
        false => web.whole(&due.url).await.map(Some),
        true => web.get(&due.url).await.map(|fetched| match fetched {
            Fetched::Unchanged => None,
            Fetched::Fresh(page) => Some(page),
        }),
    };
    let found = page.and_then(|page| {
        let judged = page.map(|page| judge.document(&page.body, due.known_as.as_deref(), &page.url));
        judged.transpose().map_err(|why| format!("{}: {why}", due.url))
    });
    (due, found)
}

/// Returns the cache key of a document: URL and listed name, because one card under two names is two agents.
fn place(url: &Url, known_as: Option<&str>) -> Key {
    key(&[url.as_str().as_bytes(), known_as.unwrap_or_default().as_bytes()])
}
