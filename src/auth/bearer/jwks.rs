//! An issuer's keys and how they are had: fetched once at a time, kept when fetching fails, and never taken from
//! anybody but the issuer. When to fetch is asked for here; what to answer meanwhile is `issuer`'s.

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

/// The least time between two attempts while there are no keys at all, or only stale ones.
const PAUSE: Duration = Duration::from_secs(1);

/// Where an issuer's keys are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// At an address that the operator wrote.
    Jwks(String),
    /// Where the issuer's discovery document says.
    Discovery { issuer: String, url: String },
}

/// The keys as they were fetched last.
#[derive(Debug)]
pub(super) struct KeySet {
    pub(super) keys: Vec<Key>,
    pub(super) fetched: Instant,
    /// How much sooner than configured the next fetch is, in 2560ths: many gateways must not ask at once.
    sooner: u8,
}

/// Why keys are asked for; decides how soon after the last attempt.
#[derive(Clone, Copy, Debug)]
pub(super) enum Reason {
    /// None are there, or only stale ones.
    Needed,
    /// A token names a key that is not there; not again within this time.
    Unknown(Duration),
    /// The timer says so.
    Due,
}

/// The attempts so far.
#[derive(Debug, Default)]
struct Attempts {
    last: Option<Instant>,
    /// The last one that an unknown key caused.
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
    /// Keys that `previous` fetched from the same place go on counting.
    pub(super) fn new(place: Place, client: Client, metrics: Arc<Metrics>, previous: Option<&Self>) -> Self {
        let previous = previous.filter(|previous| previous.place == place);
        let keys = ArcSwapOption::new(previous.and_then(|previous| previous.keys.load_full()));
        let attempts = previous.map(|previous| Arc::clone(&previous.attempts)).unwrap_or_default();
        Self { place, client, metrics, keys, attempts }
    }

    pub(super) fn keys(&self) -> Option<Arc<KeySet>> {
        self.keys.load_full()
    }

    /// Fetches, or waits for the fetch under way, or leaves it at the last attempt where that was just now.
    /// Answers whether the last attempt was good.
    pub(super) async fn refresh(self: &Arc<Self>, reason: Reason) -> bool {
        let asked = Instant::now();
        if let Some(good) = self.attempts.try_lock().ok().and_then(|attempts| attempts.recent(reason, asked)) {
            return good;
        }
        let this = Arc::clone(self);
        // A task of its own: a caller that leaves must not stop, and thereby repeat, a fetch.
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

    /// Starts a fetch beside the calls, if the last good one is older than `refresh` and no attempt was made
    /// within `retry`.
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
                // Without randomness there is no spread, and nothing worse.
                let _ = aws_lc_rs::rand::fill(&mut sooner);
                self.keys.store(Some(Arc::new(KeySet { keys, fetched: Instant::now(), sooner: sooner[0] })));
                self.metrics.count(Event::JwksFetched);
                true
            }
            Err(why) => {
                tracing::warn!(why, "an issuer's keys cannot be fetched; the last ones stay");
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
        // An answer with nothing usable is a failure: it must not lock everybody out.
        if keys.is_empty() { Err(format!("{url}: holds no usable key")) } else { Ok(keys) }
    }

    /// OpenID Connect Discovery §4.3: the issuer in the document must be the one asked for.
    async fn discover(&self, issuer: &str, url: &str) -> Result<(String, Trust), String> {
        let found: Discovered =
            self.client.fetch_json(url, Trust::Named, BOUNDS).await.map_err(|why| why.to_string())?;
        if found.issuer != issuer {
            return Err(format!("{url}: speaks for {:?}, not for {issuer:?}", found.issuer));
        }
        let here = self.client.vet(url).map(|url| url.origin());
        let there = self.client.vet(&found.jwks_uri).map_err(|why| format!("{url}: jwks_uri {why}"))?.origin();
        // Keys beside the document are the operator's choice too; elsewhere, the document chose.
        let trust = if here == Ok(there) { Trust::Named } else { Trust::Told };
        Ok((found.jwks_uri, trust))
    }
}

impl KeySet {
    /// Up to a tenth sooner than `refresh`.
    fn due_after(&self, refresh: Duration) -> Duration {
        refresh.mul_f64(1.0 - f64::from(self.sooner) / 2560.0)
    }
}

impl Attempts {
    /// The outcome of the last attempt, where another one would come too soon.
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
