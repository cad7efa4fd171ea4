//! HTTP client of one source: conditional GET (ETag, Last-Modified, Cache-Control) within the source's bounds.
//! It caches validators and digests only, to tell what changed, and no content.

use super::{config::CacheBounds, document_parser::sha256};
use crate::net::{FinalReply, SourceClient, Url, freshness_lifetime, retry_after};
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, header};
use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

/// Maximum number of cached URLs of one source; beyond it the cache is cleared.
const MAX_CACHED_URLS: usize = 2 * super::MAX_AGENTS;
/// Maximum length of a validator that is sent back.
const MAX_VALIDATOR_LENGTH: usize = 1024;

/// HTTP client of one source. Holds the source's credential and bounds, and caches the validators of each URL.
#[derive(Debug)]
pub(super) struct ConditionalClient {
    session: SourceClient,
    cache_bounds: CacheBounds,
    cache: Mutex<ValidatorCache>,
}

#[derive(Debug, Default)]
struct ValidatorCache {
    entries: HashMap<Box<str>, ValidatorEntry>,
    /// The shortest remaining lifetime of the responses since the last call of `requested_delay`.
    min_lifetime: Option<Duration>,
    /// The longest Retry-After since the last call of `requested_delay`.
    max_retry_after: Option<Duration>,
}

/// Cached validators of one URL.
#[derive(Debug)]
struct ValidatorEntry {
    digest: [u8; 32],
    validators: HeaderMap,
    fresh_until: Option<Instant>,
}

/// Result of a conditional GET.
#[derive(Debug)]
pub(super) enum ConditionalResponse {
    /// The server answers 304, or the response is still fresh, or the body has the same digest.
    NotModified,
    /// Other content than at the last GET.
    Modified(FetchedDocument),
}

/// A complete response with status 200.
#[derive(Clone, Debug)]
pub(super) struct FetchedDocument {
    /// The URL after redirects.
    pub(super) url: Url,
    /// The response body.
    pub(super) body: Bytes,
}

impl ConditionalClient {
    /// Creates a client with an empty cache.
    pub(super) fn new(session: SourceClient, caching: CacheBounds) -> Self {
        Self { session, cache_bounds: caching, cache: Mutex::default() }
    }

    /// Returns the configured URL.
    pub(super) fn url(&self) -> &Url {
        self.session.url()
    }

    /// Fetches `url`, and returns its content if that changed since the last GET.
    ///
    /// # Errors
    /// Why no complete document within bounds was received, as a sentence that contains the URL.
    pub(super) async fn get(&self, url: &Url) -> Result<ConditionalResponse, String> {
        let mut fields = HeaderMap::new();
        let known = {
            let mut memory = self.lock_cache();
            let known =
                memory.entries.get(url.as_str()).map(|seen| (seen.digest, seen.validators.clone(), seen.fresh_until));
            let left = known.as_ref().and_then(|(_, _, fresh)| fresh.as_ref()?.checked_duration_since(Instant::now()));
            if let Some(left) = left {
                memory.record_lifetime(left);
                return Ok(ConditionalResponse::NotModified);
            }
            known
        };
        if let Some((_, validators, _)) = &known {
            fields.extend(validators.clone());
        }
        let conditional = !fields.is_empty();
        let answer = self.send(url, fields).await?;
        match (answer.status, known) {
            (304, Some((digest, validators, _))) if conditional => {
                self.cache_validators(url, digest, validators, &answer.headers);
                Ok(ConditionalResponse::NotModified)
            }
            (200, known) => {
                let before = known.map(|(digest, _, _)| digest);
                let (digest, page) = self.accept_response(url, answer)?;
                Ok(if before == Some(digest) {
                    ConditionalResponse::NotModified
                } else {
                    ConditionalResponse::Modified(page)
                })
            }
            (status, _) => Err(format!("{url}: status {status} instead of 200")),
        }
    }

    /// Fetches `url` unconditionally.
    ///
    /// # Errors
    /// As [`ConditionalClient::get`].
    pub(super) async fn get_unconditional(&self, url: &Url) -> Result<FetchedDocument, String> {
        let answer = self.send(url, HeaderMap::new()).await?;
        match answer.status {
            200 => self.accept_response(url, answer).map(|(_, page)| page),
            status => Err(format!("{url}: status {status} instead of 200")),
        }
    }

    /// Clears the cache, so that the next GET returns everything again. For use after a poll that was rejected.
    pub(super) fn clear_cache(&self) {
        *self.lock_cache() = ValidatorCache::default();
    }

    /// Returns the delay before the next poll that the servers asked for, bounded by the configuration. Covers the
    /// responses since the last call.
    pub(super) fn requested_delay(&self) -> Option<Duration> {
        let mut memory = self.lock_cache();
        let (fresh, retry) = (memory.min_lifetime.take(), memory.max_retry_after.take());
        fresh.max(retry).map(|wait| wait.min(self.cache_bounds.max_ttl.get()))
    }

    async fn send(&self, url: &Url, mut fields: HeaderMap) -> Result<FinalReply, String> {
        fields.insert(header::ACCEPT, HeaderValue::from_static("application/json, */*;q=0.5"));
        let answer = self.session.get(url, &fields).await.map_err(|why| why.to_string())?;
        if let (429 | 503, Some(wait)) = (answer.status, retry_after(&answer.headers)) {
            let mut memory = self.lock_cache();
            memory.max_retry_after = memory.max_retry_after.max(Some(wait));
        }
        Ok(answer)
    }

    fn accept_response(&self, url: &Url, answer: FinalReply) -> Result<([u8; 32], FetchedDocument), String> {
        let kind = answer.headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        if kind.trim_start().to_ascii_lowercase().starts_with("text/html") {
            return Err(format!("{url}: content type is text/html instead of JSON"));
        }
        let digest = sha256(&answer.body);
        let pairs = [(header::ETAG, header::IF_NONE_MATCH), (header::LAST_MODIFIED, header::IF_MODIFIED_SINCE)];
        let validator = |(from, to): (HeaderName, HeaderName)| {
            let value = answer.headers.get(from).filter(|value| value.len() <= MAX_VALIDATOR_LENGTH)?;
            Some((to, value.clone()))
        };
        let validators = pairs.into_iter().filter_map(validator).collect();
        self.cache_validators(url, digest, validators, &answer.headers);
        Ok((digest, FetchedDocument { url: answer.url, body: answer.body }))
    }

    fn cache_validators(&self, url: &Url, digest: [u8; 32], validators: HeaderMap, answer: &HeaderMap) {
        let bounds = self.cache_bounds.min_ttl.get()..=self.cache_bounds.max_ttl.get();
        let life = freshness_lifetime(url, answer).map(|life| life.clamp(*bounds.start(), *bounds.end()));
        let mut memory = self.lock_cache();
        memory.record_lifetime(life.unwrap_or_default());
        if memory.entries.len() >= MAX_CACHED_URLS && !memory.entries.contains_key(url.as_str()) {
            memory.entries.clear();
        }
        let fresh = life.map(|life| Instant::now() + life);
        memory.entries.insert(url.as_str().into(), ValidatorEntry { digest, validators, fresh_until: fresh });
    }

    fn lock_cache(&self) -> MutexGuard<'_, ValidatorCache> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ValidatorCache {
    fn record_lifetime(&mut self, life: Duration) {
        self.min_lifetime = Some(self.min_lifetime.map_or(life, |least| least.min(life)));
    }
}

#[cfg(test)]
impl ConditionalClient {
    /// For tests: a client of `url` without credentials, which may reach every loopback address.
    pub(super) fn for_test(url: &str) -> Self {
        use crate::{
            net::{AddressPolicy, FetchClient, FetchLimits, NetworkConfig},
            values::{ByteSize, ConfigDuration},
        };
        let policy = AddressPolicy::new(vec!["127.0.0.0/8".parse().unwrap()]);
        let (config, bounds) = (
            NetworkConfig::default(),
            FetchLimits { size: ByteSize::from_kib(16 << 10), time: ConfigDuration::from_secs(10) },
        );
        let other = FetchClient::build(&config, std::sync::Arc::new(policy)).unwrap();
        Self::new(SourceClient::build(&config, &other, url, None, bounds).unwrap(), CacheBounds::default())
    }
}
