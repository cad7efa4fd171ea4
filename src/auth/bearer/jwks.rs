//! JWKS cache: an issuer's keys, with at most one fetch at a time. A failed fetch keeps the previous keys.
//! `token_issuer` decides when to fetch, and how to respond until then.

use crate::{
    auth::{caller::unix_now, config::IssuerConfig},
    net::{FetchClient, FetchError, FetchLimits, UrlTrust},
    signing::{SignatureAlgorithm, VerificationKey},
    telemetry::{Event, FetchOutcome, Metrics},
    values::{ByteSize, ConfigDuration, KeyedCounts, counted_address, shown_url},
};
use arc_swap::ArcSwapOption;
use serde::Deserialize;
use serde_json::Value;
use std::{
    collections::HashMap,
    net::IpAddr,
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::{
    sync::{Mutex, Semaphore},
    time::{sleep_until, timeout},
};

const FETCH_BOUNDS: FetchLimits = FetchLimits { size: ByteSize::from_kib(512), time: ConfigDuration::from_secs(5) };

/// Maximum number of keys of one issuer.
const MAX_KEYS: usize = 100;

/// Minimum time between two attempts while there are no keys or only stale keys.
const MIN_RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// How long a token with an unknown key waits for the time of the next fetch, and with the fetch itself.
const MAX_KEY_DELAY: Duration = Duration::from_secs(5);
const MAX_KEY_WAIT: Duration = Duration::from_secs(10);

/// Maximum number of tokens of one issuer that wait for an unknown key, in total and of one client address.
const MAX_WAITING_TOKENS: usize = 1_024;
const MAX_WAITING_TOKENS_PER_ADDRESS: usize = 64;

/// Maximum number of tokens without a key that are remembered.
const MAX_TOKENS_WITHOUT_KEY: usize = 1_024;

/// Where a token that is not verified yet comes from.
#[derive(Clone, Copy, Debug)]
pub(super) struct TokenSource {
    /// SHA-256 of the token.
    pub(super) digest: [u8; 32],
    pub(super) client_address: IpAddr,
}

/// Location of an issuer's keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum JwksLocation {
    /// URL in the configuration.
    Url(String),
    /// URL in the issuer's discovery document.
    Discovery { issuer: String, url: String },
}

/// The keys of the last successful fetch.
#[derive(Debug)]
pub(super) struct FetchedKeys {
    pub(super) keys: Vec<VerificationKey>,
    pub(super) fetched_at: Instant,
    /// How much earlier the next fetch starts, in 2560ths of the interval, so that gateways do not fetch all at once.
    jitter: u8,
}

/// Reason of a fetch; decides how soon after the last attempt it may happen.
#[derive(Clone, Copy, Debug)]
pub(super) enum FetchReason {
    /// There are no keys, or only stale keys.
    NoFreshKeys,
    /// A token names an unknown key. Holds the minimum time since the last fetch for this reason.
    UnknownKey(Duration),
    /// The refresh interval has passed.
    Scheduled,
}

/// Outcome of a refresh for a token with an unknown key.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RefreshOutcome {
    /// Whether the last attempt succeeded.
    pub(super) succeeded: bool,
    /// When the last fetch for an unknown key began, if it began after the token arrived.
    pub(super) fetch_began: Option<Instant>,
}

/// Times of the last fetch attempts, and the last outcome.
#[derive(Debug, Default)]
struct FetchAttempts {
    last: Option<Instant>,
    /// Last attempt caused by an unknown key.
    last_for_unknown_key: Option<Instant>,
    /// When the last attempt ended.
    ended: Option<Instant>,
    succeeded: bool,
}

#[derive(Debug)]
pub(super) struct JwksCache {
    /// The label of the issuer in metrics.
    label: Box<str>,
    location: JwksLocation,
    client: FetchClient,
    metrics: Arc<Metrics>,
    keys: ArcSwapOption<FetchedKeys>,
    attempts: Arc<Mutex<FetchAttempts>>,
    /// Permits of the tokens that wait for an unknown key, and how many each client address has.
    waiting_tokens: Semaphore,
    waiting_by_address: Arc<KeyedCounts<IpAddr>>,
    /// Digests of the tokens whose key a fetch did not find, and when that fetch began. Not the key ids: a forger could
    /// have the id of the next key refused.
    tokens_without_key: parking_lot::Mutex<HashMap<[u8; 32], Instant>>,
}

#[derive(Deserialize)]
struct DiscoveryDocument {
    issuer: String,
    jwks_uri: String,
}

#[derive(Deserialize)]
struct JwksDocument {
    keys: Vec<Value>,
}

impl JwksCache {
    /// Creates a cache; keeps the keys that `previous` fetched from the same location.
    pub(super) fn new(
        label: &str,
        location: JwksLocation,
        client: FetchClient,
        metrics: Arc<Metrics>,
        previous: Option<&Self>,
    ) -> Self {
        let previous = previous.filter(|previous| previous.location == location);
        let keys = ArcSwapOption::new(previous.and_then(|previous| previous.keys.load_full()));
        let attempts = previous.map(|previous| Arc::clone(&previous.attempts)).unwrap_or_default();
        let (waiting_tokens, waiting_by_address) = (Semaphore::new(MAX_WAITING_TOKENS), Arc::default());
        let tokens_without_key = parking_lot::Mutex::default();
        let label = label.into();
        Self {
            label,
            location,
            client,
            metrics,
            keys,
            attempts,
            waiting_tokens,
            waiting_by_address,
            tokens_without_key,
        }
    }

    /// Records that the fetch for an unknown key that began at `fetch_began` found no key of this token.
    pub(super) fn record_token_without_key(&self, source: TokenSource, fetch_began: Instant) {
        let mut tokens = self.tokens_without_key.lock();
        if tokens.len() >= MAX_TOKENS_WITHOUT_KEY {
            tokens.clear();
        }
        tokens.insert(source.digest, fetch_began);
    }

    /// Returns whether a fetch that began within the last `interval` did not find the token's key: until then there is
    /// no other fetch for unknown keys. A request may judge its token twice, and then waits once.
    pub(super) fn has_no_key_for(&self, source: TokenSource, interval: Duration) -> bool {
        let tokens = self.tokens_without_key.lock();
        tokens.get(&source.digest).is_some_and(|fetch_began| fetch_began.elapsed() < interval)
    }

    pub(super) fn keys(&self) -> Option<Arc<FetchedKeys>> {
        self.keys.load_full()
    }

    /// Fetches the keys, joins a fetch in progress, or, soon after an attempt, fetches nothing.
    pub(super) async fn refresh(self: &Arc<Self>, reason: FetchReason) {
        self.refresh_requested_at(reason, Instant::now()).await;
    }

    /// Fetches the keys for a token whose key is unknown, joins a fetch in progress, or waits for the time of the next
    /// fetch, `interval` after the last one for this reason; fetches nothing if that time is too far away. So a rotated
    /// key is found however often other tokens name unknown keys, and those cause one fetch in `interval`. It counts as
    /// a failure if too many tokens wait already, in total or of the client's address, or the fetch takes too long.
    pub(super) async fn refresh_for_unknown_key(
        self: &Arc<Self>,
        source: TokenSource,
        interval: Duration,
    ) -> RefreshOutcome {
        let address = counted_address(source.client_address);
        let share = self.waiting_by_address.try_hold(address, 1, MAX_WAITING_TOKENS_PER_ADDRESS);
        let (Some(_share), Ok(_permit)) = (share, self.waiting_tokens.try_acquire()) else {
            return RefreshOutcome::default();
        };
        let requested_at = Instant::now();
        let refresh = async {
            let next_fetch = {
                // Waits for a fetch in progress.
                let attempts = self.attempts.lock().await;
                if attempts.ended.is_some_and(|ended| ended >= requested_at) {
                    return attempts.outcome_since(requested_at);
                }
                attempts.last_for_unknown_key.map(|last| last + interval)
            };
            if let Some(next_fetch) = next_fetch.filter(|next| *next <= requested_at + MAX_KEY_DELAY) {
                sleep_until(next_fetch.into()).await;
            }
            self.refresh_requested_at(FetchReason::UnknownKey(interval), requested_at).await
        };
        timeout(MAX_KEY_WAIT, refresh).await.unwrap_or_default()
    }

    async fn refresh_requested_at(self: &Arc<Self>, reason: FetchReason, requested_at: Instant) -> RefreshOutcome {
        if let Some(outcome) =
            self.attempts.try_lock().ok().and_then(|attempts| attempts.recent_outcome(reason, requested_at))
        {
            return outcome;
        }
        let this = Arc::clone(self);
        // A separate task: a caller that disconnects must not cancel, and thereby repeat, a fetch.
        let fetch = tokio::spawn(async move {
            let mut attempts = this.attempts.lock().await;
            if let Some(outcome) = attempts.recent_outcome(reason, requested_at) {
                return outcome;
            }
            attempts.last = Some(Instant::now());
            if let FetchReason::UnknownKey(_) = reason {
                attempts.last_for_unknown_key = attempts.last;
            }
            attempts.succeeded = this.fetch().await;
            attempts.ended = Some(Instant::now());
            attempts.outcome_since(requested_at)
        });
        fetch.await.unwrap_or_default()
    }

    /// Starts a background fetch if the last successful one is older than `refresh` and the last attempt is older than
    /// `retry`.
    pub(super) fn refresh_if_due(self: &Arc<Self>, refresh: Duration, retry: Duration) {
        let is_older = |at: Instant, age| at.elapsed() >= age;
        let due = self.keys.load().as_ref().is_none_or(|set| is_older(set.fetched_at, set.refresh_interval(refresh)));
        let may_retry = self
            .attempts
            .try_lock()
            .is_ok_and(|attempts| attempts.last.is_none_or(|last| is_older(last, retry.min(refresh))));
        if due && may_retry {
            let this = Arc::clone(self);
            tokio::spawn(async move { this.refresh(FetchReason::Scheduled).await });
        }
    }

    async fn fetch(&self) -> bool {
        match self.try_fetch().await {
            Ok(keys) => {
                let mut random = [0];
                // Without randomness the jitter is zero, which is harmless.
                let _ = aws_lc_rs::rand::fill(&mut random);
                self.keys.store(Some(Arc::new(FetchedKeys { keys, fetched_at: Instant::now(), jitter: random[0] })));
                self.metrics.record_event(Event::JwksFetched);
                self.metrics.keys().record_jwks_fetch(&self.label, FetchOutcome::Success, unix_now());
                true
            }
            Err(why) => {
                tracing::warn!(error = %why, "issuer's keys not fetched: keeping the previous keys");
                self.metrics.record_event(Event::JwksFetchFailed);
                self.metrics.keys().record_jwks_fetch(&self.label, FetchOutcome::Failure, unix_now());
                false
            }
        }
    }

    async fn try_fetch(&self) -> Result<Vec<VerificationKey>, KeyFetchError> {
        self.location.fetch_keys(&self.client).await
    }
}

/// Why an issuer's keys cannot be fetched.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyFetchError {
    /// The discovery document or the keys cannot be read.
    #[error("{0}")]
    Unreadable(String),
    /// The discovery document is that of another issuer.
    #[error("{0}")]
    OtherIssuer(String),
    /// No key can be used.
    #[error("{0}")]
    NoUsableKey(String),
}

impl From<FetchError> for KeyFetchError {
    fn from(error: FetchError) -> Self {
        Self::Unreadable(error.to_string())
    }
}

impl JwksLocation {
    /// Returns where the keys of an issuer are.
    pub(super) fn of_issuer(config: &IssuerConfig) -> Self {
        match &config.jwks_url {
            Some(url) => Self::Url(url.clone()),
            None => {
                let default_url =
                    || format!("{}/.well-known/openid-configuration", config.issuer.trim_end_matches('/'));
                Self::Discovery {
                    issuer: config.issuer.clone(),
                    url: config.discovery_url.clone().unwrap_or_else(default_url),
                }
            }
        }
    }

    /// Fetches the keys.
    pub(super) async fn fetch_keys(&self, client: &FetchClient) -> Result<Vec<VerificationKey>, KeyFetchError> {
        let (url, trust) = match self {
            Self::Url(url) => (url.clone(), UrlTrust::Operator),
            Self::Discovery { issuer, url } => discover(client, issuer, url).await?,
        };
        let document = client.fetch_json::<JwksDocument>(&url, trust, FETCH_BOUNDS).await?;
        // An unusable key does not affect the others.
        let usable_key = |key: &Value| VerificationKey::from_jwk(key, &SignatureAlgorithm::ALL).ok();
        let keys: Vec<VerificationKey> = document.keys.iter().take(MAX_KEYS).filter_map(usable_key).collect();
        // A key set without usable keys counts as a failure, so that it does not lock out every caller.
        if keys.is_empty() {
            Err(KeyFetchError::NoUsableKey(format!("{}: has no usable key", shown_url(&url))))
        } else {
            Ok(keys)
        }
    }
}

/// Fetches the discovery document; its issuer must match exactly (OpenID Connect Discovery §4.3).
async fn discover(client: &FetchClient, issuer: &str, url: &str) -> Result<(String, UrlTrust), KeyFetchError> {
    let document: DiscoveryDocument = client.fetch_json(url, UrlTrust::Operator, FETCH_BOUNDS).await?;
    if document.issuer != issuer {
        let reason = format!("{}: names the issuer {:?}, expected {issuer:?}", shown_url(url), document.issuer);
        return Err(KeyFetchError::OtherIssuer(reason));
    }
    let document_origin = client.check_url(url).map(|url| url.origin());
    let jwks_url = client.check_url(&document.jwks_uri);
    let jwks_url = jwks_url.map_err(|why| KeyFetchError::Unreadable(format!("{}: jwks_uri {why}", shown_url(url))))?;
    // A key set on the document's own origin is trusted like the configured URL; any other URL is not.
    let trust = if document_origin == Ok(jwks_url.origin()) { UrlTrust::Operator } else { UrlTrust::Untrusted };
    Ok((document.jwks_uri, trust))
}

impl FetchedKeys {
    /// Returns `refresh`, shortened by up to a tenth.
    fn refresh_interval(&self, refresh: Duration) -> Duration {
        refresh.mul_f64(1.0 - f64::from(self.jitter) / 2560.0)
    }
}

impl FetchAttempts {
    /// Returns the outcome of the last attempt, for a token that arrived at `requested_at`.
    fn outcome_since(&self, requested_at: Instant) -> RefreshOutcome {
        // A scheduled fetch delays no fetch for an unknown key, so the key is looked for again at once.
        let fetch_began = self.last_for_unknown_key.filter(|began| *began >= requested_at);
        RefreshOutcome { succeeded: self.succeeded, fetch_began }
    }

    /// Returns the outcome of the last attempt, if another attempt would be too soon.
    fn recent_outcome(&self, reason: FetchReason, requested_at: Instant) -> Option<RefreshOutcome> {
        let is_within = |last: Option<Instant>, interval: Duration| last.is_some_and(|at| at.elapsed() < interval);
        let is_joined = self.last.is_some_and(|last| last >= requested_at);
        let is_too_soon = match reason {
            FetchReason::NoFreshKeys => is_within(self.last, MIN_RETRY_INTERVAL),
            FetchReason::UnknownKey(interval) => is_within(self.last_for_unknown_key, interval),
            FetchReason::Scheduled => false,
        };
        (is_joined || is_too_soon).then(|| self.outcome_since(requested_at))
    }
}
