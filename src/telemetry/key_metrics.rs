//! Metrics of API keys and of the keys of issuers. No key and no caller has a label.

use super::{
    metric_labels::{ApiKeyState, FetchOutcome},
    metric_registration::MetricBuilder,
    metric_table::{
        API_KEY_EXPIRATION, API_KEYS, JWKS_FETCHES, JWKS_SUCCESS, REVOCATIONS, REVOCATIONS_EXCHANGED,
        UNPUBLISHED_REVOCATIONS,
    },
    outage::{Outage, OutageTimes},
};
use parking_lot::Mutex;
use prometheus::{Error, IntCounterVec, IntGauge, IntGaugeVec, Registry};
use std::collections::BTreeSet;

/// How many API keys there are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ApiKeyCounts {
    /// Keys that are accepted.
    pub valid: usize,
    /// Keys that have expired.
    pub expired: usize,
    /// Keys that are disabled.
    pub disabled: usize,
    /// The Unix time at which the next valid key expires, if one does.
    pub next_expiration: Option<i64>,
}

impl ApiKeyCounts {
    /// Adds the keys of another file.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        let earlier = |one: i64| other.next_expiration.map_or(one, |two| one.min(two));
        Self {
            valid: self.valid + other.valid,
            expired: self.expired + other.expired,
            disabled: self.disabled + other.disabled,
            next_expiration: self.next_expiration.map(earlier).or(other.next_expiration),
        }
    }
}

/// The metrics of keys.
#[derive(Debug)]
pub struct KeyMetrics {
    api_keys: Box<[IntGauge]>,
    next_expiration: IntGaugeVec,
    counts: Mutex<ApiKeyCounts>,
    last_success: IntGaugeVec,
    fetches: IntCounterVec,
    issuers: Mutex<BTreeSet<Box<str>>>,
    outages: OutageTimes,
    revocations: IntGauge,
    unpublished_revocations: IntGauge,
    revocations_exchanged: IntGaugeVec,
}

impl KeyMetrics {
    pub(super) fn register(registry: &Registry) -> Result<Self, Error> {
        let builder = MetricBuilder(registry);
        Ok(Self {
            api_keys: builder.int_gauges(API_KEYS, ApiKeyState::NAMES)?,
            next_expiration: builder.int_gauge_vec(API_KEY_EXPIRATION)?,
            counts: Mutex::default(),
            last_success: builder.int_gauge_vec(JWKS_SUCCESS)?,
            fetches: builder.int_counter_vec(JWKS_FETCHES)?,
            issuers: Mutex::default(),
            outages: OutageTimes::default(),
            revocations: builder.int_gauge(REVOCATIONS)?,
            unpublished_revocations: builder.int_gauge(UNPUBLISHED_REVOCATIONS)?,
            revocations_exchanged: builder.int_gauge_vec(REVOCATIONS_EXCHANGED)?,
        })
    }

    /// Sets the number of API keys.
    pub fn set_api_keys(&self, counts: ApiKeyCounts) {
        *self.counts.lock() = counts;
        for (state, count) in [
            (ApiKeyState::Valid, counts.valid),
            (ApiKeyState::Expired, counts.expired),
            (ApiKeyState::Disabled, counts.disabled),
        ] {
            if let Some(gauge) = self.api_keys.get(state as usize) {
                gauge.set(i64::try_from(count).unwrap_or(i64::MAX));
            }
        }
        match counts.next_expiration {
            Some(expiration) => self.next_expiration.with_label_values::<&str>(&[]).set(expiration),
            None => self.next_expiration.reset(),
        }
    }

    /// Returns the number of API keys.
    pub fn api_keys(&self) -> ApiKeyCounts {
        *self.counts.lock()
    }

    /// Sets the number of revocations, and how many of them are to be published.
    pub fn set_revocations(&self, known: usize, unpublished: usize) {
        self.revocations.set(i64::try_from(known).unwrap_or(i64::MAX));
        self.unpublished_revocations.set(i64::try_from(unpublished).unwrap_or(i64::MAX));
    }

    /// Sets the Unix time of the last exchange of revocations with the shared state.
    pub fn set_revocations_exchanged(&self, now: u64) {
        self.revocations_exchanged.with_label_values::<&str>(&[]).set(i64::try_from(now).unwrap_or(i64::MAX));
    }

    /// Sets the labels of the configured issuers, and removes the series of all others.
    pub fn set_issuers(&self, labels: impl Iterator<Item = Box<str>>) {
        let configured: BTreeSet<Box<str>> = labels.collect();
        let mut current = self.issuers.lock();
        for removed in current.difference(&configured) {
            // An error means that there is no such series.
            drop(self.last_success.remove_label_values(&[removed]));
            for outcome in FetchOutcome::NAMES {
                drop(self.fetches.remove_label_values(&[&**removed, *outcome]));
            }
        }
        for label in &configured {
            for outcome in FetchOutcome::NAMES {
                self.fetches.with_label_values(&[&**label, *outcome]);
            }
        }
        self.outages.retain_issuers(|label| configured.contains(label));
        *current = configured;
    }

    /// Counts a fetch of an issuer's keys that ended at the Unix time `now`.
    pub fn record_jwks_fetch(&self, issuer: &str, outcome: FetchOutcome, now: i64) {
        if !self.issuers.lock().contains(issuer) {
            return;
        }
        self.fetches.with_label_values(&[issuer, outcome.name()]).inc();
        self.outages.record_issuer(issuer, outcome == FetchOutcome::Success);
        if outcome == FetchOutcome::Success {
            self.last_success.with_label_values(&[issuer]).set(now);
        }
    }

    /// Returns the issuers whose keys cannot be fetched now.
    pub fn outages(&self) -> Vec<Outage> {
        self.outages.issuers()
    }
}
