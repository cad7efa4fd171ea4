//! Cache of the documents that the resolver reads: one fetch for concurrent readers (single flight), lifetimes of
//! RFC 9111, revalidation of RFC 9110 §13, and negative entries of a short lifetime.

use super::{
    config::ResolverConfig,
    resolution_trace::{ResolutionTrace, StepOutcome},
    signature_status::SignatureSettings,
};
use crate::{
    net::{FetchClient, FetchError, FetchLimits, FinalReply, Url, freshness_lifetime, retry_after},
    values::{ConfigDuration, json},
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
const MAX_NESTING: u16 = 32;
/// Bytes that an entry costs besides its URL and document.
const ENTRY_OVERHEAD: usize = 512;
/// Maximum length of a validator that is sent back.
const MAX_VALIDATOR_LENGTH: usize = 1_024;
/// Minimum lifetime of a document: one that must not be stored is not fetched more often than this.
const MIN_LIFETIME: Duration = Duration::from_secs(1);
/// Maximum duration of one fetch, redirects included.
const FETCH_TIMEOUT: ConfigDuration = ConfigDuration::from_secs(5);

/// Entry of one URL.
#[derive(Clone, Debug)]
struct DocumentEntry {
    expires: Instant,
    content: EntryContent,
}

#[derive(Clone, Debug)]
enum EntryContent {
    Document { url: Url, body: Bytes, validators: HeaderMap },
    Negative(StepOutcome, Arc<str>, bool),
}

/// A document, and its URL after redirects.
#[derive(Debug)]
pub(super) struct ResolverDocument {
    pub(super) url: Url,
    pub(super) value: Value,
    /// The text of which `value` was parsed.
    pub(super) body: Bytes,
}

/// Cache of recently fetched documents.
#[derive(Debug)]
pub(super) struct DocumentCache {
    client: FetchClient,
    signatures: SignatureSettings,
    bounds: FetchLimits,
    default_lifetime: Duration,
    max_lifetime: Duration,
    negative_lifetime: Duration,
    entries: Cache<Box<str>, Arc<DocumentEntry>>,
}

impl DocumentCache {
    #[allow(clippy::borrowed_box, reason = "the cache passes its keys by reference to their stored type")]
    pub(super) fn new(config: &ResolverConfig, client: FetchClient, signatures: SignatureSettings) -> Self {
        let weigh = |url: &str, entry: &Arc<DocumentEntry>| {
            let body = match &entry.content {
                EntryContent::Document { body, .. } => body.len(),
                EntryContent::Negative(..) => 0,
            };
            u32::try_from(url.len() + body + ENTRY_OVERHEAD).unwrap_or(u32::MAX)
        };
        let entries = Cache::builder()
            .max_capacity(config.cache.max_size.get() as u64)
            .weigher(move |url: &Box<str>, entry| weigh(url, entry))
            .time_to_live(config.cache.max_ttl.get() * 2)
            .build();
        let time = config.resolution_timeout.min(FETCH_TIMEOUT);
        Self {
            client,
            signatures,
            bounds: FetchLimits { size: config.max_document_size, time },
            default_lifetime: config.cache.default_ttl.get(),
            max_lifetime: config.cache.max_ttl.get(),
            negative_lifetime: config.cache.negative_ttl.get(),
            entries,
        }
    }

    pub(super) fn client(&self) -> &FetchClient {
        &self.client
    }

    /// Returns how the signatures of the documents are judged.
    pub(super) fn signatures(&self) -> &SignatureSettings {
        &self.signatures
    }

    /// Returns the document at `url` from the cache or the network. Records a trace entry of this kind on failure.
    pub(super) async fn get_document(
        &self,
        url: &Url,
        kind: &'static str,
        trace: &mut ResolutionTrace,
    ) -> Option<ResolverDocument> {
        if trace.is_marked_unreachable(url) {
            return None;
        }
        let entry = self.get_or_fetch(url).await;
        trace.limit_expiry(entry.expires);
        match &entry.content {
            EntryContent::Negative(outcome, why, is_host_unreachable) => {
                if *is_host_unreachable {
                    trace.mark_unreachable(url);
                }
                trace.record_with_reason(kind, url, *outcome, Some(why.to_string()));
                None
            }
            EntryContent::Document { url: final_url, body, .. } => match json::parse(body, MAX_NESTING) {
                Ok(value) => Some(ResolverDocument { url: final_url.clone(), value, body: body.clone() }),
                Err(why) => {
                    trace.record_with_reason(kind, url, StepOutcome::Unusable, Some(format!("invalid JSON: {why}")));
                    None
                }
            },
        }
    }

    async fn get_or_fetch(&self, url: &Url) -> Arc<DocumentEntry> {
        let now = Instant::now();
        let previous = self.entries.get(url.as_str()).await;
        if let Some(entry) = previous.as_ref().filter(|entry| entry.expires > now) {
            return Arc::clone(entry);
        }
        let stale = |entry: &Arc<DocumentEntry>| entry.expires <= now;
        let fetch = async { Arc::new(self.fetch(url, previous.as_deref()).await) };
        // If this future is dropped, one of the other waiters fetches instead.
        self.entries.entry(url.as_str().into()).or_insert_with_if(fetch, stale).await.into_value()
    }

    async fn fetch(&self, url: &Url, previous: Option<&DocumentEntry>) -> DocumentEntry {
        let mut headers = HeaderMap::new();
        let accept = "application/json, application/ld+json, application/agent+json, application/jrd+json, */*;q=0.1";
        headers.insert(header::ACCEPT, HeaderValue::from_static(accept));
        let cached = match previous.map(|entry| &entry.content) {
            Some(EntryContent::Document { url, body, validators }) => Some((url, body, validators)),
            _ => None,
        };
        if let Some((_, _, validators)) = cached {
            headers.extend((*validators).clone());
        }
        let now = Instant::now();
        match (self.client.get_following_redirects(url, &headers, self.bounds).await, cached) {
            (Err(why), _) => self.entry_from_error(now, &why),
            (Ok(reply), Some((final_url, body, validators))) if reply.status == 304 => {
                let expires = now + self.response_lifetime(url, &reply);
                DocumentEntry {
                    expires,
                    content: EntryContent::Document {
                        url: final_url.clone(),
                        body: body.clone(),
                        validators: validators.clone(),
                    },
                }
            }
            (Ok(reply), _) => self.entry_from_response(now, url, reply),
        }
    }

    fn entry_from_response(&self, now: Instant, url: &Url, reply: FinalReply) -> DocumentEntry {
        let negative_entry = |outcome, ttl: Duration| {
            let why = format!("responded {}", reply.status).into();
            DocumentEntry { expires: now + ttl, content: EntryContent::Negative(outcome, why, false) }
        };
        match reply.status {
            200 => {
                let expires = now + self.response_lifetime(url, &reply);
                let pairs = [(header::ETAG, header::IF_NONE_MATCH), (header::LAST_MODIFIED, header::IF_MODIFIED_SINCE)];
                let validator = |(from, to): (HeaderName, HeaderName)| {
                    Some((to, reply.headers.get(from).filter(|value| value.len() <= MAX_VALIDATOR_LENGTH)?.clone()))
                };
                let validators = pairs.into_iter().filter_map(validator).collect();
                // Copied, to release the larger buffer that it was read into.
                let body = Bytes::copy_from_slice(&reply.body);
                DocumentEntry { expires, content: EntryContent::Document { url: reply.url, body, validators } }
            }
            429 | 502..=504 => {
                let delay = retry_after(&reply.headers).unwrap_or_default().min(Duration::from_secs(300));
                negative_entry(StepOutcome::Unreachable, delay.max(self.negative_lifetime))
            }
            _ => negative_entry(StepOutcome::Absent, self.negative_lifetime),
        }
    }

    fn entry_from_error(&self, now: Instant, why: &FetchError) -> DocumentEntry {
        let (outcome, is_host_unreachable) = match why {
            FetchError::Denied { .. } | FetchError::Failed { .. } => (StepOutcome::Unreachable, true),
            FetchError::TooLarge { .. } | FetchError::Invalid { .. } => (StepOutcome::Unusable, false),
            FetchError::Status { .. } => (StepOutcome::Absent, false),
        };
        DocumentEntry {
            expires: now + self.negative_lifetime,
            content: EntryContent::Negative(outcome, why.to_string().into(), is_host_unreachable),
        }
    }

    /// Returns the lifetime of a response: the lifetime that it states, within the configured bounds.
    fn response_lifetime(&self, url: &Url, reply: &FinalReply) -> Duration {
        let freshness_headers = [header::CACHE_CONTROL, header::EXPIRES, header::PRAGMA];
        let has_no_freshness = !freshness_headers.iter().any(|name| reply.headers.contains_key(name));
        let lifetime = match freshness_lifetime(url, &reply.headers) {
            Some(lifetime) => lifetime,
            None if has_no_freshness => self.default_lifetime,
            None => MIN_LIFETIME,
        };
        lifetime.clamp(MIN_LIFETIME.min(self.max_lifetime), self.max_lifetime)
    }
}
