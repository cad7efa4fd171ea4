//! Metrics of the listeners' certificates. The label is the configured address of a listener, so that the configuration
//! bounds the number of series.

use prometheus::{Error, IntCounterVec, IntGaugeVec, Opts, Registry};

/// The metrics of the listeners' certificates.
#[derive(Debug)]
pub struct CertificateMetrics {
    expiry: IntGaugeVec,
    reload_failures: IntCounterVec,
}

impl CertificateMetrics {
    pub(super) fn register(registry: &Registry) -> Result<Self, Error> {
        let (expiry, failures) = ("gatepost_certificate_expiry_seconds", "gatepost_certificate_reload_failures_total");
        let metrics = Self {
            expiry: IntGaugeVec::new(
                Opts::new(expiry, "Time until the certificate that a listener uses expires; negative afterwards."),
                &["listener"],
            )?,
            reload_failures: IntCounterVec::new(
                Opts::new(failures, "Total number of changed certificates of a listener that were rejected."),
                &["listener"],
            )?,
        };
        registry.register(Box::new(metrics.expiry.clone()))?;
        registry.register(Box::new(metrics.reload_failures.clone()))?;
        Ok(metrics)
    }

    /// Sets the seconds until the certificate of a listener expires.
    pub fn record_expiry(&self, listener: &str, seconds: i64) {
        self.expiry.with_label_values(&[listener]).set(seconds);
        // So that the series exists before the first failure.
        self.reload_failures.with_label_values(&[listener]);
    }

    /// Counts changed certificates of a listener that were rejected.
    pub fn record_reload_failure(&self, listener: &str) {
        self.reload_failures.with_label_values(&[listener]).inc();
    }
}
