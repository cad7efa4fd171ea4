//! Metrics of certificates: when those of listeners, upstreams and issuers expire. The configuration bounds the number
//! of series.

use super::{
    metric_labels::CertificateKind,
    metric_registration::MetricBuilder,
    metric_table::{CERTIFICATE_EXPIRATION, CERTIFICATE_FAILURES},
};
use parking_lot::Mutex;
use prometheus::{Error, IntCounterVec, IntGaugeVec, Registry};
use std::collections::BTreeMap;

/// The certificates of one kind: when each expires, by its name.
pub type CertificateExpirations = BTreeMap<String, i64>;

/// A certificate, and when it expires.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExpiringCertificate {
    /// Whose certificate it is.
    pub kind: CertificateKind,
    /// The address of the listener, or the name of the file.
    pub name: String,
    /// The Unix time at which it expires.
    pub expires: i64,
}

/// The metrics of certificates.
#[derive(Debug)]
pub struct CertificateMetrics {
    expiration: IntGaugeVec,
    reload_failures: IntCounterVec,
    /// The series of each kind.
    recorded: Mutex<[CertificateExpirations; CertificateKind::ALL.len()]>,
}

impl CertificateMetrics {
    pub(super) fn register(registry: &Registry) -> Result<Self, Error> {
        let builder = MetricBuilder(registry);
        Ok(Self {
            expiration: builder.int_gauge_vec(CERTIFICATE_EXPIRATION)?,
            reload_failures: builder.int_counter_vec(CERTIFICATE_FAILURES)?,
            recorded: Mutex::default(),
        })
    }

    /// Replaces the certificates of a kind, with the Unix time at which each expires.
    pub fn set_expirations(&self, kind: CertificateKind, expirations: CertificateExpirations) {
        let mut recorded = self.recorded.lock();
        let Some(previous) = recorded.get_mut(kind as usize) else { return };
        for removed in previous.keys().filter(|name| !expirations.contains_key(*name)) {
            // An error means that there is no such series.
            drop(self.expiration.remove_label_values(&[kind.name(), removed]));
        }
        for (name, expiration) in &expirations {
            self.expiration.with_label_values(&[kind.name(), name]).set(*expiration);
        }
        *previous = expirations;
    }

    /// Returns the certificates that expire before a Unix time, the first to expire first.
    pub fn expiring_before(&self, unix_seconds: i64) -> Vec<ExpiringCertificate> {
        let recorded = self.recorded.lock();
        let of_kinds = CertificateKind::ALL.iter().zip(&*recorded);
        let all =
            of_kinds.flat_map(|(kind, of_kind)| of_kind.iter().map(move |(name, expires)| (*kind, name, *expires)));
        let mut expiring: Vec<ExpiringCertificate> = all
            .filter(|(_, _, expires)| *expires < unix_seconds)
            .map(|(kind, name, expires)| ExpiringCertificate { kind, name: name.clone(), expires })
            .collect();
        expiring.sort_by_key(|certificate| certificate.expires);
        expiring
    }

    /// Creates the series of a listener's failures, so that they exist before the first failure.
    pub fn prepare_listener(&self, listener: &str) {
        self.reload_failures.with_label_values(&[listener]);
    }

    /// Counts changed certificates of a listener that were rejected.
    pub fn record_reload_failure(&self, listener: &str) {
        self.reload_failures.with_label_values(&[listener]).inc();
    }
}
