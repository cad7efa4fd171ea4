//! Cache of the documents that the resolver reads: one fetch for concurrent readers (single flight), lifetimes of
//! RFC 9111, revalidation of RFC 9110 §13, and negative entries of a short lifetime.

use super::{
    config::Config,
    trail::{Outcome, Trail},
};
use crate::{
    net::{Answer, Bounds, Client, FetchError, Url, lifetime, retry_after},
    unit::{Span, json},
};
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, header};
use moka::future::Cache;
use serde_json::Value;
use std::{
    sync::Arc,
    time::{Duration, Instant},
};

/// Maximum nesting of a document.
const DEPTH: u16 = 32;
/// Bytes that an entry costs besides its URL and document.
const OVERHEAD: usize = 512;
/// Maximum length of a validator that is sent back.
const LONGEST: usize = 1_024;
/// Minimum lifetime of a document: a domain that forbids storing it is not asked more often than that.
const LEAST: Duration = Duration::from_secs(1);
/// Time limit of one fetch, including redirects.
const FETCH: Span = Span::secs(5);

/// Entry of one URL.
#[derive(Clone, Debug)]
struct Kept {
    until: Instant,
    found: Found,
}

#[derive(Clone, Debug)]
enum Found {
    Text { url: Url, body: Bytes, validators: HeaderMap },
    None(Outcome, Arc<str>, bool),
}

/// A document, and its URL after redirects.
#[derive(Debug)]
pub(super) struct Document {
    pub(super) url: Url,
    pub(super) value: Value,
}

/// Cache of recently fetched documents.
#[derive(Debug)]
pub(super) struct Library {
    client: Client,
    bounds: Bounds,
    usual: Duration,
    max: Duration,
    missing: Duration,
    shelf: Cache<Box<str>, Arc<Kept>>,
}

impl Library {
    #[allow(clippy::borrowed_box, reason = "the cache passes its keys by reference to their stored type")]
    pub(super) fn new(config: &Config, client: Client) -> Self {
        let weigh = |url: &str, kept: &Arc<Kept>| {
            let body = match &kept.found {
                Found::Text { body, .. } => body.len(),
                Found::None(..) => 0,
            };
            u32::try_from(url.len() + body + OVERHEAD).unwrap_or(u32::MAX)
        };
        let shelf = Cache::builder()
            .max_capacity(config.cache.max_size.get() as u64)
            .weigher(move |url: &Box<str>, kept| weigh(url, kept))
            .time_to_live(config.cache.max_ttl.get() * 2)
            .build();
        let time = config.resolution_timeout.min(FETCH);
        Self {
            client,
            bounds: Bounds { size: config.max_document_size, time },
            usual: config.cache.default_ttl.get(),
            max: config.cache.max_ttl.get(),
            missing: config.cache.negative_ttl.get(),
            shelf,
        }
    }

    pub(super) fn client(&self) -> &Client {
        &self.client
    }

    /// Returns the document at `url` from the cache or the network. Records a trace entry of this kind on failure.
    pub(super) async fn read(&self, url: &Url, kind: &'static str, trace: &mut Trail) -> Option<Document> {
        if trace.knows_dead(url) {
            return None;
        }
        let kept = self.kept(url).await;
        trace.holds(kept.until);
        match &kept.found {
            Found::None(outcome, why, dead) => {
                if *dead {
                    trace.is_dead(url);
                }
                trace.explain(kind, url, *outcome, Some(why.to_string()));
                None
            }
            Found::Text { url: at, body, .. } => match json::read(body, DEPTH) {
                Ok(value) => Some(Document { url: at.clone(), value }),
                Err(why) => {
                    trace.explain(kind, url, Outcome::Unusable, Some(format!("invalid JSON: {why}")));
                    None
                }
            },
        }
    }

    async fn kept(&self, url: &Url) -> Arc<Kept> {
        let now = Instant::now();
        let before = self.shelf.get(url.as_str()).await;
        if let Some(kept) = before.as_ref().filter(|kept| kept.until > now) {
            return Arc::clone(kept);
        }
        let stale = |kept: &Arc<Kept>| kept.until <= now;
        let fetch = async { Arc::new(self.fetch(url, before.as_deref()).await) };
        // If this future is dropped, one of the other waiters fetches instead.
        self.shelf.entry(url.as_str().into()).or_insert_with_if(fetch, stale).await.into_value()
    }

    async fn fetch(&self, url: &Url, before: Option<&Kept>) -> Kept {
        let mut fields = HeaderMap::new();
        let accept = "application/json, application/ld+json, application/agent+json, application/jrd+json, */*;q=0.1";
        fields.insert(header::ACCEPT, HeaderValue::from_static(accept));
        let known = match before.map(|kept| &kept.found) {
            Some(Found::Text { url, body, validators }) => Some((url, body, validators)),
            _ => None,
        };
        if let Some((_, _, validators)) = known {
            fields.extend((*validators).clone());
        }
        let now = Instant::now();
        match (self.client.visit(url, &fields, self.bounds).await, known) {
            (Err(why), _) => self.nothing(now, &why),
            (Ok(answer), Some((at, body, validators))) if answer.status == 304 => {
                let until = now + self.life(url, &answer);
                Kept {
                    until,
                    found: Found::Text { url: at.clone(), body: body.clone(), validators: validators.clone() },
                }
            }
            (Ok(answer), _) => self.answered(now, url, answer),
        }
    }

    fn answered(&self, now: Instant, url: &Url, answer: Answer) -> Kept {
        let missing = |outcome, for_now: Duration| {
            let why = format!("responded {}", answer.status).into();
            Kept { until: now + for_now, found: Found::None(outcome, why, false) }
        };
        match answer.status {
            200 => {
                let until = now + self.life(url, &answer);
                let pairs = [(header::ETAG, header::IF_NONE_MATCH), (header::LAST_MODIFIED, header::IF_MODIFIED_SINCE)];
                let validator = |(from, to): (HeaderName, HeaderName)| {
                    Some((to, answer.headers.get(from).filter(|value| value.len() <= LONGEST)?.clone()))
                };
                let validators = pairs.into_iter().filter_map(validator).collect();
                // Copied, to release the larger buffer that it was read into.
                let body = Bytes::copy_from_slice(&answer.body);
                Kept { until, found: Found::Text { url: answer.url, body, validators } }
            }
            429 | 502..=504 => {
                let wait = retry_after(&answer.headers).unwrap_or_default().min(Duration::from_secs(300));
                missing(Outcome::Unreachable, wait.max(self.missing))
            }
            _ => missing(Outcome::Absent, self.missing),
        }
    }

    fn nothing(&self, now: Instant, why: &FetchError) -> Kept {
        let (outcome, dead) = match why {
            FetchError::Refused { .. } | FetchError::Failed { .. } => (Outcome::Unreachable, true),
            FetchError::TooLong { .. } | FetchError::Unreadable { .. } => (Outcome::Unusable, false),
            FetchError::Status { .. } => (Outcome::Absent, false),
        };
        Kept { until: now + self.missing, found: Found::None(outcome, why.to_string().into(), dead) }
    }

    /// Returns how long a response may be used: the lifetime that it states, within the configured bounds.
    fn life(&self, url: &Url, answer: &Answer) -> Duration {
        let says = [header::CACHE_CONTROL, header::EXPIRES, header::PRAGMA];
        let silent = !says.iter().any(|name| answer.headers.contains_key(name));
        let life = match lifetime(url, &answer.headers) {
            Some(life) => life,
            None if silent => self.usual,
            None => LEAST,
        };
        life.clamp(LEAST.min(self.max), self.max)
    }
}
