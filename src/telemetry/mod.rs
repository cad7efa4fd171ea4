//! Metrics, access log and redaction. The configuration bounds the number of label values, whatever callers send.
//! Secrets and query strings are never written.

mod access_log;
mod access_log_entry;
mod call_metrics;
mod certificate_metrics;
mod log_privacy;
mod metric_registration;
mod metrics;
mod redacted_stderr;
mod redaction;
mod scrape_collector;
mod source_metrics;

pub use access_log::{AccessLog, AccessLogConfig, AccessLogTarget};
pub use access_log_entry::AccessLogEntry;
pub use call_metrics::{AgentMetrics, CallOutcome, CallerClass};
pub use certificate_metrics::CertificateMetrics;
pub use log_privacy::{LoggedAddresses, LoggedCallers};
pub use metric_registration::{AgentDocumentState, ConnectionOutcome, GaugeGuard, LimitKind};
pub use metrics::{Event, Metrics, MetricsConfig};
pub use redacted_stderr::RedactedStderr;
pub use redaction::redact;
pub use source_metrics::{PollOutcome, SourceMetrics};

#[cfg(test)]
mod tests;
