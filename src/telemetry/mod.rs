//! Metrics, access log and redaction. The configuration bounds the number of label values, whatever callers send.
//! Secrets and query strings are never written.

mod access_log;
mod access_log_entry;
mod agent_series;
mod broker_metrics;
mod call_counts;
mod call_metrics;
mod caller_class;
mod certificate_metrics;
mod endpoint_metrics;
mod exemplars;
mod exposition;
mod key_metrics;
mod latency_histogram;
mod listener_metrics;
mod log_privacy;
mod memory_limit;
mod metric_labels;
mod metric_registration;
mod metric_table;
mod metrics;
mod outage;
mod recent_calls;
mod redacted_stderr;
mod redaction;
mod scrape_collector;
mod series_families;
mod shadow_denials;
mod source_metrics;
mod store_metrics;
mod task_metrics;

pub use access_log::{AccessLog, AccessLogConfig, AccessLogTarget};
pub use access_log_entry::{AccessLogEntry, redact_agent_text};
pub use broker_metrics::{BrokerConnectionGuard, BrokerMetrics, BrokerTable};
pub use call_counts::{CallCounts, DurationCounts, count_since};
pub use call_metrics::{AgentMetrics, CallOutcome, QueuedCallGuard};
pub use caller_class::CallerClass;
pub use certificate_metrics::{CertificateExpirations, CertificateMetrics, ExpiringCertificate};
pub use endpoint_metrics::EndpointCounts;
pub use exemplars::TraceIdHex;
pub use exposition::ExpositionFormat;
pub use key_metrics::{ApiKeyCounts, KeyMetrics};
pub use listener_metrics::ListenerMetrics;
pub use log_privacy::{LogPrivacy, LoggedAddresses, LoggedCallers};
pub use metric_labels::{
    AgentDocumentState, ApiKeyState, AttemptResult, AuditEntryResult, CallBlame, CallbackResult, CertificateKind,
    ConnectionOutcome, EndpointState, FetchOutcome, LimitKind, PollOutcome, ResponseProtocol, ShadowRule, SpanResult,
    StatusClass, StoreConnectionState, StoreKind, StoredTaskState, TaskEnd, TlsHandshake, UpstreamConnection,
};
pub use metric_registration::GaugeGuard;
pub use metrics::{Event, Metrics, MetricsConfig};
pub use outage::{Outage, UnavailableService};
pub use recent_calls::{RecentCalls, RecentLine, RecentLines};
pub use redacted_stderr::RedactedStderr;
pub use redaction::redact;
pub use shadow_denials::ShadowDenials;
pub use source_metrics::SourceMetrics;
pub use store_metrics::StoreMetrics;
pub use task_metrics::TaskMetrics;

#[cfg(test)]
mod tests;
