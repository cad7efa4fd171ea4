//! HTTP client of one source: conditional GET (ETag, Last-Modified, Cache-Control) within the source's bounds.
//! It caches validators and digests only, to tell what changed, and no content.

use super::{config::Caching, read::sha256};
use crate::net::{Answer, Session, Url, lifetime, retry_after};
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, header};
use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

/// Maximum number of cached URLs of one source; beyond it the cache is cleared.
const MOST: usize = 2 * super::MOST_AGENTS;
/// Maximum length of a validator that is sent back.
const LONGEST: usize = 1024;

/// HTTP client of one source. Holds the source's credential and bounds, and caches the validators of each URL.
#[derive(Debug)]
pub(super) struct Web {
    session: Session,
    caching: Caching,
    memory: Mutex<Memory>,
}

#[derive(Debug, Default)]
struct Memory {
    seen: HashMap<Box<str>, Seen>,
    /// The shortest remaining lifetime of the responses since the last call of `requested_delay`.
    fresh: Option<Duration>,
    /// The longest Retry-After since the last call of `requested_delay`.
    retry: Option<Duration>,
}

/// Cached validators of one URL.
#[derive(Debug)]
struct Seen {
    digest: [u8; 32],
    validators: HeaderMap,
    fresh: Option<Instant>,
}

/// Result of a conditional GET.
#[derive(Debug)]
pub(super) enum Fetched {
    /// The server answers 304, or the response is still fresh, or the body has the same digest.
    Unchanged,
    /// Other content than at the last GET.
    Fresh(Page),
}

/// A complete response with status 200.
#[derive(Clone, Debug)]
pub(super) struct Page {
    /// The URL after redirects.
    pub(super) url: Url,
    /// The response body.
    pub(super) body: Bytes,
}

impl Web {
    /// Creates a client with an empty cache.
    pub(super) fn new(session: Session, caching: Caching) -> Self {
        Self { session, caching, memory: Mutex::default() }
    }

    /// Returns the configured URL.
    pub(super) fn url(&self) -> &Url {
        self.session.url()
    }

    /// Fetches `url`, and returns its content if that changed since the last GET.
    ///
    /// # Errors
    /// Why no complete document within bounds was received, as a sentence that contains the URL.
    pub(super) async fn get(&self, url: &Url) -> Result<Fetched, String> {
        let mut fields = HeaderMap::new();
        let known = {
            let mut memory = self.memory();
            let known = memory.seen.get(url.as_str()).map(|seen| (seen.digest, seen.validators.clone(), seen.fresh));
            let left = known.as_ref().and_then(|(_, _, fresh)| fresh.as_ref()?.checked_duration_since(Instant::now()));
            if let Some(left) = left {
                memory.said(left);
                return Ok(Fetched::Unchanged);
            }
            known
        };
        if let Some((_, validators, _)) = &known {
            fields.extend(validators.clone());
        }
        let conditional = !fields.is_empty();
        let answer = self.ask(url, fields).await?;
        match (answer.status, known) {
            (304, Some((digest, validators, _))) if conditional => {
                self.remember(url, digest, validators, &answer.headers);
                Ok(Fetched::Unchanged)
            }
            (200, known) => {
                let before = known.map(|(digest, _, _)| digest);
                let (digest, page) = self.page(url, answer)?;
                Ok(if before == Some(digest) { Fetched::Unchanged } else { Fetched::Fresh(page) })
            }
            (status, _) => Err(format!("{url}: status {status} instead of 200")),
        }
    }

    /// Fetches `url` unconditionally.
    ///
    /// # Errors
    /// As [`ConditionalClient::get`].
    pub(super) async fn whole(&self, url: &Url) -> Result<Page, String> {
        let answer = self.ask(url, HeaderMap::new()).await?;
        match answer.status {
            200 => self.page(url, answer).map(|(_, page)| page),
            status => Err(format!("{url}: status {status} instead of 200")),
        }
    }

    /// Clears the cache, so that the next GET returns everything again. For use after a poll that was rejected.
    pub(super) fn forget(&self) {
        *self.memory() = Memory::default();
    }

    /// Returns the delay before the next poll that the servers asked for, bounded by the configuration. Covers the
    /// responses since the last call.
    pub(super) fn again(&self) -> Option<Duration> {
        let mut memory = self.memory();
        let (fresh, retry) = (memory.fresh.take(), memory.retry.take());
        fresh.max(retry).map(|wait| wait.min(self.caching.max_ttl.get()))
    }

    async fn ask(&self, url: &Url, mut fields: HeaderMap) -> Result<Answer, String> {
        fields.insert(header::ACCEPT, HeaderValue::from_static("application/json, */*;q=0.5"));
        let answer = self.session.get(url, &fields).await.map_err(|why| why.to_string())?;
        if let (429 | 503, Some(wait)) = (answer.status, retry_after(&answer.headers)) {
            let mut memory = self.memory();
            memory.retry = memory.retry.max(Some(wait));
        }
        Ok(answer)
    }

    fn page(&self, url: &Url, answer: Answer) -> Result<([u8; 32], Page), String> {
        let kind = answer.headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        if kind.trim_start().to_ascii_lowercase().starts_with("text/html") {
            return Err(format!("{url}: content type is text/html instead of JSON"));
        }
        let digest = sha256(&answer.body);
        let pairs = [(header::ETAG, header::IF_NONE_MATCH), (header::LAST_MODIFIED, header::IF_MODIFIED_SINCE)];
        let validator = |(from, to): (HeaderName, HeaderName)| {
            let value = answer.headers.get(from).filter(|value| value.len() <= LONGEST)?;
            Some((to, value.clone()))
        };
        let validators = pairs.into_iter().filter_map(validator).collect();
        self.remember(url, digest, validators, &answer.headers);
        Ok((digest, Page { url: answer.url, body: answer.body }))
    }

    fn remember(&self, url: &Url, digest: [u8; 32], validators: HeaderMap, answer: &HeaderMap) {
        let bounds = self.caching.min_ttl.get()..=self.caching.max_ttl.get();
        let life = lifetime(url, answer).map(|life| life.clamp(*bounds.start(), *bounds.end()));
        let mut memory = self.memory();
        memory.said(life.unwrap_or_default());
        if memory.seen.len() >= MOST && !memory.seen.contains_key(url.as_str()) {
            memory.seen.clear();
        }
        let fresh = life.map(|life| Instant::now() + life);
        memory.seen.insert(url.as_str().into(), Seen { digest, validators, fresh });
    }

    fn memory(&self) -> MutexGuard<'_, Memory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Memory {
    fn said(&mut self, life: Duration) {
        self.fresh = Some(self.fresh.map_or(life, |least| least.min(life)));
    }
}

#[cfg(test)]
impl Web {
    /// For tests: a client of `url` without credentials, which may reach every loopback address.
    pub(super) fn local(url: &str) -> Self {
        use crate::{
            net::{AddressPolicy, Bounds, Client, Config},
            unit::{Size, Span},
        };
        let policy = AddressPolicy::new(vec!["127.0.0.0/8".parse().unwrap()]);
        let (config, bounds) = (Config::default(), Bounds { size: Size::kib(16 << 10), time: Span::secs(10) });
        let other = Client::build(&config, std::sync::Arc::new(policy)).unwrap();
        Self::new(Session::build(&config, &other, url, None, bounds).unwrap(), Caching::default())
    }
}
