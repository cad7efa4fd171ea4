//! Tests of metrics, access log and redaction.

mod access;
mod metrics;
mod redaction;
