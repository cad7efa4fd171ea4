//! Tests of metrics, access log and redaction.

mod access_log;
mod metrics;
mod metrics_page;
mod redaction;
