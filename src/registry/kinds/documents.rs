//! The documents that a list only names. What the list shows to have changed is fetched, the rest is asked for again in
//! turn. One that cannot be read stays as it was.

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

/// Bytes of all documents of one list.
const MOST_BYTES: usize = 256 << 20;
/// Documents fetched in one look because they are new or changed; the next look goes on.
const FETCHED: usize = 10_000;
/// Documents asked for again in one look although nothing tells that they changed: in turn, so that each is sooner or
/// later. Below this number every look asks for all.
const REVALIDATED: usize = 256;
/// How long one look fetches documents; the next one goes on.
const LONGEST: Duration = Duration::from_secs(60);
/// Documents fetched at once.
const AT_ONCE: usize = 8;

/// Documents by where they are and what they are called there.
#[derive(Default)]
pub(super) struct Documents {
    held: HashMap<Key, Held>,
    turn: usize,
}

/// A document that the list names.
pub(super) struct Named<'a> {
    /// The entry that names it.
    pub(super) entry: Key,
    pub(super) url: &'a Url,
    pub(super) known_as: Option<&'a str>,
}

/// A document that was fetched.
struct Held {
    /// The entry that named it, as it was then.
    entry: Key,
    found: Result<Ready, String>,
    /// Why it could not be read this time.
    trouble: Option<String>,
}

/// A document to fetch.
pub(super) struct Due {
    place: Key,
    entry: Key,
    url: Url,
    known_as: Option<String>,
    /// Whether what is known may still do.
    known: bool,
}

impl Documents {
    /// The document, as it was last read; `None` where there was no time for it yet.
    pub(super) fn get(&self, url: &Url, known_as: Option<&str>) -> Option<&Result<Ready, String>> {
        self.held.get(&place(url, known_as)).map(|held| &held.found)
    }

    /// How many documents stay as they were because they cannot be read, and why, by example.
    pub(super) fn trouble(&self) -> Option<String> {
        let stale = self.held.values().filter(|held| held.found.is_ok());
        let mut reasons: Vec<&String> = stale.filter_map(|held| held.trouble.as_ref()).collect();
        reasons.sort_unstable();
        reasons.first().map(|why| format!("{} documents cannot be read: {}", reasons.len(), cut(why, 300)))
    }

    /// What has to be fetched now of what the list names, and whether something is left for later.
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

    /// Fetches documents, several at once, and judges each as it comes; whether there was no time for some.
    ///
    /// # Errors
    /// Together they are more than may be kept.
    pub(super) async fn fetch(&mut self, due: Vec<Due>, web: &Web, judge: &Judge) -> Result<bool, String> {
        let began = Instant::now();
        let mut bytes: usize = self.held.values().filter_map(|held| Some(held.found.as_ref().ok()?.size())).sum();
        let late = AtomicBool::new(false);
        // What was asked for is waited for: its validators are remembered already.
        let due = due.into_iter().take_while(|_| {
            late.store(began.elapsed() > LONGEST, Relaxed);
            !late.load(Relaxed)
        });
        let mut coming = futures_util::stream::iter(due.map(|due| fetched(web, judge, due))).buffer_unordered(AT_ONCE);
        while let Some((due, found)) = coming.next().await {
            let held = self.held.get_mut(&due.place);
            match (found, held) {
                (Ok(None), Some(held)) => held.trouble = None,
                // Nothing is known, and nothing came: the next look asks again.
                (Ok(None), None) => {}
                (Ok(Some(found)), held) => {
                    let size = found.as_ref().map_or(0, Ready::size);
                    let before = held.and_then(|held| Some(held.found.as_ref().ok()?.size())).unwrap_or_default();
                    bytes = bytes + size - before;
                    if bytes > MOST_BYTES {
                        if let Some(held) = self.held.get_mut(&due.place) {
                            held.trouble = Some("it does not fit in".to_owned());
                        }
                        return Err(format!("{}: its documents have more than {MOST_BYTES} bytes", due.url));
                    }
                    self.held.insert(due.place, Held { entry: due.entry, found, trouble: None });
                }
                (Err(why), Some(held)) if held.found.is_ok() => held.trouble = Some(why),
                (Err(why), _) => {
                    let found = Err(format!("the document cannot be read: {why}"));
                    self.held.insert(due.place, Held { entry: due.entry, found, trouble: Some(why) });
                }
            }
        }
        Ok(late.load(Relaxed))
    }
}

/// A document as it came: `None` where it is as it was, an error where nothing came that could be judged.
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

/// Where a document is and what it is called there: one card under two names is two agents.
fn place(url: &Url, known_as: Option<&str>) -> Key {
    key(&[url.as_str().as_bytes(), known_as.unwrap_or_default().as_bytes()])
}
