//! Metrics, access log and redaction. The configuration bounds the number of label values, whatever callers send.
//! Secrets and query strings are never written.

mod access_log;
mod access_log_entry;
mod access_log_target;
mod call_metrics;
mod fixed_label_values;
mod latency_histogram;
mod metric_registration;
mod metrics;
mod redaction;
mod scrape_collector;
mod source_metrics;

pub use access_log::AccessLog;
pub use access_log_entry::AccessLogEntry;
pub use access_log_target::{AccessLogConfig, AccessLogTarget};
pub use call_metrics::{AgentMetrics, CallOutcome, CallerClass};
pub use fixed_label_values::{AgentDocumentState, ConnectionOutcome, LimitKind};
pub use metric_registration::GaugeGuard;
pub use metrics::{Event, Metrics, MetricsConfig};
pub use redaction::redact;
pub use source_metrics::{PollOutcome, SourceMetrics};

#[cfg(test)]
mod tests;
