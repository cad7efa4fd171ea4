//! HTTP client of one source: conditional GET (ETag, Last-Modified, Cache-Control) within the source's bounds.
//! The cache holds validators and digests, to detect changes, and no content.

use super::config::CacheBounds;
use crate::{
    net::{FinalReply, LinkAuthor, SourceClient, Url, freshness_lifetime, retry_after},
    values::sha256,
};
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, header};
use parking_lot::{Mutex, MutexGuard};
use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

/// Maximum number of cached URLs of one source; beyond it the cache is cleared.
const MAX_CACHED_URLS: usize = 2 * super::MAX_AGENTS;
/// Maximum length of a validator that is sent back.
const MAX_VALIDATOR_LENGTH: usize = 1024;

/// HTTP client of one source. Holds the source's credential and bounds, and caches the validators of each URL.
#[derive(Debug)]
pub(super) struct ConditionalClient {
    client: SourceClient,
    cache_bounds: CacheBounds,
    cache: Mutex<ValidatorCache>,
}

#[derive(Debug, Default)]
struct ValidatorCache {
    entries: HashMap<Box<str>, ValidatorEntry>,
    /// The shortest remaining lifetime of the responses since the last call of `requested_delay`.
    min_lifetime: Option<Duration>,
    /// The longest Retry-After of the source's own list since the last call of `requested_delay`.
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
    /// The content differs from that of the last GET.
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

/// A URL to fetch.
#[derive(Clone, Copy, Debug)]
pub(super) struct LinkTarget<'a> {
    pub(super) url: &'a Url,
    pub(super) author: LinkAuthor,
}

impl LinkTarget<'_> {
    /// Returns the key of the validators: with and without the credential, a server may send different documents.
    fn cache_key(self) -> Box<str> {
        match self.author {
            LinkAuthor::Source => self.url.as_str().into(),
            LinkAuthor::Foreign => format!("foreign {}", self.url).into(),
        }
    }
}

/// Why no document was received.
#[derive(Debug)]
pub(super) struct FetchFailure {
    /// The reason, with the URL.
    pub(super) why: String,
    /// How long the server asks clients to wait, within the configured bound.
    pub(super) retry_after: Option<Duration>,
}

impl From<String> for FetchFailure {
    fn from(why: String) -> Self {
        Self { why, retry_after: None }
    }
}

impl ConditionalClient {
    /// Creates a client with an empty cache.
    pub(super) fn new(client: SourceClient, cache_bounds: CacheBounds) -> Self {
        Self { client, cache_bounds, cache: Mutex::default() }
    }

    /// Returns the configured URL.
    pub(super) fn url(&self) -> &Url {
        self.client.url()
    }

    /// Returns who counts as the author of a link to `url` that `author` named: the source's author counts at the
    /// source's own server only.
    pub(super) fn effective_author(&self, url: &Url, author: LinkAuthor) -> LinkAuthor {
        author.of_links(self.client.is_own(url))
    }

    /// Fetches `url`, a page of the source's own list, and returns its content if that changed since the last GET. A
    /// Retry-After delays the source.
    ///
    /// # Errors
    /// Why no complete document within bounds was received, with the URL.
    pub(super) async fn get(&self, url: &Url) -> Result<ConditionalResponse, String> {
        let response = self.get_link(LinkTarget { url, author: LinkAuthor::Source }).await;
        response.map_err(|failure| self.record_source_failure(failure))
    }

    /// Fetches `url`, a page of the source's own list, unconditionally.
    ///
    /// # Errors
    /// As [`ConditionalClient::get`].
    pub(super) async fn get_unconditional(&self, url: &Url) -> Result<FetchedDocument, String> {
        let response = self.get_link_unconditional(LinkTarget { url, author: LinkAuthor::Source }).await;
        response.map_err(|failure| self.record_source_failure(failure))
    }

    /// Fetches what a list of the source leads to, and returns its content if that changed since the last GET.
    ///
    /// # Errors
    /// Why no complete document within bounds was received.
    pub(super) async fn get_link(&self, link: LinkTarget<'_>) -> Result<ConditionalResponse, FetchFailure> {
        let mut headers = HeaderMap::new();
        let cached = {
            let mut cache = self.lock_cache();
            let cached = cache
                .entries
                .get(&link.cache_key())
                .map(|entry| (entry.digest, entry.validators.clone(), entry.fresh_until));
            let remaining = cached
                .as_ref()
                .and_then(|(_, _, fresh_until)| fresh_until.as_ref()?.checked_duration_since(Instant::now()));
            if let Some(remaining) = remaining {
                cache.record_lifetime(remaining);
                return Ok(ConditionalResponse::NotModified);
            }
            cached
        };
        if let Some((_, validators, _)) = &cached {
            headers.extend(validators.clone());
        }
        let conditional = !headers.is_empty();
        let reply = self.send(link, headers).await?;
        match (reply.status, cached) {
            (304, Some((digest, validators, _))) if conditional => {
                self.cache_validators(link, digest, validators, &reply.headers);
                Ok(ConditionalResponse::NotModified)
            }
            (200, cached) => {
                let previous_digest = cached.map(|(digest, _, _)| digest);
                let (digest, document) = self.accept_response(link, reply)?;
                Ok(if previous_digest == Some(digest) {
                    ConditionalResponse::NotModified
                } else {
                    ConditionalResponse::Modified(document)
                })
            }
            _ => Err(self.status_failure(link, &reply)),
        }
    }

    /// Fetches what a list of the source leads to, unconditionally.
    ///
    /// # Errors
    /// As [`ConditionalClient::get_link`].
    pub(super) async fn get_link_unconditional(&self, link: LinkTarget<'_>) -> Result<FetchedDocument, FetchFailure> {
        let reply = self.send(link, HeaderMap::new()).await?;
        if reply.status != 200 {
            return Err(self.status_failure(link, &reply));
        }
        Ok(self.accept_response(link, reply).map(|(_, document)| document)?)
    }

    /// Clears the cache, so that the next GET returns everything again. For use after a poll that was rejected.
    pub(super) fn clear_cache(&self) {
        *self.lock_cache() = ValidatorCache::default();
    }

    /// Returns the delay before the next poll that the responses since the last call allow or request, bounded by the
    /// configuration.
    pub(super) fn requested_delay(&self) -> Option<Duration> {
        let mut cache = self.lock_cache();
        let (freshness, retry_after) = (cache.min_lifetime.take(), cache.max_retry_after.take());
        freshness.max(retry_after).map(|delay| delay.min(self.cache_bounds.max_ttl.get()))
    }

    async fn send(&self, link: LinkTarget<'_>, mut headers: HeaderMap) -> Result<FinalReply, String> {
        headers.insert(header::ACCEPT, HeaderValue::from_static("application/json, */*;q=0.5"));
        self.client.get_link(link.url, link.author, &headers).await.map_err(|why| why.to_string())
    }

    fn status_failure(&self, link: LinkTarget<'_>, reply: &FinalReply) -> FetchFailure {
        let asks_to_wait = matches!(reply.status, 429 | 503);
        let retry_after = asks_to_wait.then(|| retry_after(&reply.headers)).flatten();
        FetchFailure {
            why: format!("{}: status {} instead of 200", link.url, reply.status),
            retry_after: retry_after.map(|delay| delay.min(self.cache_bounds.max_ttl.get())),
        }
    }

    /// Records how long the server of the source's own list asks the gateway to wait; returns the reason.
    pub(super) fn record_source_failure(&self, failure: FetchFailure) -> String {
        let mut cache = self.lock_cache();
        cache.max_retry_after = cache.max_retry_after.max(failure.retry_after);
        failure.why
    }

    fn accept_response(&self, link: LinkTarget<'_>, reply: FinalReply) -> Result<([u8; 32], FetchedDocument), String> {
        let content_type = reply
            .headers
            .get(header::CONTENT_TYPE)
            .and_then(|content_type| content_type.to_str().ok())
            .unwrap_or_default();
        if content_type.trim_start().to_ascii_lowercase().starts_with("text/html") {
            return Err(format!("{}: content type is text/html instead of JSON", link.url));
        }
        let digest = sha256(&reply.body);
        let pairs = [(header::ETAG, header::IF_NONE_MATCH), (header::LAST_MODIFIED, header::IF_MODIFIED_SINCE)];
        let validator = |(from, to): (HeaderName, HeaderName)| {
            let value = reply.headers.get(from).filter(|value| value.len() <= MAX_VALIDATOR_LENGTH)?;
            Some((to, value.clone()))
        };
        let validators = pairs.into_iter().filter_map(validator).collect();
        self.cache_validators(link, digest, validators, &reply.headers);
        Ok((digest, FetchedDocument { url: reply.url, body: reply.body }))
    }

    fn cache_validators(&self, link: LinkTarget<'_>, digest: [u8; 32], validators: HeaderMap, headers: &HeaderMap) {
        let bounds = self.cache_bounds.min_ttl.get()..=self.cache_bounds.max_ttl.get();
        let lifetime =
            freshness_lifetime(link.url, headers).map(|lifetime| lifetime.clamp(*bounds.start(), *bounds.end()));
        let mut cache = self.lock_cache();
        cache.record_lifetime(lifetime.unwrap_or_default());
        let key = link.cache_key();
        if cache.entries.len() >= MAX_CACHED_URLS && !cache.entries.contains_key(&key) {
            cache.entries.clear();
        }
        let fresh_until = lifetime.map(|lifetime| Instant::now() + lifetime);
        cache.entries.insert(key, ValidatorEntry { digest, validators, fresh_until });
    }

    fn lock_cache(&self) -> MutexGuard<'_, ValidatorCache> {
        self.cache.lock()
    }
}

impl ValidatorCache {
    fn record_lifetime(&mut self, lifetime: Duration) {
        self.min_lifetime = Some(self.min_lifetime.map_or(lifetime, |shortest| shortest.min(lifetime)));
    }
}

#[cfg(test)]
impl ConditionalClient {
    /// Creates a client of `url` without credentials, which may reach every loopback address.
    pub(super) fn for_test(url: &str) -> Self {
        use crate::{
            net::{AddressPolicy, FetchClient, FetchLimits, NetworkConfig},
            values::{ByteSize, ConfigDuration},
        };
        let policy = AddressPolicy::new(vec!["127.0.0.0/8".parse().unwrap()]);
        let (config, limits) = (
            NetworkConfig::default(),
            FetchLimits { size: ByteSize::from_kib(16 << 10), time: ConfigDuration::from_secs(10) },
        );
        let fetch_client = FetchClient::build(&config, std::sync::Arc::new(policy)).unwrap();
        Self::new(SourceClient::build(&config, &fetch_client, url, None, limits).unwrap(), CacheBounds::default())
    }
}
