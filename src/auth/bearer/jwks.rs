//! JWKS cache: an issuer's keys, fetched once at a time from the issuer only, and kept when a fetch fails. `issuer`
//! decides when to fetch and how to respond meanwhile.

use super::jwk::{self, Key};
use crate::{
    net::{Bounds, Client, Trust},
    telemetry::{Event, Metrics},
    unit::{Size, Span},
};
use arc_swap::ArcSwapOption;
use serde::Deserialize;
use serde_json::Value;
use std::{
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::sync::Mutex;

const BOUNDS: Bounds = Bounds { size: Size::kib(512), time: Span::secs(5) };

/// Minimum time between two attempts while there are no keys, or only stale ones.
const PAUSE: Duration = Duration::from_secs(1);

/// Location of an issuer's keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// URL in the configuration.
    Jwks(String),
    /// URL in the issuer's discovery document.
    Discovery { issuer: String, url: String },
}

/// The keys of the last successful fetch.
#[derive(Debug)]
pub(super) struct KeySet {
    pub(super) keys: Vec<Key>,
    pub(super) fetched: Instant,
    /// Jitter by which the next fetch is early, in 2560ths of the interval: many gateways must not fetch at once.
    sooner: u8,
}

/// Reason of a fetch; decides how soon after the last attempt it may happen.
#[derive(Clone, Copy, Debug)]
pub(super) enum Reason {
    /// There are no keys, or only stale ones.
    Needed,
    /// A token names an unknown key; minimum time since the last fetch for this reason.
    Unknown(Duration),
    /// The refresh interval has passed.
    Due,
}

/// Record of the fetch attempts.
#[derive(Debug, Default)]
struct Attempts {
    last: Option<Instant>,
    /// Last attempt caused by an unknown key.
    unknown: Option<Instant>,
    good: bool,
}

#[derive(Debug)]
pub(super) struct Jwks {
    place: Place,
    client: Client,
    metrics: Arc<Metrics>,
    keys: ArcSwapOption<KeySet>,
    attempts: Arc<Mutex<Attempts>>,
}

#[derive(Deserialize)]
struct Discovered {
    issuer: String,
    jwks_uri: String,
}

#[derive(Deserialize)]
struct Document {
    keys: Vec<Value>,
}

impl Jwks {
    /// Creates a cache; keeps the keys that `previous` fetched from the same location.
    pub(super) fn new(place: Place, client: Client, metrics: Arc<Metrics>, previous: Option<&Self>) -> Self {
        let previous = previous.filter(|previous| previous.place == place);
        let keys = ArcSwapOption::new(previous.and_then(|previous| previous.keys.load_full()));
        let attempts = previous.map(|previous| Arc::clone(&previous.attempts)).unwrap_or_default();
        Self { place, client, metrics, keys, attempts }
    }

    pub(super) fn keys(&self) -> Option<Arc<KeySet>> {
        self.keys.load_full()
    }

    /// Fetches the keys, joins a fetch in progress, or returns the outcome of the last attempt if it was too recent.
    /// Returns whether the attempt succeeded.
    pub(super) async fn refresh(self: &Arc<Self>, reason: Reason) -> bool {
        let asked = Instant::now();
        if let Some(good) = self.attempts.try_lock().ok().and_then(|attempts| attempts.recent(reason, asked)) {
            return good;
        }
        let this = Arc::clone(self);
        // A separate task: a caller that disconnects must not cancel, and thereby repeat, a fetch.
        let fetch = tokio::spawn(async move {
            let mut attempts = this.attempts.lock().await;
            if let Some(good) = attempts.recent(reason, asked) {
                return good;
            }
            attempts.last = Some(Instant::now());
            if let Reason::Unknown(_) = reason {
                attempts.unknown = attempts.last;
            }
            attempts.good = this.fetch().await;
            attempts.good
        });
        fetch.await.unwrap_or(false)
    }

    /// Starts a background fetch if the last successful one is older than `refresh` and the last attempt is older than
    /// `retry`.
    pub(super) fn tick(self: &Arc<Self>, refresh: Duration, retry: Duration) {
        let old = |at: Instant, age| at.elapsed() >= age;
        let due = self.keys.load().as_ref().is_none_or(|set| old(set.fetched, set.due_after(refresh)));
        let free = self
            .attempts
            .try_lock()
            .is_ok_and(|attempts| attempts.last.is_none_or(|last| old(last, retry.min(refresh))));
        if due && free {
            let this = Arc::clone(self);
            tokio::spawn(async move { this.refresh(Reason::Due).await });
        }
    }

    async fn fetch(&self) -> bool {
        match self.try_fetch().await {
            Ok(keys) => {
                let mut sooner = [0];
                // Without randomness the jitter is zero, which is harmless.
                let _ = aws_lc_rs::rand::fill(&mut sooner);
                self.keys.store(Some(Arc::new(KeySet { keys, fetched: Instant::now(), sooner: sooner[0] })));
                self.metrics.count(Event::JwksFetched);
                true
            }
            Err(why) => {
                tracing::warn!(error = why, "issuer's keys not fetched: keeping the previous keys");
                self.metrics.count(Event::JwksFailed);
                false
            }
        }
    }

    async fn try_fetch(&self) -> Result<Vec<Key>, String> {
        let (url, trust) = match &self.place {
            Place::Jwks(url) => (url.clone(), Trust::Named),
            Place::Discovery { issuer, url } => self.discover(issuer, url).await?,
        };
        let found = self.client.fetch_json::<Document>(&url, trust, BOUNDS).await;
        let keys = jwk::usable(&found.map_err(|why| why.to_string())?.keys);
        // A key set without usable keys is a failure: it must not lock all callers out.
        if keys.is_empty() { Err(format!("{url}: has no usable key")) } else { Ok(keys) }
    }

    /// Fetches the discovery document; its issuer must match exactly (OpenID Connect Discovery §4.3).
    async fn discover(&self, issuer: &str, url: &str) -> Result<(String, Trust), String> {
        let found: Discovered =
            self.client.fetch_json(url, Trust::Named, BOUNDS).await.map_err(|why| why.to_string())?;
        if found.issuer != issuer {
            return Err(format!("{url}: names the issuer {:?}, expected {issuer:?}", found.issuer));
        }
        let here = self.client.vet(url).map(|url| url.origin());
        let there = self.client.vet(&found.jwks_uri).map_err(|why| format!("{url}: jwks_uri {why}"))?.origin();
        // A key set on the document's own origin is as trusted as the configured URL; any other URL is not.
        let trust = if here == Ok(there) { Trust::Named } else { Trust::Told };
        Ok((found.jwks_uri, trust))
    }
}

impl KeySet {
    /// Returns `refresh`, shortened by up to a tenth.
    fn due_after(&self, refresh: Duration) -> Duration {
        refresh.mul_f64(1.0 - f64::from(self.sooner) / 2560.0)
    }
}

impl Attempts {
    /// Returns the outcome of the last attempt, if another attempt would be too soon.
    fn recent(&self, reason: Reason, asked: Instant) -> Option<bool> {
        let since = |at: Option<Instant>, pause: Duration| at.is_some_and(|at| at.elapsed() < pause);
        let joined = self.last.is_some_and(|last| last >= asked);
        let soon = match reason {
            Reason::Needed => since(self.last, PAUSE),
            Reason::Unknown(pause) => since(self.unknown, pause),
            Reason::Due => false,
        };
        (joined || soon).then_some(self.good)
    }
}
