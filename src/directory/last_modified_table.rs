//! `Last-Modified` of responses: the second before this gateway first served the representation to the caller. The time
//! of the last change of any agent would tell callers that an agent changed that they may not see.
//!
//! Two representations of a resource never have the same date, so that a conditional request by date is answered as
//! correctly as one by entity tag.

use super::{directory_call::DirectoryCall, media_types::A2A_VERSION};
use http::header;
use parking_lot::Mutex;
use std::{
    collections::HashMap,
    hash::{BuildHasher, RandomState},
};

/// Maximum number of resources in each of the two generations. A resource that was forgotten has a later date, which is
/// never wrong: its reader fetches it once more.
const MAX_RESOURCES: usize = 4_096;

/// When each resource had its current entity tag first.
#[derive(Debug, Default)]
pub struct LastModifiedTable {
    /// Random, so that no caller can make resources collide. A collision would cost a fetch.
    hasher: RandomState,
    generations: Mutex<Generations>,
}

/// Resources by their hash. When the recent ones are many, they become the older ones, which are dropped.
#[derive(Debug, Default)]
struct Generations {
    recent: HashMap<u64, FirstServed>,
    older: HashMap<u64, FirstServed>,
}

#[derive(Clone, Copy, Debug)]
struct FirstServed {
    /// Hash of the entity tag.
    tag: u64,
    /// In Unix seconds.
    date: i64,
}

impl LastModifiedTable {
    /// Returns the date of the representation of `call` with the entity tag `tag`, in Unix seconds.
    pub(super) fn date(&self, call: &DirectoryCall<'_>, tag: &str, now: i64) -> i64 {
        let selecting_headers = [header::ACCEPT, A2A_VERSION].map(|name| call.headers.get(name));
        let resource = self.hasher.hash_one((
            &call.caller.id,
            call.request,
            call.id,
            call.query,
            call.base_url,
            selecting_headers,
        ));
        // A date is never in the future (RFC 9110 §8.8.2.1).
        self.generations.lock().date(resource, self.hasher.hash_one(tag), now).min(now)
    }
}

impl Generations {
    fn date(&mut self, resource: u64, tag: u64, now: i64) -> i64 {
        let served = match self.recent.get(&resource).or_else(|| self.older.get(&resource)).copied() {
            Some(known) if known.tag == tag => known,
            Some(previous) => FirstServed { tag, date: (now - 1).max(previous.date + 1) },
            None => FirstServed { tag, date: now - 1 },
        };
        if self.recent.len() >= MAX_RESOURCES && !self.recent.contains_key(&resource) {
            self.older = std::mem::take(&mut self.recent);
        }
        self.recent.insert(resource, served);
        served.date
    }
}
